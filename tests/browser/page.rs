//! A page in a window of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::connection::Session;
use super::faults::exception_text;
use super::{Browser, TIME_LIMIT, base64};

/// An open page. Its window closes when this is dropped.
pub struct Page {
    browser: Arc<Browser>,
    pub(super) session: Session,
    /// The browser's name for the page's window, storage and cache.
    context: String,
    /// Address without a fragment, as requests have it.
    pub(super) address: String,
}

impl Page {
    #[track_caller]
    pub(super) fn open(browser: Arc<Browser>, path_or_url: &str, width: u32, height: u32) -> Page {
        let create = |method: &str, parameters, id: &str| {
            let created = browser.call(method, parameters);
            created[id].as_str().unwrap_or_default().to_string()
        };
        let context = create("Target.createBrowserContext", json!({}), "browserContextId");
        let target = json!({"url": "about:blank", "browserContextId": context, "newWindow": true});
        let target = create("Target.createTarget", target, "targetId");
        let attach = json!({"targetId": target, "flatten": true});
        let session = create("Target.attachToTarget", attach, "sessionId");
        let url = url_of(path_or_url);
        let page = Page {
            session: browser.connection.session(&session),
            browser,
            context,
            address: url.split('#').next().unwrap().to_string(),
        };
        page.prepare(width, height);
        page.load("Page.navigate", json!({"url": url}));
        page
    }

    #[track_caller]
    fn prepare(&self, width: u32, height: u32) {
        for domain in ["Inspector", "Log", "Network", "Page", "Runtime"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let focused = json!({"enabled": true});
        self.call("Emulation.setFocusEmulationEnabled", focused);
        self.set_dark(false);
    }

    /// Calls a method that loads the page, and waits for its `load` event.
    #[track_caller]
    fn load(&self, method: &str, parameters: Value) {
        let seen = self.session.event_count();
        let result = self.call(method, parameters);
        if let Some(error) = result["errorText"].as_str() {
            panic!("{} does not load: {error}", self.address);
        }
        self.session.wait_for_event("Page.loadEventFired", seen);
    }

    /// Calls a method of the DevTools protocol for this page. Returns its result.
    #[track_caller]
    pub(super) fn call(&self, method: &str, parameters: Value) -> Value {
        self.session.call(method, parameters)
    }

    /// Loads the page again. Storage stays.
    #[track_caller]
    pub fn reload(&self) {
        self.load("Page.reload", json!({}));
    }

    /// Returns the value of a JavaScript expression, or of its promise. `undefined` is null.
    ///
    /// # Panics
    /// The expression throws, or its value has no JSON form.
    #[track_caller]
    pub fn evaluate(&self, expression: &str) -> Value {
        match self.try_evaluate(expression) {
            Ok(value) => value,
            Err(error) => panic!("{error}\nin: {expression}"),
        }
    }

    #[track_caller]
    fn try_evaluate(&self, expression: &str) -> Result<Value, String> {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true});
        let mut answer = self.call("Runtime.evaluate", parameters);
        if let Some(exception) = answer.get("exceptionDetails") {
            return Err(exception_text(exception));
        }
        if let Some(number) = answer["result"].get("unserializableValue") {
            return Err(format!("the value is {number}, which has no JSON form"));
        }
        Ok(answer["result"]["value"].take())
    }

    /// Waits until a JavaScript expression is true. While it throws, it is not.
    #[track_caller]
    pub fn wait_for(&self, condition: &str) {
        let end = Instant::now() + TIME_LIMIT;
        loop {
            let value = self.try_evaluate(&format!("Boolean({condition})"));
            if value == Ok(json!(true)) {
                return;
            }
            if Instant::now() > end {
                let seconds = TIME_LIMIT.as_secs();
                let faults = self.faults().join("\n");
                panic!(
                    "after {seconds} s `{condition}` is {value:?}; the page's faults:\n{faults}"
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sets whether the user prefers a dark page; a new page is light.
    #[track_caller]
    pub fn set_dark(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": value}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Writes the visible part of the page to a PNG file.
    #[track_caller]
    pub fn screenshot(&self, path: impl AsRef<Path>) {
        let picture = self.call("Page.captureScreenshot", json!({"format": "png"}));
        std::fs::write(path, decoded(&picture)).unwrap();
    }

    /// Returns the page printed as a PDF file.
    #[track_caller]
    pub fn pdf(&self) -> Vec<u8> {
        let options = json!({"printBackground": true, "preferCSSPageSize": true});
        decoded(&self.call("Page.printToPDF", options))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let context = json!({"browserContextId": self.context});
        self.browser
            .try_call("Target.disposeBrowserContext", context);
    }
}

/// Returns the bytes of a file in an answer of the browser.
#[track_caller]
fn decoded(answer: &Value) -> Vec<u8> {
    base64::decode(answer["data"].as_str().unwrap_or_default())
}

/// Returns the address of a path; addresses stay.
#[track_caller]
fn url_of(path_or_url: &str) -> String {
    let is_url = ["file:", "data:", "about:"]
        .iter()
        .any(|scheme| path_or_url.starts_with(scheme));
    if is_url || path_or_url.contains("://") {
        return path_or_url.to_string();
    }
    let path = std::path::absolute(path_or_url).unwrap();
    let mut url = String::from("file://");
    for byte in path.to_str().unwrap().bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                url.push(char::from(byte));
            }
            other => url.push_str(&format!("%{other:02X}")),
        }
    }
    url
}
