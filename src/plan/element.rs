//! Expressions for the elements of values: views change the position, pointwise primitives combine elements, buffers
//! are loaded.

pub mod check;
pub mod example_decision;
pub mod position;
pub mod scalar;
pub mod vec4;
pub mod vec8;

mod bindings;
pub mod chunk;
mod memory;
pub mod panels;
mod pointwise;
mod slp;
mod view;
pub mod word_stores;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Argument, Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::capabilities::{Capabilities, StorageType};
use crate::kernel::emit::{BindingDecl, Statement};
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::kernel::index::{self, Index};
use crate::kernel::layout::Layout;
use crate::kernel::winograd::OutputTile;
use crate::plan::element::example_decision::ExampleDecision;
use crate::plan::element::position::Position;
use crate::plan::element::vec4::VEC4_LEN;
use crate::scalar::Scalar;

/// Variable names that the statements of kernels use; buffers get others.
const RESERVED_NAMES: &str = "sum product largest smallest part total lost before best best_index rank local index round \
                         width shares left right tile tile_row tile_column piece block part lane subgroup subgroups channel tap k j i lane j_from workgroup workgroups \
                         hidden memory step";

/// A buffer of a kernel and the value in it.
#[derive(Clone)]
pub struct KernelBinding {
    /// The value.
    pub value: ValueId,
    /// True for a copy of the value, made because the memory of the value itself cannot be an output.
    pub is_copy: bool,
    /// Layout that the kernel expects.
    pub layout: Layout,
    /// Declaration in the kernel.
    pub buffer: BindingDecl,
}

/// The expressions of one kernel, and the buffers that it reads and writes.
pub struct KernelScope<'a> {
    /// Graph that is planned.
    pub graph: &'a Graph,
    /// Capabilities of the device.
    pub capabilities: &'a Capabilities,
    /// Values that are materialised in memory.
    pub materialized: &'a [bool],
    /// Layouts of the values.
    layouts: &'a [Layout],
    /// Storage types of the values. Empty if each value's dtype decides.
    storages: &'a [StorageType],
    /// Inputs of a region's body that are stored in the memory of values of the surrounding graph, not of inputs.
    written: &'a [bool],
    /// Values whose buffer can also be read as a texture.
    texture_aliased: &'a [bool],
    /// The expressions.
    pub pool: ExprPool,
    /// Buffers in binding order.
    pub buffers: Vec<KernelBinding>,
    /// Names of the buffers, and [`RESERVED_NAMES`].
    names: BTreeSet<String>,
    /// Values that the kernel itself has computed as results of its loops. An entry with an index holds for that
    /// element only.
    computed: BTreeMap<ValueId, Vec<(Expr, Option<Index>)>>,
    /// Values that the kernel computes where it reads them, even if they are also materialised for other kernels.
    inlined: BTreeSet<ValueId>,
    /// Expressions of elements, by value, position, guard and vector width.
    element_cache: HashMap<(ValueId, Position, Option<Expr>, usize), Expr>,
    /// Number of neighbouring elements that are requested together. Elements are then components of loaded vectors.
    vector_width: usize,
    /// True if vec4s are loaded as two 64-bit words where that is faster, and rows get separate index expressions.
    /// False for the factors of tiles: unpacking the words costs these more than reading numbers.
    pub reads_u64: bool,
    /// Values stored as pairs of `f16` of which the kernel would write single elements.
    pub scalar_writes: BTreeSet<ValueId>,
    /// Choices made by the example's sizes.
    pub decisions: Vec<ExampleDecision>,
    /// Checks that the kernel performs, by the values that they give. `None` if it performs none.
    pub checks: Option<Vec<ValueId>>,
}

