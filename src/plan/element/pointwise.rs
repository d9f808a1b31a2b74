//! Elements of pointwise primitives.

use super::{KernelScope, not_planned};
use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Argument, Node, Primitive, ValueId};
use crate::kernel::expr::Expr;
use crate::plan::element::position::Position;
use crate::plan::element::scalar;
use crate::scalar::Scalar;
use crate::tensor::Tensor;

impl KernelScope<'_> {
    /// Returns an element of the result of a pointwise primitive.
    pub(super) fn pointwise(
        &mut self,
        node: &Node,
        primitive: &Primitive,
        value: ValueId,
        position: &Position,
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let dtype = self.operand_dtype(node, primitive);
        let mut operands = Vec::with_capacity(node.arguments.len());
        for argument in &node.arguments {
            operands.push(match argument {
                Argument::Value(operand) => self.element(*operand, position, guard)?,
                number => self.number(number, dtype)?,
            });
        }
        let result = self.graph.ty(value).dtype;
        if let Some(folded) = self.fold(primitive, &operands, dtype, result)? {
            return Ok(folded);
        }
        let template = match primitive {
            Primitive::Unary(unary) => unary.function.wgsl(),
            Primitive::Binary(binary) => binary.function.wgsl(),
            _ => "",
        };
        scalar::check_precision(primitive.name(), template, self.compute_type(dtype))?;
        let pool = &mut self.pool;
        Ok(match (primitive, operands.as_slice()) {
            (Primitive::Unary(unary), [x]) => scalar::unary(pool, unary.function, *x, dtype),
            (Primitive::Binary(binary), [x, y]) => {
                scalar::binary(pool, binary.function, *x, *y, dtype)
            }
            (Primitive::Select(_), [condition, yes, no]) => pool.select(*condition, *yes, *no),
            (Primitive::Cast(_), [x]) => scalar::cast(pool, *x, dtype, result, self.capabilities),
            _ => return Err(not_planned(node)),
        })
    }

    /// Folds an operation on constants with the host implementation, since WGSL rejects some constant expressions.
    fn fold(
        &mut self,
        primitive: &Primitive,
        operands: &[Expr],
        dtype: DType,
        result: DType,
    ) -> Result<Option<Expr>> {
        if !matches!(primitive, Primitive::Unary(_) | Primitive::Binary(_)) {
            return Ok(None);
        }
        let numbers: Option<Vec<Scalar>> = operands
            .iter()
            .map(|operand| scalar::as_number(&self.pool, *operand))
            .collect();
        let Some(numbers) = numbers else {
            return Ok(None);
        };
        let tensors = numbers
            .into_iter()
            .map(|number| tensor(number, dtype))
            .collect::<Result<Vec<_>>>()?;
        let results = primitive.eval(&tensors, &Bindings::new())?;
        let Some(result_tensor) = results.first() else {
            return Ok(None);
        };
        let number = if result.is_float() {
            result_tensor.to_f64().first().copied().map(Scalar::Float)
        } else {
            result_tensor.to_i64().first().copied().map(Scalar::Int)
        };
        let number = number.unwrap_or(Scalar::Int(0));
        scalar::constant(&mut self.pool, number, result, self.capabilities).map(Some)
    }

    /// Returns the dtype of the values that a pointwise primitive combines. Its numeric operands take that dtype.
    fn operand_dtype(&self, node: &Node, primitive: &Primitive) -> DType {
        let skip = usize::from(matches!(primitive, Primitive::Select(_)));
        let mut values = node.arguments.iter().skip(skip).flat_map(Argument::values);
        values
            .next()
            .map_or(DType::F32, |value| self.graph.ty(value).dtype)
    }

    /// Returns a number or a size as an element of a dtype.
    pub(super) fn number(&mut self, argument: &Argument, dtype: DType) -> Result<Expr> {
        match argument {
            Argument::Number(number) => {
                scalar::constant(&mut self.pool, *number, dtype, self.capabilities)
            }
            Argument::Size(dim) => {
                let size = self.pool.size(dim);
                Ok(scalar::size_as(
                    &mut self.pool,
                    size,
                    dtype,
                    self.capabilities,
                ))
            }
            _ => Err(Error::internal(
                "an operand of a primitive must be a value, number or size",
            )),
        }
    }
}

/// Returns a tensor without axes.
fn tensor(number: Scalar, dtype: DType) -> Result<Tensor> {
    match number {
        Scalar::Float(value) => Tensor::from_f64(dtype, [], vec![value]),
        other => Tensor::from_i64(dtype, [], vec![other.to_i64()]),
    }
}
