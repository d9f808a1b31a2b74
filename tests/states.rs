//! States that a session keeps between calls, on the host and on a device.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use onionskin::ir::GraphModule;
use onionskin::item::Item;
use onionskin::scalar::Scalar;
use onionskin::{CompileOptions, Device, Model, Session, Tensor};

use session_devices::{devices, transferred};

mod session_devices;

/// A running sum of rows that starts with a weight, and a method that sets it.
const SUM: &str = "
weight start: f32[3]
state sum = #0 of $start
state calls = 0
graph forward(x: f32[B, 3], sum: f32[3]) {
  argument x = #0
  reads sum = #1
  result #0
  writes sum = #1
  rows = reduce x, function=sum, axes=[0]
  next = add sum, rows
  wide: f32[B, 3] = expand next, shape=[B, 3]
  y = sub x, wide
  return y, next
}
graph set(value: f32[3]) {
  argument value = #0
  result none
  writes sum = #0
  writes calls = 1
  doubled = mul value, 2.0
  return doubled
}";

fn session(text: &str, device: &Device) -> Session {
    let mut module: GraphModule = text.parse().unwrap();
    let start = Tensor::from_vec([3], vec![10f32, 20.0, 30.0]).unwrap();
    module.weights.insert("start".into(), start);
    module.verify().unwrap();
    let model = Model::from_module(module);
    model.compile(device, &CompileOptions::default()).unwrap()
}

fn rows(values: &[[f32; 3]]) -> Tensor {
    let data = values.iter().flatten().copied().collect();
    Tensor::from_vec([values.len(), 3], data).unwrap()
}

fn sum(session: &Session) -> Vec<f64> {
    match session.state("sum") {
        Ok(Item::Tensor(tensor)) => tensor.to_f64(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_state_lives_from_call_to_call() {
    for device in devices() {
        let session = session(SUM, &device);
        assert_eq!(sum(&session), [10.0, 20.0, 30.0]);
        let y = session.run(&[rows(&[[1.0, 2.0, 3.0]])]).unwrap();
        assert_eq!(y.len(), 1, "the state is not a result");
        assert_eq!(y[0].to_f64(), [-10.0, -20.0, -30.0]);
        let x = Item::Tensor(rows(&[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]));
        let y = session.call(std::slice::from_ref(&x)).unwrap();
        assert_eq!(y.tensors()[0].to_f64()[..3], [-12.0, -23.0, -34.0]);
        assert_eq!(sum(&session), [13.0, 24.0, 35.0]);
        session.reset();
        assert_eq!(sum(&session), [10.0, 20.0, 30.0]);
    }
}

#[test]
fn methods_share_states() {
    for device in devices() {
        let session = session(SUM, &device);
        session.run(&[rows(&[[1.0, 1.0, 1.0]])]).unwrap();
        let value = Item::Tensor(Tensor::from_vec([3], vec![1f32, 2.0, 3.0]).unwrap());
        assert_eq!(session.call_method("set", &[value]).unwrap(), Item::None);
        assert_eq!(sum(&session), [2.0, 4.0, 6.0]);
        assert_eq!(
            session.state("calls").unwrap(),
            Item::Number(Scalar::Int(1))
        );
        session.run(&[rows(&[[1.0, 1.0, 1.0]])]).unwrap();
        assert_eq!(sum(&session), [3.0, 5.0, 7.0]);
        let error = session.call_method("get", &[]).unwrap_err();
        assert!(error.message().contains("get"), "{error}");
    }
}

/// A failed call leaves states as they were.
#[test]
fn a_failed_call_changes_nothing() {
    for device in devices() {
        let session = session(SUM, &device);
        let wrong = Tensor::from_vec([2, 4], vec![0f32; 8]).unwrap();
        session.run(&[wrong]).unwrap_err();
        assert_eq!(sum(&session), [10.0, 20.0, 30.0]);
    }
}

/// Simultaneous calls of several threads are serialised: no addition is lost.
#[test]
fn calls_with_states_take_turns() {
    for device in devices() {
        let session = session(SUM, &device);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        session.run(&[rows(&[[1.0, 2.0, 3.0]])]).unwrap();
                    }
                });
            }
        });
        assert_eq!(sum(&session), [30.0, 60.0, 90.0]);
    }
}

/// A graph is specialised to the numbers in states; other numbers need another graph.
#[test]
fn numbers_in_states_choose_the_graph() {
    let text = "
weight start: f32[3]
state mode = 1
graph forward(x: f32[3]) {
  argument x = #0
  reads mode = 1
  result #0
  writes mode = 2
  y = neg x
  return y
}";
    let session = session(text, &Device::Host);
    let x = Tensor::from_vec([3], vec![1f32, 2.0, 3.0]).unwrap();
    session.run(std::slice::from_ref(&x)).unwrap();
    let error = session.run(std::slice::from_ref(&x)).unwrap_err();
    assert!(error.message().contains("mode is fixed to 1"), "{error}");
    session.reset();
    session.run(&[x]).unwrap();
}

