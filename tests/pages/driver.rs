//! Tests of the browser's driver: a page that notes what happens to it, and a page that does everything wrong.

use std::thread::sleep;
use std::time::Duration;

use serde_json::json;

use crate::browser::Browser;
use crate::command::Folder;

const NOTES: &str = r##"<!DOCTYPE html><meta charset="utf-8"><title>notes</title>
<button id="far" style="margin-top: 2000px">far</button> <input> <div id="box" style="height: 100px"></div>
<script>
  const notes = [];
  const note = event => notes.push([event.type, event.isTrusted, event.target.id]);
  for (const type of ["click", "dblclick"]) addEventListener(type, note);
  let wheel = 0;
  addEventListener("wheel", event => { wheel += event.deltaY; });
  const path = [];
  addEventListener("pointermove", event => { if (event.buttons) path.push([event.clientX, event.clientY]); });
  const keys = [];
  addEventListener("keydown", event => keys.push([event.key, event.ctrlKey, event.shiftKey]));
  const slow = ms => { const end = performance.now() + ms; while (performance.now() < end); };
</script>"##;

const WRONG: &str = r#"<!DOCTYPE html><meta charset="utf-8"><title>wrong</title>
<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw="> <img src="missing.png">
<script src="http://127.0.0.1:9/outside.js"></script>
<script>
  console.log("harmless");
  console.warn("a warning", 7);
  console.error("an error", { of: "x" });
  setTimeout(() => { throw new Error("in a timer"); });
  Promise.reject(new Error("in a promise"));
</script>"#;

/// Writes a page into a folder and returns its path.
fn written(folder: &Folder, text: &str) -> String {
    // Characters that an address writes in another way.
    let name = "a page, 100 % naïve #1.html";
    std::fs::write(folder.path(name), text).unwrap();
    folder.file(name)
}

#[test]
fn the_driver_acts_as_a_user() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("notes-page");
    let page = browser.page(&written(&folder, NOTES), 640, 480);
    assert_eq!(
        page.evaluate("[innerWidth, innerHeight]"),
        json!([640, 480])
    );
    page.click("#far");
    let (x, y) = page.centre("#box");
    page.double_click_at(x, y);
    let click = |id| json!(["click", true, id]);
    let double_click = json!(["dblclick", true, "box"]);
    let wanted = json!([click("far"), click("box"), click("box"), double_click]);
    assert_eq!(page.evaluate("notes"), wanted);
    page.drag((x, y), (x + 30.0, y - 15.0), 3);
    let path: Vec<(f64, f64)> = serde_json::from_value(page.evaluate("path")).unwrap();
    let steps = [1.0, 2.0, 3.0].map(|step| (x + 10.0 * step, y - 5.0 * step));
    assert_eq!(path, steps);
    page.wheel(x, y, 0.0, -120.0);
    page.wait_for("wheel == -120");
    page.click("input");
    page.type_text("Ab+ é");
    page.press("Control+a");
    page.press("Shift+ArrowLeft");
    let input = "(input => [input.value, input.selectionStart, input.selectionEnd])(document.querySelector('input'))";
    assert_eq!(page.evaluate(input), json!(["Ab+ é", 0, 4]));
    let keys = page.evaluate("[keys[0], keys.at(-2), keys.at(-1)]");
    let (capital, all) = (json!(["A", false, true]), json!(["a", true, false]));
    assert_eq!(keys, json!([capital, all, ["ArrowLeft", false, true]]));
    assert_eq!(page.faults(), [""; 0]);
}

#[test]
fn the_driver_reports_faults_of_a_page() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("wrong-page");
    let page = browser.page(&written(&folder, WRONG), 640, 480);
    let faults = page.faults();
    for fault in [
        "request of file:///",
        "request of http://127.0.0.1:9/outside.js",
        "console.warning: a warning 7",
        "console.error: an error Object",
        "uncaught exception: Error: in a timer",
        "uncaught exception: Error: in a promise",
        "Failed to load resource",
    ] {
        let count = faults.iter().filter(|found| found.contains(fault)).count();
        assert!(count > 0, "{fault} is not in {faults:#?}");
    }
    assert!(!faults.iter().any(|fault| fault.contains("harmless")));
    let own = faults.iter().any(|fault| fault.contains(".html\""));
    assert!(!own, "{faults:#?}");
}

#[test]
fn the_driver_measures_and_takes_pictures() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let folder = Folder::new("picture-page");
    let page = browser.page(&written(&folder, NOTES), 640, 480);
    assert!(page.first_paint_ms() > 0.0);
    let calm = page.frame_ms(|| sleep(Duration::from_millis(200)));
    assert!(calm.count >= 3 && calm.median >= 5.0, "{calm:?}");
    let busy = page.frame_ms(|| drop(page.evaluate("slow(300)")));
    assert!(
        busy.longest >= 290.0 && busy.median <= busy.longest,
        "{busy:?}"
    );
    let picture = folder.file("picture.png");
    page.screenshot(&picture);
    assert!(std::fs::read(picture).unwrap().starts_with(b"\x89PNG"));
    let pdf = page.pdf();
    assert!(pdf.starts_with(b"%PDF-") && pdf.trim_ascii_end().ends_with(b"%%EOF"));
    page.evaluate("localStorage.setItem('mark', 'x')");
    page.reload();
    assert_eq!(
        page.evaluate("[notes.length, localStorage.getItem('mark')]"),
        json!([0, "x"])
    );
    page.set_dark(true);
    assert_eq!(
        page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches"),
        true
    );
}

/// Windows of pages are all visible, so that each has frames.
#[test]
fn pages_show_frames_side_by_side() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let pages = [(); 3].map(|()| browser.page("data:text/html,<p>text", 300, 200));
    for page in &pages {
        page.evaluate("new Promise(requestAnimationFrame)");
        assert_eq!(page.evaluate("document.hasFocus()"), true);
    }
}
