//! Losses: an output of the model, or a function of the model's output and a target, by the names and defaults of
//! `torch.nn`.

use crate::aten;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::grad;
use crate::ir::rewrite::replay_with_outputs;
use crate::ir::{Argument, Builder, Graph, NamedTree, TreeSpec, Value};
use crate::scalar::Scalar;
use crate::shape::TensorType;
use crate::trace::nn::Reduction;

/// The number that training makes smaller.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TrainingLoss {
    /// An output of the model, one float, by its name as in [`Session::outputs`](crate::Session::outputs).
    Output(String),
    /// A function of the model's only output of floats, and of a target, which becomes the last input of a step.
    Function(LossFunction),
}

/// A function of a prediction and a target.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LossFunction {
    /// See [`CrossEntropyLoss`].
    CrossEntropy(CrossEntropyLoss),
    /// See [`NllLoss`].
    Nll(NllLoss),
    /// See [`MseLoss`].
    Mse(MseLoss),
    /// See [`L1Loss`].
    L1(L1Loss),
    /// See [`SmoothL1Loss`].
    SmoothL1(SmoothL1Loss),
    /// See [`HuberLoss`].
    Huber(HuberLoss),
    /// See [`BceLoss`].
    Bce(BceLoss),
    /// See [`BceWithLogitsLoss`].
    BceWithLogits(BceWithLogitsLoss),
    /// See [`KlDivLoss`].
    KlDiv(KlDivLoss),
}

/// Defines losses: name and variant, PyTorch's name, and settings with their defaults.
macro_rules! losses {
    ($($name:ident $variant:ident $torch:literal { $($(#[$about:meta])* $setting:ident: $type:ty = $default:expr),* })*) => {$(
        #[doc = concat!("`torch.nn.", $torch, "`")]
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[$about])* pub $setting: $type,)*
            /// Reduction of the losses of all elements: their mean or their sum.
            pub reduction: Reduction,
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($setting: $default,)* reduction: Reduction::Mean }
            }
        }

        impl From<$name> for LossFunction {
            fn from(loss: $name) -> LossFunction {
                LossFunction::$variant(loss)
            }
        }

        impl From<$name> for TrainingLoss {
            fn from(loss: $name) -> TrainingLoss {
                TrainingLoss::Function(loss.into())
            }
        }
    )*};
}

losses! {
    CrossEntropyLoss CrossEntropy "CrossEntropyLoss" {
        /// Class whose elements do not count.
        ignore_index: i64 = -100,
        /// Part of the target that is spread over all classes.
        label_smoothing: f64 = 0.0
    }
    NllLoss Nll "NLLLoss" {
        /// Class whose elements do not count.
        ignore_index: i64 = -100
    }
    MseLoss Mse "MSELoss" {}
    L1Loss L1 "L1Loss" {}
    SmoothL1Loss SmoothL1 "SmoothL1Loss" {
        /// Difference from which on the loss is linear.
        beta: f64 = 1.0
    }
    HuberLoss Huber "HuberLoss" {
        /// Difference from which on the loss is linear.
        delta: f64 = 1.0
    }
    BceLoss Bce "BCELoss" {}
    BceWithLogitsLoss BceWithLogits "BCEWithLogitsLoss" {}
    KlDivLoss KlDiv "KLDivLoss" {
        /// True if targets are logarithms.
        log_target: bool = false
    }
}