#[test]
fn a_model_with_states_is_not_launched() {
    for device in devices() {
        if let Device::Gpu(_) = device {
            let session = session(SUM, &device);
            let x = rows(&[[1.0, 2.0, 3.0]]);
            let error = session.launch(&[(&x).into()]).err().unwrap();
            assert!(error.message().contains("states"), "{error}");
        }
    }
}

/// Attributes and buffers that a scripted module changes survive a file; its graph is specialised to a count of calls.
#[test]
fn states_of_an_archive_are_stored() {
    let model = Model::open("tests/fixtures/cases/models/script_states/model.pt").unwrap();
    let x = Item::Tensor(rows(&[[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]]));
    let module = model.import_for(std::slice::from_ref(&x)).unwrap();
    module.verify().unwrap();
    let names: Vec<&str> = module
        .states
        .iter()
        .map(|state| state.name.as_str())
        .collect();
    assert_eq!(names, ["highest", "calls", "mean"]);
    let both = model.import_with_methods(Some(std::slice::from_ref(&x)), &["forget".into()]);
    let module = GraphModule {
        graphs: both.unwrap().graphs,
        ..module
    };
    module.verify().unwrap();
    let folder = std::env::temp_dir().join(format!("onionskin-states-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("model.json");
    module.save(&path).unwrap();
    let options = CompileOptions::default();
    let stored = Model::open(&path).unwrap();
    let stored = stored.compile(&Device::Host, &options).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let session = model.compile(&Device::Host, &options).unwrap();
    let first = session.call(std::slice::from_ref(&x)).unwrap();
    assert_eq!(stored.call(std::slice::from_ref(&x)).unwrap(), first);
    assert_eq!(
        session.state("calls").unwrap(),
        Item::Number(Scalar::Int(1))
    );
    let second = session.call(std::slice::from_ref(&x)).unwrap();
    assert_ne!(first, second);
    let error = stored.call(std::slice::from_ref(&x)).unwrap_err();
    assert!(error.message().contains("calls is fixed to 0"), "{error}");
    for session in [&session, &stored] {
        assert_ne!(session.state("mean").unwrap(), mean(0.0));
        assert_eq!(session.call_method("forget", &[]).unwrap(), Item::None);
        assert_eq!(session.state("mean").unwrap(), mean(0.0));
    }
    session.reset();
    assert_eq!(session.call(&[x]).unwrap(), first);
}

fn mean(value: f32) -> Item {
    Item::Tensor(Tensor::from_vec([3], vec![value; 3]).unwrap())
}

/// Once a state is known to vary, one graph serves all its values: archives are not imported at every call.
#[test]
fn numbers_that_vary_become_inputs() {
    let model = Model::open("tests/fixtures/cases/models/script_states/model.pt").unwrap();
    let x = Item::Tensor(rows(&[[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]]));
    for device in devices() {
        let session = model.compile(&device, &CompileOptions::default()).unwrap();
        for calls in 1..=6 {
            let result = session.call(std::slice::from_ref(&x)).unwrap();
            let Item::Tuple(items) = result else {
                panic!("{result:?}")
            };
            assert_eq!(items[2], Item::Number(Scalar::Int(calls)));
        }
        assert_eq!(session.compiled_graphs().len(), 3);
        session.reset();
        session.call(std::slice::from_ref(&x)).unwrap();
        assert_eq!(session.compiled_graphs().len(), 3);
    }
}

/// A state of 4 MB whose sum is the result.
const LARGE: &str = "
weight zeros: f32[1000, 1000]
state total = #0 of $zeros
state flags = #0 of $zeros
graph forward(x: f32[], total: f32[1000, 1000]) {
  argument x = #0
  reads total = #1
  result #0
  writes total = #1
  wide: f32[1000, 1000] = expand x, shape=[1000, 1000]
  next = add total, wide
  y = reduce next, function=sum, axes=[0, 1]
  return y, next
}";

fn large(device: &Device, options: &CompileOptions) -> Session {
    let mut module: GraphModule = LARGE.parse().unwrap();
    let zeros = Tensor::full(onionskin::dtype::DType::F32, [1000, 1000], 0.0).unwrap();
    module.weights.insert("zeros".into(), zeros);
    Model::from_module(module).compile(device, options).unwrap()
}

/// After the first call, which uploads the state, only the argument and the result cross between host and device.
#[test]
fn states_stay_on_the_device() {
    let options = CompileOptions::default();
    let half = CompileOptions {
        precision: onionskin::kernel::materialization::Precision::Half,
        ..CompileOptions::default()
    };
    for device in devices() {
        if matches!(device, Device::Host) {
            continue;
        }
        for options in [&options, &half] {
            let session = large(&device, options);
            let one = Tensor::from_vec([], vec![1f32]).unwrap();
            session.run(std::slice::from_ref(&one)).unwrap();
            let before = transferred(&session);
            for call in 2..6 {
                let y = session.run(std::slice::from_ref(&one)).unwrap();
                assert_eq!(y[0].to_f64(), [f64::from(call) * 1e6]);
            }
            let bytes = transferred(&session) - before;
            assert!(
                bytes <= 4 * 8,
                "{bytes} bytes for four numbers and four results"
            );
        }
    }
}

/// Calls after the second write a state in place: they create no buffer.
#[test]
fn states_are_written_in_place() {
    for device in devices() {
        let session = large(&device, &CompileOptions::default());
        let one = Tensor::from_vec([], vec![1f32]).unwrap();
        let run = || session.run(std::slice::from_ref(&one)).unwrap();
        let created = || {
            let graphs = session.compiled_graphs();
            let programs = graphs.iter().filter_map(|graph| graph.program.as_ref());
            programs
                .map(|program| program.statistics().buffers_created)
                .sum::<u64>()
        };
        run();
        run();
        let before = created();
        run();
        run();
        assert_eq!(created(), before);
    }
}

#[test]
fn states_can_be_set_forked_and_saved() {
    for device in devices() {
        let session = session(SUM, &device);
        session.run(&[rows(&[[1.0, 1.0, 1.0]])]).unwrap();
        let fork = session.fork();
        fork.run(&[rows(&[[1.0, 1.0, 1.0]])]).unwrap();
        assert_eq!(sum(&session), [11.0, 21.0, 31.0]);
        assert_eq!(sum(&fork), [12.0, 22.0, 32.0]);
        session.run(&[rows(&[[2.0, 2.0, 2.0]])]).unwrap();
        assert_eq!(sum(&session), [13.0, 23.0, 33.0]);
        assert_eq!(sum(&fork), [12.0, 22.0, 32.0]);

        let given = Tensor::from_vec([3], vec![1f32, 2.0, 3.0]).unwrap();
        session.set_state("sum", given).unwrap();
        session.run(&[rows(&[[1.0, 1.0, 1.0]])]).unwrap();
        assert_eq!(sum(&session), [2.0, 3.0, 4.0]);
        let wrong = Tensor::from_vec([3], vec![1i64, 2, 3]).unwrap();
        let error = session.set_state("sum", wrong).unwrap_err();
        assert!(error.to_string().contains("i64[3] is no value"), "{error}");
        let error = session.set_state("total", mean(1.0)).unwrap_err();
        assert!(error.advice().unwrap().contains("calls, sum"), "{error}");
        assert_eq!(session.state_names(), ["calls", "sum"]);

        let folder = std::env::temp_dir().join(format!("onionskin-saved-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("states.safetensors");
        session.save(&path).unwrap();
        let saved = onionskin::tensor_file::read(&path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let saved: Vec<(&str, Vec<f64>)> = saved
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor.to_f64()))
            .collect();
        assert_eq!(saved, [("calls", vec![0.0]), ("sum", vec![2.0, 3.0, 4.0])]);
    }
}

/// A check that fails leaves the states on the device as they were.
#[test]
fn a_failed_check_changes_no_state() {
    let text = "
weight start: f32[3]
state sum = #0 of $start
graph forward(x: f32[3], sum: f32[3]) {
  argument x = #0
  reads sum = #1
  result #0
  writes sum = #1
  low = reduce x, function=min, axes=[0]
  holds = gt low, 0.0
  checked = check holds, require=holds, message=\"x is not positive\"
  wide: bool[3] = expand checked, shape=[3]
  added = select wide, x, 0.0
  next = add sum, added
  y = mul next, 1.0
  return y, next
}";
    for device in devices() {
        let session = session(text, &device);
        let x = |value: f32| Tensor::from_vec([3], vec![value; 3]).unwrap();
        session.run(&[x(1.0)]).unwrap();
        let error = session.run(&[x(-1.0)]).unwrap_err();
        assert!(error.to_string().contains("not positive"), "{error}");
        assert_eq!(sum(&session), [11.0, 21.0, 31.0]);
        session.run(&[x(2.0)]).unwrap();
        assert_eq!(sum(&session), [13.0, 23.0, 33.0]);
    }
}
