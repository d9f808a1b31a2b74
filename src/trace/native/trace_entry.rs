//! Entry points: trace a function, or the methods of a module.
//!
//! An entry graph is a graph that is called from outside by its name, such as `forward`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::interp;
use crate::ir::{self, Graph, NamedTree, TreeSpec};
use crate::item::Item;
use crate::shape::TensorType;
use crate::tensor::Tensor;
use crate::trace::check::{Traced, inputs};
use crate::trace::symbolic_sizes::{InputSizes, SymbolicSizes};
use crate::trace::weight_states::make_state_inputs;

use super::module::Module;
use super::recorder::{RecordedGraph, Recorder};
use super::storage_values::RecordedValue;
use super::tensor::TracedTensor;
use super::trace_names::TraceNames;
use super::tree::Tree;

/// Options of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceOptions {
    /// The input sizes that may differ from the example's.
    pub sizes: SymbolicSizes,
    /// Names of the arguments; missing ones are `x`, `x_1` …. If the inputs are a struct, the arguments have its field
    /// names.
    pub names: Vec<String>,
    /// Refuses lists and maps among the outputs, as PyTorch does, since their length or keys could depend on the example.
    pub strict: bool,
}

/// Traces a function: calls it once with the example inputs and records its operations as the graph `forward`.
///
/// The items of a tuple are separate arguments. See [`trace_fn_with`] for options and
/// [`trace`](super::trace) for networks with parameters.
///
/// # Errors
/// An operation failed; a trace is already active on this thread; inputs or outputs have no order or no elements.
pub fn trace_fn<I: Tree, O: Tree>(inputs: I, function: impl FnOnce(I) -> O) -> Result<Traced> {
    trace_fn_with(inputs, function, &TraceOptions::default())
}

/// [`trace_fn`] with options.
///
/// # Errors
/// Fails as [`trace_fn`] does.
pub fn trace_fn_with<I: Tree, O: Tree>(
    inputs: I,
    function: impl FnOnce(I) -> O,
    options: &TraceOptions,
) -> Result<Traced> {
    let names = Rc::default();
    let mut traced = Traced::default();
    traced.add(record_entry("forward", inputs, function, options, &names)?);
    Ok(traced)
}

/// A method of a module with example inputs, to be traced as an entry graph.
pub struct Method<'f, M> {
    /// Traces the method.
    record: Box<RecordFn<'f, M>>,
}

impl<M> fmt::Debug for Method<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Method").finish_non_exhaustive()
    }
}

/// Records a method of the module with the names of its weights and submodules.
type RecordFn<'f, M> = dyn FnOnce(&M, &Rc<RefCell<TraceNames>>) -> Result<RecordedGraph> + 'f;

impl<'f, M> Method<'f, M> {
    /// A method with the name of its entry graph.
    pub fn new<I: Tree + 'f, O: Tree>(
        name: &'f str,
        inputs: I,
        method: impl FnOnce(&M, I) -> O + 'f,
    ) -> Method<'f, M> {
        Method::with(name, inputs, method, TraceOptions::default())
    }

    /// A method with the name of its entry graph, and options.
    pub fn with<I: Tree + 'f, O: Tree>(
        name: &'f str,
        inputs: I,
        method: impl FnOnce(&M, I) -> O + 'f,
        options: TraceOptions,
    ) -> Method<'f, M> {
        let record = move |module: &M, names: &Rc<RefCell<TraceNames>>| {
            let function = |inputs| method(module, inputs);
            record_entry(name, inputs, function, &options, names)
        };
        Method {
            record: Box::new(record),
        }
    }
}

/// Traces methods of a module as entry graphs with common weights, which are named by the paths of the module's fields.
///
/// # Errors
/// Fails as [`trace_fn`] does, for the first method that fails.
pub fn trace_module<'f, M: Module>(
    module: &M,
    methods: impl IntoIterator<Item = Method<'f, M>>,
) -> Result<Traced> {
    let mut names = TraceNames::default();
    names.register(module, "");
    let names = Rc::new(RefCell::new(names));
    let mut traced = Traced::default();
    for method in methods {
        traced.add((method.record)(module, &names)?);
    }
    Ok(traced)
}

