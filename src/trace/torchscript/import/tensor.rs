//! Tensors of the program: storages that change, and views onto them.
//!
//! A graph has no writes. A storage therefore has a *current value*, and a tensor is a storage with a chain of view
//! operators. Reading a view whose storage was written since replays its chain; writing puts the new value through the
//! chain backwards ([`super::view`]) and makes the result the storage's current value.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::aten::Operator;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Argument, Builder, ValueId};
use crate::shape::{Shape, TensorType};
use crate::trace::scopes::ValueRef;

use super::Importer;
use super::number::Number;

/// A tensor of the program, shared by all who hold it.
pub type TensorRef = Rc<TensorData>;

/// A tensor: a storage, seen through views.
#[derive(Debug)]
pub struct TensorData {
    /// What it is a view of.
    pub storage: Rc<Storage>,
    /// From the storage's value to the tensor's.
    pub views: Vec<View>,
    /// True if the elements are known to lie one after the other.
    pub contiguous: bool,
    /// The value for a version of the storage.
    cached: Cell<Option<(u32, ValueRef)>>,
}

/// A view operator with its arguments; the first of them, the tensor, is put in when it is replayed.
#[derive(Clone, Debug)]
pub struct View {
    /// The operator; none if the view only changes the shape.
    pub operator: ViewOperator,
    /// Which of the operator's results.
    pub result: usize,
}

/// How a view is made of what it is a view of.
#[derive(Clone)]
pub enum ViewOperator {
    /// A row of the dictionary with its arguments, the first of which is replaced.
    Call(&'static Operator, Vec<Argument>),
    /// The same elements under another shape.
    Reshape(Shape),
}

impl std::fmt::Debug for ViewOperator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ViewOperator::Call(operator, arguments) => write!(f, "{}{arguments:?}", operator.name),
            ViewOperator::Reshape(shape) => write!(f, "reshape{shape:?}"),
        }
    }
}

/// What tensors are views of.
#[derive(Debug)]
pub struct Storage {
    /// What it holds now.
    pub state: RefCell<StorageState>,
    /// Where it comes from.
    pub origin: Origin,
    /// How many regions lay around the place where it was made.
    pub depth: usize,
}

/// What a storage holds.
#[derive(Clone, Debug)]
pub struct StorageState {
    /// The value; none until a known number is needed as a tensor.
    pub value: Option<ValueRef>,
    /// The number that the value is, if it is a known scalar.
    pub number: Option<HostNumber>,
    /// Counts writes.
    pub version: u32,
}

/// A scalar tensor whose value is known while the program is read.
#[derive(Clone, Debug)]
pub struct HostNumber {
    /// The number.
    pub number: Number,
    /// Its dtype as a tensor.
    pub dtype: DType,
    /// True if it stands for a Python number, which takes the lowest part in type promotion.
    pub wrapped: bool,
}

/// Where a storage comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A weight: writes to it would outlive a run.
    Weight(String),
    /// An input or a result.
    Local,
}

impl TensorData {
    /// The number, if the tensor is a known scalar.
    pub fn number(&self) -> Option<HostNumber> {
        if self.views.is_empty() {
            self.storage.state.borrow().number.clone()
        } else {
            None
        }
    }
}

