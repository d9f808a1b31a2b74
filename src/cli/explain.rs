//! `onionskin explain`: what an id means, with an example and the cure.

use clap::Args;

use super::{Outcome, json_failed, output};
use crate::error::Result;
use crate::trace::check::{entries, explain};

/// Explain an id of a finding or an error; without one, list all.
#[derive(Args)]
pub(super) struct Explain {
    /// `W0201`, `E0301` …
    id: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(super) fn run(&self) -> Result<Outcome> {
        let entries = match &self.id {
            Some(id) => vec![explain(id)?],
            None => entries(),
        };
        if self.json {
            output::line(&serde_json::to_string(&entries).map_err(json_failed)?);
        } else if self.id.is_some() {
            entries
                .iter()
                .for_each(|entry| output::line(&entry.to_string()));
        } else {
            for entry in entries {
                output::line(&format!(
                    "{}  {:<8} {}",
                    entry.code,
                    entry.severity.to_string(),
                    entry.title
                ));
            }
        }
        Ok(Outcome::Yes)
    }
}
