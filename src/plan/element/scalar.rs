//! Pointwise functions with PyTorch's semantics: compute types of dtypes, rounding and wrapping of results,
//! conversions.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::capabilities::{Capabilities, StorageType};
use crate::kernel::expr::{Expr, ExprPool, Literal, WgslType};
use crate::kernel::shader;
use crate::op::{BinaryFunction, ReduceFunction, UnaryFunction};
use crate::scalar::Scalar;

/// Returns the WGSL type in which elements of a dtype are computed.
pub fn compute_type(dtype: DType, capabilities: &Capabilities) -> WgslType {
    match dtype {
        DType::Bool => WgslType::Bool,
        DType::U8 | DType::I8 | DType::I16 | DType::I32 => WgslType::I32,
        DType::I64 if capabilities.int64 => WgslType::I64,
        DType::I64 => WgslType::I32,
        DType::F16 | DType::BF16 | DType::F32 => WgslType::F32,
        DType::F64 => WgslType::F64,
    }
}

/// Returns a constant of a dtype; an error if the device cannot represent it.
pub fn constant(
    pool: &mut ExprPool,
    number: Scalar,
    dtype: DType,
    capabilities: &Capabilities,
) -> Result<Expr> {
    let is_narrowed = compute_type(dtype, capabilities) == WgslType::I32;
    match number.cast(dtype) {
        Scalar::Int(value) if is_narrowed && i32::try_from(value).is_err() => Err(Error::plan(
            format!("the number {value} needs 64-bit integers, which the device does not support"),
        )),
        number => Ok(wrapped_constant(pool, number, dtype, capabilities)),
    }
}

/// Returns a constant of a dtype. A number that the device cannot represent wraps around.
fn wrapped_constant(
    pool: &mut ExprPool,
    number: Scalar,
    dtype: DType,
    capabilities: &Capabilities,
) -> Expr {
    let ty = compute_type(dtype, capabilities);
    let literal = match number.cast(dtype) {
        Scalar::Bool(value) => Literal::Bool(value),
        Scalar::Int(value) if ty == WgslType::I32 => Literal::Integer(i64::from(value as i32)),
        Scalar::Int(value) => Literal::Integer(value),
        Scalar::Float(value) => Literal::from(value),
    };
    pool.literal(ty, literal)
}

/// Returns the value of a constant expression; `None` for other expressions.
pub fn as_number(pool: &ExprPool, expr: Expr) -> Option<Scalar> {
    Some(match pool.as_literal(expr)? {
        Literal::Bool(value) => Scalar::Bool(value),
        Literal::Integer(value) => Scalar::Int(value),
        Literal::Float(bits) => Scalar::Float(f64::from_bits(bits)),
    })
}

/// Converts a loaded element to its compute type.
pub fn from_storage(pool: &mut ExprPool, value: Expr, dtype: DType) -> Expr {
    match (dtype, pool.ty(value)) {
        (DType::Bool, _) => {
            let zero = pool.index(0);
            pool.call("x != y", WgslType::Bool, &[value, zero])
        }
        (_, WgslType::F16) => pool.call("f32(x)", WgslType::F32, &[value]),
        _ => value,
    }
}

/// Converts a computed element to its storage type.
pub fn to_storage(pool: &mut ExprPool, value: Expr, dtype: DType, storage: StorageType) -> Expr {
    match storage {
        StorageType::U32 => pool.call("u32(x)", WgslType::U32, &[value]),
        StorageType::F16 => {
            // A number of dtype `f16` or `bf16` is rounded already.
            let template = match dtype {
                DType::F32 => "f16(half_of(x))",
                _ => "f16(x)",
            };
            pool.call(template, WgslType::F16, &[value])
        }
        _ => value,
    }
}

