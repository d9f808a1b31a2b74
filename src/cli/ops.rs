//! `onionskin ops`: lists the supported operators.

use clap::Args;

use super::{Outcome, output};
use crate::aten;
use crate::error::Result;
use crate::ir::Primitive;

/// List the operators that graphs may contain.
#[derive(Args)]
pub(super) struct OpsCommand {
    /// Only operators whose name contains this text.
    pattern: Option<String>,
    /// Print a JSON list.
    #[arg(long)]
    json: bool,
}

impl OpsCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        let wanted = |name: &str| {
            self.pattern
                .as_ref()
                .is_none_or(|pattern| name.contains(pattern.as_str()))
        };
        let operators = || aten::operators().filter(|operator| wanted(&operator.name));
        if self.json {
            let list: Vec<_> = operators()
                .map(|operator| serde_json::json!({"name": &*operator.name, "view": operator.schema.is_view, "schema": operator.schema.to_string()}))
                .collect();
            output::line(&serde_json::Value::from(list).to_string());
            return Ok(Outcome::Success);
        }
        for operator in operators() {
            output::line(&operator.schema.to_string());
        }
        output::note(&format!(
            "{} operators on {} primitives",
            operators().count(),
            Primitive::NAMES.len()
        ));
        Ok(Outcome::Success)
    }
}
