//! `07`: the results of a trace differ from the function's.

use super::{CatalogEntry, FrontEnd, Severity};

pub const OUTPUTS_DIFFER: CatalogEntry = CatalogEntry {
    code: "W0711",
    title: "outputs of the trace differ",
    severity: Severity::Warning,
    front_ends: FrontEnd::WITH_OTHER_IMPORTS,
    cause: "The traced graph gives other numbers than the function itself. If it does so for the inputs of the trace, an \
            operator is at fault or random; if only for other inputs, a value, size or branch of the example is baked in. \
            A different structure, shape or element type is an error, different numbers are an error under `strict`.",
    example: "if x.sum() > 0:      # the branch that the example took is the only one in the graph\n    return x * 2\n\
              return x / 2",
    cure: "Look at the first node that differs, which the finding names with its line, and at the warnings on host reads \
           before it. If the difference is rounding, give a tolerance.",
    rust_cure: None,
};

pub const REPEAT_DIFFERS: CatalogEntry = CatalogEntry {
    code: "W0712",
    title: "outputs of a second trace differ",
    severity: Severity::Warning,
    front_ends: FrontEnd::WITH_FUNCTIONS,
    cause: "The function was traced again with the same inputs, and the second graph gives other numbers than the function. \
            The function depends on something that changes between calls.",
    example: "self.calls += 1\nreturn x * self.calls",
    cure: "Make the state an input and an output, or remove it.",
    rust_cure: None,
};

pub const UNSTABLE_FUNCTION: CatalogEntry = CatalogEntry {
    code: "W0713",
    title: "function gives different results for the same inputs",
    severity: Severity::Warning,
    front_ends: FrontEnd::WITH_FUNCTIONS,
    cause: "Two calls with the same inputs and the same random state gave different results. A comparison with such a \
            function says nothing about the trace.",
    example: "return x * time.time()",
    cure: "Remove everything that changes between calls: hidden state, clocks, a private random generator.",
    rust_cure: None,
};

pub const PATH_DEPENDS_ON_INPUT: CatalogEntry = CatalogEntry {
    code: "W0714",
    title: "other inputs give a different graph",
    severity: Severity::Warning,
    front_ends: FrontEnd::WITH_FUNCTIONS,
    cause: "Traced with other inputs that the first graph accepts, the function gives a different graph: a branch \
            or a loop of the program follows values or sizes of the inputs and is frozen to the example.",
    example: "for i in range(x.size(0)): # unrolled\n    y = y + x[i]",
    cure: "Write the condition or the loop so that it is part of the graph (`torch.where`, whole-tensor operations, \
           `torch.jit.script` for the function around it, traced control flow).",
    rust_cure: Some(
        "Write the condition or the loop so that it is part of the graph: `where_`, operations on whole tensors, `cond`, \
         `while_loop`, `scan`.",
    ),
};

pub const SIZE_REFUSED: CatalogEntry = CatalogEntry {
    code: "W0715",
    title: "other sizes refused",
    severity: Severity::Warning,
    front_ends: FrontEnd::ALL,
    cause: "The trace does not take inputs of another size: a size was fixed while tracing, or the size breaks a \
            guard of the graph. The function takes them, if there is one to call; an archive does not say.",
    example: "n = int(x.shape[0])\nreturn x.view(n, -1) # the graph is for this n only",
    cure: "Look at the guard or node that the finding names. If one graph for each size is fine, sessions make them \
           as needed; suppress the finding then.",
    rust_cure: None,
};

pub const IGNORED_TAIL: CatalogEntry = CatalogEntry {
    code: "W0716",
    title: "elements of a longer axis change no output",
    severity: Severity::Warning,
    front_ends: FrontEnd::ALL,
    cause: "An axis was made longer than the example's. Elements after the example's last element do not change the \
            result, although that last element does. A loop over the axis was unrolled, or a slice has the example's size.",
    example: "for chunk in x.split(1, dim=1): # as many chunks as the example had\n    h = self.step(chunk, h)",
    cure: "Work on the whole axis at once, or script the module with the loop. If longer inputs are to be truncated, suppress \
           the finding.",
    rust_cure: None,
};

