//! Tests of the pages that commands write, in a browser: they need nothing from outside, and do what a user asks of them.

#![cfg(feature = "cli")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod browser;
mod command;

#[path = "pages/driver.rs"]
mod driver;

use browser::{Browser, Page};
use command::{Folder, onionskin};
use onionskin::gpu::adapters;
use serde_json::json;

const FROZEN: &str = "tests/fixtures/archives/frozen.pt";
const TWO_LAYERS: &str = "tests/fixtures/archives/two_layers.pt";

#[test]
fn a_report_of_a_check_leads_from_findings_to_the_graph() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("report-page");
    let file = folder.file("report.html");
    let (code, _, error) = onionskin(&["check", FROZEN, "--device", "cpu", "--html", &file]);
    assert_eq!(code, 0, "{error}");
    let page = browser.page(&file, 1000, 700);
    assert_eq!(page.evaluate("document.title"), "frozen.pt: warned");
    page.click("#finding-0 summary");
    page.wait_for("document.querySelector('#finding-0 details').open");
    page.click("#finding-0 a[href^='#value-']");
    page.wait_for("data.findings[0].boxes.includes(viewer.picture.selected)");
    page.wait_for("document.querySelector('#picture .selected')");
    let picture = "document.querySelector('#picture').getBoundingClientRect()";
    page.wait_for(&format!(
        "0 <= {picture}.top && {picture}.bottom <= innerHeight"
    ));
    page.wait_for("document.querySelector('#details .finding.warning')");
    assert_differs_in_the_dark(&page);
    assert_eq!(page.faults(), [""; 0]);
}

#[test]
fn a_profile_sorts_its_tables_and_zooms_its_timeline() {
    let Some(browser) = Browser::open() else {
        return;
    };
    if adapters().is_empty() {
        println!("skipped: no adapter");
        return;
    }
    let folder = Folder::new("profile-page");
    let file = folder.file("profile.html");
    let profile = ["profile", TWO_LAYERS, "--shape", "f32[2, 4]"];
    let (code, _, error) = onionskin(&[profile.as_slice(), &["--html", &file]].concat());
    assert_eq!(code, 0, "{error}");
    let page = browser.page(&file, 1000, 700);
    assert_eq!(page.evaluate("document.title"), "two_layers.pt: profile");
    for order in [1, -1] {
        page.click("#table th:last-child");
        assert_eq!(page.evaluate(&names_in_order(order)), true);
    }
    page.click("#tabs button:nth-child(2)");
    page.wait_for("document.querySelector('#table th:last-child').textContent == 'module'");
    check_timeline(&page);
    assert_differs_in_the_dark(&page);
    assert_eq!(page.faults(), [""; 0]);
}

/// An expression that is true if the names in the table ascend (1) or descend (-1).
fn names_in_order(order: i32) -> String {
    format!(
        "[...document.querySelectorAll('#table td:last-child')].map(cell => cell.textContent)
          .every((name, i, all) => i == 0 || {order} * all[i - 1].localeCompare(name) <= 0)"
    )
}

/// Zooms by the wheel, moves by dragging and by a key, and shows everything again.
fn check_timeline(page: &Page) {
    let range = || page.evaluate("[from, to, last]");
    let whole = range();
    assert_eq!((&whole[0], &whole[1]), (&json!(0), &whole[2]));
    let (x, y) = page.centre("#timeline canvas");
    page.wheel(x, y, 0.0, -400.0);
    page.wait_for("0 < from && to < last");
    let zoomed = range();
    page.drag((x, y), (x - 60.0, y), 5);
    assert!(zoomed[0].as_f64() < range()[0].as_f64(), "{zoomed}");
    let moved = range();
    page.click("#timeline canvas");
    page.press("ArrowLeft");
    assert!(range()[0].as_f64() < moved[0].as_f64(), "{moved}");
    page.double_click_at(x, y);
    assert_eq!(range(), whole);
}

/// Checks that the text changes its colour with the user's preference.
fn assert_differs_in_the_dark(page: &Page) {
    let colour = || page.evaluate("getComputedStyle(document.body).color");
    let light = colour();
    page.set_dark(true);
    assert_ne!(colour(), light);
    page.set_dark(false);
}
