//! Vector width of lavapipe, Mesa's software rasteriser. The default is 256 bits on every processor, unless the
//! environment says otherwise before the driver is loaded (Mesa's `lp_bld_init.c`).

use std::env;
use std::fmt;

use wgpu::AdapterInfo;

use super::adapter::is_lavapipe;
use super::trusted;

/// Environment variable for the number of bits in a vector.
const VARIABLE: &str = "LP_NATIVE_VECTOR_WIDTH";
/// Bits of the widest vectors of processors.
const WIDEST_BITS: &str = "512";

/// Vector width that lavapipe will use in this process, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VectorWidth {
    /// 512 bits, because the processor has such vectors.
    Widened,
    /// The number of bits that the environment specified.
    Environment(String),
    /// The driver's default, because the processor has no 512-bit vectors.
    Unsupported,
    /// The driver's default, because other threads run, or may run, and could read the environment at any time.
    MultiThreaded,
}

/// Makes lavapipe use 512-bit vectors, that is subgroups of sixteen invocations, if the processor has them. Large
/// matrix products are then faster than with the default of 256 bits. GPUs are not affected.
///
/// The setting is an environment variable, which child processes inherit. Call this at the beginning of `main`: before
/// anything looks for adapters and before other threads start. If there are other threads, or the system does not list
/// them, nothing changes. A value that the environment already has is kept. The device's name shows the result
/// (`llvmpipe (LLVM 15.0.6, 512 bits)`).
///
/// Wider vectors change the order in which sums are added, so results differ from those of narrower vectors in
/// rounding.
pub fn widen_vectors() -> VectorWidth {
    if let Some(given) = env::var_os(VARIABLE) {
        return VectorWidth::Environment(given.to_string_lossy().into_owned());
    }
    if !has_wide_vectors() {
        return VectorWidth::Unsupported;
    }
    match trusted::set_env_if_single_threaded(VARIABLE, WIDEST_BITS) {
        true => VectorWidth::Widened,
        false => VectorWidth::MultiThreaded,
    }
}

/// True if only one thread of this process may use an adapter's compiler at a time.
///
/// Mesa releases after 22 set the vector width of a process to 256 bits and then to that of the environment whenever a
/// compilation begins (`lp_build_init` in `lp_bld_init.c`, of Mesa 25.0.7). Another thread that reads it in between
/// compiles functions for textures whose vectors do not fit the kernel that calls them.
pub(super) fn compiles_on_one_thread(info: &AdapterInfo) -> bool {
    is_lavapipe(info) && resets_width(&info.driver_info) && !info.name.contains("256 bits")
}

/// True for the releases of Mesa that may set the width at each compilation, by the name of the driver's version.
fn resets_width(driver_info: &str) -> bool {
    let version = driver_info.strip_prefix("Mesa ").unwrap_or(driver_info);
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok());
    major.is_none_or(|major: u32| major > 22)
}

/// True if the processor has all features that LLVM uses for 512-bit vectors.
fn has_wide_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

impl fmt::Display for VectorWidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VectorWidth::Widened => write!(f, "{VARIABLE}={WIDEST_BITS} was set for this process"),
            VectorWidth::Environment(bits) => write!(f, "{VARIABLE}={bits} in the environment"),
            VectorWidth::Unsupported => f.write_str("the processor has no vectors of 512 bits"),
            VectorWidth::MultiThreaded => {
                write!(
                    f,
                    "{VARIABLE} was not set, since the process has other threads"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn releases_that_reset_the_width() {
        assert!(!resets_width("Mesa 22.3.6 (LLVM 15.0.6)"));
        assert!(resets_width("Mesa 25.0.7-2~bpo12+1 (LLVM 15.0.6)"));
        assert!(resets_width("unknown"));
    }

    #[test]
    fn the_environment_of_threads_stays() {
        let before = env::var_os(VARIABLE);
        let (end, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || ended.recv());
            assert_ne!(widen_vectors(), VectorWidth::Widened);
            drop(end);
        });
        assert_eq!(env::var_os(VARIABLE), before);
    }
}
