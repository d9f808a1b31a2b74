//! `--dtype`, the dtype in which a device stores f32 values, and the tolerances that suit it.

use clap::Args;

use crate::compare::Tolerance;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::materialization::Precision;

/// `--dtype`: storage of f32 values.
#[derive(Args)]
pub(super) struct StorageDtype {
    /// Storage of f32 weights and intermediate values on the device, f32 or f16: f16 halves their bytes. Kernels compute in
    /// f32 in either case.
    #[arg(long, value_name = "DTYPE", default_value = "f32")]
    dtype: String,
}

/// `--rtol` and `--atol`: tolerances of outputs.
#[derive(Args)]
pub(super) struct ToleranceOptions {
    /// Relative tolerance, by default 1e-3, or 1e-2 with --dtype f16.
    #[arg(long, allow_negative_numbers = true)]
    rtol: Option<f64>,
    /// Absolute tolerance, by default 1e-4, or 1e-2 with --dtype f16.
    #[arg(long, allow_negative_numbers = true)]
    atol: Option<f64>,
}

impl StorageDtype {
    pub(super) fn precision(&self) -> Result<Precision> {
        let dtype: Result<DType> = self.dtype.parse();
        dtype.and_then(Precision::of).map_err(|_| {
            let message = format!("--dtype {} is not supported", self.dtype);
            Error::usage(message).help("give f32 or f16")
        })
    }

    /// Returns the option for the command line of another process.
    pub(super) fn command_line_option(&self) -> String {
        format!("--dtype={}", self.dtype)
    }
}

/// Adapts the tolerance of a recorded case, 1e-3 of each number and 1e-4 of a model's largest one, to the storage of values:
/// half precision widens both to 1e-2.
pub(super) fn widen_for_storage(tolerance: Tolerance, precision: Precision) -> Tolerance {
    match precision {
        Precision::Single => tolerance,
        Precision::Half => Tolerance {
            rtol: 10.0 * tolerance.rtol,
            atol: 100.0 * tolerance.atol,
        },
    }
}

impl ToleranceOptions {
    /// Returns the requested tolerance, or one that suits the storage of values.
    pub(super) fn tolerance(&self, precision: Precision) -> Tolerance {
        self.or_defaults(match precision {
            Precision::Single => Tolerance::SINGLE,
            Precision::Half => Tolerance::HALF,
        })
    }

    /// Checks that tolerances are not negative and not NaN.
    pub(super) fn check(&self) -> Result<()> {
        let named = [("--rtol", self.rtol), ("--atol", self.atol)];
        let is_bad = |value: f64| value.is_nan() || value < 0.0;
        match named
            .iter()
            .find_map(|(name, value)| Some((name, value.filter(|v| is_bad(*v))?)))
        {
            Some((name, value)) => {
                let message = format!("{name} {value} is not a tolerance");
                Err(Error::usage(message)
                    .help(format!("give {name} a number from 0, such as 1e-3")))
            }
            None => Ok(()),
        }
    }

    /// Returns the requested tolerance, with defaults from `usual`.
    pub(super) fn or_defaults(&self, usual: Tolerance) -> Tolerance {
        Tolerance {
            rtol: self.rtol.unwrap_or(usual.rtol),
            atol: self.atol.unwrap_or(usual.atol),
        }
    }
}
