//! States of a session: variables of a model that keep their values between calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::CompiledGraph;
use crate::error::{Error, Result};
use crate::gpu::{self, FreeBuffers};
use crate::ir::{GraphModule, NamedTree};
use crate::item::{Item, initial_state};
use crate::scalar::Scalar;
use crate::trace::program::InputSpec;

/// Initial and current values of states, by name.
#[derive(Clone, Default)]
pub(super) struct SessionStates {
    initial: BTreeMap<String, Item>,
    current: BTreeMap<String, Item>,
}

impl SessionStates {
    /// Adds the unknown states of a module and returns their names.
    pub(super) fn add_states(&mut self, module: &GraphModule) -> Result<Vec<String>> {
        let mut new = Vec::new();
        for state in &module.states {
            if !self.initial.contains_key(&state.name) {
                let value = initial_state(state, &module.weights)?;
                self.current.insert(state.name.clone(), value.clone());
                self.initial.insert(state.name.clone(), value);
                new.push(state.name.clone());
            }
        }
        Ok(new)
    }

    /// The current value of a state. Fails if there is no such state.
    pub(super) fn get(&self, name: &str) -> Result<Item> {
        let found = self.current.get(name).cloned();
        found.ok_or_else(|| {
            let names: Vec<&str> = self.current.keys().map(String::as_str).collect();
            let error = Error::input(format!("there is no state {name}"));
            match names.as_slice() {
                [] => error.help("the model has no states"),
                names => error.help(format!("its states are {}", names.join(", "))),
            }
        })
    }

    /// # Errors
    /// States were on a device that is lost. The message lists their names.
    pub(super) fn check_alive(&self) -> Result<()> {
        let states = self.current.iter();
        let lost = states.filter(|(_, value)| value.tensors().into_iter().any(gpu::is_lost));
        let lost: Vec<&str> = lost.map(|(name, _)| name.as_str()).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let message = format!(
            "the device was lost, and with it the values of states: {}",
            lost.join(", ")
        );
        Err(Error::device(message)
            .help("call Session::reset, or Session::set_state with values that were saved"))
    }

    /// Buffers on a device that only the current values of some states use, which are replaced next.
    pub(super) fn buffers_of(&self, replaced: &[NamedTree]) -> FreeBuffers {
        let values = replaced
            .iter()
            .filter_map(|state| self.current.get(&state.name));
        FreeBuffers::of(values.flat_map(Item::tensors))
    }

    /// Names and current values, in order of the names.
    pub(super) fn values(&self) -> impl Iterator<Item = (&String, &Item)> {
        self.current.iter()
    }

    /// Replaces the current values of states.
    pub(super) fn set(&mut self, values: Vec<(String, Item)>) {
        self.current.extend(values);
    }

    /// Resets every state to its initial value.
    pub(super) fn reset(&mut self) {
        self.current.clone_from(&self.initial);
    }

    /// Import specifications for the current states. Numbers are constants, except in the states that `varying` names:
    /// these numbers become inputs of the graph.
    pub(super) fn example_specs(&self, varying: &[String]) -> BTreeMap<String, InputSpec> {
        let spec = |name: &String, item: &Item| match item {
            Item::Number(number) if varying.contains(name) => InputSpec::Number(number.dtype()),
            other => InputSpec::from(other),
        };
        let current = self.current.iter();
        current
            .map(|(name, item)| (name.clone(), spec(name, item)))
            .collect()
    }

    /// States that hold integers for which several graphs were compiled, none of them for the current number.
    pub(super) fn varying_numbers(&self, graphs: &[Arc<CompiledGraph>]) -> Vec<String> {
        let varies = |(name, item): (&String, &Item)| {
            let Item::Number(Scalar::Int(number)) = item else {
                return None;
            };
            let required = graphs
                .iter()
                .filter_map(|compiled_graph| compiled_graph.required_state_number(name));
            let required: BTreeSet<i64> = required.collect();
            (required.len() >= 2 && !required.contains(number)).then(|| name.clone())
        };
        self.current.iter().filter_map(varies).collect()
    }
}
