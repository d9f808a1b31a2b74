//! Where a trace comes from, and how much a check can say of it.

/// What calls of a subject run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The function that was traced.
    Function,
    /// What is imported for their arguments from an archive of a trace.
    Trace,
    /// What is imported for their arguments from an archive of a script, which holds the whole program.
    Script,
    /// The graph that is checked.
    Graph,
}

impl Origin {
    /// True if a comparison of results says something of the function that was traced.
    pub fn is_function(self) -> bool {
        self == Origin::Function
    }

    /// The two sides of a comparison of results.
    pub(super) fn sides(self) -> &'static str {
        match self {
            Origin::Function => "trace and function",
            _ => "the first import and an import for this set",
        }
    }

    /// Lines that say what was compared and what would tell more; `program` is what the program gave, if it was compared.
    pub(super) fn limits(self, program: Option<&str>) -> Vec<String> {
        if let (false, Some(program)) = (self.is_function(), program) {
            return vec![format!(
                "Compared with the program by {program} only. Other inputs were compared with imports of the same archive."
            )];
        }
        let lines: &[&str] = match self {
            Origin::Function => &[],
            Origin::Trace => &TRACE,
            Origin::Script => &SCRIPT,
            Origin::Graph => &GRAPH,
        };
        lines.iter().map(ToString::to_string).collect()
    }
}

const TRACE: [&str; 2] = [
    "Not compared with the program: a Python `if`, a loop over a number, `item()` and numpy leave nothing behind in an archive.",
    "To compare: `python examples/record.py MODULE:FUNCTION --name NAME --out DIR` calls program and trace with more inputs, \
     then `onionskin check DIR/NAME --against recorded`.",
];

const SCRIPT: [&str; 2] = [
    "Not compared with PyTorch: the results are those of this importer.",
    "To compare: record a case with `examples/record.py`, then `onionskin check DIR/NAME --against recorded`.",
];

const GRAPH: [&str; 2] = [
    "Not compared with the program: a graph does not hold it, and was run alone.",
    "To compare: check the archive that it was imported from, or record a case with `examples/record.py`.",
];
