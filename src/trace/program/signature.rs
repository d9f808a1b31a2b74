//! The inputs of an entry graph by name.

mod named_arguments;

use std::fmt;

use named_arguments::NamedArguments;

use super::InputSpec;
use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::ir::{Graph, NamedTree, TreeConstant, TreeSpec};
use crate::item::Item;
use crate::shape::TensorType;
use crate::tensor::Tensor;

/// The inputs of an entry graph by name: a parameter's name, and for elements of dictionaries, tuples and lists, the
/// key or index after a dot, as in `batch.input_ids` and `pair.0`. `Display` gives `forward(input_ids,
/// attention_mask)`.
#[derive(Clone, Debug)]
pub struct Signature {
    entry: String,
    parameters: Vec<SignatureArgument>,
    /// Types of the tensors. The trees of the parameters hold indices into this list.
    types: Vec<TensorType>,
    /// Example values of the symbolic sizes in the types.
    hints: Bindings,
}

/// An input tensor of a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SignatureInput {
    /// Name of the input.
    pub name: String,
    /// Type of the input: of a graph, with symbolic sizes; of another program, with the traced sizes. `None` if only a call
    /// determines it.
    pub ty: Option<TensorType>,
    /// The type with the sizes of the example.
    pub example: Option<TensorType>,
    /// False if a call may omit the input.
    pub is_required: bool,
}

/// A parameter and the structure of its value.
#[derive(Clone, Debug)]
struct SignatureArgument {
    name: String,
    structure: ArgumentStructure,
    default: Option<ArgumentDefault>,
}

/// Default of an omitted argument.
#[derive(Clone, Debug)]
enum ArgumentDefault {
    /// This value.
    Value(TreeConstant),
    /// Known only to the program. No later argument may be given.
    SourceProgram,
}

/// Structure of an argument made of tensors.
#[derive(Clone, Debug)]
pub enum ArgumentStructure {
    /// The structure that a graph, an example or a type determines. Indices refer to the types of the signature.
    Known(TreeSpec),
    /// Determined by the names of the given tensors.
    Inferred {
        /// True if numbered items form a list, false for a tuple.
        is_list: bool,
    },
}

/// A parameter of a program's method.
#[derive(Clone, Debug)]
pub struct MethodParameter {
    /// Its name.
    pub name: String,
    /// The structure that its type determines. Tensors of unknown types have the index [`MethodParameter::UNKNOWN_TYPE`].
    pub structure: ArgumentStructure,
    /// The argument that the program was traced with, if it holds one.
    pub example: Option<InputSpec>,
    /// True if a call may omit it.
    pub has_default: bool,
    /// The default, if it is a number, a string or `None`.
    pub default: Option<TreeConstant>,
}

impl MethodParameter {
    /// Index of a tensor whose type only a call determines.
    pub const UNKNOWN_TYPE: usize = usize::MAX;
}

impl Signature {
    /// The signature of a graph: its arguments, or its inputs if the graph has no argument structure.
    pub fn of_graph(graph: &Graph) -> Signature {
        let argument = |input: NamedTree| SignatureArgument {
            name: input.name,
            structure: ArgumentStructure::Known(input.tree),
            default: None,
        };
        let types = graph.inputs.iter().map(|id| graph.ty(*id).clone());
        Signature {
            entry: graph.name.clone(),
            parameters: arguments_of(graph).into_iter().map(argument).collect(),
            types: types.collect(),
            hints: graph.hints.clone(),
        }
    }

    /// The signature of a method with these parameters.
    pub fn of_parameters(method: &str, parameters: Vec<MethodParameter>) -> Signature {
        let mut types = Vec::new();
        let parameters = parameters.into_iter();
        let parameters = parameters.map(|parameter| SignatureArgument::of(parameter, &mut types));
        Signature {
            entry: method.to_string(),
            parameters: parameters.collect(),
            types,
            hints: Bindings::new(),
        }
    }

    /// The name of the entry graph.
    pub fn entry(&self) -> &str {
        &self.entry
    }

    /// The tensors that a call takes, in parameter order, including optional ones.
    pub fn inputs(&self) -> Vec<SignatureInput> {
        let required = self.names();
        let input = |(name, index): (String, usize)| {
            let ty = self.types.get(index).cloned();
            let sizes = ty.as_ref().and_then(|ty| ty.sizes(&self.hints).ok());
            let dtype = ty.as_ref().map(|ty| ty.dtype);
            SignatureInput {
                is_required: required.contains(&name),
                example: dtype.zip(sizes).map(|(dtype, sizes)| {
                    TensorType::new(dtype, sizes.into_iter().map(|size| size as i64))
                }),
                name,
                ty,
            }
        };
        self.numbered(true).into_iter().map(input).collect()
    }

    /// Names of the required tensors, in parameter order. A parameter whose structure is known only at a call counts as
    /// one.
    pub fn names(&self) -> Vec<String> {
        self.leaves(false)
    }