pub const FIXED_BATCH: CatalogEntry = CatalogEntry {
    code: "W0717",
    title: "batch is a number in the output",
    severity: Severity::Warning,
    front_ends: FrontEnd::ALL,
    cause: "The graph takes a batch of any size, but an output has as many rows as the example had. The batch was read as a \
            number, or a loop over it was unrolled: for other batches rows are lost or mixed.",
    example: "flat = x.view(1, -1)                                     # the batch of the example was 1\n\
              rows = torch.stack([self.f(x[i]) for i in range(len(x))]) # as many rows as the example had",
    cure: "Use `x.flatten(1)`, `x.view(x.size(0), -1)` or operations on the whole batch. If the output has that many rows for \
           another reason, suppress the finding.",
    rust_cure: Some(
        "Use `x.flatten(1)`, `x.view((x.dim(0), -1))` or operations on the whole batch. If the output has that many \
         rows for another reason, suppress the finding.",
    ),
};

pub const EMPTY_REFUSED: CatalogEntry = CatalogEntry {
    code: "W0718",
    title: "empty batch is refused or its result is ambiguous",
    severity: Severity::Note,
    front_ends: FrontEnd::FILES,
    cause: "The model takes batches of several sizes, but not of size 0, or its result for an empty batch differs between \
            imports. PyTorch refuses such a call if an operator has no result for 0 elements: a maximum, or a view whose \
            `-1` is ambiguous.",
    example: "return x.view(x.size(0), -1) # -1 cannot be inferred from 0 elements",
    cure: "Use `x.flatten(1)`, or don't call the model for an empty batch.",
    rust_cure: None,
};

pub const UNREAD_INPUT: CatalogEntry = CatalogEntry {
    code: "W0719",
    title: "input changes no output",
    severity: Severity::Warning,
    front_ends: FrontEnd::ALL,
    cause: "No output depends on an element of this input. Either the program ignores it, or the operations on it were not \
            traced (numpy, `item()`, a condition in Python).",
    example: "def forward(self, x, mask):\n    if mask.all():      # decided while tracing\n        return self.layer(x)",
    cure: "Leave the input out of the trace, or use it in tensor operations. If the signature has to match other models', \
           suppress the finding.",
    rust_cure: None,
};

pub const NOT_A_NUMBER: CatalogEntry = CatalogEntry {
    code: "W0720",
    title: "output is not a number",
    severity: Severity::Warning,
    front_ends: FrontEnd::ALL,
    cause: "All elements of an output are NaN, for inputs of the check. NaN equals NaN in comparisons, so that a comparison \
            of such an output says nothing.",
    example: "y = (x - x) / (x - x) # 0 / 0",
    cure: "Look at the first value with a NaN, which the finding names with its line: a division by zero, a logarithm or root \
           of a negative number, weights that hold NaN. If only the inputs of the check are at fault, give real ones.",
    rust_cure: None,
};

pub const NO_GRADIENT: CatalogEntry = CatalogEntry {
    code: "W0724",
    title: "parameter gets no gradient",
    severity: Severity::Warning,
    front_ends: FrontEnd::ALL,
    cause: "The graph reads a parameter, but no output has a gradient for it: a `detach`, a Python number, integers, comparisons \
            or the largest element's position lie between them. Training would leave it as it is. The model gives right \
            results.",
    example: "return x * self.scale.detach()",
    cure: "If the parameter is to be trained, remove the `detach` or `item()` at the line of the finding. If it is a constant, \
           make it a buffer, or suppress the finding.",
    rust_cure: Some(
        "If the parameter is to be trained, remove the `detach` or the conversion to a number at the line of the finding. If it is \
         a constant, make it a `Buffer`, or suppress the finding.",
    ),
};

pub const GRADIENT_NOT_FINITE: CatalogEntry = CatalogEntry {
    code: "W0725",
    title: "gradient is not finite",
    severity: Severity::Warning,
    front_ends: FrontEnd::ALL,
    cause: "All outputs are finite for inputs of the check, but the gradient of their sum for a parameter has an infinity or is \
            not a number: the root or the norm of zero, a division by almost zero, or a choice by `where` between a number \
            and one whose gradient is infinite. The first step of a training would make the parameter NaN.",
    example: "return x * self.weight.pow(2).sum().sqrt() # with a weight of zeros",
    cure: "Keep the operand away from the pole: add a small number under the root, or choose the operand by `where` before \
           the function, not the result behind it. If only the inputs of the check are at fault, give real ones.",
    rust_cure: None,
};

pub const EXPORT_DIFFERS: CatalogEntry = CatalogEntry {
    code: "W0721",
    title: "results of trace and export differ",
    severity: Severity::Warning,
    front_ends: FrontEnd::ALL,
    cause: "A trace and an export of one module give different results for the same inputs, so that one of them is wrong. If \
            they differ for derived inputs only, one of them has a value, size or branch of its example baked in. A \
            different structure, shape or element type is an error, and so is a trace that differs from PyTorch's recorded \
            result. Other different numbers are an error under `strict`.",
    example: "onionskin check model.pt --export model.pt2",
    cure: "Look at the operators at which the two runs part, which the finding names with their lines. Record results of \
           PyTorch for these inputs: with `--against recorded` the finding says which of the two is wrong.",
    rust_cure: None,
};

