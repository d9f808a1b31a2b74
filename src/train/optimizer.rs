//! Rules for new parameters, by the names and defaults of `torch.optim`. The formulas are those of its documentation, in the
//! order of operations of its implementations for single tensors.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::ir::Value;

/// A rule for new parameters.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd(Sgd),
    /// Adam; a weight decay adds to the gradient.
    Adam(Adam),
    /// Adam; a weight decay scales the parameters.
    AdamW(AdamW),
}

/// `torch.optim.SGD`
#[derive(Clone, Debug, PartialEq)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f64,
    /// Part of the last update that the next one keeps.
    pub momentum: f64,
    /// Part of the gradient that the momentum leaves out.
    pub dampening: f64,
    /// Multiple of the parameter that is added to the gradient.
    pub weight_decay: f64,
    /// Nesterov's momentum.
    pub nesterov: bool,
}

impl Default for Sgd {
    fn default() -> Sgd {
        Sgd {
            lr: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
        }
    }
}

macro_rules! adam {
    ($($name:ident $decay:literal $default:literal $of:literal)*) => {$(
        #[doc = concat!("`torch.optim.", stringify!($name), "`")]
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            /// Learning rate.
            pub lr: f64,
            /// Decay rates of the mean gradient and of the mean square.
            pub betas: (f64, f64),
            /// Number that is added to the denominator.
            pub eps: f64,
            #[doc = $of]
            pub weight_decay: f64,
            /// Divides by the largest mean square so far.
            pub amsgrad: bool,
        }

        impl Default for $name {
            fn default() -> $name {
                $name { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: $default, amsgrad: false }
            }
        }

        impl $name {
            fn rule(&self) -> AdamRule {
                AdamRule {
                    square_decay: self.betas.1,
                    eps: self.eps,
                    weight_decay: self.weight_decay,
                    is_decoupled: $decay,
                    amsgrad: self.amsgrad,
                }
            }
        }

        impl From<$name> for Optimizer {
            fn from(optimizer: $name) -> Optimizer {
                Optimizer::$name(optimizer)
            }
        }
    )*};
}

adam! {
    Adam false 0.0 "Multiple of the parameter that is added to the gradient."
    AdamW true 0.01 "Multiple of the learning rate and the parameter that is subtracted from the parameter."
}

impl From<Sgd> for Optimizer {
    fn from(optimizer: Sgd) -> Optimizer {
        Optimizer::Sgd(optimizer)
    }
}

/// Settings that a schedule may change from step to step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepSettings {
    pub(super) learning_rate: f64,
    /// Momentum of SGD, decay rate of the mean gradient of Adam; ignored by an optimizer without either.
    pub(super) momentum: f64,
}

/// Settings of both kinds of Adam.
struct AdamRule {
    /// Decay rate of the mean square.
    square_decay: f64,
    eps: f64,
    weight_decay: f64,
    /// True if the weight decay does not pass through the means.
    is_decoupled: bool,
    amsgrad: bool,
}

/// A parameter during a step.
pub(super) struct ParameterUpdate<'a, 'g> {
    pub(super) parameter: Value<'g>,
    pub(super) gradient: Value<'g>,
    /// The buffers in the order of [`Optimizer::buffers`].
    pub(super) buffers: Vec<Value<'g>>,
    /// The numbers of [`Optimizer::numbers`].
    pub(super) numbers: &'a BTreeMap<&'static str, Value<'g>>,
}

/// The new parameter, and its new buffers.
pub(super) type Updated<'g> = (Value<'g>, Vec<Value<'g>>);

impl Optimizer {
    /// The settings of the first step.
    pub(super) fn settings(&self) -> StepSettings {
        let (learning_rate, momentum) = match self {
            Optimizer::Sgd(sgd) => (sgd.lr, sgd.momentum),
            Optimizer::Adam(adam) => (adam.lr, adam.betas.0),
            Optimizer::AdamW(adam) => (adam.lr, adam.betas.0),
        };
        StepSettings {
            learning_rate,
            momentum,
        }
    }

