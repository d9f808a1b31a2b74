//! Generates the list of findings from the catalogue.

use onionskin::trace::check::{CatalogEntry, entries};

/// Returns a table of the ids, and a section for each.
pub fn list() -> String {
    let rows = entries().into_iter().map(|entry| {
        let (id, severity, title) = (entry.code, entry.severity, entry.title);
        let found_in = entry.found_in();
        format!(
            "| [`{id}`](#{}) | {severity} | {found_in} | {title} |\n",
            anchor(entry)
        )
    });
    let head = "| id | severity | found in | title |\n|---|---|---|---|\n";
    let sections = entries().into_iter().map(section);
    format!(
        "{head}{}{}",
        rows.collect::<String>(),
        sections.collect::<String>()
    )
}

fn section(entry: &CatalogEntry) -> String {
    let CatalogEntry {
        code,
        title,
        cause,
        example,
        cure,
        ..
    } = entry;
    let example = example
        .lines()
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join("\n");
    let in_rust = entry.rust_cure;
    let in_rust = in_rust.map_or_else(String::new, |cure| format!("\n**Cure in Rust**: {cure}\n"));
    format!(
        "\n### {code} {title}\n\n{cause}\n\n```text\n{example}\n```\n\n**Cure**: {cure}\n{in_rust}"
    )
}

/// Returns the anchor of an entry's heading.
fn anchor(entry: &CatalogEntry) -> String {
    let words = format!("{} {}", entry.code, entry.title).to_lowercase();
    let kept = words
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
