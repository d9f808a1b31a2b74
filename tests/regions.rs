//! Conditions and loops on a device: one compiled program returns the oracle's results.
//!
//! Without an adapter the tests print a note and pass; with `REQUIRE_GPU=1` they fail.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use onionskin::gpu::{FeatureLevel, GpuDevice, Program, ProgramOptions};
use onionskin::interp;
use onionskin::ir::{Graph, GraphModule, Weights};
use onionskin::pass;
use onionskin::plan;
use onionskin::tensor::Tensor;

mod samples;

/// A graph with its weights, and its program on a device.
struct RegionCase {
    graph: Graph,
    weights: Weights,
    program: Program,
}

impl RegionCase {
    /// Plans a graph from text without passes, which would remove its regions. `None` without an adapter.
    fn new(text: &str) -> Option<RegionCase> {
        RegionCase::with_weights(text, Weights::new())
    }

    fn with_weights(text: &str, weights: Weights) -> Option<RegionCase> {
        let device = device()?;
        let module: GraphModule = text.parse().unwrap();
        let graph = pass::decompose(&module.graphs[0]).unwrap();
        graph.verify().unwrap();
        let explicit = pass::explicit_regions(&graph).unwrap();
        explicit.verify().unwrap();
        let plan = plan::plan(&graph, device.capabilities()).unwrap();
        let program = Program::new(&device, plan, &weights, ProgramOptions::default()).unwrap();
        Some(RegionCase {
            graph,
            weights,
            program,
        })
    }

    /// Runs device and oracle, compares the results, and returns them with the number of values read back.
    fn run(&self, inputs: &[Tensor]) -> (Vec<Tensor>, u64) {
        let expected = interp::run(&self.graph, &self.weights, inputs).unwrap();
        let before = self.program.statistics().readbacks;
        let found = self.program.run(inputs).unwrap();
        assert_eq!(found, expected);
        (found, self.program.statistics().readbacks - before)
    }
}

fn device() -> Option<GpuDevice> {
    samples::device(FeatureLevel::Full)
}

fn bool(value: bool) -> Tensor {
    Tensor::from_bools([], [value]).unwrap()
}

fn int(value: i64) -> Tensor {
    Tensor::from_vec([], vec![value]).unwrap()
}

/// Returns ascending integers, whose sums are exact in any order.
fn floats<const N: usize>(shape: [usize; N]) -> Tensor {
    let numel = shape.iter().product::<usize>();
    let values = (0..numel).map(|index| (index % 7) as f32 - 2.0);
    Tensor::from_vec(shape, values.collect()).unwrap()
}

const CONDITION: &str = "
graph f(c: bool[], x: f32[B, 3]) {
  double = mul x, 2.0
  y, sum = if c, x, double @ model.py:3 {
    graph then(x: f32[B, 3], double: f32[B, 3]) {
      sum = reduce double, function=sum, axes=[0]
      wide: f32[B, 3] = expand sum, shape=[B, 3]
      y = sub x, wide
      return y, sum
    }
    graph otherwise(x: f32[B, 3], double: f32[B, 3]) {
      largest = reduce x, function=max, axes=[0]
      return double, largest
    }
  }
  z = add y, double
  return z, sum
}";

#[test]
fn one_program_takes_either_branch() {
    let Some(case) = RegionCase::new(CONDITION) else {
        return;
    };
    let (taken, readbacks) = case.run(&[bool(true), floats([4, 3])]);
    assert_eq!(readbacks, 1);
    let (other, _) = case.run(&[bool(false), floats([4, 3])]);
    assert_ne!(taken, other);
    // The program also serves other sizes.
    case.run(&[bool(true), floats([9, 3])]);
    case.run(&[bool(false), floats([1, 3])]);
}

