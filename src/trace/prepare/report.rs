//! The report of a preparation.

use std::fmt;

use serde::Serialize;

use super::equality::EqualityCheck;
use crate::error::SourcePlace;
use crate::ir::Graph;

/// Report of [`prepare`](super::prepare). `Display` writes it as text, serialisation as JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PrepareReport {
    /// All rewrites in order.
    pub rewrites: Vec<Rewrite>,
    /// Comparisons of results, one for each graph.
    pub checks: Vec<EqualityCheck>,
    /// Name of the current graph.
    #[serde(skip)]
    graph: String,
}

/// A change to one node, argument, parameter or module.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rewrite {
    /// Kind of the rewrite.
    pub kind: RewriteKind,
    /// Name of the rewritten graph.
    pub graph: String,
    /// The old name.
    pub old: String,
    /// The new name. For a fixed argument, its value; for a removed node, empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub new: String,
    /// Place in the user's model.
    #[serde(skip_serializing_if = "SourcePlace::is_unknown")]
    pub place: SourcePlace,
}

/// Kind of the rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RewriteKind {
    /// An argument was fixed to a value.
    Fixed,
    /// A node was removed: fixed values determine it, or nothing reads it.
    Folded,
    /// A module's nodes became one node.
    Leaf,
    /// A parameter was copied for another instance of its module.
    Copied,
    /// An operator got its module's name.
    Module,
    /// An operator got its own name within its module.
    Functional,
    /// An operator got the name of a further instance of its module.
    Reused,
}

impl RewriteKind {
    /// All kinds, in the order of the summary.
    pub const ALL: [RewriteKind; 7] = [
        RewriteKind::Fixed,
        RewriteKind::Folded,
        RewriteKind::Leaf,
        RewriteKind::Copied,
        RewriteKind::Module,
        RewriteKind::Functional,
        RewriteKind::Reused,
    ];

    /// The text of a summary line after the count.
    fn describe(self) -> &'static str {
        match self {
            RewriteKind::Fixed => "arguments fixed to a value",
            RewriteKind::Folded => "nodes removed, since nothing reads them or they are known",
            RewriteKind::Leaf => "modules left whole",
            RewriteKind::Copied => "parameters copied for another call of their module",
            RewriteKind::Module => "operators named after their module",
            RewriteKind::Functional => "operators named after themselves, within their module",
            RewriteKind::Reused => "operators in another call of their module",
        }
    }

    /// The kind's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            RewriteKind::Fixed => "fixed",
            RewriteKind::Folded => "folded",
            RewriteKind::Leaf => "leaf",
            RewriteKind::Copied => "copied",
            RewriteKind::Module => "module",
            RewriteKind::Functional => "functional",
            RewriteKind::Reused => "reused",
        }
    }
}

impl PrepareReport {
    /// Sets the graph of the rewrites that follow.
    pub(super) fn set_graph(&mut self, graph: &Graph) {
        self.graph.clone_from(&graph.name);
    }

    /// A short report: the number of rewrites of each kind, and the comparisons.
    pub fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for check in &self.checks {
            lines.push(format!("graph {}", check.graph));
            for kind in RewriteKind::ALL {
                let rewrites = self.rewrites.iter();
                let rewrites_of_kind =
                    rewrites.filter(|rewrite| rewrite.graph == check.graph && rewrite.kind == kind);
                let count = rewrites_of_kind.count();
                lines.extend((count > 0).then(|| format!("  {count:>6}  {}", kind.describe())));
            }
            lines.push(format!("  {check}"));
        }
        lines
    }

    /// Adds a rewrite of the current graph.
    pub(super) fn add(&mut self, kind: RewriteKind, old: &str, new: &str, place: &SourcePlace) {
        self.rewrites.push(Rewrite {
            kind,
            graph: self.graph.clone(),
            old: old.to_string(),
            new: new.to_string(),
            place: place.clone(),
        });
    }
}

impl fmt::Display for PrepareReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            let name = &check.graph;
            writeln!(f, "graph {name}")?;
            for rewrite in self
                .rewrites
                .iter()
                .filter(|rewrite| rewrite.graph == *name)
            {
                writeln!(f, "  {rewrite}")?;
            }
            writeln!(f, "  {check}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10} {}", self.kind.name(), self.old)?;
        if !self.new.is_empty() {
            write!(f, " -> {}", self.new)?;
        }
        if self.place.is_unknown() {
            return Ok(());
        }
        write!(f, "  @ {}", self.place)
    }
}
