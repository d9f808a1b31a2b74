//! Element types that a device stores differently than the host.

use onionskin::dim::Dim;
use onionskin::dtype::DType;
use onionskin::gpu::{GpuDevice, Program, ProgramOptions, TensorMap};
use onionskin::kernel::capabilities::StorageType;
use onionskin::kernel::plan::SlotKind;
use onionskin::tensor::Tensor;

use super::plans::*;

/// Runs `2x + 1` on a type in its storage type on the device, and compares with integers.
fn check(device: &GpuDevice, dtype: DType, values: &[i64]) {
    let storage = StorageType::of(dtype, device.capabilities()).unwrap();
    // The number of elements is not a multiple of 4 bytes in any type.
    let plan = single(dtype, storage, &[symbol("N")], 2, 1);
    let x = Tensor::from_i64(dtype, [values.len()], values.to_vec()).unwrap();
    let expected = values.iter().map(|value| 2 * value + 1).collect();
    let expected = Tensor::from_i64(dtype, [values.len()], expected).unwrap();
    let outputs = program(device, plan).run(&[x]);
    assert_eq!(
        outputs.unwrap(),
        [expected],
        "{dtype} as {}",
        storage.wgsl()
    );
}

#[test]
fn integers_and_floats_convert() {
    for device in [device(), portable_device()].into_iter().flatten() {
        for dtype in [
            DType::I8,
            DType::I16,
            DType::I32,
            DType::I64,
            DType::F16,
            DType::BF16,
            DType::F32,
        ] {
            check(&device, dtype, &[-3, 0, 1, 20, 63]);
        }
        check(&device, DType::U8, &[0, 1, 127]);
        if device.capabilities().float64 {
            check(&device, DType::F64, &[-3, 0, 1 << 40]);
        }
    }
}

#[test]
fn booleans_are_zero_and_one() {
    let Some(device) = device() else { return };
    // Computes 0·x + 1; every number but 0 is true.
    let plan = single(DType::Bool, StorageType::U32, &[symbol("N")], 3, 0);
    let x = Tensor::from_bools([3], [true, false, true]).unwrap();
    let outputs = program(&device, plan).run(std::slice::from_ref(&x));
    assert_eq!(outputs.unwrap(), [x]);
}

#[test]
fn wide_integers_are_native_or_checked() {
    let wide = Tensor::from_vec([2], vec![1i64, -(1 << 40)]).unwrap();
    if let Some(device) = device()
        && device.capabilities().int64
    {
        check(&device, DType::I64, &[1 << 40, -(1 << 50)]);
    }
    let Some(device) = portable_device() else {
        return;
    };
    let plan = single(DType::I64, StorageType::I32, &[symbol("N")], 2, 1);
    let program = program(&device, plan.clone());
    let error = program.run(std::slice::from_ref(&wide)).unwrap_err();
    assert_eq!(error.context(), ["input x"]);
    assert!(error.message().contains("-1099511627776"), "{error}");
    // The program still works afterwards.
    let x = Tensor::from_vec([1], vec![5i64]).unwrap();
    assert_eq!(program.run(&[x]).unwrap()[0].to_i64(), [11]);

    let mut plan = plan;
    plan.slots[0].kind = SlotKind::Weight("w".into());
    plan.slots[0].shape = vec![Dim::from(2i64)];
    plan.inputs.clear();
    let weights = TensorMap::from([("w".to_owned(), wide)]);
    let error = Program::new(&device, plan, &weights, ProgramOptions::default()).unwrap_err();
    assert_eq!(error.context(), ["weight w"]);
}

#[test]
fn results_out_of_range_are_errors() {
    let Some(device) = device() else { return };
    let plan = single(DType::U8, StorageType::I32, &[symbol("N")], 2, 0);
    let x = Tensor::from_vec([1], vec![200u8]).unwrap();
    let error = program(&device, plan).run(&[x]).unwrap_err();
    assert!(error.to_string().contains("400 for a u8 — at y"), "{error}");
}
