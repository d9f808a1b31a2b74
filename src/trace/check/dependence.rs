//! Data dependence of outputs on inputs.

use std::collections::HashSet;

use super::{Finding, Id};
use crate::ir::{Argument, Graph, Op, Region, TreeSpec, ValueId};

/// Returns a finding for each output that depends neither on an input's elements nor on its sizes.
pub fn independent_outputs(graph: &Graph) -> Vec<Finding> {
    if graph.inputs.is_empty() {
        return Vec::new();
    }
    let depends = dependence(
        graph,
        &vec![true; graph.inputs.len()],
        DependenceKind::ElementsAndSizes,
    );
    let outputs = graph.outputs.iter().zip(depends).enumerate();
    outputs
        .filter(|(_, (_, depends))| !depends)
        .map(|(index, (id, _))| finding(graph, index, *id))
        .collect()
}

/// A finding about the output `index`, whose value is `id`.
fn finding(graph: &Graph, index: usize, id: ValueId) -> Finding {
    let name = &graph.value(id).name;
    let place = graph.nodes.iter().find(|node| node.results.contains(&id));
    let place = place.map(|node| node.place.clone()).unwrap_or_default();
    let path = graph
        .output_tree
        .as_ref()
        .and_then(|tree| output_path(tree, index));
    let path = path.unwrap_or_else(|| format!("[{index}]"));
    let message = format!("output{path} ({name}) does not depend on any input");
    Finding::new(Id::NoDependence, message)
        .at(&place)
        .with_value_name(name)
}

/// Path within the result of the tensor with index `wanted`; none if the structure does not contain it.
fn output_path(tree: &TreeSpec, wanted: usize) -> Option<String> {
    let inner = |key: String, tree| Some(key + &output_path(tree, wanted)?);
    match tree {
        TreeSpec::Tensor(index) | TreeSpec::Number(index) => (*index == wanted).then(String::new),
        TreeSpec::Constant(_) | TreeSpec::Size(_) => None,
        TreeSpec::Tuple(items) | TreeSpec::List(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| inner(format!("[{index}]"), item))
        }
        TreeSpec::Dict(items) => items
            .iter()
            .find_map(|(key, item)| inner(format!("[{key:?}]"), item)),
        TreeSpec::NamedTuple(_, items) => items
            .iter()
            .find_map(|(key, item)| inner(format!(".{key}"), item)),
    }
}

/// The properties of inputs that make a value depend on them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum DependenceKind {
    /// Elements of the chosen inputs.
    Elements,
    /// Elements of the chosen inputs, and sizes of any input.
    ElementsAndSizes,
}

/// Returns for each output whether it depends on the chosen inputs: those whose flag in `inputs` is set.
pub fn dependence(graph: &Graph, inputs: &[bool], kind: DependenceKind) -> Vec<bool> {
    let by_sizes = kind == DependenceKind::ElementsAndSizes;
    let chosen = graph
        .inputs
        .iter()
        .zip(inputs)
        .filter(|(_, is_chosen)| **is_chosen);
    let mut dependent: HashSet<ValueId> = chosen.map(|(id, _)| *id).collect();
    for node in &graph.nodes {
        let arguments: Vec<bool> = node
            .arguments
            .iter()
            .map(|argument| argument_depends(argument, &dependent, by_sizes))
            .collect();
        let results = match &node.op {
            Op::Region(region) => region_dependence(region, &arguments, kind),
            _ => vec![arguments.contains(&true); node.results.len()],
        };
        let results = node.results.iter().zip(results);
        dependent.extend(
            results
                .filter(|(id, depends)| *depends || by_sizes && has_symbols(graph, **id))
                .map(|(id, _)| *id),
        );
    }
    graph
        .outputs
        .iter()
        .map(|id| dependent.contains(id))
        .collect()
}

fn argument_depends(argument: &Argument, dependent: &HashSet<ValueId>, by_sizes: bool) -> bool {
    match argument {
        Argument::Value(id) => dependent.contains(id),
        Argument::Size(_) => by_sizes,
        Argument::List(items) => items
            .iter()
            .any(|item| argument_depends(item, dependent, by_sizes)),
        _ => false,
    }
}

