//! Tensors of the program: storages that change, and views of them.
//!
//! [`crate::trace::views`] describes views, and how they are read and written.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::ValueId;
use crate::shape::{Shape, TensorType};
use crate::symbols::Guard;
use crate::trace::scope_stack::ValueRef;
use crate::trace::views::{GuardedGeometry, View};

use super::Importer;
use super::number::ScriptNumber;

/// A tensor of the program, shared by all references to it.
pub type TensorRef = Rc<TensorData>;

/// A tensor: a view of a storage. Operators such as `t_` change the view, not the storage.
#[derive(Debug)]
pub struct TensorData {
    view: RefCell<StorageView>,
    /// Number of open regions when it was made.
    pub depth: usize,
    /// The value that the tensor had at a version of its storage.
    cached: Cell<Option<(u32, ValueRef)>>,
}

/// A view of a storage.
#[derive(Clone, Debug)]
pub struct StorageView {
    /// The memory.
    pub storage: Rc<Storage>,
    /// The view of it.
    pub view: View,
}

/// The memory of tensors.
#[derive(Debug)]
pub struct Storage {
    /// Its current contents.
    pub state: RefCell<StorageState>,
    /// Geometry of its value: where each element lies in the memory.
    pub guarded: GuardedGeometry,
    /// Conditions that decide whether other tensors share this memory. They become guards when it is written.
    sharing_conditions: RefCell<Vec<Guard>>,
    /// Where it comes from.
    pub origin: StorageOrigin,
    /// Number of open regions when it was made.
    pub depth: usize,
}

/// Contents of a storage.
#[derive(Clone, Debug)]
pub struct StorageState {
    /// The value; none for a known number that no node reads yet.
    pub value: Option<ValueRef>,
    /// The number, if the value is a known scalar.
    pub number: Option<HostNumber>,
    /// Number of writes.
    pub version: u32,
}

/// A scalar tensor whose value is known during import.
#[derive(Clone, Debug)]
pub struct HostNumber {
    /// The number.
    pub number: ScriptNumber,
    /// Its dtype as a tensor.
    pub dtype: DType,
    /// True if it stands for a Python number, which has the lowest priority in type promotion.
    pub wrapped: bool,
}

/// Where a storage comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageOrigin {
    /// A weight: writes to it would outlive a run.
    Weight(String),
    /// An input or a result.
    Local,
}

impl TensorData {
    fn new(view: StorageView, depth: usize, cached: Option<(u32, ValueRef)>) -> TensorRef {
        Rc::new(TensorData {
            view: RefCell::new(view),
            depth,
            cached: Cell::new(cached),
        })
    }

    /// The memory.
    pub fn storage(&self) -> Rc<Storage> {
        self.view.borrow().storage.clone()
    }

    /// The tensor's current view of its storage.
    pub fn view(&self) -> StorageView {
        self.view.borrow().clone()
    }

    /// Geometry of its elements.
    pub fn guarded_geometry(&self) -> GuardedGeometry {
        self.view.borrow().view.guarded.clone()
    }

    /// True if the tensor is the whole storage in the storage's own geometry.
    pub fn is_whole(&self) -> bool {
        self.view.borrow().view.is_whole()
    }

    /// Replaces the view by another one, of this storage or another.
    pub fn set_view(&self, view: StorageView) {
        *self.view.borrow_mut() = view;
        self.cached.set(None);
    }

    /// The number, if the tensor is a known scalar.
    pub fn number(&self) -> Option<HostNumber> {
        let view = self.view.borrow();
        let number = view.storage.state.borrow().number.clone();
        number.filter(|_| view.view.is_whole())
    }
}

impl Storage {
    /// Adds conditions that become guards when the storage is written.
    pub fn add_conditions(&self, conditions: &[Guard]) {
        let mut sharing = self.sharing_conditions.borrow_mut();
        for condition in conditions {
            if !sharing.contains(condition) {
                sharing.push(condition.clone());
            }
        }
    }

    /// Adds the conditions of another storage, some of which decide whether the two share memory.
    pub fn add_conditions_of(&self, other: &Storage) {
        let conditions = other.sharing_conditions.borrow().clone();
        self.add_conditions(&conditions);
    }

    /// Takes the conditions so far, to make guards of them.
    pub fn take_conditions(&self) -> Vec<Guard> {
        std::mem::take(&mut self.sharing_conditions.borrow_mut())
    }
}

