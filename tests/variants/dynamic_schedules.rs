//! Dynamic schedules: workgroups of a rasteriser take their indices in the order in which they start.

use onionskin::ir::Graph;
use onionskin::kernel::plan::Access;
use std::collections::BTreeMap;

use crate::samples;
use crate::*;

/// A matrix product whose inputs are no weights.
fn product(rows: usize, k_size: usize) -> Graph {
    let shapes = [
        format!("f32[{rows}, {k_size}]"),
        format!("f32[{k_size}, 128]"),
    ];
    samples::graph(&shapes.each_ref().map(String::as_str), |_, x| {
        vec![x[0].dot(x[1])]
    })
}

/// Returns the workgroups of the only step of a plan, and whether it has a dynamic schedule.
fn workgroups(plan: &Plan) -> (u32, bool) {
    let [step] = plan.steps.as_slice() else {
        panic!("the plan has {} steps", plan.steps.len());
    };
    let bindings = &plan.kernels[step.kernel].bindings;
    let is_dynamic = bindings.contains(&Access::StartedWorkgroups);
    assert_eq!(plan.started_workgroups.is_some(), is_dynamic);
    let [x, y, z] = step.workgroups.eval(&Bindings::new(), 65_535).unwrap();
    (x * y * z, is_dynamic)
}

#[test]
fn long_tiles_have_dynamic_schedules() {
    let plan = |rows, k_size| plan::plan(&product(rows, k_size), &samples::rasteriser()).unwrap();
    let (short, long) = (plan(256, 16), plan(256, 4096));
    let ((few, is_dynamic), (twice, is_long_dynamic)) = (workgroups(&short), workgroups(&long));
    assert!(!is_dynamic && is_long_dynamic);
    assert_eq!(twice, 2 * few, "a thread may take twice its share");
    let on_gpu = plan::plan(&product(256, 4096), &samples::capabilities());
    assert_eq!(on_gpu.unwrap().started_workgroups, None);
}

/// Each dispatch leaves the counter at zero for the next one, of this run and of others.
#[test]
fn dynamic_schedules_can_run_again() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let graph = samples::graph(&["f32[200, 1024]", "f32[1024, 1024]"], |_, x| {
        vec![x[0].dot(x[1]).dot(x[1])]
    });
    let plan = plan::plan(&graph, device.capabilities()).unwrap();
    let program = Program::new(&device, plan, &BTreeMap::new(), ProgramOptions::default()).unwrap();
    let mut seed = 1;
    let types = graph.inputs.iter().map(|input| graph.ty(*input));
    let inputs: Vec<Tensor> = types
        .map(|ty| tensor(&mut seed, ty.dtype, &ty.sizes(&Bindings::new()).unwrap()))
        .collect();
    let first = program.run(&inputs).unwrap();
    let expected = interp::run(&graph, &BTreeMap::new(), &inputs).unwrap();
    let error = samples::distance(&first[0], &expected[0]);
    assert!(error <= 1e-2, "{error}");
    for _ in 0..4 {
        assert_eq!(program.run(&inputs).unwrap(), first);
    }
}
