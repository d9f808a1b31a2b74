//! Places of nodes: the module whose code made a node, and the line of it.

use std::collections::{BTreeMap, HashMap};

use crate::archive::debug::is_library;
use crate::error::{Location, SourcePlace, without_call_numbers};

/// Path of nodes that PyTorch's own passes add.
const NO_MODULE: &str = "_empty_nn_module_stack";

/// The distinct places of a program's nodes. Statements have the index of their place as their offset.
#[derive(Debug, Default)]
pub struct NodePlaces {
    places: Vec<SourcePlace>,
    indices: HashMap<SourcePlace, usize>,
    /// Qualified names of the modules' classes by their paths.
    classes: BTreeMap<String, String>,
}

impl NodePlaces {
    /// The index of a node's place, from its metadata.
    pub fn of_node(&mut self, metadata: &BTreeMap<String, String>) -> usize {
        let stack = metadata.get("nn_module_stack").map_or("", String::as_str);
        let mut module = String::new();
        for entry in stack.split(';') {
            let mut parts = entry.splitn(3, ',');
            if let (Some(_), Some(path), Some(class)) = (parts.next(), parts.next(), parts.next())
                && !path.starts_with(NO_MODULE)
            {
                module = module_path(path);
                let known = self.classes.entry(without_call_numbers(&module));
                known.or_insert_with(|| class.to_string());
            }
        }
        let trace = metadata.get("stack_trace").map_or("", String::as_str);
        self.index(SourcePlace {
            module,
            location: user_location(trace),
        })
    }

    /// The place of an index.
    pub fn get(&self, index: usize) -> Option<&SourcePlace> {
        self.places.get(index)
    }

    /// The class of a module, if one of its nodes tells it.
    pub fn class(&self, path: &str) -> Option<&str> {
        self.classes.get(path).map(String::as_str)
    }

    /// The index of no place.
    pub fn nowhere(&mut self) -> usize {
        self.index(SourcePlace::default())
    }

    fn index(&mut self, place: SourcePlace) -> usize {
        let next = self.places.len();
        let index = *self.indices.entry(place.clone()).or_insert(next);
        if index == next {
            self.places.push(place);
        }
        index
    }
}

/// The path of a module call: `layers.0#1` for `L['self'].layers.0@1`, the second call.
fn module_path(path: &str) -> String {
    let path = path.strip_prefix("L['self']").unwrap_or(path);
    let path = path.strip_prefix("L__self__").unwrap_or(path);
    path.trim_start_matches('.').replace('@', "#")
}

/// The innermost frame of a Python traceback that is in a file, and in none of PyTorch. Code that `torch.fx` generated has a name
/// such as `<eval_with_key>.5`.
fn user_location(trace: &str) -> Option<Location> {
    let frames = trace.lines().rev().filter_map(|line| {
        let rest = line.trim_start().strip_prefix("File \"")?;
        let (file, rest) = rest.split_once("\", line ")?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        Some((file, digits.parse().ok()?))
    });
    let mut user = frames.filter(|(file, _)| !is_library(file) && !file.starts_with('<'));
    user.next().map(|(file, line)| Location::new(file, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_modules_and_lines() {
        let mut places = NodePlaces::default();
        let node = |stack: &str, trace: &str| {
            BTreeMap::from([
                ("nn_module_stack".to_string(), stack.to_string()),
                ("stack_trace".to_string(), trace.to_string()),
            ])
        };
        let stack = "L__self__,,net.Net;L__self___a,L['self'].a.0@1,torch.nn.modules.linear.Linear";
        let trace = "  File \"/home/u/net.py\", line 12, in forward\n    return self.a(x)\n  \
                     File \"/usr/lib/python3/site-packages/torch/nn/modules/linear.py\", line 134, in forward\n    return F.linear()";
        let index = places.of_node(&node(stack, trace));
        let place = places.get(index).unwrap();
        assert_eq!(place.module, "a.0#1");
        assert_eq!(place.location, Some(Location::new("/home/u/net.py", 12)));
        let generated =
            format!("{trace}\n  File \"<eval_with_key>.5\", line 10, in forward\n    cond = …");
        assert_eq!(places.of_node(&node(stack, &generated)), index);
        assert_eq!(places.class("a.0"), Some("torch.nn.modules.linear.Linear"));
        assert_eq!(places.class(""), Some("net.Net"));
        assert_eq!(places.of_node(&node(stack, trace)), index);
        assert_ne!(places.nowhere(), index);
    }
}
