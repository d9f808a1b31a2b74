//! `--limit`: what a model file may use while it is read.

use std::path::Path;

use clap::Args;

use crate::Model;
use crate::budget::Limits;
use crate::error::Result;

/// `--limit`
#[derive(Args)]
pub(super) struct LimitArgs {
    /// Raises or lowers a limit on what reading the model may use: bytes, values, steps, depth or length.
    #[arg(long = "limit", value_name = "NAME=N", value_parser = parse)]
    limits: Vec<(String, u64)>,
}

impl LimitArgs {
    /// Opens a model within the limits.
    pub(super) fn open(&self, path: &Path) -> Result<Model> {
        let mut limits = Limits::default();
        for (name, value) in &self.limits {
            limits.set(name, *value)?;
        }
        Model::open_with(path, &limits)
    }
}

fn parse(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=N")?;
    let value = value
        .parse()
        .map_err(|_| format!("{value:?} is not a number"))?;
    Limits::default()
        .set(name, value)
        .map_err(|error| error.to_string())?;
    Ok((name.to_string(), value))
}
