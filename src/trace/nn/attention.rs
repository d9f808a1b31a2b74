//! Multi-head attention.

use std::borrow::Borrow;

use super::{Dropout, Linear, init, results_to_array};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Error;
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Forward, TracedTensor, failed};

/// Inputs and options of a call of [`MultiheadAttention`].
#[derive(Clone, Debug)]
pub struct Attention {
    query: TracedTensor,
    key: TracedTensor,
    value: TracedTensor,
    key_padding_mask: Option<TracedTensor>,
    attn_mask: Option<TracedTensor>,
    need_weights: bool,
    average_attn_weights: bool,
    is_causal: bool,
}

impl Attention {
    /// Queries, keys and values: `[length, batch, features]`, or `[batch, length, features]` if the module is `batch_first`.
    /// The batch axis may be missing.
    pub fn new(query: &TracedTensor, key: &TracedTensor, value: &TracedTensor) -> Attention {
        Attention {
            query: query.clone(),
            key: key.clone(),
            value: value.clone(),
            key_padding_mask: None,
            attn_mask: None,
            need_weights: true,
            average_attn_weights: true,
            is_causal: false,
        }
    }

    /// Self-attention: one sequence is queries, keys and values.
    pub fn within(x: &TracedTensor) -> Attention {
        Attention::new(x, x, x)
    }

    /// Mask of ignored keys, `[batch, keys]`: flags, or numbers to add to the scores.
    #[must_use]
    pub fn key_padding_mask(mut self, mask: Option<&TracedTensor>) -> Attention {
        self.key_padding_mask = mask.cloned();
        self
    }

    /// Mask of the keys that each query ignores, `[queries, keys]` or `[batch · heads, queries, keys]`: flags, or numbers to
    /// add to the scores.
    #[must_use]
    pub fn attn_mask(mut self, mask: Option<&TracedTensor>) -> Attention {
        self.attn_mask = mask.cloned();
        self
    }

    /// Whether to return the weights too; true by default, which is slower.
    #[must_use]
    pub fn need_weights(mut self, need: bool) -> Attention {
        self.need_weights = need;
        self
    }

    /// Whether to average the weights over the heads; true by default.
    #[must_use]
    pub fn average_attn_weights(mut self, average: bool) -> Attention {
        self.average_attn_weights = average;
        self
    }

    /// Declares that `attn_mask` is the causal mask.
    #[must_use]
    pub fn is_causal(mut self, causal: bool) -> Attention {
        self.is_causal = causal;
        self
    }

    /// Changes queries, keys and values. Those that are one tensor stay one tensor.
    fn map(mut self, change: impl Fn(&TracedTensor) -> TracedTensor) -> Attention {
        let (query_is_key, key_is_value) = (self.query.is(&self.key), self.key.is(&self.value));
        self.query = change(&self.query);
        self.key = if query_is_key {
            self.query.clone()
        } else {
            change(&self.key)
        };
        self.value = if key_is_value {
            self.key.clone()
        } else {
            change(&self.value)
        };
        self
    }
}

/// `torch.nn.MultiheadAttention`. Returns the attention output and, if wanted, the weights.
///
/// Records the operators that PyTorch records with gradients enabled, not its fused operator.
#[derive(Debug, Module)]
pub struct MultiheadAttention {
    /// The three projections stacked along the rows, if queries, keys and values have equal features.
    in_proj_weight: Option<TracedTensor>,
    q_proj_weight: Option<TracedTensor>,
    k_proj_weight: Option<TracedTensor>,
    v_proj_weight: Option<TracedTensor>,
    in_proj_bias: Option<TracedTensor>,
    out_proj: Linear,
    dropout: Dropout,
    features: i64,
    heads: i64,
    batch_first: bool,
}

impl MultiheadAttention {
    /// A module with `features` features, split among the heads.
    pub fn new(features: usize, heads: usize) -> MultiheadAttention {
        MultiheadAttention {
            in_proj_weight: Some(projection(3 * features, features)),
            q_proj_weight: None,
            k_proj_weight: None,
            v_proj_weight: None,
            in_proj_bias: Some(init::constant(&[3 * features], 0.0)),
            out_proj: Linear {
                bias: Some(init::constant(&[features], 0.0)),
                ..Linear::new(features, features)
            },
            dropout: Dropout::new(0.0),
            features: i64::try_from(features).unwrap_or(i64::MAX),
            heads: i64::try_from(heads.max(1)).unwrap_or(i64::MAX),
            batch_first: false,
        }
    }

