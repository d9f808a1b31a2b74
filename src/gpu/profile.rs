//! How long each step takes.

use crate::error::Place;

/// What measured the times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The device, before and after each step.
    Device,
    /// The host, waiting for each step: includes what it costs to submit and to wait.
    Host,
}

/// The time of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTime {
    /// The kernel.
    pub label: String,
    /// The graph nodes that it computes.
    pub nodes: Vec<String>,
    /// Where in the user's model.
    pub place: Place,
    /// Workgroups; a zero means that nothing was dispatched.
    pub workgroups: [u32; 3],
    /// Nanoseconds.
    pub nanoseconds: u64,
}

/// The times of all steps of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// What measured them.
    pub clock: Clock,
    /// In the order of the plan.
    pub steps: Vec<StepTime>,
}
