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

/// An amount with a unit and the prefix that fits: `12.3 MB`.
pub(super) fn amount(number: f64, unit: &str) -> String {
    let prefixes = ["", "k", "M", "G", "T", "P"];
    let (mut scaled, mut prefix) = (number, 0);
    while scaled.abs() >= 1000.0 && prefix + 1 < prefixes.len() {
        (scaled, prefix) = (scaled / 1000.0, prefix + 1);
    }
    match prefix {
        0 => format!("{number:.0} {unit}"),
        _ => format!("{scaled:.1} {}{unit}", prefixes[prefix]),
    }
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
