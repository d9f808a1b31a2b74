//! The graph under construction and the region bodies within it, as a stack of scopes. Both front ends use it: the
//! importer of TorchScript and the tracer of Rust programs.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Builder, ValueId};
use crate::shape::TensorType;

/// A value of one of the graphs under construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueRef {
    /// The graph, by the number of its scope.
    pub scope: u32,
    /// The value in it.
    pub id: ValueId,
}

/// A graph or a region body under construction, with the data that a tracer keeps for it.
pub struct GraphScope<L> {
    /// Number that identifies the scope; never used twice.
    pub number: u32,
    /// Builder of its nodes.
    pub builder: Rc<Builder>,
    /// Captures: the values of the enclosing scope that the body uses, each with the input that stands for it, in the
    /// order of first use.
    pub captures: Vec<(ValueRef, ValueId)>,
    /// Inputs that stand for no captured value: the iteration number of a loop and the values that it carries.
    pub body_inputs: Vec<ValueId>,
    /// Data of the tracer.
    pub data: L,
    /// The input that stands for each captured value.
    input_of_capture: BTreeMap<ValueRef, ValueId>,
}

impl<L: Default> GraphScope<L> {
    fn new(number: u32, builder: Builder) -> GraphScope<L> {
        GraphScope {
            number,
            builder: Rc::new(builder),
            captures: Vec::new(),
            body_inputs: Vec::new(),
            data: L::default(),
            input_of_capture: BTreeMap::new(),
        }
    }

    /// Returns the input that stands for `outer`, a value of the enclosing scope of type `ty`. Adds it if there is none
    /// yet.
    fn capture(&mut self, outer: ValueRef, ty: TensorType) -> ValueId {
        if let Some(id) = self.input_of_capture.get(&outer) {
            return *id;
        }
        let id = self.builder.input("captured", ty).id();
        self.captures.push((outer, id));
        self.input_of_capture.insert(outer, id);
        id
    }
}

/// The stack of all open scopes.
pub struct ScopeStack<L> {
    /// The scope of the whole graph.
    pub root: GraphScope<L>,
    /// Tensor inputs of the graph so far.
    pub inputs: Vec<ValueId>,
    /// The open regions, outermost first.
    regions: Vec<GraphScope<L>>,
    /// Number of the next scope.
    next_number: u32,
}

impl<L: Default> ScopeStack<L> {
    /// Starts a graph of this name, with no region open.
    pub fn new(name: &str) -> ScopeStack<L> {
        ScopeStack {
            root: GraphScope::new(0, Builder::new(name)),
            inputs: Vec::new(),
            regions: Vec::new(),
            next_number: 1,
        }
    }

    /// The innermost scope.
    pub fn innermost(&self) -> &GraphScope<L> {
        self.regions.last().unwrap_or(&self.root)
    }

    /// The innermost scope, mutably.
    pub fn innermost_mut(&mut self) -> &mut GraphScope<L> {
        self.regions.last_mut().unwrap_or(&mut self.root)
    }

    /// All scopes, outermost first.
    pub fn iter(&self) -> impl Iterator<Item = &GraphScope<L>> {
        std::iter::once(&self.root).chain(&self.regions)
    }

    /// Number of open regions.
    pub fn depth(&self) -> usize {
        self.regions.len()
    }

    /// Opens the body of a region.
    pub fn open(&mut self) {
        let builder = self.innermost().builder.scratch();
        self.regions
            .push(GraphScope::new(self.next_number, builder));
        self.next_number += 1;
    }

    /// Closes the innermost body.
    pub fn close(&mut self) -> Result<GraphScope<L>> {
        let closed = self.regions.pop();
        closed.ok_or_else(|| Error::internal("no region is open"))
    }

    /// Reopens a body that was closed.
    pub fn reopen(&mut self, scope: GraphScope<L>) {
        self.regions.push(scope);
    }

    /// Adds an input of the whole graph.
    pub fn input(&mut self, name: &str, ty: TensorType) -> ValueRef {
        let id = self.root.builder.input(name, ty).id();
        self.inputs.push(id);
        self.root_value(id)
    }

    /// Adds an input of the innermost body that stands for no captured value.
    pub fn add_body_input(&mut self, name: &str, ty: TensorType) -> ValueId {
        let scope = self.innermost_mut();
        let id = scope.builder.input(name, ty).id();
        scope.body_inputs.push(id);
        id
    }

    /// A weight of the whole graph.
    pub fn weight(&self, name: &str, ty: TensorType) -> ValueRef {
        self.root_value(self.root.builder.weight(name, ty).id())
    }

    fn root_value(&self, id: ValueId) -> ValueRef {
        ValueRef {
            scope: self.root.number,
            id,
        }
    }

    /// True if the value belongs to an open scope.
    pub fn is_open(&self, value: ValueRef) -> bool {
        self.iter().any(|scope| scope.number == value.scope)
    }

    /// The type of a value of any open scope.
    pub fn type_of(&self, value: ValueRef) -> Result<TensorType> {
        let scope = self.iter().find(|scope| scope.number == value.scope);
        let scope = scope.ok_or_else(out_of_scope)?;
        Ok(scope.builder.ty(value.id))
    }

    /// Captures an input of the whole graph for each symbol of a size that a region's body uses, so that the body's inputs
    /// determine the symbol.
    pub fn capture_symbols(&mut self, size: &Dim) -> Result<()> {
        if self.regions.is_empty() {
            return Ok(());
        }
        for symbol in &size.symbols() {
            let determines = |id: &&ValueId| {
                let shape = self.root.builder.ty(**id).shape;
                shape.iter().any(|dim| dim.as_symbol() == Some(symbol))
            };
            if let Some(input) = self.inputs.iter().find(determines) {
                self.capture(self.root_value(*input))?;
            }
        }
        Ok(())
    }

    /// Returns the value in the innermost scope: the value itself, or the input of the region's body that stands for it.
    pub fn capture(&mut self, value: ValueRef) -> Result<ValueId> {
        let mut scopes = std::iter::once(&mut self.root).chain(&mut self.regions);
        let owner = scopes.find(|scope| scope.number == value.scope);
        let owner = owner.ok_or_else(out_of_scope)?;
        let mut outer = value;
        let mut ty = owner.builder.ty(value.id);
        for scope in scopes {
            let id = scope.capture(outer, ty);
            ty = scope.builder.ty(id);
            let scope = scope.number;
            outer = ValueRef { scope, id };
        }
        Ok(outer.id)
    }
}

fn out_of_scope() -> Error {
    Error::internal("a value is used outside of its region")
}
