//! Kinds of subjects, and how much a check can say of each.

/// The code that calls of a [`Subject`](super::Subject) run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    /// The function that was traced.
    Function,
    /// A graph imported for the call's arguments from an archive of a trace.
    Trace,
    /// A graph imported for the call's arguments from an archive of a script, which holds the whole program.
    Script,
    /// A graph imported for the call's arguments from an exported program.
    Export,
    /// The graph under check itself.
    Graph,
}

impl SubjectKind {
    /// True if comparing results tests the trace against the function that was traced.
    pub fn is_function(self) -> bool {
        self == SubjectKind::Function
    }

    /// Names the two results of a comparison.
    pub(super) fn sides(self) -> &'static str {
        match self {
            SubjectKind::Function => "trace and function",
            _ => "the first import and an import for this set",
        }
    }

    /// Lines that name the comparison that was not made, and how to make it. `program` names the program's results, such as
    /// recorded outputs, if the report compares with them.
    pub(super) fn limits(self, program: Option<&str>) -> Vec<String> {
        if let (false, Some(program)) = (self.is_function(), program) {
            return vec![format!(
                "Compared with the program by {program}. Other comparisons are between imports of the same file."
            )];
        }
        let lines: &[&str] = match self {
            SubjectKind::Function => &[],
            SubjectKind::Trace => &TRACE_LIMITS,
            SubjectKind::Script => &SCRIPT_LIMITS,
            SubjectKind::Export => &EXPORT_LIMITS,
            SubjectKind::Graph => &GRAPH_LIMITS,
        };
        lines.iter().map(ToString::to_string).collect()
    }
}

const TRACE_LIMITS: [&str; 2] = [
    "Not compared with the program: an archive does not record a Python `if`, a loop over a number, `item()` or numpy.",
    "To compare: `python examples/record.py MODULE:FUNCTION --name NAME --out DIR` calls program and trace with more inputs, \
     then `onionskin check DIR/NAME --against recorded`.",
];

const SCRIPT_LIMITS: [&str; 2] = [
    "Not compared with PyTorch: the results are those of this importer.",
    "To compare: record a case with `examples/record.py`, then `onionskin check DIR/NAME --against recorded`.",
];

const EXPORT_LIMITS: [&str; 2] = [
    "Not compared with the program: torch.export fixes what Python computes without tensors, such as numpy or a global variable.",
    "To compare: record a case with `examples/record.py --export`, then `onionskin test DIR/NAME`.",
];

const GRAPH_LIMITS: [&str; 2] = [
    "Not compared with the program: a graph file does not contain it. Only the graph was run.",
    "To compare: check the archive that it was imported from, or record a case with `examples/record.py`.",
];
