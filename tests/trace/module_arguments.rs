//! Constructors and calls of modules refuse what PyTorch refuses, and name the user's line.

use onionskin::dtype::DType;
use onionskin::nn::*;
use onionskin::tensor::Tensor;
use onionskin::trace::{Forward, TracedTensor, trace_fn};

fn ones(shape: &[usize]) -> TracedTensor {
    Tensor::full(DType::F32, shape, 1.0).unwrap().into()
}

fn ids(shape: &[usize]) -> TracedTensor {
    Tensor::full(DType::I64, shape, 0.0).unwrap().into()
}

/// Requires that the result holds an error with this message, which names a line of this file.
#[track_caller]
fn refused(result: &TracedTensor, line: u32, message: &str) {
    let error = result
        .error()
        .unwrap_or_else(|| panic!("accepted: {message}"));
    assert_eq!(error.message(), message);
    assert_eq!(error.context(), [format!("{}:{line}", file!())]);
}

/// Modules and calls of one line each, with the message.
macro_rules! refused {
    ($($result:expr => $message:literal;)*) => {$(
        refused(&$result, line!(), $message);
    )*};
}

#[test]
fn arguments_of_constructors_are_refused_at_their_line() {
    refused! { Conv2d::new(4, 6, 3).groups(3).call(ones(&[1, 4, 8, 8])) => "in_channels (4) must be divisible by groups (3)"; }
    refused! { Conv2d::new(6, 4, 3).groups(3).call(ones(&[1, 6, 8, 8])) => "out_channels (4) must be divisible by groups (3)"; }
    refused! { Conv2d::new(6, 4, 3).groups(0).call(ones(&[1, 6, 8, 8])) => "groups must be a positive integer"; }
    refused! { Conv1d::new(1, 1, 3).same().stride(2).call(ones(&[1, 1, 8])) => "padding='same' is not supported for strided convolutions"; }
    refused! { GroupNorm::new(2, 5).call(ones(&[1, 5, 3])) => "num_channels (5) must be divisible by num_groups (2)"; }
    refused! { GroupNorm::new(0, 5).call(ones(&[1, 5, 3])) => "num_channels (5) must be divisible by num_groups (0)"; }
    refused! { MultiheadAttention::new(5, 2).call((ones(&[3, 5]), ones(&[3, 5]), ones(&[3, 5]))).0 => "embed_dim (5) must be divisible by num_heads (2)"; }
    refused! { TransformerEncoderLayer::new(5, 2, 8).call(ones(&[3, 5])) => "embed_dim (5) must be divisible by num_heads (2)"; }
    refused! { LSTM::new(3, 4).proj_size(4).call(ones(&[2, 3])).0 => "proj_size has to be smaller than hidden_size"; }
    refused! { GRU::new(3, 0).call(ones(&[2, 3])).0 => "hidden_size must be greater than zero"; }
    refused! { RNN::new(3, 1).num_layers(0).call(ones(&[2, 3])).0 => "num_layers must be greater than zero"; }
    refused! { LSTM::new(3, 1).dropout(1.5).call(ones(&[2, 3])).0 => "dropout probability has to be between 0 and 1, but got 1.5"; }
    refused! { GRUCell::new(3, 0).call(ones(&[2, 3])) => "hidden_size must be greater than zero"; }
    refused! { Dropout::new(-0.5).call(ones(&[2])) => "dropout probability has to be between 0 and 1, but got -0.5"; }
    refused! { Embedding::new(3, 2).padding_idx(5).call(ids(&[1])) => "padding_idx must be within num_embeddings (3), but got 5"; }
    refused! { Bilinear::new(0, 2, 4).call((ones(&[1, 0]), ones(&[1, 2]))) => "in1_features must be > 0, but got 0"; }
    refused! { RReLU::new().bounds(0.5, 0.1).call(ones(&[2])) => "lower bound should be less than or equal to the upper bound, but got 0.5 and 0.1"; }
    refused! { MultiMarginLoss::new().p(3).call((ones(&[1, 2]), ids(&[1]))) => "only p == 1 and p == 2 supported, but got 3"; }
    refused! { TripletMarginWithDistanceLoss::new().margin(0.0).call((ones(&[1, 2]), ones(&[1, 2]), ones(&[1, 2]))) => "expected margin to be greater than 0, but got 0"; }
}

/// The error is that of the constructor, at its line, and a trace with the module fails.
#[test]
fn a_wrong_argument_fails_a_trace_at_the_line_of_the_constructor() {
    let line = line!() + 1;
    let norm = GroupNorm::new(2, 5);
    let error = trace_fn(ones(&[1, 5, 3]), |x| norm.call(x)).unwrap_err();
    assert_eq!(
        error.message(),
        "num_channels (5) must be divisible by num_groups (2)"
    );
    assert!(
        error.context().contains(&format!("{}:{line}", file!())),
        "{error}"
    );
}

