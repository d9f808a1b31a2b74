//! Parameters of an archive's method, as its callers see them.

use crate::archive::Pickled;
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::trace::torchscript::archive::Archive;
use crate::trace::torchscript::ast::{AstExpr, AstExprKind, FunctionDef, TypeExpr};

use super::options::InputSpec;
use super::signature::input_spec_of;
use crate::ir::TreeConstant;

/// A parameter of a method.
#[derive(Clone, Debug)]
pub struct MethodParameter {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: TypeExpr,
    /// The argument that the archive was traced with, if it holds one.
    pub example: Option<InputSpec>,
    /// True if a call may omit it.
    pub has_default: bool,
    /// The default, if it is a number, a string or `None`.
    pub default: Option<TreeConstant>,
}

/// The parameters of a method, without the module itself.
///
/// # Errors
/// The module has no such method, or the archive is damaged.
pub fn parameters(archive: &Archive, method: &str) -> Result<Vec<MethodParameter>> {
    let root = archive.root().as_object();
    let root = root.ok_or_else(|| Error::format("data.pkl does not hold a module"))?;
    let function = find_method(archive, &root.class, method)?;
    let mut examples = traced_inputs(archive, method)?
        .unwrap_or_default()
        .into_iter();
    let parameters = function.parameters.iter().skip(1);
    let parameters = parameters.map(|parameter| MethodParameter {
        name: parameter.name.clone(),
        ty: parameter.ty.clone(),
        example: examples.next(),
        has_default: parameter.default.is_some(),
        default: parameter.default.as_ref().and_then(constant_of_literal),
    });
    Ok(parameters.collect())
}

/// Finds a method of a class of the archive.
pub(super) fn find_method<'a>(
    archive: &'a Archive,
    class: &str,
    method: &str,
) -> Result<&'a FunctionDef> {
    let class = archive.source().class(class)?;
    class.method(method).ok_or_else(|| {
        let names: Vec<&str> = class.methods.iter().map(|m| m.name.as_str()).collect();
        let message = format!("the module has no method {method}");
        Error::usage(message).help(format!("it has {}", names.join(", ")))
    })
}

/// The arguments that a method was traced with; none if the archive holds none.
pub(super) fn traced_inputs(archive: &Archive, method: &str) -> Result<Option<Vec<InputSpec>>> {
    let traced = archive.traced_inputs().and_then(Pickled::as_dict);
    let items = traced.and_then(|dict| dict.get(method)?.as_items());
    items
        .map(|items| items.iter().map(input_spec_of).collect())
        .transpose()
}

/// The value of a literal; none for other expressions.
fn constant_of_literal(expr: &AstExpr) -> Option<TreeConstant> {
    Some(match &expr.kind {
        AstExprKind::None => TreeConstant::None,
        AstExprKind::Bool(value) => TreeConstant::Number(Scalar::Bool(*value)),
        AstExprKind::Int(value) => TreeConstant::Number(Scalar::Int(*value)),
        AstExprKind::Float(value) => TreeConstant::Number(Scalar::Float(*value)),
        AstExprKind::Str(text) => TreeConstant::Str(text.clone()),
        _ => return None,
    })
}
