use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dim::{Bindings, Dim};
use crate::error::{Error, Result, SourcePlace};
use crate::op::Primitive;
use crate::scalar::Scalar;
use crate::shape::TensorType;
use crate::symbols::{self, Guard};
use crate::tensor::Tensor;

use super::tree::{NamedTree, TreeSpec};

/// Index of a value in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(crate) u32);

impl ValueId {
    /// Position in [`Graph::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<usize> for ValueId {
    fn from(index: usize) -> ValueId {
        ValueId(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// Weights by state-dict name, shared between the graphs of a module.
pub type Weights = BTreeMap<String, Tensor>;

/// Entry graphs (`forward`, `encode` …) over one set of weights.
#[derive(Clone, Debug, Default)]
pub struct GraphModule {
    /// The graphs, in the order in which they were made.
    pub graphs: Vec<Graph>,
    /// Every weight that a graph names.
    pub weights: Weights,
    /// Names of the weights that are parameters, which training changes; the others are buffers and constants. Empty if that
    /// is unknown.
    pub parameters: BTreeSet<String>,
    /// Variables that keep their values between calls, by unique names.
    pub states: Vec<ModuleState>,
}

/// A variable that the graphs of a module read and write, and that keeps its value between calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleState {
    /// Path of the attribute: `decoder.hidden`.
    pub name: String,
    /// Value before the first call.
    pub initial: TreeSpec,
    /// Names of the weights that are the tensors of `initial`, by their index there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<String>,
}

impl GraphModule {
    /// The graph with a name; an error lists the existing names.
    pub fn graph(&self, name: &str) -> Result<&Graph> {
        self.graphs
            .iter()
            .find(|graph| graph.name == name)
            .ok_or_else(|| {
                let names: Vec<&str> = self
                    .graphs
                    .iter()
                    .map(|graph| graph.name.as_str())
                    .collect();
                Error::usage(format!(
                    "there is no entry graph {name}; there is {}",
                    names.join(", ")
                ))
            })
    }
}

/// A traced function.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// `forward`, or the method's name.
    pub name: String,
    /// Example values of the symbolic sizes.
    pub hints: Bindings,
    /// Conditions on the symbolic sizes under which the graph holds.
    pub guards: Vec<Guard>,
    /// Every value: inputs, weights and results of nodes.
    pub values: Vec<ValueInfo>,
    /// The tensor inputs, flattened.
    pub inputs: Vec<ValueId>,
    /// Nodes in execution order.
    pub nodes: Vec<Node>,
    /// The tensor outputs, flattened.
    pub outputs: Vec<ValueId>,
    /// Structure of the user's arguments in terms of the inputs.
    pub input_trees: Vec<NamedTree>,
    /// Structure of the user's result in terms of the outputs.
    pub output_tree: Option<TreeSpec>,
    /// Structure of the states that the graph reads, in terms of the last inputs.
    pub reads: Vec<NamedTree>,
    /// Structure of the states that the graph writes, in terms of the last outputs.
    pub writes: Vec<NamedTree>,
}

/// A value's name, type and origin.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueInfo {
    /// Name in the text form, unique in the graph.
    pub name: String,
    /// Element type and shape.
    pub ty: TensorType,
    /// Origin of the value.
    pub definition: Definition,
}

/// Origin of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Definition {
    /// The input with this index.
    Input(usize),
    /// The weight with this name.
    Weight(String),
    /// A result of a node: node index and result index.
    Node(usize, usize),
}

/// An operation and its operands and results.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// Operands. Primitives take values, numbers and sizes; calls take one argument for each parameter of the schema.
    pub arguments: Vec<Argument>,
    /// The values that the node defines.
    pub results: Vec<ValueId>,
    /// Module path and the user's source line.
    pub place: SourcePlace,
}

/// The operation of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A primitive of the closed language.
    Primitive(Primitive),
    /// An operator of the dictionary, by name and overload: `aten.conv2d`, `aten.add.Tensor`.
    Call(Arc<str>),
    /// Structured control flow.
    Region(Box<Region>),
}

