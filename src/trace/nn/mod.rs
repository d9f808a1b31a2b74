//! The modules of `torch.nn`, with its parameter names, defaults and initial distributions: `onionskin::nn`.
//!
//! A module records the operators that `torch.jit.trace` records for it. A network written with these modules and the
//! archive of its PyTorch counterpart give one graph. An option with a default in PyTorch's constructor is a method here:
//! `Conv2d::new(3, 64, 7).stride(2).bias(false)`.
//!
//! ```
//! use onionskin::nn::{Linear, ReLU, Sequential};
//! use onionskin::trace::{TracedTensor, trace};
//!
//! # fn main() -> onionskin::Result<()> {
//! let mlp = Sequential::new().add(Linear::new(4, 8)).add(ReLU::new()).add(Linear::new(8, 2));
//! let x = TracedTensor::from([[1f32, 2.0, 3.0, 4.0]]);
//! let traced = trace(&mlp, x)?;
//! assert!(traced.module.weights.contains_key("0.weight"));
//! # Ok(())
//! # }
//! ```
//!
//! A wrong argument of a constructor, such as groups that do not divide the channels, is an error of the module's calls, with
//! the line of the constructor. The page "Modules" of the documents lists the names of `torch.nn`.
//!
//! PyTorch's `ModuleList` is `Vec` here. Initial parameters follow from [`manual_seed`](crate::trace::manual_seed), but are
//! not the numbers that PyTorch draws.

mod activation;
mod adaptive_softmax;
mod attention;
mod attention_input;
mod cells;
mod checks;
mod container;
mod convolution;
mod ctc_loss;
mod decoder;
mod distance;
mod dropout;
mod embedding;
mod fractional_pooling;
mod linear;
mod local_response;
mod loss;
mod normalization;
mod normalized_shape;
mod padding;
mod pooling;
mod recurrent;
mod reparametrization;
mod shape;
mod transformer;
mod triple_loss;
mod unpooling;
mod upsample;

use std::path::Path;

use crate::error::Result;
use crate::ir::Weights;
use crate::tensor_file;

use super::native::{Arg, Module, TracedTensor, Visitor, call, state_dict, unpack};

pub use super::native::{Buffer, Parameter, init};

pub use activation::{
    CELU, ELU, GELU, GLU, Hardshrink, Hardsigmoid, Hardswish, Hardtanh, LeakyReLU, LogSigmoid,
    LogSoftmax, Mish, PReLU, RReLU, ReLU, ReLU6, SELU, SiLU, Sigmoid, Softmax, Softmax2d, Softmin,
    Softplus, Softshrink, Softsign, Tanh, Tanhshrink, Threshold,
};
pub use adaptive_softmax::AdaptiveLogSoftmaxWithLoss;
pub use attention::MultiheadAttention;
pub use attention_input::Attention;
pub use cells::{GRUCell, LSTMCell, RNNCell};
pub use container::{Layer, ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential};
pub use convolution::{
    Conv1d, Conv2d, Conv3d, ConvNd, ConvTranspose, ConvTranspose1d, ConvTranspose2d,
    ConvTranspose3d, PaddingMode,
};
pub use ctc_loss::CTCLoss;
pub use decoder::{Decoding, Transformer, TransformerDecoder, TransformerDecoderLayer};
pub use distance::{CosineSimilarity, PairwiseDistance};
pub use dropout::{AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout};
pub use embedding::{BagMode, Bags, Embedding, EmbeddingBag};
pub use fractional_pooling::{FractionalMaxPool, FractionalMaxPool2d, FractionalMaxPool3d};
pub use linear::{Bilinear, Linear};
pub use local_response::LocalResponseNorm;
pub use loss::{
    BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, HingeEmbeddingLoss, HuberLoss, KLDivLoss, L1Loss,
    MSELoss, MultiLabelMarginLoss, MultiLabelSoftMarginLoss, MultiMarginLoss, NLLLoss, NLLLoss2d,
    PoissonNLLLoss, Reduction, SmoothL1Loss, SoftMarginLoss,
};
pub use normalization::{
    BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, InstanceNorm, InstanceNorm1d,
    InstanceNorm2d, InstanceNorm3d, LayerNorm, RMSNorm,
};
pub use normalized_shape::NormalizedShape;
pub use padding::{
    CircularPad1d, CircularPad2d, CircularPad3d, ConstantPad1d, ConstantPad2d, ConstantPad3d,
    ReflectionPad1d, ReflectionPad2d, ReflectionPad3d, ReplicationPad1d, ReplicationPad2d,
    ReplicationPad3d, ZeroPad1d, ZeroPad2d, ZeroPad3d,
};
pub use pooling::{
    AdaptiveAvgPool, AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool,
    AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d, AvgPool, AvgPool1d, AvgPool2d,
    AvgPool3d, LPPool, LPPool1d, LPPool2d, LPPool3d, MaxPool, MaxPool1d, MaxPool2d, MaxPool3d,
    PoolWithIndices, WithIndices,
};
pub use recurrent::{GRU, LSTM, Nonlinearity, RNN};
pub use reparametrization::{SpectralNorm, WeightNorm, Weighted};
pub use shape::{
    ChannelShuffle, Flatten, Fold, Identity, PixelShuffle, PixelUnshuffle, Unflatten, Unfold,
};
pub use transformer::{Masked, TransformerEncoder, TransformerEncoderLayer};
pub use triple_loss::{
    CosineEmbeddingLoss, GaussianNLLLoss, MarginRankingLoss, TripletMarginLoss,
    TripletMarginWithDistanceLoss,
};
pub use unpooling::{MaxUnpool, MaxUnpool1d, MaxUnpool2d, MaxUnpool3d};
pub use upsample::{Upsample, UpsamplingBilinear2d, UpsamplingNearest2d};

/// Reads parameters and buffers from a file: safetensors, a state dict that `torch.save` wrote, or a TorchScript archive.
///
/// # Errors
/// The file is missing or malformed.
pub fn load(path: impl AsRef<Path>) -> Result<Weights> {
    Ok(tensor_file::read(path.as_ref())?.into_iter().collect())
}

/// Writes the parameters and buffers of a module to a file of safetensors, which [`load`] and PyTorch read.
///
/// # Errors
/// The file cannot be written, or a parameter could not be made.
pub fn save(path: impl AsRef<Path>, module: &(impl Module + ?Sized)) -> Result<()> {
    let entries: Vec<_> = state_dict(module)?.into_iter().collect();
    tensor_file::write(path.as_ref(), &entries)
}

/// Calls an operator with one result by name.
fn call_one(name: &str, arguments: Vec<Arg>) -> TracedTensor {
    call(name, arguments, Vec::new()).swap_remove(0)
}

/// Calls an operator with several results by name. If the call fails, all results are the error.
fn call_many<const N: usize>(name: &str, arguments: Vec<Arg>) -> [TracedTensor; N] {
    unpack(call(name, arguments, Vec::new()))
}

/// A byte that gives modules without other fields distinct addresses. A trace finds a module's path by its address.
#[derive(Clone, Debug, Default)]
struct Spot(#[expect(dead_code, reason = "it gives the type a size")] u8);

impl Module for Spot {
    fn visit(&self, _visitor: &mut Visitor<'_>) {}
}

/// One argument for each spatial axis, or for each edge of a padding. A single number applies to all.
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
