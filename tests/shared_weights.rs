//! Weights that products read as panels and other kernels by elements, as in language models: a rasteriser stores them once,
//! and its results agree with the host oracle.
//!
//! Without an adapter the tests of results print a note and pass; with `REQUIRE_GPU=1` they fail.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use onionskin::dtype::DType;
use onionskin::gpu::{FeatureLevel, GpuDevice, Program, ProgramOptions, TensorMap};
use onionskin::interp;
use onionskin::ir::{Builder, Graph, GraphModule, Value};
use onionskin::kernel::capabilities::Capabilities;
use onionskin::kernel::layout::{Layout, TextureLimits};
use onionskin::kernel::materialization::{Precision, RowCopyReason};
use onionskin::kernel::plan::{Plan, SlotKind};
use onionskin::pass::{self};
use onionskin::plan::{self, PlanOptions};
use onionskin::tensor::Tensor;

mod samples;

use samples::tensor;

const IDS: [i64; 2] = [61, -7];

fn weight<'g>(b: &'g Builder, name: &str, ty: &str) -> Value<'g> {
    b.weight(name, ty.parse().unwrap())
}

/// Returns graphs, each with its shared weights and the number of panel layouts in which these are stored.
fn graphs() -> Vec<(&'static str, Graph, Vec<&'static str>, usize)> {
    let rows = samples::graph(&["i64[2]"], |b, x| {
        let table = weight(b, "table", "f32[301, 24]");
        let y = table.index_select(0, x[0]);
        vec![
            y.dot(table.transpose(0, 1)),
            y.reshape(vec![48.into()]) * 2.0,
        ]
    });
    let columns = samples::graph(&["i64[2]"], |b, x| {
        let table = weight(b, "table", "f32[24, 301]");
        let y = table.index_select(1, x[0]);
        vec![y.transpose(0, 1).dot(table), y.exp()]
    });
    // A row kernel and an epilogue look up rows; a padded lookup reads none in its border.
    let layers = samples::graph(&["i64[2]"], |b, x| {
        let table = weight(b, "table", "f32[301, 64]");
        let y = table.index_select(0, x[0]);
        let y = y - y.mean(&[1], true);
        let hidden = y.dot(weight(b, "first", "f32[64, 40]")).relu();
        let y = hidden.dot(weight(b, "second", "f32[40, 64]")) + table.index_select(0, x[0]);
        let y = b.concat(&[y, table.index_select(0, x[0])], 0);
        let border = [[1, 0], [0, 4]].map(|sizes| sizes.map(|size| size.into()));
        let far = table.index_select(0, x[0]).pad(&border[0], &border[1], 0.5);
        vec![y.dot(table.transpose(0, 1)), far]
    });
    // The kernels of the layers differ in the table only.
    let tables = samples::graph(&["i64[2]", "f32[2, 40]"], |b, x| {
        let layer = |name: &str, ty: &str| {
            let table = weight(b, name, ty);
            let projection = weight(b, &format!("{name}.in"), "f32[40, 64]");
            let y = x[1].dot(projection) + table.index_select(0, x[0]);
            y.dot(table.transpose(0, 1))
        };
        vec![layer("a", "f32[301, 64]"), layer("b", "f32[333, 64]")]
    });
    let squares = samples::graph(&["i64[1]", "f32[1, 40]"], |b, x| {
        let layer = |name: &str, is_turned: bool| {
            let table = weight(b, name, "f32[64, 64]");
            let projection = weight(b, &format!("{name}.in"), "f32[40, 64]");
            let y = x[1].dot(projection) + table.index_select(0, x[0]);
            y.dot(if is_turned {
                table.transpose(0, 1)
            } else {
                table
            })
        };
        vec![layer("a", true), layer("b", false)]
    });
    // A product of few rows uses other panels than one of many.
    let sizes = samples::graph(&["i64[1]", "f32[100, 64]"], |b, x| {
        let table = weight(b, "table", "f32[301, 64]");
        let turned = table.transpose(0, 1);
        vec![table.index_select(0, x[0]).dot(turned), x[1].dot(turned)]
    });
    let both_ways = samples::graph(&["i64[1]", "f32[1, 64]"], |b, x| {
        let table = weight(b, "table", "f32[64, 64]");
        let picked = table.index_select(0, x[0]);
        let turned = table.transpose(0, 1);
        vec![x[1].dot(turned), x[1].dot(table), picked.exp()]
    });
    vec![
        ("rows", rows, vec!["table"], 1),
        ("columns", columns, vec!["table"], 1),
        ("layers", layers, vec!["table"], 1),
        ("tables", tables, vec!["a", "b"], 1),
        ("squares", squares, vec!["a", "b"], 1),
        ("sizes", sizes, vec!["table"], 2),
        ("both ways", both_ways, vec!["table"], 2),
    ]
}

