//! Variables and attributes that statements assign.

use std::collections::BTreeSet;

use crate::trace::torchscript::ast::{AstExprKind, Stmt, StmtKind};

/// Variables that either branch of a condition assigns, in order.
pub fn assigned_in_either(then: &[Stmt], otherwise: &[Stmt]) -> Vec<String> {
    assigned(then)
        .union(&assigned(otherwise))
        .cloned()
        .collect()
}

/// Variables that statements assign, including those within branches and loops.
pub fn assigned(body: &[Stmt]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(body, &mut found);
    found
}

/// Collects the attributes of `self` that statements set, including those within branches and loops.
pub fn attributes_set(body: &[Stmt], found: &mut BTreeSet<String>) {
    for statement in body {
        match &statement.kind {
            StmtKind::SetAttribute {
                object, attribute, ..
            } if matches!(&object.kind, AstExprKind::Name(name) if name == "self") => {
                found.insert(attribute.clone());
            }
            StmtKind::If {
                then, otherwise, ..
            } => {
                attributes_set(then, found);
                attributes_set(otherwise, found);
            }
            StmtKind::While { body, .. }
            | StmtKind::With { body, .. }
            | StmtKind::For { body, .. } => attributes_set(body, found),
            _ => {}
        }
    }
}

fn collect(body: &[Stmt], found: &mut BTreeSet<String>) {
    for statement in body {
        match &statement.kind {
            StmtKind::Assign { name, .. } => {
                found.insert(name.clone());
            }
            StmtKind::Unpack { names, .. } | StmtKind::AssignAll { names, .. } => {
                found.extend(names.iter().cloned());
            }
            StmtKind::If {
                then, otherwise, ..
            } => {
                collect(then, found);
                collect(otherwise, found);
            }
            StmtKind::While { body, .. } => collect(body, found),
            StmtKind::With { name, body, .. } => {
                found.extend(name.clone());
                collect(body, found);
            }
            StmtKind::For { variable, body, .. } => {
                found.insert(variable.clone());
                collect(body, found);
            }
            _ => {}
        }
    }
}
