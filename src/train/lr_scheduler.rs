//! Schedules of learning rates and of momentum, by the names and defaults of `torch.optim.lr_scheduler`: the closed form of each.

use std::f64::consts::PI;
use std::fmt;
use std::sync::Arc;

/// A schedule of learning rates.
pub trait LrScheduler {
    /// The learning rate after a number of calls of PyTorch's `step()`, from the initial learning rate.
    fn learning_rate(&self, base: f64, epoch: u64) -> f64;

    /// The momentum after a number of calls of PyTorch's `step()`, for [`Trainer::set_momentum`](super::Trainer::set_momentum);
    /// `None` if the schedule leaves it as it is.
    fn momentum(&self, _epoch: u64) -> Option<f64> {
        None
    }
}

/// A part of the learning rate during the first epochs: `torch.optim.lr_scheduler.ConstantLR`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConstantLR {
    /// The part.
    pub factor: f64,
    /// Number of the first epochs.
    pub total_iters: u64,
}

/// A part of the learning rate that changes linearly: `torch.optim.lr_scheduler.LinearLR`.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearLR {
    /// First part.
    pub start_factor: f64,
    /// Last part.
    pub end_factor: f64,
    /// Number of epochs until the last part.
    pub total_iters: u64,
}

/// A factor after each number of epochs: `torch.optim.lr_scheduler.StepLR`.
#[derive(Clone, Debug, PartialEq)]
pub struct StepLR {
    /// Number of epochs.
    pub step_size: u64,
    /// The factor.
    pub gamma: f64,
}

/// A factor at each milestone: `torch.optim.lr_scheduler.MultiStepLR`.
#[derive(Clone, Debug, PartialEq)]
pub struct MultiStepLR {
    /// The epochs.
    pub milestones: Vec<u64>,
    /// The factor.
    pub gamma: f64,
}

/// A factor after each epoch: `torch.optim.lr_scheduler.ExponentialLR`.
#[derive(Clone, Debug, PartialEq)]
pub struct ExponentialLR {
    /// The factor.
    pub gamma: f64,
}

/// A power of the rest of the epochs: `torch.optim.lr_scheduler.PolynomialLR`.
#[derive(Clone, Debug, PartialEq)]
pub struct PolynomialLR {
    /// Number of epochs until the learning rate is zero.
    pub total_iters: u64,
    /// The power.
    pub power: f64,
}

/// Half a period of a cosine: `torch.optim.lr_scheduler.CosineAnnealingLR`.
#[derive(Clone, Debug, PartialEq)]
pub struct CosineAnnealingLR {
    /// Number of epochs.
    pub t_max: u64,
    /// Last learning rate.
    pub eta_min: f64,
}

/// Half periods of a cosine, each longer than the last: `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`.
#[derive(Clone, Debug, PartialEq)]
pub struct CosineAnnealingWarmRestarts {
    /// Epochs of the first half period.
    pub t_0: u64,
    /// Ratio of the lengths of one half period and the last.
    pub t_mult: u64,
    /// Smallest learning rate.
    pub eta_min: f64,
}

/// A rise to a maximum and a fall to almost nothing, while the momentum falls and rises:
/// `torch.optim.lr_scheduler.OneCycleLR`. The initial settings of the optimizer have no influence. A program that does not
/// pass the momentum on does what PyTorch does with `cycle_momentum=False`.
#[derive(Clone, Debug, PartialEq)]
pub struct OneCycleLR {
    /// Largest learning rate.
    pub max_lr: f64,
    /// Number of steps.
    pub total_steps: u64,
    /// Part of the steps in which the learning rate rises; PyTorch's default is 0.3.
    pub pct_start: f64,
    /// Ratio of the largest and the first learning rate; PyTorch's default is 25.
    pub div_factor: f64,
    /// Ratio of the first and the last learning rate; PyTorch's default is 10,000.
    pub final_div_factor: f64,
    /// Smallest momentum, at the largest learning rate; PyTorch's default is 0.85.
    pub base_momentum: f64,
    /// First and last momentum; PyTorch's default is 0.95.
    pub max_momentum: f64,
}

/// A function of the epoch that is a factor of the learning rate: `torch.optim.lr_scheduler.LambdaLR`.
#[derive(Clone)]
pub struct LambdaLR(pub Arc<dyn Fn(u64) -> f64 + Send + Sync>);

/// One schedule after the other: `torch.optim.lr_scheduler.SequentialLR`.
pub struct SequentialLR {
    /// The schedules; each begins with epoch 0.
    pub schedulers: Vec<Box<dyn LrScheduler + Send + Sync>>,
    /// The epochs at which the second and later ones begin.
    pub milestones: Vec<u64>,
}

impl fmt::Debug for LambdaLR {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LambdaLR").finish_non_exhaustive()
    }
}

impl fmt::Debug for SequentialLR {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequentialLR")
            .field("milestones", &self.milestones)
            .finish_non_exhaustive()
    }
}

impl Default for ConstantLR {
    fn default() -> ConstantLR {
        ConstantLR {
            factor: 1.0 / 3.0,
            total_iters: 5,
        }
    }
}

impl Default for LinearLR {
    fn default() -> LinearLR {
        LinearLR {
            start_factor: 1.0 / 3.0,
            end_factor: 1.0,
            total_iters: 5,
        }
    }
}

