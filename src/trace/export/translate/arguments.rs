//! Arguments of calls as expressions.

use super::{Scope, Translator};
use crate::aten;
use crate::error::{Error, Result};
use crate::trace::export::codes;
use crate::trace::export::schema::{
    NamedArgument, Number, SerializedArgument, SerializedNode, Symbolic,
};
use crate::trace::script::ast::{AstExpr, AstExprKind};

/// `kind` of a positional argument.
const POSITIONAL: u64 = 1;

impl Translator {
    /// The call of an operator with a node's arguments. Those in the schema's order are positional.
    pub(super) fn operator_call(
        &self,
        name: &str,
        node: &SerializedNode,
        scope: &Scope,
    ) -> Result<AstExpr> {
        let cast = self.cast_of(name);
        let mut positional = Vec::new();
        let mut keywords = Vec::new();
        for (position, argument) in node.inputs.iter().enumerate() {
            let mut value = self.argument(&argument.arg, scope)?;
            if let Some(cast) = cast {
                value = self.cast_argument(cast, &argument.arg, value);
            }
            let is_next = positional.len() == position;
            match is_next && is_positional(&node.target, name, position, argument) {
                true => positional.push(value),
                false => keywords.push((argument.name.clone(), value)),
            }
        }
        Ok(self.call_with(script_operator(name), positional, keywords))
    }

    /// An argument as an expression.
    pub(super) fn argument(&self, argument: &SerializedArgument, scope: &Scope) -> Result<AstExpr> {
        Ok(match argument {
            SerializedArgument::None => self.expr(AstExprKind::None),
            SerializedArgument::Tensor(name) => self.value(name, scope)?,
            SerializedArgument::Tensors(names) => {
                self.list(names, |name| self.value(name, scope))?
            }
            SerializedArgument::OptionalTensors(names) => self.list(names, |name| match name {
                Some(name) => self.value(name, scope),
                None => Ok(self.expr(AstExprKind::None)),
            })?,
            SerializedArgument::NestedTensors(lists) => self.list(lists, |names| {
                self.list(names, |name| self.value(name, scope))
            })?,
            SerializedArgument::Int(value) => self.symbolic(value, scope, AstExprKind::Int)?,
            SerializedArgument::Ints(values) => self.list(values, |value| {
                self.symbolic(value, scope, AstExprKind::Int)
            })?,
            SerializedArgument::IntLists(lists) => self.list(lists, |values| {
                self.list(values, |value| Ok(self.int(*value)))
            })?,
            SerializedArgument::Float(value) => self.symbolic(value, scope, float)?,
            SerializedArgument::Floats(values) => {
                self.list(values, |value| self.symbolic(value, scope, float))?
            }
            SerializedArgument::Bool(value) => self.symbolic(value, scope, AstExprKind::Bool)?,
            SerializedArgument::Bools(values) => self.list(values, |value| {
                self.symbolic(value, scope, AstExprKind::Bool)
            })?,
            SerializedArgument::Str(text) | SerializedArgument::Operator(text) => {
                self.text(text.as_str())
            }
            SerializedArgument::Strs(texts) => {
                self.list(texts, |text| Ok(self.text(text.as_str())))?
            }
            SerializedArgument::ScalarType(code) => self.int(codes::torchscript_dtype(*code)),
            SerializedArgument::MemoryFormat(code) => {
                self.int(codes::torchscript_memory_format(*code))
            }
            // All tensors are strided.
            SerializedArgument::Layout => self.int(0),
            // The graph runs on the device that compiles it.
            SerializedArgument::Device => self.call("prim::device", [self.text("cpu")]),
            SerializedArgument::Graph(_) => {
                return Err(Error::unsupported("a graph as an argument of an operator"));
            }
            SerializedArgument::Other(kind) => {
                return Err(Error::unsupported(format!(
                    "an argument of the kind {kind}"
                )));
            }
        })
    }

    /// The value of a name of a graph.
    pub(super) fn value(&self, name: &str, scope: &Scope) -> Result<AstExpr> {
        let mut value = scope
            .get(name)
            .cloned()
            .ok_or_else(|| Error::format(format!("the graph reads {name} before it defines it")))?;
        value.offset = self.offset;
        Ok(value)
    }

    fn list<T>(&self, items: &[T], expr: impl Fn(&T) -> Result<AstExpr>) -> Result<AstExpr> {
        let items = items.iter().map(expr).collect::<Result<_>>()?;
        Ok(self.expr(AstExprKind::List(items)))
    }

    /// A number, or the variable of one.
    fn symbolic<T: Copy>(
        &self,
        value: &Symbolic<T>,
        scope: &Scope,
        literal: impl Fn(T) -> AstExprKind,
    ) -> Result<AstExpr> {
        match value {
            Symbolic::Known(value) => Ok(self.expr(literal(*value))),
            Symbolic::Named(name) => self.value(name, scope),
            Symbolic::Expression(text, _) => Err(Error::format(format!(
                "the expression {text} is given as an argument"
            ))),
        }
    }
}

fn float(value: Number) -> AstExprKind {
    AstExprKind::Float(value.0)
}

/// True if an argument may be given by its position. Files of old versions do not say whether one was.
fn is_positional(target: &str, operator: &str, position: usize, argument: &NamedArgument) -> bool {
    match argument.kind {
        Some(kind) => kind == POSITIONAL,
        None => {
            let overload = target.rsplit('.').next().map_or("", |name| match name {
                "default" => "",
                name => name,
            });
            let mut overloads = aten::overloads(operator);
            let schema = overloads.find(|other| other.schema.overload == overload);
            // Import evaluates others itself, `aten::sym_size` for instance.
            schema.is_none_or(|operator| {
                let parameter = operator.schema.parameters.get(position);
                parameter.is_some_and(|parameter| {
                    parameter.name == argument.name && !parameter.keyword_only
                })
            })
        }
    }
}

/// The name that an operator has in scripts.
fn script_operator(name: &str) -> &str {
    match name {
        "aten::sym_size" => "aten::size",
        "aten::sym_stride" => "aten::stride",
        "aten::sym_numel" => "aten::numel",
        "aten::sym_storage_offset" => "aten::storage_offset",
        "aten::sym_is_contiguous" => "aten::is_contiguous",
        "aten::_local_scalar_dense" => "aten::item",
        other => other,
    }
}
