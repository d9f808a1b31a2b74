//! Ways to a box: its address, the keyboard and the list.

use serde_json::json;

use crate::browser::{Browser, Page};
use crate::command::Folder;
use crate::{assert_no_faults, assert_selected, box_where, click_box, opened, view_models};

const QUERY: &str =
    "box => box.operator == 'aten.linear' && box.module.endsWith('layer.7.attention.self.query')";

/// A link to an operator within closed modules selects it when it is opened.
#[test]
fn a_link_to_a_box_survives_a_reload() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-link");
    let page = opened(&browser, &folder, &view_models::bert(&folder), &[]);
    let query = box_where(&page, QUERY);
    let is_shown = format!("picture.scene.place.has({query})");
    assert_eq!(page.evaluate(&is_shown), false);
    page.click("#open-all");
    click_box(&page, query);
    assert_selected(&page, query);
    page.reload();
    assert_selected(&page, query);
    let module = box_where(&page, "box => box.module == 'encoder.layer.7.attention'");
    page.evaluate(&format!("location.hash = anchorOf({module})"));
    page.wait_for(&format!("picture.selected == {module}"));
    assert_selected(&page, module);
    page.reload();
    assert_selected(&page, module);
    // A click beside the boxes selects nothing.
    page.evaluate("picture.setView({ x: -2000, y: -2000 })");
    page.click("#picture");
    assert_eq!(
        page.evaluate("[picture.selected, location.hash]"),
        json!([null, ""])
    );
    page.reload();
    assert_eq!(page.evaluate("picture.selected"), json!(null));
    assert_no_faults(&page);
}

/// Every box has an address of its own.
#[test]
fn links_to_boxes_differ() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-links");
    for model in [
        view_models::bert(&folder),
        view_models::control_flow(&folder),
    ] {
        let page = opened(&browser, &folder, &model, &[]);
        let twice = "data.boxes.map((_, i) => anchorOf(i)).filter((link, i, all) => all.indexOf(link) != i)";
        assert_eq!(page.evaluate(twice), json!([]), "{model}");
    }
}

/// Presses a key until a condition holds.
#[track_caller]
fn press_until(page: &Page, key: &str, condition: &str) {
    for _ in 0..200 {
        if page.evaluate(condition) == true {
            return;
        }
        page.press(key);
    }
    panic!("200 times {key} do not lead to {condition}");
}

#[test]
fn the_keyboard_alone_reaches_an_operator() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-keyboard");
    let page = opened(&browser, &folder, &view_models::bert(&folder), &[]);
    let query = box_where(&page, QUERY);
    press_until(&page, "Tab", "document.activeElement.id == 'list'");
    // In the list, through the modules around it.
    let around = format!(
        "(() => {{
          const around = [];
          for (let at = data.boxes[{query}].parent; data.boxes[at].kind == 'module'; at = data.boxes[at].parent) around.unshift(at);
          return around;
        }})()"
    );
    let around: Vec<u64> = serde_json::from_value(page.evaluate(&around)).unwrap();
    assert!(around.len() > 3, "{around:?}");
    for module in around {
        press_until(&page, "ArrowDown", &format!("picture.selected == {module}"));
        page.press("ArrowRight");
        assert_eq!(
            page.evaluate(&format!("picture.opened.has({module})")),
            true
        );
    }
    press_until(&page, "ArrowDown", &format!("picture.selected == {query}"));
    assert_selected(&page, query);
    // In the picture, along a line and back to the module.
    press_until(&page, "Tab", "document.activeElement.id == 'picture'");
    let reader = format!("picture.readersOf(data.boxes[{query}].outputs[0])[0]");
    page.press("ArrowDown");
    assert_eq!(
        page.evaluate(&format!("picture.selected == {reader}")),
        true
    );
    page.press("ArrowUp");
    assert_selected(&page, query);
    page.press("Escape");
    assert_eq!(page.evaluate("picture.selected"), json!(null));
    assert_no_faults(&page);
}

#[test]
fn keys_open_zoom_and_help() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-keys");
    let page = opened(&browser, &folder, &view_models::gpt2(&folder, 2), &[]);
    let opened =
        "picture.boxes.filter((_, i) => picture.isContainer(i) && picture.opened.has(i)).length";
    let containers = page.evaluate("picture.boxes.filter((_, i) => picture.isContainer(i)).length");
    page.press("e");
    assert_eq!(page.evaluate(opened), containers);
    page.press("c");
    assert_eq!(page.evaluate(opened), 1);
    let scale = || page.evaluate("picture.view.scale").as_f64().unwrap();
    page.press("0");
    let whole = scale();
    page.press("+");
    assert!(scale() > whole);
    page.press("-");
    page.press("-");
    assert!(scale() < whole);
    page.press("?");
    assert_eq!(page.evaluate("document.querySelector('#keys').open"), true);
    page.press("Escape");
    page.wait_for("!document.querySelector('#keys').open");
    page.press("/");
    assert_eq!(page.evaluate("document.activeElement.id"), "search");
    assert_no_faults(&page);
}

#[test]
fn the_mouse_moves_and_zooms_the_picture() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-mouse");
    let page = opened(&browser, &folder, &view_models::gpt2(&folder, 2), &[]);
    let view = || -> [f64; 3] {
        let view = page.evaluate("[picture.view.x, picture.view.y, picture.view.scale]");
        serde_json::from_value(view).unwrap()
    };
    let (x, y) = page.centre("#picture");
    let [left, top, scale] = view();
    page.drag((x, y), (x - 60.0, y - 30.0), 3);
    assert_eq!(view(), [left + 60.0 / scale, top + 30.0 / scale, scale]);
    assert_eq!(page.evaluate("picture.selected"), json!(null));
    page.wheel(x, y, 0.0, 90.0);
    page.wait_for(&format!("picture.view.y > {}", top + 30.0 / scale));
    let [left, top, scale] = view();
    page.wheel_with("Control", x, y, -100.0);
    page.wait_for(&format!("picture.view.scale > {scale}"));
    // The point under the mouse stays, up to the pixel to which the browser rounds it.
    let [near_left, near_top, near_scale] = view();
    let host = page.evaluate("(box => [box.x, box.y])(picture.host.getBoundingClientRect())");
    let (x, y) = (x - host[0].as_f64().unwrap(), y - host[1].as_f64().unwrap());
    assert!((left + x / scale - near_left - x / near_scale).abs() < 1.0);
    assert!((top + y / scale - near_top - y / near_scale).abs() < 1.0);
    assert_no_faults(&page);
}

#[test]
fn the_list_opens_modules() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-list");
    let page = opened(&browser, &folder, &view_models::gpt2(&folder, 2), &[]);
    let row = "#rows .row[aria-expanded=false]";
    let index = page.evaluate(&format!(
        "Number(document.querySelector('{row}').dataset.box)"
    ));
    page.click(&format!("{row} .fold"));
    page.wait_for(&format!("picture.opened.has({index})"));
    assert_selected(&page, index.as_u64().unwrap());
    let expanded = format!("document.querySelector('#row-{index}').getAttribute('aria-expanded')");
    assert_eq!(page.evaluate(&expanded), "true");
    let child = format!("Number(document.querySelector('#row-{index} + .row').dataset.box)");
    let parent = format!("data.boxes[{child}].parent == {index}");
    assert_eq!(page.evaluate(&parent), true);
    assert_no_faults(&page);
}
