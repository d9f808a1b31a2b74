//! Single modules of `onionskin::nn`, in the order of their counterparts of torch.nn in `tests/fixtures/make_modules.py`.

use std::path::Path;

use onionskin::nn::*;
use onionskin::trace::{Forward, Method, Module, TracedTensor};

use super::{check_network, tensor};

pub(super) fn fixture(name: &str) -> std::path::PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/fixtures/modules").join(name)
}

/// Every layer, applied alone.
#[derive(Module)]
struct Each {
    layers: Vec<Box<dyn Layer>>,
}

impl Forward<&TracedTensor> for Each {
    type Output = Vec<TracedTensor>;

    fn forward(&self, x: &TracedTensor) -> Vec<TracedTensor> {
        self.layers.iter().map(|layer| layer.apply(x)).collect()
    }
}

pub(super) fn each_is(name: &str, layers: Vec<Box<dyn Layer>>) {
    check_network(&fixture(name), &Each { layers }, &[], |inputs, options| {
        let forward = |each: &Each, x: TracedTensor| each.call(&x);
        Method::with("forward", tensor(inputs, 0), forward, options)
    });
}

macro_rules! layers {
    ($($layer:expr),* $(,)?) => {
        vec![$(Box::new($layer) as Box<dyn Layer>),*]
    };
}

#[test]
fn layers_of_images() {
    each_is(
        "images",
        layers![
            Conv2d::new(4, 6, 3),
            Conv2d::new(4, 2, [3, 1])
                .stride([2, 1])
                .padding([1, 0])
                .groups(2)
                .bias(false),
            Conv2d::new(4, 2, 3).same().dilation(2),
            Conv2d::new(4, 2, 3)
                .padding(1)
                .padding_mode(PaddingMode::Reflect),
            Conv2d::new(4, 2, 2)
                .same()
                .padding_mode(PaddingMode::Circular),
            Conv2d::new(4, 2, 3)
                .padding(2)
                .padding_mode(PaddingMode::Replicate),
            ConvTranspose2d::new(4, 2, 3)
                .stride(2)
                .padding(1)
                .output_padding(1)
                .groups(2),
            BatchNorm2d::new(4),
            BatchNorm2d::new(4).affine(false).eps(1e-3),
            BatchNorm2d::new(4).track_running_stats(false),
            GroupNorm::new(2, 4),
            InstanceNorm2d::new(4),
            InstanceNorm2d::with(4, true, true),
            MaxPool2d::new(2),
            MaxPool2d::new(3).stride(2).padding(1).ceil_mode(true),
            AvgPool2d::new(2),
            AvgPool2d::new(3)
                .stride(1)
                .padding(1)
                .count_include_pad(false),
            AdaptiveAvgPool2d::new(1),
            AdaptiveAvgPool2d::new([2, 3]),
            Upsample::by(2.0),
            Upsample::to([5, 7]),
            Upsample::by(2.0).mode("bilinear"),
            Upsample::to([5, 7]).mode("bilinear").align_corners(true),
            Upsample::by(2.0).mode("bicubic"),
            ZeroPad2d::new([1, 2, 0, 1]),
            ReflectionPad2d::new([1, 1, 2, 0]),
            ReplicationPad2d::new([1; 4]),
            PixelShuffle::new(2),
            PixelUnshuffle::new(2),
            ChannelShuffle::new(2),
            Flatten::new(),
            Flatten::between(0, 1),
            Unflatten::new(1, [2, 2]),
            Identity::new(),
            Dropout::new(0.5),
            Softmax::new(1),
            PReLU::new(4),
            Sequential::new()
                .add(Conv2d::new(4, 2, 1))
                .add(ReLU::new())
                .add(Flatten::new()),
        ],
    );
}

#[test]
fn layers_of_series() {
    each_is(
        "series",
        layers![
            Conv1d::new(4, 2, 3).padding(1),
            ConvTranspose1d::new(4, 2, 2).stride(2).dilation(2),
            BatchNorm1d::new(4),
            InstanceNorm1d::new(4),
            MaxPool1d::new(2),
            AvgPool1d::new(3).stride(2),
            AdaptiveAvgPool1d::new(2),
            Upsample::by(2.0).mode("linear"),
            Upsample::by(3.0),
        ],
    );
}