/// Traces one function as the entry graph `name`.
pub(super) fn record_entry<I: Tree, O: Tree>(
    name: &str,
    inputs: I,
    function: impl FnOnce(I) -> O,
    options: &TraceOptions,
    names: &Rc<RefCell<TraceNames>>,
) -> Result<RecordedGraph> {
    let recorder = Recorder::new(name, names.clone());
    let mut examples = Vec::new();
    let spec = inputs.flatten("args", &mut examples)?;
    let signature = signature(&spec, &options.names)?;
    let (outputs, output) = recorder.activate(|| {
        let leaves = declare_inputs(&recorder, &signature, &examples, &options.sizes)?;
        let inputs = I::rebuild(&spec, &leaves, "args")?;
        let mut outputs = Vec::new();
        let output = function(inputs).flatten("output", &mut outputs)?;
        if options.strict {
            refuse_containers(&output, "output")?;
        }
        let ids = outputs.iter().map(|tensor| recorder.value_of(tensor));
        Ok((ids.collect::<Result<Vec<_>>>()?, output))
    })?;
    recorder.finish(&outputs, signature, output)
}

/// The arguments with their names: the items of a tuple, the fields of a struct, or one argument. `names` overrides the
/// default names of the arguments that do not come from a struct.
pub(super) fn signature(spec: &TreeSpec, names: &[String]) -> Result<Vec<NamedTree>> {
    let name = |index: usize| {
        let default = || {
            if index == 0 {
                "x".to_string()
            } else {
                format!("x_{index}")
            }
        };
        names.get(index).cloned().unwrap_or_else(default)
    };
    let inputs: Vec<NamedTree> = match spec {
        TreeSpec::Tuple(items) => {
            let items = items.iter().cloned().enumerate();
            let input = |(index, tree)| NamedTree {
                name: name(index),
                tree,
            };
            items.map(input).collect()
        }
        TreeSpec::NamedTuple(_, fields) => {
            let input = |(name, tree): &(String, TreeSpec)| NamedTree {
                name: name.clone(),
                tree: tree.clone(),
            };
            fields.iter().map(input).collect()
        }
        other => vec![NamedTree {
            name: name(0),
            tree: other.clone(),
        }],
    };
    for (index, input) in inputs.iter().enumerate() {
        check_input(&input.tree, &format!("args[{index}]"))?;
    }
    Ok(inputs)
}

/// Refuses sizes, empty containers, and lists with items of different kinds.
fn check_input(spec: &TreeSpec, path: &str) -> Result<()> {
    match spec {
        TreeSpec::Size(_) => {
            let error = Error::input(format!("{path} is a size, and only tensors can be inputs"));
            Err(error.help("take the size from a tensor by `dim`"))
        }
        TreeSpec::List(items) => {
            if items.is_empty() {
                return Err(Error::input(format!(
                    "{path} is an empty list: an example needs elements"
                )));
            }
            check_same_kind(items, path)?;
            check_inputs(
                items
                    .iter()
                    .enumerate()
                    .map(|(index, item)| (format!("[{index}]"), item)),
                path,
            )
        }
        TreeSpec::Tuple(items) => check_inputs(
            items
                .iter()
                .enumerate()
                .map(|(index, item)| (format!("[{index}]"), item)),
            path,
        ),
        TreeSpec::Dict(items) if items.is_empty() => Err(Error::input(format!(
            "{path} is an empty map: an example needs its keys"
        ))),
        TreeSpec::Dict(items) => check_inputs(
            items.iter().map(|(key, item)| (format!("[{key:?}]"), item)),
            path,
        ),
        TreeSpec::NamedTuple(_, items) => check_inputs(
            items.iter().map(|(key, item)| (format!(".{key}"), item)),
            path,
        ),
        TreeSpec::Tensor(_) | TreeSpec::Number(_) | TreeSpec::Constant(_) => Ok(()),
    }
}

