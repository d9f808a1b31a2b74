//! Variables and attributes that statements assign.

use std::collections::BTreeSet;

use crate::trace::script::ast::{AstExprKind, Stmt, StmtKind};

/// Variables that either branch of a condition assigns, in alphabetical order.
pub fn assigned_in_either(then: &[Stmt], otherwise: &[Stmt]) -> Vec<String> {
    assigned(then)
        .union(&assigned(otherwise))
        .cloned()
        .collect()
}

/// Variables that statements assign, including those within branches and loops.
pub fn assigned(body: &[Stmt]) -> BTreeSet<String> {
    let mut variables = BTreeSet::new();
    collect_variables(body, &mut variables);
    variables
}

/// Collects the attributes of `self` that statements set, including those within branches and loops.
pub fn attributes_set(body: &[Stmt], attributes: &mut BTreeSet<String>) {
    for statement in body {
        match &statement.kind {
            StmtKind::SetAttribute {
                object, attribute, ..
            } if matches!(&object.kind, AstExprKind::Name(name) if name == "self") => {
                attributes.insert(attribute.clone());
            }
            StmtKind::If {
                then, otherwise, ..
            } => {
                attributes_set(then, attributes);
                attributes_set(otherwise, attributes);
            }
            StmtKind::While { body, .. }
            | StmtKind::With { body, .. }
            | StmtKind::For { body, .. } => attributes_set(body, attributes),
            _ => {}
        }
    }
}

/// Collects the variables that statements assign, including those within branches and loops.
fn collect_variables(body: &[Stmt], variables: &mut BTreeSet<String>) {
    for statement in body {
        match &statement.kind {
            StmtKind::Assign { name, .. } => {
                variables.insert(name.clone());
            }
            StmtKind::Unpack { names, .. } | StmtKind::AssignAll { names, .. } => {
                variables.extend(names.iter().cloned());
            }
            StmtKind::If {
                then, otherwise, ..
            } => {
                collect_variables(then, variables);
                collect_variables(otherwise, variables);
            }
            StmtKind::While { body, .. } => collect_variables(body, variables),
            StmtKind::With { name, body, .. } => {
                variables.extend(name.clone());
                collect_variables(body, variables);
            }
            StmtKind::For { variable, body, .. } => {
                variables.insert(variable.clone());
                collect_variables(body, variables);
            }
            _ => {}
        }
    }
}
