//! Weight of a recurrent layer, in blocks of four units of a gate by four units of the state.

use super::LayerKernel;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Definition, ValueId};
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::kernel::index::{self, Index};
use crate::kernel::layout::{Panels, StridedRange};
use crate::plan::element::KernelScope;
use crate::plan::element::panels::load_columns;
use crate::plan::element::position::Position;
use crate::plan::element::vec4::{self, VEC4_LEN};
use crate::plan::product::tile::fits_texture;

/// State units per iteration with panels. With fewer, loads of the state dominate; with more, the loop exceeds the
/// instruction cache.
const UNITS_PER_ITERATION: usize = 8;

/// Storage of the weight.
pub enum RecurrentWeight {
    /// In a buffer, as the value.
    Value(ValueId),
    /// In panels of a weight that the value is a view of: a unit of a gate is a column, and units of the state are K.
    Panels(ValueId, Panels),
}

/// Block of the weight: four units of a gate by four units of the state.
pub enum WeightBlock {
    /// One vector for each unit of the state, with four units of a gate.
    Columns(Vec<Expr>),
    /// One vector for each unit of a gate, with four units of the state.
    Rows(Vec<Expr>),
}

impl RecurrentWeight {
    /// Chooses the storage: panels where subgroups are vector lanes, a texture holds them, and the value is a view of a
    /// weight.
    pub fn new(
        scope: &mut KernelScope,
        value: ValueId,
        invocations: usize,
    ) -> Result<RecurrentWeight> {
        let panels = weight_panels(scope, value, invocations)?;
        Ok(
            panels.map_or(RecurrentWeight::Value(value), |(base, panels)| {
                RecurrentWeight::Panels(base, panels)
            }),
        )
    }

    /// State units per iteration.
    pub fn units_per_iteration(&self) -> usize {
        match self {
            RecurrentWeight::Value(_) => VEC4_LEN,
            RecurrentWeight::Panels(_, panels) => panels.k_block,
        }
    }

    /// True if lanes of a subgroup read the weight from a texture.
    pub fn is_in_panels(&self) -> bool {
        matches!(self, RecurrentWeight::Panels(..))
    }

    /// Loads the block of a gate for the vec4 `vec4_index` of its units and the vec4 `k_vec4` of the state units in
    /// iteration `k`. Elements past the end are zeros.
    pub(super) fn load_block(
        &self,
        scope: &mut KernelScope,
        layer: &LayerKernel,
        gate: usize,
        vec4_index: &Index,
        k: &Index,
        k_vec4: usize,
    ) -> Result<WeightBlock> {
        match self {
            RecurrentWeight::Panels(base, panels) => {
                let (texture, texel) = scope.bind_panels(*base, panels)?;
                let width = Dim::from(panels.width / VEC4_LEN);
                let gate = layer.gate_index(gate);
                let panel = gate
                    .scale(&Dim::from(panels.panels()))
                    .add(&vec4_index.div(&width));
                let pool = &mut scope.pool;
                let column = |k_index: usize| {
                    let offset = k_index / texel.k_per_texel() * panels.width / VEC4_LEN;
                    let x = vec4_index.rem(&width).add_size(&Dim::from(offset));
                    let coordinates = [&x, k, &panel].map(|index| index.emit(pool));
                    load_columns(pool, texture, texel, coordinates, k_index)
                };
                let first = k_vec4 * VEC4_LEN;
                Ok(WeightBlock::Columns(
                    (first..first + VEC4_LEN).map(column).collect(),
                ))
            }
            RecurrentWeight::Value(value) => {
                let (direction, gate) = (&layer.direction, Index::from(Dim::from(gate)));
                let first = k.scale(&Dim::from(VEC4_LEN));
                let units = Dim::from(layer.units);
                let mut rows = Vec::new();
                for unit in layer.vec4_units(scope, vec4_index) {
                    let mut factors = Vec::new();
                    for component in 0..VEC4_LEN {
                        let k_index = first.add_size(&Dim::from(component));
                        let guard = (!k_index.is_less_than(&units)
                            && !layer.units.is_multiple_of(VEC4_LEN))
                        .then(|| scope.is_below(&k_index, &units));
                        let coordinates =
                            vec![direction.clone(), gate.clone(), unit.clone(), k_index];
                        factors.push(((*value, Position::from_coordinates(coordinates)), guard));
                    }
                    rows.push(vec4::load_vec4(scope, &factors)?);
                }
                Ok(WeightBlock::Rows(rows))
            }
        }
    }
}

