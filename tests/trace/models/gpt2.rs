//! A small GPT-2 of the library transformers.

mod network;

use onionskin::trace::{Forward, Method, TracedTensor};

use super::{case, check_network, tensor};
use network::Wrapper;

#[test]
fn gpt2_is_what_pytorch_traced() {
    let Some(folder) = case("gpt2_small") else {
        return;
    };
    let net = Wrapper::new(300, 2);
    let unused = [
        "m.transformer.h.0.attn.masked_bias",
        "m.transformer.h.1.attn.masked_bias",
    ];
    check_network(&folder, &net, &unused, |inputs, options| {
        let forward = |net: &Wrapper, ids: TracedTensor| net.call(&ids);
        Method::with("forward", tensor(inputs, 0), forward, options)
    });
}
