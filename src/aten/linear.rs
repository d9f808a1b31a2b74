//! Products of matrices and vectors.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{ArithmeticOperand, Value};
use crate::op::ScanFunction;
use crate::shape::Shape;

use super::contraction::{contract, einsum};
use super::{Args, Composite, StrideRule};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &["aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor"],
        |a| {
            let (x, weight) = (a.tensor("input"), a.tensor("weight"));
            linear(x, weight, a.optional_tensor("bias"))
        },
        &[
            "f32[B, T, 6], f32[4, 6], f32[4]",
            "f16[6], f16[6]",
            "f32[B, 6], f32[4, 6]",
        ],
    ),
    Composite::one(
        &[
            "aten::matmul(Tensor self, Tensor other) -> Tensor",
            "aten::linalg_matmul(Tensor self, Tensor other) -> Tensor",
        ],
        |a| Ok(a.tensor("self").matmul(a.tensor("other"))),
        &[
            "f32[B, 3, 4], f32[4, 5]",
            "f32[4], f32[2, 4, 5]",
            "f32[2, 1, 3, 4], f32[B, 4, 2]",
            "i64[3, 4], i64[4]",
            "f16[3, 4], f16[4, 5]",
        ],
    ),
    Composite::one(
        &[
            "aten::mm(Tensor self, Tensor mat2) -> Tensor",
            "aten::mm.dtype(Tensor self, Tensor mat2, ScalarType out_dtype) -> Tensor",
        ],
        |a| product(a, "self", "mat2", [2, 2]),
        &[
            "f32[B, 4], f32[4, 3]",
            "i64[2, 3], i64[3, 4]",
            "f32[3, 0], f32[0, 2]",
        ],
    ),
    Composite::one(
        &[
            "aten::bmm(Tensor self, Tensor mat2) -> Tensor",
            "aten::bmm.dtype(Tensor self, Tensor mat2, ScalarType out_dtype) -> Tensor",
        ],
        |a| product(a, "self", "mat2", [3, 3]),
        &["f32[B, 4, T], f32[B, T, 3]", "f16[2, 2, 3], f16[2, 3, 4]"],
    ),
    Composite::one(
        &["aten::_int_mm(Tensor self, Tensor mat2) -> Tensor"],
        |a| {
            Ok(a.tensor("self")
                .to(DType::I32)
                .dot(a.tensor("mat2").to(DType::I32)))
        },
        &["i8[3, 4], i8[4, 5]"],
    ),
    Composite::one(
        &["aten::mv(Tensor self, Tensor vec) -> Tensor"],
        |a| product(a, "self", "vec", [2, 1]),
        &["f32[B, 4], f32[4]"],
    ),
    Composite::one(
        &["aten::dot(Tensor self, Tensor tensor) -> Tensor"],
        |a| product(a, "self", "tensor", [1, 1]),
        &["f32[N], f32[N]", "i64[3], i64[3]"],
    ),
    Composite::one(
        &["aten::vdot(Tensor self, Tensor other) -> Tensor"],
        |a| product(a, "self", "other", [1, 1]),
        &["f32[N], f32[N]"],
    ),
    Composite::one(
        &["aten::inner(Tensor self, Tensor other) -> Tensor"],
        |a| {
            let (x, y) = (a.tensor("self"), a.tensor("other"));
            if x.rank() == 0 || y.rank() == 0 {
                return Ok(x * y);
            }
            contract(x, y, &[-1], &[-1])
        },
        &["f32[B, 4], f32[3, 4]", "f32[], f32[3]"],
    ),
    Composite::one(
        &[
            "aten::outer(Tensor self, Tensor vec2) -> Tensor",
            "aten::ger(Tensor self, Tensor vec2) -> Tensor",
        ],
        |a| Ok(a.tensor("self").unsqueeze(1) * a.tensor("vec2").unsqueeze(0)),
        &["f32[N], f32[3]", "i64[2], f32[3]"],
    ),
    Composite::one(
        &[
            "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
            "aten::addmm.dtype(Tensor self, Tensor mat1, Tensor mat2, ScalarType out_dtype, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
        ],
        |a| matmul_add(a, "mat1", "mat2"),
        &[
            "f32[4], f32[B, 3], f32[3, 4]",
            "f32[2, 4], f32[2, 3], f32[3, 4], beta=0.5, alpha=2",
        ],
    ),
    Composite::one(
        &[
            "aten::addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
        ],
        |a| matmul_add(a, "mat", "vec"),
        &[
            "f32[B], f32[B, 3], f32[3], beta=2, alpha=0.5",
            "i64[2], i64[2, 3], i64[3]",
        ],
    ),
    Composite::one(
        &[
            "aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
            "aten::baddbmm.dtype(Tensor self, Tensor batch1, Tensor batch2, ScalarType out_dtype, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
        ],
        |a| matmul_add(a, "batch1", "batch2"),
        &["f32[1, 1, 4], f32[B, 2, 3], f32[B, 3, 4], beta=0"],
    ),
    Composite::one(
        &[
            "aten::addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
        ],
        |a| {
            let sum = contract(
                compute_operand(a, "batch1"),
                compute_operand(a, "batch2"),
                &[0, 2],
                &[0, 1],
            )?;
            beta_alpha_sum(a, sum)
        },
        &["f32[2, 4], f32[B, 2, 3], f32[B, 3, 4], alpha=2"],
    ),
    Composite::one(
        &[
            "aten::addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
        ],
        |a| {
            let operands = ["self", "vec1", "vec2"].map(|name| a.tensor(name));
            let [x, left, right] = operands;
            let dtype = x.dtype().promote(left.dtype()).promote(right.dtype());
            let [x, left, right] = operands.map(|value| value.to(dtype).to_compute());
            beta_alpha_sum_as(a, x, left.unsqueeze(1) * right.unsqueeze(0), dtype)
        },
        &[
            "f32[2, 3], f32[2], f32[3]",
            "i64[2, 3], i64[2], i64[3], beta=2, alpha=3",
            "i64[2, 3], f16[2], f32[3]",
        ],
    ),
    Composite::one(
        &[
            "aten::bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor",
        ],
        bilinear,
        &[
            "f32[B, 3], f32[B, 4], f32[5, 3, 4], f32[5]",
            "f32[3], f32[4], f32[5, 3, 4]",
        ],
    ),
    Composite::one(
        &["aten::einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor"],
        |a| einsum(&a.str("equation"), &a.tensors("tensors")),
        &[
            "'bij,bjk->bik', [f32[B, 2, 3], f32[B, 3, 4]]",
            "'...ii->...i', [f32[2, 3, 3]]",
            "'i,j,k', [f32[2], f32[3], f32[4]]",
        ],
    )
    .with_strides(StrideRule::Einsum),
    Composite::one(
        &[
            "aten::tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor",
        ],
        |a| {
            let (x, y) = (a.tensor("self"), a.tensor("other"));
            contract(x, y, &a.ints("dims_self"), &a.ints("dims_other"))
        },
        &[
            "f32[3, 4, 5], f32[4, 3, 2], [1, 0], [0, 1]",
            "f32[2], f32[3], [], []",
        ],
    ),
    Composite::one(
        &["aten::kron(Tensor self, Tensor other) -> Tensor"],
        |a| Ok(kronecker(a.tensor("self"), a.tensor("other"))),
        &["f32[2, 3], f32[4, 5]", "i64[2], i64[3, 2]"],
    ),
    Composite::one(
        &["aten::linalg_multi_dot(Tensor[] tensors) -> Tensor"],
        |a| matmul_chain(&a.tensors("tensors")),
        &[
            "[f32[3], f32[3, 4], f32[4, 2], f32[2]]",
            "[f32[2, 3], f32[3, 4]]",
        ],
    ),
    Composite::one(
        &["aten::chain_matmul(Tensor[] matrices) -> Tensor"],
        |a| matmul_chain(&a.tensors("matrices")),
        &["[f32[2, 3], f32[3, 4], f32[4, 5]]"],
    ),
    Composite::one(
        &["aten::linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor"],
        |a| {
            let (x, y) = (a.tensor("x").to_compute(), a.tensor("y").to_compute());
            Ok((x * y)
                .sum(&[a.int("dim")], false)
                .to(a.tensor("x").dtype()))
        },
        &["f32[B, 3], f32[3]", "f32[3, 1], f32[3, 2], dim=0"],
    ),
    Composite::one(
        &["aten::linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor"],
        |a| Ok(cross(a.tensor("self"), a.tensor("other"), a.int("dim"))),
        &["f32[B, 3], f32[1, 3]", "i64[3, 2], i64[3, 2], dim=0"],
    ),
    Composite::one(
        &["aten::cross(Tensor self, Tensor other, int? dim=None) -> Tensor"],
        |a| {
            let (x, y) = (a.tensor("self"), a.tensor("other"));
            let dim = a
                .optional_int("dim")
                .map_or_else(|| first_dim_of_size_3(x), Ok)?;
            Ok(cross(x, y, dim))
        },
        &["f32[2, 3, 4], f32[2, 3, 4]"],
    ),
    Composite::one(
        &["aten::vander(Tensor x, int? N=None, bool increasing=False) -> Tensor"],
        |a| {
            let powers = powers(a.tensor("x"), a.optional_size("N"));
            Ok(if a.bool("increasing") {
                powers
            } else {
                powers.flip(&[-1])
            })
        },
        &["f32[4]", "i64[3], 2, True"],
    ),
    Composite::one(
        &["aten::linalg_vander(Tensor x, *, SymInt? N=None) -> Tensor"],
        |a| Ok(powers(a.tensor("x"), a.optional_size("N"))),
        &["f32[2, 4]", "i64[3], N=5"],
    ),
];

