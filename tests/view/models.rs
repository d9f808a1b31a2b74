//! Pages of real networks and of large graphs: they open fast and without faults, their boxes and lines are where they belong,
//! and they move smoothly.

use std::sync::Arc;

use crate::browser::{Browser, Page};
use crate::command::Folder;
use crate::frames::check_moves;
use crate::{
    assert_drawn_right, assert_no_faults, assert_selected, box_where, click_box, opened,
    view_models, written,
};

/// The longest time to the first text or picture, in milliseconds.
const FIRST_PAINT_MS: f64 = 1000.0;

/// Opens the page of a model and checks all that holds for every model.
fn check_page(browser: &Arc<Browser>, folder: &Folder, model: &str) -> Page {
    let page = opened(browser, folder, model, &[]);
    let name = model.rsplit('/').next().unwrap();
    let title = page.evaluate("document.title");
    assert!(title.as_str().unwrap().contains(name), "{title}");
    let first_paint = fastest(|| {
        page.reload();
        page.first_paint_ms()
    });
    println!("{name}: first paint after {first_paint:.0} ms");
    assert!(first_paint < FIRST_PAINT_MS, "{first_paint} ms");
    assert_drawn_right(&page);
    page.click("#open-all");
    page.wait_for(
        "picture.boxes.every((_, i) => !picture.isContainer(i) || picture.opened.has(i))",
    );
    let count = "data.boxes.filter(box => box.operator).length";
    page.wait_for(&format!(
        "document.querySelector('#count').textContent == `${{{count}}} operators`"
    ));
    assert_drawn_right(&page);
    page
}

/// Opens a module by a click on its box, and closes it by another one.
fn check_a_module(page: &Page) {
    page.click("#close-all");
    let module = box_where(
        page,
        "(box, i) => box.kind == 'module' && picture.scene.place.has(i)",
    );
    let opened = format!("picture.opened.has({module})");
    assert_eq!(page.evaluate(&opened), false);
    click_box(page, module);
    assert_eq!(page.evaluate(&opened), true);
    assert_selected(page, module);
    assert_drawn_right(page);
    click_box(page, module);
    assert_eq!(page.evaluate(&opened), false);
}

/// Opens and closes modules at random. The numbers are those of a linear congruential generator.
fn check_random_modules(page: &Page) {
    for seed in 1..=6 {
        page.evaluate(&format!(
            "(seed => {{
              picture.boxes.forEach((_, index) => {{
                seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
                if (!picture.roots.includes(index)) picture.setOpen(index, seed >= 2 ** 31);
              }});
              picture.build();
            }})({seed})"
        ));
        assert_drawn_right(page);
    }
}

fn fastest(measure: impl Fn() -> f64) -> f64 {
    [(); 3]
        .map(|()| measure())
        .into_iter()
        .fold(f64::MAX, f64::min)
}

#[test]
fn resnet50() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-resnet50");
    let model = view_models::resnet50(&folder);
    let size = std::fs::metadata(written(&folder, &model, &[]))
        .unwrap()
        .len();
    assert!(size < 1_000_000, "the page has {size} bytes");
    let page = check_page(&browser, &folder, &model);
    check_random_modules(&page);
    check_a_module(&page);
    check_moves(&browser, &page);
    assert_no_faults(&page);
}

#[test]
fn bert() {
    check_network("view-bert", view_models::bert);
}

#[test]
fn gpt2() {
    check_network("view-gpt2", |folder| view_models::gpt2(folder, 12));
}

#[test]
fn a_loop_a_condition_and_a_scan() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-control-flow");
    let page = check_page(&browser, &folder, &view_models::control_flow(&folder));
    check_random_modules(&page);
    assert_no_faults(&page);
}

/// The check of boxes and lines finds a box that moved away or onto another one, and lines that are missing.
#[test]
fn a_wrong_picture_has_faults() {
    const FAULTS: [(&str, &[&str]); 4] = [
        (
            "things.filter(one => one.kind == 'line').forEach(one => { one.kind = 'none'; })",
            &["no line leads"],
        ),
        (
            "place.get(at).x += 1000",
            &["leaves 0", "starts at", "ends at"],
        ),
        ("place.set(at, place.get(other))", &["overlaps"]),
        (
            "things.find(one => one.kind == 'line').d += 'M0 0V20'",
            &["off its line", "nothing reads it"],
        ),
    ];
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-wrong");
    let page = opened(&browser, &folder, &view_models::control_flow(&folder), &[]);
    let at = box_where(
        &page,
        "box => box.operator == 'aten.neg' || box.operator == 'if'",
    );
    let other = box_where(&page, "box => box.operator == 'loop'");
    for (change, wanted) in FAULTS {
        page.evaluate(&format!(
            "(() => {{
              picture.build();
              const [{{ place, things }}, at, other] = [picture.scene, {at}, {other}];
              {change};
            }})()"
        ));
        let faults = page.evaluate(include_str!("geometry.js")).to_string();
        for fault in wanted {
            assert!(
                faults.contains(fault),
                "{change}: {fault} is not in {faults}"
            );
        }
    }
}

#[test]
fn a_scripted_archive() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-script");
    let (model, inputs) = (view_models::SCRIPT, view_models::SCRIPT_INPUTS);
    let page = opened(&browser, &folder, model, &inputs);
    page.click("#open-all");
    assert_drawn_right(&page);
    check_random_modules(&page);
    assert_no_faults(&page);
}

#[test]
fn a_large_graph_of_modules() {
    check_network("view-many-modules", view_models::many_modules);
}

#[test]
fn a_large_graph_without_modules() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-flat");
    let page = check_page(&browser, &folder, &view_models::flat(&folder));
    check_moves(&browser, &page);
    assert_no_faults(&page);
}

fn check_network(name: &str, model: impl Fn(&Folder) -> String) {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new(name);
    let page = check_page(&browser, &folder, &model(&folder));
    check_random_modules(&page);
    check_a_module(&page);
    check_moves(&browser, &page);
    assert_no_faults(&page);
}