impl Default for PolynomialLR {
    fn default() -> PolynomialLR {
        PolynomialLR {
            total_iters: 5,
            power: 1.0,
        }
    }
}

impl OneCycleLR {
    /// A cycle with PyTorch's defaults.
    pub fn new(max_lr: f64, total_steps: u64) -> OneCycleLR {
        OneCycleLR {
            max_lr,
            total_steps,
            pct_start: 0.3,
            div_factor: 25.0,
            final_div_factor: 1e4,
            base_momentum: 0.85,
            max_momentum: 0.95,
        }
    }

    /// A number that goes from the first to the second of `numbers` while the learning rate rises, then to the third.
    fn number(&self, [first, at_top, last]: [f64; 3], epoch: u64) -> f64 {
        let end = self.total_steps as f64 - 1.0;
        let top = self.pct_start * self.total_steps as f64 - 1.0;
        let epoch = (epoch as f64).min(end);
        match epoch <= top {
            true => cosine(first, at_top, epoch / top),
            false => cosine(at_top, last, (epoch - top) / (end - top)),
        }
    }
}

impl LrScheduler for ConstantLR {
    fn learning_rate(&self, base: f64, epoch: u64) -> f64 {
        match epoch < self.total_iters {
            true => base * self.factor,
            false => base,
        }
    }
}

impl LrScheduler for LinearLR {
    fn learning_rate(&self, base: f64, epoch: u64) -> f64 {
        let part = fraction(epoch, self.total_iters);
        base * (self.start_factor + (self.end_factor - self.start_factor) * part)
    }
}

impl LrScheduler for StepLR {
    fn learning_rate(&self, base: f64, epoch: u64) -> f64 {
        base * power(self.gamma, epoch / self.step_size.max(1))
    }
}

impl LrScheduler for MultiStepLR {
    fn learning_rate(&self, base: f64, epoch: u64) -> f64 {
        let passed = self
            .milestones
            .iter()
            .filter(|milestone| **milestone <= epoch);
        base * power(self.gamma, passed.count() as u64)
    }
}

impl LrScheduler for ExponentialLR {
    fn learning_rate(&self, base: f64, epoch: u64) -> f64 {
        base * power(self.gamma, epoch)
    }
}

impl LrScheduler for PolynomialLR {
    fn learning_rate(&self, base: f64, epoch: u64) -> f64 {
        base * (1.0 - fraction(epoch, self.total_iters)).powf(self.power)
    }
}

impl LrScheduler for CosineAnnealingLR {
    fn learning_rate(&self, base: f64, epoch: u64) -> f64 {
        let part = epoch as f64 / self.t_max.max(1) as f64;
        cosine(base, self.eta_min, part)
    }
}

impl LrScheduler for CosineAnnealingWarmRestarts {
    fn learning_rate(&self, base: f64, epoch: u64) -> f64 {
        let (mut length, mut epoch) = (self.t_0.max(1), epoch);
        if self.t_mult <= 1 {
            epoch %= length;
        }
        while epoch >= length {
            epoch -= length;
            length = length.saturating_mul(self.t_mult);
        }
        cosine(base, self.eta_min, epoch as f64 / length as f64)
    }
}

impl LrScheduler for OneCycleLR {
    fn learning_rate(&self, _: f64, epoch: u64) -> f64 {
        let initial = self.max_lr / self.div_factor;
        let last = initial / self.final_div_factor;
        self.number([initial, self.max_lr, last], epoch)
    }

    fn momentum(&self, epoch: u64) -> Option<f64> {
        let numbers = [self.max_momentum, self.base_momentum, self.max_momentum];
        Some(self.number(numbers, epoch))
    }
}

impl LrScheduler for LambdaLR {
    fn learning_rate(&self, base: f64, epoch: u64) -> f64 {
        base * (self.0)(epoch)
    }
}

impl SequentialLR {
    /// The schedule of an epoch, and the epoch since its begin.
    fn current(&self, epoch: u64) -> Option<(&dyn LrScheduler, u64)> {
        let passed = self
            .milestones
            .iter()
            .filter(|milestone| **milestone <= epoch);
        let index = passed.count().min(self.schedulers.len().saturating_sub(1));
        let start = index
            .checked_sub(1)
            .and_then(|before| self.milestones.get(before));
        let own_epoch = epoch - start.copied().unwrap_or(0);
        let scheduler = self.schedulers.get(index)?;
        Some((scheduler.as_ref(), own_epoch))
    }
}

impl LrScheduler for SequentialLR {
    fn learning_rate(&self, base: f64, epoch: u64) -> f64 {
        self.current(epoch)
            .map_or(base, |(scheduler, own)| scheduler.learning_rate(base, own))
    }

    fn momentum(&self, epoch: u64) -> Option<f64> {
        let (scheduler, own_epoch) = self.current(epoch)?;
        scheduler.momentum(own_epoch)
    }
}

/// The part of some epochs that is over, at most 1.
fn fraction(epoch: u64, total: u64) -> f64 {
    epoch.min(total) as f64 / total.max(1) as f64
}

fn power(base: f64, exponent: u64) -> f64 {
    base.powf(exponent as f64)
}

/// From `start` to `end` along half a period of a cosine.
fn cosine(start: f64, end: f64, part: f64) -> f64 {
    end + (start - end) * (1.0 + (PI * part).cos()) / 2.0
}