/// Structured control flow. Bodies are closed graphs: values from outside are passed as arguments.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "regions are few, and boxed in their node"
)]
pub enum Region {
    /// Arguments: a `bool` scalar, then the inputs of both branches. Results: the outputs of the branch taken.
    If {
        /// Taken if the condition is true.
        then: Graph,
        /// Taken otherwise; same input and output types.
        otherwise: Graph,
    },
    /// Arguments: the trip count (`i64` scalar or size), the first condition (`bool` scalar), the loop-carried values,
    /// then constants of the loop. The body takes the iteration number (`i64`), carried values and constants, and returns
    /// the next condition and the carried values. Results: the carried values after the last iteration.
    Loop {
        /// One iteration.
        body: Graph,
        /// Number of loop-carried arguments.
        carried: usize,
    },
    /// A function call, such as a submodule that is kept whole. Arguments: the body's inputs. Results: its outputs.
    Call {
        /// The function; its name is the module's path.
        body: Graph,
    },
}

/// Compares the meaning of graphs: value ids may differ, and weights that nothing reads are ignored.
impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        let (a, b) = (self.canonical(), other.canonical());
        (&a.name, &a.hints, &a.guards, &a.values) == (&b.name, &b.hints, &b.guards, &b.values)
            && (&a.inputs, &a.nodes, &a.outputs) == (&b.inputs, &b.nodes, &b.outputs)
            && (&a.input_trees, &a.output_tree) == (&b.input_trees, &b.output_tree)
            && (&a.reads, &a.writes) == (&b.reads, &b.writes)
    }
}

/// An argument of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A value.
    Value(ValueId),
    /// A number written in place.
    Number(Scalar),
    /// A symbolic size.
    Size(Dim),
    /// A string; calls only.
    Str(String),
    /// A list; calls only.
    List(Vec<Argument>),
    /// An absent optional argument; calls only.
    None,
}

impl Argument {
    /// The values in the argument, from left to right.
    pub fn values(&self) -> Vec<ValueId> {
        match self {
            Argument::Value(value) => vec![*value],
            Argument::List(items) => items.iter().flat_map(Argument::values).collect(),
            _ => Vec::new(),
        }
    }

    /// The argument with every value and size replaced.
    pub fn map(
        &self,
        value: &mut impl FnMut(ValueId) -> ValueId,
        size: &mut impl FnMut(&Dim) -> Dim,
    ) -> Argument {
        match self {
            Argument::Value(id) => Argument::Value(value(*id)),
            Argument::Size(dim) => {
                let dim = size(dim);
                dim.as_const().map_or(Argument::Size(dim), |number| {
                    Argument::Number(Scalar::Int(number))
                })
            }
            Argument::List(items) => {
                Argument::List(items.iter().map(|item| item.map(value, size)).collect())
            }
            other => other.clone(),
        }
    }
}

impl From<Scalar> for Argument {
    fn from(number: Scalar) -> Argument {
        Argument::Number(number)
    }
}

impl From<Dim> for Argument {
    fn from(dim: Dim) -> Argument {
        dim.as_const().map_or(Argument::Size(dim), |number| {
            Argument::Number(Scalar::Int(number))
        })
    }
}

impl Node {
    /// The values that the node reads, in order, repeated ones included.
    pub fn operands(&self) -> Vec<ValueId> {
        self.arguments.iter().flat_map(Argument::values).collect()
    }

    /// The graphs nested in the node.
    pub fn bodies(&self) -> Vec<&Graph> {
        match &self.op {
            Op::Region(region) => match &**region {
                Region::If { then, otherwise } => vec![then, otherwise],
                Region::Loop { body, .. } | Region::Call { body } => vec![body],
            },
            _ => Vec::new(),
        }
    }

