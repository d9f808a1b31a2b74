//! States: attributes that methods set and weights that they write. A graph reads states as inputs and returns them as
//! outputs.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::archive::Pickled;
use crate::error::{Error, Result};
use crate::ir::{Graph, ModuleState, NamedTree, TreeConstant, TreeSpec, ValueId};
use crate::scalar::Scalar;
use crate::trace::program::InputSpec;
use crate::trace::script::ast::TypeExpr;
use crate::trace::weight_states::{make_state_inputs, weight_state};

use super::assigned::attributes_set;
use super::datum::{Datum, Instance};
use super::mutable_cell::MutableCell;
use super::object::join_path;
use super::signature::input_spec_of;
use super::tensor::{Storage, StorageOrigin};
use super::{Importer, Shared};

/// States that one graph reads and writes.
#[derive(Default)]
pub struct GraphStates {
    /// States that were read: their structure in terms of inputs, and the values before the call.
    pub reads: Vec<(NamedTree, Datum)>,
    /// Attributes that were set: path, object and name, in order.
    writes: Vec<(String, Rc<Instance>, String)>,
}

impl Importer<'_> {
    /// True if a method of the object's class sets the attribute. Its value may then outlive a call.
    fn is_state(&mut self, instance: &Instance, name: &str) -> Result<bool> {
        let script = self.script;
        if let Some(set_names) = self.shared.attributes_set.get(&*instance.class) {
            return Ok(set_names.contains(name));
        }
        let mut set_names = BTreeSet::new();
        for method in &script.class(&instance.class)?.methods {
            attributes_set(&method.body, &mut set_names);
        }
        let is_set = set_names.contains(name);
        let class = instance.class.to_string();
        self.shared.attributes_set.insert(class, set_names);
        Ok(is_set)
    }

    /// Returns the value that an attribute has before the call, whose tensors are new inputs of the graph; none if the
    /// attribute is not a state. `value` is the attribute's value in the archive.
    pub(super) fn read_state(
        &mut self,
        instance: &Instance,
        name: &str,
        value: &Pickled,
    ) -> Result<Option<Datum>> {
        if !self.is_state(instance, name)? {
            return Ok(None);
        }
        let path = join_path(&instance.path, name);
        if !self.declare_state(&path, value) {
            return Ok(None);
        }
        let example = match self.examples.get(&path) {
            Some(example) => example.clone(),
            None => input_spec_of(value)?,
        };
        let sizes = self.sizes.clone();
        let input_name = path.replace('.', "_");
        let (datum, tree) = self.input(&input_name, &TypeExpr::Any, &example, &sizes)?;
        let read = NamedTree { name: path, tree };
        self.states.reads.push((read, datum.clone()));
        Ok(Some(datum))
    }

    /// Sets an attribute of an object of the archive, which outlives the call.
    pub(super) fn write_state(
        &mut self,
        instance: &Rc<Instance>,
        name: &str,
        value: Datum,
    ) -> Result<()> {
        let path = join_path(&instance.path, name);
        let archived = instance
            .pickled
            .as_ref()
            .and_then(|object| object.get(name));
        let is_state = self.is_state(instance, name)?
            && archived.is_some_and(|archived| self.declare_state(&path, archived));
        if !is_state {
            let help =
                "states are attributes that hold tensors, numbers, strings, tuples and lists";
            let message = format!("the module changes its attribute {path}");
            self.unsupported(Error::unsupported(message).help(help));
        } else if !self.states.writes.iter().any(|(known, ..)| *known == path) {
            let write = (path, instance.clone(), name.to_string());
            self.states.writes.push(write);
        }
        if self.scopes.depth() > 0 {
            // The value before the region must be known, because paths that do not set the attribute keep it.
            self.instance_attribute(instance, name)?;
        }
        let cell = MutableCell::Attribute(instance.clone(), name.to_string());
        self.record_change(cell.clone())?;
        cell.set(value);
        Ok(())
    }

    /// Declares a state of the module, with the value that the archive holds. Returns false if a state cannot hold such a
    /// value.
    fn declare_state(&mut self, path: &str, value: &Pickled) -> bool {
        if self.shared.states.iter().any(|state| state.name == path) {
            return true;
        }
        let mut tensors = Vec::new();
        let Some(initial) = initial_tree(value, path, &mut tensors) else {
            return false;
        };
        let weights = tensors.iter().map(|(name, _)| name.clone()).collect();
        for (name, record) in tensors {
            self.shared.records.insert(name, record);
        }
        self.shared.states.push(ModuleState {
            name: path.to_string(),
            initial,
            weights,
        });
        true
    }

    /// Returns the states that the graph reads, in terms of its last inputs, and those that it writes, in terms of outputs
    /// added after those of the result.
    pub(super) fn state_trees(
        &mut self,
        outputs: &mut Vec<ValueId>,
    ) -> Result<(Vec<NamedTree>, Vec<NamedTree>)> {
        let states = std::mem::take(&mut self.states);
        let mut writes = Vec::new();
        for (path, instance, name) in &states.writes {
            let value = instance.attributes.borrow().get(name).cloned();
            let missing = || Error::internal("an attribute that was set has no value");
            let value = value.ok_or_else(missing)?;
            let tree = self.output_tree(&value, outputs)?;
            writes.push((path.clone(), tree));
        }
        for (read, value) in &states.reads {
            let is_set = writes.iter().any(|(path, _)| *path == read.name);
            if !is_set && was_written(value) {
                writes.push((read.name.clone(), self.output_tree(value, outputs)?));
            }
        }
        for (name, storage) in self.written_weights() {
            let value = self.storage_value(&storage)?;
            outputs.push(self.scopes.capture(value)?);
            writes.push((name.clone(), TreeSpec::Tensor(outputs.len() - 1)));
            self.shared.declare_weight(&name);
        }
        let reads = states.reads.into_iter().map(|(read, _)| read).collect();
        let writes = writes.into_iter();
        let writes = writes.map(|(name, tree)| NamedTree { name, tree });
        Ok((reads, writes.collect()))
    }
}

