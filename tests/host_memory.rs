//! Memory of runs on the host: no primitive takes more than is computed before the run, and a run that would exceed its limit
//! does not start. The global allocator of this program counts bytes; a second test would disturb the count.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod counting_allocator;

use std::sync::atomic::Ordering::Relaxed;

use counting_allocator::{LIVE, PEAK};
use onionskin::dtype::DType;
use onionskin::error::ErrorKind;
use onionskin::interp::{self, NodeEvent};
use onionskin::ir::{Builder, Graph, GraphModule, Value, Weights};
use onionskin::op::{
    ConvAxis, Recurrent, RecurrentCell, ReduceFunction, ScanFunction, ScatterFunction,
};
use onionskin::{RunOptions, Tensor};

const SIZE: usize = 512;
/// Bytes of an input.
const INPUT: usize = SIZE * SIZE * 4;
/// Bytes that a run takes for other things than tensors.
const SMALL: usize = 64 << 10;

type Build = for<'g> fn(&'g Builder, Value<'g>) -> Value<'g>;

/// Operators of all primitives, for an input `f32[512, 512]`.
const OPERATORS: &[(&str, Build)] = &[
    ("add", |_, x| x + x),
    ("tanh of a product", |_, x| (x * x).tanh()),
    ("comparison", |_, x| x.lt(0.5).to(DType::F32)),
    ("cast to integers", |_, x| x.to(DType::I64)),
    ("cast to half", |_, x| x.to(DType::F16) + 1.0),
    ("select", |_, x| x.lt(0.5).where_(x, 1.0)),
    ("full", |builder, _| {
        builder.full(DType::F32, shape(&[1024, 512]), 2.0)
    }),
    ("iota", |builder, _| {
        builder.iota(DType::I64, shape(&[1024, 512]), 0)
    }),
    ("reshape", |_, x| x.reshape(shape(&[1024, 256]))),
    ("transpose", |_, x| x.transpose(0, 1)),
    ("expand", |_, x| {
        x.unsqueeze(0).expand(shape(&[8, 512, 512]))
    }),
    ("slice", |_, x| x.narrow(0, 10, 300)),
    ("flip", |_, x| x.flip(&[0, 1])),
    ("pad", |_, x| {
        x.pad(&[10.into(), 10.into()], &[100.into(), 100.into()], 1.0)
    }),
    ("concat", |builder, x| builder.concat(&[x, x, x], 0)),
    ("unfold", |_, x| x.unfold(1, 64, 32, 1)),
    ("sum", |_, x| x.sum(&[1], false)),
    ("largest of each row", |_, x| {
        x.reduce(ReduceFunction::Max, &[1], true)
    }),
    ("argmax", |_, x| x.argmax(0, false)),
    ("softmax", |_, x| x.softmax(-1)),
    ("variance", |_, x| x.var(&[0], 1.0, false)),
    ("cumsum", |_, x| x.scan(ScanFunction::Sum, 0)),
    ("cumsum of integers", |_, x| {
        x.to(DType::I32).scan(ScanFunction::Sum, 0)
    }),
    ("sort", |_, x| x.sort(1, false).0),
    ("topk", |_, x| x.topk(100, 0, true).1),
    ("dot", |_, x| x.dot(x)),
    ("dot of f64", |_, x| x.to(DType::F64).dot(x.to(DType::F64))),
    ("dot of half", |_, x| x.to(DType::F16).dot(x.to(DType::F16))),
    ("dot of integers", |_, x| {
        let x = x.narrow(1, 0, 64).to(DType::I32);
        x.dot(x.transpose(0, 1))
    }),
    ("gather", |_, x| {
        x.gather(1, x.to(DType::I64).clamp(Some(0.into()), Some(3.into())))
    }),
    ("rows of a table", |builder, x| {
        x.index_select(
            0,
            builder
                .iota(DType::I64, shape(&[2000]), 0)
                .clamp(Some(0.into()), Some(511.into())),
        )
    }),
    ("scatter", |_, x| {
        x.scatter(
            0,
            x.to(DType::I64).clamp(Some(0.into()), Some(3.into())),
            x,
            ScatterFunction::Add,
        )
    }),
    ("conv", |builder, x| {
        let filter = builder.full(DType::F32, shape(&[8, 4, 3, 3]), 1.0);
        x.reshape(shape(&[2, 4, 256, 128]))
            .conv(filter, vec![axis(), axis()], 1)
    }),
    ("conv of groups", |builder, x| {
        let filter = builder.full(DType::F64, shape(&[8, 1, 5]), 1.0);
        x.to(DType::F64)
            .reshape(shape(&[8, 8, 4096]))
            .conv(filter, vec![axis()], 8)
    }),
    ("lstm", |builder, x| {
        let zeros = |sizes: &[usize]| builder.full(DType::F32, shape(sizes), 0.0);
        let operands = [
            x.reshape(shape(&[16, 64, 256])),
            zeros(&[1, 4, 64, 64]),
            zeros(&[1, 4, 64]),
            zeros(&[1, 64, 64]),
            zeros(&[1, 64, 64]),
        ];
        let layer = Recurrent {
            cell: RecurrentCell::Lstm,
        };
        let arguments = operands.map(Into::into).to_vec();
        builder.apply_many(layer, arguments)[0]
    }),
    ("many values at a time", |builder, x| {
        let values = [x + 1.0, x + 2.0, x + 3.0, x + 4.0];
        values.into_iter().fold(
            builder.full(DType::F32, shape(&[512, 512]), 0.0),
            |sum, value| sum * value,
        )
    }),
];

