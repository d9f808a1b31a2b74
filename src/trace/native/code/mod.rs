//! Graphs as Rust source, as TorchScript's `.code` is Python. The generated functions compute what the graph does, and can
//! be traced.

mod literal;
mod operator;
mod primitive;
mod region;
mod variables;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use crate::aten::{self, ResultStructure};
use crate::dim::{Dim, Symbol};
use crate::error::{Error, Result};
use crate::ir::{Argument, Definition, Graph, GraphModule, Node, Op, ValueId};
use crate::scalar::Scalar;

use variables::{TensorExpr, VariableNames, identifier};

impl GraphModule {
    /// The graphs as Rust functions of `onionskin::trace`; see [`Graph::code`].
    ///
    /// # Errors
    /// A graph has nodes without a PyTorch operator, such as those that passes make.
    pub fn code(&self) -> Result<String> {
        let functions = self.graphs.iter().map(Graph::code);
        Ok(functions.collect::<Result<Vec<_>>>()?.join("\n"))
    }
}

impl Graph {
    /// The graph as a Rust function of its tensors, and of its weights by name if it has any:
    /// `pub fn forward(w: impl Fn(&str) -> TracedTensor, x: &TracedTensor) -> Result<TracedTensor>`.
    ///
    /// The source needs `use` declarations for its names from `onionskin::trace`, and for `DType`.
    ///
    /// # Errors
    /// The graph has nodes without a PyTorch operator, such as those that passes make.
    pub fn code(&self) -> Result<String> {
        let mut writer = SourceWriter::new(self, Rc::default(), 1);
        let mut symbols = BTreeSet::new();
        collect_symbols(self, &mut symbols);
        // Symbols reserve their names first, so that no other variable takes one.
        symbols
            .iter()
            .for_each(|symbol| drop(writer.unique(symbol)));
        let weights = has_weights(self).then(|| "w: impl Fn(&str) -> TracedTensor".to_string());
        let mut parameters = Vec::from_iter(weights);
        for id in &self.inputs {
            let name = writer.define_variable(*id);
            writer.exprs.insert(*id, TensorExpr::reference(&name));
            writer.owned_locals.remove(id);
            parameters.push(format!("{name}: &TracedTensor"));
        }
        for symbol in symbols {
            writer.define_size(&symbol)?;
        }
        writer.write_nodes()?;
        let result = writer.tuple(&self.outputs)?;
        let (name, parameters) = (identifier(&self.name), parameters.join(", "));
        let (ty, lines) = (tuple_type(self.outputs.len()), writer.lines);
        Ok(format!(
            "pub fn {name}({parameters}) -> Result<{ty}> {{\n{lines}    Ok({result})\n}}\n"
        ))
    }
}

/// True if the graph or a nested graph reads a weight.
fn has_weights(graph: &Graph) -> bool {
    let read = graph.nodes.iter().flat_map(Node::operands);
    let mut read = read.chain(graph.outputs.iter().copied());
    let is_weight = |id| matches!(graph.value(id).definition, Definition::Weight(_));
    let mut bodies = graph.nodes.iter().flat_map(Node::bodies);
    read.any(is_weight) || bodies.any(has_weights)
}

/// The source of a result's type for this number of tensors.
fn tuple_type(count: usize) -> String {
    match count {
        1 => "TracedTensor".to_string(),
        _ => format!("({})", ["TracedTensor"].repeat(count).join(", ")),
    }
}

/// Writes the statements of a graph or of a region's body.
struct SourceWriter<'a> {
    graph: &'a Graph,
    /// Variable names of the whole function.
    names: Rc<RefCell<VariableNames>>,
    /// The expression for each value that is defined so far.
    exprs: HashMap<ValueId, TensorExpr>,
    /// Values that a node or an output of the graph reads.
    used: HashSet<ValueId>,
    /// Values with an owned variable in this scope.
    owned_locals: HashSet<ValueId>,
    /// Indentation depth.
    depth: usize,
    /// The statements so far.
    lines: String,
}

