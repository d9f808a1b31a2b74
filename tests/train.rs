//! Training against PyTorch: losses and parameters of each optimizer, loss and limit on gradients, and learning rates.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use onionskin::dtype::DType;
use onionskin::nn::Reduction;
use onionskin::train::{
    Adam, AdamW, BceWithLogitsLoss, ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts,
    CrossEntropyLoss, ExponentialLR, GradientClipping, HuberLoss, L1Loss, LambdaLR, LinearLR,
    LrScheduler, MseLoss, MultiStepLR, OneCycleLR, Optimizer, PolynomialLR, SequentialLR, Sgd,
    SmoothL1Loss, StepLR, TrainOptions, Trainer, TrainingLoss,
};
use onionskin::{Device, Model, Tensor, train};

use session_devices::{devices, transferred};

mod session_devices;

const STEPS: usize = 6;

fn network() -> Model {
    Model::open("tests/fixtures/training/network.pt").unwrap()
}

fn recorded() -> BTreeMap<String, Tensor> {
    let tensors = onionskin::tensor_file::read("tests/fixtures/training/runs.safetensors".as_ref());
    tensors.unwrap().into_iter().collect()
}

/// The target as each loss takes it: classes, or ones at their places.
fn target(classes: &Tensor, loss: &TrainingLoss) -> Tensor {
    if *loss == CrossEntropyLoss::default().into()
        || matches!(
            loss,
            TrainingLoss::Function(onionskin::train::LossFunction::CrossEntropy(_))
        )
    {
        return classes.clone();
    }
    let classes = classes.to_f64();
    let ones = classes
        .iter()
        .flat_map(|class| (0..4).map(move |index| f64::from(*class as i32 == index)));
    Tensor::from_f64(DType::F32, [classes.len(), 4], ones.collect()).unwrap()
}

fn run(
    trainer: &mut Trainer,
    recorded: &BTreeMap<String, Tensor>,
    loss: &TrainingLoss,
    schedule: Option<&OneCycleLR>,
) -> Vec<f64> {
    let step = |step: usize| {
        if let Some(schedule) = schedule {
            trainer.set_learning_rate(schedule.learning_rate(0.0, step as u64));
            trainer
                .set_momentum(schedule.momentum(step as u64).unwrap())
                .unwrap();
        }
        let x = recorded[&format!("batch{step}/x")].clone();
        let classes = &recorded[&format!("batch{step}/target")];
        trainer.step(&[x, target(classes, loss)]).unwrap()
    };
    (0..STEPS).map(step).collect()
}

fn assert_close(name: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (found, expected) in found.iter().zip(expected) {
        let error = (found - expected).abs();
        assert!(
            error <= 1e-5 + 1e-4 * expected.abs(),
            "{name}: {found} instead of {expected}"
        );
    }
}

fn check(name: &str, options: &TrainOptions) {
    check_with(name, options, None);
}

fn check_with(name: &str, options: &TrainOptions, schedule: Option<&OneCycleLR>) {
    let recorded = recorded();
    for device in devices() {
        let mut trainer = Trainer::new(&network(), &device, options.clone()).unwrap();
        let losses = run(&mut trainer, &recorded, &options.loss, schedule);
        assert_close(name, &losses, &recorded[&format!("{name}/losses")].to_f64());
        let parameters = trainer.state_dict().unwrap();
        assert_eq!(parameters.len(), 6, "{:?}", parameters.keys());
        for (parameter, value) in parameters {
            let key = format!("{name}/{parameter}");
            assert_close(&key, &value.to_f64(), &recorded[&key].to_f64());
        }
    }
}

fn cross_entropy(optimizer: impl Into<Optimizer>) -> TrainOptions {
    TrainOptions::new(CrossEntropyLoss::default(), optimizer)
}

#[test]
fn optimizers_give_the_parameters_of_pytorch() {
    let sgd = Sgd {
        lr: 0.1,
        ..Sgd::default()
    };
    check("sgd", &cross_entropy(sgd.clone()));
    let momentum = Sgd {
        momentum: 0.9,
        dampening: 0.5,
        weight_decay: 0.01,
        ..sgd
    };
    check("sgd_momentum", &cross_entropy(momentum));
    let nesterov = Sgd {
        lr: 0.05,
        momentum: 0.8,
        nesterov: true,
        ..Sgd::default()
    };
    check("sgd_nesterov", &cross_entropy(nesterov));
    check(
        "adam",
        &cross_entropy(Adam {
            lr: 0.02,
            weight_decay: 0.1,
            ..Adam::default()
        }),
    );
    let amsgrad = Adam {
        lr: 0.05,
        betas: (0.5, 0.9),
        amsgrad: true,
        ..Adam::default()
    };
    check("adam_amsgrad", &cross_entropy(amsgrad));
    check(
        "adamw",
        &cross_entropy(AdamW {
            lr: 0.02,
            weight_decay: 0.1,
            ..AdamW::default()
        }),
    );
}

