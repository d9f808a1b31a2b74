//! Weights that are computed of other parameters: `torch.nn.utils.parametrizations`.

use super::{Spot, init};
use crate::error::Result;
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{
    Buffer, Forward, Parameter, TracedTensor, Training, Visitor, example_sizes, failed,
};

/// A module whose weight [`WeightNorm`] and [`SpectralNorm`] compute.
pub trait Weighted: Module {
    /// The weight.
    fn weight(&self) -> &Parameter;

    /// The bias, if there is one.
    fn bias(&self) -> Option<&Parameter>;

    /// The module with another weight, and the same bias.
    #[must_use]
    fn with_weight(&self, weight: TracedTensor) -> Self;
}

/// Names of the parameters that a weight is computed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    /// Of `torch.nn.utils.parametrizations`.
    Parametrizations,
    /// Of `torch.nn.utils.weight_norm` and `torch.nn.utils.spectral_norm`.
    Old,
}

/// The formula of a weight: PyTorch's module `parametrizations.weight.0`, whose path its operators have.
#[derive(Clone, Debug, Default, Module)]
struct Formula(Spot);

impl<F: FnOnce() -> TracedTensor> Forward<F> for Formula {
    type Output = TracedTensor;

    fn forward(&self, weight: F) -> TracedTensor {
        weight()
    }
}

impl Formula {
    /// Computes the weight, under the path of the formula unless the parameters have old names.
    fn compute(&self, names: Names, weight: impl FnOnce() -> TracedTensor) -> TracedTensor {
        match names {
            Names::Parametrizations => self.call(weight),
            Names::Old => weight(),
        }
    }

    /// Visits the formula where PyTorch has a module for it.
    fn visit_under(&self, names: Names, visitor: &mut Visitor<'_>) {
        if names == Names::Parametrizations {
            visitor.field("parametrizations.weight.0", self);
        }
    }
}

/// Defines the option for old names.
macro_rules! old_names {
    ($name:ident $function:literal $keys:literal) => {
        impl<M> $name<M> {
            #[doc = concat!("Names the parameters as `torch.nn.utils.", $function, "` does: ", $keys, ".")]
            #[must_use]
            pub fn old_names(mut self) -> $name<M> {
                self.names = Names::Old;
                self
            }
        }
    };
}

old_names!(WeightNorm "weight_norm" "`weight_g`, `weight_v`");
old_names!(SpectralNorm "spectral_norm" "`weight_orig`, `weight_u`, `weight_v`");

/// `torch.nn.utils.parametrizations.weight_norm`: the weight is a direction times a length, both of them parameters.
#[derive(Clone, Debug)]
pub struct WeightNorm<M> {
    module: M,
    length: Parameter,
    direction: Parameter,
    dim: i64,
    names: Names,
    formula: Formula,
}

impl<M: Weighted> WeightNorm<M> {
    /// The weight of `module` has a length for each row.
    pub fn new(module: M) -> WeightNorm<M> {
        WeightNorm::along(module, 0)
    }

    /// The weight of `module` has a length for each index of an axis.
    pub fn along(module: M, dim: i64) -> WeightNorm<M> {
        let direction = module.weight();
        let norm = direction.norm_except_dim_with(kw!(pow = 2, dim = dim));
        WeightNorm {
            length: Parameter::from(norm),
            direction: direction.clone(),
            module,
            dim,
            names: Names::Parametrizations,
            formula: Formula::default(),
        }
    }
}

impl<M: Weighted> Module for WeightNorm<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module(self);
        let [length, direction] = match self.names {
            Names::Old => ["weight_g", "weight_v"],
            Names::Parametrizations => [
                "parametrizations.weight.original0",
                "parametrizations.weight.original1",
            ],
        };
        if let Some(bias) = self.module.bias() {
            visitor.field("bias", bias);
        }
        visitor.field(length, &self.length);
        visitor.field(direction, &self.direction);
        self.formula.visit_under(self.names, visitor);
    }
}

impl<M: Weighted + Forward<X>, X> Forward<X> for WeightNorm<M> {
    type Output = M::Output;

