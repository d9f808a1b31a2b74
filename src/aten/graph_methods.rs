//! Methods of graphs that need the operator dictionary: text and JSON forms, and verification.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::budget::{Budget, Limits};
use crate::error::{Error, Result};
use crate::ir::{
    self, Argument, ArgumentStyle, Builder, CallParameter, Dictionary, Graph, GraphModule, Node,
    NodeDescription,
};
use crate::ir::{json, text, verify};
use crate::shape::TensorType;
use crate::storage::ByteSource;

use super::{ArgumentType, operator};

/// The operators of this module as the IR's [`Dictionary`].
struct AtenDictionary;

impl Dictionary for AtenDictionary {
    fn parameters(&self, name: &str) -> Option<Vec<CallParameter<'_>>> {
        let schema = &operator(name).ok()?.schema;
        let parameter = |parameter: &'static super::SchemaParameter| CallParameter {
            name: &parameter.name,
            default: parameter.default.as_ref(),
            style: argument_style(parameter),
        };
        Some(schema.parameters.iter().map(parameter).collect())
    }

    fn infer(
        &self,
        name: &str,
        builder: &Builder,
        arguments: &[Argument],
    ) -> Result<Vec<TensorType>> {
        operator(name)?.infer(builder, arguments)
    }
}

/// How the text form writes an argument of this parameter. Keyword-only tensors are written with their name.
fn argument_style(parameter: &super::SchemaParameter) -> ArgumentStyle {
    fn is_or_contains(ty: &ArgumentType, wanted: &ArgumentType) -> bool {
        match ty {
            ArgumentType::Optional(inner) => is_or_contains(inner, wanted),
            ArgumentType::List(inner, _) => is_or_contains(inner, wanted),
            ty => ty == wanted,
        }
    }
    if is_or_contains(&parameter.ty, &ArgumentType::DType) {
        ArgumentStyle::DType
    } else if is_or_contains(&parameter.ty, &ArgumentType::Tensor) && !parameter.keyword_only {
        ArgumentStyle::Positional
    } else {
        ArgumentStyle::Named
    }
}

impl Graph {
    /// Checks the rules of the IR ([`crate::ir::verify`]); the error lists all findings.
    pub fn verify(&self) -> Result<()> {
        verify::verify(self, &AtenDictionary)
    }

    /// A node of the graph as its line in the text form, without nested graphs.
    pub fn node_text(&self, node: &Node) -> String {
        text::print_node(self, node, &AtenDictionary)
    }
}

impl Node {
    /// The operands and attributes by name; see [`NodeDescription`].
    pub fn describe(&self) -> NodeDescription {
        ir::describe(self, &AtenDictionary)
    }
}

impl GraphModule {
    /// Checks the rules of the IR ([`crate::ir::verify`]) for every graph and the weights; the error lists all
    /// findings.
    pub fn verify(&self) -> Result<()> {
        verify::verify_module(self, &AtenDictionary)
    }

