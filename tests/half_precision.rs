//! Storage of `f32` values in half precision: every family of kernels, with and without `f16` in shaders, compared with the
//! host oracle; values that keep `f32`; numbers at the ends of the range.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use ::half::f16;
use onionskin::dim::Bindings;
use onionskin::dtype::DType;
use onionskin::gpu::{FeatureLevel, Footprint, GpuDevice, Keep, Program, ProgramOptions};
use onionskin::interp;
use onionskin::ir::{Definition, Graph, GraphModule, Weights};
use onionskin::kernel::capabilities::{Capabilities, StorageType};
use onionskin::kernel::layout::Texel;
use onionskin::kernel::materialization::{F32StorageReason, Precision};
use onionskin::kernel::plan::{Access, Plan, SlotKind};
use onionskin::op::*;
use onionskin::pass::{self};
use onionskin::plan::{self, PlanOptions};
use onionskin::tensor::Tensor;
use onionskin::{CompileOptions, Model};

mod samples;

fn half(graph: &Graph, capabilities: &Capabilities) -> Plan {
    let options = PlanOptions {
        precision: Precision::Half,
        ..PlanOptions::default()
    };
    plan::plan_with_options(graph, capabilities, &options).unwrap()
}

/// Returns capabilities for the families of kernels that a device can run, with and without `f16` in shaders.
fn kernel_families(own: &Capabilities) -> Vec<(&'static str, Capabilities)> {
    let gpu = Capabilities {
        software: false,
        ..own.clone()
    };
    let bare = Capabilities {
        float16: false,
        ..gpu.clone()
    };
    let plain = Capabilities {
        software: true,
        subgroups: false,
        subgroup_size: 0,
        ..bare.clone()
    };
    vec![
        ("the device as it is", own.clone()),
        ("a GPU", gpu),
        ("a GPU without half precision", bare),
        ("portable kernels", plain),
    ]
}

/// Linear layers, which leave values between kernels.
fn layers(rows: &str, sizes: &'static [usize]) -> Graph {
    let x = format!("f32[{rows}, {}]", sizes[0]);
    samples::graph(&[&x], |builder, x| {
        let mut value = x[0];
        for (index, pair) in sizes.windows(2).enumerate() {
            let ty = format!("f32[{}, {}]", pair[1], pair[0]);
            let weight = builder.weight(&format!("weight{index}"), ty.parse().unwrap());
            value = value.dot(weight.permute([1, 0])).relu();
        }
        vec![value]
    })
}

/// A convolution, a depthwise one, pooling and a 1×1 convolution.
fn images(x: &str, channels: [i64; 2]) -> Graph {
    samples::graph(&[x], |builder, x| {
        let [first, second] = channels;
        let weight = |name: &str, ty: String| builder.weight(name, ty.parse().unwrap());
        let axes = |stride, pad| vec![ConvAxis::padded(stride, pad); 2];
        let a = weight("a", format!("f32[{first}, 3, 3, 3]"));
        let b = weight("b", format!("f32[{first}, 1, 3, 3]"));
        let c = weight("c", format!("f32[{second}, {first}, 1, 1]"));
        let y = x[0].conv(a, axes(1, 1), 1).relu();
        let y = y.conv(b, axes(1, 1), first).relu();
        let y = y.unfold(2, 3, 2, 1).unfold(3, 3, 2, 1).amax(&[4, 5], false);
        let y = y.conv(c, axes(1, 0), 1);
        vec![y + y.relu()]
    })
}

/// A convolution with many channels, for which a rasteriser uses Winograd tiles.
fn wide_convolution() -> Graph {
    samples::graph(&["f32[1, 128, 6, 6]"], |builder, x| {
        let weight = builder.weight("weight", "f32[128, 128, 3, 3]".parse().unwrap());
        let axes = vec![ConvAxis::padded(1, 1); 2];
        let y = x[0].narrow(1, 0, 128).conv(weight, axes, 1);
        vec![y.relu(), y.sum(&[2, 3], false)]
    })
}

