//! The tensors of traced programs.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result, SourcePlace};
use crate::scalar::Scalar;
use crate::shape::{Shape, TensorType, wrap_dim};
use crate::tensor::{Element, Tensor};
use crate::trace::check::Id;
use crate::trace::scope_stack::ValueRef;

use super::{module, recorder};

/// A tensor with a value, whose computation is recorded while a trace is active. Clones share one identity.
///
/// Operators are methods with PyTorch's names. They never fail: an error is stored in the result, with the caller's line,
/// and returned when the result is read or the trace ends.
#[derive(Clone)]
pub struct TracedTensor {
    inner: Arc<TensorInner>,
}

/// The tensor that clones of a handle share.
struct TensorInner {
    /// The value, or the error of an operation that computed it.
    value: RwLock<Result<Tensor>>,
    origin: TracedOrigin,
}

/// Origin of a tensor, which decides how a trace refers to it.
#[derive(Clone, Debug)]
pub(super) enum TracedOrigin {
    /// Created outside of any trace.
    Host,
    /// Created from data while a trace was active, at this place.
    Data(SourcePlace),
    /// A parameter or buffer of a module, whose value can be loaded.
    Parameter,
    /// A value of the trace with this number.
    Recorded(u64, ValueRef),
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

    /// A parameter or buffer. [`load_state_dict`](super::load_state_dict) can replace its value, for all clones.
    pub fn parameter(value: Tensor) -> TracedTensor {
        TracedTensor::parameter_or(Ok(value))
    }

    /// A parameter whose initial value may be an error.
    pub(in crate::trace) fn parameter_or(value: Result<Tensor>) -> TracedTensor {
        TracedTensor::new(value, TracedOrigin::Parameter)
    }

    /// A new tensor with a value or an error.
    pub(super) fn new(value: Result<Tensor>, origin: TracedOrigin) -> TracedTensor {
        let value = RwLock::new(value);
        TracedTensor {
            inner: Arc::new(TensorInner { value, origin }),
        }
    }

    /// A tensor that the program creates from data.
    #[track_caller]
    fn from_data(value: Result<Tensor>) -> TracedTensor {
        let place = recorder::caller();
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
        let value = self.inner.value.read();
        value.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value of a parameter by one of equal shape, converted to the parameter's element type.
    pub(super) fn set_value(&self, value: &Tensor) -> Result<()> {
        let old = self.value()?;
        if old.shape() != value.shape() {
            let (old, new) = (old.shape(), value.shape());
            let message = format!("expected a value of shape {old:?}, got {new:?}");
            return Err(Error::input(message));
        }
        let mut slot = self.inner.value.write();
        let poisoned = |_| Error::internal("the lock of a tensor's value is poisoned");
        let slot = slot.as_deref_mut().map_err(poisoned)?;
        *slot = value.cast(old.dtype());
        Ok(())
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
            return module::store(self, &value.value()?);
        };
        let stored = recorder.store(self, value);
        if let Err(error) = &stored {
            recorder.fail(error.clone().at_place(&recorder::caller()));
        }
        stored
    }

    /// A tensor of equal value without a connection to a trace.
    pub(super) fn detached(&self) -> TracedTensor {
        TracedTensor::new(self.value(), TracedOrigin::Host)
    }

    /// The origin of the tensor.
    pub(super) fn origin(&self) -> &TracedOrigin {
        &self.inner.origin
    }

    /// True if both handles refer to one tensor, not merely to equal ones.
    pub fn is(&self, other: &TracedTensor) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Address that identifies the tensor while it lives.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
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
        if let (TracedOrigin::Recorded(..), Some(recorder)) =
            (&self.inner.origin, recorder::active())
        {
            return recorder.type_of(self);
        }
        Ok(value.tensor_type())
    }

    /// Element type; `F32` if the tensor holds an error.
    pub fn dtype(&self) -> DType {
        self.ty().map_or(DType::F32, |ty| ty.dtype)
    }

    /// Sizes, symbolic for values of the active trace; empty if the tensor holds an error.
    pub fn shape(&self) -> Shape {
        self.ty().map(|ty| ty.shape).unwrap_or_default()
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// The size of a dimension, counted from the end if negative; symbolic for values of the active trace.
    ///
    /// A missing dimension gives a size without a value: the operation that uses it fails, and its error names the
    /// dimension.
    #[track_caller]
    pub fn dim(&self, dim: i64) -> Dim {
        let place = recorder::caller();
        let size = self.ty().and_then(|ty| {
            let axis = wrap_dim(dim, ty.rank())?;
            let missing = || Error::operator(format!("{ty} has no dimension {dim}"));
            ty.shape.get(axis).cloned().ok_or_else(missing)
        });
        size.unwrap_or_else(|error| {
            recorder::fail(error.at_place(&place));
            Dim::symbol(format!("size {dim} of {self:?}"))
        })
    }

    /// Number of elements, symbolic for values of the active trace.
    pub fn numel(&self) -> Dim {
        Dim::product(&self.shape())
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
        if let (TracedOrigin::Recorded(..), Some(recorder)) =
            (&self.inner.origin, recorder::active())
        {
            let message = format!(
                "the program reads {value:?}: results computed from it on the host are constants of the graph"
            );
            recorder.warn(Id::HostRead, message, &recorder::caller());
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

/// Reads a size as a number, which makes the trace valid for that size only. Warning `W0202` with the caller's line.
///
/// # Errors
/// The size belongs to another trace.
#[track_caller]
pub fn freeze(size: &Dim) -> Result<i64> {
    if let Some(number) = size.as_const() {
        return Ok(number);
    }
    let recorder = recorder::active();
    let inactive = || {
        Error::usage(format!(
            "{size} is a size of a trace, and no trace is active"
        ))
    };
    let recorder = recorder.ok_or_else(inactive)?;
    let number = recorder.freeze(size)?;
    let message = format!("the size {size} is fixed to {number}");
    recorder.warn(Id::FrozenSize, message, &recorder::caller());
    Ok(number)
}

impl From<Tensor> for TracedTensor {
    #[track_caller]
    fn from(value: Tensor) -> TracedTensor {
        TracedTensor::from_data(Ok(value))
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