#[test]
fn in_the_steady_state_nothing_is_created() {
    let Some(case) = RegionCase::new(CONDITION) else {
        return;
    };
    case.run(&[bool(true), floats([4, 3])]);
    let created = case.program.statistics().created();
    for round in 0..4 {
        case.run(&[bool(round % 2 == 0), floats([4, 3])]);
    }
    assert_eq!(case.program.statistics().created(), created);
}

#[test]
fn concurrent_runs_take_independent_branches() {
    let Some(case) = RegionCase::new(CONDITION) else {
        return;
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let case = &case;
            scope.spawn(move || {
                for round in 0..5 {
                    let inputs = [bool((thread + round) % 2 == 0), floats([4 + thread, 3])];
                    let expected = interp::run(&case.graph, &case.weights, &inputs).unwrap();
                    assert_eq!(case.program.run(&inputs).unwrap(), expected);
                }
            });
        }
    });
    assert_eq!(case.program.statistics().readbacks, 20);
}

#[test]
fn a_branch_may_return_inputs_weights_and_the_same_twice() {
    let text = "
weight w: f32[3]
graph f(c: bool[], x: f32[3]) {
  a, b, e = if c, x {
    graph then(x: f32[3]) {
      y = add x, x
      return y, y, $w
    }
    graph otherwise(x: f32[3]) {
      return x, $w, x
    }
  }
  return a, b, e, a
}";
    let weights = Weights::from([("w".to_string(), floats([3]))]);
    let Some(case) = RegionCase::with_weights(text, weights) else {
        return;
    };
    case.run(&[bool(true), floats([3])]);
    case.run(&[bool(false), floats([3])]);
}

#[test]
fn a_loop_runs_as_often_as_a_tensor_says() {
    let text = "
graph f(n: i64[], x: f32[B, 3]) {
  y, unchanged, z = loop n, true, x, x, x, x, carried=3 @ model.py:7 {
    graph body(i: i64[], y: f32[B, 3], unchanged: f32[B, 3], z: f32[B, 3], x: f32[B, 3]) {
      true: bool[] = full true, dtype=bool, shape=[]
      round = cast i, dtype=f32
      wide: f32[B, 3] = expand round, shape=[B, 3]
      weighted = mul wide, x
      next = add y, weighted
      sums = reduce y, function=sum, axes=[0]
      again: f32[B, 3] = expand sums, shape=[B, 3]
      return true, next, unchanged, again
    }
  }
  return y, unchanged, z
}";
    let Some(case) = RegionCase::new(text) else {
        return;
    };
    for trips in [0, 1, 2, 7] {
        let (_, readbacks) = case.run(&[int(trips), floats([2, 3])]);
        assert_eq!(readbacks, 1, "the trip count");
    }
    case.run(&[int(-3), floats([2, 3])]);
    let created = case.program.statistics().created();
    case.run(&[int(5), floats([2, 3])]);
    assert_eq!(case.program.statistics().created(), created);
}

#[test]
fn a_loop_whose_length_is_a_size_reads_nothing_back() {
    let text = "
graph f(x: f32[B, 3]) {
  zero: f32[3] = full 0.0, dtype=f32, shape=[3]
  y = loop B, true, zero, x, carried=1 {
    graph body(i: i64[], sum: f32[3], x: f32[B, 3]) {
      true: bool[] = full true, dtype=bool, shape=[]
      index: i64[1, 3] = expand i, shape=[1, 3]
      row: f32[1, 3] = gather x, index, axis=0
      flat: f32[3] = reshape row, shape=[3]
      half = mul sum, 0.5
      next = add half, flat
      return true, next
    }
  }
  return y
}";
    let Some(case) = RegionCase::new(text) else {
        return;
    };
    for size in [1, 2, 6] {
        assert_eq!(case.run(&[floats([size, 3])]).1, 0);
    }
}

