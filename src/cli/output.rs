//! What the commands print.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

use crate::error::Error;

/// A line on standard output. A closed pipe is no error.
pub(super) fn line(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// A line on standard error, for people.
pub(super) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// An error with its trail and advice.
pub(super) fn report(error: &Error) {
    for error in error.iter() {
        note(&format!(
            "error[{}] {}: {}",
            error.kind().id(),
            error.kind().title(),
            error.message()
        ));
        for frame in error.trail() {
            note(&format!("  at {frame}"));
        }
        if let Some(help) = error.advice() {
            note(&format!("  help: {help}"));
        }
    }
}

/// A progress bar on standard error; hidden where that is no terminal.
pub(super) fn progress(length: usize, what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what.to_string());
    bar
}
