use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, Result, SourcePlace};
use crate::op::{Full, Iota, Operand, Primitive};
use crate::scalar::Scalar;
use crate::shape::{Shape, TensorType};
use crate::symbols::{Guard, Symbols};

use super::graph::{Argument, Definition, Graph, Node, Op, Region, ValueId, ValueInfo};
use super::resolve::resolve;
use super::tree::{NamedTree, TreeSpec};
use super::value::{ArithmeticOperand, Value};

/// Builds a graph, node by node, through [`Value`] handles that read like tensors.
///
/// The builder remembers errors instead of returning them: after an error the handles stay usable, later steps are ignored,
/// and [`Builder::finish`] (or [`Builder::check`]) returns the first error. Formulas therefore need no error handling.
#[derive(Debug)]
pub struct Builder {
    symbols: Rc<Symbols>,
    state: RefCell<BuilderState>,
}

#[derive(Debug, Default)]
struct BuilderState {
    graph: Graph,
    place: SourcePlace,
    error: Option<Error>,
    weights: BTreeMap<String, ValueId>,
    names: HashSet<String>,
    /// Names that only [`Builder::set_name`] assigns.
    reserved: HashSet<String>,
    counters: HashMap<String, usize>,
}

impl Builder {
    /// A builder for a graph with this name.
    pub fn new(name: &str) -> Builder {
        Builder::with_symbols(name, Bindings::new(), Vec::new())
    }

    /// A builder with example values of symbols and guards that already hold.
    pub fn with_symbols(name: &str, hints: Bindings, guards: Vec<Guard>) -> Builder {
        let state = BuilderState {
            graph: Graph {
                name: name.to_string(),
                ..Graph::default()
            },
            ..BuilderState::default()
        };
        Builder {
            symbols: Rc::new(Symbols::new(hints, guards)),
            state: RefCell::new(state),
        }
    }

    /// A builder for a temporary graph. Its questions about symbolic sizes are recorded in this builder.
    pub fn scratch(&self) -> Builder {
        Builder {
            symbols: self.symbols.clone(),
            state: RefCell::default(),
        }
    }

    /// Makes inputs of this graph for the arguments of another builder's graph.
    pub fn import(&self, other: &Builder, arguments: &[Argument]) -> Vec<Argument> {
        let mut known = BTreeMap::new();
        let mut value = |id: ValueId| {
            *known
                .entry(id)
                .or_insert_with(|| self.input("x", other.ty(id)).id())
        };
        arguments
            .iter()
            .map(|argument| argument.map(&mut value, &mut |dim| self.symbols.resolve(dim)))
            .collect()
    }

    /// The symbolic sizes. Queries record their answers as guards of the graph.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Sets the place in the user's model for subsequent nodes.
    pub fn set_place(&self, place: &SourcePlace) {
        self.symbols.set_place(place.clone());
        self.state.borrow_mut().place = place.clone();
    }

    /// The place in the user's model of nodes that are added now.
    pub fn place(&self) -> SourcePlace {
        self.state.borrow().place.clone()
    }

