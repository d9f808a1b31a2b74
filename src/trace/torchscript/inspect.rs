//! Findings about an archive's program that need no run: devices, random numbers, training mode.

use super::Archive;
use crate::error::{Result, SourcePlace};
use crate::trace::check::{
    Finding, Id, draws_random_numbers, merge_equal, random_operator_finding,
};
use crate::trace::script::Script;
use crate::trace::script::ast::{AstExprKind, CallExpr, Callee, FunctionDef, Stmt, StmtKind};

/// Returns findings about the whole program, including unused functions. Equal findings are merged.
///
/// # Errors
/// A source file does not parse.
pub(super) fn inspect(archive: &Archive) -> Result<Vec<Finding>> {
    let mut inspection = ArchiveInspection {
        archive,
        findings: Vec::new(),
    };
    for function in functions(archive)? {
        inspection.function(function);
    }
    Ok(merge_equal(inspection.findings))
}

/// True if a function of the program has a condition or a loop.
///
/// # Errors
/// A source file does not parse.
pub(super) fn has_control_flow(archive: &Archive) -> Result<bool> {
    let functions = functions(archive)?;
    Ok(functions
        .iter()
        .any(|function| has_branches(&function.body)))
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

/// All functions and methods of the program.
fn functions(archive: &Archive) -> Result<Vec<&FunctionDef>> {
    let mut functions = Vec::new();
    for name in archive.source().modules() {
        if let Some(file) = archive.source().module(name)? {
            functions.extend(&file.functions);
            functions.extend(file.classes.iter().flat_map(|class| &class.methods));
        }
    }
    Ok(functions)
}

/// An inspection in progress.
struct ArchiveInspection<'a> {
    archive: &'a Archive,
    findings: Vec<Finding>,
}

impl ArchiveInspection<'_> {
    /// Adds findings about the calls in a function.
    fn function(&mut self, function: &FunctionDef) {
        // Constants have no debug location. They take that of the enclosing expression, visited before.
        let mut location = None;
        function.visit_exprs(&mut |expr| {
            let own_location = self.archive.location(&function.file, expr.offset);
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
