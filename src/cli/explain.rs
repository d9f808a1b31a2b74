//! `onionskin explain`: explains the id of a finding or an error, with an example and its fix.

use anstyle::AnsiColor;
use clap::Args;

use super::{Outcome, json_error, output};
use crate::error::Result;
use crate::trace::check::{CatalogEntry, Severity, entries, explain};

/// Explain an id of a finding or an error; without one, list all.
#[derive(Args)]
pub(super) struct ExplainCommand {
    /// `W0201`, `E0301` …
    id: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl ExplainCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        let entries = match &self.id {
            Some(id) => vec![explain(id)?],
            None => entries(),
        };
        if self.json {
            output::line(&serde_json::to_string(&entries).map_err(json_error)?);
        } else if self.id.is_some() {
            entries.iter().for_each(|entry| output::line(&page(entry)));
        } else {
            list(&entries).iter().for_each(|line| output::line(line));
        }
        Ok(Outcome::Success)
    }
}

/// Formats an entry with its id in the colour of its severity.
fn page(entry: &CatalogEntry) -> String {
    let text = entry.to_string();
    let rest = text.strip_prefix(entry.code).unwrap_or(&text);
    format!("{}{rest}", output::bold(entry.code, color(entry.severity)))
}

fn color(severity: Severity) -> AnsiColor {
    match severity {
        Severity::Note => AnsiColor::Cyan,
        Severity::Warning => AnsiColor::Yellow,
        Severity::Error => AnsiColor::Red,
    }
}

/// Formats entries as a table: id, severity, front ends whose graphs the finding occurs in, title.
fn list(entries: &[&CatalogEntry]) -> Vec<String> {
    let widths = entries.iter().map(|entry| entry.found_in().chars().count());
    let width = widths.max().unwrap_or_default();
    let head = format!(
        "{:<5}  {:<8} {:<width$}  finding or error",
        "id", "severity", "found in"
    );
    let row = |entry: &&CatalogEntry| {
        let id = output::bold(entry.code, color(entry.severity));
        let (severity, found_in) = (entry.severity.to_string(), entry.found_in());
        format!("{id}  {severity:<8} {found_in:<width$}  {}", entry.title)
    };
    std::iter::once(head)
        .chain(entries.iter().map(row))
        .collect()
}
