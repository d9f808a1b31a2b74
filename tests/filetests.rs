//! Tests on graphs as text, followed by the expected result: `tests/filetests/**/*.ir`. `BLESS=1` writes the found results.
//!
//! The first line names the test: `print` parses and prints, `json`, `dot` and `model_explorer` print other formats, `verify` lists findings,
//! other words are passes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod golden;

use onionskin::dtype::DType;
use onionskin::error::{Error, Result};
use onionskin::ir::{Graph, GraphModule};
use onionskin::pass;
use onionskin::tensor::Tensor;

#[test]
fn filetests() {
    golden::check("tests/filetests", "ir", "\n---\n", run);
}

fn run(input: &str) -> String {
    // An empty line replaces the first one, so that line numbers are those of the file.
    let (head, text) = input.split_at(input.find('\n').expect("a first line"));
    let test = head.strip_prefix("test: ").expect("test: …");
    apply(test.trim(), text).unwrap_or_else(|error| {
        let lines = error.iter().map(|error| {
            let first = error.to_string();
            format!("error: {}\n", first.lines().next().unwrap_or_default())
        });
        lines.collect()
    })
}

fn apply(test: &str, text: &str) -> Result<String> {
    let module: GraphModule = text.parse()?;
    match test {
        "print" => text_round_trips(&module),
        "verify" => {
            for graph in &module.graphs {
                graph.verify()?;
            }
            Ok("no findings\n".into())
        }
        "verify_module" => {
            with_weights(text, module)?.verify()?;
            Ok("no findings\n".into())
        }
        "json" => json_round_trips(&with_weights(text, module)?),
        "dot" => Ok(module.graphs.iter().map(onionskin::view::to_dot).collect()),
        "model_explorer" => {
            let document = onionskin::view::to_model_explorer(&module, "model.pt");
            Ok(format!("{document:#}\n"))
        }
        "fold_weights" => Ok(pass::fold_weights(&with_weights(text, module)?)?.to_string()),
        "optimize" => each(&module, pass::optimize),
        "specialize" => each(&module, pass::specialize),
        "explicit_regions" => each(&module, pass::explicit_regions),
        name => {
            let pass = pass::PIPELINE.iter().find(|pass| pass.name == name);
            let pass = pass.ok_or_else(|| Error::usage(format!("there is no test {name}")))?;
            each(&module, pass.run)
        }
    }
}

/// Prints a module and checks that the text parses to an equal module.
fn text_round_trips(module: &GraphModule) -> Result<String> {
    let text = module.to_string();
    let again: GraphModule = text.parse()?;
    assert!(again.graphs == module.graphs, "{text}");
    assert!(again.states == module.states, "{text}");
    assert_eq!(again.to_string(), text);
    Ok(text)
}

fn json_round_trips(module: &GraphModule) -> Result<String> {
    let text = module.to_json("weights.safetensors")?;
    let again = GraphModule::from_json(text.as_bytes())?;
    assert!(again.graphs == module.graphs, "{text}");
    assert!(again.states == module.states, "{text}");
    let again = GraphModule {
        weights: module.weights.clone(),
        ..again
    };
    assert_eq!(again.to_json("weights.safetensors")?, text);
    Ok(text)
}

fn each(module: &GraphModule, rewrite: impl Fn(&Graph) -> Result<Graph>) -> Result<String> {
    let graphs = module.graphs.iter().map(|graph| {
        let rewritten = rewrite(graph)?;
        rewritten.verify()?;
        Ok(rewritten)
    });
    let graphs = graphs.collect::<Result<_>>()?;
    Ok(GraphModule {
        graphs,
        ..GraphModule::default()
    }
    .to_string())
}

/// Gives the declared weights of a module ascending numbers.
fn with_weights(text: &str, mut module: GraphModule) -> Result<GraphModule> {
    for line in text.lines().filter_map(|line| line.strip_prefix("weight ")) {
        let (name, ty) = line.split_once(": ").ok_or_else(|| Error::format(line))?;
        let ty: onionskin::shape::TensorType = ty.parse()?;
        let shape = ty.sizes(&Default::default())?;
        let data = (0..shape.iter().product::<usize>())
            .map(|index| index as f64)
            .collect();
        let tensor = Tensor::from_f64(DType::F64, shape, data)?.cast(ty.dtype)?;
        module.weights.insert(name.to_string(), tensor);
    }
    Ok(module)
}
