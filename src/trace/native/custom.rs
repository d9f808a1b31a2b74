//! User-defined operators: host functions recorded as one node, and shaders.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use crate::dim::Dim;
use crate::error::{Result, SourcePlace};
use crate::ir::{Argument, TreeSpec};
use crate::kernel::host::HostFunction;
use crate::op::{Custom, CustomRules, register, register_rules};
use crate::shape::TensorType;
use crate::tensor::Tensor;

use super::call::failed_at;
use super::call_site;
use super::control::detach;
use super::recorder::{self, Recorder};
use super::tensor::TracedTensor;
use super::tree::Tree;

/// A user-defined operator. In a graph it is one node.
///
/// It must be deterministic and have no side effects. A process that runs a saved graph must call
/// [`CustomOperator::register`].
#[derive(Clone)]
pub struct CustomOperator {
    name: String,
    rules: CustomRules,
    /// Computes the results on the host.
    host: HostFunction,
    /// Computes the gradients of the operands; registered with this operator.
    gradient: Option<Arc<CustomOperator>>,
}

impl fmt::Debug for CustomOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomOperator")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl CustomOperator {
    /// An operator with result types computed by `types` from the operands' types, and results computed by `host`.
    pub fn new(
        name: &str,
        types: impl Fn(&[TensorType]) -> Result<Vec<TensorType>> + Send + Sync + 'static,
        host: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> CustomOperator {
        CustomOperator {
            name: name.to_string(),
            rules: CustomRules {
                types: Arc::new(types),
                shader: None,
                gradient: None,
            },
            host: HostFunction::new(name, host),
            gradient: None,
        }
    }

    /// Adds the operator that computes gradients. Its operands are those of this operator, then the gradients of its float
    /// results; its results are the gradients of the float operands, in order.
    ///
    /// ```
    /// use onionskin::trace::{CustomOperator, TracedTensor, trace_fn};
    /// use onionskin::{Tensor, grad::Loss};
    ///
    /// let numbers = |tensor: &Tensor, f: fn(f64) -> f64| tensor.to_f64().into_iter().map(f).collect();
    /// let gradient = CustomOperator::new(
    ///     "square_backward",
    ///     |types| Ok(types[..1].to_vec()),
    ///     |x| {
    ///         let products = x[0].to_f64().into_iter().zip(x[1].to_f64()).map(|(x, g)| 2.0 * x * g);
    ///         Ok(vec![Tensor::from_f64(x[0].dtype(), x[0].shape(), products.collect())?])
    ///     },
    /// );
    /// let square = CustomOperator::new(
    ///     "square",
    ///     |types| Ok(types.to_vec()),
    ///     move |x| Ok(vec![Tensor::from_f64(x[0].dtype(), x[0].shape(), numbers(&x[0], |x| x * x))?]),
    /// )
    /// .with_gradient(gradient);
    /// let x = TracedTensor::from_vec([2], vec![1f32, 3.0]);
    /// let traced = trace_fn(x, |x: TracedTensor| square.call(&[&x]).remove(0))?;
    /// let graph = &traced.module.graphs[0];
    /// let with_gradient = graph.gradient(&Loss::Sum, &graph.inputs)?;
    /// assert!(with_gradient.to_string().contains("square_backward"));
    /// # Ok::<(), onionskin::Error>(())
    /// ```
    #[must_use]
    pub fn with_gradient(mut self, gradient: CustomOperator) -> CustomOperator {
        self.rules.gradient = Some(gradient.name.clone());
        self.gradient = Some(Arc::new(gradient));
        self
    }

    /// Adds a shader for GPUs, which must compute the results of the host function. [`Shader`](crate::op::Shader) describes its bindings.
    /// `workgroups` computes the number of workgroups from the operands' types.
    #[must_use]
    pub fn with_shader(
        mut self,
        wgsl: &str,
        workgroups: impl Fn(&[TensorType]) -> [Dim; 3] + Send + Sync + 'static,
    ) -> CustomOperator {
        self.rules.shader = Some((wgsl.to_string(), Arc::new(workgroups)));
        self
    }

    /// Registers the operator for graphs loaded from files, and for programs of PyTorch that call an operator of this name,
    /// `mine::gelu`, on tensors only. A call does so too.
    pub fn register(&self) {
        register(&self.name, self.host.clone());
        register_rules(&self.name, self.rules.clone());
        if let Some(gradient) = &self.gradient {
            gradient.register();
        }
    }

    /// Calls the operator. There is always at least one result. If the call fails, the result holds the error.
    #[track_caller]
    pub fn call(&self, operands: &[&TracedTensor]) -> Vec<TracedTensor> {
        let place = call_site::caller();
        self.register();
        let results = self.run(operands, &place);
        results.unwrap_or_else(|error| vec![failed_at(error, &place)])
    }

    /// Computes the results on the host. Adds a node if a trace is active.
    fn run(&self, operands: &[&TracedTensor], place: &SourcePlace) -> Result<Vec<TracedTensor>> {
        let values = operands.iter().map(|tensor| tensor.value());
        let values: Vec<Tensor> = values.collect::<Result<_>>()?;
        let types = operands.iter().map(|tensor| tensor.ty());
        let types: Vec<TensorType> = types.collect::<Result<_>>()?;
        let custom = self.rules.operator(&self.name, &types)?;
        let recorder = recorder::active();
        let hints = recorder
            .as_ref()
            .map(|recorder| recorder.hints())
            .unwrap_or_default();
        let expected = custom
            .results
            .iter()
            .map(|ty| Ok((ty.dtype, ty.sizes(&hints)?)));
        let computed = self
            .host
            .call(&values, &expected.collect::<Result<Vec<_>>>()?)?;
        let Some(recorder) = recorder else {
            return Ok(computed.into_iter().map(TracedTensor::from).collect());
        };
        record_custom(&recorder, custom, operands, &computed, place)
    }
}

