//! The modules of `torch.nn`, with its parameter names, defaults and initial distributions: `onionskin::nn`.
//!
//! A module records the operators that `torch.jit.trace` records for it. A network written with these modules and the
//! archive of its PyTorch counterpart give one graph. An option with a default in PyTorch's constructor is a method here:
//! `Conv2d::new(3, 64, 7).stride(2).bias(false)`.
//!
//! ```
//! use onionskin::nn::{Linear, ReLU, Sequential};
//! use onionskin::trace::{Forward, Method, TracedTensor, trace_module};
//!
//! # fn main() -> onionskin::Result<()> {
//! let mlp = Sequential::new().add(Linear::new(4, 8)).add(ReLU::new()).add(Linear::new(8, 2));
//! let x = TracedTensor::from_vec([1, 4], vec![1f32, 2.0, 3.0, 4.0]);
//! let traced = trace_module(&mlp, [Method::new("forward", x, |mlp: &Sequential, x: TracedTensor| mlp.call(x))])?;
//! assert!(traced.module.weights.contains_key("0.weight"));
//! # Ok(())
//! # }
//! ```
//!
//! PyTorch's `ModuleList` is `Vec` here. Initial parameters follow from [`manual_seed`](crate::trace::manual_seed), but are
//! not the numbers that PyTorch draws.

mod activation;
mod attention;
mod container;
mod convolution;
mod embedding;
mod init;
mod linear;
mod normalization;
mod pooling;
mod recurrent;
mod shape;
mod transformer;

use std::path::Path;

use crate::error::{Error, Result};
use crate::ir::Weights;
use crate::tensor_file;

use super::native::{Arg, Module, TracedTensor, Visitor, call, failed};

pub use activation::{
    CELU, Dropout, ELU, GELU, GLU, Hardsigmoid, Hardswish, Hardtanh, LeakyReLU, LogSigmoid,
    LogSoftmax, Mish, PReLU, ReLU, ReLU6, SELU, SiLU, Sigmoid, Softmax, Softplus, Softsign, Tanh,
};
pub use attention::{Attention, MultiheadAttention};
pub use container::{Layer, ModuleDict, Sequential};
pub use convolution::{
    Conv1d, Conv2d, Conv3d, ConvNd, ConvTranspose, ConvTranspose1d, ConvTranspose2d,
    ConvTranspose3d, PaddingMode,
};
pub use embedding::Embedding;
pub use linear::{Bilinear, Linear};
pub use normalization::{
    BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, InstanceNorm, InstanceNorm1d,
    InstanceNorm2d, InstanceNorm3d, LayerNorm, RMSNorm,
};
pub use pooling::{
    AdaptiveAvgPool, AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AvgPool, AvgPool1d,
    AvgPool2d, AvgPool3d, MaxPool, MaxPool1d, MaxPool2d, MaxPool3d,
};
pub use recurrent::{GRU, LSTM, RNN};
pub use shape::{
    ChannelShuffle, Flatten, Identity, PixelShuffle, PixelUnshuffle, ReflectionPad2d,
    ReplicationPad2d, Unflatten, Upsample, ZeroPad2d,
};
pub use transformer::{Masked, TransformerEncoder, TransformerEncoderLayer};

/// Reads parameters and buffers from a file: safetensors, a state dict that `torch.save` wrote, or a TorchScript archive.
///
/// # Errors
/// The file is missing or malformed.
pub fn load(path: impl AsRef<Path>) -> Result<Weights> {
    Ok(tensor_file::read(path.as_ref())?.into_iter().collect())
}

/// Calls an operator with one result by name.
fn call_one(name: &str, arguments: Vec<Arg>) -> TracedTensor {
    call(name, arguments, Vec::new()).swap_remove(0)
}

/// Calls an operator with several results by name. If the call fails, all results are the error.
fn call_many<const N: usize>(name: &str, arguments: Vec<Arg>) -> [TracedTensor; N] {
    results_to_array(call(name, arguments, Vec::new()))
}

/// Converts the results of a call to an array. A failed call has one result, which fills the array.
fn results_to_array<const N: usize>(results: Vec<TracedTensor>) -> [TracedTensor; N] {
    std::array::from_fn(|index| results[index.min(results.len() - 1)].clone())
}

/// A byte that gives modules without other fields distinct addresses. A trace finds a module's path by its address.
#[derive(Debug, Default)]
struct Spot(#[expect(dead_code, reason = "it gives the type a size")] u8);

impl Module for Spot {
    fn visit(&self, _visitor: &mut Visitor<'_>) {}
}

/// One argument for each spatial axis. A single number applies to all axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerAxis<const N: usize>(pub [i64; N]);

impl<const N: usize> From<i64> for PerAxis<N> {
    fn from(size: i64) -> PerAxis<N> {
        PerAxis([size; N])
    }
}

impl<const N: usize> From<[i64; N]> for PerAxis<N> {
    fn from(sizes: [i64; N]) -> PerAxis<N> {
        PerAxis(sizes)
    }
}

/// Returns a tensor that holds an error if the rank of the input `x` is none of `ranks`. `what` names the module in the
/// error.
fn rank_error(what: &str, x: &TracedTensor, ranks: &[usize]) -> Option<TracedTensor> {
    let is_refused = x.error().is_none() && !ranks.contains(&x.rank());
    let wanted_ranks: Vec<String> = ranks.iter().map(|rank| format!("{rank}D")).collect();
    let message = format!(
        "{what} expects {} input, got {}D",
        wanted_ranks.join(" or "),
        x.rank()
    );
    is_refused.then(|| failed(Error::operator(message)))
}
