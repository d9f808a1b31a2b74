//! Right factor of a tile: an invocation loads four neighbouring columns, from the panels of a weight or from values.

use super::shuffle::ShuffledVector;
use super::tile_shape::{PackedWeight, TileShape};
use super::{SubgroupTile, fits_texture};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Definition, ValueId};
use crate::kernel::expr::Expr;
use crate::kernel::index::Index;
use crate::kernel::layout::{Panels, StridedRange};
use crate::plan::element::KernelScope;
use crate::plan::element::panels::load_columns;
use crate::plan::element::vec4::{VEC4_LEN, is_multiple_of_4, load_vec4};
use crate::plan::kernel::clamped_index;
use crate::plan::product::Product;

/// Loads four columns of the right factor at a K element. Takes the K index and the first column, a multiple of four.
type ColumnsLoader<'s> = &'s dyn Fn(&mut KernelScope, &Index, &Index) -> Result<Expr>;

/// Source of the right factor.
pub enum RightFactor<'s> {
    /// The right factor of this product, read from any layout.
    Values(&'s Product),
    /// A weight in panels. The function returns the index of the weight's matrix for batch coordinates.
    Panels(ValueId, PackedWeight, &'s dyn Fn(&[Index]) -> Index),
    /// Four columns at a K element by a function, for tiles of a shape. Columns and K are multiples of four.
    Columns(TileShape, ColumnsLoader<'s>),
}

impl RightFactor<'_> {
    /// Returns the number of K elements of an iteration.
    pub(super) fn k_block(&self) -> usize {
        match self {
            RightFactor::Values(_) | RightFactor::Columns(..) => VEC4_LEN,
            RightFactor::Panels(_, packed, _) => packed.panels.k_block,
        }
    }
}

/// Returns the weight of which a right factor is a view, and its panels for tiles of a shape. All batch elements must
/// share the weight. `None` if the factor is not such a view, or the panels do not fit a texture.
pub fn packed_weight(
    scope: &mut KernelScope,
    product: &Product,
    tile_shape: TileShape,
) -> Result<Option<(ValueId, PackedWeight)>> {
    let mut batch = Vec::new();
    for (axis, size) in product.batch.iter().enumerate() {
        batch.push(scope.counter(&format!("outer{axis}"), size).1);
    }
    let (k_variable, k) = scope.counter("k", &product.k_size);
    let (column_variable, column) = scope.counter("j", &product.columns);
    let ((value, position), _) = product.right_element(scope, &batch, &k, &column);
    let Some((base, index)) = scope.resolve_views(value, &position)? else {
        return Ok(None);
    };
    let (info, strides) = (
        scope.graph.value(base),
        index.coefficients(&[k_variable, column_variable]),
    );
    let range = |size: &Dim, stride: Option<&usize>| {
        let count = usize::try_from(size.as_const()?).ok()?;
        let stride = *stride?;
        Some(StridedRange { count, stride })
    };
    let strides = strides.unwrap_or_default();
    let strides: Vec<usize> = strides
        .iter()
        .filter_map(|x| usize::try_from(*x).ok())
        .collect();
    let (true, Some(lanes), Some(k_range), Some(columns)) = (
        matches!(info.definition, Definition::Weight(_)) && info.ty.dtype == DType::F32,
        scope.capabilities.simd_lanes(),
        range(&product.k_size, strides.first()),
        range(&product.columns, strides.get(1)),
    ) else {
        return Ok(None);
    };
    let batch_range = StridedRange {
        count: 1,
        stride: 0,
    };
    let packed = tile_shape.pack(lanes, batch_range, vec![k_range], columns);
    let fits = fits_texture(scope.capabilities.textures, &packed.panels);
    Ok(fits.then_some((base, packed)))
}

impl SubgroupTile {
    /// Loads four columns at each of four K elements, from texels of a panel: those of vec4 `q` of the invocation's
    /// columns, and of the K elements that start at `from`. `row` is the row of texels of the iteration. K elements
    /// beyond the size of K are left out if K has fewer than four.
    ///
    /// A row of texels consists of lines, each as wide as a band. All bands read at once, each a different line. Some
    /// of these belong to other vec4s of columns: in half precision four K elements are only two lines.
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
        let line_index = |step: usize| step / texel.k_per_texel();
        let lines = line_index(self.shape.column_vec4s * panels.k_block);
        let first = line_index(q * panels.k_block + from);
        let mut vectors = Vec::new();
        for line in first..first + line_index(VEC4_LEN) {
            let (band, first_read) = (line % bands, line - line % bands);
            // Bands beyond the last line read the same as others.
            let own_line = self.band.rem(&Dim::from(bands.min(lines - first_read)));
            let x = own_line.add_size(&Dim::from(first_read));
            let x = x.scale(&Dim::from(self.band_lanes())).add(&self.lane);
            let texel_position = [&x, row, panel].map(|index| index.emit(pool));
            vectors.extend((0..texel.k_per_texel()).map(|step| {
                let vector = load_columns(pool, texture, texel, texel_position, step);
                pool.set_label(vector, "columns");
                ShuffledVector {
                    vector,
                    source_lane: self.lane_of_band(band),
                }
            }));
        }
        vectors.truncate(panels.k_ranges.last().map_or(VEC4_LEN, |range| range.count));
        Ok(vectors)
    }

    /// Loads four columns at each of four K elements, starting with `first`, by a function: those of vec4 `q` of the
    /// invocation's columns. Each band loads the columns of one K element.
    pub(super) fn load_by_columns(
        &self,
        scope: &mut KernelScope,
        load: ColumnsLoader,
        first: &Index,
        q: usize,
    ) -> Result<Vec<ShuffledVector>> {
        let column = self.first_column(&Index::from(Dim::from(q)));
        self.load_k_of_each_band(scope, |scope, k_offset| {
            let k = first.add(&self.band).add_size(&Dim::from(k_offset));
            load(scope, &k, &column)
        })
    }

    /// Loads four columns at each of four K elements: `load` returns those of the own band's K element. It takes the offset of
    /// the first band's.
    fn load_k_of_each_band(
        &self,
        scope: &mut KernelScope,
        mut load: impl FnMut(&mut KernelScope, usize) -> Result<Expr>,
    ) -> Result<Vec<ShuffledVector>> {
        let mut vectors = Vec::new();
        for k_offset in (0..VEC4_LEN).step_by(self.shape.bands) {
            let vector = load(scope, k_offset)?;
            scope.pool.set_label(vector, "columns");
            let bands = 0..self.shape.bands;
            vectors.extend(bands.map(|band| ShuffledVector {
                vector,
                source_lane: self.lane_of_band(band),
            }));
        }
        Ok(vectors)
    }

    /// Loads four columns at each of four K elements, starting with `first`: those of vec4 `q` of the invocation's
    /// columns. Each band loads the columns of one K element.
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
        self.load_k_of_each_band(scope, |scope, k_offset| {
            let k = first.add(&self.band).add_size(&Dim::from(k_offset));
            let is_always_inside =
                is_multiple_of_4(&product.k_size) || (self.shape.bands == 1 && k_offset == 0);
            let guard = (!is_always_inside).then(|| scope.is_below(&k, &product.k_size));
            let mut elements = Vec::new();
            for column in &columns {
                let (element, inside) = product.right_element(scope, &self.batch, &k, column);
                let inside = inside.map(|inside| scope.pool.and(guard, inside));
                elements.push((element, inside.or(guard)));
            }
            load_vec4(scope, &elements)
        })
    }

    /// Returns column `i` of vec4 `q` of the invocation, clamped to the last column of the product.
    fn clamped_column(
        &self,
        scope: &mut KernelScope,
        product: &Product,
        q: usize,
        i: usize,
    ) -> Index {
        let (first, offset) = (self.first_column(&Index::from(Dim::from(q))), Dim::from(i));
        if is_multiple_of_4(&product.columns) {
            let vec4_len = Dim::from(VEC4_LEN);
            let vec4_count = product.columns.floor_div(&vec4_len);
            let vec4_index = clamped_index(scope, &first.div(&vec4_len), &vec4_count);
            return vec4_index.scale(&vec4_len).add_size(&offset);
        }
        clamped_index(scope, &first.add_size(&offset), &product.columns)
    }
}