/// Adds a node for a custom operator. `values` are its results in the example.
fn record_custom(
    recorder: &Rc<Recorder>,
    custom: Custom,
    operands: &[&TracedTensor],
    values: &[Tensor],
    place: &SourcePlace,
) -> Result<Vec<TracedTensor>> {
    let operands = operands.iter();
    let operands = operands.map(|tensor| recorder.value_of(tensor).map(Argument::Value));
    let operands: Vec<Argument> = operands.collect::<Result<_>>()?;
    let builder = recorder.scopes().borrow().innermost().builder.clone();
    builder.set_place(place);
    let results = builder.try_apply(custom, operands)?;
    let pairs = results.into_iter().zip(values);
    Ok(pairs
        .map(|(result, value)| recorder.tensor(result.id(), value.clone()))
        .collect())
}

/// Calls a function that a trace records as one node, with the function itself as the node's host function. Without an
/// active trace it simply calls the function.
///
/// The function may read tensor values and branch on them. It gets copies of the inputs: writes to them do not reach the
/// tensors that are passed in. It runs once with symbolic sizes to find the sizes of its
/// results.
///
/// # Errors
/// The function fails, or returns a value that is not a tensor.
#[track_caller]
pub fn leaf<I, O>(
    name: &str,
    inputs: I,
    function: impl Fn(I) -> O + Send + Sync + 'static,
) -> Result<O>
where
    I: Tree,
    O: Tree,
{
    let place = call_site::caller();
    let Some(recorder) = recorder::active() else {
        return Ok(function(detach(&inputs)?));
    };
    let result = record_leaf(&recorder, name, &inputs, function, &place);
    result.map_err(|error| error.at_place(&place))
}

/// Records a call of a function as one node.
fn record_leaf<I: Tree, O: Tree>(
    recorder: &Rc<Recorder>,
    name: &str,
    inputs: &I,
    function: impl Fn(I) -> O + Send + Sync + 'static,
    place: &SourcePlace,
) -> Result<O> {
    let mut operands = Vec::new();
    let input_structure = inputs.flatten("the inputs", &mut operands)?;
    let (results, output_structure) = recorder.probe(|| {
        let mut results = Vec::new();
        let inputs = I::rebuild(&input_structure, &operands, "the inputs")?;
        let structure = function(inputs).flatten("the results", &mut results)?;
        let types = results
            .iter()
            .map(|tensor| Ok((tensor.ty()?, tensor.value()?)));
        Ok((types.collect::<Result<Vec<_>>>()?, structure))
    })?;
    let (types, values): (Vec<TensorType>, Vec<Tensor>) = results.into_iter().unzip();
    register(name, host_function(name, input_structure, function));
    let custom = Custom {
        function: name.to_string(),
        results: types,
        shader: None,
    };
    let operands: Vec<&TracedTensor> = operands.iter().collect();
    let results = record_custom(recorder, custom, &operands, &values, place)?;
    O::rebuild(&output_structure, &results, "the results")
}

/// Converts a function of trees to a function of lists of tensors.
fn host_function<I: Tree, O: Tree>(
    name: &str,
    input_structure: TreeSpec,
    function: impl Fn(I) -> O + Send + Sync + 'static,
) -> HostFunction {
    HostFunction::new(name, move |operands| {
        recorder::suspend(|| {
            let operands: Vec<TracedTensor> =
                operands.iter().cloned().map(TracedTensor::from).collect();
            let inputs = I::rebuild(&input_structure, &operands, "the inputs")?;
            let mut results = Vec::new();
            function(inputs).flatten("the results", &mut results)?;
            results.iter().map(TracedTensor::value).collect()
        })
    })
}
