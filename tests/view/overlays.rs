//! Overlays: outputs of other commands over the picture.

use onionskin::gpu::adapters;
use serde_json::json;

use crate::browser::{Browser, Page};
use crate::command::{Folder, onionskin};
use crate::{DIGITS, assert_no_faults, box_where, click_box, opened};

const FROZEN: &str = "tests/fixtures/archives/frozen.pt";

/// Writes what a command prints to a file and returns its path.
#[track_caller]
fn output(folder: &Folder, name: &str, arguments: &[&str]) -> String {
    let (_, text, error) = onionskin(arguments);
    assert!(text.starts_with('{'), "{error}");
    let path = folder.file(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Ids of the choices, the chosen one, and whether there is a legend.
#[track_caller]
fn chosen(page: &Page) -> (Vec<String>, Vec<String>, bool) {
    let state = page.evaluate(
        "[[...document.querySelectorAll('#overlays button')].map(one => one.dataset.overlay),
          [...document.querySelectorAll('#overlays button[aria-checked=true]')].map(one => one.dataset.overlay),
          document.querySelector('#legend').textContent != '']",
    );
    serde_json::from_value(state).unwrap()
}

/// Chooses an overlay by a click, and checks that boxes have its colours and texts.
#[track_caller]
fn check_overlay(page: &Page, id: &str) {
    page.click(&format!("#overlays button[data-overlay={id}]"));
    let (_, checked, has_legend) = chosen(page);
    assert_eq!((checked, has_legend), (vec![id.to_string()], true));
    page.evaluate("new Promise(requestAnimationFrame)");
    let drawn = page.evaluate(
        "[...document.querySelectorAll('#picture text.mark')].map(one => [one.closest('.box').dataset.box, one.textContent])",
    );
    let wanted = page.evaluate(
        "Object.entries(picture.overlay?.marks ?? {}).filter(([index]) => document.querySelector(`#picture [data-box=\"${index}\"]`)).map(([index, [, text]]) => [index, text])",
    );
    let sorted = |list: serde_json::Value| {
        let mut list: Vec<(String, String)> = serde_json::from_value(list).unwrap();
        list.sort();
        list
    };
    assert_eq!(sorted(drawn), sorted(wanted));
}

/// Boxes with a mark of the overlay.
#[track_caller]
fn marks(page: &Page) -> u64 {
    let marks = page.evaluate("Object.keys(picture.overlay?.marks ?? {}).length");
    marks.as_u64().unwrap()
}

#[test]
fn every_overlay_marks_boxes() {
    let Some(browser) = Browser::open() else {
        return;
    };
    if adapters().is_empty() {
        println!("skipped: no adapter");
        return;
    }
    let folder = Folder::new("view-overlays");
    let files = [
        output(
            &folder,
            "profile.json",
            &["profile", DIGITS, "--random", "--json"],
        ),
        output(
            &folder,
            "compare.json",
            &["compare", DIGITS, "--random", "--values", "--json"],
        ),
        output(&folder, "plan.json", &["show", "--plan", "--json", DIGITS]),
    ];
    let arguments: Vec<&str> = files.iter().flat_map(|file| ["--overlay", file]).collect();
    let page = opened(&browser, &folder, DIGITS, &arguments);
    page.click("#open-all");
    let ids = ["type", "time", "error", "kernels", "memory"];
    assert_eq!(chosen(&page).0, ids);
    let convolution = box_where(&page, "box => box.operator == 'aten._convolution'");
    click_box(&page, convolution);
    for id in ["time", "error", "kernels", "memory"] {
        check_overlay(&page, id);
        assert!(marks(&page) > 0, "{id}");
    }
    let fill =
        format!("document.querySelector('#picture [data-box=\"{convolution}\"] rect').style.fill");
    page.click("#overlays button[data-overlay=time]");
    page.wait_for(&format!("{fill}.includes('color-mix')"));
    let details = page.evaluate("document.querySelector('#details').innerText");
    assert!(details.as_str().unwrap().contains("% of all"), "{details}");
    check_overlay(&page, "type");
    assert_eq!(page.evaluate(&fill), "");
    for id in ["time", "error", "kernels", "memory", "type"] {
        page.press("o");
        assert_eq!(chosen(&page).1, [id]);
    }
    assert_no_faults(&page);
}

#[test]
fn findings_are_at_their_boxes() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-findings");
    let check = output(
        &folder,
        "check.json",
        &["check", FROZEN, "--device", "cpu", "--json"],
    );
    let page = opened(&browser, &folder, FROZEN, &["--overlay", &check]);
    page.click("#open-all");
    check_overlay(&page, "findings");
    assert!(marks(&page) > 0);
    let at = "(_, i) => picture.overlay.marks[i] && data.findings.some(one => one.id == 'W0211' && one.boxes.includes(i))";
    click_box(&page, box_where(&page, at));
    let details = page.evaluate("document.querySelector('#details').innerText");
    let details = details.as_str().unwrap();
    assert!(
        details.contains("W0211") && details.contains("make_archives.py:9"),
        "{details}"
    );
    assert_no_faults(&page);
}

/// A page without a plan and files has nothing to choose from.
#[test]
fn colours_by_type_alone_are_no_choice() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-no-overlays");
    let page = opened(&browser, &folder, FROZEN, &["--no-plan"]);
    assert_eq!(chosen(&page).0, [""; 0]);
    let categories = page.evaluate("document.querySelectorAll('#legend i').length");
    assert_ne!(categories, json!(0));
    assert_no_faults(&page);
}
