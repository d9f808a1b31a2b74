//! `02`: the traced program does something that a graph cannot express.

use super::{CatalogEntry, FrontEnd, Severity};

pub const HOST_READ: CatalogEntry = CatalogEntry {
    code: "W0201",
    title: "host read",
    severity: Severity::Warning,
    front_ends: &[FrontEnd::Rust],
    cause: "The program read a tensor's value while it was traced. A graph records operations on tensors, not \
            those on host numbers: results that follow from the value are fixed to those of the example.",
    example: "let largest = x.amax().to_vec::<f32>()?[0];\n\
              let y = &x / largest; // divides by the example's maximum ever after",
    cure: "Stay with tensors: divide by the tensor, choose with `where_` or `cond`, repeat with `while_loop`. If the value is the \
           same for all inputs, say so with `allow(\"W0201\", ..)` around the read.",
    rust_cure: None,
};

pub const FROZEN_SIZE: CatalogEntry = CatalogEntry {
    code: "W0202",
    title: "frozen size",
    severity: Severity::Warning,
    front_ends: &[FrontEnd::Rust],
    cause: "The program read a symbolic size as a plain number. Sizes that follow from it are fixed to the example's.",
    example: "let batch = freeze(&x.dim(0))?;\n\
              let y = x.view([batch, -1]); // other batches do not fit",
    cure: "Pass the symbolic size on: `x.view((x.dim(0), -1))`.",
    rust_cure: None,
};

pub const DYNAMIC_ITERATION: CatalogEntry = CatalogEntry {
    code: "W0203",
    title: "iteration over a dynamic axis",
    severity: Severity::Warning,
    front_ends: &[FrontEnd::Rust],
    cause: "The program iterated over an axis whose size may vary. The loop was unrolled: the graph holds as many copies of \
            its body as the example had elements.",
    example: "for row in x.unbind() { // x: f32[B, 8]\n    total = total + row.tanh();\n}",
    cure: "Write the loop over the whole axis at once (`x.tanh().sum_dim([0])`), or as a `scan`.",
    rust_cure: None,
};

pub const CAPTURED_CONSTANT: CatalogEntry = CatalogEntry {
    code: "W0204",
    title: "captured constant",
    severity: Severity::Warning,
    front_ends: &[FrontEnd::Rust],
    cause: "A tensor that is neither an input nor a parameter was used. It became a constant of the graph: later changes to \
            it are not seen.",
    example: "let mask = Tensor::from_vec([8], data);\ntrace_fn(x, |x| &x * &mask)?",
    cure: "Make it an input, or name it as a parameter so that it is a weight of the module.",
    rust_cure: None,
};

pub const DATA_CONSTRUCTOR: CatalogEntry = CatalogEntry {
    code: "W0205",
    title: "constructor from data",
    severity: Severity::Warning,
    front_ends: &[FrontEnd::Rust],
    cause: "A tensor was made from host data while tracing. The data is a constant of the graph, the same at every call.",
    example: "trace_fn(x, |x| &x * Tensor::from_vec([1], vec![clock.seconds()]))?",
    cure: "Compute it from the inputs (`full`, `arange`, sizes). If it is the same for all inputs, suppress the finding.",
    rust_cure: None,
};

pub const SIZE_LITERAL: CatalogEntry = CatalogEntry {
    code: "W0211",
    title: "constant equals an input's size",
    severity: Severity::Warning,
    front_ends: FrontEnd::ALL,
    cause: "A number that the graph uses as a size equals a size of an input, and no weight of the network has that size. It \
            probably was that size, read as a number while tracing; inputs of other sizes then give errors or wrong results.",
    example: "def forward(self, x):                      # traced with x of (4, 3, 8)\n    \
              return x.view(len(x), int(x.shape[1]) * 8) # recorded as view(4, 24)",
    cure: "Use `x.size(0)` or `x.shape[0]` itself in the traced code, not `len(x)` or `int(x.shape[0])`; write `-1` for \
           a size that can be inferred; or pass the number as an argument of the module if it is meant to be fixed.",
    rust_cure: Some(
        "Use the size itself, `x.dim(0)`, not `freeze(&x.dim(0))`, and `-1` for a size that can be inferred; or suppress the \
         finding if the number is meant to be fixed.",
    ),
};

