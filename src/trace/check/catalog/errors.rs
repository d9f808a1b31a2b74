//! Explanations of error kinds.

use super::{CatalogEntry, FrontEnd, Severity};
use crate::error::ErrorKind;

/// The explanation of an error kind.
pub fn entry(kind: ErrorKind) -> &'static CatalogEntry {
    match kind {
        ErrorKind::Format => &FORMAT,
        ErrorKind::Io => &IO,
        ErrorKind::Source => &SOURCE,
        ErrorKind::Unsupported => &UNSUPPORTED,
        ErrorKind::Operator => &OPERATOR,
        ErrorKind::Verify => &VERIFY,
        ErrorKind::Input => &INPUT,
        ErrorKind::Raised => &RAISED,
        ErrorKind::Interrupted => &INTERRUPTED,
        ErrorKind::Memory => &MEMORY,
        ErrorKind::Plan => &PLAN,
        ErrorKind::Device => &DEVICE,
        ErrorKind::Mismatch => &MISMATCH,
        ErrorKind::Usage => &USAGE,
        ErrorKind::Internal => &INTERNAL,
    }
}

/// The explanation of an error in graphs of all front ends.
const fn error(
    code: &'static str,
    title: &'static str,
    [cause, example, cure]: [&'static str; 3],
) -> CatalogEntry {
    CatalogEntry {
        code,
        title,
        severity: Severity::Error,
        front_ends: FrontEnd::ALL,
        cause,
        example,
        cure,
        rust_cure: None,
    }
}

const FORMAT: CatalogEntry = error(
    "E0101",
    "malformed data",
    [
        "The bytes of an archive, pickle, JSON, tensor file or image do not follow the format.",
        "onionskin show weights.pt # a state dict, not a traced module",
        "Write the file again. `torch.save` of a module or of weights does not save a program: use `torch.jit.trace(…).save(…)`.",
    ],
);

const IO: CatalogEntry = error(
    "E0102",
    "file error",
    [
        "A file could not be read or written.",
        "onionskin show missing.pt",
        "Check the path and its permissions.",
    ],
);

const SOURCE: CatalogEntry = error(
    "E0201",
    "bad source in archive",
    [
        "The program in the archive does not parse or evaluate by the rules of TorchScript.",
        "an archive whose code/__torch__.py was edited by hand",
        "Save the archive again with the version of PyTorch that made it, and report the file if that does not help.",
    ],
);

const UNSUPPORTED: CatalogEntry = error(
    "E0301",
    "unsupported",
    [
        "An operator, a type or a feature is not implemented. Everything of this kind in a model is listed at once.",
        "torch.nonzero(x) # the result's size depends on elements",
        "Look at the place that is named; write the line with operators that `onionskin ops` lists.",
    ],
);

const OPERATOR: CatalogEntry = error(
    "E0401",
    "bad operands",
    [
        "An operator's operands are incompatible: a shape, an element type, an attribute.",
        "x.matmul(y) # x: f32[2, 3], y: f32[4, 5]",
        "Check the inputs' shapes. If the operator comes from a trace, a size may be frozen: `onionskin check` finds it.",
    ],
);

const VERIFY: CatalogEntry = error(
    "E0402",
    "invalid graph",
    [
        "A graph breaks a rule of the intermediate representation.",
        "a JSON graph that was edited by hand: y is used before it is defined",
        "Every broken rule is listed with its node; mend the graph or import it again.",
    ],
);

const INPUT: CatalogEntry = error(
    "E0501",
    "inputs do not match",
    [
        "Inputs do not fit the graph's signature, or break one of its guards.",
        "onionskin run model.pt --shape 'f32[1, 3]' # the graph takes f32[B, 4]",
        "`onionskin show --signature` prints the expected inputs.",
    ],
);

const RAISED: CatalogEntry = error(
    "E0502",
    "the model raised an error",
    [
        "The program refuses its inputs as PyTorch does: an assertion, an index out of range, an integer divided by zero.",
        "torch.nn.Embedding(10, 4)(torch.tensor([10])) # the last row is 9",
        "Look at the place that is named. `CompileOptions::checks` and `--no-checks` leave such checks out.",
    ],
);

const INTERRUPTED: CatalogEntry = error(
    "E0503",
    "interrupted",
    [
        "The time limit of a call is over, or another thread cancelled the call. The session can be used again; its states are \
         those before the call.",
        "while True: x = x + 1 # onionskin run model.pt --timeout 4",
        "Raise `--timeout` or `RunOptions::timeout` if the model needs longer. A loop may never end: look at the line that is \
         named.",
    ],
);

const MEMORY: CatalogEntry = error(
    "E0504",
    "not enough memory",
    [
        "The values of a run on the host would take more memory than the limit, or than the system has. The run did not start.",
        "x.expand(60_000_000, 4).cumsum(0) # onionskin run model.pt --device cpu --host-memory 1G",
        "Smaller inputs take less, and a GPU has memory of its own. If the machine has the memory, raise `--host-memory` or \
         `RunOptions::host_memory`.",
    ],
);

const PLAN: CatalogEntry = error(
    "E0601",
    "cannot plan for this device",
    [
        "The graph needs something that the device lacks: limits, element types, control flow.",
        "a weight larger than the adapter's largest storage binding",
        "Choose another `--device`; `cpu` runs everything.",
    ],
);

const DEVICE: CatalogEntry = error(
    "E0602",
    "device error",
    [
        "The device failed, was lost, or refused the work.",
        "onionskin run model.pt --device gpu # on a machine without one",
        "`onionskin devices` lists the adapters and tests each.",
    ],
);

pub const MISMATCH: CatalogEntry = CatalogEntry {
    front_ends: FrontEnd::FILES,
    ..error(
        "E0701",
        "outputs differ",
        [
            "Outputs differ from the expected outputs by more than the tolerance.",
            "onionskin verify model.pt --inputs x.npz --rtol 0",
            "The first value that differs is named with its line. Give a tolerance if the difference is rounding.",
        ],
    )
};

const USAGE: CatalogEntry = error(
    "E0801",
    "usage",
    [
        "A command line or an option is wrong.",
        "onionskin run model.pt --shape 'f32[B]' # sizes are numbers here",
        "Read the message, or `onionskin help` and the command's name.",
    ],
);

const INTERNAL: CatalogEntry = error(
    "E0901",
    "internal error",
    [
        "A rule that the crate guarantees was broken.",
        "a pass that loses a graph's output",
        "Please report it with the model, or with the graph that `onionskin show` prints.",
    ],
);