/// Returns the layouts of a weight in a plan.
fn layouts<'p>(plan: &'p Plan, weight: &str) -> Vec<&'p Layout> {
    let slots = plan.slots.iter();
    let of_weight = slots.filter(|slot| slot.kind == SlotKind::Weight(weight.into()));
    of_weight.map(|slot| &slot.layout).collect()
}

fn plan(graph: &Graph, capabilities: &Capabilities, precision: Precision) -> Plan {
    let options = PlanOptions {
        precision,
        ..PlanOptions::default()
    };
    plan::plan_with_options(graph, capabilities, &options).unwrap()
}

/// A rasteriser whose kernels bind at most this many textures.
fn with_textures(bindings: u32) -> Capabilities {
    let device = samples::rasteriser();
    Capabilities {
        textures: TextureLimits {
            bindings,
            ..device.textures
        },
        ..device
    }
}

#[test]
fn shared_weights_are_stored_once() {
    let small = Capabilities {
        max_binding_size: 20_000,
        ..samples::rasteriser()
    };
    for (name, graph, tied, kinds) in graphs() {
        for device in [&samples::rasteriser(), &samples::rasteriser_of(16), &small] {
            let plan = plan(&graph, device, Precision::Single);
            assert_eq!(
                plan.shared_weights.len(),
                tied.len(),
                "{name}: {:?}",
                plan.shared_weights
            );
            for (weight, told) in tied.iter().zip(&plan.shared_weights) {
                let layouts = layouts(&plan, weight);
                let are_panels = layouts.iter().all(|x| matches!(x, Layout::Panels(_)));
                assert!(are_panels && layouts.len() == kinds, "{name}: {layouts:?}");
                let known = (told.weight.as_str(), told.panels, told.row_copy);
                assert_eq!(known, (*weight, kinds, None), "{name}");
                assert!(told.to_string().ends_with("from its panels"), "{told}");
            }
            let failures = samples::untranslatable(&plan);
            assert!(failures.is_empty(), "{name}: {}", failures.join("\n"));
        }
        // Other devices have no panels.
        let plan = plan(&graph, &samples::capabilities(), Precision::Single);
        assert!(plan.shared_weights.is_empty());
        assert!(
            tied.iter()
                .all(|weight| layouts(&plan, weight) == [&Layout::Linear])
        );
    }
}

/// A weight is stored twice where sharing would cost more than its memory, and the plan gives the reason.
#[test]
fn weights_stored_twice_have_a_reason() {
    let many = samples::graph(&["i64[30]"], |b, x| {
        let table = weight(b, "table", "f32[301, 64]");
        vec![table.index_select(0, x[0]).dot(table.transpose(0, 1))]
    });
    let told = |graph: &Graph, device: &Capabilities| {
        let plan = plan(graph, device, Precision::Single);
        let tied = plan.shared_weights.first().unwrap();
        let kinds = layouts(&plan, &tied.weight).len();
        (tied.to_string(), tied.row_copy, kinds)
    };
    let (text, rows, kinds) = told(&many, &samples::rasteriser());
    assert_eq!(
        (rows, kinds),
        (Some(RowCopyReason::TooManyReads), 2),
        "{text}"
    );
    assert!(
        text.contains(": 1920 of 19264 elements") && text.ends_with("because they are many"),
        "{text}"
    );

    let few = samples::graph(&["i64[1]", "f32[1, 40]"], |b, x| {
        let table = weight(b, "table", "f32[301, 64]");
        let y = x[1].dot(weight(b, "in", "f32[40, 64]")) + table.index_select(0, x[0]);
        vec![y.dot(table.transpose(0, 1))]
    });
    assert_eq!(
        told(&few, &with_textures(1)).1,
        Some(RowCopyReason::TooManyTextures)
    );
    assert_eq!(told(&few, &with_textures(2)).1, None);
}

/// Returns the arguments of a graph: row indices and fractions.
fn inputs(graph: &Graph) -> Vec<Tensor> {
    let inputs = graph.inputs.iter().map(|input| {
        let ty = graph.ty(*input);
        let sizes = ty.sizes(&Default::default()).unwrap();
        match ty.dtype {
            DType::I64 => Tensor::from_vec(sizes.clone(), IDS[..sizes[0]].to_vec()).unwrap(),
            _ => tensor(&sizes, 1),
        }
    });
    inputs.collect()
}

fn weights(graph: &Graph) -> TensorMap {
    let named = graph.weights().enumerate();
    let tensors = named.map(|(seed, (name, id))| {
        let sizes = graph.ty(id).sizes(&Default::default()).unwrap();
        (name.to_owned(), tensor(&sizes, seed + 3))
    });
    tensors.collect()
}

