//! The table of variants: how a contraction or convolution is computed, by adapter, sizes and dtype.

use super::element::{Scope, operand};
use super::product::Product;
use super::{tile, workgroup};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Node, Op, Primitive, ValueId};
use crate::kernel::choice::{Choice, Choices, Variant};
use crate::kernel::plan::Capabilities;
use crate::op::Conv;

/// A product of matrices that a node is, in the sizes of the example: a convolution is one of filters and patches.
struct Problem<'a> {
    capabilities: &'a Capabilities,
    /// What a table of measured variants knows it by.
    key: String,
    /// The convolution that it is.
    conv: Option<&'a Conv>,
    dtype: DType,
    /// Products of the same sizes.
    outer: usize,
    rows: usize,
    columns: usize,
    depth: usize,
}

/// Tiles of workgroups that keep a GPU busy.
const ENOUGH: usize = 96;

/// The variants in question for a node, the best first; the last one can run on any device. None for a node that has no
/// variants.
pub fn choices<'a>(scope: &Scope<'a>, node: &'a Node, given: &Choices) -> Result<Vec<Choice>> {
    let Some(problem) = Problem::of(scope, node)? else {
        return Ok(Vec::new());
    };
    let given = given.get(&problem.key).copied();
    let given = given.filter(|variant| problem.admits(*variant));
    let given = given.map(|variant| (variant, String::from("it is asked for")));
    let table = problem.table().into_iter();
    let any = (Variant::Portable, String::from("no other variant fits"));
    let choices = given.into_iter().chain(table).chain([any]);
    Ok(choices
        .map(|(variant, reason)| Choice {
            key: problem.key.clone(),
            variant,
            reason,
        })
        .collect())
}

impl Problem<'_> {
    /// The table: what is best for which device, sizes and dtype, and why.
    fn table(&self) -> Vec<(Variant, String)> {
        let mut found = Vec::new();
        if self.admits(Variant::Lanes) {
            let reason = "the adapter is a software rasteriser with subgroups of 8";
            found.push((Variant::Lanes, String::from(reason)));
        }
        if !self.capabilities.software {
            found.extend(self.tile());
        }
        found
    }

    /// True if a variant computes this, and the device can run it.
    fn admits(&self, variant: Variant) -> bool {
        let product = [self.rows, self.columns, self.depth];
        match variant {
            Variant::Portable => true,
            Variant::Lanes => {
                self.conv.is_none() && tile::suits(self.capabilities, self.dtype, product)
            }
            Variant::Tile { side } => {
                let extent = workgroup::Extent::of(side);
                is_single(self.dtype) && extent.is_some_and(|extent| extent.fits(self.capabilities))
            }
        }
    }

    /// The largest tile of which there are enough to keep a GPU busy; where there are never enough, the smallest one.
    fn tile(&self) -> Option<(Variant, String)> {
        if self.rows < 4 || self.columns < 4 || self.depth < 4 {
            return None;
        }
        let count =
            |side: usize| self.outer * self.rows.div_ceil(side) * self.columns.div_ceil(side);
        let sides = [128, 64, 32].into_iter().filter(|side| {
            let side = u32::try_from(*side).unwrap_or_default();
            self.admits(Variant::Tile { side })
        });
        let sides: Vec<usize> = sides.collect();
        let largest = sides.iter().find(|side| count(**side) >= ENOUGH);
        let side = *largest.or(sides.last())?;
        let [rows, columns] = [self.rows, self.columns];
        let reason = format!(
            "the adapter is a GPU and {rows}x{columns} elements are {} tiles",
            count(side)
        );
        let side = u32::try_from(side).unwrap_or_default();
        Some((Variant::Tile { side }, reason))
    }
}

/// True for dtypes whose products are summed up in single precision.
fn is_single(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32)
}

impl<'a> Problem<'a> {
    fn of(scope: &Scope<'a>, node: &'a Node) -> Result<Option<Problem<'a>>> {
        let conv = match &node.op {
            Op::Primitive(Primitive::Dot(_)) => None,
            Op::Primitive(Primitive::Conv(conv)) => Some(conv),
            _ => return Ok(None),
        };
        let (a, b) = (operand(node, 0)?, operand(node, 1)?);
        let product = Product::of(scope, node)?;
        let extents = [
            &Dim::product(&product.outer),
            &product.rows,
            &product.columns,
            &product.depth,
        ];
        let [outer, rows, columns, depth] = extents.map(|size| expected(scope, size));
        Ok(Some(Problem {
            capabilities: scope.capabilities,
            key: key(scope, node, [a, b]),
            conv,
            dtype: scope.graph.ty(a).dtype,
            outer,
            rows,
            columns,
            depth,
        }))
    }
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
