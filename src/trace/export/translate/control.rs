//! Higher-order operators: conditions, loops, and graphs that are called once.

use super::{Scope, Translator};
use crate::error::{Error, Result};
use crate::trace::export::schema::{SerializedArgument, SerializedGraph, SerializedNode, Symbolic};
use crate::trace::script::ast::{AstExpr, AstExprKind, Stmt, StmtKind};

impl Translator {
    /// Adds the statements of a higher-order operator.
    pub(super) fn higher_order(
        &mut self,
        name: &str,
        node: &SerializedNode,
        scope: &mut Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<()> {
        let results = match name {
            "cond" => self.cond(node, scope, body)?,
            "while_loop" => self.while_loop(node, scope, body)?,
            "scan" => self.scan(node, scope, body)?,
            "map_impl" | "map" => self.map(node, scope, body)?,
            "associative_scan" => self.associative_scan(node, scope, body)?,
            "wrap_with_set_grad_enabled" | "invoke_subgraph" => {
                self.region(name, node, scope, body)?
            }
            "wrap_with_autocast" => {
                let dtype = self.autocast_region(node)?;
                let outer = std::mem::replace(&mut self.autocast, dtype);
                let results = self.region(name, node, scope, body);
                self.autocast = outer;
                results?
            }
            other => {
                return Err(Error::unsupported(format!(
                    "the higher-order operator {other}"
                )));
            }
        };
        self.bind_values(&node.outputs, results, scope, body)
    }

    /// A graph that is called once, on the operands after it.
    fn region(
        &mut self,
        name: &str,
        node: &SerializedNode,
        scope: &Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<Vec<AstExpr>> {
        let graph = graphs(node).next().ok_or_else(|| missing(name))?;
        let position = position_of_graph(node).ok_or_else(|| missing(name))?;
        // The name of the graph follows it.
        let skipped = usize::from(name == "invoke_subgraph");
        let operands = self.operands(node, position + 1 + skipped.., scope)?;
        self.inline(graph, operands, body)
    }

    /// `cond(predicate, then, otherwise, operands)`
    fn cond(
        &mut self,
        node: &SerializedNode,
        scope: &Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<Vec<AstExpr>> {
        let condition = node.inputs.first().ok_or_else(|| missing("cond"))?;
        let condition = self.argument(&condition.arg, scope)?;
        let operands = self.operands(node, 3.., scope)?;
        let mut branches = Vec::new();
        let mut results: Vec<String> = Vec::new();
        for graph in graphs(node) {
            let mut statements = Vec::new();
            let values = self.inline(graph, operands.clone(), &mut statements)?;
            if results.is_empty() {
                results = values
                    .iter()
                    .map(|_| self.fresh(&node_name(node)))
                    .collect();
            }
            let assigned = results.iter().zip(values);
            statements.extend(assigned.map(|(name, value)| self.assign(name.clone(), value)));
            branches.push(statements);
        }
        let Ok([then, otherwise]) = <[Vec<Stmt>; 2]>::try_from(branches) else {
            return Err(missing("cond"));
        };
        body.push(self.statement(StmtKind::If {
            condition,
            then,
            otherwise,
        }));
        Ok(self.variables(&results))
    }

    /// `while_loop(condition, body, carried, additional)`
    fn while_loop(
        &mut self,
        node: &SerializedNode,
        scope: &Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<Vec<AstExpr>> {
        let mut subgraphs = graphs(node);
        let (Some(condition), Some(iteration)) = (subgraphs.next(), subgraphs.next()) else {
            return Err(missing("while_loop"));
        };
        let initial = self.operands(node, 2..3, scope)?;
        let additional = self.operands(node, 3.., scope)?;
        let carried = self.start_loop(node, initial, body);
        let operands: Vec<AstExpr> = self.variables(&carried);
        let operands = [operands, additional].concat();
        let again = self.fresh("again");
        self.condition_of_loop(condition, &operands, &again, body)?;
        let mut statements = Vec::new();
        let values = self.inline(iteration, operands.clone(), &mut statements)?;
        statements.push(self.statement(StmtKind::AssignAll {
            names: carried.clone(),
            values,
        }));
        self.condition_of_loop(condition, &operands, &again, &mut statements)?;
        body.push(self.statement(StmtKind::While {
            condition: self.variable(&again),
            body: statements,
        }));
        Ok(self.variables(&carried))
    }

    /// Adds the statements that compute the condition of a loop.
    fn condition_of_loop(
        &mut self,
        graph: &SerializedGraph,
        operands: &[AstExpr],
        variable: &str,
        body: &mut Vec<Stmt>,
    ) -> Result<()> {
        let values = self.inline(graph, operands.to_vec(), body)?;
        let value = values
            .into_iter()
            .next()
            .ok_or_else(|| missing("while_loop"))?;
        body.push(self.assign(variable.to_string(), value));
        Ok(())
    }

    /// `scan(combine, initial, inputs, additional)`: a loop over the first axis of the inputs. Returns the last carried values,
    /// and the other results of all iterations, stacked.
    fn scan(
        &mut self,
        node: &SerializedNode,
        scope: &Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<Vec<AstExpr>> {
        let combine = graphs(node).next().ok_or_else(|| missing("scan"))?;
        let initial = self.operands(node, 1..2, scope)?;
        let inputs = self.operands(node, 2..3, scope)?;
        let additional = self.operands(node, 3.., scope)?;
        let carried = self.start_loop(node, initial, body);
        let count = carried.len();
        let lists = self.lists(node, combine.outputs.len().saturating_sub(count), body);
        let round = self.fresh("round");
        let elements = self.elements(&inputs, self.variable(&round));
        let operands = [self.variables(&carried), elements, additional].concat();
        let mut statements = Vec::new();
        let mut values = self.inline(combine, operands, &mut statements)?;
        let stacked = values.split_off(count.min(values.len()));
        statements.push(self.statement(StmtKind::AssignAll {
            names: carried.clone(),
            values,
        }));
        self.append_all(&lists, stacked, &mut statements);
        let length = self.length(&inputs)?;
        body.push(self.for_loop(round, length, statements));
        Ok([self.variables(&carried), self.stacked(&lists)].concat())
    }

    /// `map(graph, inputs, additional)`
    fn map(
        &mut self,
        node: &SerializedNode,
        scope: &Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<Vec<AstExpr>> {
        let graph = graphs(node).next().ok_or_else(|| missing("map"))?;
        let (inputs, additional) = self.mapped_operands(node, scope)?;
        let lists = self.lists(node, graph.outputs.len(), body);
        let round = self.fresh("round");
        let elements = self.elements(&inputs, self.variable(&round));
        let mut statements = Vec::new();
        let values = self.inline(graph, [elements, additional].concat(), &mut statements)?;
        self.append_all(&lists, values, &mut statements);
        let length = self.length(&inputs)?;
        body.push(self.for_loop(round, length, statements));
        Ok(self.stacked(&lists))
    }

    /// The operands of `map` that are taken apart, and the others: two lists, or, in files of PyTorch 2.1, the number of the
    /// former and all operands.
    fn mapped_operands(
        &self,
        node: &SerializedNode,
        scope: &Scope,
    ) -> Result<(Vec<AstExpr>, Vec<AstExpr>)> {
        let second = node.inputs.get(1).map(|argument| &argument.arg);
        if let Some(SerializedArgument::Int(Symbolic::Known(count))) = second {
            let mut inputs = self.operands(node, 2.., scope)?;
            let count = usize::try_from(*count)
                .unwrap_or_default()
                .min(inputs.len());
            let additional = inputs.split_off(count);
            return Ok((inputs, additional));
        }
        Ok((
            self.operands(node, 1..2, scope)?,
            self.operands(node, 2.., scope)?,
        ))
    }

    /// `associative_scan(combine, inputs, additional)`: all prefixes of the inputs, combined from the first on.
    fn associative_scan(
        &mut self,
        node: &SerializedNode,
        scope: &Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<Vec<AstExpr>> {
        let combine = graphs(node)
            .next()
            .ok_or_else(|| missing("associative_scan"))?;
        let inputs = self.operands(node, 1..2, scope)?;
        let additional = self.operands(node, 2.., scope)?;
        let lists = self.lists(node, inputs.len(), body);
        let first = self.elements(&inputs, self.int(0));
        let carried = self.start_loop(node, first, body);
        let carried_values = self.variables(&carried);
        self.append_all(&lists, carried_values.clone(), body);
        let round = self.fresh("round");
        let position = self.call("aten::add", [self.variable(&round), self.int(1)]);
        let elements = self.elements(&inputs, position);
        let operands = [carried_values.clone(), elements, additional].concat();
        let mut statements = Vec::new();
        let values = self.inline(combine, operands, &mut statements)?;
        statements.push(self.statement(StmtKind::AssignAll {
            names: carried,
            values,
        }));
        self.append_all(&lists, carried_values, &mut statements);
        let length = self.call("aten::sub", [self.length(&inputs)?, self.int(1)]);
        body.push(self.for_loop(round, length, statements));
        Ok(self.stacked(&lists))
    }

    /// Adds the statements of a graph on operands, which its inputs stand for. Returns its results.
    fn inline(
        &mut self,
        graph: &SerializedGraph,
        operands: Vec<AstExpr>,
        body: &mut Vec<Stmt>,
    ) -> Result<Vec<AstExpr>> {
        if graph.inputs.len() != operands.len() {
            let (inputs, operands) = (graph.inputs.len(), operands.len());
            let message = format!("a graph of {inputs} inputs is called with {operands} operands");
            return Err(Error::format(message));
        }
        let mut scope = Scope::new();
        for (input, operand) in graph.inputs.iter().zip(operands) {
            if let Some(name) = name_of(input) {
                scope.insert(name.to_string(), operand);
            }
        }
        self.nodes(graph, &mut scope, body)?;
        let outputs = graph.outputs.iter();
        let outputs = outputs.map(|output| self.argument(output, &scope));
        let outputs: Vec<AstExpr> = outputs.collect::<Result<_>>()?;
        // A single output may be a list of tensors.
        let flat = outputs.into_iter().flat_map(|output| match output.kind {
            AstExprKind::List(items) => items,
            kind => vec![AstExpr { kind, ..output }],
        });
        Ok(flat.collect())
    }

    /// Gives the results of a higher-order operator the names that the node has for them.
    fn bind_values(
        &mut self,
        outputs: &[SerializedArgument],
        values: Vec<AstExpr>,
        scope: &mut Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<()> {
        let mut values = values.into_iter();
        for output in outputs {
            match output {
                SerializedArgument::Tensors(names) => {
                    for name in names {
                        let value = values.next().ok_or_else(|| missing("a result"))?;
                        let variable = self.define(name, scope);
                        body.push(self.assign(variable, value));
                    }
                }
                single => {
                    let value = values.next().ok_or_else(|| missing("a result"))?;
                    let variable = self.result(single, scope)?;
                    body.push(self.assign(variable, value));
                }
            }
        }
        Ok(())
    }

    /// The operands of a range of a node's arguments, those of lists one by one.
    fn operands(
        &self,
        node: &SerializedNode,
        range: impl std::ops::RangeBounds<usize>,
        scope: &Scope,
    ) -> Result<Vec<AstExpr>> {
        let mut operands = Vec::new();
        for (position, argument) in node.inputs.iter().enumerate() {
            if range.contains(&position) {
                let operand = self.argument(&argument.arg, scope)?;
                match operand.kind {
                    AstExprKind::List(items) => operands.extend(items),
                    kind => operands.push(AstExpr { kind, ..operand }),
                }
            }
        }
        Ok(operands)
    }

    /// Assigns initial values to variables that a loop carries.
    fn start_loop(
        &mut self,
        node: &SerializedNode,
        initial: Vec<AstExpr>,
        body: &mut Vec<Stmt>,
    ) -> Vec<String> {
        let name = node_name(node);
        let assign = |value| {
            let variable = self.fresh(&name);
            body.push(self.assign(variable.clone(), value));
            variable
        };
        initial.into_iter().map(assign).collect()
    }

    /// Adds empty lists for results of iterations.
    fn lists(&mut self, node: &SerializedNode, count: usize, body: &mut Vec<Stmt>) -> Vec<String> {
        let name = format!("{}_items", node_name(node));
        let add = |_| {
            let list = self.fresh(&name);
            body.push(self.assign(list.clone(), self.expr(AstExprKind::List(Vec::new()))));
            list
        };
        (0..count).map(add).collect()
    }

    /// Adds statements that append values to lists.
    fn append_all(&self, lists: &[String], values: Vec<AstExpr>, body: &mut Vec<Stmt>) {
        for (list, value) in lists.iter().zip(values) {
            let append = self.call("aten::append", [self.variable(list), value]);
            body.push(self.statement(StmtKind::Evaluate(append)));
        }
    }

    fn stacked(&self, lists: &[String]) -> Vec<AstExpr> {
        let stack = |list: &String| self.call("aten::stack", [self.variable(list), self.int(0)]);
        lists.iter().map(stack).collect()
    }

    /// The elements of tensors at a position of their first axes.
    fn elements(&self, tensors: &[AstExpr], position: AstExpr) -> Vec<AstExpr> {
        let element = |tensor: &AstExpr| {
            self.call(
                "aten::select",
                [tensor.clone(), self.int(0), position.clone()],
            )
        };
        tensors.iter().map(element).collect()
    }

    /// The length of the first axis of tensors.
    fn length(&self, tensors: &[AstExpr]) -> Result<AstExpr> {
        let first = tensors
            .first()
            .ok_or_else(|| missing("an input of a loop"))?;
        Ok(self.call("aten::size", [first.clone(), self.int(0)]))
    }

    fn for_loop(&self, variable: String, count: AstExpr, body: Vec<Stmt>) -> Stmt {
        self.statement(StmtKind::For {
            variable,
            count,
            body,
        })
    }

    fn variables(&self, names: &[String]) -> Vec<AstExpr> {
        names.iter().map(|name| self.variable(name)).collect()
    }
}

/// The graphs among a node's arguments.
fn graphs(node: &SerializedNode) -> impl Iterator<Item = &SerializedGraph> {
    node.inputs
        .iter()
        .filter_map(|argument| match &argument.arg {
            SerializedArgument::Graph(named) => Some(&named.graph),
            _ => None,
        })
}

/// The position of the first graph among a node's arguments.
fn position_of_graph(node: &SerializedNode) -> Option<usize> {
    let mut arguments = node.inputs.iter();
    arguments.position(|argument| matches!(argument.arg, SerializedArgument::Graph(_)))
}

/// The name that an input of a graph has there; none for constants.
pub(super) fn name_of(argument: &SerializedArgument) -> Option<&str> {
    match argument {
        SerializedArgument::Tensor(name)
        | SerializedArgument::Int(Symbolic::Named(name))
        | SerializedArgument::Float(Symbolic::Named(name))
        | SerializedArgument::Bool(Symbolic::Named(name)) => Some(name),
        _ => None,
    }
}

/// A name for the variables of a higher-order operator.
fn node_name(node: &SerializedNode) -> String {
    let name = node.target.rsplit('.').next().unwrap_or("result");
    name.to_string()
}

fn missing(what: &str) -> Error {
    Error::format(format!("{what} is not complete"))
}