/// An embedding, a product of its rows, and sums that both results read.
fn embedding() -> Graph {
    samples::graph(&["i64[B, 12]"], |builder, x| {
        let table = builder.weight("table", "f32[50, 36]".parse().unwrap());
        let weight = builder.weight("weight", "f32[36, 24]".parse().unwrap());
        let rows = x[0].to(DType::I32).abs().to(DType::I64);
        let picked = table.index_select(0, rows.reshape(vec![rows.numel()]));
        let sums = picked.dot(weight);
        vec![sums + sums.sum(&[1], true), sums.narrow(1, 3, 7)]
    })
}

/// Graphs that map integer inputs and weights to integers that half precision represents exactly.
fn integer_graphs() -> Vec<(&'static str, Graph)> {
    vec![
        ("layers", layers("16", &[40, 48, 32, 24])),
        ("odd layers", layers("11", &[35, 43, 29, 21])),
        ("a row", layers("1", &[96, 160, 68, 33])),
        ("three rows", layers("3", &[64, 36, 40])),
        ("any rows", layers("S", &[24, 32, 20])),
        ("large layers", layers("140", &[64, 128, 132])),
        ("images", images("f32[2, 3, 12, 12]", [8, 16])),
        ("odd images", images("f32[1, 3, 13, 9]", [5, 7])),
        ("any images", images("f32[B, 3, H, 10]", [12, 6])),
        ("wide images", wide_convolution()),
        ("embedding", embedding()),
    ]
}

/// Graphs that need fractions.
fn fraction_graphs() -> Vec<(&'static str, Graph)> {
    let attention = |rows: &'static str, width: i64| {
        let x = format!("f32[B, {rows}, {width}]");
        samples::graph(&[&x], |builder, x| {
            let ty = format!("f32[{width}, {}]", 3 * width);
            let weight = builder.weight("qkv", ty.parse().unwrap());
            let scale = builder.weight("scale", format!("f32[{width}]").parse().unwrap());
            let rest = x[0] - x[0].mean(&[2], true);
            let norm = rest * ((rest * rest).mean(&[2], true) + 1e-5).rsqrt() * scale;
            let all = norm.matmul(weight);
            let part = |from: i64| all.narrow(2, from * width, width);
            let scores = part(0).matmul(part(1).transpose(1, 2)) * 0.2;
            vec![scores.softmax(-1).matmul(part(2)) + x[0]]
        })
    };
    vec![
        ("attention", attention("8", 32)),
        ("odd attention", attention("7", 27)),
        ("any attention", attention("S", 24)),
    ]
}

/// Returns a tensor of integers from -2 to 2, or of fractions between -1 and 1.
fn tensor(seed: &mut u64, dtype: DType, shape: &[usize], is_whole: bool) -> Tensor {
    let mut next = || {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let number = (*seed >> 33) as f64 / (1u64 << 31) as f64;
        match is_whole {
            true => (number * 5.0).floor() - 2.0,
            false => number * 2.0 - 1.0,
        }
    };
    let values = (0..shape.iter().product()).map(|_| next());
    Tensor::from_f64(dtype, shape, values.collect::<Vec<f64>>()).unwrap()
}

fn weights(graph: &Graph, is_whole: bool) -> Weights {
    let mut seed = 3;
    let found = graph.values.iter().filter_map(|value| {
        let Definition::Weight(name) = &value.definition else {
            return None;
        };
        let sizes = value.ty.sizes(&Bindings::new()).unwrap();
        let tensor = tensor(&mut seed, value.ty.dtype, &sizes, is_whole);
        Some((name.clone(), tensor))
    });
    found.collect()
}

