//! Linear and bilinear layers.

use std::borrow::Borrow;

use super::checks::{ArgumentCheck, dtype_error, size_error};
use super::{Weighted, init};
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Forward, Parameter, TracedTensor, example_sizes};

/// `torch.nn.Linear`: `x · weightᵀ + bias` along the last axis.
#[derive(Clone, Debug, Module)]
pub struct Linear {
    pub(super) weight: Parameter,
    pub(super) bias: Option<Parameter>,
}

impl Linear {
    /// A layer from `inputs` to `outputs` features.
    pub fn new(inputs: usize, outputs: usize) -> Linear {
        Linear {
            weight: init::by_fan_in(&[outputs, inputs], inputs),
            bias: Some(init::by_fan_in(&[outputs], inputs)),
        }
    }

    /// Whether to add a bias; true by default.
    #[must_use]
    pub fn bias(mut self, bias: bool) -> Linear {
        self.bias = self.bias.filter(|_| bias);
        self
    }

    /// Shares the weight of another module, such as an embedding. It is stored once.
    #[must_use]
    pub fn tied(mut self, weight: &Parameter) -> Linear {
        self.weight = weight.share();
        self
    }

    /// The weight, `[outputs, inputs]`.
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }

    /// Returns an error if PyTorch refuses the input.
    fn refused(&self, x: &TracedTensor) -> Option<TracedTensor> {
        let inputs = *example_sizes(&self.weight)?.last()?;
        dtype_error("Linear", x, &self.weight).or_else(|| size_error(x, -1, inputs, "features"))
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for Linear {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let x = x.borrow();
        if let Some(refused) = self.refused(x) {
            return refused;
        }
        x.linear_with(&self.weight, kw!(bias = self.bias.as_deref()))
    }
}

impl Weighted for Linear {
    fn weight(&self) -> &Parameter {
        &self.weight
    }

    fn bias(&self) -> Option<&Parameter> {
        self.bias.as_ref()
    }

    fn with_weight(&self, weight: TracedTensor) -> Linear {
        Linear {
            weight: Parameter::computed(weight),
            bias: self.bias.as_ref().map(Parameter::share),
        }
    }
}

/// `torch.nn.Bilinear`: `aᵀ · weight · b + bias` along the last axes.
#[derive(Clone, Debug, Module)]
pub struct Bilinear {
    weight: Parameter,
    bias: Option<Parameter>,
    left: usize,
    right: usize,
    check: ArgumentCheck,
}

impl Bilinear {
    /// A layer from `left` and `right` features to `outputs` features.
    #[track_caller]
    pub fn new(left: usize, right: usize, outputs: usize) -> Bilinear {
        Bilinear {
            weight: init::by_fan_in(&[outputs, left, right], left),
            bias: Some(init::by_fan_in(&[outputs], left)),
            left,
            right,
            check: ArgumentCheck::of(left > 0, || "in1_features must be > 0, but got 0".into()),
        }
    }

    /// Whether to add a bias; true by default.
    #[must_use]
    pub fn bias(mut self, bias: bool) -> Bilinear {
        self.bias = self.bias.filter(|_| bias);
        self
    }
}

impl<A: Borrow<TracedTensor>, B: Borrow<TracedTensor>> Forward<(A, B)> for Bilinear {
    type Output = TracedTensor;

    fn forward(&self, (a, b): (A, B)) -> TracedTensor {
        let (a, b) = (a.borrow(), b.borrow());
        let refused = self.check.failed();
        let refused = refused.or_else(|| size_error(a, -1, self.left, "features"));
        if let Some(refused) = refused.or_else(|| size_error(b, -1, self.right, "features")) {
            return refused;
        }
        a.bilinear_with(b, &self.weight, kw!(bias = self.bias.as_deref()))
    }
}
