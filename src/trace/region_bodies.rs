//! Region bodies as closed graphs: each value and size that a body uses from the enclosing scopes is an input of its graph.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::dim::{Dim, Symbol};
use crate::error::{Error, Result};
use crate::ir::{Argument, Definition, Graph, ValueId, ValueInfo};
use crate::shape::TensorType;

use super::scope_stack::{GraphScope, ScopeStack, ValueRef};

/// The body of a region, before it becomes a graph.
pub struct RegionBody<L> {
    /// The closed scope of the body.
    scope: GraphScope<L>,
    /// Name of the graph.
    name: &'static str,
    /// Results of the body.
    outputs: Vec<ValueId>,
}

impl<L> RegionBody<L> {
    /// Takes a closed scope, the name of the graph, and the results of the body.
    pub fn new(scope: GraphScope<L>, name: &'static str, outputs: Vec<ValueId>) -> RegionBody<L> {
        RegionBody {
            scope,
            name,
            outputs,
        }
    }

    /// Finishes the graph. Its last inputs stand for `captures`, in that order. A value that this body does not use
    /// gets an input that no node reads.
    fn finish(self, captures: &[(ValueRef, TensorType)]) -> Result<Graph> {
        let scope = self.scope;
        let mut inputs = scope.body_inputs;
        for (outer, ty) in captures {
            let own_capture = scope.captures.iter().find(|(value, _)| value == outer);
            inputs.push(match own_capture {
                Some((_, id)) => *id,
                None => scope.builder.input("unused", ty.clone()).id(),
            });
        }
        let builder = Rc::try_unwrap(scope.builder);
        let builder =
            builder.map_err(|_| Error::internal("a region is still under construction"))?;
        let mut graph = builder.finish(&self.outputs, Vec::new(), None)?;
        graph.name = self.name.to_string();
        for (index, input) in inputs.iter().enumerate() {
            if let Some(info) = graph.values.get_mut(input.index()) {
                info.definition = Definition::Input(index);
            }
        }
        graph.inputs = inputs;
        Ok(graph)
    }
}

impl<L: Default> ScopeStack<L> {
    /// Turns bodies into graphs that have the same inputs for captured values. Returns the graphs, and the captured values
    /// as arguments of the region.
    pub fn close_bodies(
        &mut self,
        bodies: Vec<RegionBody<L>>,
    ) -> Result<(Vec<Graph>, Vec<Argument>)> {
        let mut captures = self.all_captures(&bodies)?;
        let graphs = bodies.into_iter().map(|body| body.finish(&captures));
        let mut graphs: Vec<Graph> = graphs.collect::<Result<_>>()?;
        let missing: BTreeSet<Symbol> = graphs.iter().flat_map(unbound_symbols).collect();
        for symbol in missing {
            let capture = self.size_source(&symbol)?;
            for graph in &mut graphs {
                add_size_input(graph, &symbol, capture.1.clone());
            }
            captures.push(capture);
        }
        graphs.iter_mut().for_each(retain_local_guards);
        let arguments = captures
            .into_iter()
            .map(|(outer, _)| self.capture(outer).map(Argument::Value));
        Ok((graphs, arguments.collect::<Result<_>>()?))
    }

    /// Returns the values of enclosing scopes that any of the bodies uses, with their types.
    fn all_captures(&self, bodies: &[RegionBody<L>]) -> Result<Vec<(ValueRef, TensorType)>> {
        let mut captures: Vec<(ValueRef, TensorType)> = Vec::new();
        for (outer, _) in bodies.iter().flat_map(|body| &body.scope.captures) {
            if !captures.iter().any(|(value, _)| value == outer) {
                captures.push((*outer, self.type_of(*outer)?));
            }
        }
        Ok(captures)
    }

    /// Returns an input of the whole graph that has the symbol as one of its sizes, with its type.
    fn size_source(&self, symbol: &Symbol) -> Result<(ValueRef, TensorType)> {
        for id in &self.inputs {
            let value = ValueRef {
                scope: self.root.number,
                id: *id,
            };
            let ty = self.type_of(value)?;
            if ty.shape.iter().any(|size| size.as_symbol() == Some(symbol)) {
                return Ok((value, ty));
            }
        }
        Err(Error::internal(format!("no input has the size {symbol}")))
    }
}

fn symbols_in<'a>(sizes: impl IntoIterator<Item = &'a Dim>) -> BTreeSet<Symbol> {
    sizes.into_iter().flat_map(Dim::symbols).collect()
}

/// Symbols in the types of the graph's inputs.
fn bound_symbols(graph: &Graph) -> BTreeSet<Symbol> {
    symbols_in(graph.inputs.iter().flat_map(|id| &graph.ty(*id).shape))
}

/// Symbols that a body uses and that no type of its inputs contains.
pub fn unbound_symbols(graph: &Graph) -> Vec<Symbol> {
    let mut used = symbols_in(graph.values.iter().flat_map(|info| &info.ty.shape));
    for node in &graph.nodes {
        for argument in &node.arguments {
            argument.map(&mut |id| id, &mut |dim| {
                used.extend(dim.symbols());
                dim.clone()
            });
        }
        if let crate::ir::Op::Primitive(primitive) = &node.op {
            primitive.clone().map_sizes(&mut |dim| {
                used.extend(dim.symbols());
                dim.clone()
            });
        }
    }
    used.difference(&bound_symbols(graph)).cloned().collect()
}

/// Adds an input of type `ty`, which has the symbol as one of its sizes. The input defines the symbol within the body.
pub fn add_size_input(graph: &mut Graph, symbol: &Symbol, ty: TensorType) {
    let definition = Definition::Input(graph.inputs.len());
    let id = graph.push_value(ValueInfo {
        name: format!("tells.{symbol}"),
        ty,
        definition,
    });
    graph.inputs.push(id);
}

/// Keeps the guards of a body that use only symbols of its inputs. The whole graph has all guards of its bodies as well.
pub fn retain_local_guards(graph: &mut Graph) {
    let bound = bound_symbols(graph);
    graph.guards.retain(|guard| {
        let used = symbols_in([&guard.left, &guard.right]);
        used.is_subset(&bound)
    });
}
