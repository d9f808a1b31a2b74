//! Type inference, node by node.

use crate::dim::{Bindings, Dim, Symbol};
use crate::error::Result;
use crate::op::Operand;
use crate::shape::TensorType;
use crate::symbols::{Guard, Relation, Symbols};

use super::builder::Builder;
use super::dictionary::Dictionary;
use super::graph::{Argument, Op};

/// The types of a graph's values, while nodes are inferred in order.
pub(super) struct TypeInference {
    builder: Builder,
}

impl TypeInference {
    pub(super) fn new(hints: Bindings, guards: Vec<Guard>) -> TypeInference {
        let builder = Builder::with_symbols("types", hints, guards);
        TypeInference { builder }
    }

    /// The symbols, with everything that is known about them.
    pub(super) fn symbols(&self) -> &Symbols {
        self.builder.symbols()
    }

    /// Adds the type of the next value.
    pub(super) fn push(&self, ty: &TensorType) {
        self.builder.input("x", ty.clone());
    }

    /// Infers the result types of a node whose arguments are known.
    pub(super) fn infer(
        &self,
        op: &Op,
        arguments: &[Argument],
        dictionary: &dyn Dictionary,
    ) -> Result<Vec<TensorType>> {
        match op {
            Op::Call(name) => dictionary.infer(name, &self.builder, arguments),
            Op::Region(region) => {
                let types: Vec<TensorType> = arguments
                    .iter()
                    .map(|argument| self.builder.scalar_or_value_type(argument))
                    .collect();
                region.infer(self.builder.symbols(), &types)
            }
            Op::Primitive(primitive) => {
                let types: Vec<TensorType> = arguments
                    .iter()
                    .map(|argument| self.builder.scalar_or_value_type(argument))
                    .collect();
                let operands: Vec<Operand> = arguments
                    .iter()
                    .zip(&types)
                    .map(|(argument, ty)| match argument {
                        Argument::Number(number) => Operand::Number(*number),
                        Argument::Size(dim) => Operand::Size(dim),
                        _ => Operand::Value(ty),
                    })
                    .collect();
                primitive.infer(self.builder.symbols(), &operands)
            }
        }
    }

    /// True if the types are equal, given the known equalities of symbols.
    pub(super) fn types_match(&self, inferred: &[TensorType], declared: &[&TensorType]) -> bool {
        let symbols = self.builder.symbols();
        let equal = |(a, b): (&TensorType, &&TensorType)| {
            let resolve = |dim: &Dim| symbols.resolve(dim);
            a.dtype == b.dtype && a.shape.iter().map(resolve).eq(b.shape.iter().map(resolve))
        };
        inferred.len() == declared.len() && inferred.iter().zip(declared).all(equal)
    }

    /// Guards that inference added.
    pub(super) fn new_guards(&self, known: &[Guard]) -> Vec<Guard> {
        let symbols = self.builder.symbols();
        let sides = |guard: &Guard| {
            let (left, right) = (symbols.resolve(&guard.left), symbols.resolve(&guard.right));
            (left, guard.relation, right)
        };
        let known: Vec<_> = known.iter().map(sides).collect();
        let guards = symbols.guards().into_iter();
        guards
            .filter(|guard| !known.contains(&sides(guard)))
            .collect()
    }

    /// Equations of symbols that inference found, without a guard that states them.
    pub(super) fn new_equations(&self, hints: &Bindings, guards: &[Guard]) -> Vec<(Symbol, Dim)> {
        let symbols = self.builder.symbols();
        let free = symbols.hints();
        let is_known = |name: &Symbol| {
            guards.iter().any(|guard| {
                let sides = [&guard.left, &guard.right];
                guard.relation == Relation::Equal
                    && sides.iter().any(|side| side.symbols().contains(name))
            })
        };
        let lost = hints
            .keys()
            .filter(|name| !free.contains_key(*name) && !is_known(name));
        lost.map(|name| (name.clone(), symbols.resolve(&Dim::symbol(name.clone()))))
            .collect()
    }
}