#[test]
fn layers_of_volumes() {
    each_is(
        "volumes",
        layers![
            Conv3d::new(2, 2, 2),
            ConvTranspose3d::new(2, 1, 2),
            BatchNorm3d::new(2),
            InstanceNorm3d::new(2),
            MaxPool3d::new(2),
            AvgPool3d::new(2),
            AdaptiveAvgPool3d::new(1),
            Upsample::by(2.0).mode("trilinear"),
        ],
    );
}

#[test]
fn layers_of_features() {
    each_is(
        "features",
        layers![
            Linear::new(6, 4),
            Linear::new(6, 3).bias(false),
            LayerNorm::new([6]),
            LayerNorm::new([2, 6]).elementwise_affine(false),
            LayerNorm::new([6]).bias(false).eps(1e-3),
            RMSNorm::new([6]),
            RMSNorm::new([6]).eps(1e-3).elementwise_affine(false),
            ReLU::new(),
            ReLU6::new(),
            ELU::new().alpha(0.5),
            CELU::new(),
            SELU::new(),
            GELU::new(),
            GELU::new().approximate("tanh"),
            SiLU::new(),
            Mish::new(),
            Hardswish::new(),
            Hardsigmoid::new(),
            Hardtanh::new().min_val(-2.0).max_val(0.5),
            LeakyReLU::new().negative_slope(0.2),
            LogSigmoid::new(),
            Softplus::new().beta(2.0),
            Softsign::new(),
            Tanh::new(),
            Sigmoid::new(),
            LogSoftmax::new(-1),
            GLU::new(),
            PReLU::new(1),
        ],
    );
}

#[derive(Module)]
struct Recurrent {
    embedding: Embedding,
    lstm: LSTM,
    gru: GRU,
    rnn: RNN,
}

type Three = (TracedTensor, TracedTensor, TracedTensor);

impl Recurrent {
    fn forward(&self, (ids, hidden, cell): Three) -> [TracedTensor; 10] {
        let x = self.embedding.call(ids);
        let (a, (h, c)) = self.lstm.call((&x, (hidden, cell)));
        let (b, (i, d)) = self.lstm.call(&x);
        let (y, j) = self.gru.call(x.transpose(0, 1));
        let (z, k) = self.rnn.call(x.select(0, 0));
        [a, h, c, b, i, d, y, j, z, k]
    }
}

#[test]
fn recurrent_layers() {
    let net = Recurrent {
        embedding: Embedding::new(7, 3).padding_idx(1),
        lstm: LSTM::new(3, 2)
            .num_layers(2)
            .bidirectional(true)
            .batch_first(true),
        gru: GRU::new(3, 2),
        rnn: RNN::new(3, 2).bias(false),
    };
    check_network(&fixture("recurrent"), &net, &[], |inputs, options| {
        let inputs = (tensor(inputs, 0), tensor(inputs, 1), tensor(inputs, 2));
        Method::with("forward", inputs, Recurrent::forward, options)
    });
}

#[derive(Module)]
struct Projected {
    first: LSTM,
    second: LSTM,
}

impl Projected {
    fn forward(&self, x: TracedTensor) -> [TracedTensor; 6] {
        let (a, (h, c)) = self.first.call(&x);
        let (b, (i, d)) = self.second.call(&a);
        [a, h, c, b, i, d]
    }
}

#[test]
fn projected_states() {
    let net = Projected {
        first: LSTM::new(3, 4)
            .num_layers(2)
            .bidirectional(true)
            .proj_size(2),
        second: LSTM::new(4, 3).bias(false).batch_first(true).proj_size(1),
    };
    check_network(&fixture("projected"), &net, &[], |inputs, options| {
        Method::with("forward", tensor(inputs, 0), Projected::forward, options)
    });
}

#[derive(Module)]
struct Attentions {
    first: MultiheadAttention,
    second: MultiheadAttention,
}

type Five = (
    TracedTensor,
    TracedTensor,
    TracedTensor,
    TracedTensor,
    TracedTensor,
);

