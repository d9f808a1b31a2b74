//! Multi-head attention.

use std::borrow::Borrow;

use super::attention_input::Attention;
use super::checks::ArgumentCheck;
use super::{Dropout, Linear, init};
use crate::error::Error;
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Forward, Parameter, Size, TracedTensor, failed, ops, unpack};

/// `torch.nn.MultiheadAttention`. Returns the attention output and, if wanted, the weights.
///
/// Records the operators that PyTorch records with gradients enabled, not its fused operator.
#[derive(Clone, Debug, Module)]
pub struct MultiheadAttention {
    /// The three projections stacked along the rows, if queries, keys and values have equal features.
    in_proj_weight: Option<Parameter>,
    q_proj_weight: Option<Parameter>,
    k_proj_weight: Option<Parameter>,
    v_proj_weight: Option<Parameter>,
    in_proj_bias: Option<Parameter>,
    out_proj: Linear,
    /// A further key of every sequence, and its value.
    bias_k: Option<Parameter>,
    bias_v: Option<Parameter>,
    dropout: Dropout,
    features: i64,
    heads: i64,
    /// Numbers of features of keys and values.
    key_value_features: [usize; 2],
    add_zero_attn: bool,
    batch_first: bool,
    check: ArgumentCheck,
}

impl MultiheadAttention {
    /// A module with `features` features, split among the heads.
    #[track_caller]
    pub fn new(features: usize, heads: usize) -> MultiheadAttention {
        let divides = features > 0 && heads > 0 && features.is_multiple_of(heads);
        let check = ArgumentCheck::of(divides, || {
            format!("embed_dim ({features}) must be divisible by num_heads ({heads})")
        });
        MultiheadAttention {
            in_proj_weight: Some(projection(3 * features, features)),
            q_proj_weight: None,
            k_proj_weight: None,
            v_proj_weight: None,
            in_proj_bias: Some(Parameter::new([3 * features], init::zeros())),
            out_proj: Linear {
                bias: Some(Parameter::new([features], init::zeros())),
                ..Linear::new(features, features)
            },
            bias_k: None,
            bias_v: None,
            dropout: Dropout::new(0.0),
            features: i64::try_from(features).unwrap_or(i64::MAX),
            heads: i64::try_from(heads.max(1)).unwrap_or(i64::MAX),
            key_value_features: [features; 2],
            add_zero_attn: false,
            batch_first: false,
            check,
        }
    }

    /// Number of features of keys, by default that of the queries. Draws new weights.
    #[must_use]
    pub fn kdim(mut self, features: usize) -> MultiheadAttention {
        self.key_value_features[0] = features;
        self.with_new_projections()
    }

    /// Number of features of values, by default that of the queries. Draws new weights.
    #[must_use]
    pub fn vdim(mut self, features: usize) -> MultiheadAttention {
        self.key_value_features[1] = features;
        self.with_new_projections()
    }

    /// Draws projections for the current numbers of features.
    fn with_new_projections(mut self) -> MultiheadAttention {
        let features = usize::try_from(self.features).unwrap_or(usize::MAX);
        let [keys, values] = self.key_value_features;
        let is_packed = keys == features && values == features;
        let separate = |columns| (!is_packed).then(|| projection(features, columns));
        self.in_proj_weight = is_packed.then(|| projection(3 * features, features));
        self.q_proj_weight = separate(features);
        self.k_proj_weight = separate(keys);
        self.v_proj_weight = separate(values);
        self
    }

    /// Whether every sequence has a further key and value, which are parameters; false by default.
    #[must_use]
    pub fn add_bias_kv(mut self, add: bool) -> MultiheadAttention {
        let features = usize::try_from(self.features).unwrap_or(usize::MAX);
        let [key, value] =
            [(); 2].map(|()| add.then(|| Parameter::new([1, 1, features], init::xavier_normal())));
        (self.bias_k, self.bias_v) = (key, value);
        self
    }

