//! Containers of modules.

use std::fmt;

use std::borrow::Borrow;

use crate::trace::native::{Forward, Module, Parameter, TracedTensor, Visitor};

/// A module from one tensor to one tensor, as [`Sequential`] holds it. Implemented for all modules with such a [`Forward`]
/// and `Clone` that threads can share.
pub trait Layer: Module + Send + Sync {
    /// Calls the module.
    fn apply(&self, x: &TracedTensor) -> TracedTensor;

    /// A copy of the module.
    fn boxed_clone(&self) -> Box<dyn Layer>;
}

impl<M> Layer for M
where
    M: for<'x> Forward<&'x TracedTensor, Output = TracedTensor> + Clone + Send + Sync + 'static,
{
    fn apply(&self, x: &TracedTensor) -> TracedTensor {
        self.call(x)
    }

    fn boxed_clone(&self) -> Box<dyn Layer> {
        Box::new(self.clone())
    }
}

/// `torch.nn.Sequential`: a chain of modules, named by their index unless they are given names.
#[derive(Default)]
pub struct Sequential {
    layers: Vec<(String, Box<dyn Layer>)>,
}

impl Clone for Sequential {
    fn clone(&self) -> Sequential {
        let layers = self.layers.iter();
        let copies = layers.map(|(name, layer)| (name.clone(), layer.boxed_clone()));
        Sequential {
            layers: copies.collect(),
        }
    }
}

impl fmt::Debug for Sequential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.layers.iter().map(|(name, _)| name);
        f.debug_tuple("Sequential")
            .field(&names.collect::<Vec<_>>())
            .finish()
    }
}

impl Sequential {
    /// An empty chain.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Appends a module.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "it is not a sum")]
    pub fn add(self, layer: impl Layer + 'static) -> Sequential {
        let name = self.layers.len().to_string();
        self.named(&name, layer)
    }

    /// Appends a module under a name.
    #[must_use]
    pub fn named(mut self, name: &str, layer: impl Layer + 'static) -> Sequential {
        self.layers.push((name.to_string(), Box::new(layer)));
        self
    }

    /// Number of modules.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// True without modules.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The module at a position.
    pub fn get(&self, index: usize) -> Option<&dyn Layer> {
        self.layers.get(index).map(|(_, layer)| &**layer)
    }

    /// Names and modules.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &dyn Layer)> {
        let layers = self.layers.iter();
        layers.map(|(name, layer)| (name.as_str(), &**layer))
    }
}

impl Module for Sequential {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module(self);
        for (name, layer) in &self.layers {
            visitor.field(name, &**layer);
        }
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for Sequential {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let layers = self.layers.iter();
        layers.fold(x.borrow().clone(), |x, (_, layer)| layer.apply(&x))
    }
}

/// `torch.nn.ModuleDict`: modules by name, in insertion order.
#[derive(Clone, Debug)]
pub struct ModuleDict<M> {
    entries: Vec<(String, M)>,
}

impl<M> ModuleDict<M> {
    /// Modules by name.
    pub fn new<N: Into<String>>(entries: impl IntoIterator<Item = (N, M)>) -> ModuleDict<M> {
        let entries = entries.into_iter();
        ModuleDict {
            entries: entries
                .map(|(name, module)| (name.into(), module))
                .collect(),
        }
    }

    /// The module with this name.
    pub fn get(&self, name: &str) -> Option<&M> {
        let mut entries = self.entries.iter();
        let found = entries.find(|(entry, _)| entry == name);
        found.map(|(_, module)| module)
    }

    /// Names and modules.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &M)> {
        let entries = self.entries.iter();
        entries.map(|(name, module)| (name.as_str(), module))
    }
}

/// `torch.nn.ModuleList`
pub type ModuleList<M> = Vec<M>;
/// `torch.nn.ParameterList`: parameters named by their index.
pub type ParameterList = Vec<Parameter>;
/// `torch.nn.ParameterDict`: parameters by name, in insertion order.
pub type ParameterDict = ModuleDict<Parameter>;

impl<M: Module> Module for ModuleDict<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (name, module) in &self.entries {
            visitor.field(name, module);
        }
    }
}
