//! Subgroups that are the lanes of a vector: eight, or sixteen if Mesa's rasteriser is told so before it is loaded.

use std::process::Command;

use onionskin::gpu::Reach;

use crate::samples;
use crate::*;

/// What tells the driver how many bits a vector has.
const WIDTH: &str = "LP_NATIVE_VECTOR_WIDTH";

/// The device, if subgroups are lanes there.
fn rasteriser() -> Option<Device> {
    let device = samples::device(Reach::Whole)?;
    if device.capabilities().lanes().is_none() {
        println!("skipped: subgroups are no lanes");
        return None;
    }
    Some(device)
}

/// Reductions of rows that invocations share, of lengths that rounds cover and do not.
fn rows() -> Vec<(&'static str, Graph)> {
    let rows = |name, ty: &'static str| {
        let graph = samples::graph(&[ty], |_, x| {
            let y = x[0].exp();
            vec![
                y / y.sum(&[1], true),
                x[0].argmax(1, false),
                x[0].amax(&[1], false),
            ]
        });
        (name, graph)
    };
    vec![
        rows("rows of 64", "f32[5, 64]"),
        rows("rows of 130", "f32[37, 130]"),
        rows("rows of 2000", "f32[2, 2000]"),
        rows("rows of S", "f32[B, S]"),
    ]
}

#[test]
fn lanes_agree() {
    let Some(device) = rasteriser() else { return };
    if std::env::var(WIDTH).is_ok_and(|width| width == "512") {
        assert_eq!(device.capabilities().lanes(), Some(16));
    }
    let graphs = [products(), convolutions(), rows()].concat();
    let differs = |(name, graph): &&(&str, Graph)| {
        let plan = pass::plan(graph, device.capabilities()).unwrap();
        let agrees = agrees(&device, graph, plan);
        (!agrees).then(|| println!("{name} differs from the oracle"));
        !agrees
    };
    assert_eq!(graphs.iter().filter(differs).count(), 0);
}

/// The same in a process whose driver has vectors of sixteen lanes.
#[test]
fn sixteen_lanes_agree() {
    if rasteriser().is_none() {
        return;
    }
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.args(["--exact", "variants::lanes::lanes_agree", "--nocapture"]);
    let output = tests.env(WIDTH, "512").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}
