//! Programs that run: arena, symbolic sizes, steady state, sharing, threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onionskin::dim::Dim;
use onionskin::dtype::DType;
use onionskin::gpu::{Footprint, Keep, Program, ProgramOptions, Progress, RunInput, TensorMap};
use onionskin::kernel::capabilities::StorageType;
use onionskin::kernel::plan::{Plan, SlotId, SlotKind};
use onionskin::tensor::Tensor;

use super::plans::*;

/// Returns the result of `chain` for one element.
fn chained(x: f32, length: usize) -> f32 {
    (0..length).fold(x, |x, _| 2.0 * x + 1.0)
}

#[test]
fn a_kernel_runs() {
    let Some(device) = device() else { return };
    let plan = single(DType::F32, StorageType::F32, &[Dim::from(5i64)], 3, -1);
    let outputs = program(&device, plan).run(&[floats([0.0, 1.0, 2.0, 3.0, 4.0])]);
    assert_eq!(outputs.unwrap(), [floats([-1.0, 2.0, 5.0, 8.0, 11.0])]);
}

#[test]
fn a_chain_reuses_the_arena() {
    let Some(device) = device() else { return };
    let n = 1000;
    let plan = chain(8, &[Dim::from(n)]);
    let footprint = Footprint::of(&plan, device.capabilities(), &Default::default()).unwrap();
    assert_eq!(footprint.temporaries_unshared, 7 * 4000);
    assert_eq!(footprint.temporaries_live, 2 * 4000);
    assert!(footprint.temporaries <= 4096 + 4000, "{footprint:?}");
    let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let outputs = program(&device, plan).run(&[floats(x.clone())]).unwrap();
    assert_eq!(outputs, [floats(x.into_iter().map(|x| chained(x, 8)))]);
}

#[test]
fn one_program_serves_every_size() {
    let Some(device) = device() else { return };
    let program = program(&device, chain(3, &[symbol("B"), Dim::from(3i64)]));
    for batch in [1usize, 7, 2, 0, 100, 7] {
        let x: Vec<f32> = (0..batch * 3).map(|i| i as f32).collect();
        let expected: Vec<f32> = x.iter().map(|x| chained(*x, 3)).collect();
        let outputs = program.run(&[Tensor::from_vec([batch, 3], x).unwrap()]);
        let expected = Tensor::from_vec([batch, 3], expected).unwrap();
        assert_eq!(outputs.unwrap(), [expected]);
    }
}

#[test]
fn the_steady_state_creates_nothing() {
    let Some(device) = device() else { return };
    let program = program(&device, chain(4, &[symbol("B")]));
    let inputs: Vec<Tensor> = [5, 300, 2]
        .map(|n| floats((0..n).map(|i| i as f32)))
        .to_vec();
    let run_all = || {
        for x in &inputs {
            program.run(std::slice::from_ref(x)).unwrap();
        }
        program.statistics()
    };
    let run_first = || {
        program.run(&inputs[..1]).unwrap();
        program.statistics().created()
    };
    assert_eq!(run_first(), run_first());
    // The second round rebuilds bind groups that were invalidated by growing memory in the first one.
    run_all();
    let before = run_all();
    let after = run_all();
    assert_eq!(before.created(), after.created());
    assert_eq!(after.runs - before.runs, 3);
    assert_eq!(after.dispatches - before.dispatches, 12);
    assert_eq!(after.pipelines_created, 2);
}

#[test]
fn rising_sizes_seldom_grow_memory() {
    let Some(device) = device() else { return };
    let program = program(&device, chain(4, &[symbol("B")]));
    for n in 1..200 {
        program.run(&[floats((0..n).map(|i| i as f32))]).unwrap();
    }
    let statistics = program.statistics();
    // One uniform buffer for each size, and a few for the memory.
    assert!(statistics.buffers_created < 260, "{statistics:?}");
}

