//! `02`: what the traced program does that a graph cannot hold.

use super::{Entry, Severity};

pub const HOST_READ: Entry = Entry {
    code: "W0201",
    title: "host read",
    severity: Severity::Warning,
    cause: "The program read a tensor's value while it was traced. A graph records what is done to tensors, not what the \
            program does with numbers: whatever followed from the value is fixed to what it was for the example.",
    example: "let largest = x.amax().to_vec::<f32>()?[0];\n\
              let y = &x / largest; // divides by the example's maximum ever after",
    cure: "Stay with tensors: divide by the tensor, choose with `where_` or `cond`, repeat with `while_loop`. If the value is the \
           same for all inputs, say so with `allow(\"W0201\", ..)` around the read.",
};

pub const FROZEN_SIZE: Entry = Entry {
    code: "W0202",
    title: "frozen size",
    severity: Severity::Warning,
    cause: "The program read a symbolic size as a plain number. Sizes that follow from it are fixed to the example's.",
    example: "let batch = freeze(&x.dim(0))?;\n\
              let y = x.view([batch, -1]); // other batches do not fit",
    cure: "Pass the symbolic size on: `x.view([x.dim(0), (-1).into()])`.",
};

pub const DYNAMIC_ITERATION: Entry = Entry {
    code: "W0203",
    title: "iteration over a dynamic axis",
    severity: Severity::Warning,
    cause: "The program iterated over an axis whose size may vary. The loop was unrolled: the graph holds as many copies of \
            its body as the example had elements.",
    example: "for row in x.unbind() { // x: f32[B, 8]\n    total = total + row.tanh();\n}",
    cure: "Write the loop over the whole axis at once (`x.tanh().sum_dim([0])`), or as a `scan`.",
};

pub const CAPTURED_CONSTANT: Entry = Entry {
    code: "W0204",
    title: "captured constant",
    severity: Severity::Warning,
    cause: "A tensor that is neither an input nor a parameter was used. It became a constant of the graph: later changes to \
            it are not seen.",
    example: "let mask = Tensor::from_vec([8], data);\ntrace(x, |x| &x * &mask)?",
    cure: "Make it an input, or name it as a parameter so that it is a weight of the module.",
};

pub const DATA_CONSTRUCTOR: Entry = Entry {
    code: "W0205",
    title: "constructor from data",
    severity: Severity::Warning,
    cause: "A tensor was made from host data while tracing. The data is a constant of the graph, the same at every call.",
    example: "trace(x, |x| &x * Tensor::from_vec([1], vec![clock.seconds()]))?",
    cure: "Compute it from the inputs (`full`, `arange`, sizes). If it is the same for all inputs, suppress the finding.",
};

pub const SIZE_LITERAL: Entry = Entry {
    code: "W0211",
    title: "constant equals an input's size",
    severity: Severity::Warning,
    cause: "A number where the graph wants a size equals a size of an input that the network's weights do not ask for. It \
            probably was that size, read as a number while tracing; inputs of other sizes then give errors or wrong results.",
    example: "def forward(self, x):                      # traced with x of (4, 3, 8)\n    \
              return x.view(len(x), int(x.shape[1]) * 8) # recorded as view(4, 24)",
    cure: "Use `x.size(0)` or `x.shape[0]` itself in the traced code, not `len(x)` or `int(x.shape[0])`; let `-1` stand for \
           what can be inferred; or pass the number as an argument of the module if it is meant to be fixed.",
};

pub const FROZEN_DEVICE: Entry = Entry {
    code: "W0212",
    title: "frozen device",
    severity: Severity::Warning,
    cause: "The program names a device other than the host. PyTorch runs the archive only where that device is. Onionskin \
            ignores devices: the numbers are the same.",
    example: "torch.zeros(n, device=x.device) # recorded as torch.device(\"cuda:0\") when traced on a GPU",
    cure: "Trace on the host, or make constants as buffers of the module, which `load(map_location=…)` moves.",
};

pub const FROZEN_DTYPE: Entry = Entry {
    code: "W0213",
    title: "frozen element type",
    severity: Severity::Note,
    cause: "The program converts to a floating element type that its input has already, or makes a tensor of that type. \
            Probably the code asked for `x.dtype`; a model converted by `.half()` still computes in the old type here.",
    example: "mask = torch.zeros(n, dtype=x.dtype) # recorded as dtype=6, which is float32",
    cure: "Trace the model again after `.half()` or `.double()`; or use `zeros_like`, `new_zeros`, `type_as`.",
};

pub const RANDOM_NODE: Entry = Entry {
    code: "W0214",
    title: "nondeterministic node",
    severity: Severity::Warning,
    cause: "An operator draws random numbers, so that results cannot be compared or repeated. Dropout does so in training \
            mode only.",
    example: "model = Net()          # contains nn.Dropout\ntorch.jit.trace(model, x) # without model.eval()",
    cure: "Call `model.eval()` before tracing. If randomness is wanted, pass the noise as an input.",
};

pub const TRAINING_MODE: Entry = Entry {
    code: "W0215",
    title: "normalisation in training mode",
    severity: Severity::Warning,
    cause: "Batch normalisation was recorded as it is for training: it uses mean and variance of the batch at hand, not those \
            that were learnt. Results then depend on what else is in the batch.",
    example: "torch.jit.trace(model.train(), x).save(\"model.pt\")",
    cure: "Call `model.eval()` before tracing.",
};
