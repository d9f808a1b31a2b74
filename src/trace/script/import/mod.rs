//! Import of programs as modules. The program is run once on symbolic inputs; the tensor operations that it does become a
//! graph.
//!
//! Numbers, lists, strings and conditions on sizes are evaluated during import (`number`, `builtins`). Modules and functions
//! are inlined (`call`). Writes become new values (`tensor`, `view`). Conditions and loops that depend on tensors become
//! regions (`control`, `loops`). Tensors given as inputs are never changed: a write to one changes its value for the rest of
//! the program only.
//!
//! A `Datum` is a value of the program during import. A number is *known* if import computes its value, possibly as an
//! expression in symbolic sizes. It is *dynamic* if only the running graph computes its value. A *state* is an
//! attribute or a weight that some method changes, so that its value outlives a call.

mod assigned;
mod budgeted;
mod builtins;
mod call;
mod control;
mod custom;
mod datum;
mod evaluate;
mod hooks;
mod import_errors;
mod loops;
mod merge;
mod mutable_cell;
mod number;
mod object;
mod operator;
mod overload;
mod packed;
mod parameters;
mod scope;
mod signature;
mod state;
mod symbolic_eval;
mod tensor;
mod tree;
mod upgrade;
mod view;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use super::module_tensors::parameter_records;
use crate::archive::TensorRecord;
use crate::aten::Generator;
use crate::budget::Budget;
use crate::error::{Error, Result, SourcePlace};
use crate::ir::{Graph, GraphModule, ModuleState, TreeSpec, ValueId};
use crate::pass::dce;
use crate::trace::module_calls::ModuleCalls;
use crate::trace::program::{EntryMethod, ImportOptions, InputSpec};
use crate::trace::rng_counters::carry_rng_counters;
use crate::trace::scope_stack::ScopeStack;
use crate::trace::script::Script;
use crate::trace::symbolic_sizes::InputSizes;

pub use parameters::parameters;
pub(crate) use signature::input_spec_of;

use control::RaisedException;
use datum::{ChangedContainers, Datum, Instance};
use import_errors::ImportErrors;
use packed::PackedTensors;
use scope::ScopeData;
use state::GraphStates;
use tensor::TensorRef;

/// Imports the entry methods of a program as graphs over its weights.
///
/// Everything in the program that is not supported is listed in one error. Weights are read when they are used; see
/// [`crate::tensor::Tensor::load`].
pub fn import(script: &dyn Script, options: &ImportOptions) -> Result<GraphModule> {
    let budget = script.new_budget();
    budget.scope(|| import_within(script, options, &budget))
}

fn import_within(
    script: &dyn Script,
    options: &ImportOptions,
    budget: &Budget,
) -> Result<GraphModule> {
    let mut shared = Shared::default();
    let mut module = GraphModule::default();
    let forward = [EntryMethod::default()];
    let entries = match options.entries.as_slice() {
        [] => &forward,
        entries => entries,
    };
    for entry in entries {
        let importer = Importer::new(script, entry, options, &mut shared, budget);
        module.graphs.push(importer.run(entry)?);
    }
    for graph in &mut module.graphs {
        shared.make_state_inputs(graph, &options.states);
    }
    let used = module.graphs.iter().flat_map(Graph::weights);
    let used = used.map(|(name, _)| name);
    let declared = shared.states.iter().flat_map(|state| &state.weights);
    let parameters = parameter_records(script);
    for name in used.chain(declared.map(String::as_str)) {
        if let Some(record) = shared.records.get(name) {
            let tensor = script.open_tensor(record, budget)?;
            module.weights.insert(name.to_string(), tensor);
            if parameters.contains(&**record) {
                module.parameters.insert(name.to_string());
            }
        }
    }
    module.states = shared.states;
    Ok(module)
}

/// Data that all graphs of a module share.
#[derive(Default)]
struct Shared {
    /// Name of each weight that was read so far.
    names: HashMap<TensorRecord, String>,
    /// The program's tensor for each name of a weight.
    records: HashMap<String, Arc<TensorRecord>>,
    /// States that the graphs read or write.
    states: Vec<ModuleState>,
    /// Names of the attributes that the methods of a class set, by the class's qualified name.
    attributes_set: HashMap<String, BTreeSet<String>>,
}

