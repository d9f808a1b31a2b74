//! The surroundings of a page: dark screens, printers, odd paths and odd names.

use onionskin::nn::{Linear, ReLU, Sequential};
use onionskin::trace::{TracedTensor, trace};
use serde_json::json;

use crate::browser::Browser;
use crate::command::Folder;
use crate::{DIGITS, assert_no_faults, assert_selected, box_where, click_box, opened};

#[test]
fn a_dark_page_has_a_dark_ground() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-dark");
    let page = opened(&browser, &folder, DIGITS, &[]);
    let lightness = |property: &str| {
        let colour = page.evaluate(&format!(
            "getComputedStyle(document.body).{property}.match(/\\d+/g).slice(0, 3).map(Number)"
        ));
        let colour: Vec<u32> = serde_json::from_value(colour).unwrap();
        colour.iter().sum::<u32>()
    };
    assert!(lightness("backgroundColor") > lightness("color") + 300);
    page.set_dark(true);
    assert!(lightness("backgroundColor") + 300 < lightness("color"));
    assert_no_faults(&page);
}

/// A print shows the whole picture on one page; the window is then as before.
#[test]
fn a_print_is_one_page_with_the_whole_picture() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-print");
    let page = opened(&browser, &folder, DIGITS, &[]);
    page.click("#open-all");
    page.evaluate("picture.setView({ scale: 4, x: 0, y: 0 })");
    page.evaluate("new Promise(requestAnimationFrame)");
    let drawn = "[document.querySelectorAll('#picture .box').length, document.querySelector('#picture svg').getAttribute('viewBox')]";
    let before = page.evaluate(drawn);
    let during = "addEventListener('beforeprint', () => { window.printed = document.querySelectorAll('#picture .box').length; })";
    page.evaluate(during);
    let pdf = page.pdf();
    let boxes = page.evaluate("picture.scene.things.filter(one => one.kind == 'box').length");
    assert_eq!(page.evaluate("window.printed"), boxes);
    assert!(before[0].as_u64() < boxes.as_u64(), "{before}");
    assert_eq!(page.evaluate(drawn), before);
    assert_eq!(pages_of(&pdf), 1);
    assert!(pdf.len() > 10_000, "the print has {} bytes", pdf.len());
    assert_no_faults(&page);
}

/// Number of pages of a PDF file.
fn pages_of(pdf: &[u8]) -> usize {
    let text = String::from_utf8_lossy(pdf);
    let kinds = text.split("/Type /Page").skip(1);
    kinds.filter(|rest| !rest.starts_with('s')).count()
}

/// Names of modules are texts, whatever they contain; so is the name of the file.
#[test]
fn odd_names_are_texts() {
    const NAME: &str = "</script><script>hacked=1</script><img src=x onerror=hacked=1>";
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view names, 100 % #1");
    let inner = Sequential::new()
        .named(NAME, Linear::new(3, 3))
        .add(ReLU::new());
    let net = Sequential::new()
        .named("&lt;b>", inner)
        .add(Linear::new(3, 2));
    let traced = trace(&net, TracedTensor::from([[1f32, 2.0, 3.0]])).unwrap();
    let name = "a <b>model & 'more', 100 % #1?.json";
    traced.module.save(folder.path(name)).unwrap();
    let page = opened(&browser, &folder, &folder.file(name), &[]);
    assert_eq!(
        page.evaluate("document.querySelector('#title').textContent"),
        name
    );
    page.click("#open-all");
    let linear = box_where(
        &page,
        &format!("box => box.module?.includes({})", json!(NAME)),
    );
    click_box(&page, linear);
    assert_selected(&page, linear);
    let details = page.evaluate("document.querySelector('#details').innerText");
    assert!(details.as_str().unwrap().contains(NAME), "{details}");
    page.reload();
    assert_selected(&page, linear);
    page.click("#search");
    page.type_text("<img");
    page.press("Enter");
    assert_eq!(page.evaluate("typeof hacked"), "undefined");
    assert_no_faults(&page);
}
