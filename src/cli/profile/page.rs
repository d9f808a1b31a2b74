//! The profile as a self-contained HTML page: timeline, ceilings, tables, and the picture of the model.

use serde_json::{Value, json};

use super::json as profile_json;
use super::tables::ProfileReport;
use super::timeline::{module_spans, span_name};
use crate::error::Result;
use crate::gpu::SpanKind;
use crate::ir::{Graph, GraphModule};
use crate::view::{
    FIGURE, OverlayFile, PICTURE_SCRIPT, PICTURE_STYLE, Page, ViewOptions, page_data,
};

const BODY: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Returns the HTML page of a model's profile. `graph` is the profiled graph as it was imported.
///
/// # Errors
/// The picture of the model cannot be made.
pub(super) fn page(model: &str, measured: &ProfileReport, graph: &Graph) -> Result<String> {
    let data = data(model, measured, graph)?;
    let page = Page {
        title: &format!("{model}: profile"),
        styles: &[PICTURE_STYLE, STYLE],
        body: &BODY.replace("{{figure}}", FIGURE),
        data: Some(&data),
        scripts: &[PICTURE_SCRIPT, SCRIPT],
    };
    Ok(page.html())
}

/// The data of the model's picture, with the times as its overlay.
fn picture(model: &str, profile: &Value, graph: &Graph) -> Result<Value> {
    let module = GraphModule {
        graphs: vec![graph.clone()],
        ..GraphModule::default()
    };
    let options = ViewOptions {
        overlays: OverlayFile::of("", profile.clone()).into_iter().collect(),
        ..ViewOptions::default()
    };
    page_data(&module, model, &options)
}

fn data(model: &str, measured: &ProfileReport, graph: &Graph) -> Result<Value> {
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
    let tables = profile_json(measured);
    Ok(json!({
        "model": model,
        "picture": picture(model, &tables, graph)?,
        "profile": tables,
        "spans": spans.collect::<Value>(),
        "frames": frames.collect::<Value>(),
    }))
}