pub const FROZEN_DEVICE: CatalogEntry = CatalogEntry {
    code: "W0212",
    title: "frozen device",
    severity: Severity::Warning,
    front_ends: &[FrontEnd::Archive],
    cause: "The program names a device other than the host. PyTorch runs the archive only on machines with that device. \
            Onionskin ignores devices: the numbers are the same.",
    example: "torch.zeros(n, device=x.device) # recorded as torch.device(\"cuda:0\") when traced on a GPU",
    cure: "Trace on the host, or make constants as buffers of the module, which `load(map_location=…)` moves.",
    rust_cure: None,
};

pub const RANDOM_NODE: CatalogEntry = CatalogEntry {
    code: "W0214",
    title: "nondeterministic node",
    severity: Severity::Warning,
    front_ends: FrontEnd::ALL,
    cause: "An operator draws random numbers, so that results cannot be compared or repeated. Dropout does so in training \
            mode only.",
    example: "model = Net()          # contains nn.Dropout\ntorch.jit.trace(model, x) # without model.eval()",
    cure: "Call `model.eval()` before tracing. If randomness is wanted, pass the noise as an input.",
    rust_cure: Some(
        "Call `Module::eval` before tracing. If randomness is wanted, pass the noise as an input.",
    ),
};

pub const TRAINING_MODE: CatalogEntry = CatalogEntry {
    code: "W0215",
    title: "normalisation in training mode",
    severity: Severity::Warning,
    front_ends: FrontEnd::ALL,
    cause: "Batch normalisation was recorded in training mode: it uses the mean and variance of the current batch, not the \
            learnt ones. Results then depend on the other samples of the batch.",
    example: "torch.jit.trace(model.train(), x).save(\"model.pt\")",
    cure: "Call `model.eval()` before tracing.",
    rust_cure: Some("Call `Module::eval` before tracing: `net.eval()`."),
};

pub const UNROLLED_AXIS: CatalogEntry = CatalogEntry {
    code: "W0216",
    title: "loop over an axis was unrolled",
    severity: Severity::Warning,
    front_ends: FrontEnd::ALL,
    cause: "The graph reads every element of an axis by its own constant index, up to the last of the example, though the \
            size of the axis may vary. A Python loop over the axis leaves as many copies of its body as the example had elements: \
            a longer input is silently truncated there, a shorter one is refused.",
    example: "for t in range(x.shape[1]):   # traced with 5 steps: five copies of the cell\n    h = self.cell(x[:, t], h)",
    cure: "Use an operation on the whole axis (`nn.GRU`, `cumsum`, a convolution), or script the module with the loop \
           (`torch.jit.script`) so that it stays a loop.",
    rust_cure: Some(
        "Use an operation on the whole axis (`nn::GRU`, `cumsum`, a convolution), or `scan` over the axis.",
    ),
};

pub const CONSTANT_OF_EXAMPLE: CatalogEntry = CatalogEntry {
    code: "W0217",
    title: "constant was computed from the example",
    severity: Severity::Warning,
    front_ends: FrontEnd::WITH_CONSTANTS,
    cause: "A constant of the trace, which is neither a parameter nor a buffer, has the sizes of an input of the example, or \
            its number of rows. Values that leave the tracer come back as constants: those of the example are used for every \
            input.",
    example: "scale = torch.from_numpy(np.clip(x.numpy(), 0, 1)) # numpy is not traced\nreturn self.layer(x) * scale",
    cure: "Compute with tensors (`x.clamp(0, 1)`). If the constant is meant, register it as a buffer (`register_buffer`).",
    rust_cure: None,
};

pub const READ_NUMBER: CatalogEntry = CatalogEntry {
    code: "W0218",
    title: "number was probably read from a tensor",
    severity: Severity::Warning,
    front_ends: FrontEnd::ALL,
    cause: "A number in the graph has all the digits that an f32 has, and no more. Numbers that are written in a program are \
            shorter, those that Python computes are longer. `item()`, `float(tensor)` and `tolist()` give such numbers; they \
            are the example's for every input.",
    example: "return x / x.max().item() # divides by the example's maximum ever after",
    cure: "Leave `item()` out: `x / x.max()`. If the number comes from the configuration, suppress the finding.",
    rust_cure: Some(
        "Stay with tensors: `&x / x.max()`. If the number comes from the configuration, suppress the finding.",
    ),
};
