//! Training on a device: one graph computes a loss, its gradients and the new parameters.
//!
//! Parameters and the buffers of the optimizer are states of a [`Session`](crate::Session): they stay on the device, and a
//! step transfers the batch and the loss only. Names, defaults and formulas are those of `torch.optim`,
//! `torch.optim.lr_scheduler` and `torch.nn.functional`.
//!
//! ```no_run
//! # fn main() -> onionskin::Result<()> {
//! use onionskin::train::{AdamW, CosineAnnealingLR, CrossEntropyLoss, LrScheduler, TrainOptions, Trainer};
//! use onionskin::{Device, Model, Tensor};
//!
//! let model = Model::open("digits.pt")?;
//! let options = TrainOptions::new(CrossEntropyLoss::default(), AdamW { lr: 1e-3, ..AdamW::default() });
//! let mut trainer = Trainer::new(&model, &Device::auto()?, options)?;
//! let schedule = CosineAnnealingLR { t_max: 100, eta_min: 0.0 };
//! let images = Tensor::from_vec([2, 1, 8, 8], vec![0f32; 128])?;
//! let labels = Tensor::from_vec([2], vec![3i64, 7])?;
//! for step in 0..100 {
//!     trainer.set_learning_rate(schedule.learning_rate(1e-3, step));
//!     println!("{step}: {}", trainer.step(&[images.clone(), labels.clone()])?);
//! }
//! trainer.save("trained.safetensors")?; // parameters and buffers by PyTorch's names
//! trainer.trained_module()?.save("trained.json")?; // the graph with the new weights
//! # Ok(())
//! # }
//! ```

mod clipping;
mod loss;
mod lr_scheduler;
mod optimizer;
mod options;
mod parameters;
mod random;
mod replace_weights;
mod step_graph;
mod trainer;

pub use clipping::GradientClipping;
pub use loss::{
    BceLoss, BceWithLogitsLoss, CrossEntropyLoss, HuberLoss, KlDivLoss, L1Loss, LossFunction,
    MseLoss, NllLoss, SmoothL1Loss, TrainingLoss,
};
pub use lr_scheduler::{
    ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, ExponentialLR, LambdaLR, LinearLR,
    LrScheduler, MultiStepLR, OneCycleLR, PolynomialLR, SequentialLR, StepLR,
};
pub use optimizer::{Adam, AdamW, Optimizer, Sgd};
pub use options::TrainOptions;
pub use replace_weights::replace_weights;
pub use trainer::Trainer;