/// Modules that are computed again change no number.
#[test]
fn recomputed_modules_train_as_kept_ones() {
    let sgd = Sgd {
        lr: 0.1,
        ..Sgd::default()
    };
    let mut options = cross_entropy(sgd);
    options.gradient.recompute = vec!["*".to_string()];
    check("sgd", &options);
    let trainer = Trainer::new(&network(), &Device::Host, options).unwrap();
    let nodes = &trainer.step_module().graphs[0].nodes;
    let barriers = nodes.iter().map(|node| node.op.name());
    assert!(
        barriers
            .filter(|name| *name == "optimization_barrier")
            .count()
            > 0
    );
}

#[test]
fn gradients_are_limited_as_by_pytorch() {
    let limited = |clipping| {
        let mut options = cross_entropy(Sgd {
            lr: 0.5,
            ..Sgd::default()
        });
        options.clipping = Some(clipping);
        options
    };
    check("clipped_norm", &limited(GradientClipping::Norm(0.5)));
    check("clipped_value", &limited(GradientClipping::Value(0.05)));
}

#[test]
fn losses_are_those_of_pytorch() {
    let check = |name: &str, loss: TrainingLoss| {
        check(
            name,
            &TrainOptions::new(
                loss,
                Sgd {
                    lr: 0.1,
                    ..Sgd::default()
                },
            ),
        );
    };
    let smoothed = CrossEntropyLoss {
        label_smoothing: 0.1,
        ..CrossEntropyLoss::default()
    };
    check("cross_entropy", smoothed.into());
    check("mse", MseLoss::default().into());
    check("l1", L1Loss::default().into());
    check(
        "smooth_l1",
        SmoothL1Loss {
            beta: 0.5,
            reduction: Reduction::Sum,
        }
        .into(),
    );
    check(
        "huber",
        HuberLoss {
            delta: 0.3,
            ..HuberLoss::default()
        }
        .into(),
    );
    check("bce_with_logits", BceWithLogitsLoss::default().into());
}

#[test]
fn learning_rates_are_those_of_pytorch() {
    let text = std::fs::read_to_string("tests/fixtures/training/learning_rates.json").unwrap();
    let recorded: BTreeMap<String, Vec<f64>> = serde_json::from_str(&text).unwrap();
    let warm_up = LinearLR {
        start_factor: 0.1,
        end_factor: 1.0,
        total_iters: 5,
    };
    let schedules: Vec<(&str, Box<dyn LrScheduler>)> = vec![
        ("ConstantLR", Box::new(ConstantLR::default())),
        (
            "LinearLR",
            Box::new(LinearLR {
                total_iters: 7,
                ..LinearLR::default()
            }),
        ),
        (
            "StepLR",
            Box::new(StepLR {
                step_size: 4,
                gamma: 0.5,
            }),
        ),
        (
            "MultiStepLR",
            Box::new(MultiStepLR {
                milestones: vec![3, 5, 5, 11],
                gamma: 0.3,
            }),
        ),
        ("ExponentialLR", Box::new(ExponentialLR { gamma: 0.9 })),
        (
            "PolynomialLR",
            Box::new(PolynomialLR {
                total_iters: 9,
                power: 2.0,
            }),
        ),
        (
            "CosineAnnealingLR",
            Box::new(CosineAnnealingLR {
                t_max: 15,
                eta_min: 0.01,
            }),
        ),
        (
            "CosineAnnealingWarmRestarts",
            Box::new(CosineAnnealingWarmRestarts {
                t_0: 3,
                t_mult: 2,
                eta_min: 0.01,
            }),
        ),
        ("OneCycleLR", Box::new(OneCycleLR::new(0.5, 20))),
        (
            "LambdaLR",
            Box::new(LambdaLR(Arc::new(|epoch| 1.0 / (1.0 + epoch as f64)))),
        ),
        (
            "SequentialLR",
            Box::new(SequentialLR {
                schedulers: vec![Box::new(warm_up), Box::new(ExponentialLR { gamma: 0.8 })],
                milestones: vec![5],
            }),
        ),
    ];
    assert_eq!(schedules.len(), recorded.len());
    for (name, schedule) in schedules {
        for (epoch, expected) in (0..).zip(&recorded[name]) {
            let found = schedule.learning_rate(0.1, epoch);
            assert!(
                (found - expected).abs() < 1e-12,
                "{name}, epoch {epoch}: {found} instead of {expected}"
            );
        }
    }
}