#[test]
fn inputs_of_wrong_sizes_are_refused() {
    refused! { GRUCell::new(3, 2).call((ones(&[1, 3]), ids(&[1, 2]))) => "GRUCell expects a state of f32 like its input, got i64"; }
    refused! { LSTMCell::new(3, 2).call((ones(&[1, 3]), (ones(&[1, 2]), ids(&[1, 2])))).0 => "LSTMCell expects a state of f32 like its input, got i64"; }
    refused! { Linear::new(3, 2).call(ones(&[2, 5])) => "expected input[2, 5] to have 3 features, but got 5 features instead"; }
    refused! { Bilinear::new(3, 2, 4).call((ones(&[2, 3]), ones(&[2, 3]))) => "expected input[2, 3] to have 2 features, but got 3 features instead"; }
    refused! { Conv2d::new(4, 6, 3).call(ones(&[1, 3, 8, 8])) => "expected input[1, 3, 8, 8] to have 4 channels, but got 3 channels instead"; }
    refused! { Conv2d::new(4, 6, 3).same().call(ones(&[3, 8, 8])) => "expected input[3, 8, 8] to have 4 channels, but got 3 channels instead"; }
    refused! { ConvTranspose1d::new(4, 6, 3).call(ones(&[1, 3, 8])) => "expected input[1, 3, 8] to have 4 channels, but got 3 channels instead"; }
    refused! { BatchNorm2d::new(4).call(ones(&[1, 3, 8, 8])) => "expected input[1, 3, 8, 8] to have 4 channels, but got 3 channels instead"; }
    refused! { InstanceNorm1d::with(4, true, false).call(ones(&[3, 8])) => "expected input[3, 8] to have 4 channels, but got 3 channels instead"; }
    refused! { GroupNorm::new(2, 4).call(ones(&[1, 6, 3])) => "expected input[1, 6, 3] to have 4 channels, but got 6 channels instead"; }
    refused! { GRU::new(3, 4).call(ones(&[2, 2, 5])).0 => "expected input[2, 2, 5] to have 3 features, but got 5 features instead"; }
    refused! { LSTMCell::new(3, 4).call(ones(&[2, 5])).1 => "expected input[2, 5] to have 3 features, but got 5 features instead"; }
    refused! { MultiheadAttention::new(4, 2).call((ones(&[2, 5]), ones(&[2, 5]), ones(&[2, 5]))).0 => "expected input[2, 5] to have 4 features, but got 5 features instead"; }
    assert!(
        InstanceNorm1d::new(4).call(ones(&[3, 8])).error().is_none(),
        "PyTorch accepts it without parameters"
    );
}

#[test]
fn inputs_of_wrong_ranks_are_refused() {
    refused! { GRU::new(3, 4).call(ones(&[1, 2, 2, 3])).0 => "GRU expects 2D or 3D input, got 4D"; }
    refused! { LSTM::new(3, 4).call(ones(&[3])).0 => "LSTM expects 2D or 3D input, got 1D"; }
    refused! { RNNCell::new(3, 4).call(ones(&[1, 2, 3])) => "RNNCell expects 1D or 2D input, got 3D"; }
    refused! { Dropout1d::new(0.5).call(ones(&[3])) => "Dropout1d expects 2D or 3D input, got 1D"; }
    refused! { Softmax2d::new().call(ones(&[3])) => "Softmax2d expects 3D or 4D input, got 1D"; }
    refused! { CircularPad2d::new(1).call(ones(&[3, 3])) => "CircularPad2d expects 3D or 4D input, got 2D"; }
    refused! { MaxUnpool2d::new(2).call((ones(&[3, 3]), ids(&[3, 3]))) => "MaxUnpool2d expects 3D or 4D input, got 2D"; }
    refused! { LocalResponseNorm::new(2).call(ones(&[3, 3])) => "LocalResponseNorm expects 3D or higher input, got 2D"; }
    refused! { Upsample::by(2.0).mode("bilinear").call(ones(&[1, 3, 2])) => "Upsample with mode \"bilinear\" expects 4D input, got 3D"; }
    refused! { Upsample::to([2, 3]).call(ones(&[1, 3, 2])) => "Upsample expects 1 sizes for 3D input, got 2"; }
    refused! { Upsample::by(2.0).mode("cubic").call(ones(&[1, 3, 2])) => "Upsample has no mode \"cubic\""; }
    refused! { MultiheadAttention::new(4, 2).call((ones(&[2, 1, 4]), ones(&[2, 4]), ones(&[2, 4]))).0 => "expected 3D key and value for 3D query, got 2D and 2D"; }
    refused! { MultiheadAttention::new(4, 2).call(Attention::within(&ones(&[2, 4])).attn_mask(Some(&ones(&[2])))).0 => "attn_mask must have 2 or 3 dimensions, got 1"; }
    refused! { EmbeddingBag::new(3, 2).call(ids(&[3])) => "EmbeddingBag expects offsets for 1D input"; }
    refused! { EmbeddingBag::new(3, 2).call(Bags::new(&ids(&[3, 1])).offsets(&ids(&[1]))) => "EmbeddingBag expects no offsets for 2D input: each row is a bag"; }
    refused! { EmbeddingBag::new(3, 2).call(Bags::new(&ids(&[3, 1])).per_sample_weights(&ones(&[3, 1]))) => "EmbeddingBag takes per_sample_weights for the mode Sum only"; }
}

