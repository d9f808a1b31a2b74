//! Source for branches, loops and nested graphs.

use crate::error::{Error, Result};
use crate::ir::{Argument, Graph, Node, Region, ValueId};
use crate::scalar::Scalar;

use super::SourceWriter;
use super::literal::operand_source;
use super::variables::TensorExpr;

impl<'a> SourceWriter<'a> {
    /// Writes the statements for a region.
    pub(super) fn region(&mut self, node: &Node, region: &'a Region) -> Result<()> {
        if node.results.len() > 8 {
            let message = format!(
                "a region has {} results; code can return at most eight",
                node.results.len()
            );
            return Err(Error::unsupported(message));
        }
        match region {
            Region::If { then, otherwise } => self.cond(node, then, otherwise),
            Region::Loop { body, carried } => self.while_loop(node, body, *carried),
            Region::Call { body } => {
                let block =
                    self.body_block(body, self.argument_exprs(&node.arguments)?, self.depth)?;
                let names = self.pattern(&node.results);
                self.write_line(&format!("// {}", body.name));
                self.write_line(&format!("let {names} = {block};"));
                Ok(())
            }
        }
    }

    /// Expressions for the arguments of a region, as its body uses them.
    fn argument_exprs(&self, arguments: &[Argument]) -> Result<Vec<TensorExpr>> {
        let expr = |argument: &Argument| match argument {
            Argument::Value(id) => self.tensor_expr(*id),
            number => self.owned(number).map(TensorExpr::owned),
        };
        arguments.iter().map(expr).collect()
    }

    /// Writes the body of a region with these expressions for its inputs. Returns the writer, which holds the source.
    /// `depth` is the indentation depth of the block.
    fn body(
        &self,
        graph: &'a Graph,
        inputs: Vec<TensorExpr>,
        depth: usize,
    ) -> Result<SourceWriter<'a>> {
        let mut writer = SourceWriter::new(graph, self.names.clone(), depth + 1);
        let input_exprs = graph.inputs.iter().copied().zip(inputs);
        writer.exprs.extend(input_exprs);
        writer.write_nodes()?;
        Ok(writer)
    }

    /// The body of a region as a block expression.
    fn body_block(
        &self,
        graph: &'a Graph,
        inputs: Vec<TensorExpr>,
        depth: usize,
    ) -> Result<String> {
        let body = self.body(graph, inputs, depth)?;
        let result = body.tuple(&graph.outputs)?;
        Ok(block_source(&body.lines, &result, depth))
    }

    /// Defines a variable for each result. Returns the pattern of the `let` statement.
    fn pattern(&mut self, results: &[ValueId]) -> String {
        let names: Vec<String> = results.iter().map(|id| self.define_variable(*id)).collect();
        match names.as_slice() {
            [single] => single.clone(),
            several => format!("({})", several.join(", ")),
        }
    }

    /// Writes a call with one line for each argument.
    fn call_lines(&mut self, head: &str, arguments: &[String]) {
        self.write_line(&format!("{head}("));
        for argument in arguments {
            self.write_line(&format!("    {argument},"));
        }
        self.write_line(")?;");
    }

    /// Writes a call of `cond`.
    fn cond(&mut self, node: &Node, then: &'a Graph, otherwise: &'a Graph) -> Result<()> {
        let Some((condition, captured)) = node.arguments.split_first() else {
            return Err(Error::internal("a branch without a condition"));
        };
        let inputs = self.argument_exprs(captured)?;
        let then = self.body_block(then, inputs.clone(), self.depth + 1)?;
        let otherwise = self.body_block(otherwise, inputs, self.depth + 1)?;
        let condition = match condition {
            Argument::Value(id) => self.borrowed(*id)?,
            number => format!("&{}", self.owned(number)?),
        };
        let names = self.pattern(&node.results);
        let arguments = [condition, format!("|| {then}"), format!("|| {otherwise}")];
        self.call_lines(&format!("let {names} = cond"), &arguments);
        Ok(())
    }

    /// Writes a call of `while_loop` whose state is a tuple: the iteration number (`round`), the condition for another
    /// iteration (`again`), and a tuple of the carried values.
    fn while_loop(&mut self, node: &Node, body: &'a Graph, carried: usize) -> Result<()> {
        let [trips, condition, carried_and_captured @ ..] = node.arguments.as_slice() else {
            return Err(Error::internal("a loop without a trip count"));
        };
        let (initial_values, captured) =
            carried_and_captured.split_at(carried.min(carried_and_captured.len()));
        let [round, again] = ["round", "again"].map(|name| self.unique(name));
        let state = body.inputs.iter().skip(1).take(carried);
        let state: Vec<String> = state.map(|id| self.unique(&body.value(*id).name)).collect();
        let inputs = std::iter::once(&round).chain(&state).map(TensorExpr::owned);
        let inputs = inputs.chain(self.argument_exprs(captured)?).collect();
        let mut body_writer = self.body(body, inputs, self.depth + 1)?;
        body_writer
            .owned_locals
            .extend(body.inputs.iter().skip(1).take(carried));
        let results = body_writer.results(&body.outputs)?;
        let [next_condition, next_values @ ..] = results.as_slice() else {
            return Err(Error::internal("a loop without a condition"));
        };
        let result = format!(
            "({round}.add(1), {next_condition}, {})",
            tuple_source(next_values)
        );
        let body_block = block_source(&body_writer.lines, &result, self.depth + 1);
        let initial_values = initial_values.iter().map(|argument| self.owned(argument));
        let initial_values = tuple_source(&initial_values.collect::<Result<Vec<_>>>()?);
        let arguments = [
            format!(
                "(ops::tensor(0), {}, {initial_values})",
                self.owned(condition)?
            ),
            self.loop_condition(trips, &round, &again)?,
            format!("|({round}, _, {})| {body_block}", tuple_source(&state)),
        ];
        let results: Vec<String> = node
            .results
            .iter()
            .map(|id| self.define_variable(*id))
            .collect();
        self.call_lines(
            &format!("let (_, _, {}) = while_loop", tuple_source(&results)),
            &arguments,
        );
        Ok(())
    }

    /// The closure for the loop condition. `round` and `again` are the variables of its state. Without a limit on
    /// `trips`, the number of iterations, only the condition counts.
    fn loop_condition(&self, trips: &Argument, round: &str, again: &str) -> Result<String> {
        let trips = match trips {
            Argument::Number(Scalar::Int(i64::MAX)) => {
                return Ok(format!("|(_, {again}, _)| {again}.clone()"));
            }
            Argument::Value(id) => self.borrowed(*id)?,
            other => operand_source(other),
        };
        Ok(format!(
            "|({round}, {again}, _)| {again}.logical_and(&{round}.lt({trips}))"
        ))
    }
}

/// A block of statements with a result.
fn block_source(lines: &str, result: &str, depth: usize) -> String {
    let indent = "    ".repeat(depth);
    format!("{{\n{lines}{indent}    {result}\n{indent}}}")
}

/// A tuple, with a trailing comma for a single item.
fn tuple_source(items: &[String]) -> String {
    match items {
        [single] => format!("({single},)"),
        items => format!("({})", items.join(", ")),
    }
}