    /// Builds the arguments of a call from tensors by name.
    ///
    /// # Errors
    /// Lists the names that are missing, unknown or given twice.
    pub fn arguments(&self, named: &[(String, Tensor)]) -> Result<Vec<Item>> {
        let mut given = NamedArguments::default();
        for (name, tensor) in named {
            if given.unused.insert(name, tensor).is_some() {
                given.duplicates.push(name.clone());
            }
        }
        let mut items = Vec::new();
        let mut count = 0;
        for argument in &self.parameters {
            let (item, is_given) = argument.item(&mut given);
            items.push(item);
            count = if is_given { items.len() } else { count };
        }
        self.check_names(&given)?;
        items.truncate(count);
        Ok(items)
    }

    /// The tensors in the arguments of a call, with the names that [`Signature::arguments`] takes.
    pub fn named(&self, arguments: &[Item]) -> Vec<(String, Tensor)> {
        let mut tensors = Vec::new();
        for (argument, item) in self.parameters.iter().zip(arguments) {
            collect(&argument.name, item, &mut tensors);
        }
        tensors
    }

    /// Names for unnamed tensors given together with named ones: the remaining inputs in order.
    ///
    /// # Errors
    /// Fails if there are more tensors than inputs.
    pub fn names_for(&self, count: usize, named: &[String]) -> Result<Vec<String>> {
        let remaining = |with_optional| -> Vec<String> {
            let leaves = self.leaves(with_optional).into_iter();
            leaves.filter(|name| !named.contains(name)).collect()
        };
        let required = remaining(false);
        let mut names = if required.len() < count {
            remaining(true)
        } else {
            required
        };
        if names.len() < count {
            let (given, taken) = (count + named.len(), names.len() + named.len());
            let message = format!("{given} inputs are given, but {} takes {taken}", self.entry);
            return Err(Error::input(message).help(format!("expected inputs: {self}")));
        }
        names.truncate(count);
        Ok(names)
    }

    /// True if a tensor may have this name.
    pub fn takes(&self, name: &str) -> bool {
        let is_open = |argument: &SignatureArgument| {
            let rest = name.strip_prefix(argument.name.as_str());
            matches!(argument.structure, ArgumentStructure::Inferred { .. })
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.parameters.iter().any(is_open) || self.all_names().iter().any(|known| known == name)
    }

    /// Names of the tensors, with or without optional ones.
    fn leaves(&self, with_optional: bool) -> Vec<String> {
        let leaves = self.numbered(with_optional).into_iter();
        leaves.map(|(name, _)| name).collect()
    }

    /// Names of the tensors with the indices of their types.
    pub(crate) fn numbered(&self, with_optional: bool) -> Vec<(String, usize)> {
        let mut names = Vec::new();
        for argument in &self.parameters {
            let is_required = argument.default.is_none();
            match &argument.structure {
                ArgumentStructure::Inferred { .. } if is_required || with_optional => {
                    names.push((argument.name.clone(), MethodParameter::UNKNOWN_TYPE))
                }
                ArgumentStructure::Inferred { .. } => {}
                ArgumentStructure::Known(_) if !is_required && !with_optional => {}
                ArgumentStructure::Known(tree) => {
                    leaves(tree, &argument.name, with_optional, false, &mut names)
                }
            }
        }
        names
    }

    /// All accepted names of tensors: fields of named tuples by name and by index.
    fn all_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for argument in &self.parameters {
            if let ArgumentStructure::Known(tree) = &argument.structure {
                leaves(tree, &argument.name, true, true, &mut names);
            }
        }
        names.into_iter().map(|(name, _)| name).collect()
    }

    /// Fails if names are missing, unknown or given twice, or if a value is invalid.
    fn check_names(&self, given: &NamedArguments) -> Result<()> {
        let unknown: Vec<String> = given.unused.keys().map(ToString::to_string).collect();
        let lists = [
            ("missing", &given.missing),
            ("unknown", &unknown),
            ("given twice", &given.duplicates),
        ];
        let problems = lists.iter().filter(|(_, names)| !names.is_empty());
        let problems: Vec<String> = problems
            .map(|(what, names)| format!("{what}: {}", names.join(", ")))
            .collect();
        if !problems.is_empty() {
            let message = format!(
                "the input names do not match {}: {}",
                self.entry,
                problems.join("; ")
            );
            return Err(Error::input(message).help(format!("expected inputs: {self}")));
        }
        given
            .error
            .clone()
            .map_or(Ok(()), |message| Err(Error::input(message)))
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let required = self.names();
        let mark = |name: String| match required.contains(&name) {
            true => name,
            false => format!("{name}?"),
        };
        let names: Vec<String> = self.leaves(true).into_iter().map(mark).collect();
        write!(f, "{}({})", self.entry, names.join(", "))
    }
}

