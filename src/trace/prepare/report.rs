use std::fmt;

use serde::Serialize;

use super::equality::Check;
use crate::error::Place;
use crate::ir::Graph;

/// What was done to a module. `Display` is the report as text, serialisation gives JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Every rewrite, in order.
    pub rewrites: Vec<Rewrite>,
    /// The proof that results are the same, a check for each graph.
    pub checks: Vec<Check>,
    /// The graph that is rewritten.
    #[serde(skip)]
    graph: String,
}

/// One rewrite.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rewrite {
    /// What was done.
    pub kind: RewriteKind,
    /// The graph that it was done to.
    pub graph: String,
    /// What it was called.
    pub old: String,
    /// What it is called now; the value of what was fixed; empty for what is gone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub new: String,
    /// Where it stood in the user's model.
    #[serde(skip_serializing_if = "Place::is_unknown")]
    pub place: Place,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RewriteKind {
    /// An argument was fixed to a value.
    Fixed,
    /// A node is gone: it followed from what was fixed, or nothing reads it.
    Folded,
    /// A module's nodes became one.
    Leaf,
    /// A parameter was copied for another instance of its module.
    Copied,
    /// An operator is named like its module.
    Module,
    /// An operator is named after itself, in its module.
    Functional,
    /// An operator in another instance of a module that is called several times.
    Reused,
}

impl RewriteKind {
    /// All kinds, in the order of a summary.
    pub const ALL: [RewriteKind; 7] = [
        RewriteKind::Fixed,
        RewriteKind::Folded,
        RewriteKind::Leaf,
        RewriteKind::Copied,
        RewriteKind::Module,
        RewriteKind::Functional,
        RewriteKind::Reused,
    ];

    /// What was done to how many, behind their number.
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

    /// As it is written in reports.
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

impl Report {
    /// Rewrites that follow are of this graph.
    pub(super) fn begin(&mut self, graph: &Graph) {
        self.graph.clone_from(&graph.name);
    }

    /// The report in few lines: how many rewrites of each kind, and the proof.
    pub fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for check in &self.checks {
            lines.push(format!("graph {}", check.graph));
            for kind in RewriteKind::ALL {
                let rewrites = self.rewrites.iter();
                let own = rewrites.filter(|one| one.graph == check.graph && one.kind == kind);
                let count = own.count();
                lines.extend((count > 0).then(|| format!("  {count:>6}  {}", kind.describe())));
            }
            lines.push(format!("  {check}"));
        }
        lines
    }

    pub(super) fn add(&mut self, kind: RewriteKind, old: &str, new: &str, place: &Place) {
        self.rewrites.push(Rewrite {
            kind,
            graph: self.graph.clone(),
            old: old.to_string(),
            new: new.to_string(),
            place: place.clone(),
        });
    }
}

impl fmt::Display for Report {
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