/// Converts four computed numbers to their storage in half precision.
pub fn to_halves(pool: &mut ExprPool, vector: Expr, dtype: DType, storage: StorageType) -> Expr {
    match (storage, dtype) {
        (StorageType::F16x2, _) => pool.call("pairs_of(x)", WgslType::U32x2, &[vector]),
        (_, DType::F32) => pool.call(
            "vec4<f16>(four_of_pairs(pairs_of(x)))",
            WgslType::F16x4,
            &[vector],
        ),
        _ => pool.call("vec4<f16>(x)", WgslType::F16x4, &[vector]),
    }
}

/// Rounds or wraps the result of arithmetic to the values of a dtype that is narrower than the type it is computed in.
pub fn narrow(pool: &mut ExprPool, value: Expr, dtype: DType) -> Expr {
    let template = match dtype {
        DType::F16 => "round_f16(x)",
        DType::BF16 => "round_bf16(x)",
        DType::U8 => "x & 255",
        DType::I8 => "extractBits(x, 0u, 8u)",
        DType::I16 => "extractBits(x, 0u, 16u)",
        _ => return value,
    };
    let ty = pool.ty(value);
    pool.call(template, ty, &[value])
}

/// Converts an element from one dtype to another.
pub fn cast(
    pool: &mut ExprPool,
    value: Expr,
    from: DType,
    to: DType,
    capabilities: &Capabilities,
) -> Expr {
    let (source, target) = (pool.ty(value), compute_type(to, capabilities));
    if let Some(number) = as_number(pool, value) {
        return wrapped_constant(pool, number, to, capabilities);
    }
    if to == DType::Bool {
        if source == WgslType::Bool {
            return value;
        }
        let zero = if from.is_float() {
            Literal::from(0.0)
        } else {
            Literal::Integer(0)
        };
        let zero = pool.literal(source, zero);
        // NaN is not zero, but WGSL's != says otherwise on some drivers.
        let template = if from.is_float() {
            "!(x == y)"
        } else {
            "x != y"
        };
        return pool.call(template, WgslType::Bool, &[value, zero]);
    }
    let template = match (source, target) {
        (a, b) if a == b => "x",
        (WgslType::F32, WgslType::I32) => "truncate_i32(x)",
        (WgslType::F32, WgslType::I64) => "truncate_i64(x)",
        (WgslType::F64, WgslType::I32) => "truncate_i32_f64(x)",
        (WgslType::F64, WgslType::I64) => "truncate_i64_f64(x)",
        (_, WgslType::I32) => "i32(x)",
        (WgslType::I32, WgslType::I64) => "widened(x)",
        (_, WgslType::I64) => "i64(x)",
        (_, WgslType::F64) => "f64(x)",
        _ => "f32(x)",
    };
    let converted = if template == "x" {
        value
    } else {
        pool.call(template, target, &[value])
    };
    if is_subset(from, to) {
        converted
    } else {
        narrow(pool, converted, to)
    }
}

/// Returns whether every value of one dtype is a value of the other.
fn is_subset(from: DType, to: DType) -> bool {
    match (from.integer_range(), to.integer_range()) {
        (Some((low, high)), Some((lowest, highest))) => lowest <= low && high <= highest,
        (Some((low, high)), None) => low >= -128 && high <= 255 || to == DType::F32,
        (None, None) => from == to || matches!(to, DType::F32 | DType::F64),
        (None, Some(_)) => false,
    }
}

/// Converts a symbolic size to an element of a dtype.
pub fn size_as(pool: &mut ExprPool, size: Expr, dtype: DType, capabilities: &Capabilities) -> Expr {
    let signed = match as_number(pool, size) {
        Some(number) => wrapped_constant(pool, number, DType::I32, capabilities),
        None => pool.call("i32(x)", WgslType::I32, &[size]),
    };
    cast(pool, signed, DType::I32, dtype, capabilities)
}