/// Checks structures nested in the one at `path`, each with the suffix of its own path.
fn check_inputs<'a>(items: impl Iterator<Item = (String, &'a TreeSpec)>, path: &str) -> Result<()> {
    let mut items = items;
    items.try_for_each(|(suffix, item)| check_input(item, &format!("{path}{suffix}")))
}

fn check_same_kind(items: &[TreeSpec], path: &str) -> Result<()> {
    let kind = std::mem::discriminant::<TreeSpec>;
    let other = items.iter().position(|item| kind(item) != kind(&items[0]));
    match other {
        None => Ok(()),
        Some(index) => Err(Error::input(format!(
            "{path} is a mixed list: item {index} is of another kind than item 0"
        ))),
    }
}

/// Refuses lists and maps, also nested ones.
fn refuse_containers(spec: &TreeSpec, path: &str) -> Result<()> {
    let refused = |what: &str| {
        let error = Error::usage(format!("{path} is a {what}, which a strict trace refuses"));
        Err(error.help(
            "return a tuple or a struct, or trace with `strict: false` if its length never changes",
        ))
    };
    match spec {
        TreeSpec::List(_) => refused("list"),
        TreeSpec::Dict(_) => refused("map"),
        TreeSpec::Tuple(items) => {
            let mut items = items.iter().enumerate();
            items.try_for_each(|(index, item)| refuse_containers(item, &format!("{path}[{index}]")))
        }
        TreeSpec::NamedTuple(_, items) => {
            let mut items = items.iter();
            items.try_for_each(|(name, item)| refuse_containers(item, &format!("{path}.{name}")))
        }
        _ => Ok(()),
    }
}

/// Declares an input of the graph for each example tensor. Returns the tensors that stand for them.
fn declare_inputs(
    recorder: &Recorder,
    signature: &[NamedTree],
    examples: &[TracedTensor],
    sizes: &SymbolicSizes,
) -> Result<Vec<TracedTensor>> {
    let mut names = vec![String::new(); examples.len()];
    for input in signature {
        name_leaves(&input.tree, &input.name, &mut names);
    }
    number_repeated(&mut names);
    let mut sizes = InputSizes::new(sizes.clone());
    sizes.reserve(names.iter().map(String::as_str));
    let pairs = examples.iter().zip(&names);
    let declared = pairs.map(|(example, name)| {
        let value = example.value()?;
        let mut scopes = recorder.scopes().borrow_mut();
        let shape = sizes.symbolic_shape(scopes.root.builder.symbols(), name, value.shape());
        let id = scopes.input(name, TensorType::new(value.dtype(), shape));
        drop(scopes);
        let example = value;
        Ok(recorder.tensor_of(RecordedValue { id, example }))
    });
    declared.collect()
}

/// Adds numbers to repeated names, so that all differ.
fn number_repeated(names: &mut [String]) {
    let mut used: BTreeSet<String> = BTreeSet::new();
    for name in names {
        let numbered = (1..).map(|number| format!("{name}_{number}"));
        let mut candidates = std::iter::once(name.clone()).chain(numbered);
        if let Some(free) = candidates.find(|name| !used.contains(name)) {
            used.insert(free.clone());
            *name = free;
        }
    }
}

/// Names the tensors in an argument: `x`, `x_0`, `x_key`.
fn name_leaves(tree: &TreeSpec, name: &str, names: &mut [String]) {
    match tree {
        TreeSpec::Tensor(index) | TreeSpec::Number(index) => {
            if let Some(slot) = names.get_mut(*index) {
                *slot = name.to_string();
            }
        }
        TreeSpec::Tuple(items) | TreeSpec::List(items) => {
            for (index, item) in items.iter().enumerate() {
                name_leaves(item, &format!("{name}_{index}"), names);
            }
        }
        TreeSpec::Dict(items) | TreeSpec::NamedTuple(_, items) => {
            for (key, item) in items {
                name_leaves(item, &format!("{name}_{key}"), names);
            }
        }
        TreeSpec::Constant(_) | TreeSpec::Size(_) => {}
    }
}

