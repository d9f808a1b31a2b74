//! `--dtype`: what a device stores values of f32 in.

use clap::Args;

use crate::compare::Tolerance;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::stored::Precision;

/// What values of f32 are stored in.
#[derive(Args)]
pub(super) struct Dtype {
    /// What the device stores f32 weights and values between kernels in: f16 for half the bytes, or f32. Kernels compute in
    /// f32 in any case.
    #[arg(long, value_name = "DTYPE", default_value = "f32")]
    dtype: String,
}

/// How exact outputs must be.
#[derive(Args)]
pub(super) struct Exactness {
    /// Relative tolerance, by default 1e-3, or 1e-2 with --dtype f16.
    #[arg(long, allow_negative_numbers = true)]
    rtol: Option<f64>,
    /// Absolute tolerance, by default 1e-4, or 1e-2 with --dtype f16.
    #[arg(long, allow_negative_numbers = true)]
    atol: Option<f64>,
}

impl Dtype {
    pub(super) fn precision(&self) -> Result<Precision> {
        let dtype: Result<DType> = self.dtype.parse();
        dtype.and_then(Precision::of).map_err(|_| {
            let message = format!(
                "--dtype {} is nothing that values are stored in",
                self.dtype
            );
            Error::usage(message).help("give f32 or f16")
        })
    }

    /// The option as another process is given it.
    pub(super) fn argument(&self) -> String {
        format!("--dtype={}", self.dtype)
    }
}

/// What is allowed of recorded cases, 1e-3 of each number and 1e-4 of a model's largest one, where values are stored in half
/// precision: 1e-2 of both.
pub(super) fn widened(tolerance: Tolerance, precision: Precision) -> Tolerance {
    match precision {
        Precision::Single => tolerance,
        Precision::Half => Tolerance {
            rtol: 10.0 * tolerance.rtol,
            atol: 100.0 * tolerance.atol,
        },
    }
}

impl Exactness {
    /// The tolerance that is asked for, or that suits what values are stored in.
    pub(super) fn tolerance(&self, precision: Precision) -> Tolerance {
        let (rtol, atol) = match precision {
            Precision::Single => (1e-3, 1e-4),
            Precision::Half => (1e-2, 1e-2),
        };
        self.or(Tolerance { rtol, atol })
    }

    /// Checks that tolerances are numbers from 0.
    pub(super) fn check(&self) -> Result<()> {
        let named = [("--rtol", self.rtol), ("--atol", self.atol)];
        let is_bad = |value: f64| value.is_nan() || value < 0.0;
        match named
            .iter()
            .find_map(|(name, value)| Some((name, value.filter(|v| is_bad(*v))?)))
        {
            Some((name, value)) => {
                let message = format!("{name} {value} is no tolerance");
                Err(Error::usage(message)
                    .help(format!("give {name} a number from 0, such as 1e-3")))
            }
            None => Ok(()),
        }
    }

    /// The tolerance that is asked for, or this one.
    pub(super) fn or(&self, usual: Tolerance) -> Tolerance {
        Tolerance {
            rtol: self.rtol.unwrap_or(usual.rtol),
            atol: self.atol.unwrap_or(usual.atol),
        }
    }
}