impl WeightBlock {
    /// Product of four state units with the block: their contributions to four units of the gate. `state` returns one
    /// of the four state units.
    pub fn multiply(
        &self,
        pool: &mut ExprPool,
        state: impl Fn(&mut ExprPool, usize) -> Expr,
    ) -> Expr {
        match self {
            WeightBlock::Columns(columns) => {
                let indexed_columns = columns.iter().enumerate();
                let terms: Vec<Expr> = indexed_columns
                    .map(|(component, column)| {
                        let number = state(pool, component);
                        pool.call("x * y", WgslType::F32x4, &[number, *column])
                    })
                    .collect();
                pool.call("(x + y) + (z + w)", WgslType::F32x4, &terms)
            }
            WeightBlock::Rows(rows) => {
                let state: Vec<Expr> = (0..VEC4_LEN)
                    .map(|component| state(pool, component))
                    .collect();
                let state = vec4::build_vec4(pool, &state, WgslType::F32x4);
                let sum = |row: &Expr| pool.call("dot(x, y)", WgslType::F32, &[*row, state]);
                let sums: Vec<Expr> = rows.iter().map(sum).collect();
                vec4::build_vec4(pool, &sums, WgslType::F32x4)
            }
        }
    }
}

/// Weight that a value is a view of, and its panels: one matrix for each direction and gate. `None` if the weight
/// cannot be read in panels.
fn weight_panels(
    scope: &mut KernelScope,
    value: ValueId,
    lanes: usize,
) -> Result<Option<(ValueId, Panels)>> {
    let sizes = scope.graph.ty(value).shape.iter();
    let sizes = sizes.map(|size| usize::try_from(size.as_const()?).ok());
    let sizes: Option<Vec<usize>> = sizes.collect();
    let (Some(_), Some(&[directions, gates, units, state_units])) =
        (scope.capabilities.simd_lanes(), sizes.as_deref())
    else {
        return Ok(None);
    };
    let sizes = [directions * gates, units, state_units];
    let shape = sizes.map(Dim::from);
    let mut counter = |axis: usize, name| scope.counter(name, &shape[axis]);
    let counters = [counter(0, "outer"), counter(1, "j"), counter(2, "k")];
    let indices = counters.each_ref().map(|(_, index)| index.clone());
    let position = Position::from_index(index::linearize(&indices, &shape));
    let Some((base, position)) = scope.resolve_views(value, &position)? else {
        return Ok(None);
    };
    let info = scope.graph.value(base);
    let is_weight = matches!(info.definition, Definition::Weight(_)) && info.ty.dtype == DType::F32;
    let strides = position.coefficients(&counters.map(|(variable, _)| variable));
    let strides = strides.filter(|strides| is_weight && strides.iter().all(|x| *x >= 0));
    let Some(&[matrix_stride, unit_stride, k_stride]) = strides.as_deref() else {
        return Ok(None);
    };
    let range = |axis: usize, stride: i64| StridedRange {
        count: sizes[axis],
        stride: stride.unsigned_abs() as usize,
    };
    let width = (lanes * VEC4_LEN).min(units.next_multiple_of(VEC4_LEN));
    let panels = Panels {
        batch: range(0, matrix_stride),
        k_ranges: vec![range(2, k_stride)],
        columns: range(1, unit_stride),
        k_block: UNITS_PER_ITERATION,
        width,
        strip: width,
        winograd_tile: None,
    };
    let fits = fits_texture(scope.capabilities.textures, &panels);
    Ok(fits.then_some((base, panels)))
}