impl<'a> KernelScope<'a> {
    /// Starts a kernel without buffers.
    pub fn new(
        graph: &'a Graph,
        capabilities: &'a Capabilities,
        materialized: &'a [bool],
        written: &'a [bool],
    ) -> KernelScope<'a> {
        KernelScope {
            graph,
            capabilities,
            materialized,
            layouts: &[],
            storages: &[],
            written,
            texture_aliased: &[],
            pool: ExprPool::default(),
            buffers: Vec::new(),
            names: RESERVED_NAMES.split(' ').map(String::from).collect(),
            computed: BTreeMap::new(),
            inlined: BTreeSet::new(),
            element_cache: HashMap::new(),
            vector_width: 1,
            reads_u64: false,
            scalar_writes: BTreeSet::new(),
            decisions: Vec::new(),
            checks: Some(Vec::new()),
        }
    }

    /// Turns on [`KernelScope::reads_u64`].
    pub fn reading_u64(self) -> KernelScope<'a> {
        KernelScope {
            reads_u64: true,
            ..self
        }
    }

    /// Runs `read` with elements requested four at a time, as components of vec4s.
    pub fn with_vec4<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.with_vector_width(VEC4_LEN, read)
    }

    /// Runs `read` with elements requested as components of vectors of `neighbours` elements.
    pub fn with_vector_width<T>(
        &mut self,
        neighbours: usize,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let outer_width = std::mem::replace(&mut self.vector_width, neighbours);
        let result = read(self);
        self.vector_width = outer_width;
        result
    }

    /// Returns the storage type of a value.
    pub fn storage(&self, value: ValueId) -> Result<StorageType> {
        match self.storages.get(value.index()) {
            Some(storage) => Ok(*storage),
            None => StorageType::of(self.graph.ty(value).dtype, self.capabilities),
        }
    }

    /// Sets the layouts and storage types of values.
    pub fn with_layouts(
        self,
        layouts: &'a [Layout],
        storages: &'a [StorageType],
    ) -> KernelScope<'a> {
        KernelScope {
            layouts,
            storages,
            ..self
        }
    }

    /// Sets the values whose buffers can also be read as textures.
    pub fn with_texture_aliases(self, texture_aliased: &'a [bool]) -> KernelScope<'a> {
        KernelScope {
            texture_aliased,
            ..self
        }
    }

    /// Returns whether a value's buffer can also be read as a texture.
    pub fn is_texture_aliased(&self, value: ValueId) -> bool {
        self.texture_aliased.get(value.index()) == Some(&true)
    }

    /// Returns whether a value is read as a texture in the given layout. A value stored in another layout is copied
    /// between kernels.
    pub fn reads_as_texture(&self, value: ValueId, layout: &Layout) -> Result<bool> {
        if layout == self.layout(value) {
            return Ok(self.is_texture_aliased(value));
        }
        let is_copied = matches!(layout, Layout::Vec4 { .. } | Layout::Scratch { .. });
        let texel = storage_in_layout(layout, self.storage(value)?).texel();
        Ok(self.capabilities.buffer_aliasing && is_copied && texel.is_some())
    }

    /// Returns whether a value is stored in memory that kernels write. This is so for inputs of a region's body that
    /// are values of the surrounding graph.
    pub fn is_written(&self, value: ValueId) -> bool {
        match self.graph.value(value).definition {
            Definition::Input(_) | Definition::Weight(_) => self.written[value.index()],
            Definition::Node(..) => true,
        }
    }

    /// Returns the layout of a value.
    pub fn layout(&self, value: ValueId) -> &'a Layout {
        self.layouts.get(value.index()).unwrap_or(&Layout::Linear)
    }

    /// Returns the index of an element in the memory of a value in row-major or padded layout.
    pub fn element_index(&self, value: ValueId, position: &Position) -> Index {
        let shape = &self.graph.ty(value).shape;
        match self.layout(value) {
            padded @ Layout::Padded { .. } => {
                index::linearize(&position.coordinates(shape), &padded.padded_shape(shape))
            }
            _ => position.linear_index(shape),
        }
    }

    /// Returns the number of elements that the memory of a value in row-major or padded layout has space for.
    pub fn allocated_elements(&self, value: ValueId) -> Dim {
        Dim::product(&self.layout(value).padded_shape(&self.graph.ty(value).shape))
    }

    /// Returns an element of a value that the kernel writes, without reading it from its own buffer.
    pub fn produce(&mut self, value: ValueId, position: &Position) -> Result<Expr> {
        match self.graph.value(value).definition {
            Definition::Node(node, _) if !self.computed.contains_key(&value) => {
                self.inline(&self.graph.nodes[node], value, position, None)
            }
            _ => self.element(value, position, None),
        }
    }

    /// Makes `expr` the value from here on, at every position.
    pub fn set_computed(&mut self, value: ValueId, expr: Expr) {
        self.computed.insert(value, vec![(expr, None)]);
        self.element_cache.clear();
    }

    /// Makes `expr` the element of the value at the row-major index `index` from here on. The kernel may then read only
    /// those elements of the value that it has computed.
    pub fn set_computed_at(&mut self, value: ValueId, expr: Expr, index: &Index) {
        let elements = self.computed.entry(value).or_default();
        elements.push((expr, Some(index.clone())));
        self.element_cache.clear();
    }

    /// Makes the kernel compute these values wherever it reads them, even if they are materialised for other kernels.
    pub fn inline_values(&mut self, values: &[ValueId]) {
        self.inlined.extend(values);
    }

    /// Returns the computed element of a value; an error if only other elements have been computed.
    fn computed_element(&self, value: ValueId, position: &Position) -> Result<Option<Expr>> {
        let Some(elements) = self.computed.get(&value) else {
            return Ok(None);
        };
        let info = self.graph.value(value);
        let requested = position.linear_index(&info.ty.shape);
        let is_requested =
            |index: &Option<Index>| index.as_ref().is_none_or(|index| *index == requested);
        match elements.iter().find(|(_, index)| is_requested(index)) {
            Some((expr, _)) => Ok(Some(*expr)),
            None => {
                let message = format!(
                    "{} is read at an element that the kernel has not computed",
                    info.name
                );
                Err(Error::internal(message))
            }
        }
    }

    /// Creates a `u32` variable as an index below `size`.
    pub fn counter(&mut self, name: &str, size: &Dim) -> (Expr, Index) {
        let variable = self.pool.variable(name, WgslType::U32);
        (variable, Index::expr(variable, size))
    }

    /// Returns the WGSL type in which a dtype is computed.
    pub fn compute_type(&self, dtype: DType) -> WgslType {
        scalar::compute_type(dtype, self.capabilities)
    }

    /// Returns the element of a value at a position. Where `guard` is false the result is never used, and no
    /// out-of-bounds access happens.
    pub fn element(
        &mut self,
        value: ValueId,
        position: &Position,
        guard: Option<Expr>,
    ) -> Result<Expr> {
        if let Some(expr) = self.computed_element(value, position)? {
            return Ok(expr);
        }
        let key = (value, position.clone(), guard, self.vector_width);
        if let Some(expr) = self.element_cache.get(&key) {
            return Ok(*expr);
        }
        let info = self.graph.value(value);
        if info.ty.shape.iter().any(|size| size.is(0)) {
            // A value without elements has nothing to read: the position may be a constant beyond the buffer, which
            // WGSL rejects. The zero is never used.
            let zero = Argument::Number(Scalar::Int(0));
            return self.number(&zero, info.ty.dtype);
        }
        let expr = match info.definition {
            Definition::Node(node, _)
                if !self.materialized[value.index()] || self.inlined.contains(&value) =>
            {
                self.inline(&self.graph.nodes[node], value, position, guard)?
            }
            _ => self.load_element(value, position, guard)?,
        };
        self.element_cache.insert(key, expr);
        Ok(expr)
    }

    /// Returns an element of a node's result, computed from the elements of the node's operands.
    fn inline(
        &mut self,
        node: &Node,
        value: ValueId,
        position: &Position,
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let Op::Primitive(primitive) = &node.op else {
            return Err(not_planned(node));
        };
        let expr = match primitive {
            Primitive::Unary(_)
            | Primitive::Binary(_)
            | Primitive::Select(_)
            | Primitive::Cast(_) => {
                let expr = self.pointwise(node, primitive, value, position, guard)?;
                self.pool
                    .set_label(expr, role(&self.graph.value(value).name));
                expr
            }
            Primitive::Check(check) => self.check(check, node, value, position, guard)?,
            Primitive::Full(full) => self.number(&node.arguments[0], full.dtype)?,
            Primitive::Iota(iota) => {
                let coordinates = position.coordinates(&iota.shape);
                let index = coordinates[iota.axis].emit(&mut self.pool);
                scalar::size_as(&mut self.pool, index, iota.dtype, self.capabilities)
            }
            Primitive::Concat(concat) => self.concat(concat, node, value, position, guard)?,
            Primitive::Pad(pad) => self.pad(pad, node, value, position, guard)?,
            _ => {
                let (operand, position) =
                    self.view_source(primitive, node, value, position, guard)?;
                self.element(operand, &position, guard)?
            }
        };
        Ok(expr)
    }
}