    /// The graphs nested in the node, for modification.
    pub fn bodies_mut(&mut self) -> Vec<&mut Graph> {
        match &mut self.op {
            Op::Region(region) => match &mut **region {
                Region::If { then, otherwise } => vec![then, otherwise],
                Region::Loop { body, .. } | Region::Call { body } => vec![body],
            },
            _ => Vec::new(),
        }
    }
}

impl Op {
    /// Name without namespace and overload: `add` for `aten.add.Tensor`.
    pub fn short_name(&self) -> &str {
        let name = self.name();
        let base = name.rsplit_once("aten.").map_or(name, |(_, base)| base);
        base.split('.').next().unwrap_or(base)
    }

    /// Name in the text form.
    pub fn name(&self) -> &str {
        match self {
            Op::Primitive(primitive) => primitive.name(),
            Op::Call(name) => name,
            Op::Region(region) => match **region {
                Region::If { .. } => "if",
                Region::Loop { .. } => "loop",
                Region::Call { .. } => "call",
            },
        }
    }
}

impl Graph {
    /// Name, type and origin of a value. Ids of a verified graph are always valid.
    pub fn value(&self, id: ValueId) -> &ValueInfo {
        &self.values[id.index()]
    }

    /// Adds a value.
    pub(crate) fn push_value(&mut self, info: ValueInfo) -> ValueId {
        let id = ValueId::from(self.values.len());
        self.values.push(info);
        id
    }

    /// The weight with a name, which becomes a value of the graph if it is not yet one.
    pub(crate) fn weight_value(&mut self, name: &str, ty: &TensorType) -> ValueId {
        let known = self.weights().find(|(known, _)| *known == name);
        if let Some((_, id)) = known {
            return id;
        }
        self.push_value(ValueInfo {
            name: format!("${name}"),
            ty: ty.clone(),
            definition: Definition::Weight(name.to_string()),
        })
    }

    /// A value's type.
    pub fn ty(&self, id: ValueId) -> &TensorType {
        &self.value(id).ty
    }

    /// The weights that the graph uses: names and values.
    pub fn weights(&self) -> impl Iterator<Item = (&str, ValueId)> {
        (0u32..)
            .zip(&self.values)
            .filter_map(|(index, value)| match &value.definition {
                Definition::Weight(name) => Some((name.as_str(), ValueId(index))),
                _ => None,
            })
    }

    /// Makes a weight the last input.
    pub(crate) fn make_input(&mut self, weight: ValueId) {
        let definition = Definition::Input(self.inputs.len());
        self.inputs.push(weight);
        let wanted = self
            .value(weight)
            .name
            .trim_start_matches('$')
            .replace('.', "_");
        let is_taken = |name: &str| self.values.iter().any(|info| info.name == name);
        let numbered = (1..).map(|number| format!("{wanted}_{number}"));
        let mut names = std::iter::once(wanted.clone()).chain(numbered);
        let name = names.find(|name| !is_taken(name)).unwrap_or_default();
        let info = &mut self.values[weight.index()];
        (info.name, info.definition) = (name, definition);
    }

    /// The weights that a node or the result reads.
    pub(crate) fn weights_read(&self) -> BTreeMap<&str, ValueId> {
        let operands = self.nodes.iter().flat_map(Node::operands);
        let read: HashSet<ValueId> = operands.chain(self.outputs.iter().copied()).collect();
        self.weights().filter(|(_, id)| read.contains(id)).collect()
    }