/// Returns the results of a plan and of the oracle, at two sizes.
fn results(
    device: &GpuDevice,
    graph: &Graph,
    plan: &Plan,
    is_whole: bool,
) -> Vec<(Vec<Tensor>, Vec<Tensor>)> {
    let weights = weights(graph, is_whole);
    let options = ProgramOptions::default();
    let program = Program::new(device, plan.clone(), &weights, options).unwrap();
    let mut found = Vec::new();
    for (b, s, h) in [(2, 5, 13), (3, 36, 20)] {
        let bindings = Bindings::from([("B".into(), b), ("S".into(), s), ("H".into(), h)]);
        let mut seed = 7;
        let types = graph.inputs.iter().map(|input| graph.ty(*input));
        let inputs: Vec<Tensor> = types
            .map(|ty| {
                tensor(
                    &mut seed,
                    ty.dtype,
                    &ty.sizes(&bindings).unwrap(),
                    is_whole || !ty.dtype.is_float(),
                )
            })
            .collect();
        let expected = interp::run(graph, &weights, &inputs).unwrap();
        let results = program.run(&inputs).unwrap();
        assert_eq!(results, program.run(&inputs).unwrap(), "two runs differ");
        found.push((results, expected));
    }
    found
}

/// Returns the number of temporaries that are stored in half precision.
fn half_slots(plan: &Plan) -> usize {
    let slots = plan.slots.iter();
    let between = slots.filter(|slot| matches!(slot.kind, SlotKind::Temporary { .. }));
    between.filter(|slot| slot.storage.is_half()).count()
}

/// Half precision represents integers up to 2048 exactly, so results are bitwise those of single precision.
#[test]
fn whole_numbers_are_exact() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    for (family, capabilities) in kernel_families(device.capabilities()) {
        for (name, graph) in integer_graphs() {
            let plan = half(&graph, &capabilities);
            for (found, expected) in results(&device, &graph, &plan, true) {
                assert_eq!(found, expected, "{name} on {family}");
            }
        }
    }
}

/// A stored number has a relative error of at most 1/2048. Errors of successive values add up and partly cancel: eight
/// times that, relative to the largest number.
const TOLERANCE: f64 = 8.0 / 2048.0;

fn is_near(found: &Tensor, expected: &Tensor) -> bool {
    let (found, expected) = (found.to_f64(), expected.to_f64());
    let largest = expected
        .iter()
        .fold(0.0, |largest: f64, x| largest.max(x.abs()));
    let mut pairs = found.iter().zip(&expected);
    pairs.all(|(x, y)| (x - y).abs() <= TOLERANCE * largest.max(y.abs()))
}

#[test]
fn fractions_are_near() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let graphs = [integer_graphs(), fraction_graphs(), samples::all()].concat();
    for (family, capabilities) in kernel_families(device.capabilities()) {
        for (name, graph) in &graphs {
            let plan = half(graph, &capabilities);
            for (found, expected) in results(&device, graph, &plan, false) {
                let mut pairs = found.iter().zip(&expected);
                let near = pairs.all(|(found, expected)| is_near(found, expected));
                assert!(near, "{name} on {family}");
            }
        }
    }
}

/// Without `f16` in shaders no kernel enables it, and four neighbours are stored in two words.
#[test]
fn kernels_are_valid_everywhere() {
    let bare = |capabilities: Capabilities| Capabilities {
        float16: false,
        ..capabilities
    };
    for capabilities in [
        samples::capabilities(),
        bare(samples::capabilities()),
        samples::with_subgroups(),
        samples::rasteriser(),
        bare(samples::rasteriser()),
    ] {
        let mut stored = 0;
        for (name, graph) in [integer_graphs(), fraction_graphs(), samples::all()].concat() {
            let plan = half(&graph, &capabilities);
            stored += half_slots(&plan);
            let wrong = samples::untranslatable(&plan);
            assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
            let expected = StorageType::half(&capabilities);
            for slot in plan.slots.iter().filter(|slot| slot.storage.is_half()) {
                assert_eq!(slot.storage, expected, "{name}: {}", slot.name);
            }
            if !capabilities.float16 {
                let mut texts = plan.kernels.iter().map(|kernel| kernel.wgsl.as_str());
                assert!(!texts.any(|text| text.contains("enable f16")), "{name}");
            }
        }
        assert!(stored >= 15, "{stored} values in half precision");
    }
}

