//! Element types that PyTorch refuses although the bodies of the operators would accept them: float indices, masks of
//! numbers, activations of integers.
//!
//! `tests/accepted_dtypes.rs` holds the rules against PyTorch.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Argument, Builder};

use super::Operator;
use super::schema::Schema;

/// The element types that a tensor parameter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptedDTypes {
    /// Floating-point numbers.
    Float,
    /// Floating-point numbers, and bytes of pictures.
    FloatOrByte,
    /// Numbers.
    Number,
    /// Integers.
    Index,
    /// Integers, or bool for a mask.
    IndexOrMask,
    /// Bool. Bytes are PyTorch's older masks.
    Mask,
    /// The element type of the parameter `self`.
    SameAsSelf,
}

use AcceptedDTypes::{Float, FloatOrByte, Index, IndexOrMask, Mask, Number, SameAsSelf};

/// Types by parameter and operators; those of a name's last `*` have that beginning.
const RULES: &[(AcceptedDTypes, &str, &str)] = &[
    (
        Float,
        "self",
        "_log_softmax log_softmax _softmax softmax _safe_softmax _masked_softmax special_softmax special_log_softmax \
         logcumsumexp celu elu gelu glu hardshrink hardsigmoid hardswish leaky_relu log_sigmoid log_sigmoid_forward mish \
         prelu _prelu_kernel rrelu rrelu_with_noise selu silu softplus softshrink frac lerp pdist \
         _pdist_forward adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d max_pool1d alpha_dropout \
         binary_cross_entropy binary_cross_entropy_with_logits cross_entropy_loss huber_loss kl_div mse_loss \
         multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward nll_loss nll_loss_forward nll_loss_nd \
         smooth_l1_loss soft_margin_loss cholesky_solve triangular_solve linalg_vector_norm",
    ),
    (
        Float,
        "input",
        "batch_norm native_batch_norm _native_batch_norm_legit* _batch_norm_no_update _batch_norm_with_update group_norm \
         native_group_norm layer_norm native_layer_norm rms_norm _fused_rms_norm grid_sampler* native_dropout",
    ),
    (FloatOrByte, "self", "upsample_* _upsample_*"),
    (FloatOrByte, "input", "upsample_* _upsample_*"),
    (
        Number,
        "self",
        "argmax argmin ceil fix floor hardtanh kthvalue max_pool1d_with_indices max_pool2d \
         max_pool2d_with_indices max_pool3d max_pool3d_with_indices median nanmedian reflection_pad* relu relu6 \
         replication_pad* round threshold topk trace trunc",
    ),
    (
        Index,
        "index",
        "gather index_add index_copy index_fill index_reduce index_select put scatter scatter_add scatter_reduce take",
    ),
    (
        Index,
        "indices",
        "embedding embedding_renorm take_along_dim max_unpool*",
    ),
    (IndexOrMask, "offsets", "embedding_bag _embedding_bag*"),
    (
        Index,
        "target",
        "multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward nll_loss nll_loss_forward nll_loss_nd",
    ),
    (Index, "start", "narrow"),
    (
        IndexOrMask,
        "indices",
        "index index_put _index_put_impl _unsafe_index _unsafe_index_put embedding_bag _embedding_bag*",
    ),
    (Mask, "condition", "where"),
    (
        Mask,
        "mask",
        "masked_fill masked_scatter masked_select _masked_softmax",
    ),
    (SameAsSelf, "src", "scatter scatter_add scatter_reduce"),
    (
        SameAsSelf,
        "source",
        "index_add index_copy index_reduce masked_scatter put",
    ),
    (SameAsSelf, "values", "index_put _index_put_impl"),
    (SameAsSelf, "end", "lerp"),
];

/// The rules of an operator's parameters, with their positions.
pub fn rules_of(schema: &Schema) -> Vec<(usize, AcceptedDTypes)> {
    let is_meant = |name: &str| match name.strip_suffix('*') {
        Some(beginning) => schema.name.starts_with(beginning),
        None => schema.name == name,
    };
    let rule = |(accepted, parameter, names): &(AcceptedDTypes, &str, &str)| {
        let position = schema.position(parameter)?;
        let is_named = names.split_whitespace().any(is_meant);
        is_named.then_some((position, *accepted))
    };
    RULES.iter().filter_map(rule).collect()
}

impl Operator {
    /// Requires the tensor arguments to have element types that PyTorch accepts.
    pub(super) fn check_dtypes(&self, builder: &Builder, arguments: &[Argument]) -> Result<()> {
        let dtypes = |position: usize| {
            let argument = arguments.get(position);
            let ids = argument.map(Argument::values).unwrap_or_default();
            ids.into_iter().map(|id| builder.ty(id).dtype)
        };
        let of_self = self
            .schema
            .position("self")
            .and_then(|position| dtypes(position).next());
        let dtype = self
            .schema
            .position("dtype")
            .and_then(|position| arguments.get(position));
        let is_converted = dtype.is_some_and(|dtype| *dtype != Argument::None);
        let rules = self.accepted_dtypes.iter();
        for (position, accepted) in
            rules.filter(|(_, accepted)| *accepted != Float || !is_converted)
        {
            let refused = dtypes(*position).find(|dtype| !accepted.contains(*dtype, of_self));
            if let (Some(dtype), Some(parameter)) = (refused, self.schema.parameters.get(*position))
            {
                let wanted = accepted.describe(of_self);
                let (operator, name) = (&self.schema.name, &parameter.name);
                return Err(Error::operator(format!(
                    "{operator} wants {wanted} as `{name}`, got {dtype}"
                )));
            }
        }
        Ok(())
    }
}

impl AcceptedDTypes {
    fn contains(self, dtype: DType, of_self: Option<DType>) -> bool {
        match self {
            Float => dtype.is_float(),
            FloatOrByte => dtype.is_float() || dtype == DType::U8,
            Number => dtype != DType::Bool,
            Index => dtype.is_integer(),
            IndexOrMask => !dtype.is_float(),
            Mask => matches!(dtype, DType::Bool | DType::U8),
            SameAsSelf => of_self.is_none_or(|own| own == dtype),
        }
    }

    fn describe(self, of_self: Option<DType>) -> String {
        match self {
            Float => "floating-point numbers".into(),
            FloatOrByte => "floating-point numbers or bytes".into(),
            Number => "numbers".into(),
            Index => "integers".into(),
            IndexOrMask => "integers or bool".into(),
            Mask => "bool".into(),
            SameAsSelf => {
                of_self.map_or_else(|| "the type of `self`".into(), |own| own.to_string())
            }
        }
    }
}
