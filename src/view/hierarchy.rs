//! Boxes of a picture: graphs, modules, regions with their bodies, and within them inputs, operators and outputs.

use std::collections::HashMap;

use crate::ir::{Graph, Node, Op, Region, ValueId};

/// The boxes of the graphs of a module in preorder: a box stands before the boxes that it contains.
pub(super) struct Hierarchy<'a> {
    /// All graphs: entry graphs and bodies of regions.
    pub(super) graphs: Vec<&'a Graph>,
    pub(super) boxes: Vec<GraphBox>,
    /// Reads of values by boxes, in execution order. Weights have no box: their reads are not among them.
    pub(super) reads: Vec<ValueRead>,
}

/// A box of the picture.
#[derive(Clone, Debug)]
pub(super) struct GraphBox {
    pub(super) kind: BoxKind,
    /// The box that contains this one.
    pub(super) parent: Option<usize>,
    pub(super) children: Vec<usize>,
    /// Name of the graph, module, body, input or output. For an operator, its name without namespace and overload, or the
    /// name of its module if that contains nothing else.
    pub(super) label: String,
    /// Path of the module in its graph, with call numbers; empty outside of modules.
    pub(super) module: String,
    /// Index of the graph in [`Hierarchy::graphs`] to which the box belongs.
    pub(super) graph: usize,
}

/// The thing that a box stands for. Indices are those of its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoxKind {
    /// An entry graph.
    Graph,
    /// A module, or several nested ones of which each contains only the next.
    Module,
    /// A node with control flow: contains its bodies.
    Region(usize),
    /// A body of the region around it.
    Body,
    /// An input of a graph or body.
    Input(usize),
    /// A node, or a module that contains only this node.
    Operator(usize),
    /// An output of a graph or body.
    Output(usize),
}

/// A read of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueRead {
    /// Index of the graph.
    pub(super) graph: usize,
    pub(super) value: ValueId,
    /// Box of the input or node that defines the value.
    pub(super) source: usize,
    /// Box of the node or output that reads it.
    pub(super) target: usize,
}

impl GraphBox {
    /// True for boxes that may contain others.
    pub(super) fn is_container(&self) -> bool {
        use BoxKind::{Body, Graph, Module, Region};
        matches!(self.kind, Graph | Module | Region(_) | Body)
    }
}

impl<'a> Hierarchy<'a> {
    /// The hierarchy of some entry graphs.
    pub(super) fn of(graphs: impl IntoIterator<Item = &'a Graph>) -> Hierarchy<'a> {
        let mut builder = HierarchyBuilder::default();
        for graph in graphs {
            builder.graph(graph, BoxKind::Graph, &graph.name, None);
        }
        builder.join_single_boxes();
        builder.finish()
    }

    /// The node of an operator or region.
    pub(super) fn node(&self, of: usize) -> Option<&'a Node> {
        let of = &self.boxes[of];
        match of.kind {
            BoxKind::Operator(node) | BoxKind::Region(node) => {
                self.graphs[of.graph].nodes.get(node)
            }
            _ => None,
        }
    }

    /// The boxes around a box, from the innermost outwards.
    pub(super) fn ancestors(&self, of: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.boxes[of].parent, |inner| self.boxes[*inner].parent)
    }

    /// The box around two boxes that contains no other such box. Both belong to one graph.
    pub(super) fn common_parent(&self, a: usize, b: usize) -> Option<usize> {
        let outer: Vec<usize> = self.ancestors(b).collect();
        self.ancestors(a).find(|inner| outer.contains(inner))
    }
}

/// Makes boxes in the order in which the graphs name them. Their final numbers are those of a preorder.
#[derive(Default)]
struct HierarchyBuilder<'a> {
    graphs: Vec<&'a Graph>,
    boxes: Vec<GraphBox>,
    reads: Vec<ValueRead>,
    roots: Vec<usize>,
    /// Boxes of modules by graph and path.
    modules: HashMap<(usize, &'a str), usize>,
}

impl<'a> HierarchyBuilder<'a> {
    fn push(&mut self, kind: BoxKind, parent: Option<usize>, label: &str, module: &str) -> usize {
        let index = self.boxes.len();
        match parent {
            Some(parent) => self.boxes[parent].children.push(index),
            None => self.roots.push(index),
        }
        self.boxes.push(GraphBox {
            kind,
            parent,
            children: Vec::new(),
            label: label.to_string(),
            module: module.to_string(),
            graph: 0,
        });
        index
    }

    fn graph(&mut self, graph: &'a Graph, kind: BoxKind, label: &str, parent: Option<usize>) {
        let number = self.graphs.len();
        self.graphs.push(graph);
        let outer = self.push(kind, parent, label, "");
        self.boxes[outer].graph = number;
        let mut sources = HashMap::new();
        for (index, id) in graph.inputs.iter().enumerate() {
            let input = self.push(
                BoxKind::Input(index),
                Some(outer),
                &graph.value(*id).name,
                "",
            );
            self.boxes[input].graph = number;
            sources.insert(*id, input);
        }
        for (index, node) in graph.nodes.iter().enumerate() {
            let module = self.module(number, outer, &node.place.module);
            let own = self.node(index, node, module, number);
            self.reads_of(number, &node.operands(), own, &sources);
            sources.extend(node.results.iter().map(|id| (*id, own)));
        }
        for (index, id) in graph.outputs.iter().enumerate() {
            let output = self.push(
                BoxKind::Output(index),
                Some(outer),
                &output_name(graph, index),
                "",
            );
            self.boxes[output].graph = number;
            self.reads_of(number, &[*id], output, &sources);
        }
    }

