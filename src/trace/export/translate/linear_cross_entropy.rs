//! `torch.nn.functional.linear_cross_entropy`, of which PyTorch exports operators of its own that compute it in chunks.

use super::{Scope, Translator};
use crate::error::{Error, Result};
use crate::trace::export::schema::{SerializedArgument, SerializedNode, Symbolic};
use crate::trace::script::ast::{AstExpr, AstExprKind};

impl Translator {
    /// The call of such an operator as that of `linear` and `cross_entropy_loss`; none for other operators.
    pub(super) fn linear_cross_entropy(
        &self,
        name: &str,
        node: &SerializedNode,
        scope: &Scope,
    ) -> Result<Option<AstExpr>> {
        let argument = |name: &str| {
            let mut inputs = node.inputs.iter();
            let found = inputs.find(|argument| argument.name == name);
            found.map(|argument| &argument.arg)
        };
        let value = |name: &str| match argument(name) {
            Some(given) => self.argument(given, scope),
            None => Err(Error::format(format!("linear_cross_entropy has no {name}"))),
        };
        let reduction = match (name, argument("reduction")) {
            ("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction", _) => 0,
            (CHUNKED, Some(SerializedArgument::Str(reduction))) if reduction == "mean" => 1,
            (CHUNKED, _) => 2,
            _ => return Ok(None),
        };
        let computes_gradient = node.inputs.iter().any(|argument| {
            argument.name.starts_with("compute_")
                && !matches!(
                    argument.arg,
                    SerializedArgument::Bool(Symbolic::Known(false))
                )
        });
        if computes_gradient {
            let message = "linear_cross_entropy with its gradients";
            let help = "export the module within torch.no_grad()";
            return Err(Error::unsupported(message).help(help));
        }
        let operands = [
            value("input")?,
            value("linear_weight")?,
            value("linear_bias")?,
        ];
        let scores = self.call("aten::linear", operands.clone());
        let smoothing = match argument("label_smoothing") {
            Some(given) => self.argument(given, scope)?,
            None => self.expr(AstExprKind::Float(0.0)),
        };
        let arguments = [
            scores,
            value("target")?,
            value("weight")?,
            self.int(reduction),
            value("ignore_index")?,
            smoothing,
        ];
        let loss = self.call("aten::cross_entropy_loss", arguments);
        // The gradients are not computed, and nothing reads them.
        Ok(Some(match name {
            CHUNKED => self.expr(AstExprKind::Tuple([vec![loss], operands.to_vec()].concat())),
            _ => loss,
        }))
    }
}

const CHUNKED: &str = "torch_nn::_linear_cross_entropy_batch_chunked";
