//! Options of an import: the methods, example inputs, symbolic sizes, and values of states.

use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::ir::TreeConstant;
use crate::item::Item;
use crate::shape::TensorType;
use crate::tensor::Tensor;
use crate::trace::symbolic_sizes::SymbolicSizes;

/// The methods to import, and their example inputs.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The methods that become graphs; `forward` with its traced inputs if there are none.
    pub entries: Vec<EntryMethod>,
    /// The sizes of the inputs that may differ from the examples.
    pub sizes: SymbolicSizes,
    /// Example values of attributes that the methods change, by path. The graphs are made for their types, and for the
    /// values of constants among them. The program's values are the default.
    pub states: BTreeMap<String, InputSpec>,
}

/// A method that becomes a graph of the same name.
#[derive(Clone, Debug)]
pub struct EntryMethod {
    /// Name of the method.
    pub method: String,
    /// Example inputs in the order of the method's parameters. Those with defaults may be left out. Without example inputs,
    /// the inputs that the program was traced with are used.
    pub inputs: Option<Vec<InputSpec>>,
}

/// An example of an argument.
#[derive(Clone, Debug, PartialEq)]
pub enum InputSpec {
    /// A tensor. Its sizes are examples; [`SymbolicSizes`] says which of them become symbols.
    Tensor(TensorType),
    /// A constant. The graph is valid for this value only.
    Constant(TreeConstant),
    /// An `int` (as `i64`) or a `bool` that may change between calls. It is a scalar tensor in the graph, so its value
    /// is not known during import.
    Number(DType),
    /// A tuple, or a named tuple if the method wants one.
    Tuple(Vec<InputSpec>),
    /// A list.
    List(Vec<InputSpec>),
    /// A dict with string keys.
    Dict(Vec<(String, InputSpec)>),
}

impl Default for EntryMethod {
    fn default() -> EntryMethod {
        EntryMethod {
            method: "forward".to_string(),
            inputs: None,
        }
    }
}

impl ImportOptions {
    /// `forward` with example inputs.
    pub fn forward(inputs: Vec<InputSpec>) -> ImportOptions {
        ImportOptions {
            entries: vec![EntryMethod {
                inputs: Some(inputs),
                ..EntryMethod::default()
            }],
            ..ImportOptions::default()
        }
    }
}

impl From<&Tensor> for InputSpec {
    fn from(tensor: &Tensor) -> InputSpec {
        InputSpec::Tensor(tensor.tensor_type())
    }
}

impl From<&Item> for InputSpec {
    /// The specification of an example input for an argument.
    fn from(argument: &Item) -> InputSpec {
        let specs = |items: &[Item]| items.iter().map(InputSpec::from).collect();
        match argument {
            Item::Tensor(tensor) => InputSpec::from(tensor),
            Item::Number(number) => InputSpec::Constant(TreeConstant::Number(*number)),
            Item::Str(text) => InputSpec::Constant(TreeConstant::Str(text.clone())),
            Item::None => InputSpec::Constant(TreeConstant::None),
            Item::Tuple(items) => InputSpec::Tuple(specs(items)),
            Item::List(items) => InputSpec::List(specs(items)),
            Item::Dict(items) => {
                let fields = items.iter();
                let fields = fields.map(|(key, item)| (key.clone(), InputSpec::from(item)));
                InputSpec::Dict(fields.collect())
            }
        }
    }
}
