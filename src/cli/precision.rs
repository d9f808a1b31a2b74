//! `--dtype`: what a device stores values of f32 in.

use clap::Args;

use crate::compare::Tolerance;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::stored::Precision;

/// What values of f32 are stored in.
#[derive(Args)]
pub(super) struct Dtype {
    /// What the device stores f32 weights and values between kernels in: f16 for half the bytes, or f32. Kernels compute in
    /// f32 in any case.
    #[arg(long, value_name = "DTYPE", default_value_t = DType::F32)]
    dtype: DType,
}

/// How exact outputs must be.
#[derive(Args)]
pub(super) struct Exactness {
    /// Relative tolerance, by default 1e-3, or 1e-2 with --dtype f16.
    #[arg(long)]
    rtol: Option<f64>,
    /// Absolute tolerance, by default 1e-4, or 1e-2 with --dtype f16.
    #[arg(long)]
    atol: Option<f64>,
}

impl Dtype {
    pub(super) fn precision(&self) -> Result<Precision> {
        Precision::of(self.dtype)
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

    /// The tolerance that is asked for, or this one.
    pub(super) fn or(&self, usual: Tolerance) -> Tolerance {
        Tolerance {
            rtol: self.rtol.unwrap_or(usual.rtol),
            atol: self.atol.unwrap_or(usual.atol),
        }
    }
}