/// The import of one method as a graph.
struct Importer<'a> {
    script: &'a dyn Script,
    shared: &'a mut Shared,
    /// The sizes that become symbols.
    sizes: InputSizes,
    /// Example values of states by path, for which the graph is made.
    examples: &'a BTreeMap<String, InputSpec>,
    /// The graph under construction, and the bodies of its open regions.
    scopes: ScopeStack<ScopeData>,
    /// States that this graph reads and writes.
    states: GraphStates,
    /// Tensors of packed sequences so far.
    packed: PackedTensors,
    /// Weights of this graph.
    tensors: HashMap<TensorRecord, TensorRef>,
    /// Modules and other objects of the program, by the address of the pickled object.
    objects: HashMap<usize, Rc<Instance>>,
    /// Module call and source line of the statement in progress.
    place: SourcePlace,
    /// Calls of the program's modules so far.
    module_calls: ModuleCalls,
    /// Unsupported parts of the program so far.
    errors: ImportErrors,
    /// Lists, dicts and objects that the program changed.
    changed_containers: ChangedContainers,
    /// Calls, blocks and expressions in progress, each within the previous one.
    depth: usize,
    /// Budget of the import.
    budget: Budget,
    /// The exception that the program raised; none if it raised none.
    raised: Option<RaisedException>,
    /// Seed and counter for the calls that draw random numbers.
    generator: Generator,
}

impl<'a> Importer<'a> {
    fn new(
        script: &'a dyn Script,
        entry: &EntryMethod,
        options: &'a ImportOptions,
        shared: &'a mut Shared,
        budget: &Budget,
    ) -> Importer<'a> {
        Importer {
            script,
            shared,
            sizes: InputSizes::new(options.sizes.clone()),
            examples: &options.states,
            scopes: ScopeStack::new(&entry.method),
            states: GraphStates::default(),
            packed: PackedTensors::default(),
            tensors: HashMap::new(),
            objects: HashMap::new(),
            place: SourcePlace::default(),
            module_calls: ModuleCalls::default(),
            errors: ImportErrors::default(),
            changed_containers: ChangedContainers::default(),
            depth: 0,
            budget: budget.clone(),
            raised: None,
            generator: Generator::default(),
        }
    }

    /// Runs the method and returns its graph, or all errors.
    fn run(mut self, entry: &EntryMethod) -> Result<Graph> {
        let result = self.entry(entry);
        let place = self.place.clone();
        let result = result.map_err(|error| error.at_place(&place));
        let (outputs, input_trees, output_tree) = self.errors.finish(result)?;
        let builder = Rc::try_unwrap(self.scopes.root.builder)
            .map_err(|_| Error::internal("a graph is still under construction"))?;
        let graph = builder.finish(&outputs, input_trees, Some(output_tree))?;
        dce(&carry_rng_counters(graph, &[])?)
    }

    /// Runs the method. Returns the graph's outputs, and the structure of the arguments and of the result in terms of
    /// inputs and outputs.
    fn entry(
        &mut self,
        entry: &EntryMethod,
    ) -> Result<(Vec<ValueId>, Vec<crate::ir::NamedTree>, TreeSpec)> {
        let root = self.root_module()?;
        let (function, arguments, trees) = self.signature(&root, entry)?;
        let result = self.call_with_hooks(&root, function, arguments)?;
        self.charge_walk(&result)?;
        self.place = SourcePlace::default();
        if result.is_unknown() {
            return Ok((Vec::new(), trees, TreeSpec::Tuple(Vec::new())));
        }
        let mut outputs = Vec::new();
        let tree = self.output_tree(&result, &mut outputs)?;
        let (reads, writes) = self.state_trees(&mut outputs)?;
        self.scopes.root.builder.set_states(reads, writes);
        Ok((outputs, trees, tree))
    }

    /// Records an error about something unsupported. Returns a placeholder for its result.
    fn unsupported(&mut self, error: Error) -> Datum {
        let place = self.place.clone();
        self.errors.add(error, &place);
        Datum::Unknown
    }
}
