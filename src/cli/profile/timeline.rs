//! Timeline of a run: spans of kernels and of the modules around them, also as a trace for Perfetto or Chrome.

use serde_json::{Value, json};

use super::tables::ProfileReport;
use crate::gpu::{Profile, SpanKind};

/// A span of consecutive kernels of a module.
#[derive(Debug, PartialEq)]
pub(super) struct ModuleSpan {
    /// Number of modules around it.
    pub(super) depth: usize,
    /// Path of the module.
    pub(super) path: String,
    /// Start of the first kernel, in nanoseconds since the run began.
    pub(super) start: u64,
    /// End of the last kernel, in nanoseconds since the run began.
    pub(super) end: u64,
}

/// Returns the module spans: one for each prefix of a module's path, nested in that of the next shorter prefix.
pub(super) fn module_spans(measured: &ProfileReport) -> Vec<ModuleSpan> {
    let spans = measured.fastest.spans.iter().map(|span| {
        let module = match span.kind {
            SpanKind::Step(index) => measured.steps[index].names[1].as_str(),
            SpanKind::Readback(index) => measured.fastest.readbacks[index].place.module.as_str(),
        };
        (module, span.start, span.start + span.nanoseconds)
    });
    nest_spans(spans)
}

fn nest_spans<'a>(spans: impl Iterator<Item = (&'a str, u64, u64)>) -> Vec<ModuleSpan> {
    let mut done: Vec<ModuleSpan> = Vec::new();
    let mut open: Vec<ModuleSpan> = Vec::new();
    for (module, start, end) in spans {
        let dots = module.match_indices('.').map(|(at, _)| at);
        let mut paths: Vec<&str> = dots.chain([module.len()]).map(|at| &module[..at]).collect();
        paths.retain(|path| !path.is_empty());
        let same = open
            .iter()
            .zip(&paths)
            .take_while(|(frame, path)| frame.path == **path);
        let kept = same.count();
        done.extend(open.drain(kept..));
        open.iter_mut().for_each(|frame| frame.end = end);
        for (depth, path) in paths.iter().enumerate().skip(kept) {
            let path = path.to_string();
            open.push(ModuleSpan {
                depth,
                path,
                start,
                end,
            });
        }
    }
    done.extend(open);
    done.sort_by_key(|frame| (frame.depth, frame.start));
    done
}

/// Returns the name of a span: its kernel, or the value that is read back.
pub(super) fn span_name(profile: &Profile, measured: &ProfileReport, spent: SpanKind) -> String {
    match spent {
        SpanKind::Step(index) => measured.steps[index].names[0].clone(),
        SpanKind::Readback(index) => format!("read back {}", profile.readbacks[index].slot),
    }
}

/// Returns the fastest run in Chrome's trace event format, which Perfetto reads too: a track of modules, one of kernels.
pub(super) fn trace(measured: &ProfileReport) -> Value {
    let micro = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    let track = |id: u32, name: &str| json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": id, "args": {"name": name}});
    let mut events = vec![
        json!({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": measured.device}}),
        track(1, "modules"),
        track(2, "kernels"),
    ];
    for frame in module_spans(measured) {
        events.push(
            json!({"ph": "X", "cat": "module", "name": frame.path, "pid": 1, "tid": 1,
            "ts": micro(frame.start), "dur": micro(frame.end - frame.start)}),
        );
    }
    let profile = &measured.fastest;
    for span in &profile.spans {
        let arguments = match span.kind {
            SpanKind::Step(index) => arguments(measured, index),
            SpanKind::Readback(_) => json!({}),
        };
        events.push(json!({"ph": "X", "cat": "kernel", "name": span_name(profile, measured, span.kind), "pid": 1, "tid": 2,
            "ts": micro(span.start), "dur": micro(span.nanoseconds), "args": arguments}));
    }
    json!({"format": "onionskin trace", "displayTimeUnit": "ns", "traceEvents": events})
}

/// Returns the measurements of a step, after its number from 1.
fn arguments(measured: &ProfileReport, index: usize) -> Value {
    let mut arguments = json!({"step": index + 1});
    if let (Some(to), Value::Object(from)) =
        (arguments.as_object_mut(), measured.steps[index].json())
    {
        to.extend(from);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_nest_by_their_paths() {
        let spans = [
            ("a.b", 0, 2),
            ("a.b", 3, 4),
            ("a.c", 5, 6),
            ("", 7, 8),
            ("a", 9, 10),
        ];
        let found = nest_spans(spans.into_iter());
        let frame = |depth, path: &str, start, end| ModuleSpan {
            depth,
            path: path.to_string(),
            start,
            end,
        };
        let expected = [
            frame(0, "a", 0, 6),
            frame(0, "a", 9, 10),
            frame(1, "a.b", 0, 4),
            frame(1, "a.c", 5, 6),
        ];
        assert_eq!(found, expected);
    }
}