    /// The graph with its values in canonical order: inputs, read weights by name, results. A signature equal to the default
    /// one is removed.
    fn canonical(&self) -> Graph {
        let weights = self.weights_read();
        let results = self.nodes.iter().flat_map(|node| &node.results);
        let order = self.inputs.iter().chain(weights.values()).chain(results);
        let place: HashMap<ValueId, ValueId> = order.copied().zip((0..).map(ValueId)).collect();
        let find = |id: &ValueId| place.get(id).copied().unwrap_or(*id);
        let list = |ids: &[ValueId]| -> Vec<ValueId> { ids.iter().map(find).collect() };
        let mut values = vec![None; self.values.len()];
        for (info, id) in self.values.iter().zip((0..).map(ValueId)) {
            if let Some(slot) = place.get(&id).and_then(|id| values.get_mut(id.index())) {
                *slot = Some(info.clone());
            }
        }
        let argument =
            |argument: &Argument| argument.map(&mut |id| find(&id), &mut |dim| dim.clone());
        let nodes = self.nodes.iter().map(|node| Node {
            op: node.op.clone(),
            arguments: node.arguments.iter().map(argument).collect(),
            results: list(&node.results),
            place: node.place.clone(),
        });
        Graph {
            name: self.name.clone(),
            hints: self.hints.clone(),
            guards: self.guards.clone(),
            values: values.into_iter().flatten().collect(),
            inputs: list(&self.inputs),
            nodes: nodes.collect(),
            outputs: list(&self.outputs),
            input_trees: if self.has_default_inputs() {
                Vec::new()
            } else {
                self.input_trees.clone()
            },
            output_tree: self
                .output_tree
                .clone()
                .filter(|_| !self.has_default_outputs()),
            reads: self.reads.clone(),
            writes: self.writes.clone(),
        }
    }

    /// How often each value is read, as an operand or an output.
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.values.len()];
        let read = self
            .nodes
            .iter()
            .flat_map(Node::operands)
            .chain(self.outputs.iter().copied());
        for value in read {
            uses[value.index()] += 1;
        }
        uses
    }

    /// Whether each value is an output, by index.
    pub(crate) fn output_flags(&self) -> Vec<bool> {
        let mut flags = vec![false; self.values.len()];
        for output in &self.outputs {
            flags[output.index()] = true;
        }
        flags
    }

    /// Checks the inputs' element types; an error names the first that differs.
    pub fn check_dtypes(&self, inputs: &[Tensor]) -> Result<()> {
        for (id, tensor) in self.inputs.iter().zip(inputs) {
            let info = self.value(*id);
            if tensor.dtype() != info.ty.dtype {
                let message = format!(
                    "input {} is {}, not {}",
                    info.name,
                    info.ty.dtype,
                    tensor.dtype()
                );
                return Err(Error::input(message));
            }
        }
        Ok(())
    }

    /// Sizes of the symbols for given input shapes; an error names the input that does not match, or the guard that fails.
    pub fn bind(&self, shapes: &[&[usize]]) -> Result<Bindings> {
        if shapes.len() != self.inputs.len() {
            return Err(Error::input(format!(
                "{} inputs given; the graph expects {}",
                shapes.len(),
                self.inputs.len()
            )));
        }
        let pairs = self.inputs.iter().zip(shapes);
        for (input, shape) in pairs.clone() {
            let info = self.value(*input);
            if info.ty.rank() != shape.len() {
                return Err(Error::input(format!(
                    "input {} is {}, not of shape {shape:?}",
                    info.name, info.ty
                )));
            }
        }
        let bindings =
            symbols::solve(pairs.clone().flat_map(|(input, shape)| {
                self.ty(*input).shape.iter().zip(shape.iter().copied())
            }));
        for (input, shape) in pairs {
            let info = self.value(*input);
            for (dim, size) in info.ty.shape.iter().zip(*shape) {
                if dim.eval(&bindings)? != *size as i64 {
                    return Err(Error::input(format!(
                        "input {} is {}, not of shape {shape:?}",
                        info.name, info.ty
                    ))
                    .help(format!(
                        "with {bindings:?} the size {dim} would be {}",
                        dim.eval(&bindings)?
                    )));
                }
            }
        }
        for guard in &self.guards {
            if !guard.holds(&bindings)? {
                let message = format!("the sizes {bindings:?} violate the graph's guard {guard}");
                return Err(Error::input(message).at_place(&guard.place));
            }
        }
        Ok(bindings)
    }
}
