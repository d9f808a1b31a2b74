//! WGSL and dispatches as data, without a device: what `gpu/` executes.

pub mod plan;
