//! A tagger of words with a bidirectional GRU, for sentences of several lengths.

use onionskin::nn::{Embedding, GRU, Linear};
use onionskin::trace::{Forward, Module, NewAxis, TracedTensor, ops};

use super::{check_network_of_two, network};

#[derive(Module)]
struct GruTagger {
    embedding: Embedding,
    gru: GRU,
    out: Linear,
}

impl GruTagger {
    fn new(words: usize, dim: usize, hidden: usize, tags: usize) -> GruTagger {
        GruTagger {
            embedding: Embedding::new(words, dim).padding_idx(0),
            gru: GRU::new(dim, hidden).batch_first(true).bidirectional(true),
            out: Linear::new(2 * hidden, tags),
        }
    }
}

impl Forward<(&TracedTensor, &TracedTensor)> for GruTagger {
    type Output = TracedTensor;

    fn forward(&self, (ids, lengths): (&TracedTensor, &TracedTensor)) -> TracedTensor {
        let (states, _) = self.gru.call(self.embedding.call(ids));
        let scores = self.out.call(states).log_softmax(-1);
        let positions = ops::arange(ids.dim(1)).i((NewAxis, ..));
        let mask = positions.lt(lengths.i((.., NewAxis)));
        scores * mask.unsqueeze(-1)
    }
}

#[test]
fn gru_tagger() {
    let traces = check_network_of_two(&network("gru_tagger"), &GruTagger::new(20, 6, 5, 4));
    assert_eq!(traces, 1);
}
