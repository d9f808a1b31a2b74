//! Which variables statements assign.

use std::collections::BTreeSet;

use crate::trace::torchscript::ast::{ExprKind, Statement, StatementKind};

/// Variables that are bound after either branch of a condition, in order.
pub fn assigned_in_both(then: &[Statement], otherwise: &[Statement]) -> Vec<String> {
    assigned(then)
        .union(&assigned(otherwise))
        .cloned()
        .collect()
}

/// Variables that statements assign, those within branches and loops included.
pub fn assigned(body: &[Statement]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(body, &mut found);
    found
}

/// Attributes of their own object that statements set, those within branches and loops included.
pub fn attributes_set(body: &[Statement], found: &mut BTreeSet<String>) {
    for statement in body {
        match &statement.kind {
            StatementKind::SetAttribute {
                object, attribute, ..
            } if matches!(&object.kind, ExprKind::Name(name) if name == "self") => {
                found.insert(attribute.clone());
            }
            StatementKind::If {
                then, otherwise, ..
            } => {
                attributes_set(then, found);
                attributes_set(otherwise, found);
            }
            StatementKind::While { body, .. }
            | StatementKind::With { body, .. }
            | StatementKind::For { body, .. } => attributes_set(body, found),
            _ => {}
        }
    }
}

fn collect(body: &[Statement], found: &mut BTreeSet<String>) {
    for statement in body {
        match &statement.kind {
            StatementKind::Assign { name, .. } => {
                found.insert(name.clone());
            }
            StatementKind::Unpack { names, .. } | StatementKind::AssignAll { names, .. } => {
                found.extend(names.iter().cloned());
            }
            StatementKind::If {
                then, otherwise, ..
            } => {
                collect(then, found);
                collect(otherwise, found);
            }
            StatementKind::While { body, .. } => collect(body, found),
            StatementKind::With { name, body, .. } => {
                found.extend(name.clone());
                collect(body, found);
            }
            StatementKind::For { variable, body, .. } => {
                found.insert(variable.clone());
                collect(body, found);
            }
            _ => {}
        }
    }
}
