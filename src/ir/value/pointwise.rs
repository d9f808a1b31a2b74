use std::ops;

use crate::dtype::{Category, DType};

use crate::op::{Binary, BinaryFunction, Cast, Primitive, Select, Unary, UnaryFunction};
use crate::scalar::Scalar;
use crate::shape::Shape;

use super::{ArithmeticOperand, Value};
use crate::ir::builder::Builder;

impl<'g> Value<'g> {
    /// Converts the value to a dtype; returns the value itself if it has that dtype.
    pub fn to(self, dtype: DType) -> Value<'g> {
        if self.dtype() == dtype {
            self
        } else {
            self.unary(Cast { dtype })
        }
    }

    /// The value as a float: itself, or `f32` for integers and `bool`.
    pub fn to_float(self) -> Value<'g> {
        self.to(self.dtype().to_float())
    }

    /// Applies a unary function; integers are converted to `f32` first if it is defined for floats only.
    pub fn function(self, function: UnaryFunction) -> Value<'g> {
        let operand = if function.is_float_only() {
            self.to_float()
        } else {
            self
        };
        operand.unary(Unary { function })
    }

    /// Applies a binary function with promotion and broadcasting.
    pub fn combine(
        self,
        function: BinaryFunction,
        other: impl Into<ArithmeticOperand<'g>>,
    ) -> Value<'g> {
        self.builder.combine(function, self, other)
    }

    /// `a` where the (bool) value is true, else `b`, with promotion and broadcasting.
    pub fn where_(
        self,
        a: impl Into<ArithmeticOperand<'g>>,
        b: impl Into<ArithmeticOperand<'g>>,
    ) -> Value<'g> {
        let (a, b) = (a.into(), b.into());
        let dtype = result_type(&[a.clone(), b.clone()]);
        let builder = self.builder;
        let condition = if self.dtype() == DType::Bool {
            self
        } else {
            self.ne(0)
        };
        let Some(shape) =
            builder.common_shape(&[ArithmeticOperand::Value(condition), a.clone(), b.clone()])
        else {
            return builder.poison();
        };
        let (a, b) = (a.prepare(dtype, &shape), b.prepare(dtype, &shape));
        let a = if matches!(
            (&a, &b),
            (ArithmeticOperand::Value(_), _) | (_, ArithmeticOperand::Value(_))
        ) {
            a
        } else {
            builder.full(dtype, shape.clone(), a).into()
        };
        builder.apply(
            Select {},
            vec![condition.expand(shape).into(), a.into(), b.into()],
        )
    }

    /// Clamps between optional bounds. Not-a-number stays.
    pub fn clamp(
        self,
        low: Option<ArithmeticOperand<'g>>,
        high: Option<ArithmeticOperand<'g>>,
    ) -> Value<'g> {
        let raised = low.map_or(self, |low| self.maximum(low));
        high.map_or(raised, |high| raised.minimum(high))
    }

    /// Raises the value to a power. Small integer exponents of floats become products where PyTorch does so.
    pub fn pow(self, exponent: impl Into<ArithmeticOperand<'g>>) -> Value<'g> {
        let exponent = exponent.into();
        match exponent {
            // A square of `bool` is `i64`, but a product of `bool` is not.
            ArithmeticOperand::Scalar(Scalar::Int(2)) if self.dtype() != DType::Bool => self * self,
            ArithmeticOperand::Scalar(Scalar::Float(power)) if self.dtype().is_float() => {
                self.float_power(power)
            }
            ArithmeticOperand::Scalar(Scalar::Int(power)) if self.dtype().is_float() => {
                self.float_power(power as f64)
            }
            other => self.combine(BinaryFunction::Pow, other),
        }
    }

    /// The exponents that `aten/src/ATen/native/cpu/PowKernel.cpp` special-cases.
    fn float_power(self, power: f64) -> Value<'g> {
        match power {
            0.5 => self.sqrt(),
            2.0 => self * self,
            3.0 => self * self * self,
            -0.5 => self.rsqrt(),
            -1.0 => self.reciprocal(),
            -2.0 => (self * self).reciprocal(),
            other => self.combine(BinaryFunction::Pow, other),
        }
    }

    /// `1 / x`
    pub fn reciprocal(self) -> Value<'g> {
        self.builder
            .combine(BinaryFunction::Div, 1.0, self.to_float())
    }

    /// `number - x`
    pub fn rsub(self, number: impl Into<ArithmeticOperand<'g>>) -> Value<'g> {
        self.builder.combine(BinaryFunction::Sub, number, self)
    }

    /// `number / x`
    pub fn rdiv(self, number: impl Into<ArithmeticOperand<'g>>) -> Value<'g> {
        self.builder.combine(BinaryFunction::Div, number, self)
    }

    /// True where the value is finite.
    pub fn isfinite(self) -> Value<'g> {
        self.abs().ne(f64::INFINITY).logical_and(self.eq(self))
    }

    /// `x > 0 ? x : 0`; not-a-number stays.
    pub fn relu(self) -> Value<'g> {
        self.maximum(0)
    }
}