#[test]
fn states_of_wrong_shapes_are_refused() {
    let (batch, alone) = (ones(&[5, 2, 3]), ones(&[5, 3]));
    refused! { GRU::new(3, 4).call((&batch, ones(&[1, 4]))).0 => "GRU expects a hidden state of [1, 2, 4], got [1, 4]"; }
    refused! { GRU::new(3, 4).call((&alone, ones(&[1, 1, 4]))).0 => "GRU expects a hidden state of [1, 4], got [1, 1, 4]"; }
    refused! { RNN::new(3, 4).batch_first(true).call((&batch, ones(&[1, 2, 4]))).0 => "RNN expects a hidden state of [1, 5, 4], got [1, 2, 4]"; }
    refused! { LSTM::new(3, 4).proj_size(2).call((&batch, (ones(&[1, 2, 2]), ones(&[1, 2, 2])))).0 => "LSTM expects a cell state of [1, 2, 4], got [1, 2, 2]"; }
    refused! { LSTM::new(3, 4).bidirectional(true).call((&batch, (ones(&[1, 2, 4]), ones(&[1, 2, 4])))).0 => "LSTM expects a hidden state of [2, 2, 4], got [1, 2, 4]"; }
    refused! { GRUCell::new(3, 4).call((ones(&[2, 3]), ones(&[3, 4]))) => "GRUCell expects a state of [2, 4], got [3, 4]"; }
    refused! { LSTMCell::new(3, 4).call((ones(&[3]), (ones(&[4]), ones(&[5])))).0 => "LSTMCell expects a state of [4], got [5]"; }
}

#[test]
fn element_types_of_inputs_are_refused() {
    refused! { Embedding::new(3, 2).call(ones(&[2])) => "Embedding expects integers (i64 or i32), got f32"; }
    refused! { EmbeddingBag::new(3, 2).call(ones(&[2, 1])) => "EmbeddingBag expects integers (i64 or i32), got f32"; }
    refused! { Linear::new(3, 2).call(ids(&[2, 3])) => "Linear expects f32 input like its weight, got i64"; }
    refused! { Conv2d::new(1, 1, 1).call(ids(&[1, 2, 3])) => "Conv2d expects f32 input like its weight, got i64"; }
    refused! { GRU::new(3, 4).call(ids(&[2, 3])).0 => "GRU expects f32 input like its weight, got i64"; }
    refused! { LSTMCell::new(3, 4).call(ids(&[3])).0 => "LSTMCell expects f32 input like its weight, got i64"; }
}

/// Whole channels are dropped.
#[test]
fn dropouts_of_channels_drop_whole_channels_in_training() {
    use onionskin::trace::Module;
    let dropout = Dropout1d::new(0.5);
    dropout.train();
    let values: Vec<f32> = dropout.call(ones(&[64, 8])).to_vec().unwrap();
    let channels: Vec<&[f32]> = values.chunks(8).collect();
    assert!(
        channels
            .iter()
            .all(|channel| *channel == [0.0; 8] || *channel == [2.0; 8])
    );
    let dropped = channels.iter().filter(|channel| channel[0] == 0.0).count();
    assert!((16..48).contains(&dropped), "{dropped} of 64");
}

/// Each call of a spectral norm in training mode brings the largest singular value nearer to 1.
#[test]
fn spectral_norms_improve_in_training() {
    use onionskin::trace::Module;
    let norm = SpectralNorm::new(Linear::new(4, 3).bias(false));
    norm.train();
    for _ in 0..50 {
        assert!(norm.call(ones(&[1, 4])).error().is_none());
    }
    norm.eval();
    let identity = Tensor::from_vec(
        [4, 4],
        (0..16)
            .map(|i| if i % 5 == 0 { 1f32 } else { 0.0 })
            .collect(),
    );
    let weight = norm.call(TracedTensor::from(identity.unwrap()));
    let largest = weight.linalg_svdvals().max().to_vec::<f32>().unwrap();
    assert!((largest[0] - 1.0).abs() < 1e-5, "{largest:?}");
}
