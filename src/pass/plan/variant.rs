//! The table of variants: how a contraction or convolution is computed, by adapter, sizes and dtype.

use super::element::{Scope, operand};
use super::tile;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Node, Op, Primitive, ValueId};
use crate::kernel::choice::{Choice, Variant};
use crate::op::Conv;

/// A product of matrices that a node is, in the sizes of the example: a convolution is one of filters and patches.
struct Problem<'a> {
    /// What a table of measured variants knows it by.
    key: String,
    /// The convolution that it is.
    conv: Option<&'a Conv>,
    dtype: DType,
    rows: usize,
    columns: usize,
    depth: usize,
}

/// The variants in question for a node, the best first; the last one can run on any device. None for a node that has no
/// variants.
pub fn choices(scope: &Scope, node: &Node) -> Result<Vec<Choice>> {
    let Some(problem) = Problem::of(scope, node)? else {
        return Ok(Vec::new());
    };
    let because = |variant, reason: &str| Choice {
        key: problem.key.clone(),
        variant,
        reason: String::from(reason),
    };
    let mut choices = Vec::new();
    let product = [problem.rows, problem.columns, problem.depth];
    if problem.conv.is_none() && tile::suits(scope.capabilities, problem.dtype, product) {
        choices.push(because(
            Variant::Lanes,
            "the adapter is a software rasteriser with subgroups of 8",
        ));
    }
    choices.push(because(Variant::Portable, "no other variant fits"));
    Ok(choices)
}

impl<'a> Problem<'a> {
    fn of(scope: &Scope, node: &'a Node) -> Result<Option<Problem<'a>>> {
        let conv = match &node.op {
            Op::Primitive(Primitive::Dot(_)) => None,
            Op::Primitive(Primitive::Conv(conv)) => Some(conv),
            _ => return Ok(None),
        };
        let (a, b) = (operand(node, 0)?, operand(node, 1)?);
        let result = node.results.first().copied().unwrap_or(a);
        let extents = match conv {
            None => product(scope, a, result),
            Some(conv) => convolution(scope, b, result, conv),
        };
        let [rows, columns, depth] = extents
            .ok_or_else(|| Error::internal("a product's operands have too few axes"))?
            .map(|size| expected(scope, &size));
        Ok(Some(Problem {
            key: key(scope, node, [a, b]),
            conv,
            dtype: scope.graph.ty(a).dtype,
            rows,
            columns,
            depth,
        }))
    }
}

/// Rows, columns and depth of a product.
fn product(scope: &Scope, a: ValueId, result: ValueId) -> Option<[Dim; 3]> {
    let [.., rows, columns] = scope.graph.ty(result).shape.as_slice() else {
        return None;
    };
    let depth = scope.graph.ty(a).shape.last()?;
    Some([rows, columns, depth].map(Dim::clone))
}

/// Output channels of a group, positions in all images, and what one of them is the sum of.
fn convolution(scope: &Scope, filter: ValueId, result: ValueId, conv: &Conv) -> Option<[Dim; 3]> {
    let [images, outputs, space @ ..] = scope.graph.ty(result).shape.as_slice() else {
        return None;
    };
    let [_, patch @ ..] = scope.graph.ty(filter).shape.as_slice() else {
        return None;
    };
    let rows = outputs.floor_div(&Dim::from(conv.groups));
    Some([rows, images * &Dim::product(space), Dim::product(patch)])
}

/// A size as it is in the example that the graph was made for.
pub fn expected(scope: &Scope, size: &Dim) -> usize {
    let size = size.eval(&scope.graph.hints).unwrap_or_default();
    usize::try_from(size).unwrap_or_default()
}

/// `dot f32 128x384 384x1536`, `conv f32 1x64x56 64x64x3 in 1 groups, stride 1 dilation 1 spread 1 padded by 1 and 1`
fn key(scope: &Scope, node: &Node, operands: [ValueId; 2]) -> String {
    let mut key = format!("{} {}", node.op.name(), scope.graph.ty(operands[0]).dtype);
    for operand in operands {
        let shape = &scope.graph.ty(operand).shape;
        let sizes = shape.iter().map(|size| expected(scope, size).to_string());
        key += &format!(" {}", sizes.collect::<Vec<_>>().join("x"));
    }
    if let Op::Primitive(Primitive::Conv(conv)) = &node.op {
        key += &format!(" in {} groups", conv.groups);
        for axis in &conv.axes {
            key += &format!(
                ", stride {} dilation {} spread {} padded by {} and {}",
                axis.stride, axis.dilation, axis.base_dilation, axis.low, axis.high
            );
        }
    }
    key
}