    /// The box of a node, with boxes for the bodies of a region.
    fn node(&mut self, index: usize, node: &'a Node, parent: usize, graph: usize) -> usize {
        let kind = match node.op {
            Op::Region(_) => BoxKind::Region(index),
            _ => BoxKind::Operator(index),
        };
        let own = self.push(kind, Some(parent), node.op.short_name(), &node.place.module);
        self.boxes[own].graph = graph;
        let labels = match &node.op {
            Op::Region(region) => body_labels(region),
            _ => &[],
        };
        for (body, label) in node.bodies().into_iter().zip(labels) {
            self.graph(body, BoxKind::Body, label, Some(own));
        }
        own
    }

    fn reads_of(
        &mut self,
        graph: usize,
        values: &[ValueId],
        target: usize,
        sources: &HashMap<ValueId, usize>,
    ) {
        for value in values {
            let source = sources.get(value).copied();
            self.reads.extend(source.map(|source| ValueRead {
                graph,
                value: *value,
                source,
                target,
            }));
        }
    }

    /// The box of a module path in a graph whose box is `outer`.
    fn module(&mut self, graph: usize, outer: usize, path: &'a str) -> usize {
        if path.is_empty() {
            return outer;
        }
        if let Some(known) = self.modules.get(&(graph, path)) {
            return *known;
        }
        let mut parent = outer;
        let ends = path.match_indices('.').map(|(end, _)| end);
        for end in ends.chain([path.len()]) {
            let prefix = path.get(..end).unwrap_or(path);
            parent = match self.modules.get(&(graph, prefix)) {
                Some(known) => *known,
                None => self.new_module(graph, parent, prefix),
            };
        }
        parent
    }

    fn new_module(&mut self, graph: usize, parent: usize, path: &'a str) -> usize {
        let name = path.rsplit_once('.').map_or(path, |(_, name)| name);
        let own = self.push(BoxKind::Module, Some(parent), name, path);
        self.boxes[own].graph = graph;
        self.modules.insert((graph, path), own);
        own
    }

    /// Joins each module that contains only one module with that, and each that contains only one operator with that.
    fn join_single_boxes(&mut self) {
        // Inner modules follow outer ones.
        for index in (0..self.boxes.len()).rev() {
            let (kind, children) = (self.boxes[index].kind, &self.boxes[index].children);
            if let (BoxKind::Module, &[only]) = (kind, &children[..]) {
                match self.boxes[only].kind {
                    BoxKind::Module => self.join_module(index, only),
                    BoxKind::Operator(_) => self.join_operator(index, only),
                    _ => {}
                }
            }
        }
    }

    fn join_module(&mut self, outer: usize, inner: usize) {
        let children = std::mem::take(&mut self.boxes[inner].children);
        for child in &children {
            self.boxes[*child].parent = Some(outer);
        }
        let label = format!("{}.{}", self.boxes[outer].label, self.boxes[inner].label);
        let module = self.boxes[inner].module.clone();
        let own = &mut self.boxes[outer];
        (own.children, own.label, own.module) = (children, label, module);
    }

    /// Puts an operator in the place of its module, with the module's name.
    fn join_operator(&mut self, module: usize, operator: usize) {
        let (parent, label) = (self.boxes[module].parent, self.boxes[module].label.clone());
        let own = &mut self.boxes[operator];
        (own.parent, own.label) = (parent, label);
        if let Some(parent) = parent {
            let siblings = self.boxes[parent].children.iter_mut();
            siblings
                .filter(|child| **child == module)
                .for_each(|child| *child = operator);
        }
    }

    /// Numbers the boxes in preorder. Boxes that were joined into others are left out.
    fn finish(self) -> Hierarchy<'a> {
        let mut order = Vec::with_capacity(self.boxes.len());
        let mut open: Vec<usize> = self.roots.iter().rev().copied().collect();
        while let Some(index) = open.pop() {
            order.push(index);
            open.extend(self.boxes[index].children.iter().rev());
        }
        let mut numbers = vec![0; self.boxes.len()];
        for (number, index) in order.iter().enumerate() {
            numbers[*index] = number;
        }
        let boxes = order.iter().map(|index| {
            let mut own = self.boxes[*index].clone();
            own.parent = own.parent.map(|parent| numbers[parent]);
            own.children
                .iter_mut()
                .for_each(|child| *child = numbers[*child]);
            own
        });
        Hierarchy {
            boxes: boxes.collect(),
            reads: self
                .reads
                .iter()
                .map(|read| ValueRead {
                    source: numbers[read.source],
                    target: numbers[read.target],
                    ..*read
                })
                .collect(),
            graphs: self.graphs,
        }
    }
}

/// Labels of the bodies of a region.
fn body_labels(region: &Region) -> &'static [&'static str] {
    match region {
        Region::If { .. } => &["then", "else"],
        Region::Loop { .. } => &["body"],
        Region::Call { .. } => &["function"],
    }
}

/// Name of an output as users see it: its path in the result, `output`, or the state that it is written to.
fn output_name(graph: &Graph, index: usize) -> String {
    let results = graph.outputs.len()
        - graph
            .writes
            .iter()
            .map(|state| state.tree.tensors().len())
            .sum::<usize>();
    let leaves = match index.checked_sub(results) {
        None => graph
            .output_tree
            .iter()
            .flat_map(|tree| tree.leaves("output"))
            .collect::<Vec<_>>(),
        Some(_) => {
            let states = graph.writes.iter();
            let leaves = states.flat_map(|state| state.tree.leaves(&format!("new {}", state.name)));
            leaves.map(|(name, leaf)| (name, leaf + results)).collect()
        }
    };
    let named = leaves.into_iter().find(|(_, leaf)| *leaf == index);
    match (named, graph.outputs.len()) {
        (Some((name, _)), _) => name,
        (None, 1) => "output".to_string(),
        _ => format!("output.{index}"),
    }
}