#[test]
fn pipelines_are_compiled_once_per_device() {
    let Some(device) = device() else { return };
    let mut plan = chain(2, &[symbol("B")]);
    plan.kernels.extend(plan.kernels.clone());
    let programs: Vec<Program> = std::thread::scope(|scope| {
        let make = || program(&device, plan.clone());
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let created: u64 = programs
        .iter()
        .map(|program| program.statistics().pipelines_created)
        .sum();
    assert_eq!((created, device.pipeline_count()), (2, 2));
}

#[test]
fn programs_run_on_many_threads() {
    let Some(device) = device() else { return };
    let shared = program(&device, chain(5, &[symbol("B")]));
    std::thread::scope(|scope| {
        for thread in 0..6usize {
            let (shared, device) = (shared.clone(), device.clone());
            scope.spawn(move || {
                let own = program(&device, chain(thread + 2, &[symbol("B")]));
                for round in 0..10 {
                    let x: Vec<f32> = (0..50 + thread + round).map(|i| i as f32).collect();
                    for (program, length) in [(&shared, 5), (&own, thread + 2)] {
                        let expected = floats(x.iter().map(|x| chained(*x, length)));
                        assert_eq!(program.run(&[floats(x.clone())]).unwrap(), [expected]);
                    }
                }
            });
        }
    });
}

#[test]
fn runs_overlap_when_they_are_futures() {
    let Some(device) = device() else { return };
    let program = program(&device, chain(3, &[symbol("B")]));
    let futures: Vec<_> = (1..5)
        .map(|n| program.run_async(&[floats((0..n).map(|i| i as f32))]))
        .collect();
    drop(program.run_async(&[floats([1.0])]));
    for (n, future) in (1..5).zip(futures) {
        let expected = floats((0..n).map(|i| chained(i as f32, 3)));
        assert_eq!(pollster::block_on(future).unwrap(), [expected]);
    }
}

#[test]
fn outputs_stay_on_the_device() {
    let Some(device) = device() else { return };
    let program = program(&device, chain(2, &[symbol("B")]));
    let x = floats([1.0, 2.0, 3.0]);
    let mut run = program.launch(&[RunInput::Host(&x)]).unwrap();
    for _ in 0..4 {
        let output = run.outputs().remove(0);
        run = program.launch(&[RunInput::Device(&output)]).unwrap();
    }
    let expected = [floats([1.0, 2.0, 3.0].map(|x| chained(x, 10)))];
    assert_eq!(run.read().unwrap(), expected);
    assert_eq!(run.read().unwrap(), expected);
    assert_eq!(program.statistics().bytes_uploaded, 12);
}

#[test]
fn empty_tensors_are_no_special_case() {
    let Some(device) = device() else { return };
    let program = program(&device, chain(3, &[Dim::ZERO]));
    assert_eq!(program.run(&[floats([])]).unwrap(), [floats([])]);
    assert_eq!(program.statistics().dispatches, 0);
}

#[test]
fn outputs_may_repeat_and_may_be_inputs_or_weights() {
    let Some(device) = device() else { return };
    let shape = [Dim::from(3i64)];
    let mut plan = single(DType::F32, StorageType::F32, &shape, 2, 0);
    let weight = SlotKind::Weight("w".into());
    plan.slots
        .push(slot("w", DType::F32, StorageType::F32, &shape, weight));
    plan.outputs = vec![SlotId(1), SlotId(0), SlotId(2), SlotId(1)];
    let weights = TensorMap::from([("w".to_owned(), floats([7.0, 8.0, 9.0]))]);
    let program = Program::new(&device, plan, &weights, ProgramOptions::default()).unwrap();
    let (x, y) = (floats([1.0, 2.0, 3.0]), floats([2.0, 4.0, 6.0]));
    let expected = [y.clone(), x.clone(), floats([7.0, 8.0, 9.0]), y];
    assert_eq!(program.run(&[x]).unwrap(), expected);
}

#[test]
fn unused_inputs_are_ignored() {
    let Some(device) = device() else { return };
    let mut plan = single(DType::F32, StorageType::F32, &[symbol("B")], 2, 0);
    plan.inputs = vec![None, Some(SlotId(0))];
    let outputs = program(&device, plan).run(&[floats([9.0; 9]), floats([1.0])]);
    assert_eq!(outputs.unwrap(), [floats([2.0])]);
}

#[test]
fn every_value_can_be_kept() {
    let Some(device) = device() else { return };
    let options = ProgramOptions {
        keep: Keep::Everything,
        ..ProgramOptions::default()
    };
    let plan = chain(5, &[symbol("B")]);
    let program = Program::new(&device, plan.clone(), &TensorMap::new(), options).unwrap();
    let x = floats([1.0, 2.0]);
    let run = program.launch(&[RunInput::Host(&x)]).unwrap();
    for (length, slot) in plan.slots.iter().enumerate() {
        let expected = floats([1.0, 2.0].map(|x| chained(x, length)));
        assert_eq!(run.slot(&slot.name).unwrap(), expected, "{}", slot.name);
    }
}

#[test]
fn progress_is_told() {
    let Some(device) = device() else { return };
    let (pipelines, bytes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (compiled, sent) = (pipelines.clone(), bytes.clone());
    let options = ProgramOptions {
        progress: Some(Arc::new(move |progress| match progress {
            Progress::Pipelines { done, total: 2 } => {
                compiled.fetch_max(done, Ordering::Relaxed);
            }
            Progress::Weights { done, total: 40 } => {
                sent.fetch_max(done as usize, Ordering::Relaxed);
            }
            other => panic!("{other:?}"),
        })),
        ..ProgramOptions::default()
    };
    let shape = [Dim::from(10i64)];
    let plan = Plan {
        slots: vec![slot(
            "w",
            DType::F32,
            StorageType::F32,
            &shape,
            SlotKind::Weight("w".into()),
        )],
        kernels: chain(2, &shape).kernels,
        ..Plan::default()
    };
    let weights = TensorMap::from([("w".to_owned(), floats([0.5; 10]))]);
    Program::new(&device, plan, &weights, options).unwrap();
    let seen = (
        pipelines.load(Ordering::Relaxed),
        bytes.load(Ordering::Relaxed),
    );
    assert_eq!(seen, (2, 40));
}

#[test]
fn weights_are_shared_between_programs() {
    let Some(device) = device() else { return };
    let mut plan = single(DType::F32, StorageType::F32, &[Dim::from(3i64)], 2, 0);
    plan.slots[0].kind = SlotKind::Weight("w".into());
    plan.inputs.clear();
    let weights = TensorMap::from([("w".to_owned(), floats([7.0, 8.0, 9.0]))]);
    let options = ProgramOptions::default();
    let make = || Program::new(&device, plan.clone(), &weights, options.clone()).unwrap();
    let (first, second) = (make(), make());
    assert_eq!(first.statistics().bytes_uploaded, 12);
    assert_eq!(second.statistics().bytes_uploaded, 0);
    for program in [first, second] {
        assert_eq!(program.run(&[]).unwrap(), [floats([14.0, 16.0, 18.0])]);
    }
}

#[test]
fn more_workgroups_than_one_dimension_has() {
    let Some(device) = device() else { return };
    let n = 65_536 * 64 + 1;
    let plan = single(DType::F32, StorageType::F32, &[symbol("N")], 1, 1);
    let outputs = program(&device, plan).run(&[floats((0..n).map(|i| (i % 1000) as f32))]);
    let expected = floats((0..n).map(|i| (i % 1000) as f32 + 1.0));
    assert!(outputs.unwrap() == [expected]);
}

#[test]
fn every_step_is_measured() {
    for device in [device(), portable_device()].into_iter().flatten() {
        let program = program(&device, chain(3, &[symbol("B")]));
        let x = floats((0..5000).map(|i| i as f32));
        let (outputs, profile) = program.profile(std::slice::from_ref(&x)).unwrap();
        assert_eq!(outputs, program.run(&[x]).unwrap());
        println!("{profile:?}");
        assert_eq!(profile.steps.len(), 3);
        assert!(profile.steps.iter().all(|step| step.nanoseconds > 0));
        assert_eq!(profile.steps[2].nodes, ["node2"]);
        let (_, nothing) = program.profile(&[floats([])]).unwrap();
        assert_eq!(nothing.steps[0].workgroups, [0, 0, 0]);
    }
}
