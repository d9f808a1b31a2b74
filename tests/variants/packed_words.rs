//! Images whose channels are read and written as 64-bit words.

use std::collections::BTreeMap;

use onionskin::dim::Dim;

use crate::samples;
use crate::*;

/// ReLU and ReLU6 after convolutions, computed on packed words, keep NaN and one of two infinities.
#[test]
fn bounds_on_packed_words_keep_nan() {
    let filters = [("apart", "f32[8, 1, 3, 3]"), ("all", "f32[8, 8, 1, 1]")];
    let graph = samples::graph(&["f32[1, 8, 9, 7]"], |b, x| {
        let [apart, all] = filters.map(|(name, ty)| b.weight(name, ty.parse().unwrap()));
        let y = x[0].conv(apart, vec![axis(1, 1, 1, 1), axis(1, 1, 1, 1)], 8);
        let y = y.clamp(Some(0.0.into()), Some(6.0.into()));
        let z = y.conv(all, vec![axis(1, 0, 1, 1), axis(1, 0, 1, 1)], 1);
        vec![z.relu().sum(&[2], false), y.sum(&[2], false)]
    });
    let plan = plan::plan(&graph, &samples::rasteriser()).unwrap();
    let in_words = |text: &str| text.contains("= words_of_four(") && text.contains("min(");
    let mut kernels = plan.kernels.iter();
    assert!(kernels.any(|kernel| in_words(&kernel.wgsl)));
    assert!(samples::untranslatable(&plan).is_empty());
    let device = samples::device(FeatureLevel::Full);
    let Some(device) = device.filter(|device| device.capabilities().software) else {
        return;
    };
    let mut seed = 5;
    let weights = filters.map(|(name, ty)| {
        let ty: onionskin::shape::TensorType = ty.parse().unwrap();
        let sizes = ty.sizes(&Bindings::new()).unwrap();
        (String::from(name), tensor(&mut seed, DType::F32, &sizes))
    });
    let weights: BTreeMap<String, Tensor> = weights.into();
    let mut numbers = tensor(&mut seed, DType::F32, &[1, 8, 9, 7]).to_f64();
    for (place, number) in [
        (0, f64::NAN),
        (100, f64::INFINITY),
        (300, f64::NEG_INFINITY),
    ] {
        numbers[place] = number;
    }
    let x = Tensor::from_f64(DType::F32, [1, 8, 9, 7], numbers).unwrap();
    let expected = interp::run(&graph, &weights, std::slice::from_ref(&x)).unwrap();
    let plan = plan::plan(&graph, device.capabilities()).unwrap();
    let program = Program::new(&device, plan, &weights, ProgramOptions::default()).unwrap();
    let found = program.run(&[x]).unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        let pairs = found.to_f64().into_iter().zip(expected.to_f64());
        let mut nans = 0;
        for (found, expected) in pairs {
            nans += usize::from(expected.is_nan());
            let is_close = (found - expected).abs() <= 1e-4 * (1.0 + expected.abs());
            assert!(is_close || found == expected || found.is_nan() && expected.is_nan());
        }
        assert!(nans > 0);
    }
}

/// Copies write eight numbers at a time where these are contiguous in the source, and keep all bits.
#[test]
fn copies_write_packed_words() {
    let graph = samples::graph(
        &["f32[6, 16, 24]", "f32[6, 3, 24]", "f32[6, 16, 4]"],
        |b, x| {
            vec![
                b.concat(
                    &[x[0], x[1], x[1].slice(1, None, Some(1.into()), 1), x[0]],
                    1,
                ),
                b.concat(&[x[2], x[0]], 2),
                x[0].permute([2, 1, 0]),
                x[0].permute([1, 0, 2]),
                x[0].slice(1, Some(3.into()), Some(11.into()), 1)
                    .reshape([6, 1, 8, 24].map(Dim::from))
                    .expand([6, 4, 8, 24].map(Dim::from)),
            ]
        },
    );
    let plan = plan::plan(&graph, &samples::rasteriser()).unwrap();
    let in_words = |kernel: &&onionskin::kernel::plan::Kernel| kernel.wgsl.contains("= words_of(");
    let others = plan.kernels.iter().filter(|kernel| !in_words(kernel));
    // Sizes that are multiples of four but not of eight use a block of four vectors, each read once from each operand; so
    // does the transposition, whose rows are two axes, 16 by 6.
    let others: Vec<usize> = others
        .map(|kernel| kernel.wgsl.matches("textureLoad(").count())
        .collect();
    assert_eq!((others, plan.kernels.len()), (vec![8, 4], 5));
    assert!(samples::untranslatable(&plan).is_empty());
    let device = samples::device(FeatureLevel::Full);
    let Some(device) = device.filter(|device| device.capabilities().software) else {
        return;
    };
    let mut seed = 7;
    let inputs = graph.inputs.iter().map(|input| {
        let sizes = graph.ty(*input).sizes(&Bindings::new()).unwrap();
        let mut numbers = tensor(&mut seed, DType::F32, &sizes).to_f64();
        numbers[5] = f64::NAN;
        numbers[70] = f64::NEG_INFINITY;
        Tensor::from_f64(DType::F32, sizes, numbers).unwrap()
    });
    let inputs: Vec<Tensor> = inputs.collect();
    let expected = interp::run(&graph, &BTreeMap::new(), &inputs).unwrap();
    let plan = plan::plan(&graph, device.capabilities()).unwrap();
    let program = Program::new(&device, plan, &BTreeMap::new(), ProgramOptions::default()).unwrap();
    let found = program.run(&inputs).unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.bytes(), expected.bytes());
    }
}
