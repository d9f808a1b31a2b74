//! Attention with several heads.

use std::borrow::Borrow;

use super::{Dropout, Linear, init, many, op};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Error;
use crate::trace::Module;
use crate::trace::native::{Arg, Forward, Tensor, call, failed};

/// What a [`MultiheadAttention`] attends to, and how.
#[derive(Clone)]
pub struct Attention {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Option<Tensor>,
    attn_mask: Option<Tensor>,
    need_weights: bool,
    average_attn_weights: bool,
    is_causal: bool,
}

impl Attention {
    /// Queries, keys and values, `[length, batch, features]` or, if the module is so, batch first. The batch axis may be missing.
    pub fn new(query: &Tensor, key: &Tensor, value: &Tensor) -> Attention {
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

    /// A sequence that attends to itself.
    pub fn within(x: &Tensor) -> Attention {
        Attention::new(x, x, x)
    }

    /// Which keys are ignored, `[batch, keys]`, or what is added for each.
    #[must_use]
    pub fn key_padding_mask(mut self, mask: Option<&Tensor>) -> Attention {
        self.key_padding_mask = mask.cloned();
        self
    }

    /// Which keys each query ignores, `[queries, keys]` or one for each head of each batch, or what is added for each.
    #[must_use]
    pub fn attn_mask(mut self, mask: Option<&Tensor>) -> Attention {
        self.attn_mask = mask.cloned();
        self
    }

    /// Whether the weights are a result too; they are by default, which is slower.
    #[must_use]
    pub fn need_weights(mut self, need: bool) -> Attention {
        self.need_weights = need;
        self
    }

    /// Whether the weights are the mean over the heads; they are by default.
    #[must_use]
    pub fn average_attn_weights(mut self, average: bool) -> Attention {
        self.average_attn_weights = average;
        self
    }

    /// Says that `attn_mask` is the causal mask.
    #[must_use]
    pub fn is_causal(mut self, causal: bool) -> Attention {
        self.is_causal = causal;
        self
    }

    fn map(mut self, change: impl Fn(&Tensor) -> Tensor) -> Attention {
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

/// `torch.nn.MultiheadAttention` for queries, keys and values of equal features. The result is a pair of the values attended to
/// and, if they are wanted, the weights.
///
/// It records what PyTorch records while gradients are possible, which is not its fused operator.
#[derive(Module)]
pub struct MultiheadAttention {
    in_proj_weight: Tensor,
    in_proj_bias: Option<Tensor>,
    out_proj: Linear,
    dropout: Dropout,
    features: i64,
    heads: i64,
    batch_first: bool,
}

impl MultiheadAttention {
    /// With so many features, which are divided among the heads.
    pub fn new(features: usize, heads: usize) -> MultiheadAttention {
        let bound = (6.0 / (4 * features) as f64).sqrt();
        MultiheadAttention {
            in_proj_weight: init::uniform(&[3 * features, features], bound),
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

    /// Whether the projections have biases; they do by default.
    #[must_use]
    pub fn bias(mut self, bias: bool) -> MultiheadAttention {
        self.in_proj_bias = self.in_proj_bias.filter(|_| bias);
        self.out_proj = self.out_proj.bias(bias);
        self
    }

    /// Whether the first axis is that of the batch; it is that of the sequence by default.
    #[must_use]
    pub fn batch_first(mut self, batch_first: bool) -> MultiheadAttention {
        self.batch_first = batch_first;
        self
    }

    /// Dropout of weights in training; none by default.
    #[must_use]
    pub fn dropout(mut self, p: f64) -> MultiheadAttention {
        self.dropout = Dropout::new(p);
        self
    }

    fn head_features(&self) -> i64 {
        self.features / self.heads
    }

    /// Queries, keys and values by one matrix; what is the same tensor is projected together.
    fn project(&self, input: &Attention) -> [Tensor; 3] {
        let (weight, bias) = (&self.in_proj_weight, self.in_proj_bias.as_ref());
        let (query, key, value) = (&input.query, &input.key, &input.value);
        if query.is(key) && key.is(value) {
            return unpacked::<3>(&op!(linear(query, weight, bias)), self.features);
        }
        if key.is(value) {
            let sizes = [self.features, 2 * self.features];
            let split = |x: &Tensor| {
                many::<2>(
                    "split_with_sizes",
                    vec![x.into(), sizes.into(), 0i64.into()],
                )
            };
            let (weights, biases) = (split(weight), bias.map(split));
            let bias = |index: usize| biases.as_ref().map(|biases| &biases[index]);
            let query = op!(linear(query, &weights[0], bias(0)));
            let both = op!(linear(key, &weights[1], bias(1)));
            let [key, value] = unpacked::<2>(&both, self.features);
            return [query, key, value];
        }
        let chunk = |x: &Tensor| many::<3>("chunk", vec![x.into(), 3i64.into(), 0i64.into()]);
        let (weights, biases) = (chunk(weight), bias.map(chunk));
        let bias = |index: usize| biases.as_ref().map(|biases| &biases[index]);
        let inputs = [query, key, value];
        std::array::from_fn(|index| op!(linear(inputs[index], &weights[index], bias(index))))
    }
}

/// Several projections that lie side by side along the last axis.
fn unpacked<const N: usize>(packed: &Tensor, features: i64) -> [Tensor; N] {
    let sizes = [N as i64, features];
    let packed = op!(unsqueeze(op!(unflatten(packed, -1i64, sizes)), 0i64));
    let packed = op!(squeeze(op!(transpose(packed, 0i64, -2i64)), -2i64));
    std::array::from_fn(|index| op!(select(&packed, 0i64, index)))
}

impl MultiheadAttention {
    /// Splits heads off: `[batch · heads, length, features of a head]`.
    fn heads(&self, x: &Tensor, batch: &Dim) -> Tensor {
        let sizes = vec![
            x.dim(0),
            batch * &Dim::from(self.heads),
            Dim::from(self.head_features()),
        ];
        op!(transpose(op!(view(x, sizes)), 0i64, 1i64))
    }

    /// The mask of each head of each batch, both masks together.
    fn mask(&self, input: &Attention, batch: &Dim, keys: &Dim) -> Option<Tensor> {
        let mask = input.attn_mask.as_ref().map(|mask| match mask.rank() {
            2 => op!(unsqueeze(mask, 0i64)),
            _ => mask.clone(),
        });
        let Some(padding) = &input.key_padding_mask else {
            return mask;
        };
        let one = Dim::from(1);
        let all = batch * &Dim::from(self.heads);
        let padding = op!(view(
            padding,
            vec![batch.clone(), one.clone(), one.clone(), keys.clone()]
        ));
        let padding = op!(expand(padding, [-1i64, self.heads, -1, -1]));
        let padding = op!(reshape(padding, vec![all, one, keys.clone()]));
        Some(match mask {
            Some(mask) => mask + padding,
            None => padding,
        })
    }

    /// The values by the weights, `[batch · heads, queries, features of a head]`, and the weights.
    fn weighted(&self, [q, k, v]: &[Tensor; 3], mask: Option<&Tensor>) -> (Tensor, Tensor) {
        let scaled = q * (1.0 / self.head_features() as f64).sqrt();
        let keys = op!(transpose(k, -2i64, -1i64));
        let scores = match mask {
            Some(mask) => op!(baddbmm(mask, scaled, keys)),
            None => op!(bmm(scaled, keys)),
        };
        let weights = self.dropout.forward(op!(softmax(scores, -1i64)));
        (op!(bmm(&weights, v)), weights)
    }

    /// The values by the weights, `[queries, batch, heads, features of a head]`, by one operator.
    fn fused(
        &self,
        heads: [Tensor; 3],
        mask: Option<Tensor>,
        sizes: &[Dim; 3],
        causal: bool,
    ) -> Tensor {
        let [batch, queries, keys] = sizes;
        let mask = mask.map(|mask| match mask.dim(0).as_const() {
            Some(1) if mask.rank() == 3 => op!(unsqueeze(mask, 0i64)),
            _ => op!(view(
                mask,
                vec![
                    batch.clone(),
                    self.heads.into(),
                    Dim::from(-1),
                    keys.clone()
                ]
            )),
        });
        let lengths = [queries, keys, keys];
        let [q, k, v]: [Tensor; 3] = std::array::from_fn(|index| {
            let sizes = [
                batch,
                &self.heads.into(),
                lengths[index],
                &self.head_features().into(),
            ];
            op!(view(&heads[index], sizes.map(Clone::clone)))
        });
        let p = self.dropout.probability();
        op!(permute(
            op!(scaled_dot_product_attention(q, k, v, mask, p, causal)),
            [2i64, 0, 1, 3]
        ))
    }

    fn out(&self, x: Tensor, batch: &Dim, queries: &Dim) -> Tensor {
        let features = Dim::from(self.features);
        let flat = op!(reshape(x, vec![batch * queries, features.clone()]));
        let flat = op!(linear(
            flat,
            &self.out_proj.weight,
            self.out_proj.bias.as_ref()
        ));
        op!(view(flat, vec![queries.clone(), batch.clone(), features]))
    }

    /// Attention over `[length, batch, features]` with masks of numbers.
    fn attend(&self, input: &Attention) -> (Tensor, Option<Tensor>) {
        let (batch, queries) = (input.query.dim(1), input.query.dim(0));
        let keys = input.key.dim(0);
        let implied = input.is_causal && input.key_padding_mask.is_none() && !input.need_weights;
        let heads = self.project(input).map(|x| self.heads(&x, &batch));
        let mask = match implied {
            true => None,
            false => self.mask(input, &batch, &keys),
        };
        if !input.need_weights {
            let x = self.fused(
                heads,
                mask,
                &[batch.clone(), queries.clone(), keys],
                implied,
            );
            return (self.out(x, &batch, &queries), None);
        }
        let (x, weights) = self.weighted(&heads, mask.as_ref());
        let x = self.out(op!(transpose(x, 0i64, 1i64)), &batch, &queries);
        let sizes = vec![batch, self.heads.into(), queries, keys];
        let weights = op!(view(weights, sizes));
        let weights = match input.average_attn_weights {
            true => op!(mean(weights, [1i64])),
            false => weights,
        };
        (x, Some(weights))
    }
}

/// A mask as what is added to the scores: nothing, or minus infinity where a flag is set.
pub(super) fn added(mask: Option<&Tensor>, dtype: DType) -> Option<Tensor> {
    let mask = mask?;
    if mask.dtype() != DType::Bool {
        return Some(mask.clone());
    }
    let dtype = vec![("dtype", Arg::DType(dtype)), ("pin_memory", false.into())];
    let zeros = call("zeros_like", vec![mask.into()], dtype).swap_remove(0);
    Some(op!(masked_fill(zeros, mask, f64::NEG_INFINITY)))
}

impl Forward<Attention> for MultiheadAttention {
    type Output = (Tensor, Option<Tensor>);

    fn forward(&self, mut input: Attention) -> Self::Output {
        if input.is_causal && input.attn_mask.is_none() {
            let error = Error::operator("is_causal says what attn_mask is, and there is none");
            return (failed(error.help("give the causal mask too")), None);
        }
        let dtype = input.query.dtype();
        input.key_padding_mask = added(input.key_padding_mask.as_ref(), dtype);
        input.attn_mask = added(input.attn_mask.as_ref(), dtype);
        if input.query.rank() == 2 {
            let padding = input
                .key_padding_mask
                .map(|mask| op!(unsqueeze(mask, 0i64)));
            input.key_padding_mask = padding;
            let (x, weights) = self.attend(&input.map(|x| op!(unsqueeze(x, 1i64))));
            return (
                op!(squeeze(x, 1i64)),
                weights.map(|weights| op!(squeeze(weights, 0i64))),
            );
        }
        if !self.batch_first {
            return self.attend(&input);
        }
        let (x, weights) = self.attend(&input.map(|x| op!(transpose(x, 1i64, 0i64))));
        (op!(transpose(x, 1i64, 0i64)), weights)
    }
}

/// Queries, keys and values, without masks, with weights.
impl<Q: Borrow<Tensor>, K: Borrow<Tensor>, V: Borrow<Tensor>> Forward<(Q, K, V)>
    for MultiheadAttention
{
    type Output = (Tensor, Option<Tensor>);

    fn forward(&self, (query, key, value): (Q, K, V)) -> Self::Output {
        self.forward(Attention::new(query.borrow(), key.borrow(), value.borrow()))
    }
}
