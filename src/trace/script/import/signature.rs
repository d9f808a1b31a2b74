//! Parameters of the entry method as inputs of the graph.

use std::cell::RefCell;
use std::rc::Rc;

use crate::archive::Pickled;
use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{NamedTree, TreeConstant, TreeSpec};
use crate::scalar::Scalar;
use crate::shape::{Shape, TensorType};
use crate::trace::program::{EntryMethod, InputSpec};
use crate::trace::script::ast::{BaseClass, FunctionDef, TypeExpr};
use crate::trace::symbolic_sizes::InputSizes;
use crate::trace::views::GuardedGeometry;

use super::Importer;
use super::datum::{Datum, Instance, NumberKind, ScriptDict};
use super::number::ScriptNumber;
use super::parameters;
use super::tensor::StorageOrigin;

/// A method, its arguments, and the structure of the arguments in terms of the graph's inputs.
type Signature<'a> = (&'a FunctionDef, Vec<Datum>, Vec<NamedTree>);

impl<'a> Importer<'a> {
    /// Returns the entry method and its arguments. The first argument is the root module; the others follow from the
    /// examples, whose tensors become inputs of the graph.
    pub(super) fn signature(
        &mut self,
        root: &Rc<Instance>,
        entry: &EntryMethod,
    ) -> Result<Signature<'a>> {
        let function = parameters::find_method(self.script.class(&root.class)?, &entry.method)?;
        let examples = self.examples(function, entry)?;
        let parameters = function.parameters.iter().skip(1);
        let names = parameters.clone().map(|parameter| parameter.name.as_str());
        self.sizes.reserve(names);
        let sizes = self.sizes.clone();
        let mut arguments = vec![Datum::Object(root.clone())];
        let mut inputs = Vec::new();
        for (parameter, example) in parameters.zip(&examples) {
            let name = parameter.name.as_str();
            let (datum, tree) = self.input(name, &parameter.ty, example, &sizes)?;
            arguments.push(datum);
            let name = name.to_string();
            inputs.push(NamedTree { name, tree });
        }
        Ok((function, arguments, inputs))
    }

    /// Returns the examples of the caller, else those of the archive.
    fn examples(&self, function: &FunctionDef, entry: &EntryMethod) -> Result<Vec<InputSpec>> {
        let mut parameters = function.parameters.iter().skip(1);
        let count = parameters.len();
        if let Some(given) = &entry.inputs {
            if count < given.len() {
                let method = &entry.method;
                let message = format!(
                    "{} inputs are given, but {method} takes {count}",
                    given.len()
                );
                return Err(Error::input(message));
            }
            if let Some(missing) = parameters.skip(given.len()).find(|p| p.default.is_none()) {
                return Err(Error::input(format!(
                    "no input is given for {}",
                    missing.name
                )));
            }
            return Ok(given.clone());
        }
        if let Some(traced) = self.script.example_inputs(&entry.method)? {
            return Ok(traced);
        }
        if parameters.all(|parameter| parameter.default.is_some()) {
            return Ok(Vec::new());
        }
        let names = function.parameters.iter().skip(1);
        let names: Vec<&str> = names.map(|parameter| parameter.name.as_str()).collect();
        Err(Error::input("the archive has no example inputs")
            .help(format!("give --shape for {}", names.join(", "))))
    }

    /// Makes an argument or a state from an example. Its tensors become inputs of the graph, whose names begin with
    /// `name`. Returns the value, and its structure in terms of the graph's inputs.
    pub(super) fn input(
        &mut self,
        name: &str,
        ty: &TypeExpr,
        example: &InputSpec,
        sizes: &InputSizes,
    ) -> Result<(Datum, TreeSpec)> {
        Ok(match example {
            InputSpec::Tensor(example) => {
                let index = self.scopes.inputs.len();
                let ty = self.input_type(name, example, sizes)?;
                let guarded = GuardedGeometry::contiguous(ty.shape.clone());
                let value = self.scopes.input(name, ty);
                let tensor =
                    self.outermost_tensor(Some(value), None, StorageOrigin::Local, guarded);
                (Datum::Tensor(tensor), TreeSpec::Tensor(index))
            }
            InputSpec::Constant(constant) => (
                constant_datum(constant, ty),
                TreeSpec::Constant(constant.clone()),
            ),
            InputSpec::Number(dtype) => {
                let index = self.scopes.inputs.len();
                let value = self.scopes.input(name, TensorType::new::<i64>(*dtype, []));
                let guarded = GuardedGeometry::contiguous(Shape::new());
                let tensor =
                    self.outermost_tensor(Some(value), None, StorageOrigin::Local, guarded);
                let kind = match dtype {
                    DType::Bool => NumberKind::Bool,
                    _ => NumberKind::Int,
                };
                (Datum::Dynamic(kind, tensor), TreeSpec::Number(index))
            }
            InputSpec::Tuple(items) => self.input_tuple(name, ty, items, sizes)?,
            InputSpec::List(items) => {
                let (data, trees) = self.input_items(name, items, sizes)?;
                (self.outermost_list(data, false), TreeSpec::List(trees))
            }
            InputSpec::Dict(entries) => {
                let (mut data, mut trees) = (Vec::new(), Vec::new());
                for (key, item) in entries {
                    let name = format!("{name}_{key}");
                    let (datum, tree) = self.input(&name, &TypeExpr::Any, item, sizes)?;
                    data.push((Datum::str(key), datum));
                    trees.push((key.clone(), tree));
                }
                let dict = ScriptDict {
                    entries: RefCell::new(data),
                    depth: 0,
                    is_archived: false,
                };
                (Datum::Dict(Rc::new(dict)), TreeSpec::Dict(trees))
            }
        })
    }

    /// Makes the elements of a tuple or list from their examples.
    fn input_items(
        &mut self,
        name: &str,
        items: &[InputSpec],
        sizes: &InputSizes,
    ) -> Result<(Vec<Datum>, Vec<TreeSpec>)> {
        let numbered = items.iter().enumerate();
        let pairs = numbered.map(|(index, item)| {
            self.input(&format!("{name}_{index}"), &TypeExpr::Any, item, sizes)
        });
        let pairs: Vec<(Datum, TreeSpec)> = pairs.collect::<Result<_>>()?;
        Ok(pairs.into_iter().unzip())
    }

    /// Makes a tuple from the examples of its elements, or a named tuple if the type is one.
    fn input_tuple(
        &mut self,
        name: &str,
        ty: &TypeExpr,
        items: &[InputSpec],
        sizes: &InputSizes,
    ) -> Result<(Datum, TreeSpec)> {
        let (data, trees) = self.input_items(name, items, sizes)?;
        let script = self.script;
        if let TypeExpr::Class(class) = ty
            && let Ok(class) = script.class(class)
            && class.base == BaseClass::NamedTuple
        {
            let names = || class.attributes.iter().map(|(name, _)| name.clone());
            let fields: Vec<(String, Datum)> = names().zip(data).collect();
            let class_name = class.name.as_str();
            let datum = Datum::NamedTuple(class_name.into(), fields.into());
            let fields = names().zip(trees).collect();
            return Ok((datum, TreeSpec::NamedTuple(class_name.to_string(), fields)));
        }
        Ok((Datum::tuple(data), TreeSpec::Tuple(trees)))
    }

    /// The type of an input, with symbols for the sizes that may vary.
    fn input_type(
        &mut self,
        name: &str,
        ty: &TensorType,
        sizes: &InputSizes,
    ) -> Result<TensorType> {
        let example = ty.sizes(&Bindings::new()).map_err(|_| {
            let message = format!("the example of {name} is {ty}: sizes must be numbers");
            Error::usage(message)
        })?;
        let symbols = self.scopes.root.builder.symbols();
        let shape = sizes.symbolic_shape(symbols, name, &example);
        Ok(TensorType::new(ty.dtype, shape))
    }
}

