//! Attention, from scaled dot-product attention to a whole encoder layer.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;

use super::dropout::apply_dropout;
use super::linear::linear;
use super::softmax::safe_softmax;
use super::{Args, Composite, StrideRule};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0., bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor",
        ],
        |a| Ok(ComposedAttention::from_args(a, "attn_mask")?.output),
        &[
            "f32[B, 2, T, 4], f32[B, 2, S, 4], f32[B, 2, S, 3]",
            "f32[B, 2, T, 4], f32[B, 2, T, 4], f32[B, 2, T, 4], is_causal=True, scale=0.3",
            "f32[2, 4, 3, 8], f32[2, 2, 5, 8], f32[2, 2, 5, 8], bool[3, 5], enable_gqa=True",
            "f16[2, 3, 8], f16[2, 5, 8], f16[2, 5, 8], f16[3, 5]",
            "f32[B, 2, T, 4], f32[B, 2, S, 4], f32[B, 2, S, 3], dropout_p=0.5",
        ],
    )
    .with_strides(StrideRule::Attention)
    .with_random(has_dropout),
    Composite::many(
        &[
            "aten::_scaled_dot_product_attention_math(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0., bool is_causal=False, Tensor? dropout_mask=None, *, float? scale=None, bool enable_gqa=False) -> (Tensor, Tensor)",
        ],
        |a| {
            if !a.is_none("dropout_mask") {
                return a.reject("the argument dropout_mask is not supported");
            }
            let attention = ComposedAttention::from_args(a, "attn_mask")?;
            Ok(vec![attention.output, attention.weights])
        },
        &["f32[2, 2, 3, 4], f32[2, 2, 5, 4], f32[2, 2, 5, 4]"],
    )
    .with_random(has_dropout),
    Composite::many(
        &[
            "aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0., bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)",
        ],
        |a| {
            if has_dropout(a) {
                return a.reject("dropout is not supported in flash attention for CPU");
            }
            let attention = ComposedAttention::from_args(a, "attn_mask")?;
            Ok(vec![attention.output, attention.log_sum_exp()])
        },
        &["f32[2, 2, 3, 4], f32[2, 2, 5, 4], f32[2, 2, 5, 4]"],
    ),
    Composite::many(
        &[
            "aten::_native_multi_head_attention(Tensor query, Tensor key, Tensor value, int embed_dim, int num_head, Tensor qkv_weight, Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, Tensor? mask=None, bool need_weights=True, bool average_attn_weights=True, int? mask_type=None) -> (Tensor, Tensor)",
        ],
        |a| {
            let mask = EncoderMask::from_args(a)?;
            let heads = MultiHeadProjections::from_args(a, a.int("num_head"))?;
            let (output, weights) =
                heads.attend(["query", "key", "value"].map(|name| a.tensor(name)), mask)?;
            Ok(vec![
                output,
                match (a.bool("need_weights"), a.bool("average_attn_weights")) {
                    (false, _) => a.builder().full(output.dtype(), vec![Dim::ZERO], 0),
                    (true, true) => weights.mean(&[1], false),
                    (true, false) => weights,
                },
            ])
        },
        &["f32[2, 3, 4], f32[2, 3, 4], f32[2, 3, 4], 4, 2, f32[12, 4], f32[12], f32[4, 4], f32[4]"],
    ),
    Composite::one(
        &[
            "aten::_transformer_encoder_layer_fwd(Tensor src, int embed_dim, int num_heads, Tensor qkv_weight, Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, bool use_gelu, bool norm_first, float eps, Tensor norm_weight_1, Tensor norm_bias_1, Tensor norm_weight_2, Tensor norm_bias_2, Tensor ffn_weight_1, Tensor ffn_bias_1, Tensor ffn_weight_2, Tensor ffn_bias_2, Tensor? mask=None, int? mask_type=None) -> Tensor",
        ],
        encoder_layer,
        &[
            "f32[2, 3, 4], 4, 2, f32[12, 4], f32[12], f32[4, 4], f32[4], True, False, 1e-5, f32[4], f32[4], f32[4], f32[4], f32[6, 4], f32[6], f32[4, 6], f32[4]",
        ],
    ),
];

/// Whether a call applies dropout, and so draws random numbers.
fn has_dropout(a: &Args) -> bool {
    0.0 < a.float("dropout_p")
}

/// `softmax(scale · query · keyᵀ + mask) · value`.
struct ComposedAttention<'g> {
    /// The weighted sum of the values.
    output: Value<'g>,
    /// The softmax of the scores, after dropout, `[.., query, key]`.
    weights: Value<'g>,
    /// The scaled and masked products of queries and keys, in the compute dtype.
    scores: Value<'g>,
}