/// Returns the largest difference of two results, relative to the largest number.
fn difference(found: &Tensor, expected: &Tensor) -> f64 {
    assert_eq!(found.shape(), expected.shape());
    let (found, expected) = (found.to_f64(), expected.to_f64());
    let largest = |numbers: &mut dyn Iterator<Item = f64>| numbers.fold(1e-6, f64::max);
    let mut apart = found.iter().zip(&expected).map(|(x, y)| (x - y).abs());
    largest(&mut apart) / largest(&mut expected.iter().map(|x| x.abs()))
}

fn worst(device: &GpuDevice, graph: &Graph, plan: Plan) -> f64 {
    let (weights, inputs) = (weights(graph), inputs(graph));
    let expected = interp::run(graph, &weights, &inputs).unwrap();
    let program = Program::new(device, plan, &weights, ProgramOptions::default()).unwrap();
    let found = program.run(&inputs).unwrap();
    let pairs = found.iter().zip(&expected);
    pairs.map(|(x, y)| difference(x, y)).fold(0.0, f64::max)
}

#[test]
fn shared_weights_agree() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    for (name, graph, tied, kinds) in graphs() {
        for (precision, most) in [(Precision::Single, 2e-6), (Precision::Half, 4e-3)] {
            let plan = plan(&graph, device.capabilities(), precision);
            let is_once = |weight: &&str| layouts(&plan, weight).len() == kinds;
            assert!(
                tied.iter().all(is_once),
                "{name}: {:?}",
                plan.shared_weights
            );
            let worst = worst(&device, &graph, plan);
            assert!(worst < most, "{name} is wrong by {worst} as {precision:?}");
        }
    }
}

/// Bodies of a region look up rows in the panels of a product before them, and a product after them reads the result.
#[test]
fn bodies_look_up_rows_in_panels() {
    let text = "
weight table: f32[301, 24]
graph f(c: bool[], x: f32[1, 24], ids: i64[1, 24]) {
  turned = permute $table, axes=[1, 0]
  first = dot x, turned
  y = if c, ids {
    graph then(ids: i64[1, 24]) {
      row = gather $table, ids, axis=0
      return row
    }
    graph otherwise(ids: i64[1, 24]) {
      row = gather $table, ids, axis=0
      more = mul row, 3.0
      return more
    }
  }
  again = dot y, turned
  return first, again
}";
    let module: GraphModule = text.parse().unwrap();
    let graph = pass::decompose(&module.graphs[0]).unwrap();
    let plan = plan::plan(&graph, &samples::rasteriser()).unwrap();
    assert_eq!(
        layouts(&plan, "table").len(),
        1,
        "{:?}",
        plan.shared_weights
    );
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let plan = plan::plan(&graph, device.capabilities()).unwrap();
    let weights = TensorMap::from([("table".to_string(), tensor(&[301, 24], 3))]);
    let program = Program::new(&device, plan, &weights, ProgramOptions::default()).unwrap();
    for condition in [true, false] {
        let ids = Tensor::from_vec([1, 24], vec![IDS[0]; 24]).unwrap();
        let condition = Tensor::from_bools([], [condition]).unwrap();
        let inputs = [condition, tensor(&[1, 24], 1), ids];
        let expected = interp::run(&graph, &weights, &inputs).unwrap();
        for (found, expected) in program.run(&inputs).unwrap().iter().zip(&expected) {
            assert!(difference(found, expected) < 2e-6);
        }
    }
}

/// A weight that a region takes as operand is stored row-major, because bodies do not read panels.
#[test]
fn operands_of_bodies_are_row_major() {
    let text = "
weight table: f32[301, 24]
graph f(c: bool[], x: f32[1, 24], ids: i64[1, 24]) {
  turned = permute $table, axes=[1, 0]
  first = dot x, turned
  y = if c, ids, $table {
    graph then(ids: i64[1, 24], given: f32[301, 24]) {
      row = gather given, ids, axis=0
      return row
    }
    graph otherwise(ids: i64[1, 24], given: f32[301, 24]) {
      row = gather given, ids, axis=0
      more = mul row, 3.0
      return more
    }
  }
  return first, y
}";
    let module: GraphModule = text.parse().unwrap();
    let graph = pass::decompose(&module.graphs[0]).unwrap();
    let plan = plan::plan(&graph, &samples::rasteriser()).unwrap();
    let layouts = layouts(&plan, "table");
    assert!(layouts.contains(&&Layout::Linear) && layouts.len() == 2);
    let told = plan
        .shared_weights
        .iter()
        .map(|tied| tied.row_copy)
        .collect::<Vec<_>>();
    assert_eq!(told, [Some(RowCopyReason::TooManyReads)]);
}
