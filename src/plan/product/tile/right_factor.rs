//! Right factor of a tile: an invocation loads four neighbouring columns, from the panels of a weight or from values.

use super::shuffle::ShuffledVector;
use super::tile_shape::{Extent, PackedWeight};
use super::{SubgroupTile, fits_texture};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Definition, ValueId};
use crate::kernel::index::Index;
use crate::kernel::layout::{Panels, StridedRange};
use crate::plan::element::KernelScope;
use crate::plan::element::panels::load_columns;
use crate::plan::element::vec4::{VEC4_LEN, is_multiple_of_4, load_vec4};
use crate::plan::kernel::clamped_index;
use crate::plan::product::Product;

/// Source of the right factor.
pub enum RightFactor<'s> {
    /// Values that kernels have written.
    Values(&'s Product),
    /// A weight in panels. The function returns the matrix for batch coordinates.
    Panels(ValueId, PackedWeight, &'s dyn Fn(&[Index]) -> Index),
}

impl RightFactor<'_> {
    /// Returns the K elements of an iteration.
    pub(super) fn round(&self) -> usize {
        match self {
            RightFactor::Values(_) => VEC4_LEN,
            RightFactor::Panels(_, packed, _) => packed.panels.k_block,
        }
    }
}

/// Returns the weight of which a right factor is a view, and its panels for tiles of a shape. All batch elements must
/// share the weight. `None` if the factor is not such a view, or the panels do not fit a texture.
pub fn packed_weight(
    scope: &mut KernelScope,
    product: &Product,
    extent: Extent,
) -> Result<Option<(ValueId, PackedWeight)>> {
    let mut outer = Vec::new();
    for (axis, size) in product.batch.iter().enumerate() {
        outer.push(scope.counter(&format!("outer{axis}"), size).1);
    }
    let (step, k) = scope.counter("k", &product.k_size);
    let (column, j) = scope.counter("j", &product.columns);
    let ((value, position), _) = product.right_element(scope, &outer, &k, &j);
    let Some((base, place)) = scope.resolve_views(value, &position)? else {
        return Ok(None);
    };
    let (info, strides) = (scope.graph.value(base), place.coefficients(&[step, column]));
    let run = |size: &Dim, stride: Option<&usize>| {
        let count = usize::try_from(size.as_const()?).ok()?;
        let stride = *stride?;
        Some(StridedRange { count, stride })
    };
    let strides = strides.unwrap_or_default();
    let strides: Vec<usize> = strides
        .iter()
        .filter_map(|x| usize::try_from(*x).ok())
        .collect();
    let (true, Some(lanes), Some(depth), Some(columns)) = (
        matches!(info.definition, Definition::Weight(_)) && info.ty.dtype == DType::F32,
        scope.capabilities.simd_lanes(),
        run(&product.k_size, strides.first()),
        run(&product.columns, strides.get(1)),
    ) else {
        return Ok(None);
    };
    let single = StridedRange {
        count: 1,
        stride: 0,
    };
    let packed = extent.pack(lanes, single, vec![depth], columns);
    let fits = fits_texture(scope.capabilities.textures, &packed.panels);
    Ok(fits.then_some((base, packed)))
}

impl SubgroupTile {
    /// Loads four columns at each of four K elements, from texels of a panel. K elements beyond those of every iteration
    /// are left out.
    ///
    /// A row of texels consists of lines, each as wide as a band. All bands read at once, each a different line, some of
    /// them lines of other columns: in half precision four K elements are only two lines.
    pub(super) fn load_from_panel(
        &self,
        scope: &mut KernelScope,
        weight: ValueId,
        panels: &Panels,
        [row, panel]: [&Index; 2],
        [from, q]: [usize; 2],
    ) -> Result<Vec<ShuffledVector>> {
        let (texture, texel) = scope.bind_panels(weight, panels)?;
        let (pool, bands) = (&mut scope.pool, self.shape.bands);
        let line_of = |step: usize| step / texel.k_per_texel();
        let lines = line_of(self.shape.column_vec4s * panels.k_block);
        let first = line_of(q * panels.k_block + from);
        let mut held = Vec::new();
        for line in first..first + line_of(VEC4_LEN) {
            let (band, read) = (line % bands, line - line % bands);
            // Bands beyond the last line read the same as others.
            let own = self.band.rem(&Dim::from(bands.min(lines - read)));
            let x = own.add_size(&Dim::from(read));
            let x = x.scale(&Dim::from(self.band_lanes())).add(&self.lane);
            let at = [&x, row, panel].map(|index| index.emit(pool));
            held.extend((0..texel.k_per_texel()).map(|step| {
                let quad = load_columns(pool, texture, texel, at, step);
                pool.set_label(quad, "columns");
                ShuffledVector {
                    vector: quad,
                    source_lane: self.lane_of_band(band),
                }
            }));
        }
        held.truncate(panels.k_ranges.last().map_or(VEC4_LEN, |run| run.count));
        Ok(held)
    }

    /// Loads four columns at each of four K elements. Each band loads those of one K element.
    pub(super) fn load_from_values(
        &self,
        scope: &mut KernelScope,
        product: &Product,
        first: &Index,
        q: usize,
    ) -> Result<Vec<ShuffledVector>> {
        let columns: Vec<Index> = (0..VEC4_LEN)
            .map(|i| self.clamped_column(scope, product, q, i))
            .collect();
        let mut held = Vec::new();
        for from in (0..VEC4_LEN).step_by(self.shape.bands) {
            let step = first.add(&self.band).add_size(&Dim::from(from));
            let is_known =
                is_multiple_of_4(&product.k_size) || (self.shape.bands == 1 && from == 0);
            let guard = (!is_known).then(|| scope.is_below(&step, &product.k_size));
            let mut line = Vec::new();
            for column in &columns {
                let (factor, inside) = product.right_element(scope, &self.batch, &step, column);
                let inside = inside.map(|inside| scope.pool.and(guard, inside));
                line.push((factor, inside.or(guard)));
            }
            let quad = load_vec4(scope, &line)?;
            scope.pool.set_label(quad, "columns");
            let bands = 0..self.shape.bands;
            held.extend(bands.map(|band| ShuffledVector {
                vector: quad,
                source_lane: self.lane_of_band(band),
            }));
        }
        Ok(held)
    }

    /// Returns a column of an invocation, clamped to the last one.
    fn clamped_column(
        &self,
        scope: &mut KernelScope,
        product: &Product,
        q: usize,
        i: usize,
    ) -> Index {
        let (first, offset) = (self.first_column(&Index::from(Dim::from(q))), Dim::from(i));
        if is_multiple_of_4(&product.columns) {
            let whole = Dim::from(VEC4_LEN);
            let quads = product.columns.floor_div(&whole);
            let quad = clamped_index(scope, &first.div(&whole), &quads);
            return quad.scale(&whole).add_size(&offset);
        }
        clamped_index(scope, &first.add_size(&offset), &product.columns)
    }
}