/// A rasteriser that reads buffers as textures also reads temporaries in half precision so.
#[test]
fn half_temporaries_are_read_as_texels() {
    let plan = half(&layers("64", &[32, 48, 40]), &samples::rasteriser());
    let mut accesses = Vec::new();
    for step in &plan.steps {
        let bindings = step
            .bindings
            .iter()
            .zip(&plan.kernels[step.kernel].bindings);
        let read = bindings.filter(|(slot, _)| {
            plan.slots[slot.0].storage.is_half()
                && matches!(plan.slots[slot.0].kind, SlotKind::Temporary { .. })
                && !step.work.writes.contains(slot)
        });
        accesses.extend(read.map(|(_, access)| *access));
    }
    assert_eq!(accesses, [Access::AliasedTexture(Texel::F16)]);
}

/// In half precision, four columns and four steps of K take two rows of texels: four bands read those of eight columns at
/// once.
#[test]
fn bands_read_texels_of_eight_columns_at_once() {
    let graph = layers("256", &[64, 256]);
    for lanes in [8, 16] {
        let plan = half(&graph, &samples::rasteriser_of(lanes));
        let product = plan
            .kernels
            .iter()
            .find(|kernel| kernel.wgsl.contains("sum0_1"));
        let wgsl = &product.unwrap().wgsl;
        let has = |q: &usize| wgsl.contains(&format!("var sum0_{q}:"));
        let quads = (0..).take_while(has).count();
        let (lines, bands) = (2 * quads, lanes as usize / 4);
        assert!(quads > 1, "{wgsl}");
        assert_eq!(
            wgsl.matches("= low_halves(").count(),
            lines.div_ceil(bands),
            "{wgsl}"
        );
    }
}

fn f32_reasons(plan: &Plan) -> Vec<F32StorageReason> {
    plan.materialized
        .iter()
        .filter_map(|stored| stored.f32_reason)
        .collect()
}

#[test]
fn values_that_need_single_precision_keep_f32_storage() {
    let native = samples::capabilities();
    let bare = Capabilities {
        float16: false,
        software: true,
        ..samples::capabilities()
    };
    let norm = samples::graph(&["f32[B, 64]", "f32[64, 48]"], |_, x| {
        let mean = x[0].mean(&[1], true);
        vec![(x[0].exp() - mean).dot(x[1]) + mean]
    });
    assert!(f32_reasons(&half(&norm, &bare)).contains(&F32StorageReason::Statistic));
    let places = samples::graph(&["f32[8, 8]", "f32[8, 8]", "f32[64, 4]"], |_, x| {
        let scaled = x[0].dot(x[1]) * 100.0;
        let rows = scaled.floor().to(DType::I64).reshape(vec![64.into()]);
        vec![x[2].index_select(0, rows), scaled.exp()]
    });
    assert!(f32_reasons(&half(&places, &native)).contains(&F32StorageReason::IntegerOperand));
    let sums = samples::graph(&["f32[4, 8, 6]"], |_, x| {
        vec![x[0].scan(ScanFunction::Sum, 1).exp().sum(&[2], false)]
    });
    assert!(f32_reasons(&half(&sums, &native)).contains(&F32StorageReason::Accumulated));
    let parts = samples::graph(&["f32[64, 4096]", "f32[4096, 64]"], |_, x| {
        vec![x[0].dot(x[1]).relu()]
    });
    assert!(f32_reasons(&half(&parts, &native)).contains(&F32StorageReason::PartialSums));
    // Rows of 29 elements of f16 end within a 32-bit word.
    let odd = layers("11", &[35, 29, 21]);
    assert!(f32_reasons(&half(&odd, &bare)).contains(&F32StorageReason::UnpairedStore));
    assert!(!f32_reasons(&half(&odd, &native)).contains(&F32StorageReason::UnpairedStore));
    let biased = samples::graph(&["f32[8, 16]"], |builder, x| {
        let weight = builder.weight("weight", "f32[16, 16]".parse().unwrap());
        let bias = builder.weight("bias", "f32[16]".parse().unwrap());
        vec![x[0].dot(weight) + bias]
    });
    for slot in half(&biased, &native).slots {
        let expected = match slot.kind {
            SlotKind::Weight(name) if name == "weight" => StorageType::F16,
            _ => StorageType::F32,
        };
        assert_eq!(slot.storage, expected, "{}", slot.name);
    }
}