fn shape(sizes: &[usize]) -> onionskin::shape::Shape {
    sizes.iter().map(|size| (*size).into()).collect()
}

fn axis() -> ConvAxis {
    ConvAxis {
        stride: 1,
        low: 1,
        high: 1,
        dilation: 1,
        base_dilation: 1,
    }
}

/// A graph whose first node takes next to nothing.
fn graph(build: Build) -> Graph {
    let builder = Builder::new("forward");
    let outputs = {
        let x = builder.input("x", "f32[512, 512]".parse().unwrap());
        let first = builder.iota(DType::I64, shape(&[1]), 0);
        [first.id(), build(&builder, x).id()]
    };
    builder.finish(&outputs, Vec::new(), None).unwrap()
}

/// Calls a function in a loop and in a branch.
const REGIONS: &str = "
graph forward(x: f32[512, 512]) {
  argument x = #0
  first: i64[1] = iota shape=[1], dtype=i64, axis=0
  yes: bool[] = full true, shape=[], dtype=bool
  looped = loop 3, yes, x, carried=1 {
    graph body(i: i64[], x: f32[512, 512]) {
      again: bool[] = full true, shape=[], dtype=bool
      y = exp x
      z = add x, y
      return again, z
    }
  }
  chosen = if yes, looped {
    graph then(x: f32[512, 512]) {
      y = scan x, axis=0, function=sum
      return y
    }
    graph otherwise(x: f32[512, 512]) {
      return x
    }
  }
  return first, chosen
}";

/// The most bytes that a run takes at a time after its first node.
fn measured(graph: &Graph, x: &Tensor) -> usize {
    let mut start = None;
    let mut watch = |_: &NodeEvent| {
        if start.is_none() {
            start = Some(LIVE.load(Relaxed));
            PEAK.store(LIVE.load(Relaxed), Relaxed);
        }
        Ok(())
    };
    let inputs = std::slice::from_ref(x);
    interp::run_observed(graph, &Weights::new(), inputs, &mut watch).unwrap();
    PEAK.load(Relaxed) - start.unwrap()
}

/// Whether a run starts under a limit of memory.
fn starts(graph: &Graph, x: &Tensor, bytes: usize) -> bool {
    let options = RunOptions {
        host_memory: Some(bytes as u64),
        ..RunOptions::default()
    };
    let run = || interp::run(graph, &Weights::new(), std::slice::from_ref(x));
    match options.scope(run) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
            assert!(error.advice().unwrap().contains("--host-memory"));
            false
        }
    }
}

#[test]
fn a_run_takes_no_more_memory_than_its_limit() {
    let x = Tensor::full(DType::F32, [SIZE, SIZE], 0.75).unwrap();
    let regions: GraphModule = REGIONS.parse().unwrap();
    let graphs = OPERATORS.iter().map(|(name, build)| (*name, graph(*build)));
    let graphs = graphs.chain([("regions", regions.graphs[0].clone())]);
    let mut wrong = Vec::new();
    for (name, graph) in graphs {
        let taken = measured(&graph, &x);
        println!("{name}: {:.2} MiB", taken as f64 / 1048576.0);
        if starts(&graph, &x, taken.saturating_sub(SMALL)) && SMALL < taken {
            wrong.push(format!("{name} takes {taken} bytes, more than computed"));
        }
        if !starts(&graph, &x, 2 * taken + 2 * INPUT) {
            wrong.push(format!(
                "{name} takes {taken} bytes, far fewer than computed"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
