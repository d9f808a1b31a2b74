//! Gradients of scaled dot-product attention, from its result and the logarithm of the sum of each query's exponentials.
//!
//! Source: Dao et al., "FlashAttention" (2022), appendix B.4, without tiles.

use crate::error::Result;
use crate::ir::Value;

use super::super::attention::{causal, masked_scores, scaled};
use super::super::{Args, Composite};

pub(in crate::aten) const ROWS: &[Composite] = &[Composite::many(
    &[
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, float dropout_p, bool is_causal, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)",
    ],
    attention_backward,
    &[
        "f32[2, 2, T, 4], f32[2, 2, T, 4], f32[2, 2, S, 4], f32[2, 2, S, 4], f32[2, 2, T, 4], f32[2, 2, T], 0.0, False",
        "f32[2, 2, 3, 4], f32[2, 2, 3, 4], f32[2, 2, 3, 4], f32[2, 2, 3, 4], f32[2, 2, 3, 4], f32[2, 2, 3], 0.0, True, scale=0.3",
    ],
)];

/// Returns the gradients of queries, keys and values.
fn attention_backward<'g>(a: &Args<'g>) -> Result<Vec<Value<'g>>> {
    if 0.0 < a.float("dropout_p") {
        return a.reject("dropout is not supported in flash attention for CPU");
    }
    let [query, key, value] = ["query", "key", "value"].map(|name| a.tensor(name));
    a.builder().check()?;
    let masks = [
        a.optional_tensor("attn_mask"),
        a.bool("is_causal").then(|| causal(query, key)),
    ];
    let scale = a.optional_float("scale");
    let weights = attention_weights(a, masked_scores(query, key, scale, masks));

    let [gradient, output] = ["grad_out", "out"].map(|name| a.tensor(name).to_compute());
    let of_weights = gradient.matmul(value.to_compute().transpose(-2, -1));
    let mean = (gradient * output).sum(&[-1], true);
    let of_scores = scaled(weights * (of_weights - mean), scale, &query.size(-1));
    Ok(vec![
        of_scores.matmul(key.to_compute()).to(query.dtype()),
        of_scores
            .transpose(-2, -1)
            .matmul(query.to_compute())
            .to(key.dtype()),
        weights.transpose(-2, -1).matmul(gradient).to(value.dtype()),
    ])
}

/// The softmax of the scores, from the logarithm of the sum of each query's exponentials. Joint graphs of `torch.export` give the
/// softmax itself in its place, since the decomposition of the forward operator returns it.
fn attention_weights<'g>(a: &Args<'g>, scores: Value<'g>) -> Value<'g> {
    let log_sums = a.tensor("logsumexp").to_compute();
    if log_sums.rank() == scores.rank() {
        return log_sums;
    }
    let log_sums = log_sums.unsqueeze(-1);
    // A query whose keys are all masked has no weights.
    let has_keys = log_sums.ne(f64::NEG_INFINITY);
    has_keys.where_((scores - log_sums).exp(), 0.0)
}