impl Attentions {
    fn forward(&self, (x, y, z, mask, padding): Five) -> [TracedTensor; 10] {
        let attend = |net: &MultiheadAttention, input: Attention| {
            let (values, weights) = net.call(input);
            (values, weights.unwrap())
        };
        let (a, v) = attend(&self.first, Attention::within(&x));
        let input = Attention::new(&x, &y, &y).attn_mask(Some(&mask));
        let (b, w) = attend(&self.first, input.average_attn_weights(false));
        let input = Attention::new(&x, &y, &z).attn_mask(Some(&mask));
        let (c, _) = self.first.call(input.need_weights(false));
        let (d, u) = attend(&self.second, Attention::within(&x));
        let input = Attention::new(&x, &y, &y).key_padding_mask(Some(&padding));
        let (e, _) = self.second.call(input.need_weights(false));
        let [x, y, z] = [x, y, z].map(|x| x.select(0, 0));
        let (f, t) = self.second.call((x, y, z));
        [a, v, b, w, c, d, u, e, f, t.unwrap()]
    }
}

#[test]
fn attention() {
    let net = Attentions {
        first: MultiheadAttention::new(4, 2),
        second: MultiheadAttention::new(4, 2).bias(false).batch_first(true),
    };
    check_network(&fixture("attention"), &net, &[], |inputs, options| {
        let x = |index| tensor(inputs, index);
        let inputs = (x(0), x(1), x(2), x(3), x(4));
        Method::with("forward", inputs, Attentions::forward, options)
    });
}

#[derive(Module)]
struct Apart {
    attention: MultiheadAttention,
}

impl Apart {
    fn forward(&self, (x, y, z): Three) -> [TracedTensor; 3] {
        let (a, v) = self.attention.call((&x, &y, &z));
        let [x, y, z] = [x, y, z].map(|x| x.select(1, 0));
        let input = Attention::new(&x, &y, &z).need_weights(false);
        let (b, _) = self.attention.call(input);
        [a, v.unwrap(), b]
    }
}

#[test]
fn attention_to_other_features() {
    let attention = MultiheadAttention::new(4, 2).kdim(3).vdim(5);
    check_network(
        &fixture("apart"),
        &Apart { attention },
        &[],
        |inputs, options| {
            let x = |index| tensor(inputs, index);
            Method::with("forward", (x(0), x(1), x(2)), Apart::forward, options)
        },
    );
}

#[derive(Module)]
struct Encoders {
    after: TransformerEncoder,
    before: TransformerEncoder,
}

impl Encoders {
    fn forward(&self, (x, mask, padding): Three) -> (TracedTensor, TracedTensor) {
        let masked = Masked::new(&x)
            .mask(Some(&mask))
            .key_padding_mask(Some(&padding));
        (self.after.call(&x), self.before.call(masked))
    }
}

#[test]
fn encoders() {
    let layer = || TransformerEncoderLayer::new(4, 2, 6);
    let after = || layer().activation(TracedTensor::gelu).batch_first(true);
    let net = Encoders {
        after: TransformerEncoder::new([after(), after()]),
        before: TransformerEncoder::new([layer().norm_first(true)]).norm(LayerNorm::new([4])),
    };
    check_network(&fixture("encoders"), &net, &[], |inputs, options| {
        let inputs = (tensor(inputs, 0), tensor(inputs, 1), tensor(inputs, 2));
        Method::with("forward", inputs, Encoders::forward, options)
    });
}

#[derive(Module)]
struct Pairs {
    biased: Bilinear,
    plain: Bilinear,
}

impl Pairs {
    fn forward(&self, (a, b): (TracedTensor, TracedTensor)) -> (TracedTensor, TracedTensor) {
        (self.biased.call((&a, &b)), self.plain.call((a, b)))
    }
}

#[test]
fn bilinear_maps() {
    let net = Pairs {
        biased: Bilinear::new(3, 2, 4),
        plain: Bilinear::new(3, 2, 1).bias(false),
    };
    check_network(&fixture("pairs"), &net, &[], |inputs, options| {
        let inputs = (tensor(inputs, 0), tensor(inputs, 1));
        Method::with("forward", inputs, Pairs::forward, options)
    });
}