/// Applies a function of one operand of a dtype.
pub fn unary(pool: &mut ExprPool, function: UnaryFunction, x: Expr, dtype: DType) -> Expr {
    use UnaryFunction::{
        Abs, BitwiseNot, Ceil, Floor, IsNan, LogicalNot, Round, Sign, SignBit, Trunc,
    };
    let ty = pool.ty(x);
    match (function, ty) {
        (BitwiseNot | LogicalNot, WgslType::Bool) => return pool.call("!x", WgslType::Bool, &[x]),
        (IsNan | SignBit, _) => return pool.call(typed(function.wgsl(), ty), WgslType::Bool, &[x]),
        _ => {}
    }
    let value = pool.call(typed(function.wgsl(), ty), ty, &[x]);
    let is_exact = match function {
        Floor | Ceil | Round | Trunc | Sign => true,
        Abs | UnaryFunction::Neg => dtype.is_float(),
        _ => false,
    };
    if is_exact {
        value
    } else {
        narrow(pool, value, dtype)
    }
}

/// Returns the result of a reduction of no elements; an error if the device cannot represent it.
pub fn identity(
    pool: &mut ExprPool,
    function: ReduceFunction,
    dtype: DType,
    capabilities: &Capabilities,
) -> Result<Expr> {
    let identity = if dtype.is_float() {
        Scalar::Float(function.identity(dtype))
    } else {
        // 64-bit integers may be computed in 32 bits.
        let computed_dtype = match (dtype, compute_type(dtype, capabilities)) {
            (DType::I64, WgslType::I32) => DType::I32,
            _ => dtype,
        };
        Scalar::Int(function.identity_integer(computed_dtype))
    };
    constant(pool, identity, dtype, capabilities)
}

/// Combines two elements as a reduction does.
pub fn reduce_pair(
    pool: &mut ExprPool,
    function: ReduceFunction,
    x: Expr,
    y: Expr,
    dtype: DType,
) -> Expr {
    let function = match (function, pool.ty(x) == WgslType::Bool) {
        (ReduceFunction::Sum | ReduceFunction::Max, true) => BinaryFunction::LogicalOr,
        (ReduceFunction::Prod | ReduceFunction::Min, true) => BinaryFunction::LogicalAnd,
        (ReduceFunction::Sum, false) => BinaryFunction::Add,
        (ReduceFunction::Prod, false) => BinaryFunction::Mul,
        (ReduceFunction::Max, false) => BinaryFunction::Maximum,
        (ReduceFunction::Min, false) => BinaryFunction::Minimum,
    };
    binary(pool, function, x, y, dtype)
}

/// Applies a function of two operands of a dtype.
pub fn binary(
    pool: &mut ExprPool,
    function: BinaryFunction,
    x: Expr,
    y: Expr,
    dtype: DType,
) -> Expr {
    use BinaryFunction::{Maximum, Minimum};
    let ty = pool.ty(x);
    if let Some(template) = comparison(function, ty, x == y) {
        let template = template.to_string();
        return match template.as_str() {
            "true" | "false" => pool.literal(WgslType::Bool, Literal::Bool(template == "true")),
            _ => pool.call(template, WgslType::Bool, &[x, y]),
        };
    }
    match function {
        Maximum | Minimum if ty == WgslType::F32 => {
            if let Some(bounded) = bound_by_constant(pool, function, x, y) {
                return bounded;
            }
        }
        _ => {}
    }
    let is_zero = |literal| matches!(literal, Literal::Float(bits) if f64::from_bits(bits) == 0.0);
    let template = match function {
        BinaryFunction::Div if pool.as_literal(y).is_some_and(is_zero) => "divide_by_zero(x, y)",
        _ => function.wgsl(),
    };
    let value = pool.call(typed(template, ty), ty, &[x, y]);
    let stays_in_dtype = matches!(
        function,
        Maximum
            | Minimum
            | BinaryFunction::BitwiseAnd
            | BinaryFunction::BitwiseOr
            | BinaryFunction::BitwiseXor
            | BinaryFunction::Copysign
    );
    if stays_in_dtype {
        value
    } else {
        narrow(pool, value, dtype)
    }
}