/// Converts a constant input. An int becomes a float if the method takes a float.
fn constant_datum(constant: &TreeConstant, ty: &TypeExpr) -> Datum {
    let wants_float = match ty {
        TypeExpr::Float => true,
        TypeExpr::Optional(inner) => **inner == TypeExpr::Float,
        _ => false,
    };
    match constant {
        TreeConstant::None => Datum::None,
        TreeConstant::Number(Scalar::Int(value)) if wants_float => {
            Datum::Number(ScriptNumber::Float(*value as f64))
        }
        TreeConstant::Number(scalar) => Datum::Number((*scalar).into()),
        TreeConstant::Str(text) => Datum::str(text),
    }
}

/// Converts a value of the archive to an example. The value is an input that the archive was traced with, or a state.
pub fn input_spec_of(value: &Pickled) -> Result<InputSpec> {
    let number = |scalar: Scalar| InputSpec::Constant(TreeConstant::Number(scalar));
    let all = |items: &[Pickled]| items.iter().map(input_spec_of).collect::<Result<Vec<_>>>();
    Ok(match value {
        Pickled::None => InputSpec::Constant(TreeConstant::None),
        Pickled::Bool(value) => number(Scalar::Bool(*value)),
        Pickled::Int(value) => number(Scalar::Int(*value)),
        Pickled::Float(value) => number(Scalar::Float(*value)),
        Pickled::Str(text) | Pickled::Device(text) => {
            InputSpec::Constant(TreeConstant::Str(text.to_string()))
        }
        Pickled::Tensor(record) => InputSpec::Tensor(record.tensor_type()),
        Pickled::Tuple(items) => InputSpec::Tuple(all(items)?),
        Pickled::List(list) => InputSpec::List(all(&list.items)?),
        Pickled::Dict(dict) => {
            let entries = dict.entries.iter().map(|(key, value)| {
                let key = key.as_str().unwrap_or_default().to_string();
                Ok((key, input_spec_of(value)?))
            });
            InputSpec::Dict(entries.collect::<Result<_>>()?)
        }
        Pickled::Unsupported(what) => {
            let message = format!("an input or state that is {what}");
            return Err(Error::unsupported(message));
        }
        Pickled::Object(_) => {
            let message = "an input or state that is an object of a class";
            return Err(Error::unsupported(message));
        }
    })
}
