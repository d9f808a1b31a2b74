//! A language model with the states of an LSTM as inputs and outputs.

use onionskin::item::Item;
use onionskin::nn::{Dropout, Embedding, LSTM, Linear};
use onionskin::trace::{Forward, Method, Module, TracedTensor};

use super::{check_network, network, tensor};

#[derive(Module)]
struct LanguageModel {
    encoder: Embedding,
    dropout: Dropout,
    lstm: LSTM,
    decoder: Linear,
}

impl LanguageModel {
    fn new(words: usize, dim: usize, layers: usize) -> LanguageModel {
        let encoder = Embedding::new(words, dim);
        LanguageModel {
            decoder: Linear::new(dim, words).tied(encoder.weight()),
            encoder,
            dropout: Dropout::new(0.2),
            lstm: LSTM::new(dim, dim).num_layers(layers).dropout(0.2),
        }
    }
}

/// Hidden and cell states.
type States = (TracedTensor, TracedTensor);

impl Forward<(&TracedTensor, States)> for LanguageModel {
    type Output = (TracedTensor, States);

    fn forward(&self, (ids, states): (&TracedTensor, States)) -> (TracedTensor, States) {
        let x = self.dropout.call(self.encoder.call(ids));
        let (x, states) = self.lstm.call((x, states));
        let scores = self.decoder.call(self.dropout.call(x));
        (scores.log_softmax(-1), states)
    }
}

#[test]
fn lstm_language_model() {
    let net = LanguageModel::new(20, 6, 2);
    let traces = check_network(
        &network("lstm_language_model"),
        &net,
        &[],
        |inputs, options| {
            let Item::Tuple(states) = &inputs[1] else {
                panic!("{:?} are not the states", inputs[1]);
            };
            let inputs = (tensor(inputs, 0), (tensor(states, 0), tensor(states, 1)));
            let forward = |net: &LanguageModel, (ids, states): (_, _)| net.call((&ids, states));
            Method::with("forward", inputs, forward, options)
        },
    );
    assert_eq!(traces, 1);
}