impl Traced {
    /// Adds an entry graph. A state that one graph writes becomes an input of every graph that has it as a weight.
    pub(super) fn add(&mut self, recorded: RecordedGraph) {
        let module = &mut self.module;
        module.graphs.push(recorded.graph);
        module.weights.extend(recorded.weights);
        module.parameters.extend(recorded.parameters);
        self.warnings.extend(recorded.warnings);
        for state in recorded.states {
            if !module.states.contains(&state) {
                module.states.push(state);
            }
        }
        let is_state = |name: &str| module.states.iter().any(|state| state.name == name);
        for graph in &mut module.graphs {
            make_state_inputs(graph, is_state);
        }
    }

    /// Returns the entry graph of a name.
    ///
    /// # Errors
    /// There is no such graph; the message lists the existing ones.
    pub fn graph(&self, entry: &str) -> Result<&Graph> {
        self.module.graph(entry)
    }

    /// The entry graphs as Rust functions; see [`Graph::code`].
    ///
    /// # Errors
    /// Fails as [`Graph::code`] does.
    pub fn code(&self) -> Result<String> {
        self.module.code()
    }

    /// Runs `forward` on the host, with inputs of the structure that it was traced with.
    ///
    /// # Errors
    /// The inputs do not fit, or an operation fails.
    pub fn call<I: Tree, O: Tree>(&self, inputs: I) -> Result<O> {
        self.call_entry("forward", inputs)
    }

    /// Runs an entry graph on the host, with inputs of the structure that it was traced with.
    ///
    /// # Errors
    /// The inputs do not fit, or an operation fails.
    pub fn call_entry<I: Tree, O: Tree>(&self, entry: &str, inputs: I) -> Result<O> {
        let mut leaves = Vec::new();
        let spec = inputs.flatten("args", &mut leaves)?;
        let values: Vec<Tensor> = leaves
            .iter()
            .map(TracedTensor::value)
            .collect::<Result<_>>()?;
        let arguments = match &spec {
            TreeSpec::Tuple(items) => items.clone(),
            TreeSpec::NamedTuple(_, fields) => {
                fields.iter().map(|(_, item)| item.clone()).collect()
            }
            other => vec![other.clone()],
        };
        let build = |tree: &TreeSpec| Item::build(tree, &values, &Default::default());
        let arguments: Vec<Item> = arguments.iter().map(build).collect::<Result<_>>()?;
        self.run(entry, &arguments)
    }

    /// Runs an entry graph on the host, with one item for each argument.
    pub(super) fn run<O: Tree>(&self, entry: &str, arguments: &[Item]) -> Result<O> {
        let graph = self.graph(entry)?;
        let inputs = inputs(graph, &self.module, arguments)?;
        let outputs = interp::run(graph, &self.module.weights, &inputs)?;
        let outputs: Vec<TracedTensor> = outputs.into_iter().map(TracedTensor::from).collect();
        let default_tree = graph.default_outputs();
        let tree = graph.output_tree.as_ref().unwrap_or(&default_tree);
        O::rebuild(&bind_sizes(tree, graph, &inputs)?, &outputs, "output")
    }
}

/// Replaces the sizes in the output tree by numbers.
fn bind_sizes(tree: &TreeSpec, graph: &Graph, inputs: &[Tensor]) -> Result<TreeSpec> {
    let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
    let bindings = graph.bind(&shapes)?;
    tree.map_sizes(&mut |size| {
        let number = ir::TreeConstant::Number(size.eval(&bindings)?.into());
        Ok(TreeSpec::Constant(number))
    })
}