/// `x · weightᵀ + bias`; the weight may be a vector.
pub(super) fn linear<'g>(
    x: Value<'g>,
    weight: Value<'g>,
    bias: Option<Value<'g>>,
) -> Result<Value<'g>> {
    x.builder().check()?;
    let transposed = if weight.rank() == 2 {
        weight.transpose(0, 1)
    } else {
        weight
    };
    let Some(bias) = bias else {
        return Ok(x.matmul(transposed));
    };
    let product = x.to_compute().matmul(transposed.to_compute());
    Ok((product + bias.to_compute()).to(x.dtype()))
}

/// A tensor argument in its compute dtype.
fn compute_operand<'g>(a: &Args<'g>, name: &str) -> Value<'g> {
    a.tensor(name).to_compute()
}

/// The matrix product of the arguments `left` and `right`, which must have these ranks. The result has the argument
/// `out_dtype`, or the dtype of the left operand.
fn product<'g>(a: &Args<'g>, left: &str, right: &str, ranks: [usize; 2]) -> Result<Value<'g>> {
    let (x, y) = (a.tensor(left), a.tensor(right));
    a.builder().check()?;
    if [x.rank(), y.rank()] != ranks {
        return Err(Error::operator(format!(
            "operands are {} and {}, not of {} and {} dimensions",
            x.ty(),
            y.ty(),
            ranks[0],
            ranks[1]
        )));
    }
    let out_dtype = a.dtype("out_dtype").unwrap_or(x.dtype());
    Ok(compute_operand(a, left)
        .matmul(compute_operand(a, right))
        .to(out_dtype))
}