#[test]
fn a_loop_ends_when_its_condition_says() {
    let text = "
graph f(x: f32[B], limit: f32[]) {
  start = reduce x, function=sum, axes=[0]
  goes = lt start, limit
  y, rounds = loop 100, goes, x, 0, limit, carried=2 {
    graph body(i: i64[], y: f32[B], rounds: i64[], limit: f32[]) {
      grown = mul y, 2.0
      sum = reduce grown, function=sum, axes=[0]
      again = lt sum, limit
      more = add rounds, 1
      return again, grown, more
    }
  }
  return y, rounds
}";
    let Some(case) = RegionCase::new(text) else {
        return;
    };
    let ones = Tensor::from_vec([4], vec![1f32; 4]).unwrap();
    let limit = |value: f32| Tensor::from_vec([], vec![value]).unwrap();
    for (bound, rounds) in [(0.0, 0), (8.0, 1), (100.0, 5), (1e9, 28)] {
        let (outputs, readbacks) = case.run(&[ones.clone(), limit(bound)]);
        assert_eq!(outputs[1], int(rounds));
        assert_eq!(readbacks, 1 + rounds as u64);
    }
}

#[test]
fn carried_values_are_updated_simultaneously() {
    let text = "
graph f(c: bool[], x: f32[2], y: f32[2], n: i64[]) {
  c1, d, a, b = loop n, c, c, true, x, y, carried=4 {
    graph body(i: i64[], c: bool[], d: bool[], a: f32[2], b: f32[2]) {
      return c, d, c, b, a
    }
  }
  return c1, d, a, b
}";
    let Some(case) = RegionCase::new(text) else {
        return;
    };
    let y = Tensor::from_vec([2], vec![10f32, 20.0]).unwrap();
    for (condition, trips) in [(true, 0), (true, 1), (true, 4), (true, 5), (false, 3)] {
        case.run(&[bool(condition), floats([2]), y.clone(), int(trips)]);
    }
}

/// A value from before a loop lives to the loop's end, also the condition of an `if` at its beginning.
#[test]
fn regions_nest() {
    let text = "
graph f(x: f32[B, 4], n: i64[], m: i64[]) {
  sums = reduce x, function=sum, axes=[1]
  total = reduce sums, function=sum, axes=[0]
  positive = gt total, 0.0
  twice = mul x, 2.0
  turned = aten.t x
  w = dot twice, turned
  y = loop n, true, sums, positive, w, m, total, carried=1 {
    graph body(i: i64[], v: f32[B], positive: bool[], w: f32[B, B], m: i64[], total: f32[]) {
      true: bool[] = full true, dtype=bool, shape=[]
      u = if positive, v, w {
        graph then(v: f32[B], w: f32[B, B]) {
          u = aten.mv w, v
          r = remainder u, 17.0
          return r
        }
        graph otherwise(v: f32[B], w: f32[B, B]) {
          rows = reduce w, function=max, axes=[1]
          s = sub rows, v
          return s
        }
      }
      z = loop m, true, u, i, total, carried=1 {
        graph body(j: i64[], z: f32[B], i: i64[], total: f32[]) {
          true: bool[] = full true, dtype=bool, shape=[]
          even = remainder j, 2
          is_odd = eq even, 1
          sum = reduce z, function=sum, axes=[0]
          q = if is_odd, sum, i, total {
            graph then(sum: f32[], i: i64[], total: f32[]) {
              f = cast i, dtype=f32
              p = add f, total
              return p
            }
            graph otherwise(sum: f32[], i: i64[], total: f32[]) {
              return sum
            }
          }
          wide: f32[B] = expand q, shape=[B]
          added = add z, wide
          next = remainder added, 31.0
          return true, next
        }
      }
      return true, z
    }
  }
  left = aten.mv w, y
  return left, y
}";
    let Some(case) = RegionCase::new(text) else {
        return;
    };
    for (n, m) in [(0, 2), (1, 0), (3, 1), (4, 5)] {
        case.run(&[floats([3, 4]), int(n), int(m)]);
        case.run(&[floats([5, 4]), int(n), int(m)]);
        let negative = Tensor::from_vec([2, 4], vec![-1f32; 8]).unwrap();
        case.run(&[negative, int(n), int(m)]);
    }
}

