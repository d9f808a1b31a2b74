//! Tests of the page of `view` in a browser, as its users act.

#![cfg(feature = "cli")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip, and rates"
)]

mod browser;
mod command;
mod view_models;

#[path = "view/details.rs"]
mod details;
#[path = "view/frames.rs"]
mod frames;
#[path = "view/models.rs"]
mod models;
#[path = "view/navigation.rs"]
mod navigation;
#[path = "view/overlays.rs"]
mod overlays;
#[path = "view/search.rs"]
mod search;
#[path = "view/surroundings.rs"]
mod surroundings;

use std::sync::Arc;

use browser::{Browser, Page};
use command::{Folder, onionskin};
use serde_json::{Value as Json, json};

/// A trained network with convolutions, whose source is in this repository.
const DIGITS: &str = "examples/digits/digits.pt";

/// Writes the page of a model and returns its path.
fn written(folder: &Folder, model: &str, arguments: &[&str]) -> String {
    let path = folder.file("page.html");
    let view = ["view", model, "-o", &path, "--force"];
    let (code, _, error) = onionskin(&[view.as_slice(), arguments].concat());
    assert_eq!(code, 0, "{error}");
    path
}

/// Writes the page of a model and opens it in a window of usual size.
fn opened(browser: &Arc<Browser>, folder: &Folder, model: &str, arguments: &[&str]) -> Page {
    browser.page(&written(folder, model, arguments), 1280, 800)
}

/// Returns the number of the first box for which a JavaScript function is true.
#[track_caller]
fn box_where(page: &Page, condition: &str) -> u64 {
    let found = page.evaluate(&format!("data.boxes.findIndex({condition})"));
    match found.as_u64() {
        Some(index) => index,
        None => panic!("no box satisfies {condition}"),
    }
}

/// Returns the number of boxes for which a JavaScript function is true.
#[track_caller]
fn count_where(page: &Page, condition: &str) -> u64 {
    let count = page.evaluate(&format!("data.boxes.filter({condition}).length"));
    count.as_u64().unwrap()
}

/// Moves a box, which is in the picture, to the middle of the window. Returns the point of its title.
#[track_caller]
fn centred(page: &Page, index: u64) -> (f64, f64) {
    let expression = format!(
        "(async index => {{
          picture.centre(index);
          await new Promise(requestAnimationFrame);
          const [host, place, {{ x, y, scale }}] = [picture.host.getBoundingClientRect(), picture.scene.place.get(index), picture.view];
          const down = Math.min(place.height / 2, HEAD / 2);
          return [host.x + (place.x + place.width / 2 - x) * scale, host.y + (place.y + down - y) * scale];
        }})({index})"
    );
    serde_json::from_value(page.evaluate(&expression)).unwrap()
}

/// Clicks the title of a box, which is in the picture.
#[track_caller]
fn click_box(page: &Page, index: u64) {
    let (x, y) = centred(page, index);
    page.click_at(x, y);
}

/// Checks that a box is selected: in the picture, in the list, in the address and in the details.
#[track_caller]
fn assert_selected(page: &Page, index: u64) {
    let state = format!(
        "[picture.selected, Number(document.querySelector('#rows [aria-selected=true]')?.dataset.box),
          decodeURIComponent(location.hash) == '#' + anchorOf({index}), picture.scene.place.has({index}),
          document.querySelector('#details h2').textContent == (data.boxes[{index}].operator ?? data.boxes[{index}].label)]"
    );
    assert_eq!(
        page.evaluate(&state),
        json!([index, index, true, true, true])
    );
}

/// Checks that boxes of a level do not overlap, and that lines lead from the makers of values to their readers.
#[track_caller]
fn assert_drawn_right(page: &Page) {
    let faults = page.evaluate(include_str!("view/geometry.js"));
    assert_eq!(faults, Json::Array(Vec::new()));
}

/// Checks that the page has had no faults.
#[track_caller]
fn assert_no_faults(page: &Page) {
    assert_eq!(page.faults(), [""; 0]);
}
