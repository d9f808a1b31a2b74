//! The profile as a self-contained HTML page: timeline, ceilings, tables.

use serde_json::{Value, json};

use super::json as profile_json;
use super::tables::ProfileReport;
use super::timeline::{module_spans, span_name};
use crate::gpu::SpanKind;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Returns the HTML page of a model's profile.
pub(super) fn page(model: &str, measured: &ProfileReport) -> String {
    let data = data(model, measured).to_string();
    // A name may contain `</script>`, which would end the script.
    let data = data.replace("</", "<\\/");
    PAGE.replace("/* style */", STYLE)
        .replace("/* script */", SCRIPT)
        .replace("{{data}}", &data)
}

fn data(model: &str, measured: &ProfileReport) -> Value {
    let profile = &measured.fastest;
    let spans = profile.spans.iter().map(|span| {
        let step = match span.kind {
            SpanKind::Step(index) => Some(index),
            SpanKind::Readback(_) => None,
        };
        json!([
            step,
            span_name(profile, measured, span.kind),
            span.start,
            span.nanoseconds
        ])
    });
    let frames = module_spans(measured).into_iter();
    let frames = frames.map(|frame| {
        json!([
            frame.depth,
            frame.path,
            frame.start,
            frame.end - frame.start
        ])
    });
    json!({
        "model": model,
        "profile": profile_json(measured),
        "spans": spans.collect::<Value>(),
        "frames": frames.collect::<Value>(),
    })
}