pub const EXPORT_SIZES: CatalogEntry = CatalogEntry {
    code: "W0722",
    title: "trace and export take different sizes",
    severity: Severity::Note,
    front_ends: FrontEnd::ALL,
    cause: "The trace takes inputs of sizes that the export refuses, or the other way round. An export takes other sizes than \
            its example's only where `dynamic_shapes` says so, and not where the program reads a size as a number. A trace \
            takes every size that its operators allow, and keeps numbers of its example. It is a warning if the user's own \
            inputs are refused.",
    example: "level = signal.norm(dim=1) / math.sqrt(signal.shape[1]) # a number in both; only the export refuses others",
    cure: "Export with `dynamic_shapes` for the axes that may vary: `dynamic_shapes=({0: torch.export.Dim.AUTO},)`. Compute \
           with sizes as the program does with tensors: `signal.shape[1] ** 0.5`. If the model is called with one size only, \
           suppress the finding.",
    rust_cure: Some(
        "Export with dynamic sizes for the axes that may vary. If the model is called with one size only, suppress the \
         finding.",
    ),
};

pub const FROZEN_REGION: CatalogEntry = CatalogEntry {
    code: "W0723",
    title: "branch or loop is frozen",
    severity: Severity::Note,
    front_ends: FrontEnd::ALL,
    cause: "Of a trace and an export of one module, one decides a branch or the rounds of a loop when it runs. The other has \
            the branch or the rounds of its example, or computes both branches. Branches and loops are matched by module. It is a \
            warning if results differ.",
    example: "if torch.compiler.is_compiling():                 # torch.export comes here\n    return torch.cond(x.sum() > 0, double, halve, (x,))\n\
              return double(x) if x.sum() > 0 else halve(x)     # one of them in the trace",
    cure: "Use the export. For a trace, move the branch into a function with `@torch.jit.script_if_tracing`, or write it as \
           `torch.where`.",
    rust_cure: Some("Write the branch as `where_` or `cond`, the loop as `while_loop` or `scan`."),
};

pub const GRAPHS_DIFFER: CatalogEntry = CatalogEntry {
    code: "E0711",
    title: "graphs differ between two traces",
    severity: Severity::Error,
    front_ends: FrontEnd::WITH_FUNCTIONS,
    cause: "The function was traced twice with the same inputs and did different things. It has state that changes between \
            calls (a memo, a counter), or takes a branch at random.",
    example: "if self.cache is None:\n    self.cache = expensive(x) # is in the first trace only\nreturn self.cache + x",
    cure: "Look at the first diverging operator and both its lines. Take the state out of the function.",
    rust_cure: None,
};

pub const CONSTANTS_DIFFER: CatalogEntry = CatalogEntry {
    code: "E0712",
    title: "constants differ between two traces",
    severity: Severity::Error,
    front_ends: FrontEnd::WITH_FUNCTIONS,
    cause: "Two traces have the same operators, but a constant tensor holds other values. A value that was computed during \
            the trace escaped from it and came back as a constant.",
    example: "return x + x.data.sum() # .data is not traced",
    cure: "Compute the value with traced operations, or make it a parameter.",
    rust_cure: None,
};

pub const RUN_FAILED: CatalogEntry = CatalogEntry {
    code: "E0713",
    title: "failed while checking",
    severity: Severity::Error,
    front_ends: FrontEnd::ALL,
    cause: "The function, the traced graph or the second trace failed for inputs of the check. Earlier findings are \
            reported too.",
    example: "onionskin check model.pt --inputs other_rank.npz",
    cure: "If the function itself fails, the check input is wrong. If only the graph fails, something of the example is \
           baked in: see the place of the failure.",
    rust_cure: None,
};

pub const NO_DEPENDENCE: CatalogEntry = CatalogEntry {
    code: "E0714",
    title: "output depends on no input",
    severity: Severity::Error,
    front_ends: FrontEnd::ALL,
    cause: "An output of the graph is equal for all inputs. Usually the program left the tracer: through \
            another library, a host copy, or a cached result.",
    example: "def forward(self, x):\n    return torch.tensor(x.numpy() * 2) # computed outside of the trace",
    cure: "Compute with traced tensors. If the output is meant to be constant, suppress the finding.",
    rust_cure: None,
};
