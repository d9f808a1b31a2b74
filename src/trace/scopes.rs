//! The graph under construction and the bodies of regions within it: what both tracers stack up while they follow a program.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::ir::{Builder, ValueId};
use crate::shape::TensorType;

/// A value of one of the graphs under construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueRef {
    /// The graph, by the number that its scope was given.
    pub scope: u32,
    /// The value in it.
    pub id: ValueId,
}

/// A graph, or the body of a region, with what a tracer keeps for it beside its nodes.
pub struct Scope<L> {
    /// Tells values of one scope from those of another; never used twice.
    pub number: u32,
    /// Its nodes.
    pub builder: Rc<Builder>,
    /// Values of the scope around it that the body uses, and its inputs that stand for them, in order.
    pub captures: Vec<(ValueRef, ValueId)>,
    /// Inputs that stand for no captured value: a loop's round and what it carries.
    pub own_inputs: Vec<ValueId>,
    /// What the tracer keeps.
    pub local: L,
    /// Where each captured value stands in `captures`.
    known: BTreeMap<ValueRef, ValueId>,
}

impl<L: Default> Scope<L> {
    fn new(number: u32, builder: Builder) -> Scope<L> {
        Scope {
            number,
            builder: Rc::new(builder),
            captures: Vec::new(),
            own_inputs: Vec::new(),
            local: L::default(),
            known: BTreeMap::new(),
        }
    }

    /// The input that stands for a value of the scope around it.
    fn capture(&mut self, outer: ValueRef, ty: TensorType) -> ValueId {
        if let Some(id) = self.known.get(&outer) {
            return *id;
        }
        let id = self.builder.input("captured", ty).id();
        self.captures.push((outer, id));
        self.known.insert(outer, id);
        id
    }
}

/// All open scopes.
pub struct Scopes<L> {
    /// The graph.
    pub root: Scope<L>,
    /// Tensor inputs of the graph so far.
    pub inputs: Vec<ValueId>,
    /// The regions around the statement that is run, outermost first.
    regions: Vec<Scope<L>>,
    next: u32,
}

impl<L: Default> Scopes<L> {
    /// A graph of this name without any region.
    pub fn new(name: &str) -> Scopes<L> {
        Scopes {
            root: Scope::new(0, Builder::new(name)),
            inputs: Vec::new(),
            regions: Vec::new(),
            next: 1,
        }
    }

    /// The innermost scope.
    pub fn innermost(&self) -> &Scope<L> {
        self.regions.last().unwrap_or(&self.root)
    }

    /// The innermost scope, to be changed.
    pub fn innermost_mut(&mut self) -> &mut Scope<L> {
        self.regions.last_mut().unwrap_or(&mut self.root)
    }

    /// All scopes, outermost first.
    pub fn iter(&self) -> impl Iterator<Item = &Scope<L>> {
        std::iter::once(&self.root).chain(&self.regions)
    }

    /// How many regions lie around the statement that is run.
    pub fn depth(&self) -> usize {
        self.regions.len()
    }

    /// Opens the body of a region.
    pub fn open(&mut self) {
        let builder = self.innermost().builder.scratch();
        self.regions.push(Scope::new(self.next, builder));
        self.next += 1;
    }

    /// Closes the innermost body.
    pub fn close(&mut self) -> Result<Scope<L>> {
        let closed = self.regions.pop();
        closed.ok_or_else(|| Error::internal("no region is open"))
    }

    /// Goes on with a body that was closed.
    pub fn reopen(&mut self, scope: Scope<L>) {
        self.regions.push(scope);
    }

    /// Adds an input of the whole graph.
    pub fn input(&mut self, name: &str, ty: TensorType) -> ValueRef {
        let id = self.root.builder.input(name, ty).id();
        self.inputs.push(id);
        self.of_root(id)
    }

    /// Adds an input of the innermost body that stands for no captured value.
    pub fn body_input(&mut self, name: &str, ty: TensorType) -> ValueId {
        let scope = self.innermost_mut();
        let id = scope.builder.input(name, ty).id();
        scope.own_inputs.push(id);
        id
    }

    /// A weight of the whole graph.
    pub fn weight(&self, name: &str, ty: TensorType) -> ValueRef {
        self.of_root(self.root.builder.weight(name, ty).id())
    }

    fn of_root(&self, id: ValueId) -> ValueRef {
        ValueRef {
            scope: self.root.number,
            id,
        }
    }

    /// True if the value belongs to the graph or to a region around the statement that is run.
    pub fn is_open(&self, value: ValueRef) -> bool {
        self.iter().any(|scope| scope.number == value.scope)
    }

    /// A value's type, whichever open scope it belongs to.
    pub fn type_of(&self, value: ValueRef) -> Result<TensorType> {
        let scope = self.iter().find(|scope| scope.number == value.scope);
        let scope = scope.ok_or_else(left_its_region)?;
        Ok(scope.builder.ty(value.id))
    }

    /// The value in the innermost graph: itself, or the input of the region's body that stands for it.
    pub fn captured(&mut self, value: ValueRef) -> Result<ValueId> {
        let mut scopes = std::iter::once(&mut self.root).chain(&mut self.regions);
        let owner = scopes.find(|scope| scope.number == value.scope);
        let owner = owner.ok_or_else(left_its_region)?;
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

fn left_its_region() -> Error {
    Error::internal("a value is used outside of its region")
}