impl LossFunction {
    /// The operator, and its arguments after the prediction and the target.
    fn call(&self) -> Result<(&'static str, Vec<Argument>)> {
        let reduced = |reduction: Reduction| match reduction {
            Reduction::None => Err(Error::usage("a loss is one number")
                .help("choose Reduction::Mean or Reduction::Sum")),
            other => Ok(int(other as i64)),
        };
        Ok(match self {
            LossFunction::CrossEntropy(loss) => {
                let (ignored, smoothing) = (int(loss.ignore_index), float(loss.label_smoothing));
                let arguments = vec![Argument::None, reduced(loss.reduction)?, ignored, smoothing];
                ("aten.cross_entropy_loss", arguments)
            }
            LossFunction::Nll(loss) => {
                let ignored = int(loss.ignore_index);
                let arguments = vec![Argument::None, reduced(loss.reduction)?, ignored];
                ("aten.nll_loss", arguments)
            }
            LossFunction::Mse(loss) => ("aten.mse_loss", vec![reduced(loss.reduction)?]),
            LossFunction::L1(loss) => ("aten.l1_loss", vec![reduced(loss.reduction)?]),
            LossFunction::SmoothL1(loss) => {
                let arguments = vec![reduced(loss.reduction)?, float(loss.beta)];
                ("aten.smooth_l1_loss", arguments)
            }
            LossFunction::Huber(loss) => {
                let arguments = vec![reduced(loss.reduction)?, float(loss.delta)];
                ("aten.huber_loss", arguments)
            }
            LossFunction::Bce(loss) => {
                let arguments = vec![Argument::None, reduced(loss.reduction)?];
                ("aten.binary_cross_entropy", arguments)
            }
            LossFunction::BceWithLogits(loss) => {
                let arguments = vec![Argument::None, Argument::None, reduced(loss.reduction)?];
                ("aten.binary_cross_entropy_with_logits", arguments)
            }
            LossFunction::KlDiv(loss) => {
                let is_logarithm = Argument::Number(Scalar::Bool(loss.log_target));
                ("aten.kl_div", vec![reduced(loss.reduction)?, is_logarithm])
            }
        })
    }

    /// The type of the target for a prediction: classes for each element, or a tensor of the prediction's type.
    fn target_type(&self, prediction: &TensorType) -> TensorType {
        match self {
            LossFunction::CrossEntropy(_) | LossFunction::Nll(_) => {
                let classes = prediction.rank().saturating_sub(1).min(1);
                let axes = prediction.shape.iter().enumerate();
                let axes = axes.filter(|(axis, _)| *axis != classes);
                TensorType {
                    dtype: DType::I64,
                    shape: axes.map(|(_, size)| size.clone()).collect(),
                }
            }
            _ => prediction.clone(),
        }
    }

    fn apply<'g>(
        &self,
        builder: &'g Builder,
        prediction: Value<'g>,
        target: Value<'g>,
    ) -> Result<Value<'g>> {
        let (name, settings) = self.call()?;
        let operator = aten::operator(name)?;
        let mut arguments = vec![Argument::from(prediction), Argument::from(target)];
        arguments.extend(settings);
        let types = operator.infer(builder, &arguments)?;
        let results = builder.call(&operator.name, arguments, types);
        let loss = results.first().copied();
        loss.ok_or_else(|| Error::internal("a loss has no result"))
    }

    /// The graph whose only result is the loss of its prediction. The target is the last argument.
    pub(super) fn append(&self, graph: &Graph) -> Result<Graph> {
        let outputs = graph.differentiable_outputs();
        let prediction = match outputs.keys().collect::<Vec<_>>().as_slice() {
            [index] => **index,
            _ => {
                let names: Vec<&str> = outputs.values().map(String::as_str).collect();
                let message = format!(
                    "a loss takes one output of floats; {} has {}: {}",
                    graph.name,
                    names.len(),
                    names.join(", ")
                );
                return Err(Error::usage(message)
                    .help("compute the loss in the model, and choose TrainingLoss::Output"));
            }
        };
        let results = graph.result_count();
        let mut with_loss = replay_with_outputs(
            graph,
            |replay, node| replay.copy(node),
            |replay| {
                let outputs = graph.outputs.iter().map(|id| replay.value(*id));
                let outputs: Vec<Value> = outputs.collect();
                let missing = || Error::internal("the prediction is no output");
                let prediction = outputs.get(prediction).copied().ok_or_else(missing)?;
                let builder = replay.builder;
                let target = builder.input("target", self.target_type(&prediction.ty()));
                let loss = self.apply(builder, prediction, target)?;
                let states = outputs.get(results..).unwrap_or_default();
                Ok([&[loss], states].concat())
            },
        )?;
        with_loss.output_tree = Some(TreeSpec::Tensor(0));
        let writes = graph.writes.iter().map(|state| NamedTree {
            name: state.name.clone(),
            tree: (state.tree).map_tensors(&|index| TreeSpec::Tensor(index + 1 - results)),
        });
        with_loss.writes = writes.collect();
        grad::add_input_trees(&mut with_loss, graph);
        Ok(with_loss)
    }
}

fn int(number: i64) -> Argument {
    Argument::Number(Scalar::Int(number))
}

fn float(number: f64) -> Argument {
    Argument::Number(Scalar::Float(number))
}
