//! The search: by operator, module, source line, value and weight.

use serde_json::json;

use crate::browser::{Browser, Page};
use crate::command::Folder;
use crate::{assert_no_faults, assert_selected, count_where, opened, view_models};

/// Types a text into the empty search field.
#[track_caller]
fn search(page: &Page, text: &str) {
    page.click("#search");
    page.press("Control+a");
    page.press("Delete");
    page.type_text(text);
}

/// Searches a text and checks how many boxes are found, each of which satisfies a JavaScript function.
#[track_caller]
fn assert_found(page: &Page, text: &str, count: u64, condition: &str) {
    search(page, text);
    let unit = if count == 1 { "hit" } else { "hits" };
    let shown = page.evaluate("document.querySelector('#count').textContent");
    assert_eq!(shown, format!("{count} {unit}"), "{text}");
    assert_eq!(count_where(page, condition), count, "{text}");
    let all = format!("list.hits.map(index => data.boxes[index]).every({condition})");
    assert_eq!(page.evaluate(&all), true, "{text}");
}

#[test]
fn boxes_are_found_by_what_they_are() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-search");
    let page = opened(&browser, &folder, &view_models::gpt2(&folder, 3), &[]);
    assert_found(
        &page,
        "softmax",
        3,
        "box => box.operator?.startsWith('aten.softmax')",
    );
    assert_found(
        &page,
        "SoftMax h.2.attn",
        1,
        "box => box.operator?.startsWith('aten.softmax') && box.module.includes('.h.2.')",
    );
    let within = "box => (box.module ?? '').includes('h.1.mlp.act')";
    let count = count_where(&page, within);
    assert_found(&page, "h.1.mlp.act", count, within);
    let source =
        page.evaluate("data.boxes.find(box => box.operator?.startsWith('aten.softmax')).source");
    let (_, line) = source.as_str().unwrap().rsplit_once('/').unwrap();
    let at = format!("box => box.source?.endsWith('{line}')");
    assert_found(&page, line, count_where(&page, &at), &at);
    let reads = "box => (box.weights ?? []).some(([, weight]) => data.weights[weight].name == 'm.transformer.wte.weight')";
    assert_found(
        &page,
        "transformer.wte.weight",
        count_where(&page, reads),
        reads,
    );
    assert_found(&page, "no such thing", 0, "box => false");
    assert_no_faults(&page);
}

#[test]
fn enter_goes_from_hit_to_hit() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-hits");
    let page = opened(&browser, &folder, &view_models::gpt2(&folder, 3), &[]);
    let hits =
        "data.boxes.flatMap((box, i) => box.operator?.startsWith('aten.softmax') ? [i] : [])";
    let hits: Vec<u64> = serde_json::from_value(page.evaluate(hits)).unwrap();
    search(&page, "softmax");
    for (key, hit) in [
        ("Enter", 0),
        ("Enter", 1),
        ("Enter", 2),
        ("Enter", 0),
        ("Shift+Enter", 2),
    ] {
        page.press(key);
        assert_selected(&page, hits[hit]);
        assert_eq!(page.evaluate("document.activeElement.id"), "search");
    }
    page.press("Escape");
    let state = "[document.querySelector('#search').value, list.hits, document.querySelectorAll('.match').length]";
    assert_eq!(page.evaluate(state), json!(["", null, 0]));
    assert_selected(&page, hits[2]);
    assert_eq!(page.evaluate("document.activeElement.id"), "picture");
    assert_no_faults(&page);
}