    /// Names of the tensors that the optimizer keeps for each parameter, by PyTorch's names. They begin as zeros.
    pub(super) fn buffers(&self) -> &'static [&'static str] {
        match self {
            Optimizer::Sgd(sgd) if sgd.momentum == 0.0 => &[],
            Optimizer::Sgd(_) => &["momentum_buffer"],
            Optimizer::Adam(Adam { amsgrad, .. }) | Optimizer::AdamW(AdamW { amsgrad, .. }) => {
                match amsgrad {
                    true => &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"],
                    false => &["exp_avg", "exp_avg_sq"],
                }
            }
        }
    }

    /// The numbers that a step takes from the host. Steps count from 1.
    pub(super) fn numbers(&self, settings: StepSettings, step: u64) -> Vec<(&'static str, f64)> {
        let (learning_rate, momentum) = (settings.learning_rate, settings.momentum);
        let exponent = step as f64;
        match self {
            Optimizer::Sgd(sgd) => {
                // The first update is the gradient itself.
                let weight = if step == 1 { 1.0 } else { 1.0 - sgd.dampening };
                vec![
                    ("lr", learning_rate),
                    ("gradient_weight", weight),
                    ("momentum", momentum),
                ]
            }
            Optimizer::Adam(Adam { betas, .. }) | Optimizer::AdamW(AdamW { betas, .. }) => vec![
                ("lr", learning_rate),
                ("mean_weight", 1.0 - momentum),
                ("step_size", learning_rate / (1.0 - momentum.powf(exponent))),
                ("correction", (1.0 - betas.1.powf(exponent)).sqrt()),
            ],
        }
    }

    /// Adds the computation of a new parameter.
    pub(super) fn update<'g>(&self, update: &ParameterUpdate<'_, 'g>) -> Result<Updated<'g>> {
        match self {
            Optimizer::Sgd(sgd) => sgd.update(update),
            Optimizer::Adam(adam) => adam.rule().update(update),
            Optimizer::AdamW(adam) => adam.rule().update(update),
        }
    }
}

impl<'g> ParameterUpdate<'_, 'g> {
    /// A number from the host.
    fn number(&self, name: &str) -> Result<Value<'g>> {
        let number = self.numbers.get(name);
        let number = number.map(|number| number.to(self.parameter.dtype()));
        number.ok_or_else(|| Error::internal(format!("the step has no number {name}")))
    }
}

impl Sgd {
    fn update<'g>(&self, update: &ParameterUpdate<'_, 'g>) -> Result<Updated<'g>> {
        let mut gradient = update.gradient;
        if self.weight_decay != 0.0 {
            gradient = gradient + update.parameter * self.weight_decay;
        }
        let mut buffers = Vec::new();
        if let [buffer] = update.buffers.as_slice() {
            let momentum = update.number("momentum")?;
            let buffer = *buffer * momentum + gradient * update.number("gradient_weight")?;
            gradient = match self.nesterov {
                true => gradient + buffer * momentum,
                false => buffer,
            };
            buffers.push(buffer);
        }
        let parameter = update.parameter - gradient * update.number("lr")?;
        Ok((parameter, buffers))
    }
}

impl AdamRule {
    fn update<'g>(&self, update: &ParameterUpdate<'_, 'g>) -> Result<Updated<'g>> {
        let (mut parameter, mut gradient) = (update.parameter, update.gradient);
        if self.weight_decay != 0.0 {
            match self.is_decoupled {
                true => {
                    let kept = (update.number("lr")? * self.weight_decay).rsub(1.0);
                    parameter = parameter * kept;
                }
                false => gradient = gradient + parameter * self.weight_decay,
            }
        }
        let [mean, square, largest @ ..] = update.buffers.as_slice() else {
            return Err(Error::internal("Adam keeps two means"));
        };
        let mean = *mean + (gradient - *mean) * update.number("mean_weight")?;
        let square = *square * self.square_decay + gradient * gradient * (1.0 - self.square_decay);
        let mut buffers = vec![mean, square];
        let mut denominator = square;
        if let ([largest], true) = (largest, self.amsgrad) {
            denominator = largest.maximum(square);
            buffers.push(denominator);
        }
        let denominator = denominator.sqrt() / update.number("correction")? + self.eps;
        let parameter = parameter - mean / denominator * update.number("step_size")?;
        Ok((parameter, buffers))
    }
}