/// Stores rows of eight numbers in half precision. Returns the contents of each such slot, for each family.
fn stored_values(device: &GpuDevice, numbers: &[f32]) -> Vec<(String, Vec<f64>)> {
    let rows = numbers.len() / 8;
    let x = Tensor::from_vec([rows, 8], numbers.to_vec()).unwrap();
    let y = Tensor::from_vec([8, 8], vec![0f32; 64]).unwrap();
    let shape = format!("f32[{rows}, 8]");
    let graph = samples::graph(&[&shape, "f32[8, 8]"], |_, x| vec![(x[0] + 0.0).dot(x[1])]);
    let mut found = Vec::new();
    for (family, capabilities) in kernel_families(device.capabilities()) {
        let plan = half(&graph, &capabilities);
        assert!(half_slots(&plan) > 0, "nothing is stored on {family}");
        let options = ProgramOptions {
            keep: Keep::Everything,
            ..ProgramOptions::default()
        };
        let program = Program::new(device, plan.clone(), &Weights::new(), options).unwrap();
        let run = program.launch(&[(&x).into(), (&y).into()]).unwrap();
        let slots = plan.slots.iter();
        found.extend(slots.filter(|slot| slot.storage.is_half()).map(|slot| {
            let numbers = run.slot(&slot.name).unwrap().to_f64();
            (format!("{} on {family}", slot.name), numbers)
        }));
    }
    found
}

/// Finite numbers stay finite, so a mask of the lowest number stays finite; infinities and NaN are kept.
#[test]
fn numbers_beyond_the_range_saturate() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let numbers = [
        f32::MIN,
        -1e6,
        0.0,
        1.0,
        2f32.powi(-24),
        65_519.0,
        1e6,
        f32::MAX,
        f32::NEG_INFINITY,
        f32::INFINITY,
        f32::NAN,
        f32::from_bits(0x7f80_0001),
        1.0,
        1.0,
        1.0,
        1.0,
    ];
    let largest = 65_504.0;
    let expected = [
        -largest,
        -largest,
        0.0,
        1.0,
        2f64.powi(-24),
        largest,
        largest,
        largest,
        f64::NEG_INFINITY,
        f64::INFINITY,
    ];
    for (slot, found) in stored_values(&device, &numbers) {
        assert_eq!(found[..10], expected, "{slot}");
        assert!(found[10].is_nan() && found[11].is_nan(), "{slot}");
    }
}

/// Tests all numbers of half precision, the midpoints between neighbours and the numbers next to these, of both signs.
#[test]
fn numbers_are_stored_as_the_nearest_halves_ties_to_even() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let positive = (0..0x7bff).flat_map(|bits| {
        let [low, high] = [bits, bits + 1].map(|bits| f16::from_bits(bits).to_f32());
        let between = f32::midpoint(low, high);
        [low, between.next_down(), between, between.next_up()]
    });
    let mut numbers: Vec<f32> = positive.flat_map(|number| [number, -number]).collect();
    // Devices flush subnormal numbers of single precision to zero.
    numbers.retain(|number| *number == 0.0 || number.is_normal());
    numbers.resize(numbers.len().next_multiple_of(8), 1.0);
    let expected: Vec<f64> = numbers
        .iter()
        .map(|number| f16::from_f32(*number).to_f64())
        .collect();
    for (slot, found) in stored_values(&device, &numbers) {
        let pairs = found.iter().zip(&expected).zip(&numbers);
        for ((found, expected), number) in pairs {
            assert_eq!(found, expected, "{number:e} in {slot}");
        }
    }
}

