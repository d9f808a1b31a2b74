//! Compares the output of a command with that on a page. The rules:
//!
//! - `…` on a line of its own matches any lines.
//! - Times are written as `… ms`: they vary, and tests are not optimised. A number in front of `ulp` matches any number.
//! - A number behind `max abs` or `max rel` is a difference from PyTorch: at most ten times the written one.
//! - Decimal fractions match to three digits, or within 1e-5: devices round differently.
//! - Device names match each other: that on the pages, those of this machine's adapters, and the host's.
//! - In a block marked `volatile` only labels are compared: first words of lines, unless they are numbers, in any order.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use onionskin::gpu::adapters;

/// Name of the adapter on the pages.
const ADAPTER: &str = "llvmpipe (LLVM 15.0.6, 256 bits)";

/// Parts of an output that are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    All,
    Labels,
}

/// True if an output matches the written one.
pub fn output_matches(written: &str, found: &str, counts: Counts) -> bool {
    let found: Vec<&str> = found.lines().collect();
    let written: Vec<&str> = written.lines().collect();
    if counts == Counts::Labels {
        return labels(&written) == labels(&found);
    }
    let Some(gap) = written.iter().position(|line| *line == "…") else {
        return all_lines_match(&written, &found);
    };
    let (before, after) = (&written[..gap], &written[gap + 1..]);
    if found.len() < before.len() + after.len() {
        return false;
    }
    let tail = found.len() - after.len();
    all_lines_match(before, &found[..before.len()]) && all_lines_match(after, &found[tail..])
}

/// Returns an output as it is written to a page, with the page's `…`.
pub fn keep_gap(written: &str, found: &str) -> String {
    let old: Vec<&str> = written.lines().collect();
    let new: Vec<&str> = found.lines().collect();
    let kept: Vec<&str> = match old.iter().position(|line| *line == "…") {
        Some(gap) if old.len() <= new.len() => {
            let tail = new.len() - (old.len() - gap - 1);
            [&new[..gap], &["…"], &new[tail..]].concat()
        }
        _ => new,
    };
    kept.iter()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// Replaces each time in a text by `…`.
pub fn without_times(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let mut words: Vec<&str> = line.split(' ').collect();
        for at in 1..words.len() {
            let is_unit = is_time(words[at].trim_end_matches([',', ')', ';']));
            if is_unit && words[at - 1].parse::<f64>().is_ok() {
                words[at - 1] = "…";
            }
        }
        format!("{}\n", words.join(" "))
    });
    lines.collect()
}

fn is_time(unit: &str) -> bool {
    ["ms", "s", "µs"].contains(&unit)
}

fn labels<'a>(lines: &[&'a str]) -> BTreeSet<&'a str> {
    let words = lines
        .iter()
        .filter_map(|line| line.split_whitespace().next());
    words
        .filter(|word| word.starts_with(char::is_alphabetic))
        .collect()
}

fn all_lines_match(written: &[&str], found: &[&str]) -> bool {
    written.len() == found.len()
        && written
            .iter()
            .zip(found)
            .all(|(written, found)| line_matches(written, found))
}

fn line_matches(written: &str, found: &str) -> bool {
    let (written, found) = (without_device(written), without_device(found));
    let (written, found) = (tokens(&written), tokens(&found));
    written.len() == found.len()
        && (0..written.len()).all(|at| {
            let unit = written.get(at + 1).map_or("", String::as_str);
            let is_free = is_time(unit) || unit == "ulp";
            let label = at.checked_sub(1).map_or("", |before| &written[before]);
            words_match(&written[at], &found[at], is_free)
                || (["abs", "rel"].contains(&label) && is_within_tenfold(&written[at], &found[at]))
        })
}

fn without_device(line: &str) -> String {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let adapters = adapters().into_iter().map(|adapter| adapter.name);
        let known = [ADAPTER, "host interpreter"].map(str::to_string);
        adapters.chain(known).collect()
    });
    let replace = |line: String, name: &String| line.replace(name, "DEVICE");
    NAMES.iter().fold(line.to_string(), replace)
}

