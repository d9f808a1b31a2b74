//! What the commands print. Colours reach terminals only, and not where `NO_COLOR` or `TERM=dumb` forbids them;
//! `CLICOLOR_FORCE` forces them.

use std::io::Write;

use anstyle::{AnsiColor, Style};

use crate::error::Error;

/// A line on standard output. A closed pipe is no error.
pub(super) fn line(text: &str) {
    let _ = writeln!(anstream::stdout().lock(), "{text}");
}

/// A line on standard error, for people.
pub(super) fn note(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{}", painted(text));
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

/// An error with its trail and advice. Further lines of a message or an advice are indented.
pub(super) fn report(error: &Error) {
    for error in error.iter() {
        let (id, title) = (error.kind().id(), error.kind().title());
        note(&format!("error[{id}] {title}: {}", error.message()));
        for frame in error.trail() {
            note(&format!("  at {frame}"));
        }
        if let Some(help) = error.advice() {
            note(&format!("  help: {}", help.replace('\n', "\n  ")));
        }
    }
}

/// The words at the beginning of a line that have a colour.
const WORDS: &[(&str, AnsiColor)] = &[
    ("error", AnsiColor::Red),
    ("DIFF", AnsiColor::Red),
    ("FAILED", AnsiColor::Red),
    ("warning", AnsiColor::Yellow),
    ("help:", AnsiColor::Cyan),
    ("note:", AnsiColor::Cyan),
    ("ok ", AnsiColor::Green),
];

/// A text with colours at the beginnings of its lines: errors, warnings, ids, advice, verdicts.
pub(super) fn painted(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(painted_line).collect();
    lines.join("\n")
}

fn painted_line(line: &str) -> String {
    let start = line.trim_start();
    let found = WORDS.iter().find(|(word, _)| start.starts_with(word));
    let Some((word, color)) = found else {
        return line.to_string();
    };
    // `error` alone is no beginning; its id belongs to it.
    let rest = &start[word.len()..];
    let id = match rest.starts_with('[') {
        true => rest.find(']').map_or(0, |end| end + 1),
        false => 0,
    };
    if id == 0 && ["error", "warning"].contains(word) && !rest.starts_with(':') {
        return line.to_string();
    }
    let (head, tail) = start.split_at(word.len() + id);
    let (indent, _) = line.split_at(line.len() - start.len());
    let style = Style::new().fg_color(Some((*color).into())).bold();
    format!("{indent}{style}{head}{style:#}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_of_lines_have_colours() {
        let paints = |text: &str| painted(text) != text;
        assert!(paints("error[E0101] malformed data: x") && paints("  help: do it"));
        assert!(paints("a line\n  warning: 1 of 2 values is NaN") && paints("  DIFF output"));
        assert!(!paints("errors were found") && !paints("an error[E0101]") && !paints("okay"));
        let text = "error[E0101] x";
        assert_eq!(
            anstream::adapter::strip_str(&painted(text)).to_string(),
            text
        );
    }
}