impl SignatureArgument {
    /// A parameter of a method. Appends the types of its tensors to `types`.
    fn of(parameter: MethodParameter, types: &mut Vec<TensorType>) -> SignatureArgument {
        let default = parameter.default.map(ArgumentDefault::Value);
        let default = default.or(parameter
            .has_default
            .then_some(ArgumentDefault::SourceProgram));
        SignatureArgument {
            structure: match &parameter.example {
                Some(example) => ArgumentStructure::Known(tree_of(example, types)),
                None => parameter.structure,
            },
            // An argument of the example call is required.
            default: default.filter(|_| parameter.example.is_none()),
            name: parameter.name,
        }
    }

    /// The argument from the given tensors, or its default; true if a call must include the argument.
    fn item(&self, given: &mut NamedArguments) -> (Item, bool) {
        match &self.default {
            Some(ArgumentDefault::Value(value)) if !given.has(&self.name) => {
                (constant(value), false)
            }
            Some(ArgumentDefault::SourceProgram) if !given.has(&self.name) => (Item::None, false),
            _ => (self.structure.item(&self.name, given), true),
        }
    }
}

/// Collects the tensors of a value by name, nested ones with dotted names.
fn collect(name: &str, item: &Item, found: &mut Vec<(String, Tensor)>) {
    match item {
        Item::Tensor(tensor) => found.push((name.to_string(), tensor.clone())),
        Item::Tuple(items) | Item::List(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(place, item)| collect(&format!("{name}.{place}"), item, found));
        }
        Item::Dict(items) => {
            let items = items.iter();
            items.for_each(|(key, item)| collect(&format!("{name}.{key}"), item, found));
        }
        Item::Number(_) | Item::Str(_) | Item::None => {}
    }
}

/// Collects the names of a value's tensors, with the indices of their types. `with_constants` includes constants that a
/// tensor may replace; `with_indices` adds the indices of a named tuple's fields as names.
fn leaves(
    tree: &TreeSpec,
    name: &str,
    with_constants: bool,
    with_indices: bool,
    found: &mut Vec<(String, usize)>,
) {
    let mut child = |item: &TreeSpec, key: &dyn std::fmt::Display| {
        let name = format!("{name}.{key}");
        leaves(item, &name, with_constants, with_indices, found);
    };
    match tree {
        TreeSpec::Tensor(index) | TreeSpec::Number(index) => found.push((name.to_string(), *index)),
        TreeSpec::Constant(TreeConstant::None | TreeConstant::Number(_)) if with_constants => {
            found.push((name.to_string(), MethodParameter::UNKNOWN_TYPE))
        }
        TreeSpec::Constant(_) | TreeSpec::Size(_) => {}
        TreeSpec::Tuple(items) | TreeSpec::List(items) => {
            let numbered = items.iter().enumerate();
            numbered.for_each(|(place, item)| child(item, &place));
        }
        TreeSpec::Dict(fields) => fields.iter().for_each(|(key, item)| child(item, key)),
        TreeSpec::NamedTuple(_, fields) => {
            for (place, (key, item)) in fields.iter().enumerate() {
                child(item, key);
                if with_indices {
                    child(item, &place);
                }
            }
        }
    }
}

/// Structure of a graph's arguments. Without a recorded structure, each argument is an input.
pub(crate) fn arguments_of(graph: &Graph) -> Vec<NamedTree> {
    match graph.input_trees.is_empty() {
        true => graph
            .default_inputs()
            .into_iter()
            .take(graph.argument_count())
            .collect(),
        false => graph.input_trees.clone(),
    }
}

/// A constant as an argument.
fn constant(value: &TreeConstant) -> Item {
    match value {
        TreeConstant::None => Item::None,
        TreeConstant::Number(number) => Item::Number(*number),
        TreeConstant::Str(text) => Item::Str(text.clone()),
    }
}

/// The structure of an example argument. Appends the types of its tensors and numbers to `types`.
fn tree_of(example: &InputSpec, types: &mut Vec<TensorType>) -> TreeSpec {
    let mut trees = |items: &[InputSpec]| items.iter().map(|item| tree_of(item, types)).collect();
    match example {
        InputSpec::Tensor(ty) => {
            types.push(ty.clone());
            TreeSpec::Tensor(types.len() - 1)
        }
        InputSpec::Number(dtype) => {
            types.push(TensorType::new::<i64>(*dtype, []));
            TreeSpec::Number(types.len() - 1)
        }
        InputSpec::Constant(value) => TreeSpec::Constant(value.clone()),
        InputSpec::Tuple(items) => TreeSpec::Tuple(trees(items)),
        InputSpec::List(items) => TreeSpec::List(trees(items)),
        InputSpec::Dict(fields) => {
            let fields = fields
                .iter()
                .map(|(key, item)| (key.clone(), tree_of(item, types)));
            TreeSpec::Dict(fields.collect())
        }
    }
}
