//! A mixture of experts that computes all experts, and weighs the best of them for each token.

use onionskin::kw;
use onionskin::nn::{Linear, Sequential, SiLU};
use onionskin::trace::{Forward, Module, TracedTensor, ops};

use super::{check_network_of_one, network};

#[derive(Module)]
struct Experts {
    gate: Linear,
    experts: Vec<Sequential>,
    top: i64,
}

impl Experts {
    fn new(dim: usize, hidden: usize, experts: usize, top: i64) -> Experts {
        let expert = || {
            Sequential::new()
                .add(Linear::new(dim, hidden))
                .add(SiLU::new())
                .add(Linear::new(hidden, dim))
        };
        Experts {
            gate: Linear::new(dim, experts).bias(false),
            experts: (0..experts).map(|_| expert()).collect(),
            top,
        }
    }
}

impl Forward<&TracedTensor> for Experts {
    type Output = (TracedTensor, TracedTensor);

    fn forward(&self, x: &TracedTensor) -> (TracedTensor, TracedTensor) {
        let gates = self.gate.call(x).softmax(-1);
        let (best, indices) = gates.topk_with(self.top, kw!(dim = -1));
        let zeros = gates.zeros_like();
        let best = &best / best.sum_dim_with([-1], kw!(keepdim = true));
        let weights = zeros.scatter(-1, &indices, best);
        let outputs: Vec<_> = self.experts.iter().map(|expert| expert.call(x)).collect();
        let outputs = ops::stack_with(&outputs, kw!(dim = -2));
        let mean = gates.mean_dim([0, 1]);
        (ops::einsum("bte,bted->btd", &[weights, outputs]), mean)
    }
}

#[test]
fn experts() {
    let traces = check_network_of_one(&network("experts"), &Experts::new(6, 10, 4, 2));
    assert_eq!(traces, 1);
}