#[test]
fn momenta_are_those_of_pytorch() {
    let text = std::fs::read_to_string("tests/fixtures/training/momenta.json").unwrap();
    let recorded: Vec<f64> = serde_json::from_str(&text).unwrap();
    let cycle = OneCycleLR::new(0.5, 20);
    let later = SequentialLR {
        schedulers: vec![Box::new(ConstantLR::default()), Box::new(cycle.clone())],
        milestones: vec![5],
    };
    assert_eq!(later.momentum(4), None);
    for (epoch, expected) in (0..).zip(&recorded) {
        for found in [cycle.momentum(epoch), later.momentum(epoch + 5)] {
            assert!(
                (found.unwrap() - expected).abs() < 1e-12,
                "epoch {epoch}: {found:?}"
            );
        }
    }
    let cycle = OneCycleLR::new(0.2, STEPS as u64 + 1);
    let sgd = Sgd {
        lr: 0.1,
        momentum: 0.9,
        nesterov: true,
        ..Sgd::default()
    };
    check_with("sgd_cycled", &cross_entropy(sgd), Some(&cycle));
    check_with(
        "adamw_cycled",
        &cross_entropy(AdamW::default()),
        Some(&cycle),
    );
}

/// After the first step only the batch, four numbers and the loss cross between host and device.
#[test]
fn parameters_stay_on_the_device() {
    let recorded = recorded();
    let options = cross_entropy(AdamW::default());
    for device in devices() {
        if matches!(device, Device::Host) {
            continue;
        }
        let mut trainer = Trainer::new(&network(), &device, options.clone()).unwrap();
        let batch = [
            recorded["batch0/x"].clone(),
            recorded["batch0/target"].clone(),
        ];
        trainer.step(&batch).unwrap();
        let before = transferred(trainer.session());
        trainer.step(&batch).unwrap();
        let bytes = transferred(trainer.session()) - before;
        let of_batch: usize = batch.iter().map(|tensor| tensor.bytes().len()).sum();
        assert!(
            bytes as usize <= of_batch + 4 * 4 + 8,
            "{bytes} bytes for a batch of {of_batch}"
        );
    }
}