impl<'g> ComposedAttention<'g> {
    /// The attention of a call; `mask` is the name of its mask argument.
    fn from_args(a: &Args<'g>, mask: &str) -> Result<ComposedAttention<'g>> {
        let [query, key, value] = ["query", "key", "value"].map(|name| a.tensor(name));
        a.builder().check()?;
        if query.rank() < 2 || key.rank() < 2 || value.rank() < 2 {
            return a.reject("attention requires operands of at least two dimensions");
        }
        let enable_gqa = a.bool("enable_gqa");
        let (key, value) = if enable_gqa {
            (repeated_heads(key, query)?, repeated_heads(value, query)?)
        } else {
            (key, value)
        };
        let masks = [
            a.optional_tensor(mask),
            a.bool("is_causal").then(|| causal(query, key)),
        ];
        let scale = a.optional_float("scale");
        ComposedAttention::new(query, key, value, scale, masks).with_dropout(a, value)
    }

    /// Applies dropout to the weights if the call has any.
    fn with_dropout(mut self, a: &Args<'g>, value: Value<'g>) -> Result<ComposedAttention<'g>> {
        if has_dropout(a) {
            let dtype = self.output.dtype();
            self.weights = apply_dropout(a, self.weights, a.float("dropout_p"))?;
            self.output = self
                .weights
                .to_compute()
                .matmul(value.to_compute())
                .to(dtype);
        }
        Ok(self)
    }

    /// Attention in which a query whose keys are all masked gives zeros.
    fn new(
        query: Value<'g>,
        key: Value<'g>,
        value: Value<'g>,
        scale: Option<f64>,
        masks: [Option<Value<'g>>; 2],
    ) -> ComposedAttention<'g> {
        let is_masked = masks.iter().any(Option::is_some);
        let scores = masked_scores(query, key, scale, masks);
        let weights = if is_masked {
            safe_softmax(scores, -1)
        } else {
            scores.softmax(-1)
        };
        ComposedAttention::from_weights(value, scores, weights)
    }

    /// Multiplies values by the weights that a softmax made of the scores.
    fn from_weights(
        value: Value<'g>,
        scores: Value<'g>,
        weights: Value<'g>,
    ) -> ComposedAttention<'g> {
        let dtype = value.dtype();
        ComposedAttention {
            output: weights.matmul(value.to_compute()).to(dtype),
            weights: weights.to(dtype),
            scores,
        }
    }

    /// Logarithm of the sum of the exponentials of each query's scores.
    fn log_sum_exp(&self) -> Value<'g> {
        let largest = self.scores.amax(&[-1], true);
        let sum = (self.scores - largest).exp().sum(&[-1], true);
        (sum.log() + largest).squeeze(&[-1])
    }
}

/// Scaled products of queries and keys. A `bool` mask keeps the scores where it is true and replaces the others by
/// minus infinity; a mask of numbers is added. The default scale is `1 / √width`, where `width` is the size of a query.
pub(super) fn masked_scores<'g>(
    query: Value<'g>,
    key: Value<'g>,
    scale: Option<f64>,
    masks: [Option<Value<'g>>; 2],
) -> Value<'g> {
    let keys = key.to_compute().transpose(-2, -1);
    let mut scores = scaled(query.to_compute(), scale, &query.size(-1)).matmul(keys);
    for mask in masks.into_iter().flatten() {
        scores = if mask.dtype() == DType::Bool {
            mask.where_(scores, f64::NEG_INFINITY)
        } else {
            scores + mask.to_compute()
        };
    }
    scores
}

/// Multiplies by the scale, by default `1 / √width`, where `width` is the size of a query.
pub(super) fn scaled<'g>(x: Value<'g>, scale: Option<f64>, width: &Dim) -> Value<'g> {
    match (scale, width.as_const()) {
        (Some(scale), _) => x * scale,
        (None, Some(width)) => x * (1.0 / (width as f64).sqrt()),
        (None, None) => x * x.builder().full(x.dtype(), vec![], width).rsqrt(),
    }
}

/// Causal mask `[queries, keys]`: query `i` attends to keys `0..=i`.
pub(super) fn causal<'g>(query: Value<'g>, key: Value<'g>) -> Value<'g> {
    let builder = query.builder();
    let rows = builder.iota(DType::I64, vec![query.size(-2), Dim::ONE], 0);
    let columns = builder.iota(DType::I64, vec![Dim::ONE, key.size(-2)], 1);
    columns.le(rows)
}

/// Repeats each head of keys or values for the query heads that share it (grouped-query attention). The heads are the
/// third to last axis.
fn repeated_heads<'g>(x: Value<'g>, query: Value<'g>) -> Result<Value<'g>> {
    if x.rank() < 3 || query.rank() < 3 {
        return Err(Error::operator(
            "enable_gqa requires an axis of heads (at least three dimensions)",
        ));
    }
    let heads = x.size(-3);
    let group_size = query.size(-3).floor_div(&heads);
    if group_size.is(1) {
        return Ok(x);
    }
    let (mut expanded_shape, mut merged_shape) = (x.unsqueeze(-3).shape(), x.shape());
    let axis = x.rank() - 3;
    if let (Some(repeat), Some(size)) =
        (expanded_shape.get_mut(axis + 1), merged_shape.get_mut(axis))
    {
        *size = &heads * &group_size;
        *repeat = group_size;
    }
    Ok(x.unsqueeze(-3).expand(expanded_shape).reshape(merged_shape))
}