    /// Numbers of features of keys and values, by default those of the queries. Draws new weights.
    #[must_use]
    pub fn key_value_features(mut self, keys: usize, values: usize) -> MultiheadAttention {
        let features = usize::try_from(self.features).unwrap_or(usize::MAX);
        let is_packed = keys == features && values == features;
        let separate = |columns| (!is_packed).then(|| projection(features, columns));
        self.in_proj_weight = is_packed.then(|| projection(3 * features, features));
        self.q_proj_weight = separate(features);
        self.k_proj_weight = separate(keys);
        self.v_proj_weight = separate(values);
        self
    }

    /// Whether the projections have biases; true by default.
    #[must_use]
    pub fn bias(mut self, bias: bool) -> MultiheadAttention {
        self.in_proj_bias = self.in_proj_bias.filter(|_| bias);
        self.out_proj = self.out_proj.bias(bias);
        self
    }

    /// Whether the batch is the first axis; by default the sequence is.
    #[must_use]
    pub fn batch_first(mut self, batch_first: bool) -> MultiheadAttention {
        self.batch_first = batch_first;
        self
    }

    /// Dropout probability of the weights in training mode; 0 by default.
    #[must_use]
    pub fn dropout(mut self, p: f64) -> MultiheadAttention {
        self.dropout = Dropout::new(p);
        self
    }

    /// Number of features of a head.
    fn head_features(&self) -> i64 {
        self.features / self.heads
    }

    /// Projects queries, keys and values.
    fn project(&self, input: &Attention) -> [TracedTensor; 3] {
        let separate_weights = [
            &self.q_proj_weight,
            &self.k_proj_weight,
            &self.v_proj_weight,
        ];
        match (&self.in_proj_weight, separate_weights) {
            (Some(weight), _) => self.project_packed(weight, input),
            (None, [Some(query), Some(key), Some(value)]) => {
                self.project_separately([query, key, value], input)
            }
            _ => std::array::from_fn(|_| failed(Error::internal("an attention has no weights"))),
        }
    }

    /// Projects by one matrix each.
    fn project_separately(
        &self,
        weights: [&TracedTensor; 3],
        input: &Attention,
    ) -> [TracedTensor; 3] {
        let biases = self.in_proj_bias.as_ref();
        let biases = biases.map(|bias| results_to_array::<3>(bias.chunk(3)));
        let biases = transpose_option(biases.as_ref());
        let inputs = [&input.query, &input.key, &input.value];
        std::array::from_fn(|index| linear_projection(inputs[index], weights[index], biases[index]))
    }

    /// Projects by one packed matrix. Inputs that are one tensor are projected by one product.
    fn project_packed(&self, weight: &TracedTensor, input: &Attention) -> [TracedTensor; 3] {
        let bias = self.in_proj_bias.as_ref();
        let (query, key, value) = (&input.query, &input.key, &input.value);
        if query.is(key) && key.is(value) {
            return split_packed::<3>(&linear_projection(query, weight, bias), self.features);
        }
        if key.is(value) {
            let sizes = [self.features, 2 * self.features];
            let split = |x: &TracedTensor| results_to_array::<2>(x.split_with_sizes(sizes));
            let ([query_weight, key_value_weight], biases) = (split(weight), bias.map(split));
            let [query_bias, key_value_bias] = transpose_option(biases.as_ref());
            let query = linear_projection(query, &query_weight, query_bias);
            let key_value = linear_projection(key, &key_value_weight, key_value_bias);
            let [key, value] = split_packed::<2>(&key_value, self.features);
            return [query, key, value];
        }
        let [query, key, value] = results_to_array::<3>(weight.chunk(3));
        self.project_separately([&query, &key, &value], input)
    }

