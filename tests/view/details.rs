//! The details of an operator: everything that the graph, its weights, its source and its kernel say.

use onionskin::nn;
use serde_json::json;

use crate::browser::{Browser, Page};
use crate::command::Folder;
use crate::{DIGITS, assert_no_faults, assert_selected, box_where, click_box, opened};

const CONVOLUTION: &str =
    "box => box.operator == 'aten._convolution' && box.module == 'features.0'";

/// Returns the text of a section of the details, which ends at the next one.
#[track_caller]
fn section(page: &Page, title: &str) -> String {
    let text = page.evaluate(&format!(
        "(() => {{
          const all = [...document.querySelector('#details').children];
          const start = all.findIndex(one => one.tagName == 'H3' && one.textContent.startsWith('{title}'));
          if (start < 0) throw new Error(`no section {title} in ${{document.querySelector('#details').innerText}}`);
          const end = all.findIndex((one, at) => at > start && one.tagName == 'H3');
          return all.slice(start + 1, end < 0 ? all.length : end).map(one => one.innerText).join('\\n');
        }})()"
    ));
    text.as_str().unwrap().to_string()
}

#[test]
fn an_operator_has_attributes_values_weights_and_source() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-details");
    let page = opened(&browser, &folder, DIGITS, &[]);
    page.click("#open-all");
    let convolution = box_where(&page, CONVOLUTION);
    click_box(&page, convolution);
    assert_selected(&page, convolution);
    let attributes = section(&page, "Attributes");
    for line in [
        "stride\t[1, 1]",
        "padding\t[1, 1]",
        "groups\t1",
        "transposed\tfalse",
    ] {
        assert!(attributes.lines().any(|own| own == line), "{attributes}");
    }
    let inputs = section(&page, "Inputs");
    assert!(
        inputs.contains("image f32[image_0, 1, image_2, image_3]"),
        "{inputs}"
    );
    let outputs = section(&page, "Outputs");
    assert!(
        outputs.contains("input f32[image_0, 16, image_2, image_3]"),
        "{outputs}"
    );
    check_weights(&page);
    let source = section(&page, "Source");
    assert!(
        source.starts_with("examples/digits/train.py:59"),
        "{source}"
    );
    let program = std::fs::read_to_string("examples/digits/train.py").unwrap();
    let line = program.lines().nth(58).unwrap().trim();
    let marked = page.evaluate("document.querySelector('#details pre .at').textContent");
    assert!(marked.as_str().unwrap().contains(line), "{marked}");
    follow_links(&page, convolution);
    assert_no_faults(&page);
}

/// Checks the figures and the histogram of the filter against its elements.
#[track_caller]
fn check_weights(page: &Page) {
    let weights = nn::load("examples/digits/digits.pt").unwrap();
    let elements = weights["features.0.weight"].to_f64();
    let least = elements.iter().copied().fold(f64::MAX, f64::min);
    let most = elements.iter().copied().fold(f64::MIN, f64::max);
    let mean = elements.iter().sum::<f64>() / elements.len() as f64;
    let text = section(page, "Weights");
    assert!(
        text.contains("features.0.weight") && text.contains("features.0.bias"),
        "{text}"
    );
    assert!(text.contains("f32[16, 1, 3, 3]"), "{text}");
    for number in [least, most, mean] {
        let number = page.evaluate(&format!("String(Number(({number}).toPrecision(4)))"));
        assert!(
            text.contains(number.as_str().unwrap()),
            "{number} is not in {text}"
        );
    }
    let bars = "document.querySelector('#details .weight svg').querySelectorAll('rect').length";
    assert_eq!(page.evaluate(bars), 32);
    let counted = "data.weights.find(one => one.name == 'features.0.weight').summary.histogram.reduce((a, b) => a + b)";
    assert_eq!(page.evaluate(counted), json!(elements.len()));
}

/// Follows the links in the details to the reader of the output and back.
#[track_caller]
fn follow_links(page: &Page, convolution: u64) {
    let norm = "box => box.operator == 'aten.batch_norm' && box.module == 'features.1'";
    click_link(page, "Outputs");
    assert_selected(page, box_where(page, norm));
    click_link(page, "Inputs");
    assert_selected(page, convolution);
}

/// Clicks the first link of a section of the details.
#[track_caller]
fn click_link(page: &Page, title: &str) {
    page.evaluate(&format!(
        "[...document.querySelectorAll('#details h3')].find(one => one.textContent == '{title}').nextElementSibling.id = 'section'"
    ));
    page.click("#section .link");
}

#[test]
fn an_operator_has_the_source_of_its_kernel() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("view-kernel");
    let page = opened(&browser, &folder, DIGITS, &[]);
    page.click("#open-all");
    click_box(&page, box_where(&page, CONVOLUTION));
    let kernel = section(&page, "Kernel");
    assert!(
        kernel.contains("workgroups") && kernel.contains("fused with"),
        "{kernel}"
    );
    page.click("#details details summary");
    let wgsl = page.evaluate("document.querySelector('#details details[open] pre').innerText");
    let wgsl = wgsl.as_str().unwrap();
    assert!(
        wgsl.contains("@compute") && wgsl.contains("fn main("),
        "{wgsl}"
    );
    assert_no_faults(&page);
}
