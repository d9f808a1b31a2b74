//! Adapters, limits and choices.

use onionskin::dtype::DType;
use onionskin::error::ErrorKind;
use onionskin::gpu::{DeviceChoice, DeviceOptions, GpuDevice, LowerLimits, adapters};
use onionskin::kernel::capabilities::StorageType;

use super::plans::*;

#[test]
fn adapters_are_listed_and_open_by_index_and_name() {
    for adapter in adapters() {
        println!("{adapter} {:?}", adapter.features);
        let device = GpuDevice::open(DeviceChoice::Index(adapter.index)).unwrap();
        assert_eq!(device.capabilities(), &adapter.capabilities);
        let name = adapter.name.to_uppercase();
        GpuDevice::open(DeviceChoice::Name(name)).unwrap();
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error_with_advice() {
    let error = GpuDevice::open(DeviceChoice::Name("no such device".into())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.advice().unwrap().contains("cpu"), "{error}");
    for adapter in adapters() {
        assert!(error.message().contains(&adapter.name), "{error}");
    }
    assert!(GpuDevice::open(DeviceChoice::Cpu).is_err());
}

#[test]
fn the_self_test_passes() {
    for device in [device(), portable_device()].into_iter().flatten() {
        println!("{device:?}: {:?}", device.self_test().unwrap());
    }
}

#[test]
fn limits_can_be_lowered_to_those_of_other_machines() {
    let Some(device) = device() else { return };
    let mut lower_limits = LowerLimits::default();
    for (name, limit) in [
        ("maxStorageBuffersPerShaderStage", 5),
        ("maxComputeWorkgroupStorageSize", 8192),
        ("maxComputeInvocationsPerWorkgroup", 64),
    ] {
        lower_limits.set(name, limit).unwrap();
    }
    let error = lower_limits.set("maxBufferSize", 1).unwrap_err();
    assert!(error.message().contains("maxStorageBuffers"), "{error}");
    let options = DeviceOptions {
        choice: DeviceChoice::Name(device.name().to_owned()),
        lower_limits,
        gpu_kernels: true,
        ..DeviceOptions::default()
    };
    let small = GpuDevice::open(options).unwrap();
    let limits = small.capabilities();
    assert!(limits.max_storage_buffers <= 5);
    assert_eq!(
        (limits.max_workgroup_memory, limits.max_invocations),
        (8192, 64)
    );
    assert!(!limits.software && !limits.buffer_aliasing);
    small.self_test().unwrap();
}

#[test]
fn default_limits_can_be_forced() {
    let Some(device) = portable_device() else {
        return;
    };
    let capabilities = device.capabilities();
    assert_eq!(capabilities.max_binding_size, 128 << 20);
    // On a rasteriser one buffer holds the sizes of kernels.
    let left = 8 - u32::from(capabilities.software);
    assert_eq!(capabilities.max_storage_buffers, left);
    assert!(!capabilities.int64 && !capabilities.float16 && !capabilities.float64);
    let program = program(&device, chain(4, &[symbol("B")]));
    assert_eq!(program.run(&[floats([1.0])]).unwrap(), [floats([31.0])]);
}

#[test]
fn an_applications_device_can_be_used() {
    let Some(device) = device() else { return };
    let (wgpu, queue) = (device.wgpu().clone(), device.queue().clone());
    let own = GpuDevice::from_wgpu(wgpu, queue);
    assert_eq!(own.capabilities(), device.capabilities());
    let plan = single(DType::F32, StorageType::F32, &[symbol("B")], 2, 0);
    assert_eq!(
        program(&own, plan).run(&[floats([4.0])]).unwrap(),
        [floats([8.0])]
    );
}

#[test]
fn compiled_pipelines_are_kept_on_disk() {
    let Some(device) = device() else { return };
    let folder = std::env::temp_dir().join(format!("onionskin-test-{}", std::process::id()));
    let options = DeviceOptions {
        choice: DeviceChoice::Name(device.name().to_owned()),
        cache: Some(folder.clone()),
        ..DeviceOptions::default()
    };
    let run = || {
        let device = GpuDevice::open(options.clone()).unwrap();
        let outputs = program(&device, chain(3, &[symbol("B")])).run(&[floats([1.0])]);
        assert_eq!(outputs.unwrap(), [floats([15.0])]);
    };
    run();
    let files: Vec<_> = match std::fs::read_dir(&folder) {
        Ok(files) => files.map(|file| file.unwrap().path()).collect(),
        // The device does not expose its pipeline cache.
        Err(_) => return,
    };
    assert_eq!(files.len(), 1, "{files:?}");
    run();
    std::fs::write(&files[0], b"onionskin/30/1\r\nno cache").unwrap();
    run();
    std::fs::remove_dir_all(&folder).unwrap();
}