    /// Splits the features into heads: `[batch · heads, length, features of a head]`.
    fn heads(&self, x: &TracedTensor, batch: &Dim) -> TracedTensor {
        let batch_heads = batch * &Dim::from(self.heads);
        let sizes = vec![x.dim(0), batch_heads, self.head_features().into()];
        x.view(sizes).transpose(0, 1)
    }

    /// Adds the padding mask to the attention mask, for each head and batch.
    fn with_padding(
        &self,
        mask: Option<TracedTensor>,
        padding: Option<&TracedTensor>,
        batch: &Dim,
        keys: &Dim,
    ) -> Option<TracedTensor> {
        let Some(padding) = padding else {
            return mask;
        };
        let one = || Dim::from(1);
        let padding = padding.view(vec![batch.clone(), one(), one(), keys.clone()]);
        let padding = padding.expand([-1, self.heads, -1, -1]);
        let batch_heads = batch * &Dim::from(self.heads);
        let padding = padding.reshape(vec![batch_heads, one(), keys.clone()]);
        Some(match mask {
            Some(mask) => mask + padding,
            None => padding,
        })
    }

    /// Returns the weighted values, `[batch · heads, queries, features of a head]`, and the weights.
    fn weighted_values(
        &self,
        [q, k, v]: &[TracedTensor; 3],
        mask: Option<&TracedTensor>,
    ) -> (TracedTensor, TracedTensor) {
        let scaled = q * (1.0 / self.head_features() as f64).sqrt();
        let keys = k.transpose(-2, -1);
        let scores = match mask {
            Some(mask) => mask.baddbmm(&scaled, &keys),
            None => scaled.bmm(&keys),
        };
        let weights = self.dropout.forward(scores.softmax(-1));
        (weights.bmm(v), weights)
    }

    /// Returns the weighted values, `[queries, batch, heads, features of a head]`, from one operator.
    fn fused_attention(
        &self,
        heads: [TracedTensor; 3],
        mask: Option<TracedTensor>,
        [batch, queries, keys]: &[Dim; 3],
        is_causal: bool,
    ) -> TracedTensor {
        let sizes_with_heads =
            |length: &Dim, last: Dim| vec![batch.clone(), self.heads.into(), length.clone(), last];
        let mask = mask.map(|mask| match mask.dim(0).as_const() {
            Some(1) if mask.rank() == 3 => mask.unsqueeze(0),
            _ => mask.view(sizes_with_heads(&Dim::from(-1), keys.clone())),
        });
        let [q, k, v] = heads;
        let q = q.view(sizes_with_heads(queries, self.head_features().into()));
        let [k, v] = [k, v].map(|x| x.view(sizes_with_heads(keys, self.head_features().into())));
        let p = self.dropout.probability();
        let named = kw!(attn_mask = mask, dropout_p = p, is_causal = is_causal);
        let values = q.scaled_dot_product_attention_with(&k, &v, named);
        values.permute([2, 0, 1, 3])
    }

    /// Merges the heads and applies the output projection.
    fn output_projection(&self, x: &TracedTensor, batch: &Dim, queries: &Dim) -> TracedTensor {
        let features = Dim::from(self.features);
        let flat = x.reshape(vec![batch * queries, features.clone()]);
        let flat = linear_projection(&flat, &self.out_proj.weight, self.out_proj.bias.as_ref());
        flat.view(vec![queries.clone(), batch.clone(), features])
    }

    /// Attention over `[length, batch, features]` with additive masks. The fused operator, which returns no weights,
    /// applies the causal mask itself unless there is a padding mask.
    fn attend(&self, input: &Attention) -> (TracedTensor, Option<TracedTensor>) {
        let (batch, queries) = (input.query.dim(1), input.query.dim(0));
        let keys = input.key.dim(0);
        let is_mask_implied =
            input.is_causal && input.key_padding_mask.is_none() && !input.need_weights;
        let heads = self.project(input);
        let mask = input
            .attn_mask
            .as_ref()
            .filter(|_| !is_mask_implied)
            .map(with_batch_axis);
        let heads = heads.map(|x| self.heads(&x, &batch));
        let mask = self.with_padding(mask, input.key_padding_mask.as_ref(), &batch, &keys);
        if !input.need_weights {
            let sizes = [batch.clone(), queries.clone(), keys];
            let x = self.fused_attention(heads, mask, &sizes, is_mask_implied);
            return (self.output_projection(&x, &batch, &queries), None);
        }
        let (x, weights) = self.weighted_values(&heads, mask.as_ref());
        let x = self.output_projection(&x.transpose(0, 1), &batch, &queries);
        let weights = weights.view(vec![batch, self.heads.into(), queries, keys]);
        let weights = match input.average_attn_weights {
            true => weights.mean_dim([1]),
            false => weights,
        };
        (x, Some(weights))
    }
}

