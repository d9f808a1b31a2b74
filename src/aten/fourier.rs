//! Fourier transforms with real operands and results, as products with matrices of cosines and sines.

use std::f64::consts::PI;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;

use super::{Args, Composite};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &["aten::fft_irfft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor"],
        |a| {
            transform(
                a,
                TransformDirection::Inverse,
                vec![a.int("dim")],
                a.sizes("n"),
            )
        },
        &["f32[3, 5]", "f32[B, 6, 2], 10, 1, 'ortho'"],
    ),
    Composite::one(
        &["aten::fft_hfft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor"],
        |a| {
            transform(
                a,
                TransformDirection::Forward,
                vec![a.int("dim")],
                a.sizes("n"),
            )
        },
        &["f32[3, 5]", "i64[4], 7, norm='forward'"],
    ),
    Composite::one(
        &[
            "aten::fft_irfft2(Tensor self, SymInt[1]? s=None, int[1] dim=[-2, -1], str? norm=None) -> Tensor",
            "aten::fft_irfftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",
        ],
        |a| transform(a, TransformDirection::Inverse, dims(a), a.sizes("s")),
        &["f32[4, 5]", "f32[2, 4, 5], [3, 8], [1, 2]"],
    ),
    Composite::one(
        &[
            "aten::fft_hfft2(Tensor self, SymInt[1]? s=None, int[1] dim=[-2, -1], str? norm=None) -> Tensor",
            "aten::fft_hfftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",
        ],
        |a| transform(a, TransformDirection::Forward, dims(a), a.sizes("s")),
        &["f32[4, 5]", "f32[2, 4, 5], [3, 8], [1, 2], 'ortho'"],
    ),
];

/// The direction of a transform. It decides the sign of the exponent, and which transform is scaled by default: the
/// inverse one.
#[derive(Clone, Copy, PartialEq)]
enum TransformDirection {
    /// `exp(-i·angle)`
    Forward,
    /// `exp(i·angle)`
    Inverse,
}

/// The dimensions to transform: those given, else as many of the last ones as there are sizes, else all.
fn dims(a: &Args) -> Vec<i64> {
    if let Some(dims) = a.optional_ints("dim") {
        return dims;
    }
    let count = if a.is_none("s") {
        a.tensor("self").rank()
    } else {
        a.sizes("s").len()
    };
    (1..=count as i64).rev().map(|dim| -dim).collect()
}

/// Transforms along each dimension. The operand is the first half of a Hermitian-symmetric tensor along the last of
/// `dims`, so the result is real. `sizes` are the sizes of the result along `dims`; if there are none, they follow from
/// the operand.
fn transform<'g>(
    a: &Args<'g>,
    direction: TransformDirection,
    dims: Vec<i64>,
    sizes: Vec<Dim>,
) -> Result<Value<'g>> {
    let x = a.tensor("self").to_float();
    a.builder().check()?;
    let Some((last, others)) = dims.split_last() else {
        return a.reject("transforms along no dimension");
    };
    if !sizes.is_empty() && sizes.len() != dims.len() {
        return a.reject(format!(
            "{} sizes for {} dimensions",
            sizes.len(),
            dims.len()
        ));
    }
    // A size of -1 means the operand's size.
    let requested_size = |index: usize| sizes.get(index).filter(|size| !size.is(-1)).cloned();
    let output_size = requested_size(others.len()).unwrap_or((x.size(*last) - 1) * 2);
    let mut signal = ComplexSignal {
        real: resized(x, *last, &(output_size.floor_div(&Dim::from(2)) + 1))?,
        imaginary: None,
        direction,
    };
    let mut element_count = output_size.clone();
    for (index, dim) in others.iter().enumerate() {
        if let Some(size) = requested_size(index) {
            signal.real = resized(signal.real, *dim, &size)?;
        }
        element_count = &element_count * &signal.real.size(*dim);
    }
    for dim in others {
        signal = signal.transformed(*dim);
    }
    let result = signal.hermitian_to_real(*last, &output_size);
    let scale_divisor = a.builder().full(result.dtype(), vec![], element_count);
    Ok(match (a.str("norm").as_str(), direction) {
        ("ortho", _) => result / scale_divisor.sqrt(),
        ("" | "backward", TransformDirection::Inverse)
        | ("forward", TransformDirection::Forward) => result / scale_divisor,
        ("" | "backward" | "forward", _) => result,
        (other, _) => return Err(Error::operator(format!("norm = {other:?}"))),
    })
}

