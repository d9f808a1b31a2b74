//! Losses, decoders, cells and further layers of `onionskin::nn`, in the order of `tests/fixtures/make_modules.py`.

use onionskin::nn::*;
use onionskin::trace::{Forward, Method, Module, TracedTensor};

use super::layers::{each_is, fixture};
use super::{check_network, tensor};

#[test]
fn layers_of_neighbourhoods() {
    each_is(
        "neighbourhoods",
        layers![
            AdaptiveMaxPool2d::new([2, 3]),
            LPPool2d::new(2.0, 2),
            LPPool2d::new(3.0, 3).stride(1).ceil_mode(true),
            LocalResponseNorm::new(3),
            Unfold::new(2).padding(1),
            CircularPad2d::new(1),
            ConstantPad2d::new([1, 0, 0, 2], 1.5),
            Softmax2d::new(),
            Upsample::by(2.0).mode("nearest-exact"),
            UpsamplingNearest2d::by(2.0),
            UpsamplingBilinear2d::to([5, 7]),
            AvgPool2d::new(2).divisor_override(3),
            WeightNorm::new(Conv2d::new(4, 2, 3)),
            SpectralNorm::new(Conv2d::new(4, 2, 3)),
        ],
    );
}

#[test]
fn layers_of_curves() {
    each_is(
        "curves",
        layers![
            Hardshrink::new(),
            Softshrink::new().lambd(1.0),
            Tanhshrink::new(),
            Threshold::new(0.1, 20.0),
            Softmin::new(-1),
            RReLU::new(),
            LocalResponseNorm::new(2),
            CircularPad1d::new([1, 2]),
            Dropout1d::new(0.5),
            AlphaDropout::new(0.5),
        ],
    );
}

#[derive(Module)]
struct Steps {
    bag: EmbeddingBag,
    rnn: RNNCell,
    gru: GRUCell,
    lstm: LSTMCell,
}

impl Steps {
    fn forward(&self, ids: TracedTensor) -> [TracedTensor; 7] {
        let x = self.bag.call(ids);
        let (h, c) = self.lstm.call(&x);
        let [first, hidden, cell] = [&x, &h, &c].map(|x| x.select(0, 0));
        let (a, b) = self.lstm.call((first, (hidden, cell)));
        let [d, e, f] = [
            self.rnn.call((&x, &h)),
            self.gru.call(&x),
            self.gru.call((&x, &h)),
        ];
        [h, c, a, b, d, e, f]
    }
}

#[test]
fn cells_and_bags() {
    let net = Steps {
        bag: EmbeddingBag::new(7, 3),
        rnn: RNNCell::new(3, 2).nonlinearity(Nonlinearity::Relu),
        gru: GRUCell::new(3, 2).bias(false),
        lstm: LSTMCell::new(3, 2),
    };
    check_network(&fixture("steps"), &net, &[], |inputs, options| {
        Method::with("forward", tensor(inputs, 0), Steps::forward, options)
    });
}

#[derive(Module)]
struct Decoders {
    whole: Transformer,
    decoder: TransformerDecoder,
    attention: MultiheadAttention,
}

type Four = (TracedTensor, TracedTensor, TracedTensor, TracedTensor);

impl Decoders {
    fn forward(&self, (x, y, mask, padding): Four) -> [TracedTensor; 4] {
        let masked = Attention::new(&x, &y, &y).attn_mask(Some(&mask));
        let (values, weights) = self.attention.call(masked.key_padding_mask(Some(&padding)));
        let masked = Decoding::new(&x, &y).memory_mask(Some(&mask));
        let whole = self.whole.call((&y, &x));
        let decoded = self
            .decoder
            .call(masked.memory_key_padding_mask(Some(&padding)));
        [whole, decoded, values, weights.unwrap()]
    }
}

#[test]
fn decoders() {
    let layer = TransformerDecoderLayer::new(4, 2, 6).norm_first(true);
    let net = Decoders {
        whole: Transformer::new(4, 2, [1, 2], 6),
        decoder: TransformerDecoder::new([layer]),
        attention: MultiheadAttention::new(4, 2)
            .add_bias_kv(true)
            .add_zero_attn(true),
    };
    check_network(&fixture("decoders"), &net, &[], |inputs, options| {
        let x = |index| tensor(inputs, index);
        Method::with(
            "forward",
            (x(0), x(1), x(2), x(3)),
            Decoders::forward,
            options,
        )
    });
}

/// A loss of two tensors.
trait PairLoss: Module {
    fn apply(&self, x: &TracedTensor, y: &TracedTensor) -> TracedTensor;
}

impl<M> PairLoss for M
where
    M: for<'x> Forward<(&'x TracedTensor, &'x TracedTensor), Output = TracedTensor>,
{
    fn apply(&self, x: &TracedTensor, y: &TracedTensor) -> TracedTensor {
        self.call((x, y))
    }
}

#[derive(Module)]
struct Losses {
    pairs: Vec<Box<dyn PairLoss>>,
    classes: Vec<Box<dyn PairLoss>>,
    triplet: TripletMarginLoss,
    distance: TripletMarginWithDistanceLoss,
}

impl Losses {
    fn forward(&self, (x, y, z, ids): Four) -> [TracedTensor; 16] {
        let pairs = self.pairs.iter().map(|loss| loss.apply(&x, &y));
        let classes = self.classes.iter().map(|loss| loss.apply(&x, &ids));
        let mut losses: Vec<TracedTensor> = pairs.chain(classes).collect();
        losses.push(self.triplet.call((&x, &y, &z)));
        losses.push(self.distance.call((&x, &y, &z)));
        losses.try_into().unwrap()
    }
}

macro_rules! losses {
    ($($loss:expr),* $(,)?) => {
        vec![$(Box::new($loss) as Box<dyn PairLoss>),*]
    };
}

#[test]
fn losses() {
    let net = Losses {
        pairs: losses![
            L1Loss::new(),
            MSELoss::new().reduction(Reduction::None),
            SmoothL1Loss::new(),
            HuberLoss::new(),
            KLDivLoss::new().batch_mean(true),
            BCEWithLogitsLoss::new(),
            PoissonNLLLoss::new(),
            SoftMarginLoss::new(),
            MultiLabelSoftMarginLoss::new(),
            CosineSimilarity::new(),
            PairwiseDistance::new(),
        ],
        classes: losses![
            CrossEntropyLoss::new(),
            NLLLoss::new(),
            MultiMarginLoss::new()
        ],
        triplet: TripletMarginLoss::new(),
        distance: TripletMarginWithDistanceLoss::new(),
    };
    check_network(&fixture("losses"), &net, &[], |inputs, options| {
        let x = |index| tensor(inputs, index);
        Method::with(
            "forward",
            (x(0), x(1), x(2), x(3)),
            Losses::forward,
            options,
        )
    });
}
