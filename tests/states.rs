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

fn devices() -> Vec<Device> {
    let required = std::env::var("REQUIRE_GPU").is_ok_and(|value| value == "1");
    match Device::open("gpu").or_else(|_| Device::open("software")) {
        Ok(device) => vec![Device::Host, device],
        Err(error) => {
            assert!(!required, "no adapter: {error}");
            println!("host only: no adapter: {error}");
            vec![Device::Host]
        }
    }
}

fn rows(values: &[[f32; 3]]) -> Tensor {
    let data = values.iter().flatten().copied().collect();
    Tensor::from_vec([values.len(), 3], data).unwrap()
}

fn sum(session: &Session) -> Vec<f64> {
    match session.state("sum") {
        Some(Item::Tensor(tensor)) => tensor.to_f64(),
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
        assert_eq!(session.state("calls"), Some(Item::Number(Scalar::Int(1))));
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
    assert_eq!(session.state("calls"), Some(Item::Number(Scalar::Int(1))));
    let second = session.call(std::slice::from_ref(&x)).unwrap();
    assert_ne!(first, second);
    let error = stored.call(std::slice::from_ref(&x)).unwrap_err();
    assert!(error.message().contains("calls is fixed to 0"), "{error}");
    for session in [&session, &stored] {
        assert_ne!(session.state("mean"), Some(mean(0.0)));
        assert_eq!(session.call_method("forget", &[]).unwrap(), Item::None);
        assert_eq!(session.state("mean"), Some(mean(0.0)));
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
