//! The tensors of traced programs.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::shape::{TensorType, wrap_dim};
use crate::tensor::{Element, NestedArray, Tensor};
use crate::trace::check::Id;
use crate::trace::scope_stack::ValueRef;

use super::call_site;
use super::host_views::read_view;
use super::recorder;
use super::size::Size;
use super::storage::{Geometries, TracedOrigin, TracedStorage, TracedView};
use super::storage_values::RecordedValue;

/// A tensor with a value, whose computation is recorded while a trace is active.
///
/// Operators are methods with PyTorch's names. They never fail: an error is stored in the result, with the caller's line,
/// and returned when the result is read or the trace ends.
///
/// As in PyTorch, a tensor is a view of a storage. Results of view operators (`select`, `t`, `view`, …) share the storage of
/// their operand, and operators whose names end in `_` write to it: all tensors that share the storage change. Clones of a
/// handle refer to one tensor, like two variables in Python; [`ops::clone`](super::ops::clone) copies the elements.
#[derive(Clone)]
pub struct TracedTensor {
    inner: Arc<TensorInner>,
}

/// The tensor that clones of a handle share.
struct TensorInner {
    /// The view of a storage. Operators such as `t_` change it.
    view: RwLock<TracedView>,
    /// The value that the tensor had at a version of its storage; none until a view is read.
    cached: Mutex<Option<CachedValue>>,
    /// The trace and the scope of its graph in which the tensor was made; none outside of traces.
    scope: Option<(u64, u32)>,
}

/// The value of a view at a version of its storage.
#[derive(Clone)]
struct CachedValue {
    version: u64,
    value: Tensor,
    /// The value in the graph of a trace, if it was recorded.
    recorded: Option<(u64, ValueRef)>,
}

impl TracedTensor {
    /// A tensor of elements in row-major order.
    #[track_caller]
    pub fn from_vec<T: Element>(shape: impl Into<Vec<usize>>, data: Vec<T>) -> TracedTensor {
        TracedTensor::from_data(Tensor::from_vec(shape, data))
    }

    /// A tensor without dimensions.
    #[track_caller]
    pub fn scalar<T: Element>(value: T) -> TracedTensor {
        TracedTensor::from_vec([], vec![value])
    }

    /// A new contiguous tensor with a value or an error.
    pub(super) fn new(value: Result<Tensor>, origin: TracedOrigin) -> TracedTensor {
        let sizes = value.as_ref().map_or(&[][..], Tensor::shape);
        let geometry = Geometries::contiguous(sizes);
        TracedTensor::of_storage(TracedStorage::new(value, origin, geometry))
    }

    /// A tensor that is a whole storage.
    pub(super) fn of_storage(storage: Arc<TracedStorage>) -> TracedTensor {
        TracedTensor::of_uncached_view(TracedView::whole(storage))
    }

    /// A tensor with this view, whose value is computed when it is read.
    pub(super) fn of_uncached_view(view: TracedView) -> TracedTensor {
        TracedTensor {
            inner: Arc::new(TensorInner {
                view: RwLock::new(view),
                cached: Mutex::default(),
                scope: recorder::scope(),
            }),
        }
    }

    /// A tensor with this view, its current value, and that value in a trace.
    pub(super) fn of_view(
        view: TracedView,
        value: Tensor,
        recorded: Option<(u64, ValueRef)>,
    ) -> TracedTensor {
        let (_, version) = recorder::contents(&view.storage);
        let tensor = TracedTensor::of_uncached_view(view);
        tensor.set_cached(CachedValue {
            version,
            value,
            recorded,
        });
        tensor
    }

    /// A tensor that the program creates from data.
    #[track_caller]
    fn from_data(value: Result<Tensor>) -> TracedTensor {
        let place = call_site::caller();
        let value = value.map_err(|error| error.at_place(&place));
        let origin = match recorder::active() {
            Some(_) => TracedOrigin::Data(place),
            None => TracedOrigin::Host,
        };
        TracedTensor::new(value, origin)
    }

    /// A tensor that holds an error.
    pub(super) fn failed(error: Error) -> TracedTensor {
        TracedTensor::new(Err(error), TracedOrigin::Host)
    }

    /// Reads the value. Records no warning, unlike [`to_host`](TracedTensor::to_host).
    pub(super) fn value(&self) -> Result<Tensor> {
        let view = self.storage_view();
        let (contents, version) = recorder::contents(&view.storage);
        if view.is_whole() {
            return contents;
        }
        if let Some(cached) = self.cached(version) {
            return Ok(cached.value);
        }
        let value = read_view(&view.concrete, &contents?)?;
        self.set_cached(CachedValue {
            version,
            value: value.clone(),
            recorded: None,
        });
        Ok(value)
    }

