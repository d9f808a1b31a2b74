//! Values in a vec4 layout: four neighbours along an axis are one vector.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::ValueId;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::{self, Index};
use crate::kernel::layout::{Layout, vec4_shape};
use crate::plan::element::position::Position;
use crate::plan::element::vec4::{self, VEC4_LEN, is_multiple_of_4};
use crate::plan::element::{KernelScope, role, scalar};
use crate::plan::kernel::invocation;
use crate::shape::TensorType;

/// The channel axis.
pub const CHANNEL_AXIS: usize = 1;

/// Layout of images: vec4 along channels.
pub const IMAGE_LAYOUT: Layout = Layout::Vec4 { axis: CHANNEL_AXIS };

/// True for values that may be images, signals or volumes. Kernels for a rasteriser store these in [`IMAGE_LAYOUT`].
pub fn may_be_image(ty: &TensorType) -> bool {
    ty.dtype == DType::F32 && (3..=5).contains(&ty.rank())
}

/// Coordinates of the invocation's vec4 along an axis, a statement that ends surplus invocations, and the number of
/// invocations.
pub fn invocation_vec4(
    scope: &mut KernelScope,
    shape: &[Dim],
    axis: usize,
) -> (Vec<Index>, Statement, Dim) {
    let shape = vec4_shape(shape, axis);
    let count = Dim::product(&shape);
    let (index, surplus) = invocation(scope, &count);
    (index::delinearize(&index, &shape), surplus, count)
}

