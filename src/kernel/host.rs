//! Host functions: functions of the application that a graph calls.

use std::fmt;
use std::sync::Arc;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{TensorType, type_list};
use crate::tensor::Tensor;

/// A host function on tensors. Clones are the same function.
#[derive(Clone)]
pub struct HostFunction {
    name: Arc<str>,
    function: Arc<HostClosure>,
}

type HostClosure = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync;

impl HostFunction {
    /// Wraps a function; the name is for messages.
    pub fn new(
        name: &str,
        function: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> HostFunction {
        HostFunction {
            name: name.into(),
            function: Arc::new(function),
        }
    }

    /// Calls the function and checks that the results have the expected types.
    pub fn call(
        &self,
        operands: &[Tensor],
        expected: &[(DType, Vec<usize>)],
    ) -> Result<Vec<Tensor>> {
        let results = (self.function)(operands).map_err(|error| error.at(&self.name))?;
        let same = |(tensor, (dtype, shape)): (&Tensor, &(DType, Vec<usize>))| {
            tensor.dtype() == *dtype && tensor.shape() == shape.as_slice()
        };
        if results.len() == expected.len() && results.iter().zip(expected).all(same) {
            return Ok(results);
        }
        let found: Vec<TensorType> = results.iter().map(Tensor::tensor_type).collect();
        let wanted = expected.iter();
        let wanted: Vec<TensorType> = wanted
            .map(|(dtype, shape)| TensorType::new(*dtype, shape.iter().copied()))
            .collect();
        let message = format!(
            "{} returned {}; the graph expects {}",
            self.name,
            type_list(&found),
            type_list(&wanted)
        );
        Err(Error::operator(message))
    }
}

/// Compares identity: clones of one function are equal, equal closures are not.
impl PartialEq for HostFunction {
    fn eq(&self, other: &HostFunction) -> bool {
        Arc::ptr_eq(&self.function, &other.function)
    }
}

impl fmt::Debug for HostFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostFunction({})", self.name)
    }
}