    fn forward(&self, x: X) -> M::Output {
        let weight = self.formula.compute(self.names, || {
            self.direction
                ._weight_norm_with(&self.length, kw!(dim = self.dim))
        });
        self.module.with_weight(weight).forward(x)
    }
}

/// `torch.nn.utils.parametrizations.spectral_norm`: the weight is divided by its largest singular value, which is
/// approximated. In training mode each call improves the approximation, which is a state of the graph.
#[derive(Clone, Debug)]
pub struct SpectralNorm<M> {
    module: M,
    weight: Parameter,
    /// Approximate singular vectors.
    left: Buffer,
    right: Buffer,
    iterations: usize,
    eps: f64,
    names: Names,
    formula: Formula,
    training: Training,
}

impl<M: Weighted> SpectralNorm<M> {
    /// Divides the weight of `module` by the largest singular value of the matrix with the weight's first axis as rows.
    pub fn new(module: M) -> SpectralNorm<M> {
        let weight = module.weight().clone();
        let sizes = example_sizes(&weight).unwrap_or_default();
        let rows = sizes.first().copied().unwrap_or(1);
        let columns: usize = sizes.iter().skip(1).product();
        let mut norm = SpectralNorm {
            module,
            weight,
            left: Buffer::new([rows], init::normal(0.0, 1.0)),
            right: Buffer::new([columns], init::normal(0.0, 1.0)),
            iterations: 1,
            eps: 1e-12,
            names: Names::Parametrizations,
            formula: Formula::default(),
            training: Training::default(),
        };
        let [left, right] = norm.improved(15);
        (norm.left, norm.right) = (left.into(), right.into());
        norm
    }

    /// Number of improvements in training mode; 1 by default.
    #[must_use]
    pub fn n_power_iterations(mut self, iterations: usize) -> SpectralNorm<M> {
        self.iterations = iterations;
        self
    }

    /// The smallest norm to divide by; `1e-12` by default.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> SpectralNorm<M> {
        self.eps = eps;
        self
    }

    /// The singular vectors after some steps of the power method.
    fn improved(&self, iterations: usize) -> [TracedTensor; 2] {
        let matrix = self.weight.flatten_with(kw!(start_dim = 1));
        let (mut left, mut right) = ((*self.left).clone(), (*self.right).clone());
        for _ in 0..iterations {
            left = self.normalised(&matrix.mv(&right));
            right = self.normalised(&matrix.transpose(0, 1).mv(&left));
        }
        [left, right]
    }

    /// The vector divided by its length.
    fn normalised(&self, vector: &TracedTensor) -> TracedTensor {
        let length = vector.norm_dim_with(2, [0], kw!(keepdim = true));
        vector / length.clamp_min(self.eps)
    }

    /// The normalised weight.
    fn normalised_weight(&self) -> Result<TracedTensor> {
        let [left, right] = match self.training.is_on() {
            true => self.improved(self.iterations),
            false => [(*self.left).clone(), (*self.right).clone()],
        };
        if self.training.is_on() {
            self.left.store(&left)?;
            self.right.store(&right)?;
        }
        let matrix = self.weight.flatten_with(kw!(start_dim = 1));
        Ok(&self.weight / left.vdot(&matrix.mv(&right)))
    }
}

impl<M: Weighted> Module for SpectralNorm<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module(self);
        let [weight, left, right] = match self.names {
            Names::Old => ["weight_orig", "weight_u", "weight_v"],
            Names::Parametrizations => [
                "parametrizations.weight.original",
                "parametrizations.weight.0._u",
                "parametrizations.weight.0._v",
            ],
        };
        if let Some(bias) = self.module.bias() {
            visitor.field("bias", bias);
        }
        visitor.field(weight, &self.weight);
        visitor.field(left, &self.left);
        visitor.field(right, &self.right);
        self.formula.visit_under(self.names, visitor);
        visitor.field("training", &self.training);
    }
}

impl<M: Weighted + Forward<X>, X> Forward<X> for SpectralNorm<M> {
    type Output = M::Output;

    fn forward(&self, x: X) -> M::Output {
        let weight = self.formula.compute(self.names, || {
            self.normalised_weight().unwrap_or_else(failed)
        });
        self.module.with_weight(weight).forward(x)
    }
}
