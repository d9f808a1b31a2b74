//! Pages of programs and libraries that this process has read, and that the system has on disk.
//!
//! Mesa's rasteriser brings a compiler into the process: some 40 MB of LLVM are resident once it has compiled a kernel, and are
//! not needed to run it. The system takes such pages when memory is short, but until then they count as this process's.

use std::ops::Range;

/// Gives back the pages of programs and libraries; those that are still needed come back from the system's cache.
pub(in crate::gpu) fn give_back() {
    // Linux tells the mappings of a process there; elsewhere there is no such file.
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    for range in unchanged(&smaps) {
        // SAFETY: the range is mapped from a file, for this process alone, which cannot write there and has no page of its own
        // in it. Whoever reads there next finds the file's bytes, as before.
        unsafe {
            libc::madvise(
                std::ptr::without_provenance_mut(range.start),
                range.len(),
                libc::MADV_DONTNEED,
            );
        }
    }
}

/// Where programs lie that are as in their files, in the format of `proc_pid_smaps(5)`: mappings that are executable and not
/// writable, with no pages of the process's own, which relocations or a debugger make.
fn unchanged(smaps: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut program = None;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("Anonymous:"), Some("0")) => ranges.extend(program.take()),
            (Some(addresses), Some(permissions)) if !addresses.ends_with(':') => {
                let is_file = words.nth(3).is_some_and(|path| path.starts_with('/'));
                program = range(addresses).filter(|_| permissions == "r-xp" && is_file);
            }
            _ => (),
        }
    }
    ranges
}

/// `start-end`, in hexadecimal digits.
fn range(addresses: &str) -> Option<Range<usize>> {
    let (start, end) = addresses.split_once('-')?;
    let number = |digits| usize::from_str_radix(digits, 16).ok();
    Some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping as the system tells it, with some of its lines.
    fn mapping(head: &str, anonymous: usize) -> String {
        format!("{head}\nRss: 8 kB\nAnonymous: {anonymous} kB\nVmFlags: rd ex mr\n")
    }

    #[test]
    fn only_programs_as_in_their_files() {
        let smaps = [
            mapping("1000-3000 r--p 00000000 08:01 17 /usr/lib/a.so", 0),
            mapping("3000-5000 r-xp 00002000 08:01 17 /usr/lib/a.so", 0),
            mapping("5000-7000 rw-p 00004000 08:01 17 /usr/lib/a.so", 0),
            mapping("8000-a000 r-xp 00000000 08:01 18 /usr/lib/moved.so", 4),
            mapping("a000-c000 r-xp 00000000 08:01 19 /usr/lib/a blank.so", 0),
            mapping("c000-d000 r-xp 00000000 00:00 0", 0),
            mapping("d000-e000 r-xp 00000000 00:00 0          [vdso]", 0),
        ];
        assert_eq!(unchanged(&smaps.concat()), [0x3000..0x5000, 0xa000..0xc000]);
        assert_eq!(unchanged(""), []);
    }

    #[test]
    fn this_program_goes_on() {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("Linux tells mappings");
        assert!(!unchanged(&smaps).is_empty());
        give_back();
        assert_eq!(range("10-1f"), Some(16..31));
    }
}
