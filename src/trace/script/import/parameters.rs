//! Parameters of a method, as its callers see them.

use crate::error::{Error, Result};
use crate::ir::{TreeConstant, TreeSpec};
use crate::scalar::Scalar;
use crate::trace::program::{ArgumentStructure, MethodParameter};
use crate::trace::script::Script;
use crate::trace::script::ast::{AstExpr, AstExprKind, ClassDef, FunctionDef, TypeExpr};

/// The parameters of a method, without the module itself.
///
/// # Errors
/// The module has no such method, or the program is damaged.
pub fn parameters(script: &dyn Script, method: &str) -> Result<Vec<MethodParameter>> {
    let function = find_method(script.root_class()?, method)?;
    let mut examples = script
        .example_inputs(method)?
        .unwrap_or_default()
        .into_iter();
    let parameters = function.parameters.iter().skip(1);
    let parameters = parameters.map(|parameter| MethodParameter {
        name: parameter.name.clone(),
        structure: structure_of(&parameter.ty),
        example: examples.next(),
        has_default: parameter.default.is_some(),
        default: parameter.default.as_ref().and_then(constant_of_literal),
    });
    Ok(parameters.collect())
}

/// Finds a method of a class.
pub(super) fn find_method<'a>(class: &'a ClassDef, method: &str) -> Result<&'a FunctionDef> {
    class.method(method).ok_or_else(|| {
        let names: Vec<&str> = class.methods.iter().map(|m| m.name.as_str()).collect();
        let message = format!("the module has no method {method}");
        Error::usage(message).help(format!("it has {}", names.join(", ")))
    })
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

/// The structure that a type determines.
fn structure_of(ty: &TypeExpr) -> ArgumentStructure {
    let known_tree = |ty: &TypeExpr| match structure_of(ty) {
        ArgumentStructure::Known(tree) => Some(tree),
        ArgumentStructure::Inferred { .. } => None,
    };
    match ty {
        TypeExpr::Tensor => {
            ArgumentStructure::Known(TreeSpec::Tensor(MethodParameter::UNKNOWN_TYPE))
        }
        TypeExpr::Int | TypeExpr::Float | TypeExpr::Bool | TypeExpr::Number => {
            ArgumentStructure::Known(TreeSpec::Number(MethodParameter::UNKNOWN_TYPE))
        }
        TypeExpr::Optional(inner) => structure_of(inner),
        TypeExpr::Tuple(types) => match types
            .iter()
            .map(known_tree)
            .collect::<Option<Vec<TreeSpec>>>()
        {
            Some(trees) => ArgumentStructure::Known(TreeSpec::Tuple(trees)),
            None => ArgumentStructure::Inferred { is_list: false },
        },
        TypeExpr::List(_) => ArgumentStructure::Inferred { is_list: true },
        _ => ArgumentStructure::Inferred { is_list: false },
    }
}
