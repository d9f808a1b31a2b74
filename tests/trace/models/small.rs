//! Small networks of the corpus.

use onionskin::nn::*;
use onionskin::trace::{Forward, Module, TracedTensor};

use super::{case, check_network_of_one};

/// Checks that a network of one tensor equals the recorded one of this name, if the corpus exists.
fn check_recorded_network<M: Module + for<'x> Forward<&'x TracedTensor, Output = TracedTensor>>(
    name: &str,
    net: &M,
) {
    let Some(folder) = case(name) else { return };
    check_network_of_one(&folder, net);
}

#[test]
fn mlp() {
    let net = Sequential::new()
        .add(Flatten::new())
        .add(Linear::new(784, 64))
        .add(ReLU::new())
        .add(Linear::new(64, 10))
        .add(LogSoftmax::new(1));
    check_recorded_network("mlp_mnist", &net);
}

#[test]
fn lenet5() {
    let net = Sequential::new()
        .add(Conv2d::new(1, 6, 5).padding(2))
        .add(Tanh::new())
        .add(AvgPool2d::new(2))
        .add(Conv2d::new(6, 16, 5))
        .add(Tanh::new())
        .add(AvgPool2d::new(2))
        .add(Flatten::new())
        .add(Linear::new(400, 120))
        .add(Tanh::new())
        .add(Linear::new(120, 84))
        .add(Tanh::new())
        .add(Linear::new(84, 10))
        .add(Softmax::new(-1));
    check_recorded_network("lenet5", &net);
}

#[test]
fn generator() {
    let grow = |inputs, outputs| {
        ConvTranspose2d::new(inputs, outputs, 4)
            .stride(2)
            .padding(1)
            .bias(false)
    };
    let net = Sequential::new()
        .add(ConvTranspose2d::new(20, 64, 4).bias(false))
        .add(BatchNorm2d::new(64))
        .add(ReLU::new())
        .add(grow(64, 32))
        .add(BatchNorm2d::new(32))
        .add(ReLU::new())
        .add(grow(32, 3))
        .add(Tanh::new());
    check_recorded_network("dcgan_generator", &net);
}

#[test]
fn super_resolution() {
    let net = Sequential::new()
        .add(Conv2d::new(1, 32, 5).padding(2))
        .add(Tanh::new())
        .add(Conv2d::new(32, 16, 3).padding(1))
        .add(Tanh::new())
        .add(Conv2d::new(16, 9, 3).padding(1))
        .add(PixelShuffle::new(3));
    check_recorded_network("espcn", &net);
}

#[derive(Module)]
struct Encoder {
    layers: Vec<TransformerEncoderLayer>,
}

impl Forward<&TracedTensor> for Encoder {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let layers = self.layers.iter();
        layers.fold(x.clone(), |x, layer| layer.call(x))
    }
}

#[test]
fn transformer_encoder() {
    let layer = |_| {
        TransformerEncoderLayer::new(32, 4, 64)
            .activation(TracedTensor::gelu)
            .batch_first(true)
    };
    check_recorded_network(
        "transformer_encoder",
        &Encoder {
            layers: (0..2).map(layer).collect(),
        },
    );
}

/// A network that labels each word of a sentence.
#[derive(Module)]
struct Tagger<R> {
    e: Embedding,
    r: R,
    o: Linear,
}

impl<S, R: Forward<TracedTensor, Output = (TracedTensor, S)>> Forward<&TracedTensor> for Tagger<R> {
    type Output = TracedTensor;

    fn forward(&self, words: &TracedTensor) -> TracedTensor {
        let (states, _) = self.r.call(self.e.call(words));
        self.o.call(states).log_softmax(-1)
    }
}

fn tagger<R>(words: usize, r: R, features: usize) -> Tagger<R> {
    let (e, o) = (Embedding::new(words, 24), Linear::new(features, 9));
    Tagger { e, r, o }
}

#[test]
fn taggers() {
    let lstm = || LSTM::new(24, 32).batch_first(true);
    check_recorded_network("lstm_tagger", &tagger(100, lstm(), 32));
    check_recorded_network(
        "bilstm_tagger",
        &tagger(100, lstm().num_layers(2).bidirectional(true), 64),
    );
    check_recorded_network(
        "rnn_tanh_tagger",
        &tagger(100, RNN::new(24, 32).batch_first(true), 32),
    );
}