/// Splits a line into words and numbers; brackets and commas are tokens of their own.
fn tokens(line: &str) -> Vec<String> {
    let mut spread = String::new();
    for c in line.chars() {
        match c {
            '[' | ']' | '(' | ')' | ',' | '=' | ':' | '%' => spread += &format!(" {c} "),
            c => spread.push(c),
        }
    }
    spread.split_whitespace().map(str::to_string).collect()
}

fn words_match(written: &str, found: &str, any_number: bool) -> bool {
    match (written.parse::<f64>(), found.parse::<f64>()) {
        _ if written == found => true,
        (_, Ok(_)) if any_number && written == "…" => true,
        (Ok(_), Ok(_)) if any_number => true,
        (Ok(a), Ok(b)) if written.contains(['.', 'e']) && found.contains(['.', 'e']) => {
            (a - b).abs() <= 1e-3 * a.abs().max(b.abs()) + 1e-5
        }
        _ => false,
    }
}

/// True if a found difference is no more than ten times the written one.
fn is_within_tenfold(written: &str, found: &str) -> bool {
    match (written.parse::<f64>(), found.parse::<f64>()) {
        (Ok(written), Ok(found)) => found <= 10.0 * written,
        _ => false,
    }
}

#[test]
fn differences_may_be_smaller_and_not_much_larger() {
    let written = "ok   [0]: max abs 2.1e-5, max rel 2.6e-3, 23552 ulp";
    let found = "ok   [0]: max abs 1e-7, max rel 4.9e-3, 43008 ulp";
    assert!(output_matches(written, found, Counts::All));
    for found in [
        found.replace("4.9e-3", "4.9e-2"),
        found.replace("1e-7", "nan"),
    ] {
        assert!(!output_matches(written, &found, Counts::All));
    }
}

#[test]
fn times_and_adapters_differ() {
    let written = "on host interpreter, 12 ms from archive to numbers";
    let found = "on llvmpipe (LLVM 15.0.6, 256 bits), 345 ms from archive to numbers";
    assert!(output_matches(
        "max abs 1.1e-8, 24 ulp",
        "max abs 7.4e-9, 3 ulp",
        Counts::All
    ));
    assert!(output_matches(written, found, Counts::All));
    assert!(output_matches("took 12 ms", "took 7 ms", Counts::All));
    assert!(!output_matches(
        "took 12 steps",
        "took 7 steps",
        Counts::All
    ));
    assert!(output_matches(
        "took 12\n  1 a",
        "took 7\n  2 b",
        Counts::Labels
    ));
    assert!(!output_matches("took 12", "takes 12", Counts::Labels));
}

#[test]
fn fractions_are_close_and_integers_equal() {
    assert!(output_matches(
        "[0.123456, 2.5]",
        "[0.123457, 2.5]",
        Counts::All
    ));
    assert!(!output_matches(
        "[0.123456, 2.5]",
        "[0.133457, 2.5]",
        Counts::All
    ));
    assert!(!output_matches("f32[1, 10]", "f32[1, 11]", Counts::All));
    assert!(!output_matches("max 1.5", "max nan", Counts::All));
}

#[test]
fn gaps_stand_for_lines_and_are_kept() {
    assert!(output_matches("a\n…\nz", "a\nb\nc\nz", Counts::All));
    assert!(output_matches("a\n…", "a", Counts::All));
    assert!(!output_matches("a\n…\nz", "a\nb\nc", Counts::All));
    assert!(!output_matches("a\n…\na", "a", Counts::All));
    assert_eq!(keep_gap("x\n…\ny\n", "a\nb\nc\nz\n"), "a\n…\nz\n");
    assert_eq!(keep_gap("x\n", "a\nb\n"), "a\nb\n");
    let told = "took 12 ms (7 steps, 3.5 s)";
    assert_eq!(without_times(told), "took … ms (7 steps, … s)\n");
    assert!(output_matches(&without_times(told), told, Counts::All));
}
