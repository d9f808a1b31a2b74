//! `onionskin show MODEL`: a summary of a model: signature, parameters, costs, devices, warnings.

mod needs;
mod parameters;
mod text;

use std::path::Path;

use serde::Serialize;
use serde_json::{Value as Json, json};

use self::needs::{Incompatibility, MemoryNeeds, Needs};
use self::parameters::ModuleTree;
use crate::Model;
use crate::dim::Bindings;
use crate::error::{Error, ErrorKind, Result};
use crate::ir::{Graph, GraphModule, TreeSpec, ValueId, Weights};
use crate::item::Item;
use crate::model::inspect;
use crate::shape::TensorType;
use crate::symbols::Guard;
use crate::trace::check::{Finding, SubjectKind};

/// Devices field of the incompatibility of a graph that cannot be imported without an example.
const NO_EXAMPLE: &str = "any device without an example of its inputs";

/// Summary of a model.
pub(super) struct Summary {
    name: String,
    /// Total size of the model's files, in bytes.
    bytes: u64,
    /// Version of the file format.
    version: u64,
    origin: SubjectKind,
    methods: Vec<String>,
    parameters: ModuleTree,
    graphs: Vec<GraphSummary>,
    /// Reasons why there are no graphs.
    import_errors: Vec<Incompatibility>,
    findings: Vec<Finding>,
}

/// Summary of a graph.
struct GraphSummary {
    name: String,
    inputs: Vec<TensorSummary>,
    outputs: Vec<TensorSummary>,
    guards: Vec<Guard>,
    /// Sizes for which the needs hold.
    sizes: Bindings,
    needs: Needs,
}

/// A tensor of a signature.
#[derive(Serialize)]
struct TensorSummary {
    name: String,
    /// Type with symbolic sizes.
    #[serde(rename = "type")]
    ty: String,
    /// Type with the sizes for which the needs hold.
    example: String,
}

impl Summary {
    /// Summarises a model and the result of its import. `arguments` are those that the graphs were imported for; `sizes`
    /// returns the sizes of a graph for them.
    ///
    /// # Errors
    /// The import failed for a reason that is not a property of the model, or a graph cannot be prepared for any device.
    pub(super) fn of(
        model: &Model,
        imported: Result<GraphModule>,
        arguments: Option<&[Item]>,
        sizes: &dyn Fn(&GraphModule, &Graph) -> Result<Bindings>,
    ) -> Result<Summary> {
        let (module, import_errors) = match imported {
            Ok(module) => (Some(module), Vec::new()),
            Err(error) if error.kind() == ErrorKind::Input => {
                (None, vec![no_example(model, &error)])
            }
            Err(error) if is_import_error(&error) => {
                (None, Incompatibility::of("any device", &error))
            }
            Err(error) => return Err(error),
        };
        let name = module.iter().flat_map(|module| &module.graphs).next();
        let name = name.map_or("forward", |graph| graph.name.as_str());
        let findings = match &module {
            Some(module) => inspect(model, module, name, arguments)?,
            None => model.program().inspect()?,
        };
        let mut graphs = Vec::new();
        if let Some(module) = &module {
            for graph in &module.graphs {
                let sizes = sizes(module, graph)?;
                graphs.push(GraphSummary::of(graph, &module.weights, &sizes)?);
            }
        }
        Ok(Summary {
            name: display_name(model),
            bytes: model.files().iter().map(|file| file_size(file)).sum(),
            version: model.program().format_version(),
            origin: model.program().kind(),
            methods: model.program().methods(),
            parameters: ModuleTree::of(model.program().module_tensors()),
            graphs,
            import_errors,
            findings,
        })
    }

    pub(super) fn json(&self) -> Json {
        json!({
            "format": "onionskin summary",
            "model": self.name,
            "bytes": self.bytes,
            "file_format": self.version,
            "origin": origin(self.origin),
            "methods": self.methods,
            "parameters": self.parameters,
            "graphs": self.graphs.iter().map(GraphSummary::json).collect::<Vec<Json>>(),
            "refusals": self.import_errors,
            "findings": self.findings,
        })
    }
}

/// True for an error that the summary reports as a property of the model. Other errors end the command.
fn is_import_error(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unsupported | ErrorKind::Operator | ErrorKind::Raised
    )
}

