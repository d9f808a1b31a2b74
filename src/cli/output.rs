//! What the commands print.

use std::io::Write;

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