/// Inputs of a body bind its size symbols: they may have other names than outside, or equal names with other sizes.
#[test]
fn size_symbols_of_bodies_are_local() {
    let text = "
graph f(c: bool[], x: f32[B, N]) {
  size B = 2
  size N = 4
  flat: f32[B*N] = reshape x, shape=[B*N]
  y = if c, flat {
    graph then(x: f32[N]) {
      size N = 8
      index: f32[N] = iota dtype=f32, shape=[N], axis=0
      y = add x, index
      return y
    }
    graph otherwise(x: f32[M]) {
      size M = 8
      total = reduce x, function=sum, axes=[0]
      wide: f32[M] = expand total, shape=[M]
      return wide
    }
  }
  return y
}";
    let Some(case) = RegionCase::new(text) else {
        return;
    };
    for shape in [[2, 4], [3, 5]] {
        case.run(&[bool(true), floats(shape)]);
        case.run(&[bool(false), floats(shape)]);
    }
}

#[test]
fn long_loops_are_submitted_in_parts() {
    let text = "
graph f(x: f32[2, 2], n: i64[]) {
  y = loop n, true, x, x, carried=1 {
    graph body(i: i64[], y: f32[2, 2], x: f32[2, 2]) {
      true: bool[] = full true, dtype=bool, shape=[]
      z = dot y, x
      r = remainder z, 13.0
      return true, r
    }
  }
  return y
}";
    let Some(case) = RegionCase::new(text) else {
        return;
    };
    assert_eq!(case.run(&[floats([2, 2]), int(3000)]).1, 1);
}

/// Passes remove the control flow of a cheap condition in a short loop.
#[test]
fn cheap_conditions_and_short_loops_are_removed() {
    let text = "
graph f(c: bool[], x: f32[B]) {
  y = loop 3, true, x, c, carried=1 {
    graph body(i: i64[], y: f32[B], c: bool[]) {
      true: bool[] = full true, dtype=bool, shape=[]
      z = if c, y, i {
        graph then(y: f32[B], i: i64[]) {
          round = cast i, dtype=f32
          wide: f32[B] = expand round, shape=[B]
          a = add y, wide
          return a
        }
        graph otherwise(y: f32[B], i: i64[]) {
          return y
        }
      }
      return true, z
    }
  }
  return y
}";
    let Some(case) = RegionCase::new(text) else {
        return;
    };
    let device = case.program.device();
    let graph = pass::optimize(&case.graph).unwrap();
    let plan = plan::plan(&graph, device.capabilities()).unwrap();
    assert!(plan.flows.is_empty());
    let program = Program::new(device, plan, &Weights::new(), ProgramOptions::default()).unwrap();
    for condition in [true, false] {
        let inputs = [bool(condition), floats([4])];
        assert_eq!(program.run(&inputs).unwrap(), case.run(&inputs).0);
    }
    assert_eq!(program.statistics().readbacks, 0);
}

#[test]
fn the_profile_lists_readbacks_with_their_lines() {
    let Some(case) = RegionCase::new(CONDITION) else {
        return;
    };
    let inputs = [bool(false), floats([4, 3])];
    let (outputs, profile) = case.program.profile(&inputs).unwrap();
    assert_eq!(outputs, case.run(&inputs).0);
    let [readback] = profile.readbacks.as_slice() else {
        panic!("{profile:?}")
    };
    assert_eq!((readback.slot.as_str(), readback.count), ("c", 1));
    assert_eq!(readback.nodes, ["y", "sum"]);
    assert_eq!(readback.place.to_string(), "model.py:3");
    assert!(readback.nanoseconds > 0);
    let runs: Vec<u64> = profile.steps.iter().map(|step| step.runs).collect();
    assert!(runs.contains(&0) && runs.contains(&1), "{runs:?}");
}