    /// The value of this view in a trace at a version of its storage, if it was recorded.
    pub(super) fn recorded_at(&self, version: u64, trace: u64) -> Option<ValueRef> {
        let (own, id) = self.cached(version)?.recorded?;
        (own == trace).then_some(id)
    }

    /// Sets the value of this view in a trace at a version of its storage.
    pub(super) fn set_recorded(&self, version: u64, trace: u64, value: &RecordedValue) {
        self.set_cached(CachedValue {
            version,
            value: value.example.clone(),
            recorded: Some((trace, value.id)),
        });
    }

    fn cached(&self, version: u64) -> Option<CachedValue> {
        let cached = self.inner.cached.lock();
        let cached = cached.unwrap_or_else(PoisonError::into_inner).clone();
        cached.filter(|cached| cached.version == version)
    }

    fn set_cached(&self, value: CachedValue) {
        let cached = self.inner.cached.lock();
        *cached.unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    /// The tensor's view of its storage.
    pub(super) fn storage_view(&self) -> TracedView {
        let view = self.inner.view.read();
        view.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the view of a storage.
    pub(super) fn set_view(&self, view: TracedView) {
        let own = self.inner.view.write();
        *own.unwrap_or_else(PoisonError::into_inner) = view;
        *self
            .inner
            .cached
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Position of the first element in the storage, symbolic in a trace.
    pub(super) fn offset(&self) -> Result<Dim> {
        let view = self.storage_view();
        let guarded = match recorder::active() {
            Some(recorder) => &view.in_trace(recorder.number())?.guarded,
            None => &view.concrete.guarded,
        };
        Ok(guarded.geometry.offset.clone())
    }

    /// True if the tensor was made in the innermost branch or loop, or outside of traces while none is active.
    pub(super) fn is_of_innermost_scope(&self) -> bool {
        self.inner.scope == recorder::scope()
    }

    /// Replaces the value of a parameter by one of equal shape, converted to the parameter's element type.
    pub(super) fn set_value(&self, value: &Tensor) -> Result<()> {
        let old = self.value()?;
        if old.shape() != value.shape() {
            let (old, new) = (old.shape(), value.shape());
            let message = format!("expected a value of shape {old:?}, got {new:?}");
            return Err(Error::input(message));
        }
        self.assign_on_host(&value.cast(old.dtype())?)
    }

    /// Stores a value to a parameter or buffer, as `copy_` to a buffer does in PyTorch. The value outlives the call: running
    /// statistics, a model's memory. In a trace, the graph reads and writes a state with the buffer's name, and the buffer
    /// itself does not change. A store within a branch takes effect if the branch is taken; within a loop, later iterations
    /// see it.
    ///
    /// A value that does not fit is an error of the trace. Without a trace it is not stored, and the result is the error.
    ///
    /// # Errors
    /// The value has another type, or an operation that computed it failed; or this tensor is not a parameter or
    /// buffer.
    #[track_caller]
    pub fn store(&self, value: &TracedTensor) -> Result<()> {
        let Some(recorder) = recorder::active() else {
            return self.store_value(&value.value()?);
        };
        let stored = recorder.store(self, value);
        if let Err(error) = &stored {
            recorder.fail(error.clone().at_place(&call_site::caller()));
        }
        stored
    }

    /// Stores a value of this tensor's type, outside of traces.
    fn store_value(&self, value: &Tensor) -> Result<()> {
        let (wanted, found) = (self.value()?.tensor_type(), value.tensor_type());
        if wanted != found {
            let message = format!("expected a value of type {wanted} for a buffer, got {found}");
            return Err(Error::input(message));
        }
        self.set_value(value)
    }

    /// A tensor of equal value with memory of its own, without a connection to a trace.
    pub(super) fn detached(&self) -> TracedTensor {
        TracedTensor::new(self.value(), TracedOrigin::Host)
    }

    /// True if both handles refer to one tensor, not merely to equal ones.
    pub fn is(&self, other: &TracedTensor) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The error, if an operation that computed this tensor failed.
    pub fn error(&self) -> Option<Error> {
        self.value().err()
    }

    /// Element type and shape; sizes are symbolic for values of the active trace.
    ///
    /// # Errors
    /// An operation that computed this tensor failed.
    pub fn ty(&self) -> Result<TensorType> {
        let value = self.value()?;
        match recorder::active() {
            Some(recorder) if self.storage_view().symbolic.is_some() => recorder.type_of(self),
            _ => Ok(value.tensor_type()),
        }
    }

    /// Element type; `F32` if the tensor holds an error.
    pub fn dtype(&self) -> DType {
        self.ty().map_or(DType::F32, |ty| ty.dtype)
    }

    /// Sizes, symbolic for values of the active trace; empty if the tensor holds an error.
    pub fn shape(&self) -> Vec<Size> {
        let ty = self.ty().ok();
        let sizes = ty.iter().flat_map(|ty| &ty.shape);
        sizes.filter_map(|size| Size::of_shape(size).ok()).collect()
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.ty().map_or(0, |ty| ty.rank())
    }

    /// The size of a dimension, counted from the end if negative; symbolic for values of the active trace.
    ///
    /// The size of a dimension that there is not holds an error: the operation that uses it fails, and its error names the
    /// dimension.
    #[track_caller]
    pub fn dim(&self, dim: i64) -> Size {
        let place = call_site::caller();
        let size = self.ty().and_then(|ty| {
            let axis = wrap_dim(dim, ty.rank())?;
            let missing = || Error::operator(format!("{ty} has no dimension {dim}"));
            Size::of_shape(ty.shape.get(axis).ok_or_else(missing)?)
        });
        size.unwrap_or_else(|error| {
            let error = error.at_place(&place);
            recorder::fail(error.clone());
            Size::failed(error)
        })
    }

    /// Number of elements, symbolic for values of the active trace.
    pub fn numel(&self) -> Size {
        Size::product(self.shape())
    }

    /// Sets the value's name in the graph.
    #[must_use]
    pub fn named(self, name: &str) -> TracedTensor {
        if let Some(recorder) = recorder::active() {
            recorder.set_name(&self, name);
        }
        self
    }

    /// Reads the value. Computations on the host are not recorded: warning `W0201` with the caller's line.
    ///
    /// # Errors
    /// An operation that computed this tensor failed.
    #[track_caller]
    pub fn to_host(&self) -> Result<Tensor> {
        let value = self.value()?;
        if let Some(recorder) = recorder::active().filter(|recorder| recorder.may_change(self)) {
            let name = recorder.weight_name(self);
            let name = name.map_or(String::new(), |name| format!("{name}, "));
            let message = format!(
                "the program reads {name}{value:?}: results computed from it on the host are constants of the graph"
            );
            recorder.warn(Id::HostRead, message, &call_site::caller());
        }
        Ok(value)
    }

    /// Reads all elements, converted to `T`; see [`to_host`](TracedTensor::to_host).
    ///
    /// # Errors
    /// An operation that computed this tensor failed.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let value = self.to_host()?.cast(T::DTYPE)?;
        Ok(value.as_slice::<T>()?.to_vec())
    }

    /// Reads the only element; see [`to_host`](TracedTensor::to_host).
    ///
    /// # Errors
    /// An operation that computed this tensor failed, or there is more than one element, or none.
    #[track_caller]
    pub fn to_scalar(&self) -> Result<Scalar> {
        self.to_host()?.item()
    }

    /// Reads the only element: true if it is not zero; see [`to_host`](TracedTensor::to_host).
    ///
    /// # Errors
    /// An operation that computed this tensor failed, or there is more than one element, or none.
    #[track_caller]
    pub fn to_bool(&self) -> Result<bool> {
        Ok(self.to_scalar()?.to_f64() != 0.0)
    }
}

impl From<Tensor> for TracedTensor {
    #[track_caller]
    fn from(value: Tensor) -> TracedTensor {
        TracedTensor::from_data(Ok(value))
    }
}

/// A number gives a tensor without dimensions, an array of `n` levels one with `n` dimensions. The element type is the Rust
/// type: literals without a suffix are `f64` or `i32`, unlike in PyTorch.
///
/// ```
/// use onionskin::trace::TracedTensor;
///
/// let x = TracedTensor::from([[1f32, 2.0], [3.0, 4.0]]);
/// let mask = TracedTensor::from([[true, false]]);
/// assert_eq!((x.rank(), mask.rank()), (2, 2));
/// ```
impl<A: NestedArray> From<A> for TracedTensor {
    #[track_caller]
    fn from(array: A) -> TracedTensor {
        TracedTensor::from_data(Ok(array.into()))
    }
}

/// The first size is the number of items.
impl<A: NestedArray> From<Vec<A>> for TracedTensor {
    #[track_caller]
    fn from(items: Vec<A>) -> TracedTensor {
        TracedTensor::from_data(Ok(items.into()))
    }
}

/// The first size is the number of items.
impl<A: NestedArray> From<&[A]> for TracedTensor {
    #[track_caller]
    fn from(items: &[A]) -> TracedTensor {
        TracedTensor::from_data(Ok(items.into()))
    }
}

impl fmt::Debug for TracedTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value() {
            Ok(value) => write!(f, "{value:?}"),
            Err(error) => write!(f, "failed: {error}"),
        }
    }
}