    /// Whether every sequence has a further key and value of zeros; false by default.
    #[must_use]
    pub fn add_zero_attn(mut self, add: bool) -> MultiheadAttention {
        self.add_zero_attn = add;
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
    #[track_caller]
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
        let biases = self.in_proj_bias.as_deref();
        let biases = biases.map(|bias| unpack::<3>(bias.chunk(3)));
        let biases = transpose_option(biases.as_ref());
        let inputs = [&input.query, &input.key, &input.value];
        std::array::from_fn(|index| linear_projection(inputs[index], weights[index], biases[index]))
    }

    /// Projects by one packed matrix. Inputs that are one tensor are projected by one product.
    fn project_packed(&self, weight: &TracedTensor, input: &Attention) -> [TracedTensor; 3] {
        let bias = self.in_proj_bias.as_deref();
        let (query, key, value) = (&input.query, &input.key, &input.value);
        if query.is(key) && key.is(value) {
            return split_packed::<3>(&linear_projection(query, weight, bias), self.features);
        }
        if key.is(value) {
            let sizes = [self.features, 2 * self.features];
            let split = |x: &TracedTensor| unpack::<2>(x.split_with_sizes(sizes));
            let ([query_weight, key_value_weight], biases) = (split(weight), bias.map(split));
            let [query_bias, key_value_bias] = transpose_option(biases.as_ref());
            let query = linear_projection(query, &query_weight, query_bias);
            let key_value = linear_projection(key, &key_value_weight, key_value_bias);
            let [key, value] = split_packed::<2>(&key_value, self.features);
            return [query, key, value];
        }
        let [query, key, value] = unpack::<3>(weight.chunk(3));
        self.project_separately([&query, &key, &value], input)
    }

    /// Splits the features into heads: `[batch · heads, length, features of a head]`.
    fn heads(&self, x: &TracedTensor, batch: &Size) -> TracedTensor {
        let sizes = (x.dim(0), batch * self.heads, self.head_features());
        x.view(sizes).transpose(0, 1)
    }

    /// Adds the padding mask to the attention mask, for each head and batch.
    fn with_padding(
        &self,
        mask: Option<TracedTensor>,
        padding: Option<&TracedTensor>,
        [batch, _, keys]: &[Size; 3],
    ) -> Option<TracedTensor> {
        let Some(padding) = padding else {
            return mask;
        };
        let padding = padding.view((batch, 1, 1, keys));
        let padding = padding.expand([-1, self.heads, -1, -1]);
        let padding = padding.reshape((batch * self.heads, 1, keys));
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
        [batch, queries, keys]: &[Size; 3],
        is_causal: bool,
    ) -> TracedTensor {
        let is_single = |mask: &TracedTensor| {
            mask.ty()
                .is_ok_and(|ty| ty.rank() == 3 && ty.shape[0].is(1))
        };
        let mask = mask.map(|mask| match is_single(&mask) {
            true => mask.unsqueeze(0),
            false => mask.view((batch, self.heads, -1, keys)),
        });
        let [q, k, v] = heads;
        let q = q.view((batch, self.heads, queries, self.head_features()));
        let [k, v] = [k, v].map(|x| x.view((batch, self.heads, keys, self.head_features())));
        let p = self.dropout.probability();
        let values = q.scaled_dot_product_attention_with(
            &k,
            &v,
            kw!(attn_mask = mask, dropout_p = p, is_causal = is_causal),
        );
        values.permute([2, 0, 1, 3])
    }

    /// Merges the heads and applies the output projection.
    fn output_projection(&self, x: &TracedTensor, batch: &Size, queries: &Size) -> TracedTensor {
        let flat = x.reshape((batch * queries, self.features));
        let flat = linear_projection(&flat, &self.out_proj.weight, self.out_proj.bias.as_deref());
        flat.view((queries, batch, self.features))
    }

    /// Appends the parameters of a further key and value.
    fn append_biases(&self, projected: &mut Projected, batch: &Size) {
        let (Some(key), Some(value)) = (&self.bias_k, &self.bias_v) else {
            return;
        };
        let repeats = || (1, batch, 1);
        projected.key = ops::cat(&[&projected.key, &key.repeat(repeats())]);
        projected.value = ops::cat(&[&projected.value, &value.repeat(repeats())]);
        projected.pad_masks();
    }