impl Importer<'_> {
    /// A fresh tensor of a value of the innermost graph.
    pub(super) fn new_tensor(&self, id: ValueId) -> TensorRef {
        let value = ValueRef {
            scope: self.scopes.innermost().number,
            id,
        };
        self.tensor_of(Some(value), None, Origin::Local)
    }

    /// A scalar tensor that is known.
    pub(super) fn host_tensor(&self, number: HostNumber) -> TensorRef {
        self.tensor_of(None, Some(number), Origin::Local)
    }

    fn tensor_of(
        &self,
        value: Option<ValueRef>,
        number: Option<HostNumber>,
        origin: Origin,
    ) -> TensorRef {
        tensor_at(self.scopes.depth(), value, number, origin)
    }

    /// A tensor that is older than every region.
    pub(super) fn outermost_tensor(
        &self,
        value: Option<ValueRef>,
        number: Option<HostNumber>,
        origin: Origin,
    ) -> TensorRef {
        tensor_at(0, value, number, origin)
    }

    /// A view of a tensor, whose value is in hand.
    pub(super) fn view_of(
        &self,
        base: &TensorRef,
        view: View,
        id: ValueId,
        contiguous: bool,
    ) -> TensorRef {
        let value = ValueRef {
            scope: self.scopes.innermost().number,
            id,
        };
        let version = base.storage.state.borrow().version;
        Rc::new(TensorData {
            storage: base.storage.clone(),
            views: base.views.iter().cloned().chain([view]).collect(),
            contiguous,
            cached: Cell::new(Some((version, value))),
        })
    }

    /// The tensor's value in the innermost graph.
    pub(super) fn read(&mut self, tensor: &TensorRef) -> Result<ValueId> {
        let value = self.current(tensor)?;
        self.scopes.captured(value)
    }

    /// The tensor's value, in whichever of the open graphs it was made.
    fn current(&mut self, tensor: &TensorRef) -> Result<ValueRef> {
        let version = tensor.storage.state.borrow().version;
        if tensor.views.is_empty() {
            return self.storage_value(&tensor.storage);
        }
        if let Some((seen, value)) = tensor.cached.get()
            && seen == version
            && self.scopes.is_open(value)
        {
            return Ok(value);
        }
        let base = self.storage_value(&tensor.storage)?;
        let mut id = self.scopes.captured(base)?;
        for view in &tensor.views {
            id = self.replay(view, id)?;
        }
        let value = ValueRef {
            scope: self.scopes.innermost().number,
            id,
        };
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
                let value = ValueRef {
                    scope: self.scopes.innermost().number,
                    id,
                };
                storage.state.borrow_mut().value = Some(value);
                Ok(value)
            }
            _ => Err(Error::internal("a tensor is used outside of its region")),
        }
    }

    /// A known number as a scalar value. Python's floats are `f32` as everywhere in PyTorch.
    fn materialise(&mut self, host: &HostNumber) -> Result<ValueId> {
        let dtype = if host.wrapped && host.dtype == DType::F64 {
            DType::F32
        } else {
            host.dtype
        };
        let builder = self.builder();
        let value = match &host.number {
            Number::Int(dim) => builder.full(dtype, Shape::new(), dim.clone()),
            Number::Ratio(size, by) => builder.full(dtype, Shape::new(), size.clone()) / *by as f64,
            other => {
                let scalar = other.concrete(builder.symbols())?;
                builder.full(dtype, Shape::new(), scalar)
            }
        };
        builder.check()?;
        Ok(value.id())
    }

    fn replay(&mut self, view: &View, base: ValueId) -> Result<ValueId> {
        let builder = self.builder();
        replay_view(&builder, view, base)
    }

    /// The tensor's type. Known scalars need not become values for it.
    pub(super) fn ty(&mut self, tensor: &TensorRef) -> Result<TensorType> {
        if let Some(host) = tensor.number() {
            return Ok(TensorType {
                dtype: host.dtype,
                shape: Shape::new(),
            });
        }
        let value = self.current(tensor)?;
        self.scopes.type_of(value)
    }
}

fn tensor_at(
    depth: usize,
    value: Option<ValueRef>,
    number: Option<HostNumber>,
    origin: Origin,
) -> TensorRef {
    let state = StorageState {
        value,
        number,
        version: 0,
    };
    Rc::new(TensorData {
        storage: Rc::new(Storage {
            state: RefCell::new(state),
            origin,
            depth,
        }),
        views: Vec::new(),
        contiguous: true,
        cached: Cell::new(None),
    })
}

/// Applies a view operator in a graph.
pub fn replay_view(builder: &Builder, view: &View, base: ValueId) -> Result<ValueId> {
    match &view.operator {
        ViewOperator::Reshape(shape) => {
            let value = builder.value(base).reshape(shape.clone());
            builder.check()?;
            Ok(value.id())
        }
        ViewOperator::Call(operator, arguments) => {
            let mut arguments = arguments.clone();
            if let Some(first) = arguments.first_mut() {
                *first = Argument::Value(base);
            }
            let results = operator.call(builder, arguments)?;
            let result = results.get(view.result);
            result
                .map(|value| value.id())
                .ok_or_else(|| Error::internal("a view operator has too few results"))
        }
    }
}
