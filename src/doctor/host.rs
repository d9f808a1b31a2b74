//! Facts about this machine and this program. Nothing here names the user or the machine.

use std::env;
use std::path::Path;
use std::thread;

use crate::files;

/// Facts about the host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostFacts {
    /// Version of Onionskin.
    pub version: &'static str,
    /// Operating system: `linux`, `macos`, `windows`.
    pub system: &'static str,
    /// Architecture of the processor: `x86_64`, `aarch64`.
    pub architecture: &'static str,
    /// Vector features of the processor that this program can detect.
    pub vectors: Vec<&'static str>,
    /// Threads that run at the same time; 0 if unknown.
    pub processors: usize,
    /// Bytes of memory, where the system tells them.
    pub memory: Option<u64>,
    /// Environment variables that drivers, wgpu and Onionskin read, with values in which the home folder is `~`.
    pub environment: Vec<(String, String)>,
}

/// Beginnings of the names of environment variables that change results or the choice of a driver.
const PREFIXES: &[&str] = &[
    "ONIONSKIN_",
    "VK_",
    "WGPU_",
    "MESA_",
    "LP_",
    "GALLIUM_",
    "RADV_",
    "AMD_",
    "ANV_",
    "INTEL_",
    "NVK_",
    "ZINK_",
    "MTL_",
    "LIBGL_",
    "DRI_PRIME",
    "RUST_BACKTRACE",
];

impl HostFacts {
    /// Facts about this machine.
    pub fn read() -> HostFacts {
        HostFacts {
            version: env!("CARGO_PKG_VERSION"),
            system: env::consts::OS,
            architecture: env::consts::ARCH,
            vectors: vector_features(),
            processors: thread::available_parallelism().map_or(0, usize::from),
            memory: memory(),
            environment: environment(env::vars_os().map(|(name, value)| {
                let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
                (text(name), text(value))
            })),
        }
    }
}

/// The variables that count, by name.
fn environment(variables: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let counts = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let variables = variables.filter(|(name, _)| counts(name));
    let mut found: Vec<(String, String)> = variables
        .map(|(name, value)| (name, without_home(&value)))
        .collect();
    found.sort();
    found
}

/// Replaces the home folder in a text by `~`.
pub(super) fn without_home(text: &str) -> String {
    let home = ["HOME", "USERPROFILE"].map(env::var);
    let homes = home.iter().flatten().map(String::as_str);
    homes.fold(text.to_string(), |text, home| replace_home(&text, home))
}

/// Replaces a folder where it begins a path: not `/ada` in `/home/ada` or in `/adam`.
fn replace_home(text: &str, home: &str) -> String {
    let home = home.trim_end_matches(['/', '\\']);
    let is_name = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let mut replaced = String::new();
    let (mut rest, mut before) = (text, None);
    while let Some(place) = rest.find(home).filter(|_| !home.is_empty()) {
        let (head, tail) = rest.split_at(place);
        let tail = tail.get(home.len()..).unwrap_or_default();
        let is_start = !head.chars().next_back().or(before).is_some_and(is_name);
        let is_end = !tail.starts_with(is_name);
        replaced += head;
        replaced += if is_start && is_end { "~" } else { home };
        (rest, before) = (tail, home.chars().next_back());
    }
    replaced + rest
}

/// Bytes of memory, on Linux.
fn memory() -> Option<u64> {
    let text = files::read_to_string(Path::new("/proc/meminfo")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Vector features that are detected.
fn vector_features() -> Vec<&'static str> {
    macro_rules! detected {
        ($detect:ident: $($name:tt),*) => {
            [$(($name, std::arch::$detect!($name))),*]
        };
    }
    #[cfg(target_arch = "x86_64")]
    let all = detected!(is_x86_feature_detected: "sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl");
    #[cfg(target_arch = "aarch64")]
    let all = detected!(is_aarch64_feature_detected: "neon", "fp16", "dotprod", "sve", "sve2");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let all: [(&str, bool); 0] = [];
    let found = all.into_iter().filter(|(_, is_detected)| *is_detected);
    found.map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_folder_is_not_told() {
        let replaced = replace_home("/home/ada/icd.json:/usr/x", "/home/ada/");
        assert_eq!(replaced, "~/icd.json:/usr/x");
        let replaced = replace_home("x=/ada /ada/a /home/ada/b /adam /ada", "/ada");
        assert_eq!(replaced, "x=~ ~/a /home/ada/b /adam ~");
        assert_eq!(replace_home("/usr/x", "/"), "/usr/x");
        assert_eq!(replace_home("/usr/x", ""), "/usr/x");
    }

    #[test]
    fn only_variables_that_count_are_listed() {
        let pair = |name: &str| (name.to_string(), "1".to_string());
        let names = ["VK_ICD_FILENAMES", "USER", "ONIONSKIN_DEVICE", "AWS_TOKEN"];
        let found = environment(names.map(pair).into_iter());
        assert_eq!(found, [pair("ONIONSKIN_DEVICE"), pair("VK_ICD_FILENAMES")]);
    }
}
