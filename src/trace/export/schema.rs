//! The JSON of an exported program, as `torch/_export/serde/schema.py` declares it. Unknown keys are ignored.

mod argument;
pub mod early;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use argument::{Number, SerializedArgument, Symbolic};

/// The document `models/NAME.json`.
#[derive(Debug, Deserialize)]
pub struct SerializedProgram {
    /// The graph with its signature.
    pub graph_module: SerializedGraphModule,
    /// Smallest and largest value of each symbol.
    #[serde(default)]
    pub range_constraints: BTreeMap<String, Range>,
    /// Conditions on the inputs in Python; none in files of old versions.
    #[serde(default)]
    pub guards_code: Option<Vec<String>>,
    /// Version of this format.
    pub schema_version: SchemaVersion,
}

/// Version of the format.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub struct SchemaVersion {
    /// Changes when old readers fail.
    pub major: u64,
    /// Changes when keys are added.
    pub minor: u64,
}

/// Bounds of a symbol, both inclusive.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub struct Range {
    /// None if there is no lower bound.
    pub min_val: Option<i64>,
    /// None if there is no upper bound.
    pub max_val: Option<i64>,
}

/// A graph, and what its inputs and outputs stand for.
#[derive(Debug, Deserialize)]
pub struct SerializedGraphModule {
    /// The graph.
    pub graph: SerializedGraph,
    /// Meaning of the inputs and outputs.
    pub signature: SerializedSignature,
    /// The root module first, with the structure of its arguments and results.
    #[serde(default)]
    pub module_call_graph: Vec<ModuleCall>,
    /// Names of the fields of named tuples, by type.
    #[serde(default)]
    pub treespec_namedtuple_fields: BTreeMap<String, NamedTupleFields>,
}

/// A graph of calls.
#[derive(Debug, Deserialize)]
pub struct SerializedGraph {
    /// Names of its inputs.
    pub inputs: Vec<SerializedArgument>,
    /// Its results.
    pub outputs: Vec<SerializedArgument>,
    /// Calls in the order of execution.
    pub nodes: Vec<SerializedNode>,
    /// Types of tensors by name.
    #[serde(default)]
    pub tensor_values: BTreeMap<String, TensorMeta>,
}

/// A call of an operator.
#[derive(Debug, Deserialize)]
pub struct SerializedNode {
    /// The operator: `torch.ops.aten.linear.default`.
    pub target: String,
    /// Arguments. Those of higher-order operators have no names.
    pub inputs: Vec<NamedArgument>,
    /// Names of the results.
    pub outputs: Vec<SerializedArgument>,
    /// `stack_trace`, `nn_module_stack`, `torch_fn`.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

/// An argument of a call.
#[derive(Debug, Deserialize)]
pub struct NamedArgument {
    /// The parameter of the operator's schema.
    #[serde(default)]
    pub name: String,
    /// Its value.
    pub arg: SerializedArgument,
    /// 1 for positional arguments and 2 for keyword arguments; absent in files of old versions.
    #[serde(default)]
    pub kind: Option<u64>,
}

/// Element type and strided sizes of a tensor.
#[derive(Clone, Debug, Deserialize)]
pub struct TensorMeta {
    /// Code of the element type: see [`super::codes`].
    pub dtype: i64,
    /// Sizes, outermost first.
    pub sizes: Vec<Symbolic<i64>>,
    /// Distances between neighbours, in elements.
    #[serde(default)]
    pub strides: Vec<Symbolic<i64>>,
    /// Position of the first element in the storage.
    #[serde(default)]
    pub storage_offset: Option<Symbolic<i64>>,
}

/// Meaning of the inputs and outputs of a graph, in order.
#[derive(Debug, Deserialize)]
pub struct SerializedSignature {
    /// Of each input.
    pub input_specs: Vec<SerializedInput>,
    /// Of each output.
    pub output_specs: Vec<SerializedOutput>,
}

/// The name of a tensor in a graph.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "NameOrText")]
pub struct Name {
    /// The name.
    pub name: String,
}

/// A name as an object, or as old files have it in lists.
#[derive(Deserialize)]
#[serde(untagged)]
enum NameOrText {
    Name { name: String },
    Text(String),
}

impl From<NameOrText> for Name {
    fn from(form: NameOrText) -> Name {
        let (NameOrText::Name { name } | NameOrText::Text(name)) = form;
        Name { name }
    }
}

/// Meaning of an input.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SerializedInput {
    /// An argument of the user.
    UserInput {
        /// The input.
        arg: SerializedArgument,
    },
    /// A parameter of a module.
    Parameter {
        /// The input.
        arg: Name,
        /// Path of the parameter.
        parameter_name: String,
    },
    /// A buffer of a module.
    Buffer {
        /// The input.
        arg: Name,
        /// Path of the buffer.
        buffer_name: String,
    },
    /// A tensor that the program made of Python values.
    TensorConstant {
        /// The input.
        arg: Name,
        /// Its name among the constants.
        tensor_constant_name: String,
    },
    /// A Python value among the user's arguments, for which alone the program is valid.
    ConstantInput {
        /// Name of the input.
        name: String,
        /// The value.
        value: SerializedArgument,
    },
    /// An object of a class that is registered with TorchScript.
    CustomObj {
        /// Its name.
        custom_obj_name: String,
    },
    /// An order of effects.
    Token {},
}