    /// Adds an input.
    pub fn input(&self, name: &str, ty: TensorType) -> Value<'_> {
        let index = self.state.borrow().graph.inputs.len();
        let id = self.add_value(name, ty, Definition::Input(index));
        self.state.borrow_mut().graph.inputs.push(id);
        self.value(id)
    }

    /// The weight with a name; repeated calls return the same handle.
    pub fn weight(&self, name: &str, ty: TensorType) -> Value<'_> {
        if let Some(id) = self.state.borrow().weights.get(name) {
            return self.value(*id);
        }
        let definition = Definition::Weight(name.to_string());
        let id = self.add_value(&format!("${name}"), ty, definition);
        self.state.borrow_mut().weights.insert(name.to_string(), id);
        self.value(id)
    }

    /// A handle for a value of this builder.
    pub fn value(&self, id: ValueId) -> Value<'_> {
        Value::new(self, id)
    }

    /// Applies a primitive; an error if the operands do not match it.
    pub fn try_apply(
        &self,
        primitive: impl Into<Primitive>,
        arguments: Vec<Argument>,
    ) -> Result<Vec<Value<'_>>> {
        let primitive = primitive.into();
        let types = self.operand_types(&arguments);
        let operands: Vec<Operand> = arguments
            .iter()
            .zip(&types)
            .map(|(argument, ty)| operand(argument, ty))
            .collect::<Result<_>>()?;
        let results = primitive.infer(&self.symbols, &operands)?;
        Ok(self.push(Op::Primitive(primitive), arguments, results))
    }

    /// Applies a primitive whose result types are known, without inferring them.
    pub(crate) fn apply_as(
        &self,
        primitive: impl Into<Primitive>,
        arguments: Vec<Argument>,
        results: Vec<TensorType>,
    ) -> Vec<Value<'_>> {
        self.push(Op::Primitive(primitive.into()), arguments, results)
    }

    /// Applies a primitive with one result. An error is remembered.
    pub fn apply(&self, primitive: impl Into<Primitive>, arguments: Vec<Argument>) -> Value<'_> {
        let results = self.apply_many(primitive, arguments);
        results.first().copied().unwrap_or_else(|| self.poison())
    }

    /// Applies a primitive with several results. An error is remembered, and the list is then empty.
    pub fn apply_many(
        &self,
        primitive: impl Into<Primitive>,
        arguments: Vec<Argument>,
    ) -> Vec<Value<'_>> {
        if self.has_failed() {
            return Vec::new();
        }
        self.try_apply(primitive, arguments)
            .unwrap_or_else(|error| {
                self.fail(error);
                Vec::new()
            })
    }

    /// Adds a call of a dictionary row whose result types are known.
    pub fn call(
        &self,
        name: &Arc<str>,
        arguments: Vec<Argument>,
        results: Vec<TensorType>,
    ) -> Vec<Value<'_>> {
        self.push(Op::Call(name.clone()), arguments, results)
    }

    /// Adds a region whose result types are known.
    pub fn region(
        &self,
        region: Region,
        arguments: Vec<Argument>,
        results: Vec<TensorType>,
    ) -> Vec<Value<'_>> {
        self.push(Op::Region(Box::new(region)), arguments, results)
    }

    /// Adds a region; an error if the arguments do not match it.
    pub fn try_region(&self, region: Region, arguments: Vec<Argument>) -> Result<Vec<Value<'_>>> {
        let types = arguments
            .iter()
            .map(|argument| self.scalar_or_value_type(argument));
        let results = region.infer(&self.symbols, &types.collect::<Vec<_>>())?;
        Ok(self.region(region, arguments, results))
    }

    /// The type of an argument. Numbers and sizes count as scalars, as in a region's body.
    pub(super) fn scalar_or_value_type(&self, argument: &Argument) -> TensorType {
        let dtype = match argument {
            Argument::Value(id) => return self.ty(*id),
            Argument::Number(Scalar::Float(_)) => DType::F64,
            Argument::Number(Scalar::Bool(_)) => DType::Bool,
            _ => DType::I64,
        };
        let shape = Shape::new();
        TensorType { dtype, shape }
    }

    /// A value filled with a number or size.
    pub fn full<'g>(
        &'g self,
        dtype: DType,
        shape: impl Into<Shape>,
        number: impl Into<ArithmeticOperand<'g>>,
    ) -> Value<'g> {
        match number.into() {
            ArithmeticOperand::Value(value) => value.to(dtype).expand(shape),
            ArithmeticOperand::Scalar(scalar) => self.apply(
                Full {
                    dtype,
                    shape: shape.into(),
                },
                vec![scalar.cast(dtype).into()],
            ),
            ArithmeticOperand::Size(dim) => self.apply(
                Full {
                    dtype,
                    shape: shape.into(),
                },
                vec![dim.into()],
            ),
        }
    }

    /// A value whose elements are their indices along an axis.
    pub fn iota(&self, dtype: DType, shape: impl Into<Shape>, axis: usize) -> Value<'_> {
        self.apply(
            Iota {
                dtype,
                shape: shape.into(),
                axis,
            },
            Vec::new(),
        )
    }

    /// Remembers an error, unless there is an earlier one.
    pub fn fail(&self, error: Error) {
        let mut state = self.state.borrow_mut();
        if state.error.is_none() {
            let place = state.place.clone();
            state.error = Some(error.at_place(&place));
        }
    }

    /// True if an error is remembered.
    pub fn has_failed(&self) -> bool {
        self.state.borrow().error.is_some()
    }

    /// Takes the remembered error. The builder continues as it was before the error.
    pub fn check(&self) -> Result<()> {
        self.state.borrow_mut().error.take().map_or(Ok(()), Err)
    }

    /// The type of a value, with everything that is known about its symbols.
    pub fn ty(&self, id: ValueId) -> TensorType {
        let state = self.state.borrow();
        let Some(info) = state.graph.values.get(id.index()) else {
            return TensorType {
                dtype: DType::F32,
                shape: Shape::new(),
            };
        };
        TensorType {
            dtype: info.ty.dtype,
            shape: info
                .ty
                .shape
                .iter()
                .map(|dim| self.symbols.resolve(dim))
                .collect(),
        }
    }

    /// Gives a value a unique name, as close to the wanted one as possible. A weight keeps its name.
    pub fn set_name(&self, id: ValueId, wanted: &str) {
        let mut state = self.state.borrow_mut();
        let info = state.graph.values.get_mut(id.index());
        let Some(info) = info.filter(|info| !matches!(info.definition, Definition::Weight(_)))
        else {
            return;
        };
        let old = std::mem::take(&mut info.name);
        state.names.remove(&old);
        let name = state.unique(wanted, false);
        if let Some(info) = state.graph.values.get_mut(id.index()) {
            info.name = name;
        }
    }

    /// Reserves names for values that are named later.
    pub(super) fn reserve_names<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let mut state = self.state.borrow_mut();
        state.reserved.extend(names.map(str::to_string));
    }

    /// True if a node has a side effect, so that it runs even if nothing reads its results.
    pub(crate) fn has_side_effect(&self) -> bool {
        self.state.borrow().graph.has_side_effect()
    }

    /// Number of values.
    pub fn value_count(&self) -> usize {
        self.state.borrow().graph.values.len()
    }

    /// Copies of the nodes so far, in the order in which they were added.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        self.state.borrow().graph.nodes.clone()
    }

    /// The node that defines a value; `None` for inputs and weights.
    pub fn node_of(&self, id: ValueId) -> Option<Node> {
        let state = self.state.borrow();
        match state.graph.values.get(id.index())?.definition {
            Definition::Node(node, _) => state.graph.nodes.get(node).cloned(),
            _ => None,
        }
    }

    /// The name of a weight; `None` for other values.
    pub(crate) fn weight_name(&self, id: ValueId) -> Option<String> {
        match &self.state.borrow().graph.values.get(id.index())?.definition {
            Definition::Weight(name) => Some(name.clone()),
            _ => None,
        }
    }

    /// Gives a result of a node a name, unless another value has it.
    pub(super) fn rename_result(&self, id: ValueId, wanted: &str) {
        let is_other = self
            .state
            .borrow()
            .graph
            .values
            .get(id.index())
            .is_some_and(|info| {
                matches!(info.definition, Definition::Node(..)) && info.name != wanted
            });
        if is_other {
            self.set_name(id, wanted);
        }
    }

    /// Sets the structure of states: those read from the last inputs, and those written to the last outputs when the graph
    /// ends.
    pub fn set_states(&self, reads: Vec<NamedTree>, writes: Vec<NamedTree>) {
        let mut state = self.state.borrow_mut();
        (state.graph.reads, state.graph.writes) = (reads, writes);
    }

    /// Returns the graph with these outputs, or the remembered error.
    pub fn finish(
        self,
        outputs: &[ValueId],
        input_trees: Vec<NamedTree>,
        output_tree: Option<TreeSpec>,
    ) -> Result<Graph> {
        self.check()?;
        let Builder { symbols, state } = self;
        let mut graph = state.into_inner().graph;
        graph.outputs = outputs.to_vec();
        graph.input_trees = input_trees;
        graph.output_tree = output_tree;
        resolve(&mut graph, &symbols);
        Ok(graph)
    }

    /// The value that represents results of a failed step.
    pub(super) fn poison(&self) -> Value<'_> {
        self.value(ValueId(u32::MAX))
    }

    fn operand_types(&self, arguments: &[Argument]) -> Vec<Option<TensorType>> {
        arguments
            .iter()
            .map(|argument| match argument {
                Argument::Value(id) => Some(self.ty(*id)),
                _ => None,
            })
            .collect()
    }

    fn push(&self, op: Op, arguments: Vec<Argument>, results: Vec<TensorType>) -> Vec<Value<'_>> {
        let node = self.state.borrow().graph.nodes.len();
        let place = self.state.borrow().place.clone();
        let base = op.short_name().to_string();
        let ids = results
            .into_iter()
            .enumerate()
            .map(|(index, ty)| self.add_value(&base, ty, Definition::Node(node, index)));
        let ids: Vec<ValueId> = ids.collect();
        self.state.borrow_mut().graph.nodes.push(Node {
            op,
            arguments,
            results: ids.clone(),
            place,
        });
        ids.into_iter().map(|id| self.value(id)).collect()
    }

    fn add_value(&self, name: &str, ty: TensorType, definition: Definition) -> ValueId {
        let mut state = self.state.borrow_mut();
        let id = ValueId(u32::try_from(state.graph.values.len()).unwrap_or(u32::MAX));
        let name = match definition {
            Definition::Weight(_) => name.to_string(),
            Definition::Input(_) => state.unique(name, false),
            Definition::Node(..) => state.unique(name, true),
        };
        state.graph.values.push(ValueInfo {
            name,
            ty,
            definition,
        });
        id
    }
}