/// Truncates or zero-pads the end of a dimension.
fn resized<'g>(x: Value<'g>, dim: i64, size: &Dim) -> Result<Value<'g>> {
    let current_size = x.size(dim);
    if x.builder().symbols().less_equal(size, &current_size)? {
        return Ok(x.narrow(dim, 0, size.clone()));
    }
    let mut high = vec![Dim::ZERO; x.rank()];
    if let Some(padding) = x.axis(dim).and_then(|axis| high.get_mut(axis)) {
        *padding = size - &current_size;
    }
    Ok(x.pad(&vec![Dim::ZERO; high.len()], &high, 0.0))
}

/// A complex tensor in the course of a transform.
struct ComplexSignal<'g> {
    real: Value<'g>,
    /// `None` means zero.
    imaginary: Option<Value<'g>>,
    direction: TransformDirection,
}

impl<'g> ComplexSignal<'g> {
    /// The transform along a dimension: sums of `(re + i·im)·(cos ± i·sin)`.
    fn transformed(&self, dim: i64) -> ComplexSignal<'g> {
        let size = self.real.size(dim);
        let (cos, sin) = self.cosines_and_sines(&size, &size);
        let real = self.real_part(dim, cos, sin);
        let sine_product = multiply_axis(self.real, dim, sin);
        let imaginary = match self.imaginary {
            Some(imaginary) => multiply_axis(imaginary, dim, cos) + sine_product,
            None => sine_product,
        };
        ComplexSignal {
            real,
            imaginary: Some(imaginary),
            direction: self.direction,
        }
    }

    /// The real signal of `output_size` elements along a dimension, of whose spectrum this is the first half. Each bin
    /// counts twice, except the first one and, for an even `output_size`, the one in the middle.
    fn hermitian_to_real(&self, dim: i64, output_size: &Dim) -> Value<'g> {
        let bins = self.real.size(dim);
        let (cos, sin) = self.cosines_and_sines(&bins, output_size);
        let builder = self.real.builder();
        let index = builder.iota(DType::I64, vec![bins, Dim::ONE], 0);
        let is_end = (index * 2).remainder(output_size).eq(0);
        let two = builder.full(cos.dtype(), vec![], 2.0);
        let multiplicity = is_end.where_(1.0, two);
        self.real_part(dim, cos * multiplicity, sin * multiplicity)
    }

    /// The real part of the product with `cos + i·sin`, summed along a dimension.
    fn real_part(&self, dim: i64, cos: Value<'g>, sin: Value<'g>) -> Value<'g> {
        let real = multiply_axis(self.real, dim, cos);
        self.imaginary
            .map_or(real, |imaginary| real - multiply_axis(imaginary, dim, sin))
    }

    /// Cosines and sines `[inputs, outputs]` of `2π·k·t / outputs`; the sines have the direction's sign. Tables of
    /// known size are computed in `f64`, since they are folded.
    fn cosines_and_sines(&self, inputs: &Dim, outputs: &Dim) -> (Value<'g>, Value<'g>) {
        let builder = self.real.builder();
        let is_known = inputs.as_const().and(outputs.as_const()).is_some();
        let dtype = self.real.dtype();
        let table_dtype = if is_known { DType::F64 } else { dtype };
        let indices = |shape: [Dim; 2], axis| builder.iota(DType::I64, shape.to_vec(), axis);
        let phase =
            indices([inputs.clone(), Dim::ONE], 0) * indices([Dim::ONE, outputs.clone()], 1);
        let angle = phase.remainder(outputs).to(table_dtype) * (2.0 * PI) / outputs;
        let sign = if self.direction == TransformDirection::Inverse {
            1.0
        } else {
            -1.0
        };
        (angle.cos().to(dtype), (angle.sin() * sign).to(dtype))
    }
}

/// Multiplies a dimension of the value by a matrix `[inputs, outputs]`: the size of the dimension becomes `outputs`.
fn multiply_axis<'g>(x: Value<'g>, dim: i64, matrix: Value<'g>) -> Value<'g> {
    if x.rank() == 1 {
        return x.matmul(matrix);
    }
    x.move_axis(dim, -1).matmul(matrix).move_axis(-1, dim)
}
