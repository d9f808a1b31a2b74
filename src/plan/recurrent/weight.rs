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
    /// In a buffer.
    Value(ValueId),
    /// In panels: a unit of a gate is a column, and units of the state are K.
    Panels(ValueId, Panels),
}

/// Block of four by four units.
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

    /// Loads the block of a gate, a vec4 of its units and state units. Elements past the end are zeros.
    pub(super) fn load_block(
        &self,
        scope: &mut KernelScope,
        layer: &LayerKernel,
        gate: usize,
        quad: &Index,
        k: &Index,
        part: usize,
    ) -> Result<WeightBlock> {
        match self {
            RecurrentWeight::Panels(base, panels) => {
                let (texture, texel) = scope.bind_panels(*base, panels)?;
                let width = Dim::from(panels.width / VEC4_LEN);
                let gate = layer.gate_index(gate);
                let panel = gate
                    .scale(&Dim::from(panels.panels()))
                    .add(&quad.div(&width));
                let pool = &mut scope.pool;
                let column = |step: usize| {
                    let before = step / texel.k_per_texel() * panels.width / VEC4_LEN;
                    let x = quad.rem(&width).add_size(&Dim::from(before));
                    let at = [&x, k, &panel].map(|index| index.emit(pool));
                    load_columns(pool, texture, texel, at, step)
                };
                let first = part * VEC4_LEN;
                Ok(WeightBlock::Columns(
                    (first..first + VEC4_LEN).map(column).collect(),
                ))
            }
            RecurrentWeight::Value(value) => {
                let (direction, gate) = (&layer.direction, Index::from(Dim::from(gate)));
                let first = k.scale(&Dim::from(VEC4_LEN));
                let units = Dim::from(layer.units);
                let mut rows = Vec::new();
                for unit in layer.vec4_units(scope, quad) {
                    let mut factors = Vec::new();
                    for part in 0..VEC4_LEN {
                        let step = first.add_size(&Dim::from(part));
                        let guard = (!step.is_less_than(&units)
                            && !layer.units.is_multiple_of(VEC4_LEN))
                        .then(|| scope.is_below(&step, &units));
                        let at = vec![direction.clone(), gate.clone(), unit.clone(), step];
                        factors.push(((*value, Position::from_coordinates(at)), guard));
                    }
                    rows.push(vec4::load_vec4(scope, &factors)?);
                }
                Ok(WeightBlock::Rows(rows))
            }
        }
    }
}

impl WeightBlock {
    /// Products of four state units with the block: their contributions to four units of the gate.
    pub fn multiply(
        &self,
        pool: &mut ExprPool,
        state: impl Fn(&mut ExprPool, usize) -> Expr,
    ) -> Expr {
        match self {
            WeightBlock::Columns(columns) => {
                let parts = columns.iter().enumerate();
                let terms: Vec<Expr> = parts
                    .map(|(part, column)| {
                        let number = state(pool, part);
                        pool.call("x * y", WgslType::F32x4, &[number, *column])
                    })
                    .collect();
                pool.call("(x + y) + (z + w)", WgslType::F32x4, &terms)
            }
            WeightBlock::Rows(rows) => {
                let state: Vec<Expr> = (0..VEC4_LEN).map(|part| state(pool, part)).collect();
                let state = vec4::build_vec4(pool, &state, WgslType::F32x4);
                let sum = |row: &Expr| pool.call("dot(x, y)", WgslType::F32, &[*row, state]);
                let sums: Vec<Expr> = rows.iter().map(sum).collect();
                vec4::build_vec4(pool, &sums, WgslType::F32x4)
            }
        }
    }
}

/// Weight that a value is a view of, and its panels: the matrices of all directions and gates are concatenated.
fn weight_panels(
    scope: &mut KernelScope,
    value: ValueId,
    lanes: usize,
) -> Result<Option<(ValueId, Panels)>> {
    let sizes = scope.graph.ty(value).shape.iter();
    let sizes = sizes.map(|size| usize::try_from(size.as_const()?).ok());
    let sizes: Option<Vec<usize>> = sizes.collect();
    let (Some(_), Some(&[directions, gates, units, steps])) =
        (scope.capabilities.simd_lanes(), sizes.as_deref())
    else {
        return Ok(None);
    };
    let sizes = [directions * gates, units, steps];
    let shape = sizes.map(Dim::from);
    let mut counter = |axis: usize, name| scope.counter(name, &shape[axis]);
    let counters = [counter(0, "outer"), counter(1, "j"), counter(2, "k")];
    let at = counters.each_ref().map(|(_, index)| index.clone());
    let place = Position::from_index(index::linearize(&at, &shape));
    let Some((base, place)) = scope.resolve_views(value, &place)? else {
        return Ok(None);
    };
    let info = scope.graph.value(base);
    let is_weight = matches!(info.definition, Definition::Weight(_)) && info.ty.dtype == DType::F32;
    let strides = place.coefficients(&counters.map(|(variable, _)| variable));
    let strides = strides.filter(|strides| is_weight && strides.iter().all(|x| *x >= 0));
    let Some(&[far, near, next]) = strides.as_deref() else {
        return Ok(None);
    };
    let run = |axis: usize, stride: i64| StridedRange {
        count: sizes[axis],
        stride: stride.unsigned_abs() as usize,
    };
    let width = (lanes * VEC4_LEN).min(units.next_multiple_of(VEC4_LEN));
    let panels = Panels {
        batch: run(0, far),
        k_ranges: vec![run(2, next)],
        columns: run(1, near),
        k_block: UNITS_PER_ITERATION,
        width,
        strip: width,
        winograd_tile: None,
    };
    let fits = fits_texture(scope.capabilities.textures, &panels);
    Ok(fits.then_some((base, panels)))
}