impl<'a> SourceWriter<'a> {
    fn new(graph: &'a Graph, names: Rc<RefCell<VariableNames>>, depth: usize) -> SourceWriter<'a> {
        let used = graph.nodes.iter().flat_map(Node::operands);
        SourceWriter {
            graph,
            names,
            exprs: HashMap::new(),
            owned_locals: HashSet::new(),
            used: used.chain(graph.outputs.iter().copied()).collect(),
            depth,
            lines: String::new(),
        }
    }

    fn unique(&self, wanted: &str) -> String {
        self.names.borrow_mut().unique(wanted)
    }

    /// Defines a variable for a value. An unused one begins with `_`.
    fn define_variable(&mut self, id: ValueId) -> String {
        let wanted = &self.graph.value(id).name;
        let name = match self.used.contains(&id) {
            true => self.unique(wanted),
            false => self.unique(&format!("_{wanted}")),
        };
        self.exprs.insert(id, TensorExpr::owned(&name));
        self.owned_locals.insert(id);
        name
    }

    fn indent(&self) -> String {
        "    ".repeat(self.depth)
    }

    fn write_line(&mut self, line: &str) {
        self.lines += &format!("{}{line}\n", self.indent());
    }

    /// Defines a variable for a symbolic size.
    fn define_size(&mut self, symbol: &Symbol) -> Result<()> {
        let axes = self.graph.inputs.iter().flat_map(|id| {
            let shape = self.graph.ty(*id).shape.iter().enumerate();
            shape.map(move |(axis, size)| (*id, axis, size))
        });
        let mut symbol_axes = axes.filter(|(_, _, size)| size.as_symbol() == Some(symbol));
        let missing = || Error::unsupported(format!("no input has the size {symbol}"));
        let (id, axis, _) = symbol_axes.next().ok_or_else(missing)?;
        let line = format!("let {symbol} = {}.dim({axis});", self.tensor_expr(id)?.text);
        self.write_line(&line);
        Ok(())
    }

    /// The expression for a value: a variable, or a call that returns a weight.
    fn tensor_expr(&self, id: ValueId) -> Result<TensorExpr> {
        if let Definition::Weight(name) = &self.graph.value(id).definition {
            return Ok(TensorExpr::owned(format!("w({name:?})")));
        }
        let expr = self.exprs.get(&id).cloned();
        expr.ok_or_else(|| Error::internal("a value without a name"))
    }

    /// The source of a reference to a value's tensor.
    fn borrowed(&self, id: ValueId) -> Result<String> {
        Ok(self.tensor_expr(id)?.borrowed())
    }

    /// An owned tensor for an argument, which may be a number.
    fn owned(&self, argument: &Argument) -> Result<String> {
        Ok(match argument {
            Argument::Value(id) => match &self.graph.value(*id).definition {
                Definition::Weight(_) => self.tensor_expr(*id)?.text,
                _ => format!("{}.clone()", self.tensor_expr(*id)?.text),
            },
            Argument::Number(number @ Scalar::Float(_)) => {
                let number = literal::scalar(*number);
                format!("ops::tensor_with({number}, kw!(dtype = DType::F64))")
            }
            Argument::Number(number) => format!("ops::tensor({})", literal::scalar(*number)),
            Argument::Size(size) => {
                let size = size.rust_expression();
                format!("ops::scalar_tensor_with({size}, kw!(dtype = DType::I64))")
            }
            _ => return Err(Error::internal("a region takes a list")),
        })
    }

    /// Owned results: a variable of this scope is moved at its last use, others are cloned.
    fn results(&self, ids: &[ValueId]) -> Result<Vec<String>> {
        let result = |(index, id): (usize, &ValueId)| {
            let is_last = !ids.iter().skip(index + 1).any(|other| other == id);
            match self.owned_locals.contains(id) && is_last {
                true => Ok(self.tensor_expr(*id)?.text),
                false => self.owned(&Argument::Value(*id)),
            }
        };
        ids.iter().enumerate().map(result).collect()
    }

    /// The source of the result: one owned tensor, or a tuple.
    fn tuple(&self, ids: &[ValueId]) -> Result<String> {
        Ok(match self.results(ids)?.as_slice() {
            [single] => single.clone(),
            several => format!("({})", several.join(", ")),
        })
    }

    fn write_nodes(&mut self) -> Result<()> {
        for node in &self.graph.nodes {
            let written = match &node.op {
                Op::Call(name) => {
                    let operator = aten::operator(name)?;
                    let call = self.operator_call(operator, &node.arguments);
                    call.map(|call| {
                        self.bind_results(&node.results, operator.schema.returns, &call)
                    })
                }
                Op::Primitive(primitive) => {
                    let formula = self.primitive(primitive, node);
                    formula.map(|formula| {
                        self.bind_results(&node.results, ResultStructure::One, &formula)
                    })
                }
                Op::Region(region) => self.region(node, region),
            };
            written.map_err(|error| error.at(node.op.name()).at_place(&node.place))?;
        }
        Ok(())
    }

    /// Writes a `let` statement for the results of a call. Each result is a variable, or an item of a list.
    fn bind_results(&mut self, results: &[ValueId], returns: ResultStructure, call: &str) {
        let variable_count = match returns {
            ResultStructure::One | ResultStructure::Tuple => results.len(),
            ResultStructure::List => 0,
            ResultStructure::OneAndList => results.len().min(1),
        };
        let (variables, items) = results.split_at(variable_count);
        let mut names: Vec<String> = variables
            .iter()
            .map(|id| self.define_variable(*id))
            .collect();
        if matches!(returns, ResultStructure::List | ResultStructure::OneAndList) {
            names.push(self.define_list(items));
        }
        let pattern = match (names.as_slice(), returns) {
            ([name], ResultStructure::One | ResultStructure::List) => name.clone(),
            (names, _) => format!("({})", names.join(", ")),
        };
        self.write_line(&format!("let {pattern} = {call};"));
    }

    /// Defines a variable for a list of results. Returns its name.
    fn define_list(&mut self, items: &[ValueId]) -> String {
        let first = items.first().map(|id| self.graph.value(*id).name.as_str());
        let list = self.unique(&format!("{}s", first.unwrap_or("item")));
        for (index, id) in items.iter().enumerate() {
            self.exprs
                .insert(*id, TensorExpr::owned(format!("{list}[{index}]")));
        }
        list
    }
}

/// Collects the symbols of all sizes in arguments, nested graphs included.
fn collect_symbols(graph: &Graph, symbols: &mut BTreeSet<Symbol>) {
    for node in &graph.nodes {
        let mut add_symbols = |size: &Dim| {
            symbols.extend(size.symbols());
            size.clone()
        };
        for argument in &node.arguments {
            argument.map(&mut |id| id, &mut add_symbols);
        }
        if let Op::Primitive(primitive) = &node.op {
            primitive::source_sizes(primitive)
                .iter()
                .for_each(|size| drop(add_symbols(size)));
        }
    }
    for body in graph.nodes.iter().flat_map(Node::bodies) {
        collect_symbols(body, symbols);
    }
}