impl Importer<'_> {
    /// Makes a contiguous tensor of a value of the innermost graph.
    pub(super) fn new_tensor(&self, id: ValueId) -> TensorRef {
        let sizes = self.builder().ty(id).shape;
        self.new_tensor_of_geometry(id, GuardedGeometry::contiguous(sizes))
    }

    /// Makes a tensor of a value of the innermost graph.
    pub(super) fn new_tensor_of_geometry(
        &self,
        id: ValueId,
        guarded: GuardedGeometry,
    ) -> TensorRef {
        let value = self.innermost_value(id);
        new_tensor_at_depth(
            self.scopes.depth(),
            Some(value),
            None,
            StorageOrigin::Local,
            guarded,
        )
    }

    /// Makes a scalar tensor of a known number.
    pub(super) fn host_tensor(&self, number: HostNumber) -> TensorRef {
        let guarded = GuardedGeometry::contiguous(Shape::new());
        new_tensor_at_depth(
            self.scopes.depth(),
            None,
            Some(number),
            StorageOrigin::Local,
            guarded,
        )
    }

    /// Makes a tensor outside of all regions.
    pub(super) fn outermost_tensor(
        &self,
        value: Option<ValueRef>,
        number: Option<HostNumber>,
        origin: StorageOrigin,
        guarded: GuardedGeometry,
    ) -> TensorRef {
        new_tensor_at_depth(0, value, number, origin, guarded)
    }

    /// Refers to a value of the innermost graph.
    fn innermost_value(&self, id: ValueId) -> ValueRef {
        let scope = self.scopes.innermost().number;
        ValueRef { scope, id }
    }

    /// Makes a tensor of a view. `id` is its value in the innermost graph, if that was computed already.
    pub(super) fn view_of(&self, view: StorageView, id: Option<ValueId>) -> TensorRef {
        let version = view.storage.state.borrow().version;
        let cached = id.map(|id| (version, self.innermost_value(id)));
        TensorData::new(view, self.scopes.depth(), cached)
    }

    /// Makes another tensor that has the current view of this one.
    pub(super) fn alias(&self, tensor: &TensorRef) -> TensorRef {
        self.view_of(tensor.view(), None)
    }

    /// The tensor's value in the innermost graph.
    pub(super) fn read(&mut self, tensor: &TensorRef) -> Result<ValueId> {
        let value = self.current_value(tensor)?;
        self.scopes.capture(value)
    }

    /// The tensor's value, which may belong to any open scope.
    fn current_value(&mut self, tensor: &TensorRef) -> Result<ValueRef> {
        self.check_packed(tensor)?;
        let view = tensor.view();
        let version = view.storage.state.borrow().version;
        if view.view.is_whole() {
            return self.storage_value(&view.storage);
        }
        if let Some((cached_version, value)) = tensor.cached.get()
            && cached_version == version
            && self.scopes.is_open(value)
        {
            return Ok(value);
        }
        let base = self.storage_value(&view.storage)?;
        let mut id = self.scopes.capture(base)?;
        for step in &view.view.steps {
            id = step.replay(&mut self.scopes, id)?;
        }
        let value = self.innermost_value(id);
        tensor.cached.set(Some((version, value)));
        Ok(value)
    }

    /// A storage's current value; a known number becomes a constant of the innermost graph.
    pub(super) fn storage_value(&mut self, storage: &Rc<Storage>) -> Result<ValueRef> {
        let state = storage.state.borrow().clone();
        match (state.value, state.number) {
            (Some(value), _) if self.scopes.is_open(value) => Ok(value),
            (_, Some(number)) => {
                let id = self.materialise(&number)?;
                let value = self.innermost_value(id);
                storage.state.borrow_mut().value = Some(value);
                Ok(value)
            }
            _ => Err(Error::internal("a tensor is used outside of its region")),
        }
    }

    /// Adds a known number to the innermost graph as a scalar. Python's floats become `f32`, PyTorch's default dtype.
    fn materialise(&mut self, host: &HostNumber) -> Result<ValueId> {
        let dtype = if host.wrapped && host.dtype == DType::F64 {
            DType::F32
        } else {
            host.dtype
        };
        let builder = self.builder();
        let value = match &host.number {
            ScriptNumber::Int(dim) => builder.full(dtype, Shape::new(), dim.clone()),
            ScriptNumber::Ratio(size, by) => {
                builder.full(dtype, Shape::new(), size.clone()) / *by as f64
            }
            other => {
                let scalar = other.concrete(builder.symbols())?;
                builder.full(dtype, Shape::new(), scalar)
            }
        };
        builder.check()?;
        Ok(value.id())
    }

    /// The tensor's type. A known scalar is not added to the graph for it.
    pub(super) fn ty(&mut self, tensor: &TensorRef) -> Result<TensorType> {
        if let Some(host) = tensor.number() {
            return Ok(TensorType {
                dtype: host.dtype,
                shape: Shape::new(),
            });
        }
        let value = self.current_value(tensor)?;
        self.scopes.type_of(value)
    }

    /// Geometry of a tensor. Symbols whose values have become known are replaced.
    pub(super) fn geometry_of(&self, tensor: &TensorRef) -> GuardedGeometry {
        tensor.guarded_geometry().resolve(&self.builder())
    }
}

/// Makes a tensor that is the whole of a new storage. `depth` is the number of open regions.
fn new_tensor_at_depth(
    depth: usize,
    value: Option<ValueRef>,
    number: Option<HostNumber>,
    origin: StorageOrigin,
    guarded: GuardedGeometry,
) -> TensorRef {
    let state = StorageState {
        value,
        number,
        version: 0,
    };
    let storage = Rc::new(Storage {
        state: RefCell::new(state),
        guarded: guarded.clone(),
        sharing_conditions: RefCell::default(),
        origin,
        depth,
    });
    let view = StorageView {
        storage,
        view: View::whole(guarded),
    };
    TensorData::new(view, depth, None)
}