/// Methods for unary functions.
macro_rules! unary_methods {
    ($($method:ident => $variant:ident),* $(,)?) => {
        impl<'g> Value<'g> {$(
            #[doc = concat!("`torch.", stringify!($method), "`")]
            pub fn $method(self) -> Value<'g> { self.function(UnaryFunction::$variant) }
        )*}
    };
}

unary_methods! {
    abs => Abs, sign => Sign, sqrt => Sqrt, rsqrt => Rsqrt, exp => Exp, exp2 => Exp2, expm1 => Expm1, log => Log,
    log2 => Log2, log10 => Log10, log1p => Log1p, sin => Sin, cos => Cos, tan => Tan, asin => Asin, acos => Acos, atan => Atan,
    sinh => Sinh, cosh => Cosh, tanh => Tanh, asinh => Asinh, acosh => Acosh, atanh => Atanh, sigmoid => Sigmoid, erf => Erf,
    erfc => Erfc, erfinv => Erfinv, lgamma => Lgamma, digamma => Digamma, isnan => IsNan, signbit => SignBit,
}

/// Methods for rounding functions, which leave integers as they are.
macro_rules! rounding_methods {
    ($($method:ident => $variant:ident),* $(,)?) => {
        impl<'g> Value<'g> {$(
            #[doc = concat!("`torch.", stringify!($method), "`; integers stay as they are.")]
            pub fn $method(self) -> Value<'g> {
                if self.dtype().is_float() { self.function(UnaryFunction::$variant) } else { self }
            }
        )*}
    };
}

rounding_methods! { floor => Floor, ceil => Ceil, round => Round, trunc => Trunc }

/// Methods for binary functions.
macro_rules! binary_methods {
    ($($method:ident => $variant:ident),* $(,)?) => {
        impl<'g> Value<'g> {$(
            #[doc = concat!("`torch.", stringify!($method), "`")]
            pub fn $method(self, other: impl Into<ArithmeticOperand<'g>>) -> Value<'g> { self.combine(BinaryFunction::$variant, other) }
        )*}
    };
}

binary_methods! {
    floor_divide => FloorDivide, trunc_divide => TruncDivide, remainder => Remainder, fmod => Fmod, maximum => Maximum,
    minimum => Minimum, atan2 => Atan2, copysign => Copysign, nextafter => NextAfter, eq => Eq, ne => Ne, lt => Lt, le => Le,
    gt => Gt, ge => Ge, bitwise_and => BitwiseAnd, bitwise_or => BitwiseOr, bitwise_xor => BitwiseXor,
    bitwise_left_shift => ShiftLeft, bitwise_right_shift => ShiftRight,
}

impl<'g> Value<'g> {
    /// The value as `bool`: true where it is not zero.
    pub fn to_bool(self) -> Value<'g> {
        self.to(DType::Bool)
    }

    /// `torch.logical_not`
    pub fn logical_not(self) -> Value<'g> {
        self.to_bool().function(UnaryFunction::LogicalNot)
    }

    /// `torch.bitwise_not`
    pub fn bitwise_not(self) -> Value<'g> {
        self.function(UnaryFunction::BitwiseNot)
    }

    /// `torch.logical_and`
    pub fn logical_and(self, other: Value<'g>) -> Value<'g> {
        self.to_bool()
            .combine(BinaryFunction::LogicalAnd, other.to_bool())
    }

    /// `torch.logical_or`
    pub fn logical_or(self, other: Value<'g>) -> Value<'g> {
        self.to_bool()
            .combine(BinaryFunction::LogicalOr, other.to_bool())
    }

    /// `torch.logical_xor`
    pub fn logical_xor(self, other: Value<'g>) -> Value<'g> {
        self.to_bool()
            .combine(BinaryFunction::LogicalXor, other.to_bool())
    }
}

/// The dtype that PyTorch gives an operation on these operands (`torch.result_type`). Within a category, tensors with
/// dimensions win over scalar tensors, and scalar tensors over numbers.
pub(crate) fn result_type(operands: &[ArithmeticOperand]) -> DType {
    let mut found: [Option<DType>; 3] = [None; 3];
    for operand in operands {
        let (rank, dtype) = match operand {
            ArithmeticOperand::Value(value) => (usize::from(value.rank() == 0), value.dtype()),
            ArithmeticOperand::Scalar(scalar) => (2, scalar.dtype()),
            ArithmeticOperand::Size(_) => (2, DType::I64),
        };
        if let Some(slot) = found.get_mut(rank) {
            *slot = Some(slot.map_or(dtype, |known| known.promote(dtype)));
        }
    }
    let [dimensioned, scalars, numbers] = found;
    combine_categories(combine_categories(dimensioned, scalars), numbers).unwrap_or(DType::F32)
}

fn combine_categories(higher: Option<DType>, lower: Option<DType>) -> Option<DType> {
    match (higher, lower) {
        (Some(higher), Some(lower)) if lower.category() > higher.category() => {
            Some(higher.promote(lower))
        }
        (Some(higher), _) => Some(higher),
        (None, lower) => lower,
    }
}

impl Builder {
    /// Applies a binary function with promotion and broadcasting; at least one operand must be a value.
    pub fn combine<'g>(
        &'g self,
        function: BinaryFunction,
        a: impl Into<ArithmeticOperand<'g>>,
        b: impl Into<ArithmeticOperand<'g>>,
    ) -> Value<'g> {
        let operands = [a.into(), b.into()];
        let dtype = result_type(&operands);
        let function = match (function, dtype) {
            (BinaryFunction::Mul, DType::Bool) => BinaryFunction::LogicalAnd,
            (function, _) => function,
        };
        let dtype = compute_type(function, dtype);
        let Some(shape) = self.common_shape(&operands) else {
            return self.poison();
        };
        let [a, b] = operands.map(|operand| operand.prepare(dtype, &shape));
        let a = if matches!(
            (&a, &b),
            (ArithmeticOperand::Value(_), _) | (_, ArithmeticOperand::Value(_))
        ) {
            a
        } else {
            self.full(dtype, shape, a).into()
        };
        self.apply(
            Primitive::Binary(Binary { function }),
            vec![a.into(), b.into()],
        )
    }

    /// The broadcast shape of the values among the operands.
    fn common_shape(&self, operands: &[ArithmeticOperand]) -> Option<Shape> {
        if self.has_failed() {
            return None;
        }
        let shapes: Vec<Shape> = operands
            .iter()
            .filter_map(|operand| match operand {
                ArithmeticOperand::Value(value) => Some(value.shape()),
                _ => None,
            })
            .collect();
        self.symbols()
            .broadcast_shapes(&shapes)
            .map_err(|error| self.fail(error))
            .ok()
    }
}