/// The trained module gives what the network with the trained parameters gives, and only chosen parameters change.
#[test]
fn chosen_parameters_are_trained_and_saved() {
    let recorded = recorded();
    let mut options = cross_entropy(Sgd {
        lr: 0.5,
        ..Sgd::default()
    });
    options.parameters = vec!["fc.*".to_string()];
    let device = Device::Host;
    let mut trainer = Trainer::new(&network(), &device, options.clone()).unwrap();
    assert_eq!(trainer.parameter_names(), ["fc.bias", "fc.weight"]);
    let before = run(&mut trainer, &recorded, &options.loss, None);
    let folder = std::env::temp_dir().join(format!("onionskin-train-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("trained.json");
    trainer.trained_module().unwrap().save(&path).unwrap();
    trainer.save(folder.join("trained.safetensors")).unwrap();
    let saved = onionskin::tensor_file::read(&folder.join("trained.safetensors")).unwrap();
    assert_eq!(saved.len(), 2);

    // A copy of the archive knows its parameters, and goes on where training ended.
    let mut again = Trainer::new(&Model::open(&path).unwrap(), &device, options.clone()).unwrap();
    assert_eq!(
        again.state_dict().unwrap().keys().collect::<Vec<_>>(),
        ["fc.bias", "fc.weight"]
    );
    let after = run(&mut again, &recorded, &options.loss, None);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(
        after.iter().sum::<f64>() < before.iter().sum::<f64>(),
        "{before:?} {after:?}"
    );
}

/// Dropout has another mask in each step, and equal ones in two trainings.
#[test]
fn each_step_draws_other_numbers() {
    use onionskin::nn::{Dropout, Linear, ReLU, Sequential};
    use onionskin::trace::{Module, TracedTensor, manual_seed, trace};
    let network = Sequential::new().add(Linear::new(8, 16)).add(ReLU::new());
    let network = network.add(Dropout::new(0.5)).add(Linear::new(16, 4));
    network.train();
    manual_seed(3);
    let example = TracedTensor::from_vec([5, 8], vec![0.5f32; 40]);
    let model = Model::from_module(trace(&network, example).unwrap().module);
    let still = cross_entropy(Sgd {
        lr: 0.0,
        ..Sgd::default()
    });
    for device in devices() {
        let losses = || {
            let mut trainer = Trainer::new(&model, &device, still.clone()).unwrap();
            let x = Tensor::from_vec([5, 8], (0..40).map(|x| x as f32 / 40.0).collect()).unwrap();
            let target = Tensor::from_vec([5], vec![0i64, 1, 2, 3, 0]).unwrap();
            let batch = [x, target];
            [0; 4].map(|_| trainer.step(&batch).unwrap())
        };
        let [first, second] = [losses(), losses()];
        assert_eq!(first, second);
        for (index, loss) in first.iter().enumerate() {
            assert!(!first[..index].contains(loss), "{first:?}");
        }
    }
}

/// A last layer of another size: the types of the results follow, and the graph of the old one does not change.
#[test]
fn layers_are_replaced() {
    let module = network().import_method("forward", None).unwrap();
    let values = |count: usize| (0..count).map(|value| value as f32 / 8.0).collect();
    let weight = Tensor::from_vec([2, 12], values(24)).unwrap();
    let bias = Tensor::from_vec([2], values(2)).unwrap();
    let both = [
        ("fc.weight".to_string(), weight.clone()),
        ("fc.bias".to_string(), bias),
    ];
    let replaced = train::replace_weights(&module, both.into()).unwrap();
    let outputs = replaced.graphs[0].output_specs();
    assert_eq!(outputs[0].ty.shape.last().unwrap().as_const(), Some(2));
    assert_eq!(
        module.graphs[0].output_specs()[0]
            .ty
            .shape
            .last()
            .unwrap()
            .as_const(),
        Some(4)
    );
    let mut options = cross_entropy(Sgd {
        lr: 0.1,
        ..Sgd::default()
    });
    options.parameters = vec!["fc.*".to_string()];
    let model = Model::from_module(replaced);
    let mut trainer = Trainer::new(&model, &Device::Host, options).unwrap();
    let x = recorded()["batch0/x"].clone();
    let target = Tensor::from_vec([5], vec![0i64, 1, 1, 0, 1]).unwrap();
    let batch = [x, target];
    let first = trainer.step(&batch).unwrap();
    let last = (0..20)
        .map(|_| trainer.step(&batch).unwrap())
        .last()
        .unwrap();
    assert!(last < first, "{first} {last}");

    let alone = [("fc.weight".to_string(), weight)];
    let error = train::replace_weights(&module, alone.into()).unwrap_err();
    assert!(error.to_string().contains("make_training.py"), "{error}");
    let other = [(
        "head".to_string(),
        Tensor::full(DType::F32, [1], 0.0).unwrap(),
    )];
    let error = train::replace_weights(&module, other.into()).unwrap_err();
    assert!(error.to_string().contains("no weight head"), "{error}");
}

/// A model that computes its loss: the loss is half the square of a product, whose gradient is known.
#[test]
fn outputs_are_losses() {
    let text = "
weight w: f32[2]
graph forward(x: f32[2]) {
  argument x = #0
  result {\"product\": #0, \"loss\": #1}
  terms = mul x, $w
  product = reduce terms, function=sum, axes=[0]
  square = mul product, product
  loss = mul square, 0.5
  return product, loss
}";
    let mut module: onionskin::ir::GraphModule = text.parse().unwrap();
    let w = Tensor::from_vec([2], vec![2f32, 3.0]).unwrap();
    module.weights.insert("w".into(), w);
    let loss = TrainingLoss::Output("loss".to_string());
    let mut options = TrainOptions::new(
        loss,
        Sgd {
            lr: 0.5,
            ..Sgd::default()
        },
    );
    let model = Model::from_module(module);
    let error = Trainer::new(&model, &Device::Host, options.clone()).unwrap_err();
    assert!(
        error.to_string().contains("known to be a parameter"),
        "{error}"
    );
    options.parameters = vec!["w".to_string()];
    for device in devices() {
        let mut trainer = Trainer::new(&model, &device, options.clone()).unwrap();
        let x = Tensor::from_vec([2], vec![1f32, -2.0]).unwrap();
        assert_eq!(trainer.step(&[x]).unwrap(), 8.0);
        assert_eq!(trainer.gradient_norm(), None);
        // The product is -4, so that the gradient is -4 x.
        assert_eq!(trainer.state_dict().unwrap()["w"].to_f64(), [4.0, -1.0]);
    }
}

#[test]
fn wrong_options_are_errors() {
    let fails = |options: TrainOptions, message: &str| {
        let error = Trainer::new(&network(), &Device::Host, options).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    };
    let mut options = cross_entropy(Sgd::default());
    options.parameters = vec!["head.*".to_string()];
    fails(options, "no weight head.*");
    let output =
        |name: &str| TrainOptions::new(TrainingLoss::Output(name.to_string()), Sgd::default());
    fails(output("loss"), "there is no output loss");
    fails(output("output"), "is not one float");
    let unreduced = MseLoss {
        reduction: Reduction::None,
    };
    fails(
        TrainOptions::new(unreduced, Sgd::default()),
        "a loss is one number",
    );
    let options = cross_entropy(Sgd::default());
    let mut trainer = Trainer::new(&network(), &Device::Host, options).unwrap();
    let error = trainer.set_momentum(0.9).unwrap_err().to_string();
    assert!(error.contains("the optimizer has no momentum"), "{error}");
}
