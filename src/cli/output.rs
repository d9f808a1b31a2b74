//! Output of the commands. Colours go to terminals only, and not where `NO_COLOR` or `TERM=dumb` forbids them;
//! `CLICOLOR_FORCE` forces them.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anstyle::{AnsiColor, Style};

use crate::error::{Error, Result};

/// True if standard output is for a file that the command writes.
static IS_GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// The first error of standard output.
static FAILURE: Mutex<Option<std::io::Error>> = Mutex::new(None);

/// Lets all lines go to standard error, since standard output is for a file that the command writes.
pub(super) fn give_up_standard_output() {
    IS_GIVEN_UP.store(true, Ordering::Relaxed);
}

/// Prints a line on standard output. [`finish`] returns its error.
pub(super) fn line(text: &str) {
    if IS_GIVEN_UP.load(Ordering::Relaxed) {
        let _ = writeln!(anstream::stderr().lock(), "{text}");
        return;
    }
    keep_error(writeln!(anstream::stdout().lock(), "{text}"));
}

/// Keeps the first error of standard output. A closed pipe is none: whoever read it has seen enough.
fn keep_error(written: std::io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        let mut failure = FAILURE.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
    }
}

/// Writes out what standard output still holds.
///
/// # Errors
/// Something could not be written, by now or before.
pub(super) fn finish() -> Result<()> {
    keep_error(std::io::stdout().flush());
    let mut failure = FAILURE.lock().unwrap_or_else(PoisonError::into_inner);
    let error = |error| {
        Error::io("standard output", error).help("the output is incomplete: check where it goes")
    };
    failure.take().map_or(Ok(()), |failed| Err(error(failed)))
}

/// Prints the help, the version, or an error of the arguments that the parser found. Returns the exit code.
pub(super) fn parser_message(message: &clap::Error) -> Result<ExitCode> {
    let printed = message.print();
    if !message.use_stderr() {
        keep_error(printed);
        finish()?;
    }
    Ok(ExitCode::from(
        u8::try_from(message.exit_code()).unwrap_or(2),
    ))
}

/// Prints a coloured line on standard error, whose errors nobody could be told.
pub(super) fn note(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{}", colourize(text));
}

/// Formats a number with a comma between groups of three digits: `25,557,032`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let places = digits.len();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (places - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Wraps a text into lines of at most `width` columns; longer words get lines of their own. The first line begins with
/// `head`, the others with as many spaces.
pub(super) fn wrapped(text: &str, head: &str, width: usize) -> Vec<String> {
    let indent = " ".repeat(head.chars().count());
    let mut lines = vec![head.to_string()];
    let mut is_start = true;
    for word in text.split_whitespace() {
        let last = lines.last_mut();
        let fits = |line: &str| line.chars().count() + 1 + word.chars().count() <= width;
        match last {
            Some(line) if is_start => line.push_str(word),
            Some(line) if fits(line) => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{indent}{word}")),
        }
        is_start = false;
    }
    lines
}

/// Prints an error with its trail and help. Further lines of a message or a help are indented.
pub(super) fn report(error: &Error) {
    for error in error.iter() {
        let (id, title) = (error.kind().id(), error.kind().title());
        note(&format!("error[{id}] {title}: {}", error.message()));
        for frame in error.context() {
            note(&format!("  at {frame}"));
        }
        if let Some(help) = error.advice() {
            note(&format!("  help: {}", help.replace('\n', "\n  ")));
        }
    }
}

/// Words that are coloured at the beginning of a line.
const COLOURED_WORDS: &[(&str, AnsiColor)] = &[
    ("error", AnsiColor::Red),
    ("DIFF", AnsiColor::Red),
    ("FAILED", AnsiColor::Red),
    ("warning", AnsiColor::Yellow),
    ("help:", AnsiColor::Cyan),
    ("note:", AnsiColor::Cyan),
    ("ok ", AnsiColor::Green),
];

/// Colours the beginnings of lines: errors, warnings, ids, help, verdicts.
pub(super) fn colourize(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(colourize_line).collect();
    lines.join("\n")
}

fn colourize_line(line: &str) -> String {
    let start = line.trim_start();
    let found = COLOURED_WORDS
        .iter()
        .find(|(word, _)| start.starts_with(word));
    let Some((word, color)) = found else {
        return line.to_string();
    };
    // `error` and `warning` are coloured only with an id, which is coloured too, or before a colon.
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
    format!("{indent}{}{tail}", bold(head, *color))
}

/// Formats a text in bold and in a colour.
pub(super) fn bold(text: &str, color: AnsiColor) -> String {
    let style = Style::new().fg_color(Some(color.into())).bold();
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_of_lines_have_colours() {
        let paints = |text: &str| colourize(text) != text;
        assert!(paints("error[E0101] malformed data: x") && paints("  help: do it"));
        assert!(paints("a line\n  warning: 1 of 2 values is NaN") && paints("  DIFF output"));
        assert!(!paints("errors were found") && !paints("an error[E0101]") && !paints("okay"));
        let text = "error[E0101] x";
        assert_eq!(
            anstream::adapter::strip_str(&colourize(text)).to_string(),
            text
        );
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(25_557_032), "25,557,032");
    }

    #[test]
    fn lines_are_broken_between_words() {
        let lines = wrapped("one two three-and-a-half four", "- ", 10);
        assert_eq!(lines, ["- one two", "  three-and-a-half", "  four"]);
        assert_eq!(wrapped("", "- ", 10), ["- "]);
    }
}
