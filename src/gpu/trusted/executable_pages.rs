//! Pages of executables and libraries that this process has read and that the system can reload from disk.
//!
//! Lavapipe loads a compiler into the process: pages of LLVM are resident after it has compiled a kernel and are not
//! needed to run the kernel. The system reclaims such pages when memory is short, but until then they count as this
//! process's.

use std::ops::Range;

/// Asks the system to reclaim the pages of executables and libraries. It does so for files that belong to this process's user, as
/// for root; else they stay until memory is short. Pages that are needed again are read again.
pub(in crate::gpu) fn release() {
    // Linux lists the mappings of a process in this file; other systems do not have it.
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    for range in clean_ranges(&smaps) {
        // SAFETY: the advice keeps the contents of all pages, even if another thread has unmapped the library since and has
        // memory of its own there.
        unsafe {
            libc::madvise(
                std::ptr::without_provenance_mut(range.start),
                range.len(),
                libc::MADV_PAGEOUT,
            );
        }
    }
}

/// Ranges of executable mappings whose contents are those of their files, from the format of `proc_pid_smaps(5)`:
/// executable, not writable, and without anonymous pages, which relocations or a debugger create.
fn clean_ranges(smaps: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut candidate = None;
    for line in smaps.lines() {
        let mut fields = line.split_whitespace();
        match (fields.next(), fields.next()) {
            (Some("Anonymous:"), Some("0")) => ranges.extend(candidate.take()),
            (Some(addresses), Some(permissions)) if !addresses.ends_with(':') => {
                let is_file = fields.nth(3).is_some_and(|path| path.starts_with('/'));
                candidate = parse_range(addresses).filter(|_| permissions == "r-xp" && is_file);
            }
            _ => (),
        }
    }
    ranges
}

/// Parses `start-end`, in hexadecimal digits.
fn parse_range(addresses: &str) -> Option<Range<usize>> {
    let (start, end) = addresses.split_once('-')?;
    let number = |digits| usize::from_str_radix(digits, 16).ok();
    Some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping in the format of `smaps`, with some of its lines.
    fn mapping(head: &str, anonymous: usize) -> String {
        format!("{head}\nRss: 8 kB\nAnonymous: {anonymous} kB\nVmFlags: rd ex mr\n")
    }

    #[test]
    fn only_clean_executable_mappings() {
        let smaps = [
            mapping("1000-3000 r--p 00000000 08:01 17 /usr/lib/a.so", 0),
            mapping("3000-5000 r-xp 00002000 08:01 17 /usr/lib/a.so", 0),
            mapping("5000-7000 rw-p 00004000 08:01 17 /usr/lib/a.so", 0),
            mapping("8000-a000 r-xp 00000000 08:01 18 /usr/lib/moved.so", 4),
            mapping("a000-c000 r-xp 00000000 08:01 19 /usr/lib/a blank.so", 0),
            mapping("c000-d000 r-xp 00000000 00:00 0", 0),
            mapping("d000-e000 r-xp 00000000 00:00 0          [vdso]", 0),
        ];
        assert_eq!(
            clean_ranges(&smaps.concat()),
            [0x3000..0x5000, 0xa000..0xc000]
        );
        assert!(clean_ranges("").is_empty());
    }

    #[test]
    fn this_process_survives_a_release() {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("Linux tells mappings");
        assert!(!clean_ranges(&smaps).is_empty());
        release();
        assert_eq!(parse_range("10-1f"), Some(16..31));
    }
}