impl Importer<'_> {
    /// Weights that were written in place, by name.
    fn written_weights(&self) -> BTreeMap<String, Rc<Storage>> {
        let storages = self.tensors.values().map(|tensor| tensor.storage());
        let written = storages.filter(|storage| storage.state.borrow().version > 0);
        let named = written.filter_map(|storage| match &storage.origin {
            StorageOrigin::Weight(name) => Some((name.clone(), storage.clone())),
            StorageOrigin::Local => None,
        });
        named.collect()
    }
}

impl Shared {
    /// Declares a written weight as a state under the weight's name.
    pub(super) fn declare_weight(&mut self, name: &str) {
        if !self.states.iter().any(|state| state.name == name) {
            self.states.push(weight_state(name));
        }
    }

    /// Turns weights of the graph into inputs if some method writes them, since all methods share the states, or if the
    /// caller gives examples of them.
    pub(super) fn make_state_inputs(
        &mut self,
        graph: &mut Graph,
        examples: &BTreeMap<String, InputSpec>,
    ) {
        let is_state = |name: &str| {
            let mut states = self.states.iter();
            examples.contains_key(name) || states.any(|state| state.name == name)
        };
        for name in make_state_inputs(graph, is_state) {
            self.declare_weight(&name);
        }
    }
}

/// True if a tensor in the value was written in place.
fn was_written(value: &Datum) -> bool {
    match value {
        Datum::Tensor(tensor) => tensor.storage().state.borrow().version > 0,
        other => other.items().iter().flatten().any(was_written),
    }
}

/// Tensors of the archive by name.
type NamedRecords = Vec<(String, std::sync::Arc<crate::archive::TensorRecord>)>;

/// The value of a state before the first call; none if a state cannot hold it. Adds the tensors in it to `tensors`,
/// named by their paths.
fn initial_tree(value: &Pickled, path: &str, tensors: &mut NamedRecords) -> Option<TreeSpec> {
    let mut all = |items: &[Pickled]| {
        let numbered = items.iter().enumerate();
        numbered
            .map(|(index, item)| initial_tree(item, &join_path(path, &index.to_string()), tensors))
            .collect::<Option<Vec<TreeSpec>>>()
    };
    let number = |scalar: Scalar| Some(TreeSpec::Constant(TreeConstant::Number(scalar)));
    match value {
        Pickled::None => Some(TreeSpec::Constant(TreeConstant::None)),
        Pickled::Bool(value) => number(Scalar::Bool(*value)),
        Pickled::Int(value) => number(Scalar::Int(*value)),
        Pickled::Float(value) => number(Scalar::Float(*value)),
        Pickled::Str(text) => Some(TreeSpec::Constant(TreeConstant::Str(text.to_string()))),
        Pickled::Tuple(items) => all(items).map(TreeSpec::Tuple),
        Pickled::List(list) => all(&list.items).map(TreeSpec::List),
        Pickled::Tensor(record) => {
            tensors.push((path.to_string(), record.clone()));
            Some(TreeSpec::Tensor(tensors.len() - 1))
        }
        Pickled::Device(_) | Pickled::Dict(_) | Pickled::Object(_) | Pickled::Unsupported(_) => {
            None
        }
    }
}
