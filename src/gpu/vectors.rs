//! How long the vectors of Mesa's rasteriser are: 256 bits, whatever the processor has, unless the environment says otherwise
//! before the driver is loaded (`lp_bld_init.c` of Mesa).

use std::env;
use std::fmt;

use super::trusted;

/// What tells the driver how many bits a vector has.
const VARIABLE: &str = "LP_NATIVE_VECTOR_WIDTH";
/// The longest vectors of processors.
const BITS: &str = "512";

/// How long vectors of Mesa's rasteriser will be in this process, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VectorWidth {
    /// 512 bits: the processor has such vectors.
    Widened,
    /// So many bits, which the environment had said before.
    Given(String),
    /// The driver's default, since the processor has no vectors of 512 bits.
    Short,
    /// The driver's default, since other threads run, or may run, which read the environment at any time.
    Threaded,
}

/// Has Mesa's rasteriser compute with vectors of 512 bits, subgroups of sixteen invocations, where the processor has them:
/// large products take it two thirds of the time that they take by its default of 256 (on a Zen 5). GPUs are not concerned.
///
/// It is told through the environment, which programs that this one starts inherit. So this is for the beginning of `main`:
/// before anything looks for adapters, and before other threads are there. Where there are some, or the system does not tell,
/// nothing changes; nor does what the environment says already. A device's name tells what came of it
/// (`llvmpipe (LLVM 15.0.6, 512 bits)`).
///
/// Sums are added up in another order then, so that results differ in rounding from those of shorter vectors.
pub fn widen_vectors() -> VectorWidth {
    if let Some(given) = env::var_os(VARIABLE) {
        return VectorWidth::Given(given.to_string_lossy().into_owned());
    }
    if !has_wide_vectors() {
        return VectorWidth::Short;
    }
    match trusted::set_variable_if_alone(VARIABLE, BITS) {
        true => VectorWidth::Widened,
        false => VectorWidth::Threaded,
    }
}

/// True if the processor has all that LLVM makes of vectors of 512 bits.
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
            VectorWidth::Widened => write!(f, "{VARIABLE}={BITS} was set for this process"),
            VectorWidth::Given(bits) => write!(f, "{VARIABLE}={bits} in the environment"),
            VectorWidth::Short => f.write_str("the processor has no vectors of 512 bits"),
            VectorWidth::Threaded => {
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