/// Returns the incompatibility of a model whose input types and sizes are unknown.
fn no_example(model: &Model, error: &Error) -> Incompatibility {
    let inputs = model
        .signature("forward")
        .map(|signature| signature.to_string());
    let inputs = inputs.unwrap_or_else(|_| "forward".to_string());
    Incompatibility {
        devices: NO_EXAMPLE,
        reason: format!("{inputs}: {}", error.message()),
        help: error.advice().map(str::to_string),
    }
}

fn display_name(model: &Model) -> String {
    let file = model.files().first().and_then(|file| file.file_name());
    file.unwrap_or_default().to_string_lossy().into_owned()
}

fn file_size(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |found| found.len())
}

/// Returns the origin of graphs, in a word.
fn origin(origin: SubjectKind) -> &'static str {
    match origin {
        SubjectKind::Function | SubjectKind::Trace => "trace",
        SubjectKind::Script => "script",
        SubjectKind::Export => "export",
        SubjectKind::Graph => "graph",
    }
}

impl GraphSummary {
    fn of(graph: &Graph, weights: &Weights, sizes: &Bindings) -> Result<GraphSummary> {
        let tensor = |(name, id): (String, ValueId)| -> Result<TensorSummary> {
            let ty = graph.ty(id);
            Ok(TensorSummary {
                name,
                ty: ty.to_string(),
                example: TensorType::new(ty.dtype, ty.sizes(sizes)?).to_string(),
            })
        };
        let of = |named: Vec<(String, ValueId)>| -> Result<Vec<TensorSummary>> {
            named.into_iter().map(tensor).collect()
        };
        Ok(GraphSummary {
            name: graph.name.clone(),
            inputs: of(inputs(graph))?,
            outputs: of(outputs(graph))?,
            guards: graph.guards.clone(),
            sizes: sizes.clone(),
            needs: Needs::of(graph, weights, sizes)?,
        })
    }

    fn json(&self) -> Json {
        let guards = self.guards.iter().map(ToString::to_string);
        json!({
            "name": self.name,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "guards": guards.collect::<Vec<String>>(),
            "sizes": self.sizes,
            "needs": self.needs,
        })
    }
}

/// Returns the inputs, including those of states, with their names.
fn inputs(graph: &Graph) -> Vec<(String, ValueId)> {
    let own = graph.inputs.iter();
    own.map(|id| (graph.value(*id).name.clone(), *id)).collect()
}

/// Returns the outputs, named by their paths in the result: `output`, `0`, `logits`, `hidden.2`; those of states by state.
fn outputs(graph: &Graph) -> Vec<(String, ValueId)> {
    let mut names = Vec::new();
    let plain = graph.default_outputs();
    leaves(graph.output_tree.as_ref().unwrap_or(&plain), "", &mut names);
    for state in &graph.writes {
        leaves(&state.tree, &state.name, &mut names);
    }
    let outputs = graph.outputs.iter().enumerate();
    let named = outputs.map(|(index, id)| {
        let name = names.iter().find(|(_, place)| *place == index);
        let name = name.map_or_else(|| index.to_string(), |(name, _)| name.clone());
        (name, *id)
    });
    named.collect()
}

/// Collects the tensors of a tree with their paths.
fn leaves(tree: &TreeSpec, path: &str, found: &mut Vec<(String, usize)>) {
    let below = |key: &str| match path {
        "" => key.to_string(),
        path => format!("{path}.{key}"),
    };
    match tree {
        TreeSpec::Tensor(index) | TreeSpec::Number(index) => {
            let name = if path.is_empty() { "output" } else { path };
            found.push((name.to_string(), *index));
        }
        TreeSpec::Constant(_) | TreeSpec::Size(_) => {}
        TreeSpec::Tuple(items) | TreeSpec::List(items) => {
            for (place, item) in items.iter().enumerate() {
                leaves(item, &below(&place.to_string()), found);
            }
        }
        TreeSpec::Dict(items) | TreeSpec::NamedTuple(_, items) => {
            items
                .iter()
                .for_each(|(key, item)| leaves(item, &below(key), found));
        }
    }
}