impl KernelScope<'_> {
    /// Emits a coordinate of the first of these sizes as a separate expression, if it has an offset and the inner sizes
    /// are symbolic. Memory indices then are products with the row length instead of sums that load one more size per
    /// offset.
    pub fn separate(&mut self, coordinate: Index, sizes: &[Dim]) -> Index {
        let [size, inner @ ..] = sizes else {
            return coordinate;
        };
        if !coordinate.has_offset() || Dim::product(inner).as_const().is_some() {
            return coordinate;
        }
        let number = coordinate.emit(&mut self.pool);
        self.pool.set_label(number, "row");
        Index::expr(number, size)
    }

    /// Applies [`KernelScope::separate`] to all coordinates.
    pub fn separate_all(&mut self, coordinates: &[Index], shape: &[Dim]) -> Vec<Index> {
        let axes = coordinates.iter().enumerate();
        axes.map(|(axis, coordinate)| self.separate(coordinate.clone(), &shape[axis..]))
            .collect()
    }

    /// Loads a vec4 of a value. The coordinate along `axis` counts vectors. If `guard` is false when the kernel runs,
    /// the result is unused.
    pub fn load_vec4(
        &mut self,
        value: ValueId,
        axis: usize,
        coordinates: &[Index],
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let layout = self.vec4_load_layout(value, axis);
        // Texture loads are faster than loads of words.
        let words = match self.reads_u64 && !self.reads_as_texture(value, &layout)? {
            true => self.bind_u64(value, &layout)?,
            false => None,
        };
        let (buffer, element) = match words {
            Some(words) => words,
            None => self.bind_vec4(value, &layout)?,
        };
        let shape = vec4_shape(&layout.padded_shape(&self.graph.ty(value).shape), axis);
        let index = match self.reads_u64 {
            true => index::linearize(&self.separate_all(coordinates, &shape), &shape),
            false => index::linearize(coordinates, &shape),
        };
        let index = self.guarded_index(&index, guard);
        let vector = self.pool.load(buffer, element, index);
        let vector = match element {
            WgslType::U64x2 => self.pool.call("four_of(x)", WgslType::F32x4, &[vector]),
            _ => vector,
        };
        let name = format!("{}_quad", role(&self.graph.value(value).name));
        self.pool.set_label(vector, &name);
        Ok(vector)
    }

    /// Layout for vec4 loads along an axis: the layout as written if the axis is innermost, else a vec4 layout.
    fn vec4_load_layout(&self, value: ValueId, axis: usize) -> Layout {
        let shape = &self.graph.ty(value).shape;
        let is_last = Dim::product(&shape[axis + 1..]).is(1) && is_multiple_of_4(&shape[axis]);
        let stored_layout = self.layout(value);
        match is_last && stored_layout.is_row_major() && self.is_written(value) {
            true => stored_layout.clone(),
            false => Layout::Vec4 { axis },
        }
    }

    /// Loads an element of a value in a vec4 layout.
    pub fn load_vec4_element(
        &mut self,
        value: ValueId,
        axis: usize,
        coordinates: &[Index],
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let vec4_len = Dim::from(VEC4_LEN);
        let mut vec4_coordinates = coordinates.to_vec();
        vec4_coordinates[axis] = coordinates[axis].div(&vec4_len);
        let vector = self.load_vec4(value, axis, &vec4_coordinates, guard)?;
        let component = coordinates[axis].rem(&vec4_len);
        let constant = component
            .as_const()
            .and_then(|component| usize::try_from(component).ok());
        Ok(match constant {
            Some(component) => vec4::component(&mut self.pool, vector, component, WgslType::F32),
            None => {
                let component = component.emit(&mut self.pool);
                self.pool.call("x[y]", WgslType::F32, &[vector, component])
            }
        })
    }

    /// Stores four neighbours along an axis. Elements past the end of the axis are zeros.
    pub fn store_vec4(
        &mut self,
        value: ValueId,
        axis: usize,
        elements: &[(Expr, Position)],
    ) -> Result<Statement> {
        let shape = &self.graph.ty(value).shape;
        let missing = || Error::internal("vec4 layout along an axis that the value does not have");
        let size = shape.get(axis).ok_or_else(missing)?;
        let mut numbers = Vec::new();
        for (number_index, (number, position)) in elements.iter().enumerate() {
            numbers.push(if number_index == 0 || is_multiple_of_4(size) {
                *number
            } else {
                let inside = self.is_below(&position.coordinates(shape)[axis], size);
                let zero = self.pool.literal(WgslType::F32, 0.0);
                self.pool.select(inside, *number, zero)
            });
        }
        let layout = Layout::Vec4 { axis };
        let (buffer, vector) = match self.vec4_as_words(value, &layout, &numbers)? {
            Some(words) => words,
            None => self.vec4_as_vector(value, &layout, &numbers)?,
        };
        let first = elements.first().ok_or_else(missing)?;
        let mut coordinates = first.1.coordinates(shape);
        coordinates[axis] = coordinates[axis].div(&Dim::from(VEC4_LEN));
        Ok(Statement::Store {
            buffer,
            index: index::linearize(&coordinates, &vec4_shape(shape, axis)).emit(&mut self.pool),
            value: vector,
        })
    }

    /// Binding of a value in a vec4 layout, and the vector of four numbers to store.
    fn vec4_as_vector(
        &mut self,
        value: ValueId,
        layout: &Layout,
        numbers: &[Expr],
    ) -> Result<(usize, Expr)> {
        let storage = self.storage(value)?;
        let mut vector = vec4::build_vec4(&mut self.pool, numbers, WgslType::F32x4);
        if storage.is_half() {
            vector = scalar::to_halves(&mut self.pool, vector, DType::F32, storage);
        }
        Ok((self.bind_vec4(value, layout)?.0, vector))
    }

    /// Binding and vector like [`KernelScope::vec4_as_vector`], in words of two halves each, on devices that write
    /// these faster.
    fn vec4_as_words(
        &mut self,
        value: ValueId,
        layout: &Layout,
        numbers: &[Expr],
    ) -> Result<Option<(usize, Expr)>> {
        let Some(words) = self.words_of_four(numbers) else {
            return Ok(None);
        };
        let binding = self.bind_u64(value, layout)?;
        Ok(binding.map(|(buffer, _)| (buffer, words)))
    }
}
