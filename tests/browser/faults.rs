//! Faults of a page, from the events of its session.

use serde_json::Value;

use super::Page;

/// Kinds of console messages that are faults.
const COMPLAINTS: [&str; 3] = ["error", "warning", "assert"];

impl Page {
    /// Returns what the page did wrong so far: errors and warnings in the console, uncaught exceptions, and requests for
    /// anything but the page itself and `data:` and `blob:` addresses.
    #[track_caller]
    pub fn faults(&self) -> Vec<String> {
        // Rejected promises are reported after the frame in which they are.
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))");
        let events = self.session.events();
        let faults = events
            .iter()
            .filter_map(|event| fault_of(event, &self.address));
        faults.collect()
    }
}

/// Returns the fault that an event of the page at an address reports.
fn fault_of(event: &Value, address: &str) -> Option<String> {
    let parameters = &event["params"];
    match event["method"].as_str()? {
        "Runtime.consoleAPICalled" => {
            let kind = complaint(&parameters["type"])?;
            let text = console_text(&parameters["args"]);
            Some(format!("console.{kind}: {text}"))
        }
        "Log.entryAdded" => {
            let entry = &parameters["entry"];
            let kind = complaint(&entry["level"])?;
            Some(format!("{kind}: {} ({})", entry["text"], entry["url"]))
        }
        "Runtime.exceptionThrown" => {
            let text = exception_text(&parameters["exceptionDetails"]);
            Some(format!("uncaught exception: {text}"))
        }
        "Network.requestWillBeSent" => {
            let url = parameters["request"]["url"].as_str()?;
            let own = ["data:", "blob:"].iter().any(|own| url.starts_with(own)) || url == address;
            (!own).then(|| format!("request of {url}"))
        }
        _ => None,
    }
}

fn complaint(kind: &Value) -> Option<&str> {
    kind.as_str().filter(|kind| COMPLAINTS.contains(kind))
}

/// Returns the message and the stack of an exception.
pub(super) fn exception_text(details: &Value) -> String {
    let exception = &details["exception"];
    let texts = [
        &exception["description"],
        &exception["value"],
        &details["text"],
    ];
    let text = texts.into_iter().find(|text| !text.is_null());
    text.map_or_else(String::new, plain_text)
}

/// Returns the arguments of a call of the console.
fn console_text(arguments: &Value) -> String {
    let arguments = arguments.as_array().into_iter().flatten();
    let texts = arguments.map(|argument| match argument.get("value") {
        Some(value) => plain_text(value),
        None => plain_text(&argument["description"]),
    });
    texts.collect::<Vec<_>>().join(" ")
}

/// Returns a value as text, without quotes around strings.
fn plain_text(value: &Value) -> String {
    let text = value.as_str().map(String::from);
    text.unwrap_or_else(|| value.to_string())
}