    /// Writes the module to a `.json` file and its weights to a file beside it; see [`crate::ir::json`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        json::save(self, path.as_ref(), &AtenDictionary)
    }

    /// Reads a module that [`GraphModule::save`] wrote; see [`crate::ir::json`].
    ///
    /// # Errors
    /// The files cannot be read, are of a newer version, break a rule of the IR, or exceed one of the default [`Limits`].
    pub fn load(path: impl AsRef<Path>) -> Result<GraphModule> {
        GraphModule::load_with(path, &Limits::default())
    }

    /// Like [`GraphModule::load`], with other limits.
    ///
    /// # Errors
    /// As [`GraphModule::load`].
    pub fn load_with(path: impl AsRef<Path>, limits: &Limits) -> Result<GraphModule> {
        let (module, _) = GraphModule::open_with(path.as_ref(), limits, &ByteSource::open)?;
        module.with_loaded_weights()
    }

    /// Reads a module that [`GraphModule::save`] wrote. Also returns the file that its weights are from.
    pub fn load_with_file(path: impl AsRef<Path>) -> Result<(GraphModule, Option<PathBuf>)> {
        let limits = Limits::default();
        let (module, file) = GraphModule::open_with(path.as_ref(), &limits, &ByteSource::open)?;
        Ok((module.with_loaded_weights()?, file))
    }

    /// Like [`GraphModule::load_with_file`], with weights that are read when they are used. `open` opens their file.
    pub(crate) fn open_with(
        path: &Path,
        limits: &Limits,
        open: json::OpenBytes,
    ) -> Result<(GraphModule, Option<PathBuf>)> {
        json::load(path, &AtenDictionary, limits, open)
    }

    /// The module with all its weights in memory.
    pub(crate) fn with_loaded_weights(mut self) -> Result<GraphModule> {
        for tensor in self.weights.values_mut() {
            *tensor = tensor.load()?;
        }
        Ok(self)
    }

    /// The JSON form, which names the file of the weights.
    pub fn to_json(&self, weights_file: &str) -> Result<String> {
        json::print(self, weights_file, &AtenDictionary)
    }

    /// Reads the JSON form without its weights.
    ///
    /// # Errors
    /// The text is not a module, is of a newer version, or exceeds one of the default [`Limits`].
    pub fn from_json(text: &[u8]) -> Result<GraphModule> {
        GraphModule::from_json_with(text, &Limits::default())
    }

    /// Like [`GraphModule::from_json`], with other limits.
    ///
    /// # Errors
    /// As [`GraphModule::from_json`].
    pub fn from_json_with(text: &[u8], limits: &Limits) -> Result<GraphModule> {
        let budget = Budget::new(limits.clone());
        json::parse(text, &AtenDictionary, &budget).map(|(module, _)| module)
    }
}

/// The text form; see [`crate::ir::text`].
impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::print_graph(self, &AtenDictionary))
    }
}

/// The text form; see [`crate::ir::text`].
impl fmt::Display for GraphModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::print_module(self, &AtenDictionary))
    }
}

/// The text form; see [`crate::ir::text`].
impl FromStr for Graph {
    type Err = Error;

    fn from_str(text: &str) -> Result<Graph> {
        text::parse_graph(text, &AtenDictionary)
    }
}

/// The text form; see [`crate::ir::text`]. The module has graphs that name weights, but no weights.
impl FromStr for GraphModule {
    type Err = Error;

    fn from_str(text: &str) -> Result<GraphModule> {
        text::parse_module(text, &AtenDictionary)
    }
}

#[cfg(test)]
mod tests {
    use crate::dim::Bindings;
    use crate::ir::{Argument, Builder};

    #[test]
    fn a_graph_prints_its_text_form() {
        let builder = Builder::with_symbols("f", Bindings::from([("B".into(), 2)]), Vec::new());
        let x = builder.input("x", "f32[B, 3]".parse().unwrap());
        let gelu = crate::aten::operator("aten.gelu").unwrap();
        let called = gelu
            .call(&builder, vec![x.into(), Argument::Str("tanh".into())])
            .unwrap();
        let w = builder.weight("fc.weight", "f32[3]".parse().unwrap());
        let y = (called[0] * 2.0 + w).sum(&[0], false);
        let y = y.id();
        let graph = builder.finish(&[y], Vec::new(), None).unwrap();
        assert_eq!(
            graph.to_string(),
            "\
weight fc.weight: f32[3]

graph f(x: f32[B, 3]) -> f32[3] {
  size B = 2
  gelu: f32[B, 3] = aten.gelu x, approximate=\"tanh\"
  mul: f32[B, 3] = mul gelu, 2.0
  expand: f32[B, 3] = expand $fc.weight, shape=[B, 3]
  add: f32[B, 3] = add mul, expand
  reduce: f32[3] = reduce add, function=sum, axes=[0]
  return reduce
}
"
        );
    }
}
