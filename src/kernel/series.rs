//! Series with published coefficients. The host evaluates them in either precision; the device evaluates them in single
//! precision with a WGSL function that is generated from the same table.

use std::fmt::Write;
use std::ops::{Add, Div, Mul, Neg, Sub};

use super::literal;

pub mod airy;
pub mod bessel;
pub mod gamma;

/// All series.
pub fn all() -> impl Iterator<Item = &'static Series> {
    [airy::ALL, bessel::ALL, gamma::ALL].into_iter().flatten()
}

/// A float type, with functions that round correctly.
pub trait Real:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// True for single precision.
    const IS_SINGLE: bool;
    /// Distance from 1 to the next larger number.
    const EPSILON: Self;
    /// The nearest number.
    fn from_f64(x: f64) -> Self;
    /// `self · y + z`, rounded once.
    fn fused_mul_add(self, y: Self, z: Self) -> Self;
    /// Square root.
    fn square_root(self) -> Self;
    /// Applies a function of double precision and rounds its value once.
    fn apply_rounded(self, function: fn(f64) -> f64) -> Self;
}

impl Real for f32 {
    const IS_SINGLE: bool = true;
    const EPSILON: f32 = f32::EPSILON;

    fn from_f64(x: f64) -> f32 {
        x as f32
    }

    fn fused_mul_add(self, y: f32, z: f32) -> f32 {
        self.mul_add(y, z)
    }

    fn square_root(self) -> f32 {
        self.sqrt()
    }

    fn apply_rounded(self, function: fn(f64) -> f64) -> f32 {
        function(f64::from(self)) as f32
    }
}

impl Real for f64 {
    const IS_SINGLE: bool = false;
    const EPSILON: f64 = f64::EPSILON;

    fn from_f64(x: f64) -> f64 {
        x
    }

    fn fused_mul_add(self, y: f64, z: f64) -> f64 {
        self.mul_add(y, z)
    }

    fn square_root(self) -> f64 {
        self.sqrt()
    }

    fn apply_rounded(self, function: fn(f64) -> f64) -> f64 {
        function(self)
    }
}

/// Basis of a series.
#[derive(Clone, Copy)]
enum Basis {
    /// `½ c₀ + Σ cₖ Tₖ(x / 2)`, by Clenshaw's recurrence.
    Chebyshev,
    /// `Σ cₖ xᵏ`, by Horner's rule.
    Powers,
}

/// A series. The coefficient of the highest order comes first.
pub struct Series {
    /// Name of its function in WGSL.
    pub name: &'static str,
    basis: Basis,
    coefficients: &'static [f64],
}

impl Series {
    const fn chebyshev(name: &'static str, coefficients: &'static [f64]) -> Series {
        Series {
            name,
            basis: Basis::Chebyshev,
            coefficients,
        }
    }

    const fn powers(name: &'static str, coefficients: &'static [f64]) -> Series {
        Series {
            name,
            basis: Basis::Powers,
            coefficients,
        }
    }

    /// Evaluates the series, with fused multiply-adds where PyTorch's builds fuse.
    pub fn eval<T: Real>(&self, x: T) -> T {
        let coefficients = self.coefficients.iter().map(|c| T::from_f64(*c));
        let zero = T::from_f64(0.0);
        match self.basis {
            Basis::Powers => coefficients.fold(zero, |sum, c| sum.fused_mul_add(x, c)),
            Basis::Chebyshev => {
                let (mut previous_2, mut previous, mut sum) = (zero, zero, zero);
                for c in coefficients {
                    (previous_2, previous) = (previous, sum);
                    sum = x.fused_mul_add(previous, -previous_2) + c;
                }
                T::from_f64(0.5) * (sum - previous_2)
            }
        }
    }

    /// The WGSL function that computes [`eval`](Series::eval) in single precision.
    pub fn wgsl(&self) -> String {
        let (name, count) = (self.name, self.coefficients.len());
        let mut list = String::new();
        for c in self.coefficients {
            let _ = write!(list, "{}, ", literal::f32_literal(*c as f32));
        }
        let list = list.trim_end_matches(", ");
        let (step, result) = match self.basis {
            Basis::Powers => ("sum = fused(sum, x, c[k]);", "sum"),
            Basis::Chebyshev => (
                "before = here;\n        here = sum;\n        sum = fused(x, here, -before) + c[k];",
                "0.5 * (sum - before)",
            ),
        };
        let variables = match self.basis {
            Basis::Powers => "var sum = 0.0;",
            Basis::Chebyshev => "var before = 0.0;\n    var here = 0.0;\n    var sum = 0.0;",
        };
        format!(
            "fn {name}(x: f32) -> f32 {{\n    var c = array<f32, {count}>({list});\n    {variables}\n    \
             for (var k = 0u; k < {count}u; k = k + 1u) {{\n        {step}\n    }}\n    return {result};\n}}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed() {
        // 1 + 2x + 3x², and 3/2 + 2 T₁(x / 2) + T₂(x / 2).
        let powers = Series::powers("powers", &[3.0, 2.0, 1.0]);
        let chebyshev = Series::chebyshev("chebyshev", &[1.0, 2.0, 3.0]);
        assert_eq!((powers.eval(2.0f32), chebyshev.eval(2.0f64)), (17.0, 4.5));
        assert!(chebyshev.wgsl().contains("array<f32, 3>(1.0, 2.0, 3.0)"));
    }
}
