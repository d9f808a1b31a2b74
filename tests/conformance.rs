//! Tests every sample call of the dictionary: inferred types are those of the results, a call computes the same as its body,
//! and inference for symbolic sizes holds for other sizes, including 0. A guard demands elements where they are needed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod random;

use onionskin::aten::{self, Composite, Operator};
use onionskin::dim::Bindings;
use onionskin::error::{Error, Result};
use onionskin::interp;
use onionskin::ir::{Builder, Graph, Weights};
use onionskin::pass;
use onionskin::plan;
use onionskin::shape::TensorType;
use onionskin::tensor::Tensor;
use sample_calls::{arguments, graph_of, inputs, parse, sizes, substitute_symbols};

mod sample_calls;
mod samples;

#[test]
fn sample_calls_conform() {
    let mut failures = Vec::new();
    let mut calls = 0;
    for row in aten::rows() {
        for case in row.cases {
            calls += 1;
            if let Err(error) = check(row, case) {
                failures.push(format!("{} ({case}): {error}", row.schemas[0]));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {calls} sample calls:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// The kernels of every sample call are valid and translate to every language.
#[test]
fn kernels_of_sample_calls_translate() {
    let mut failures = Vec::new();
    for row in aten::rows() {
        for case in row.cases {
            match untranslatable(row, case) {
                Ok(found) if found.is_empty() => {}
                Ok(found) => {
                    failures.push(format!("{} ({case}): {}", row.schemas[0], found.join("\n")))
                }
                Err(error) => failures.push(format!("{} ({case}): {error}", row.schemas[0])),
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} sample calls:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

fn untranslatable(row: &Composite, case: &str) -> Result<Vec<String>> {
    let (operator, texts) = parse(row, case)?;
    let graph = graph_of(operator, &texts, Some(&sizes(2, 8)))?;
    let plan = plan::plan(&pass::optimize(&graph)?, &samples::capabilities())?;
    Ok(samples::untranslatable(&plan))
}

fn check(row: &Composite, case: &str) -> Result<()> {
    let (operator, texts) = parse(row, case)?;
    let (small, large) = (sizes(2, 8), sizes(3, 10));
    let call = graph_of(operator, &texts, Some(&small))?;
    let body = pass::decompose(&call)?;
    compare_types("its body", &types(&call), &types(&body))?;
    for bindings in [small, large, sizes(0, 8), sizes(2, 0)] {
        let texts = substitute_symbols(&texts, &bindings);
        if !accepts_operands(&call, operator, &texts)? {
            continue;
        }
        let concrete = graph_of(operator, &texts, None)?;
        let specialised = types(&call)
            .iter()
            .map(|ty| Ok(TensorType::new(ty.dtype, ty.sizes(&bindings)?)))
            .collect::<Result<Vec<_>>>()?;
        compare_types("known sizes", &specialised, &types(&concrete))?;
        let inputs = inputs(&concrete, &bindings)?;
        let results = interp::run(&call, &Weights::new(), &inputs)?;
        let found: Vec<TensorType> = results.iter().map(Tensor::tensor_type).collect();
        compare_types("its results", &specialised, &found)?;
        for graph in [&body, &pass::decompose(&concrete)?] {
            if interp::run(graph, &Weights::new(), &inputs)? != results {
                return Err(Error::internal(
                    "the call and its body give different results",
                ));
            }
        }
    }
    Ok(())
}

fn compare_types(what: &str, expected: &[TensorType], found: &[TensorType]) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    let list = |types: &[TensorType]| {
        let names: Vec<String> = types.iter().map(TensorType::to_string).collect();
        names.join(", ")
    };
    let (expected, found) = (list(expected), list(found));
    Err(Error::internal(format!(
        "inferred as {expected}, for {what} as {found}"
    )))
}

fn types(graph: &Graph) -> Vec<TensorType> {
    graph
        .outputs
        .iter()
        .map(|id| graph.ty(*id).clone())
        .collect()
}

/// True if a graph for symbolic sizes takes the operands of a case with known sizes.
fn accepts_operands(
    graph: &Graph,
    operator: &'static Operator,
    texts: &[Option<String>],
) -> Result<bool> {
    let builder = Builder::new("operands");
    arguments(&builder, operator, texts)?;
    let operands = builder.finish(&[], Vec::new(), None)?;
    let shapes = operands
        .inputs
        .iter()
        .map(|id| operands.ty(*id).sizes(&Bindings::new()))
        .collect::<Result<Vec<_>>>()?;
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    Ok(graph.bind(&shapes).is_ok())
}