/// Returns the template of a function whose result is `bool`. Equal operands need a separate template, since drivers
/// assume that `x == x` is true. `&` and `|` evaluate both operands: drivers take `&&` and `||` for branches, and
/// SwiftShader's compiler follows all paths through the branches of a loop.
fn comparison(function: BinaryFunction, ty: WgslType, same: bool) -> Option<String> {
    use BinaryFunction::{
        BitwiseAnd, BitwiseOr, BitwiseXor, Eq, Gcd, Ge, Gt, Le, LogicalAnd, LogicalOr, LogicalXor,
        Lt, Ne, ShiftLeft, ShiftRight,
    };
    let is_float = matches!(ty, WgslType::F32 | WgslType::F64);
    let template = match (function, ty) {
        (Eq | Le | Ge, _) if same && is_float => {
            return Some(format!("!{}", typed("is_nan(x)", ty)));
        }
        (Ne, _) if same && is_float => return Some(typed("is_nan(x)", ty)),
        (Lt | Gt | Ne, _) if same => "false",
        (Eq | Le | Ge, _) if same => "true",
        (LogicalAnd | BitwiseAnd, WgslType::Bool) => "x & y",
        (LogicalOr | BitwiseOr, WgslType::Bool) => "x | y",
        (LogicalXor | BitwiseXor, WgslType::Bool) => "x != y",
        (Gcd, WgslType::Bool) => "x | y",
        (ShiftLeft, WgslType::Bool) => "x",
        (ShiftRight, WgslType::Bool) => "x & !y",
        (Lt, WgslType::Bool) => "y & !x",
        (Le, WgslType::Bool) => "y | !x",
        (Gt, WgslType::Bool) => "x & !y",
        (Ge, WgslType::Bool) => "x | !y",
        // WGSL's != is false for NaN on some drivers.
        (Ne, WgslType::F32 | WgslType::F64) => "!(x == y)",
        (Eq | Ne | Lt | Le | Gt | Ge | LogicalAnd | LogicalOr | LogicalXor, _) => function.wgsl(),
        _ => return None,
    };
    Some(template.to_string())
}

/// Returns the minimum or maximum with a constant that is not NaN. It needs no test for NaN: a comparison with NaN is
/// false, which keeps the NaN.
fn bound_by_constant(
    pool: &mut ExprPool,
    function: BinaryFunction,
    x: Expr,
    y: Expr,
) -> Option<Expr> {
    let is_number = |pool: &ExprPool, expr: Expr| matches!(pool.as_literal(expr), Some(Literal::Float(bits)) if !f64::from_bits(bits).is_nan());
    let (value, limit) = match (is_number(pool, x), is_number(pool, y)) {
        (_, true) => (x, y),
        (true, false) => (y, x),
        _ => return None,
    };
    let template = match function {
        BinaryFunction::Maximum => "select(x, y, x < y)",
        _ => "select(x, y, x > y)",
    };
    Some(pool.call(template, WgslType::F32, &[value, limit]))
}

/// Returns an error if a function exists in single precision only and double precision is requested.
pub fn check_precision(name: &str, template: &str, ty: WgslType) -> Result<()> {
    let function = template.split('(').next().unwrap_or_default();
    let is_library = shader::is_function(function);
    if ty == WgslType::F64 && is_library && typed(template, ty) == template {
        return Err(
            Error::plan(format!("{name} has no double precision on a device"))
                .help("run on the host, or convert the model to f32"),
        );
    }
    Ok(())
}

/// Replaces the library function of a template by its version for a type: `sign_of(x)` becomes `sign_of_i32(x)` for
/// `i32`.
pub fn typed(template: &str, ty: WgslType) -> String {
    let name = template.split('(').next().unwrap_or_default();
    let renamed = match ty {
        WgslType::F32 => return template.to_string(),
        _ => format!("{name}_{}", ty.wgsl()),
    };
    if shader::is_function(&renamed) {
        template.replacen(name, &renamed, 1)
    } else {
        template.to_string()
    }
}
