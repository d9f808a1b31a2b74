//! `torch.autocast` on the CPU: operators cast their operands by the lists of `aten/src/ATen/autocast_mode.h`.

use super::Translator;
use crate::error::{Error, Result};
use crate::trace::export::codes;
use crate::trace::export::schema::{SerializedArgument, SerializedNode, Symbolic};
use crate::trace::script::ast::{AstExpr, AstExprKind};

/// Code of bf16, the default on the CPU.
const BFLOAT16: i64 = 13;

/// Operators that compute in the lower precision.
const REDUCED: &[&str] = &[
    "conv1d",
    "conv2d",
    "conv3d",
    "bmm",
    "mm",
    "linalg_vecdot",
    "baddbmm",
    "addmm",
    "addbmm",
    "linear",
    "_addmm_activation",
    "matmul",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "prelu",
    "scaled_dot_product_attention",
    "_native_multi_head_attention",
];

/// Operators that compute in single precision.
const FULL: &[&str] = &[
    "avg_pool3d",
    "binary_cross_entropy",
    "grid_sampler",
    "polar",
    "prod",
    "quantile",
    "nanquantile",
    "stft",
    "cdist",
    "trace",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "inverse",
    "lu_solve",
    "orgqr",
    "ormqr",
    "pinverse",
    "max_pool3d",
    "max_unpool2d",
    "max_unpool3d",
    "adaptive_avg_pool3d",
    "reflection_pad1d",
    "reflection_pad2d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "mse_loss",
    "cosine_embedding_loss",
    "nll_loss",
    "nll_loss2d",
    "hinge_embedding_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "cross_entropy_loss",
    "l1_loss",
    "huber_loss",
    "margin_ranking_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "multi_margin_loss",
    "ctc_loss",
    "kl_div",
    "multilabel_margin_loss",
    "binary_cross_entropy_with_logits",
    "fft_fft",
    "fft_ifft",
    "fft_rfft",
    "fft_irfft",
    "linalg_cond",
    "linalg_matrix_rank",
    "linalg_solve",
    "linalg_cholesky",
    "linalg_svdvals",
    "linalg_eigvals",
    "linalg_eigvalsh",
    "linalg_inv",
    "linalg_householder_product",
    "linalg_tensorinv",
    "linalg_tensorsolve",
    "fake_quantize_per_tensor_affine",
    "geqrf",
    "_lu_with_info",
    "qr",
    "svd",
    "triangular_solve",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "adaptive_max_pool3d",
    "multilabel_margin_loss_forward",
    "linalg_qr",
    "linalg_cholesky_ex",
    "linalg_svd",
    "linalg_eig",
    "linalg_eigh",
    "linalg_lstsq",
    "linalg_inv_ex",
];

/// Casts that an operator does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AutocastTarget {
    /// To this element type, by its TorchScript code.
    Reduced(i64),
    /// To single precision.
    Full,
}

impl Translator {
    /// Reads the arguments of `wrap_with_autocast(device_type, dtype, enabled, cache_enabled, graph, operands)`. Returns the
    /// element type of the region, by its TorchScript code; none if nothing is cast.
    pub(super) fn autocast_region(&self, node: &SerializedNode) -> Result<Option<i64>> {
        let argument = |position: usize| node.inputs.get(position).map(|argument| &argument.arg);
        if !matches!(
            argument(2),
            Some(SerializedArgument::Bool(Symbolic::Known(true)))
        ) {
            return Ok(None);
        }
        match argument(0) {
            Some(SerializedArgument::Str(device)) if device == "cpu" => {}
            _ => {
                let help =
                    "save program.run_decompositions(), in which the casts are part of the graph";
                let message =
                    "torch.autocast for another device than the CPU in an exported program";
                return Err(Error::unsupported(message).help(help));
            }
        }
        let code = match argument(1) {
            Some(SerializedArgument::ScalarType(code)) => *code,
            _ => BFLOAT16,
        };
        Ok(Some(codes::torchscript_dtype(code)))
    }

    /// The cast that an operator does to its operands in the region around it.
    pub(super) fn cast_of(&self, operator: &str) -> Option<AutocastTarget> {
        let dtype = self.autocast?;
        let name = operator.strip_prefix("aten::")?;
        if REDUCED.contains(&name) {
            return Some(AutocastTarget::Reduced(dtype));
        }
        FULL.contains(&name).then_some(AutocastTarget::Full)
    }

    /// Casts the tensors of an argument.
    pub(super) fn cast_argument(
        &self,
        cast: AutocastTarget,
        argument: &SerializedArgument,
        value: AstExpr,
    ) -> AstExpr {
        match (argument, value.kind) {
            (SerializedArgument::Tensor(_), kind) => {
                let tensor = AstExpr {
                    offset: value.offset,
                    kind,
                };
                self.cast(cast, tensor)
            }
            (SerializedArgument::Tensors(_), AstExprKind::List(items)) => {
                let items = items.into_iter().map(|item| self.cast(cast, item));
                self.expr(AstExprKind::List(items.collect()))
            }
            (_, kind) => AstExpr {
                offset: value.offset,
                kind,
            },
        }
    }

    fn cast(&self, cast: AutocastTarget, tensor: AstExpr) -> AstExpr {
        let no = self.expr(AstExprKind::Bool(false));
        let yes = self.expr(AstExprKind::Bool(true));
        match cast {
            AutocastTarget::Reduced(dtype) => {
                let dtypes = [self.int(dtype), self.int(dtype)];
                let [cuda, cpu] = dtypes;
                self.call(
                    "aten::_autocast_to_reduced_precision",
                    [tensor, no, yes, cuda, cpu],
                )
            }
            AutocastTarget::Full => {
                self.call("aten::_autocast_to_full_precision", [tensor, no, yes])
            }
        }
    }
}
