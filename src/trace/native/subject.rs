//! Rust functions as subjects of the trace checker: the functions that it calls and traces again.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use crate::error::Result;
use crate::ir::{NamedTree, TreeSpec};
use crate::item::{self, Item};
use crate::tensor::Tensor;
use crate::trace::check::{CheckOptions, CheckReport, Subject, Traced, check_trace};

use super::module::Module;
use super::random::manual_seed;
use super::recorder;
use super::tensor::TracedTensor;
use super::trace_entry::{TraceOptions, record_entry, signature};
use super::trace_names::TraceNames;
use super::tree::Tree;
use super::undo_log::with_rollback;

/// A function with the structure of its example inputs.
pub struct TracedFunction<'f, I, O> {
    function: Box<dyn Fn(I) -> O + 'f>,
    /// Name of the entry graph.
    name: String,
    options: TraceOptions,
    /// Structure of the inputs.
    spec: TreeSpec,
    /// Names and structures of the arguments.
    signature: Vec<NamedTree>,
    /// The example inputs as arguments.
    example: Vec<Item>,
    /// Registers the names of the module's parameters, if the function is a method.
    register: Box<dyn Fn(&mut TraceNames) + 'f>,
}

impl<I, O> fmt::Debug for TracedFunction<'_, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracedFunction")
            .field("name", &self.name)
            .field("signature", &self.signature)
            .finish_non_exhaustive()
    }
}

impl<'f, I: Tree, O: Tree> TracedFunction<'f, I, O> {
    /// A function with example inputs.
    ///
    /// # Errors
    /// The inputs cannot be arguments of a trace.
    pub fn new(inputs: &I, function: impl Fn(I) -> O + 'f, options: &TraceOptions) -> Result<Self> {
        let mut leaves = Vec::new();
        let spec = inputs.flatten("args", &mut leaves)?;
        let signature = signature(&spec, &options.names)?;
        let example = items(signature.iter().map(|input| &input.tree), &leaves)?;
        Ok(TracedFunction {
            function: Box::new(function),
            name: "forward".to_string(),
            options: options.clone(),
            spec,
            signature,
            example,
            register: Box::new(|_| ()),
        })
    }

    /// A method of a module with example inputs; `name` is the name of its entry graph.
    ///
    /// # Errors
    /// The inputs cannot be arguments of a trace.
    pub fn method<M: Module>(
        module: &'f M,
        name: &str,
        inputs: &I,
        method: impl Fn(&M, I) -> O + 'f,
        options: &TraceOptions,
    ) -> Result<Self> {
        let mut function =
            TracedFunction::new(inputs, move |inputs| method(module, inputs), options)?;
        function.name = name.to_string();
        function.register = Box::new(|names| names.register(module, ""));
        Ok(function)
    }

    /// The example inputs as arguments for the checker.
    pub fn example(&self) -> &[Item] {
        &self.example
    }

    /// Builds the function's inputs from arguments.
    fn inputs(&self, arguments: &[Item]) -> Result<I> {
        let leaves = item::flatten_arguments(&self.signature, arguments)?;
        let leaves: Vec<TracedTensor> = leaves.into_iter().map(TracedTensor::from).collect();
        I::rebuild(&self.spec, &leaves, "args")
    }
}

impl<I: Tree, O: Tree> Subject for TracedFunction<'_, I, O> {
    fn trace(&self, arguments: &[Item]) -> Result<Traced> {
        let mut names = TraceNames::default();
        (self.register)(&mut names);
        let names = Rc::new(RefCell::new(names));
        let inputs = self.inputs(arguments)?;
        let mut traced = Traced::default();
        traced.add(record_entry(
            &self.name,
            inputs,
            &self.function,
            &self.options,
            &names,
        )?);
        Ok(traced)
    }

    fn call(&self, arguments: &[Item]) -> Result<Item> {
        let call = || {
            let mut leaves = Vec::new();
            let spec = (self.function)(self.inputs(arguments)?).flatten("output", &mut leaves)?;
            let mut results = items(std::iter::once(&spec), &leaves)?;
            Ok(results.pop().unwrap_or(Item::None))
        };
        recorder::suspend(|| with_rollback(call))
    }

    fn seed(&self, seed: u64) {
        manual_seed(seed);
    }
}

/// Builds items from structures and the values of their tensors.
pub(super) fn items<'a>(
    specs: impl Iterator<Item = &'a TreeSpec>,
    leaves: &[TracedTensor],
) -> Result<Vec<Item>> {
    let values = leaves.iter().map(TracedTensor::value);
    let values: Vec<Tensor> = values.collect::<Result<_>>()?;
    let items = specs.map(|spec| Item::build(spec, &values, &Default::default()));
    items.collect()
}

/// Converts inputs to arguments for [`CheckOptions::inputs`]. The items of a tuple are separate arguments.
///
/// # Errors
/// The inputs cannot be arguments of a trace.
pub fn arguments<I: Tree>(inputs: &I) -> Result<Vec<Item>> {
    let mut leaves = Vec::new();
    let spec = inputs.flatten("args", &mut leaves)?;
    let signature = signature(&spec, &[])?;
    items(signature.iter().map(|input| &input.tree), &leaves)
}

/// Traces a function and checks the trace. The check calls the function, runs its graph and traces it again, with the
/// example inputs, those of the options, and others derived from them.
///
/// # Errors
/// The function cannot be traced. The report holds the findings of the check.
pub fn trace_fn_checked<I: Tree, O: Tree>(
    inputs: I,
    function: impl Fn(I) -> O,
    options: &CheckOptions,
) -> Result<(Traced, CheckReport)> {
    let function = TracedFunction::new(&inputs, function, &TraceOptions::default())?;
    check_function(&function, options)
}

/// [`trace_fn_checked`] for a method of a module.
///
/// # Errors
/// The method cannot be traced. The report holds the findings of the check.
pub fn trace_method_checked<M: Module, I: Tree, O: Tree>(
    module: &M,
    inputs: I,
    method: impl Fn(&M, I) -> O,
    options: &CheckOptions,
) -> Result<(Traced, CheckReport)> {
    let trace_options = TraceOptions::default();
    let function = TracedFunction::method(module, "forward", &inputs, method, &trace_options)?;
    check_function(&function, options)
}

/// Traces a function with its example inputs, and checks the trace.
fn check_function<I: Tree, O: Tree>(
    function: &TracedFunction<'_, I, O>,
    options: &CheckOptions,
) -> Result<(Traced, CheckReport)> {
    let mut options = options.clone();
    options.inputs.insert(0, function.example.clone());
    function.seed(options.seed);
    let traced = function.trace(&function.example)?;
    let report = check_trace(function, &traced, &options)?;
    Ok((traced, report))
}