/// `beta · self + alpha · (left · right)`, rounded once. `left` and `right` are names of arguments.
fn matmul_add<'g>(a: &Args<'g>, left: &str, right: &str) -> Result<Value<'g>> {
    beta_alpha_sum(
        a,
        compute_operand(a, left).matmul(compute_operand(a, right)),
    )
}

/// `beta · self + alpha · product`, in the argument `out_dtype` or the dtype of `self`. With `beta = 0`, `self` is
/// ignored even if infinite. For integers the factors are integers, too.
fn beta_alpha_sum<'g>(a: &Args<'g>, product: Value<'g>) -> Result<Value<'g>> {
    let x = a.tensor("self");
    let dtype = a.dtype("out_dtype").unwrap_or(x.dtype());
    beta_alpha_sum_as(a, x.to_compute(), product, dtype)
}

/// [`beta_alpha_sum`] for an operand in the compute dtype; the result has `dtype`.
fn beta_alpha_sum_as<'g>(
    a: &Args<'g>,
    x: Value<'g>,
    product: Value<'g>,
    dtype: DType,
) -> Result<Value<'g>> {
    let scaled = |value: Value<'g>, factor: &str| match a.is_number(factor, 1.0) {
        true => value,
        false => value * a.number_as(factor, value.dtype()),
    };
    let product = scaled(product, "alpha");
    let shape = product.shape();
    if a.is_number("beta", 0.0) {
        return Ok(product.to(dtype));
    }
    let sum = scaled(x, "beta").expand(shape) + product;
    let sum = match a.number("beta") {
        ArithmeticOperand::Value(beta) => beta.reshape(Shape::new()).eq(0).where_(product, sum),
        _ => sum,
    };
    Ok(sum.to(dtype))
}

