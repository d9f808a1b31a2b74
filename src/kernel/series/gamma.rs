//! Coefficients of the logarithmic derivative of the gamma function, from Moshier's Cephes library (`psi.c`).

use super::Series;

/// `(ln x - 1 / 2x - ψ(x)) x²` for large `x`, a polynomial in `1 / x²`: `Σ B₂ₖ / (2k x²ᵏ⁻²)`.
pub const DIGAMMA: Series = Series::powers(
    "digamma_tail",
    &[
        0.083_333_333_333_333_33,
        -0.021_092_796_092_796_094,
        0.007_575_757_575_757_576,
        -0.004_166_666_666_666_667,
        0.003_968_253_968_253_968,
        -0.008_333_333_333_333_333,
        0.083_333_333_333_333_33,
    ],
);

/// All series of this module.
pub const ALL: &[Series] = &[DIGAMMA];
