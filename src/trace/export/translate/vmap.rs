//! Calls of `torch.vmap`, which programs hold as the nodes between two marks: a loop over the elements of a batch.
//!
//! `_add_batch_dim` makes a tensor of the batch one of each element, `_remove_batch_dim` the reverse.

use std::collections::BTreeMap;

use super::control::name_of;
use super::{Scope, Translator};
use crate::error::{Error, Result};
use crate::trace::export::codes;
use crate::trace::export::schema::{
    SerializedArgument, SerializedGraph, SerializedNode, Symbolic, TensorMeta,
};
use crate::trace::script::ast::{AstExpr, AstExprKind, Stmt, StmtKind};

const NAMESPACE: &str = "torch._functorch.predispatch.";
/// Most calls within each other: a file may hold any number of marks.
const MAX_DEPTH: usize = 64;

/// The part that a node has in a call of `torch.vmap`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum VmapNode {
    Begin,
    End,
    AddBatch,
    RemoveBatch,
    /// Has no effect on results.
    Preparation,
}

impl VmapNode {
    pub(super) fn of(node: &SerializedNode) -> Option<VmapNode> {
        match node.target.strip_prefix(NAMESPACE)? {
            "_vmap_increment_nesting" => Some(VmapNode::Begin),
            "_vmap_decrement_nesting" => Some(VmapNode::End),
            "_add_batch_dim" => Some(VmapNode::AddBatch),
            "_remove_batch_dim" => Some(VmapNode::RemoveBatch),
            "lazy_load_decompositions" => Some(VmapNode::Preparation),
            _ => None,
        }
    }
}

/// A result of a call: the list of its elements, and the axis of the batch.
struct BatchedResult<'a> {
    output: &'a SerializedArgument,
    elements: String,
    axis: AstExpr,
}

impl Translator {
    /// Adds the loop of a call that `begin` starts and `nodes` continue. Returns the nodes after its end.
    pub(super) fn vmap<'a>(
        &mut self,
        begin: &SerializedNode,
        nodes: &'a [SerializedNode],
        graph: &SerializedGraph,
        scope: &mut Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<&'a [SerializedNode]> {
        self.vmap_depth += 1;
        if MAX_DEPTH < self.vmap_depth {
            let message = format!("calls of torch.vmap nested more than {MAX_DEPTH} deep");
            return Err(Error::unsupported(message));
        }
        let size = argument(begin, 0)?;
        let count = self.argument(size, scope)?;
        let round = self.fresh("element");
        let mut statements = Vec::new();
        let mut results = Vec::new();
        let mut rest = nodes;
        loop {
            let (node, after) = rest
                .split_first()
                .ok_or_else(|| Error::format("a call of torch.vmap has no end"))?;
            rest = after;
            match VmapNode::of(node) {
                Some(VmapNode::End) => break,
                Some(VmapNode::AddBatch) => {
                    let [value, axis] = [argument(node, 0)?, argument(node, 1)?];
                    let [value, axis] = [self.argument(value, scope)?, self.argument(axis, scope)?];
                    let element = self.call("aten::select", [value, axis, self.variable(&round)]);
                    self.bind(&node.outputs, element, scope, &mut statements)?;
                }
                Some(VmapNode::RemoveBatch) => {
                    let result = self.collect_elements(node, scope, body, &mut statements)?;
                    results.push(result);
                }
                _ => rest = self.node_at(node, after, graph, scope, &mut statements)?,
            }
        }
        self.vmap_depth -= 1;
        body.push(self.statement(StmtKind::For {
            variable: round,
            count: count.clone(),
            body: statements,
        }));
        for result in results {
            let list = self.variable(&result.elements);
            let mut value = self.call("aten::stack", [list, result.axis.clone()]);
            if let Some(empty) = self.empty_batch(&result, &graph.tensor_values)? {
                let has_elements = self.call("aten::gt", [count.clone(), self.int(0)]);
                value = self.choice(vec![has_elements, value, empty], body)?;
            }
            self.bind(std::slice::from_ref(result.output), value, scope, body)?;
        }
        Ok(rest)
    }

    /// Adds a list before the loop, and the statement that appends the element of a round.
    fn collect_elements<'a>(
        &mut self,
        node: &'a SerializedNode,
        scope: &Scope,
        body: &mut Vec<Stmt>,
        statements: &mut Vec<Stmt>,
    ) -> Result<BatchedResult<'a>> {
        let elements = self.fresh("elements");
        let none = self.expr(AstExprKind::List(Vec::new()));
        body.push(self.assign(elements.clone(), none));
        let value = self.argument(argument(node, 0)?, scope)?;
        let append = self.call("aten::append", [self.variable(&elements), value]);
        statements.push(self.statement(StmtKind::Evaluate(append)));
        Ok(BatchedResult {
            output: node.outputs.first().ok_or_else(|| incomplete(node))?,
            elements,
            axis: self.argument(argument(node, 3)?, scope)?,
        })
    }

    /// A result of a call without elements, whose shape the loop does not tell; none if other sizes than the batch may vary.
    fn empty_batch(
        &self,
        result: &BatchedResult<'_>,
        types: &BTreeMap<String, TensorMeta>,
    ) -> Result<Option<AstExpr>> {
        let meta = name_of(result.output).and_then(|name| types.get(name));
        let (Some(meta), AstExprKind::Int(axis)) = (meta, &result.axis.kind) else {
            return Ok(None);
        };
        let size = |(position, size): (i64, &Symbolic<i64>)| match size {
            _ if position == *axis => Some(self.int(0)),
            Symbolic::Known(size) => Some(self.int(*size)),
            _ => None,
        };
        let sizes: Option<Vec<AstExpr>> = (0..).zip(&meta.sizes).map(size).collect();
        let zeros = |sizes| {
            let dtype = self.int(codes::torchscript_dtype(meta.dtype));
            let sizes = vec![self.expr(AstExprKind::List(sizes))];
            self.call_with("aten::zeros", sizes, vec![("dtype".to_string(), dtype)])
        };
        Ok(sizes.map(zeros))
    }
}

fn argument(node: &SerializedNode, position: usize) -> Result<&SerializedArgument> {
    let argument = node.inputs.get(position);
    Ok(&argument.ok_or_else(|| incomplete(node))?.arg)
}

fn incomplete(node: &SerializedNode) -> Error {
    Error::format(format!("{} is not complete", node.target))
}