/// `output[.., o] = Σ input1[.., i] · weight[o, i, j] · input2[.., j] + bias[o]`
fn bilinear<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, y, weight) = (
        compute_operand(a, "input1"),
        compute_operand(a, "input2"),
        compute_operand(a, "weight"),
    );
    let [outputs, first, second] = weight.sizes()?;
    let batch: Vec<Dim> = x.shape().into_iter().rev().skip(1).rev().collect();
    let rows = Dim::product(&batch);
    // [rows, i] · [i, o j] -> [rows, o, j] · [rows, j, 1]
    let left = x.reshape(vec![rows.clone(), first.clone()]);
    let weight_by_first = weight
        .permute([1, 0, 2])
        .reshape(vec![first, &outputs * &second]);
    let partial =
        left.dot(weight_by_first)
            .reshape(vec![rows.clone(), outputs.clone(), second.clone()]);
    let sum = partial.dot(y.reshape(vec![rows, second, Dim::ONE]));
    let mut result = sum.reshape([batch, vec![outputs]].concat());
    if a.optional_tensor("bias").is_some() {
        result = result + compute_operand(a, "bias");
    }
    Ok(result.to(a.tensor("input1").dtype()))
}

/// Kronecker product: axis `n` of the result merges axis `n` of both values.
fn kronecker<'g>(x: Value<'g>, y: Value<'g>) -> Value<'g> {
    let rank = x.rank().max(y.rank());
    let padded_shape = |value: Value<'g>| -> Vec<Dim> {
        let missing = rank - value.rank();
        std::iter::repeat_n(Dim::ONE, missing)
            .chain(value.shape())
            .collect()
    };
    let (left, right) = (padded_shape(x), padded_shape(y));
    let interleaved_shape = |shape: &[Dim], is_left: bool| -> Vec<Dim> {
        let pair = |size: &Dim| {
            if is_left {
                [size.clone(), Dim::ONE]
            } else {
                [Dim::ONE, size.clone()]
            }
        };
        shape.iter().flat_map(pair).collect()
    };
    let product =
        x.reshape(interleaved_shape(&left, true)) * y.reshape(interleaved_shape(&right, false));
    product.reshape(
        left.iter()
            .zip(&right)
            .map(|(a, b)| a * b)
            .collect::<Vec<_>>(),
    )
}

/// Multiplies matrices from left to right; the first and the last may be vectors.
fn matmul_chain<'g>(factors: &[Value<'g>]) -> Result<Value<'g>> {
    let mut factors = factors.iter().copied();
    let first = factors
        .next()
        .ok_or_else(|| Error::operator("multiplies at least one matrix"))?;
    let product = factors.fold(first.to_compute(), |product, next| {
        product.matmul(next.to_compute())
    });
    Ok(product.to(first.dtype()))
}

/// The first dimension of size 3.
fn first_dim_of_size_3(x: Value) -> Result<i64> {
    let symbols = x.builder().symbols();
    for (dim, size) in (0..).zip(x.shape()) {
        if symbols.hint(&size)? == 3 && symbols.equal(&size, &Dim::from(3))? {
            return Ok(dim);
        }
    }
    Err(Error::operator(format!(
        "{} has no dimension of size 3",
        x.ty()
    )))
}

/// The cross product along a dimension of size 3.
fn cross<'g>(x: Value<'g>, y: Value<'g>, dim: i64) -> Value<'g> {
    let rotated = |value: Value<'g>, shift: i64| {
        let tail = value.narrow(dim, shift, 3 - shift);
        value
            .builder()
            .concat(&[tail, value.narrow(dim, 0, shift)], dim)
    };
    rotated(x, 1) * rotated(y, 2) - rotated(x, 2) * rotated(y, 1)
}

/// Powers `0..count` of every element along a new last axis. By default there are as many powers as the last axis has
/// elements.
fn powers<'g>(x: Value<'g>, count: Option<Dim>) -> Value<'g> {
    let x = if x.rank() == 0 { x.unsqueeze(0) } else { x };
    let count = count.unwrap_or(x.size(-1));
    let x = x.to(x.dtype().to_sum()).unsqueeze(-1);
    let (mut ones, mut repeated) = (x.shape(), x.shape());
    if let (Some(one), Some(axis_size)) = (ones.last_mut(), repeated.last_mut()) {
        *one = Dim::ONE;
        *axis_size = &count - 1;
    }
    let one = x
        .builder()
        .full(x.dtype(), ones, ArithmeticOperand::from(1));
    let factors = x.builder().concat(&[one, x.expand(repeated)], -1);
    factors.scan(ScanFunction::Prod, -1)
}
