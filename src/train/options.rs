use super::{GradientClipping, Optimizer, TrainingLoss};
use crate::grad::GradientOptions;
use crate::model::CompileOptions;

/// Options for training.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TrainOptions {
    /// The method of the model that computes the loss, or the prediction of a [`LossFunction`](super::LossFunction);
    /// `forward` by default.
    pub entry: String,
    /// The number that training makes smaller.
    pub loss: TrainingLoss,
    /// The rule for new parameters.
    pub optimizer: Optimizer,
    /// Limits on the gradients; none by default.
    pub clipping: Option<GradientClipping>,
    /// Patterns of the names of parameters to train, in which `*` stands for any text. By default all parameters.
    pub parameters: Vec<String>,
    /// Modules whose values are computed again in the backward pass; none by default.
    pub gradient: GradientOptions,
    /// Options for the compilation of a step.
    pub compile: CompileOptions,
}

impl TrainOptions {
    /// Training of all parameters of `forward` for a loss by an optimizer.
    pub fn new(loss: impl Into<TrainingLoss>, optimizer: impl Into<Optimizer>) -> TrainOptions {
        TrainOptions {
            entry: "forward".to_string(),
            loss: loss.into(),
            optimizer: optimizer.into(),
            clipping: None,
            parameters: Vec::new(),
            gradient: GradientOptions::default(),
            compile: CompileOptions::default(),
        }
    }
}
