//! Findings about a program that need no run: devices, random numbers, training mode.

use super::Script;
use super::ast::{AstExprKind, CallExpr, Callee, FunctionDef, Stmt, StmtKind};
use crate::error::SourcePlace;
use crate::trace::check::{
    Finding, Id, draws_random_numbers, merge_equal, random_operator_finding,
};

/// Returns findings about functions, including those that are never called. Equal findings are merged.
pub fn inspect(script: &dyn Script, functions: &[&FunctionDef]) -> Vec<Finding> {
    let mut inspection = ScriptInspection {
        script,
        findings: Vec::new(),
    };
    for function in functions {
        inspection.function(function);
    }
    merge_equal(inspection.findings)
}

/// True if a function has a condition or a loop.
pub fn has_control_flow(functions: &[&FunctionDef]) -> bool {
    let mut functions = functions.iter();
    functions.any(|function| has_branches(&function.body))
}

/// True if a statement is a condition or a loop, also within other statements.
fn has_branches(body: &[Stmt]) -> bool {
    body.iter().any(|statement| match &statement.kind {
        StmtKind::If { .. } | StmtKind::While { .. } | StmtKind::For { .. } => true,
        StmtKind::With { body, .. } => has_branches(body),
        StmtKind::Define(function) => has_branches(&function.body),
        _ => false,
    })
}

/// An inspection in progress.
struct ScriptInspection<'a> {
    script: &'a dyn Script,
    findings: Vec<Finding>,
}

impl ScriptInspection<'_> {
    /// Adds findings about the calls in a function.
    fn function(&mut self, function: &FunctionDef) {
        // Constants have no debug location. They take that of the enclosing expression, visited before.
        let mut location = None;
        function.visit_exprs(&mut |expr| {
            let own_location = self.script.location(&function.file, expr.offset);
            location = own_location.or_else(|| location.take());
            if let AstExprKind::Call(call) = &expr.kind
                && let Callee::Operator(name) = &call.callee
                && let Some(finding) = operator_finding(name, call)
            {
                let place = SourcePlace {
                    module: String::new(),
                    location: location.clone(),
                };
                self.findings.push(finding.at(&place));
            }
        });
    }
}

/// A finding about a call of an operator by its name, such as `aten::dropout`.
fn operator_finding(name: &str, call: &CallExpr) -> Option<Finding> {
    let base = name.split_once("::").map_or(name, |(_, base)| base);
    if draws_random_numbers(name) {
        return draws_in_call(base, call).then(|| random_operator_finding(name));
    }
    match base {
        "device" => device_finding(call),
        "batch_norm" => batch_norm_finding(call),
        _ => None,
    }
}

/// True if the call draws numbers: for dropout and rrelu if the training argument is true, for other operators always.
fn draws_in_call(base: &str, call: &CallExpr) -> bool {
    let position = match base.trim_end_matches('_') {
        "rrelu" => 3,
        base if base.contains("dropout") => 2,
        _ => return true,
    };
    let flag = call.arguments.get(position).map(|argument| &argument.kind);
    matches!(flag, Some(AstExprKind::Bool(true)))
}

/// A finding for a batch norm that uses batch statistics although it has running ones.
fn batch_norm_finding(call: &CallExpr) -> Option<Finding> {
    let argument = |index: usize| call.arguments.get(index).map(|argument| &argument.kind);
    let is_training = matches!(argument(5), Some(AstExprKind::Bool(true)));
    let has_statistics = !matches!(argument(3), Some(AstExprKind::None));
    let message = "batch_norm uses the statistics of the batch";
    (is_training && has_statistics).then(|| Finding::new(Id::TrainingMode, message))
}

/// A finding for a device other than the host, such as `torch.device("cuda:0")`.
fn device_finding(call: &CallExpr) -> Option<Finding> {
    let Some(AstExprKind::Str(device)) = call.arguments.first().map(|argument| &argument.kind)
    else {
        return None;
    };
    let is_host = device.is_empty() || device.starts_with("cpu") || device.starts_with("meta");
    (!is_host).then(|| {
        Finding::new(
            Id::FrozenDevice,
            format!("the program names the device {device:?}"),
        )
    })
}