/// The dtype to compute in: division uses floats, arithmetic on `bool` uses `i64`, but a product of `bool` stays `bool`.
fn compute_type(function: BinaryFunction, dtype: DType) -> DType {
    use BinaryFunction::{
        BitwiseAnd, BitwiseOr, BitwiseXor, Eq, Ge, Gt, Le, LogicalAnd, LogicalOr, LogicalXor, Lt,
        Ne,
    };
    let keeps_bool = matches!(
        function,
        Eq | Ne
            | Lt
            | Le
            | Gt
            | Ge
            | LogicalAnd
            | LogicalOr
            | LogicalXor
            | BitwiseAnd
            | BitwiseOr
            | BitwiseXor
    );
    match dtype.category() {
        _ if function.is_float_only() => dtype.to_float(),
        Category::Bool if !keeps_bool => DType::I64,
        _ => dtype,
    }
}

impl<'g> ArithmeticOperand<'g> {
    fn prepare(self, dtype: DType, shape: &Shape) -> ArithmeticOperand<'g> {
        match self {
            ArithmeticOperand::Value(value) => {
                ArithmeticOperand::Value(value.to(dtype).expand(shape.clone()))
            }
            ArithmeticOperand::Scalar(scalar) => ArithmeticOperand::Scalar(scalar.cast(dtype)),
            size => size,
        }
    }
}

/// `+`, `-`, `*` of values, numbers and sizes.
macro_rules! operators {
    ($($trait:ident $method:ident $variant:ident),*) => {$(
        impl<'g, N: Into<ArithmeticOperand<'g>>> ops::$trait<N> for Value<'g> {
            type Output = Value<'g>;
            fn $method(self, other: N) -> Value<'g> { self.combine(BinaryFunction::$variant, other) }
        }

        impl<'g> ops::$trait<Value<'g>> for f64 {
            type Output = Value<'g>;
            fn $method(self, other: Value<'g>) -> Value<'g> { other.builder().combine(BinaryFunction::$variant, self, other) }
        }

        impl<'g> ops::$trait<Value<'g>> for i64 {
            type Output = Value<'g>;
            fn $method(self, other: Value<'g>) -> Value<'g> { other.builder().combine(BinaryFunction::$variant, self, other) }
        }
    )*};
}

operators!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);

impl<'g> ops::Neg for Value<'g> {
    type Output = Value<'g>;
    fn neg(self) -> Value<'g> {
        self.function(UnaryFunction::Neg)
    }
}