/// A projection weight, drawn as PyTorch does (Glorot and Bengio).
fn projection(rows: usize, columns: usize) -> TracedTensor {
    init::uniform(&[rows, columns], (6.0 / (rows + columns) as f64).sqrt())
}

/// Adds an axis for heads and batches to a mask.
fn with_batch_axis(mask: &TracedTensor) -> TracedTensor {
    match mask.rank() {
        2 => mask.unsqueeze(0),
        _ => mask.clone(),
    }
}

/// `x · weightᵀ + bias` along the last axis.
fn linear_projection(
    x: &TracedTensor,
    weight: &TracedTensor,
    bias: Option<&TracedTensor>,
) -> TracedTensor {
    x.linear_with(weight, kw!(bias = bias))
}

/// Moves the option to the items: all are present or all are absent.
fn transpose_option<const N: usize>(
    tensors: Option<&[TracedTensor; N]>,
) -> [Option<&TracedTensor>; N] {
    std::array::from_fn(|index| tensors.map(|tensors| &tensors[index]))
}

/// Splits projections that are concatenated along the last axis.
fn split_packed<const N: usize>(packed: &TracedTensor, features: i64) -> [TracedTensor; N] {
    let sizes = [N as i64, features];
    let packed = packed.unflatten(-1, sizes).unsqueeze(0);
    let packed = packed.transpose(0, -2).squeeze_dim(-2);
    std::array::from_fn(|index| packed.select(0, index))
}

/// Converts a mask to numbers to add to the scores: minus infinity where a flag is set, 0 elsewhere.
pub(super) fn additive_mask(mask: Option<&TracedTensor>, dtype: DType) -> Option<TracedTensor> {
    let mask = mask?;
    if mask.dtype() != DType::Bool {
        return Some(mask.clone());
    }
    let zeros = mask.zeros_like_with(kw!(dtype = dtype, pin_memory = false));
    Some(zeros.masked_fill(mask, f64::NEG_INFINITY))
}

impl Forward<Attention> for MultiheadAttention {
    type Output = (TracedTensor, Option<TracedTensor>);

    fn forward(&self, mut input: Attention) -> Self::Output {
        if input.is_causal && input.attn_mask.is_none() {
            let error = Error::operator("is_causal needs attn_mask");
            return (
                failed(error.help("pass the causal mask as attn_mask")),
                None,
            );
        }
        let dtype = input.query.dtype();
        input.key_padding_mask = additive_mask(input.key_padding_mask.as_ref(), dtype);
        input.attn_mask = additive_mask(input.attn_mask.as_ref(), dtype);
        if input.query.rank() == 2 {
            let padding = input.key_padding_mask.map(|mask| mask.unsqueeze(0));
            input.key_padding_mask = padding;
            let (x, weights) = self.attend(&input.map(|x| x.unsqueeze(1)));
            return (
                x.squeeze_dim(1),
                weights.map(|weights| weights.squeeze_dim(0)),
            );
        }
        if !self.batch_first {
            return self.attend(&input);
        }
        let (x, weights) = self.attend(&input.map(|x| x.transpose(1, 0)));
        (x.transpose(1, 0), weights)
    }
}

/// Called with queries, keys and values, without masks. Returns the weights.
impl<Q: Borrow<TracedTensor>, K: Borrow<TracedTensor>, V: Borrow<TracedTensor>> Forward<(Q, K, V)>
    for MultiheadAttention
{
    type Output = (TracedTensor, Option<TracedTensor>);

    fn forward(&self, (query, key, value): (Q, K, V)) -> Self::Output {
        self.forward(Attention::new(query.borrow(), key.borrow(), value.borrow()))
    }
}