/// Meaning of an output.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SerializedOutput {
    /// A result.
    UserOutput {
        /// The output.
        arg: SerializedArgument,
    },
    /// The loss, of a graph with its backward pass.
    LossOutput {
        /// The output.
        arg: Name,
    },
    /// The new value of a buffer.
    BufferMutation {
        /// The output.
        arg: Name,
        /// Path of the buffer.
        buffer_name: String,
    },
    /// The gradient of a parameter.
    GradientToParameter {
        /// The output.
        arg: Name,
        /// Path of the parameter.
        parameter_name: String,
    },
    /// The gradient of an argument.
    GradientToUserInput {
        /// The output.
        arg: Name,
        /// Name of the input.
        user_input_name: String,
    },
    /// The new value of an argument.
    UserInputMutation {
        /// The output.
        arg: Name,
        /// Name of the input.
        user_input_name: String,
    },
    /// The new value of a parameter.
    ParameterMutation {
        /// The output.
        arg: Name,
        /// Path of the parameter.
        parameter_name: String,
    },
    /// An order of effects.
    Token {},
}

/// A module, and the structure of its arguments and results if it was kept.
#[derive(Debug, Deserialize)]
pub struct ModuleCall {
    /// The structure.
    #[serde(default)]
    pub signature: Option<ModuleCallSignature>,
}

/// The structure of a module's arguments and results.
#[derive(Debug, Deserialize)]
pub struct ModuleCallSignature {
    /// JSON of a tree specification of positional and keyword arguments.
    pub in_spec: String,
    /// JSON of a tree specification of the results.
    pub out_spec: String,
    /// Names of the parameters of `forward`, in files of newer versions.
    #[serde(default)]
    pub forward_arg_names: Option<Vec<String>>,
}

/// Fields of a named tuple.
#[derive(Debug, Deserialize)]
pub struct NamedTupleFields {
    /// Names in order.
    pub field_names: Vec<String>,
}

/// The document `data/weights/NAME_weights_config.json`, or that of the constants.
#[derive(Debug, Deserialize)]
pub struct PayloadConfig {
    /// Payloads by the path of the parameter or buffer.
    pub config: BTreeMap<String, Payload>,
}

/// Where a tensor is stored.
#[derive(Debug, Deserialize)]
pub struct Payload {
    /// Name of the record in the folder of the document.
    pub path_name: String,
    /// True for `torch.save` archives.
    #[serde(default)]
    pub use_pickle: bool,
    /// Type of the tensor; none for objects.
    #[serde(default)]
    pub tensor_meta: Option<TensorMeta>,
}
