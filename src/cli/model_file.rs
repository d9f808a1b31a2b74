//! Options for reading the file of a model: `--limit` and `--mmap`.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;

use crate::Model;
use crate::budget::Limits;
use crate::error::Result;

/// `--limit` and `--mmap`
#[derive(Args)]
pub(super) struct ModelFileArgs {
    /// Raises or lowers a limit on what reading the model and its inputs may use: bytes, values, steps, depth or length.
    #[arg(long = "limit", value_name = "NAME=N", value_parser = parse)]
    limits: Vec<(String, u64)>,
    /// Map the model's files into memory, for weights on the host that processes share. The files must not change meanwhile:
    /// if one is cut short, the process is killed.
    #[arg(long)]
    mmap: bool,
}

impl ModelFileArgs {
    /// Opens a model.
    #[expect(
        unsafe_code,
        reason = "whoever gives --mmap promises that nobody changes the files"
    )]
    pub(super) fn open(&self, path: &Path) -> Result<Model> {
        let limits = self.limits()?;
        match self.mmap {
            // SAFETY: the user asked for it, and was told.
            true => unsafe { Model::open_mapped(path, &limits) },
            false => Model::open_with(path, &limits),
        }
    }

    /// Returns the limits.
    pub(super) fn limits(&self) -> Result<Limits> {
        let mut limits = Limits::default();
        for (name, value) in &self.limits {
            limits.set(name, *value)?;
        }
        Ok(limits)
    }

    /// Returns the options for the command line of another process.
    pub(super) fn command_line_options(&self) -> Vec<OsString> {
        let limits = self.limits.iter();
        let limits = limits.map(|(name, value)| format!("--limit={name}={value}").into());
        limits.chain(self.mmap.then(|| "--mmap".into())).collect()
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
