//! Variables and attributes that statements assign.

use std::collections::BTreeSet;

use crate::trace::torchscript::ast::{ExprKind, Statement, StatementKind};

/// Variables that either branch of a condition assigns, in order.
pub fn assigned_in_both(then: &[Statement], otherwise: &[Statement]) -> Vec<String> {
    assigned(then)
        .union(&assigned(otherwise))
        .cloned()
        .collect()
}

/// Variables that statements assign, including those within branches and loops.
pub fn assigned(body: &[Statement]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(body, &mut found);
    found
}

/// Collects the attributes of `self` that statements set, including those within branches and loops.
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
