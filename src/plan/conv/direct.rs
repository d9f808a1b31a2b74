//! Depthwise convolutions on GPUs: each output channel reads one input channel, so that there is no matrix product.
//! Neighbouring positions share the input elements that they read.

use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::Node;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::{self, Index};
use crate::op::Conv;
use crate::plan::conv::ConvSizes;
use crate::plan::element::KernelScope;
use crate::plan::element::position::Position;
use crate::plan::element::vec4::{VEC4_LEN, is_multiple_of_4, load_vec4};
use crate::plan::group::Group;
use crate::plan::kernel::{LoweredKernel, bounds_guard, ceil_div, invocation, repeat_all};
use crate::plan::product::{accumulate, vec4_indices, write_vec4};
use crate::shape::Shape;

const TEMPLATE: &str = include_str!("../../../shaders/direct.wgsl");

/// Most taps of a filter row, which the source has unrolled.
pub const MAX_ROW_TAPS: i64 = 16;

/// Lowers a depthwise convolution with its epilogue.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    node: &Node,
    conv: &Conv,
) -> Result<LoweredKernel<'a>> {
    let sizes = ConvSizes::new(scope.graph, node, conv)?;
    let positions = PositionVec4::new(&mut scope, &sizes, conv)?;
    let sum = scope.pool.variable("sum", WgslType::F32x4);
    let zero = scope.pool.call("vec4<f32>()", WgslType::F32x4, &[]);
    let mut statements = vec![positions.surplus.clone(), Statement::Declare(sum, zero)];
    let (taps, row) = positions.taps.clone();
    statements.extend(repeat_all(&mut scope, "tap", &taps, |scope, taps| {
        positions.add_row(scope, &taps, &row, sum)
    })?);
    statements.push(Statement::Freeze(sum));
    statements.extend(positions.write(&mut scope, group, sum)?);
    Ok(LoweredKernel::new(
        scope,
        TEMPLATE,
        statements,
        &positions.count,
    ))
}

/// Four positions of a row, which one invocation computes.
struct PositionVec4<'c> {
    sizes: &'c ConvSizes,
    conv: &'c Conv,
    /// Number of invocations.
    count: Dim,
    /// Statement that ends surplus invocations.
    surplus: Statement,
    image: Index,
    /// Output channel.
    channel: Index,
    /// Position along all spatial axes but the last.
    outer_position: Vec<Index>,
    /// Index of the vec4 of positions along the last spatial axis.
    vec4_index: Index,
    /// Number of taps along all spatial axes but the last, over which loops run; and the taps along the last axis,
    /// which are unrolled.
    taps: (Shape, Vec<i64>),
}

impl<'c> PositionVec4<'c> {
    fn new(
        scope: &mut KernelScope,
        sizes: &'c ConvSizes,
        conv: &'c Conv,
    ) -> Result<PositionVec4<'c>> {
        let ([space @ .., width], [taps @ .., row]) =
            (sizes.space.as_slice(), sizes.taps.as_slice())
        else {
            return Err(Error::internal("a convolution has no spatial axes"));
        };
        let channels = &sizes.groups * &sizes.outputs;
        let mut shape = vec![sizes.batch.clone(), channels];
        shape.extend(space.iter().cloned());
        shape.push(ceil_div(width, VEC4_LEN));
        let count = Dim::product(&shape);
        let (index, surplus) = invocation(scope, &count);
        let mut coordinates = index::delinearize(&index, &shape);
        let vec4_index = coordinates.pop().unwrap_or_else(Index::zero);
        let (image, channel) = (coordinates.remove(0), coordinates.remove(0));
        let row = row.as_const().filter(|row| *row <= MAX_ROW_TAPS);
        let row = row.ok_or_else(|| {
            Error::internal(
                "the direct kernel needs a small constant number of taps along the last axis",
            )
        })?;
        Ok(PositionVec4 {
            sizes,
            conv,
            count,
            surplus,
            image,
            channel,
            outer_position: coordinates,
            vec4_index,
            taps: (taps.to_vec(), (0..row).collect()),
        })
    }

    /// Adds the products of one row of taps: those along the last axis. `taps` are the coordinates of the row along the
    /// other axes.
    fn add_row(
        &self,
        scope: &mut KernelScope,
        taps: &[Index],
        row: &[i64],
        sum: Expr,
    ) -> Result<Vec<Statement>> {
        let width = self.sizes.space.last().cloned().unwrap_or(Dim::ONE);
        let first = self.vec4_index.scale(&Dim::from(VEC4_LEN));
        let columns = if self.is_guarded() {
            (0..VEC4_LEN)
                .map(|j| first.add_size(&Dim::from(j)))
                .collect()
        } else {
            vec4_indices(scope, &self.vec4_index, &width)
        };
        let mut terms = Vec::new();
        for tap in row {
            let taps = [taps, &[Dim::from(*tap).into()]].concat();
            let channels = [self.channel.clone(), Index::zero()];
            let filter_position = Position::from_coordinates([channels.as_slice(), &taps].concat());
            let weight = scope.element(self.sizes.filter, &filter_position, None)?;
            let inputs = self.load_inputs(scope, &taps, &columns)?;
            let term = scope.pool.call("x * y", WgslType::F32x4, &[weight, inputs]);
            terms.push(term);
        }
        Ok(vec![accumulate(&mut scope.pool, sum, &terms)])
    }

    /// Returns whether input coordinates are compared with the edges of the input. Then positions beyond the edge of
    /// the result need no clamping, and neighbours can share loads.
    fn is_guarded(&self) -> bool {
        let axis = self.conv.axes.last();
        axis.is_some_and(|axis| axis.low > 0 || axis.high > 0 || axis.base_dilation > 1)
    }

    /// Loads the inputs of four positions under a tap.
    fn load_inputs(
        &self,
        scope: &mut KernelScope,
        taps: &[Index],
        columns: &[Index],
    ) -> Result<Expr> {
        let channel = self.channel.div(&self.sizes.outputs);
        let elements = scope.with_vec4(|scope| {
            let mut elements = Vec::new();
            for column in columns {
                let image_and_channel = [self.image.clone(), channel.clone()];
                let position =
                    [self.outer_position.as_slice(), std::slice::from_ref(column)].concat();
                let (input_position, inside) =
                    self.sizes
                        .input_position(scope, image_and_channel, taps, &position);
                elements.push(((self.sizes.x, input_position), inside));
            }
            Ok(elements)
        })?;
        load_vec4(scope, &elements)
    }

    /// Writes the four positions with the epilogue.
    fn write(&self, scope: &mut KernelScope, group: &Group, sum: Expr) -> Result<Vec<Statement>> {
        let width = self.sizes.space.last().cloned().unwrap_or(Dim::ONE);
        let first = self.vec4_index.scale(&Dim::from(VEC4_LEN));
        let position_of = |column: &Index| {
            let image_and_channel = [self.image.clone(), self.channel.clone()];
            let position = [self.outer_position.as_slice(), std::slice::from_ref(column)].concat();
            Position::from_coordinates([image_and_channel.as_slice(), &position].concat())
        };
        let result = self.sizes.result;
        let statements = write_vec4(scope, group, result, &first, &width, sum, &position_of)?;
        Ok(if is_multiple_of_4(&width) {
            bounds_guard(scope, &first, &width, statements)
        } else {
            statements
        })
    }
}