fn operand<'a>(argument: &'a Argument, ty: &'a Option<TensorType>) -> Result<Operand<'a>> {
    match (argument, ty) {
        (Argument::Value(_), Some(ty)) => Ok(Operand::Value(ty)),
        (Argument::Number(number), _) => Ok(Operand::Number(*number)),
        (Argument::Size(dim), _) => Ok(Operand::Size(dim)),
        _ => Err(Error::operator(
            "operands of primitives are values, numbers and sizes",
        )),
    }
}

impl BuilderState {
    /// A unique name: the wanted one, or with the next free number.
    fn unique(&mut self, wanted: &str, respect_reserved: bool) -> String {
        let clean = legal_name(wanted);
        let mut name = clean.clone();
        let mut reserved = respect_reserved && self.reserved.contains(&name);
        while reserved || !self.names.insert(name.clone()) {
            let counter = self.counters.entry(clean.clone()).or_insert(0);
            *counter += 1;
            name = format!("{clean}_{counter}");
            reserved = respect_reserved && self.reserved.contains(&name);
        }
        name
    }
}

/// The legal name of a value that is closest to a wanted one: letters, digits, `_` and `.`, not starting with a digit or
/// point.
pub fn legal_name(wanted: &str) -> String {
    let legal = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' || c == '.' => c,
        _ => '_',
    };
    let mut clean: String = wanted.chars().map(legal).collect();
    if !clean.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        clean.insert(0, '_');
    }
    clean
}
