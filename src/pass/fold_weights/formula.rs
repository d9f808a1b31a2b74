//! Formulas of weights: a weight of the module, or a primitive applied to other formulas. The number of a formula is
//! its index in [`Formulas::all`].

use std::collections::{BTreeSet, HashMap};

use crate::digest::Digest;
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Argument, Primitive, ValueId, Weights};
use crate::pass::constant::evaluate;
use crate::shape::TensorType;
use crate::tensor::Tensor;

/// A formula and the type of its value.
pub(super) struct Formula {
    pub(super) ty: TensorType,
    pub(super) source: FormulaSource,
}

/// The computation of a formula.
pub(super) enum FormulaSource {
    /// The name of a weight of the module.
    Weight(String),
    /// A primitive and its arguments. Each `Argument::Value` holds the number of a formula, smaller than the number of
    /// this one.
    Node(Primitive, Vec<Argument>),
}

/// All formulas, addressed by number.
#[derive(Default)]
pub(super) struct Formulas {
    pub(super) all: Vec<Formula>,
    /// Numbers of formulas by their printed form.
    numbers: HashMap<String, usize>,
}

impl Formula {
    /// Numbers of the formulas that this one reads.
    pub(super) fn operands(&self) -> impl Iterator<Item = usize> {
        let arguments = match &self.source {
            FormulaSource::Weight(_) => [].as_slice(),
            FormulaSource::Node(_, arguments) => arguments.as_slice(),
        };
        arguments
            .iter()
            .flat_map(Argument::values)
            .map(ValueId::index)
    }

    /// Digest of the formula from the digests of its operands, which `known` has by number.
    ///
    /// # Errors
    /// A weight is missing or cannot be read.
    pub(super) fn digest(
        &self,
        weights: &Weights,
        known: &HashMap<usize, Digest>,
    ) -> Result<Digest> {
        match &self.source {
            FormulaSource::Weight(name) => {
                Digest::of_tensor(weights.get(name).ok_or_else(missing_weight)?)
            }
            FormulaSource::Node(primitive, arguments) => {
                let operands = self.operands().map(|operand| known.get(&operand).copied());
                let operands = operands.collect::<Option<Vec<Digest>>>();
                let operands = operands.ok_or_else(missing_weight)?;
                // Numbers of formulas differ between modules.
                let without_numbers =
                    |argument: &Argument| argument.map(&mut |_| 0.into(), &mut Dim::clone);
                let arguments: Vec<Argument> = arguments.iter().map(without_numbers).collect();
                let text = format!("{primitive:?}({arguments:?}) of {operands:?}");
                Ok(Digest::of(text.as_bytes()))
            }
        }
    }

    /// True for a user-defined function.
    pub(super) fn is_custom(&self) -> bool {
        matches!(self.source, FormulaSource::Node(Primitive::Custom(_), _))
    }

    /// True if evaluation cannot fail for any elements of the operands.
    pub(super) fn is_total(&self) -> bool {
        match &self.source {
            FormulaSource::Weight(_) => true,
            FormulaSource::Node(primitive, arguments) if has_symbols(primitive, arguments) => false,
            FormulaSource::Node(primitive, _) => {
                let is_reduction = matches!(
                    primitive,
                    Primitive::Reduce(_) | Primitive::Dot(_) | Primitive::Conv(_)
                );
                is_reduction || primitive.is_infallible(self.ty.dtype)
            }
        }
    }
}

/// True if a size is symbolic, hence known only at a call.
fn has_symbols(primitive: &Primitive, arguments: &[Argument]) -> bool {
    let mut found = arguments
        .iter()
        .any(|argument| matches!(argument, Argument::Size(_)));
    primitive.clone().map_sizes(&mut |dim| {
        found |= dim.as_const().is_none();
        dim.clone()
    });
    found
}

impl Formulas {
    /// Number of a formula. Adds the formula if it is new.
    pub(super) fn number(&mut self, ty: &TensorType, source: FormulaSource) -> usize {
        let key = match &source {
            FormulaSource::Weight(name) => format!("${name:?}"),
            FormulaSource::Node(primitive, arguments) => format!("{primitive:?}({arguments:?})"),
        };
        *self.numbers.entry(key).or_insert_with(|| {
            self.all.push(Formula {
                ty: ty.clone(),
                source,
            });
            self.all.len() - 1
        })
    }

    /// Numbers of a formula and of all formulas that it depends on, smallest first.
    pub(super) fn dependencies(&self, number: usize) -> BTreeSet<usize> {
        let mut numbers = BTreeSet::new();
        let mut worklist = vec![number];
        while let Some(number) = worklist.pop() {
            if numbers.insert(number) {
                worklist.extend(self.all.get(number).into_iter().flat_map(Formula::operands));
            }
        }
        numbers
    }

    /// Evaluates a formula.
    ///
    /// # Errors
    /// Fails if a weight is missing or a primitive fails.
    pub(super) fn compute(&self, number: usize, weights: &Weights) -> Result<Tensor> {
        let mut known: HashMap<usize, Tensor> = HashMap::new();
        for dependency in self.dependencies(number) {
            let Some(formula) = self.all.get(dependency) else {
                continue;
            };
            let tensor = match &formula.source {
                FormulaSource::Weight(name) => weights.get(name).map(Tensor::load).transpose()?,
                FormulaSource::Node(primitive, arguments) => {
                    let operand = |id: ValueId| known.get(&id.index()).cloned();
                    evaluate(primitive, arguments, &operand)?.pop()
                }
            };
            known.extend(tensor.map(|tensor| (dependency, tensor)));
        }
        known.remove(&number).ok_or_else(missing_weight)
    }
}

/// The error for a formula that reads a weight that the module does not have.
pub(super) fn missing_weight() -> Error {
    Error::internal("a formula reads a missing weight")
}