/// Returns the value that is the operand at an index; an error if it is no value.
pub fn operand(node: &Node, index: usize) -> Result<ValueId> {
    match node.arguments.get(index) {
        Some(Argument::Value(value)) => Ok(*value),
        _ => Err(not_planned(node)),
    }
}

/// Returns the error for a node that reached the planner but has no lowering.
pub fn not_planned(node: &Node) -> Error {
    Error::plan(format!("{} cannot be planned for a device", node.op.name())).at_place(&node.place)
}

/// Returns a value's name without module path and number, so that equal kernels of different layers have equal source.
pub fn role(name: &str) -> &str {
    let last = name.rsplit('.').next().unwrap_or(name);
    let base = last.trim_end_matches(|c: char| c.is_ascii_digit());
    let base = base.strip_suffix('_').unwrap_or(last);
    if base.is_empty() { last } else { base }
}

/// Returns the storage type of a value in a layout. It differs from the value's storage type for three layouts. Scratch
/// memory between the stages of a kernel stores `f32`, so that it loses no more than other sums. So do filters of 4×4
/// Winograd tiles, whose errors the output transform would amplify. Sorted elements are not stored as pairs, since they
/// move one by one.
pub fn storage_in_layout(layout: &Layout, storage: StorageType) -> StorageType {
    match layout {
        Layout::Scratch { .. } if storage.is_half() => StorageType::F32,
        Layout::SortedRuns(_) if storage == StorageType::F16x2 => StorageType::F32,
        Layout::Panels(panels) if panels.winograd_tile == Some(OutputTile::Four) => {
            StorageType::F32
        }
        _ => storage,
    }
}

/// Writes an element of a value.
pub fn write(
    scope: &mut KernelScope,
    value: ValueId,
    element: Expr,
    position: &Position,
) -> Result<Statement> {
    let dtype = scope.graph.ty(value).dtype;
    let buffer = scope.bind_buffer(value)?;
    let storage = scope.storage(value)?;
    if storage == StorageType::F16x2 {
        scope.scalar_writes.insert(value);
    }
    Ok(Statement::Store {
        buffer,
        index: scope.element_index(value, position).emit(&mut scope.pool),
        value: scalar::to_storage(&mut scope.pool, element, dtype, storage),
    })
}
