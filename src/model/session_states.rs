//! States of a session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{CompiledGraph, example_spec};
use crate::error::{Error, Result};
use crate::ir::GraphModule;
use crate::item::{Item, initial_state};
use crate::scalar::Scalar;
use crate::trace::torchscript::InputSpec;

/// Initial and current values of states, by name.
#[derive(Default)]
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

    pub(super) fn get(&self, name: &str) -> Result<Item> {
        let found = self.current.get(name).cloned();
        found.ok_or_else(|| Error::input(format!("there is no state {name}")))
    }

    pub(super) fn set(&mut self, values: Vec<(String, Item)>) {
        self.current.extend(values);
    }

    pub(super) fn reset(&mut self) {
        self.current.clone_from(&self.initial);
    }

    /// Import specifications for the current states. Varying states are numbers that the graph takes as inputs.
    pub(super) fn example_specs(&self, varying: &[String]) -> BTreeMap<String, InputSpec> {
        let spec = |name: &String, item: &Item| match item {
            Item::Number(number) if varying.contains(name) => InputSpec::Number(number.dtype()),
            other => example_spec(other),
        };
        let current = self.current.iter();
        current
            .map(|(name, item)| (name.clone(), spec(name, item)))
            .collect()
    }

    /// States that hold integers for which several graphs were compiled, none of them for the current number.
    pub(super) fn varying_numbers(&self, graphs: &[Arc<CompiledGraph>]) -> Vec<String> {
        let varies = |(name, item): (&String, &Item)| {
            let Item::Number(Scalar::Int(now)) = item else {
                return None;
            };
            let fixed = graphs
                .iter()
                .filter_map(|variant| variant.required_state_number(name));
            let fixed: BTreeSet<i64> = fixed.collect();
            (fixed.len() >= 2 && !fixed.contains(now)).then(|| name.clone())
        };
        self.current.iter().filter_map(varies).collect()
    }
}
