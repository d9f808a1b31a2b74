//! Transpositions, which make another axis the last one, compared with the host oracle: by 4 × 4 blocks where sizes are
//! multiples of four, else by rows or elements.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use onionskin::dtype::DType;
use onionskin::gpu::{FeatureLevel, Program, ProgramOptions, TensorMap};
use onionskin::interp;
use onionskin::ir::Graph;
use onionskin::kernel::capabilities::Capabilities;
use onionskin::kernel::materialization::Precision;
use onionskin::kernel::plan::Plan;
use onionskin::plan::{self, PlanOptions};
use onionskin::tensor::Tensor;

mod samples;

/// Returns small integers, which half precision represents exactly.
fn numbers(dtype: DType, shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| f64::from(i as u32 % 251)).collect();
    Tensor::from_f64(dtype, shape, values).unwrap()
}

fn plan(graph: &Graph, capabilities: &Capabilities, precision: Precision) -> Plan {
    let options = PlanOptions {
        precision,
        ..PlanOptions::default()
    };
    plan::plan_with_options(graph, capabilities, &options).unwrap()
}

#[test]
fn every_order_of_axes_agrees() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let own = device.capabilities();
    let gpu = Capabilities {
        software: false,
        ..own.clone()
    };
    let orders = [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for shape in [[8, 12, 20], [3, 8, 36], [8, 5, 12], [4, 4, 7], [2, 3, 5]] {
        for order in orders {
            for dtype in [DType::F32, DType::I32, DType::I64, DType::F16] {
                let graph = samples::graph(&[&format!("{dtype}{shape:?}")], |_, x| {
                    let turned = x[0].permute(order);
                    vec![turned, turned + x[0].permute(order) * 2]
                });
                let x = [numbers(dtype, &shape)];
                let expected = interp::run(&graph, &TensorMap::new(), &x).unwrap();
                for capabilities in [own, &gpu] {
                    for precision in [Precision::Single, Precision::Half] {
                        let plan = plan(&graph, capabilities, precision);
                        let options = ProgramOptions::default();
                        let program =
                            Program::new(&device, plan, &TensorMap::new(), options).unwrap();
                        let found = program.run(&x).unwrap();
                        assert_eq!(found, expected, "{dtype} {shape:?} {order:?} {precision:?}");
                    }
                }
            }
        }
    }
}

/// Returns the number of vectors that an invocation of a graph's only kernel writes.
fn vectors_per_invocation(graph: &Graph) -> usize {
    let plan = plan(graph, &samples::capabilities(), Precision::Single);
    assert_eq!(plan.steps.len(), 1);
    plan.kernels[0].wgsl.matches("] = ").count()
}

/// An invocation writes four vectors where it reads four, also of a slice. It writes one where a row reads a single number,
/// and where four neighbours of the other axis are not contiguous.
#[test]
fn blocks_are_used_where_they_read_less() {
    let turned = samples::graph(&["f32[16, 32]"], |_, x| vec![x[0].transpose(0, 1) + 1.0]);
    let cut = samples::graph(&["f32[16, 36]"], |_, x| {
        vec![x[0].narrow(1, 3, 32).transpose(0, 1) + 1.0]
    });
    let odd = samples::graph(&["f32[16, 33]"], |_, x| vec![x[0].transpose(0, 1) + 1.0]);
    let spread = samples::graph(&["f32[16, 32]", "f32[16]"], |_, x| {
        vec![x[0] + x[1].unsqueeze(1).expand(x[0].shape())]
    });
    assert_eq!(
        [turned, cut].map(|graph| vectors_per_invocation(&graph)),
        [4, 4]
    );
    assert_eq!(
        [odd, spread].map(|graph| vectors_per_invocation(&graph)),
        [1, 1]
    );
}