/// True if the value's shape has symbols, which are sizes of inputs.
fn has_symbols(graph: &Graph, id: ValueId) -> bool {
    graph
        .ty(id)
        .shape
        .iter()
        .any(|dim| dim.as_const().is_none())
}

/// Returns for each result of a region whether it depends on the arguments whose flag is set.
fn region_dependence(region: &Region, arguments: &[bool], kind: DependenceKind) -> Vec<bool> {
    match (region, arguments) {
        (Region::Call { body }, inputs) => dependence(body, inputs, kind),
        (Region::If { then, otherwise }, [condition, inputs @ ..]) => {
            let [then, otherwise] = [then, otherwise].map(|body| dependence(body, inputs, kind));
            then.iter()
                .zip(&otherwise)
                .map(|(a, b)| *condition || *a || *b)
                .collect()
        }
        (Region::Loop { body, carried }, [trips, condition, inputs @ ..]) => {
            loop_dependence(body, *carried, *trips || *condition, inputs, kind)
        }
        _ => Vec::new(),
    }
}

/// Propagates dependence through a loop's carried values until it no longer changes. `trips_depend` is true if the trip
/// count or the first condition depends on the chosen inputs.
fn loop_dependence(
    body: &Graph,
    carried: usize,
    trips_depend: bool,
    inputs: &[bool],
    kind: DependenceKind,
) -> Vec<bool> {
    let mut state: Vec<bool> = [&[trips_depend], inputs].concat();
    loop {
        let results = dependence(body, &state, kind);
        let next_trip_depends = trips_depend || results.first() == Some(&true);
        let mut next = state.clone();
        for (slot, depends) in next
            .iter_mut()
            .skip(1)
            .zip(results.iter().skip(1))
            .take(carried)
        {
            *slot |= *depends || next_trip_depends;
        }
        if next == state {
            return state.into_iter().skip(1).take(carried).collect();
        }
        state = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        let graph: Graph = text.parse().unwrap();
        let found = independent_outputs(&graph);
        found.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn sizes_count_as_dependence() {
        let text = "graph f(x: f32[B]) -> (f32[B], f32[2], f32[B]) {\n  size B = 3\n  \
                    result {\"a\": #0, \"b\": (#1, #2)}\n  \
                    a = full 1.0, dtype=f32, shape=[B]\n  b = full 1.0, dtype=f32, shape=[2]\n  \
                    c = mul x, 2.0\n  return a, b, c\n}";
        assert_eq!(
            messages(text),
            ["output[\"b\"][0] (b) does not depend on any input"]
        );
    }

    #[test]
    fn branches_and_loops_propagate_dependence() {
        let text = "graph f(x: f32[], c: bool[]) -> (f32[], f32[], f32[]) {\n  \
            k = full 1.0, dtype=f32, shape=[]\n  yes = full true, dtype=bool, shape=[]\n  \
            a: f32[] = if c, k {\n    graph t(p: f32[]) -> f32[] {\n      return p\n    }\n    \
            graph o(p: f32[]) -> f32[] {\n      return p\n    }\n  }\n  \
            b: f32[] = if yes, k {\n    graph t(p: f32[]) -> f32[] {\n      return p\n    }\n    \
            graph o(p: f32[]) -> f32[] {\n      return p\n    }\n  }\n  \
            d: f32[], e: f32[] = loop 3, yes, k, k, x, carried=2 {\n    \
            graph body(i: i64[], p: f32[], q: f32[], z: f32[]) -> (bool[], f32[], f32[]) {\n      \
            yes = full true, dtype=bool, shape=[]\n      s = add p, q\n      t = add q, z\n      \
            return yes, s, t\n    }\n  }\n  return a, b, d\n}";
        assert_eq!(
            messages(text),
            ["output[1] (b) does not depend on any input"]
        );
    }
}