/// A mask of PyTorch's fused encoder layers, inverted: true means "attend".
struct EncoderMask<'g>(Option<Value<'g>>);

impl<'g> EncoderMask<'g> {
    /// Reads the arguments `mask` and `mask_type`. A mask of type 0 is `[query, key]`, one of type 1 masks the keys of
    /// each batch item, and one of type 2 has all axes.
    fn from_args(a: &Args<'g>) -> Result<EncoderMask<'g>> {
        let Some(mask) = a.optional_tensor("mask") else {
            return Ok(EncoderMask(None));
        };
        let mask = match a.optional_int("mask_type") {
            Some(1) => mask.unsqueeze(1).unsqueeze(1),
            _ => mask,
        };
        Ok(EncoderMask(Some(mask.logical_not())))
    }
}

/// The projections of a multi-head attention over `[batch, time, channel]`.
struct MultiHeadProjections<'g> {
    head_count: i64,
    /// The weights of queries, keys and values, stacked along the first axis; `input_bias` likewise.
    input_weight: Value<'g>,
    input_bias: Value<'g>,
    output_weight: Value<'g>,
    output_bias: Value<'g>,
}

impl<'g> MultiHeadProjections<'g> {
    /// Reads the weights and biases of a call with this number of heads.
    fn from_args(a: &Args<'g>, head_count: i64) -> Result<MultiHeadProjections<'g>> {
        if head_count < 1 {
            return a.reject(format!("{head_count} heads"));
        }
        Ok(MultiHeadProjections {
            head_count,
            input_weight: a.tensor("qkv_weight"),
            input_bias: a.tensor("qkv_bias"),
            output_weight: a.tensor("proj_weight"),
            output_bias: a.tensor("proj_bias"),
        })
    }

    /// Returns the projected output and the attention weights of each head. A query whose keys are all masked gives
    /// not-a-number. `inputs` are query, key and value.
    fn attend(
        &self,
        inputs: [Value<'g>; 3],
        mask: EncoderMask<'g>,
    ) -> Result<(Value<'g>, Value<'g>)> {
        let embed_dim = self.input_weight.size(0).floor_div(&Dim::from(3));
        let head_count = Dim::from(self.head_count);
        let project = |index: i64, x: Value<'g>| -> Result<Value<'g>> {
            let start = &embed_dim * index;
            let weight = self
                .input_weight
                .narrow(0, start.clone(), embed_dim.clone());
            let bias = self.input_bias.narrow(0, start, embed_dim.clone());
            let shape = [
                x.size(0),
                x.size(1),
                head_count.clone(),
                embed_dim.floor_div(&head_count),
            ];
            Ok(linear(x, weight, Some(bias))?
                .reshape(shape)
                .transpose(1, 2))
        };
        let [query, key, value] = inputs;
        let (query, key, value) = (project(0, query)?, project(1, key)?, project(2, value)?);
        let scores = masked_scores(query, key, None, [mask.0, None]);
        let attention = ComposedAttention::from_weights(value, scores, scores.softmax(-1));
        let merged_heads = attention.output.transpose(1, 2).flatten(2, 3);
        let output = linear(merged_heads, self.output_weight, Some(self.output_bias))?;
        Ok((output, attention.weights))
    }
}

/// A transformer encoder layer: attention and a feed-forward network, each with a residual connection and a layer norm.
/// Follows `aten/src/ATen/native/transformers/transformer.cpp`.
fn encoder_layer<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, eps) = (a.tensor("src"), a.float("eps"));
    let norm_first = a.bool("norm_first");
    let norm = |x: Value<'g>, weight: &str, bias: &str| {
        let compute_x = x.to_compute();
        let centred = compute_x - compute_x.mean(&[-1], true);
        let factor = ((centred * centred).mean(&[-1], true) + eps).rsqrt();
        let scaled = centred * factor * a.tensor(weight).to_compute();
        (scaled + a.tensor(bias).to_compute()).to(x.dtype())
    };
    let norm_1 = |x| norm(x, "norm_weight_1", "norm_bias_1");
    let norm_2 = |x| norm(x, "norm_weight_2", "norm_bias_2");
    let attend = |x: Value<'g>| -> Result<Value<'g>> {
        let heads = MultiHeadProjections::from_args(a, a.int("num_heads"))?;
        Ok(heads.attend([x; 3], EncoderMask::from_args(a)?)?.0)
    };
    let feed_forward = |x: Value<'g>| -> Result<Value<'g>> {
        let hidden = linear(x, a.tensor("ffn_weight_1"), a.optional_tensor("ffn_bias_1"))?;
        let active = if a.bool("use_gelu") {
            hidden * 0.5 * (1.0 + (hidden * std::f64::consts::FRAC_1_SQRT_2).erf())
        } else {
            hidden.relu()
        };
        linear(
            active,
            a.tensor("ffn_weight_2"),
            a.optional_tensor("ffn_bias_2"),
        )
    };
    if norm_first {
        let x = x + attend(norm_1(x))?;
        Ok(x + feed_forward(norm_2(x))?)
    } else {
        let x = norm_1(x + attend(x)?);
        Ok(norm_2(x + feed_forward(x)?))
    }
}
