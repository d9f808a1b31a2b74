//! Tests README and `docs/`: links resolve, examples run, and their output is the output on the pages.
//!
//! `BLESS=1` writes the current outputs into the pages. `ONIONSKIN_PYTHON` names a Python with torch, torchvision and
//! transformers, which runs the Python blocks; without one, their files come from `tests/fixtures/docs`.

#![cfg(all(unix, feature = "cli"))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod command;
#[path = "docs/findings.rs"]
mod findings;
#[path = "docs/output_match.rs"]
mod output_match;
#[path = "docs/page.rs"]
mod page;
#[path = "docs/python.rs"]
mod python;
#[path = "docs/session.rs"]
mod session;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use page::{Page, pages};

#[test]
fn the_summary_lists_every_page() {
    let summary = Page::read("docs/SUMMARY.md");
    let listed: BTreeSet<String> = summary
        .links()
        .into_iter()
        .map(|link| link.target)
        .collect();
    let pages = pages().into_iter();
    let written: BTreeSet<String> = pages.filter_map(|page| page.in_docs()).collect();
    assert_eq!(listed, written);
}

#[test]
fn links_resolve() {
    let mut broken = Vec::new();
    for page in pages()
        .iter()
        .chain([&Page::read("docs/SUMMARY.md"), &Page::read("CHANGELOG.md")])
    {
        let links = page.links().into_iter();
        let links = links.filter(|link| !link.target.starts_with("http") && !page.leads_to(link));
        broken.extend(links.map(|link| format!("{}: {link:?}", page.path)));
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn readme_is_short() {
    let lines = Page::read("README.md").text.lines().count();
    assert!(lines <= 180, "{lines} lines");
}

/// Two tests write the checker's page under `BLESS=1`, each as it has read it.
static WRITTEN_PAGES: Mutex<()> = Mutex::new(());

#[test]
fn console_blocks_match_their_output() {
    let _lock = WRITTEN_PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut wrong = Vec::new();
    for page in pages() {
        wrong.extend(session::differences(&page));
    }
    assert!(
        wrong.is_empty(),
        "{}\nBLESS=1 writes today's output",
        wrong.join("\n")
    );
}

/// Every block has a language that determines its test: `console` and `python` run, `rust` is a doctest, `json` belongs to a
/// test, and `sh`, `toml` and `text` are not checked.
#[test]
fn blocks_have_known_languages() {
    const KNOWN: [&str; 7] = ["console", "python", "rust", "json", "sh", "toml", "text"];
    for page in pages() {
        for block in page.blocks() {
            assert!(
                KNOWN.contains(&block.language()),
                "{}:{}: {:?}",
                page.path,
                block.line,
                block.info
            );
        }
    }
}

#[test]
fn fixtures_were_made_by_the_python_blocks() {
    python::check();
}

#[test]
fn every_finding_is_listed() {
    let _lock = WRITTEN_PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    Page::read("docs/checker.md").expect_section("findings", &findings::list());
}

#[test]
fn the_json_example_runs() {
    let page = Page::read("docs/json-ir.md");
    let blocks = page.blocks().into_iter();
    let graphs: Vec<String> = blocks
        .filter(|block| block.language() == "json")
        .map(|block| block.text)
        .collect();
    assert!(!graphs.is_empty());
    let folder = command::Folder::new("json-ir");
    for (index, graph) in graphs.iter().enumerate() {
        let path = folder.path(&format!("{index}.json"));
        std::fs::write(&path, graph).unwrap();
        let (code, _, error) =
            command::onionskin(&["verify", path.to_str().unwrap(), "--device", "cpu"]);
        assert_eq!(code, 0, "{error}");
    }
}

/// Pages and their pictures are part of the package.
#[test]
fn pages_are_packaged_with_their_pictures() {
    for page in pages() {
        for picture in page.pictures() {
            let path = page.folder().join(&picture);
            assert!(
                Path::new(env!("CARGO_MANIFEST_DIR")).join(&path).exists(),
                "{}",
                path.display()
            );
        }
    }
}