    /// Appends zeros as a further key and value of each head.
    fn append_zeros(&self, projected: &mut Projected, batch: &Size) {
        if !self.add_zero_attn {
            return;
        }
        for x in [&mut projected.key, &mut projected.value] {
            let sizes = (batch * self.heads, 1, self.head_features());
            let zeros = ops::zeros_with(sizes, kw!(dtype = x.dtype()));
            *x = ops::cat_with(&[&*x, &zeros], kw!(dim = 1));
        }
        projected.pad_masks();
    }

    /// Attention over `[length, batch, features]` with additive masks. The fused operator, which returns no weights,
    /// applies the causal mask itself unless there is a padding mask.
    fn attend(&self, input: &Attention) -> (TracedTensor, Option<TracedTensor>) {
        let (batch, queries) = (input.query.dim(1), input.query.dim(0));
        let is_mask_implied =
            input.is_causal && input.key_padding_mask.is_none() && !input.need_weights;
        let [query, key, value] = self.project(input);
        let mask = input.attn_mask.as_ref().filter(|_| !is_mask_implied);
        let mut projected = Projected {
            key,
            value,
            mask: mask.map(with_batch_axis),
            padding: input.key_padding_mask.clone(),
        };
        self.append_biases(&mut projected, &batch);
        let [query, key, value] =
            [query, projected.key, projected.value].map(|x| self.heads(&x, &batch));
        (projected.key, projected.value) = (key, value);
        self.append_zeros(&mut projected, &batch);
        let keys = projected.key.dim(1);
        let Projected {
            key,
            value,
            mask,
            padding,
        } = projected;
        let (heads, sizes) = ([query, key, value], [batch, queries, keys]);
        let mask = self.with_padding(mask, padding.as_ref(), &sizes);
        match input.need_weights {
            true => self.attend_by_steps(&heads, mask.as_ref(), &sizes, input.average_attn_weights),
            false => {
                let x = self.fused_attention(heads, mask, &sizes, is_mask_implied);
                let [batch, queries, _] = &sizes;
                (self.output_projection(&x, batch, queries), None)
            }
        }
    }

    /// Attention by an operator for each step, which gives the weights too.
    fn attend_by_steps(
        &self,
        heads: &[TracedTensor; 3],
        mask: Option<&TracedTensor>,
        [batch, queries, keys]: &[Size; 3],
        average: bool,
    ) -> (TracedTensor, Option<TracedTensor>) {
        let (x, weights) = self.weighted_values(heads, mask);
        let x = self.output_projection(&x.transpose(0, 1), batch, queries);
        let sizes = vec![
            batch.clone(),
            self.heads.into(),
            queries.clone(),
            keys.clone(),
        ];
        let weights = weights.view(sizes);
        let weights = match average {
            true => weights.mean_dim([1]),
            false => weights,
        };
        (x, Some(weights))
    }
}

/// Projected keys and values, and the masks of the keys.
struct Projected {
    key: TracedTensor,
    value: TracedTensor,
    mask: Option<TracedTensor>,
    padding: Option<TracedTensor>,
}

impl Projected {
    /// Extends the masks by a further key, which no query ignores.
    fn pad_masks(&mut self) {
        for mask in [&mut self.mask, &mut self.padding] {
            *mask = mask.as_ref().map(|mask| mask.pad([0, 1]));
        }
    }
}

/// A projection weight, drawn as PyTorch does (Glorot and Bengio).
fn projection(rows: usize, columns: usize) -> Parameter {
    Parameter::new([rows, columns], init::xavier_uniform())
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

impl Forward<Attention> for MultiheadAttention {
    type Output = (TracedTensor, Option<TracedTensor>);

    fn forward(&self, input: Attention) -> Self::Output {
        let [features, heads] =
            [self.features, self.heads].map(|size| size.unsigned_abs() as usize);
        let refused = self.check.failed();
        if let Some(refused) = refused.or_else(|| input.refused(features, heads)) {
            return (refused, None);
        }
        let mut input = input.with_additive_masks();
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
