//! Affine maps.

use std::borrow::Borrow;

use super::init;
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Forward, Tensor};

/// `torch.nn.Linear`: `x · weightᵀ + bias` along the last axis.
#[derive(Module)]
pub struct Linear {
    pub(super) weight: Tensor,
    pub(super) bias: Option<Tensor>,
}

impl Linear {
    /// From `inputs` to `outputs` features.
    pub fn new(inputs: usize, outputs: usize) -> Linear {
        Linear {
            weight: init::by_fan_in(&[outputs, inputs], inputs),
            bias: Some(init::by_fan_in(&[outputs], inputs)),
        }
    }

    /// Whether a bias is added; it is by default.
    #[must_use]
    pub fn bias(mut self, bias: bool) -> Linear {
        self.bias = self.bias.filter(|_| bias);
        self
    }

    /// Shares the weight of another module, an embedding's for instance: it is stored once.
    #[must_use]
    pub fn tied(mut self, weight: &Tensor) -> Linear {
        self.weight = weight.clone();
        self
    }

    /// `[outputs, inputs]`
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }
}

impl<X: Borrow<Tensor>> Forward<X> for Linear {
    type Output = Tensor;

    fn forward(&self, x: X) -> Tensor {
        let x = x.borrow();
        x.linear_with(&self.weight, kw!(bias = self.bias.as_ref()))
    }
}

/// `torch.nn.Bilinear`: `aᵀ · weight · b + bias` along the last axes.
#[derive(Module)]
pub struct Bilinear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Bilinear {
    /// From `left` and `right` features to `outputs`.
    pub fn new(left: usize, right: usize, outputs: usize) -> Bilinear {
        Bilinear {
            weight: init::by_fan_in(&[outputs, left, right], left),
            bias: Some(init::by_fan_in(&[outputs], left)),
        }
    }

    /// Whether a bias is added; it is by default.
    #[must_use]
    pub fn bias(mut self, bias: bool) -> Bilinear {
        self.bias = self.bias.filter(|_| bias);
        self
    }
}

impl<A: Borrow<Tensor>, B: Borrow<Tensor>> Forward<(A, B)> for Bilinear {
    type Output = Tensor;

    fn forward(&self, (a, b): (A, B)) -> Tensor {
        let (a, b) = (a.borrow(), b.borrow());
        a.bilinear_with(b, &self.weight, kw!(bias = self.bias.as_ref()))
    }
}