#[test]
fn weights_take_half_the_bytes() {
    let graph = layers("1024", &[256, 512, 256]);
    let options = Bindings::new();
    for capabilities in [samples::capabilities(), samples::rasteriser()] {
        let whole = plan::plan(&graph, &capabilities).unwrap();
        let bytes = |plan| Footprint::of(plan, &capabilities, &options).unwrap();
        let (whole, half) = (bytes(&whole), bytes(&half(&graph, &capabilities)));
        assert_eq!(whole.weights, 2 * half.weights);
        assert_eq!(whole.temporaries, 2 * half.temporaries);
        assert_eq!(whole.outputs, half.outputs);
    }
}

#[test]
fn sessions_store_halves_and_the_host_refuses() {
    let graph = layers("4", &[32, 64, 32]);
    let weights = weights(&graph, false);
    let module = GraphModule {
        graphs: vec![graph.clone()],
        weights: weights.clone(),
        ..GraphModule::default()
    };
    let model = Model::from_module(module);
    let options = CompileOptions {
        entry: "f".to_string(),
        precision: Precision::Half,
        ..CompileOptions::default()
    };
    let refused = model
        .compile(&onionskin::Device::Host, &options)
        .err()
        .unwrap();
    assert!(
        refused.message().contains("cannot store f32 values as f16"),
        "{refused}"
    );
    assert!(refused.advice().unwrap().contains("choose an adapter"));
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let session = model.compile(&device.into(), &options).unwrap();
    let input = tensor(&mut 5, DType::F32, &[4, 32], false);
    let found = session.run(std::slice::from_ref(&input)).unwrap();
    let expected = interp::run(&graph, &weights, &[input]).unwrap();
    assert!(found != expected && is_near(&found[0], &expected[0]));
}

#[test]
fn other_dtypes_are_refused() {
    let error = Precision::of(DType::BF16).unwrap_err();
    assert!(
        error.to_string().contains("cannot be stored as bf16"),
        "{error}"
    );
}

/// A weight that a region takes as operand is stored in f32; where a body reads it directly, in half precision.
#[test]
fn operands_of_control_flow_are_stored_in_f32() {
    let text = "
weight w: f32[8, 8]
graph f(c: bool[], x: f32[4, 8]) {
  scaled = mul x, 3.0
  t = dot scaled, $w
  a, b = if c, t, $w {
    graph then(t: f32[4, 8], v: f32[8, 8]) {
      y = dot t, v
      z = dot y, $w
      return z, y
    }
    graph otherwise(t: f32[4, 8], v: f32[8, 8]) {
      return t, t
    }
  }
  s = dot a, $w
  return s, b
}";
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let mut turned = vec![0f32; 64];
    (0..8).for_each(|i| turned[i * 8 + (i + 3) % 8] = 1.0 + (i % 2) as f32);
    let weights = Weights::from([("w".to_string(), Tensor::from_vec([8, 8], turned).unwrap())]);
    let module: GraphModule = text.parse().unwrap();
    let graph = pass::decompose(&module.graphs[0]).unwrap();
    let mut seed = 11;
    let x = tensor(&mut seed, DType::F32, &[4, 8], true);
    for (family, capabilities) in kernel_families(device.capabilities()) {
        let plan = half(&graph, &capabilities);
        let of_weight = plan.slots.iter().filter(|slot| slot.name.starts_with("$w"));
        let storages: Vec<bool> = of_weight.map(|slot| slot.storage.is_half()).collect();
        assert!(
            storages.contains(&true) && storages.contains(&false),
            "{storages:?}"
        );
        let program = Program::new(&device, plan, &weights, ProgramOptions::default()).unwrap();
        for branch in [true, false] {
            let inputs = [Tensor::from_bools([], [branch]).unwrap(), x.clone()];
            let expected = interp::run(&graph, &weights, &inputs).unwrap();
            assert_eq!(
                program.run(&inputs).unwrap(),
                expected,
                "{branch} on {family}"
            );
        }
    }
}
