//! The search for the first differing value also looks into branches and loops.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use std::time::Duration;

use onionskin::compare::Tolerance;
use onionskin::dim::Dim;
use onionskin::error::Result;
use onionskin::gpu::FeatureLevel;
use onionskin::interp::BodyKind;
use onionskin::ir::Graph;
use onionskin::item::Item;
use onionskin::kernel::materialization::Precision;
use onionskin::model::{
    Culprit, DeviceReference, DivergenceSearch, SearchOptions, SearchProgress, check,
    compare_values, first_divergence, first_wrong_pass, verify,
};
use onionskin::pass::Pass;
use onionskin::tensor::Tensor;
use onionskin::trace::check::{CheckOptions, Id};
use onionskin::trace::{CustomOperator, TracedTensor, cond, trace_fn, while_loop};
use onionskin::{CompileOptions, Device, Model};

use super::samples;

/// Line number of the operator's call.
static LINE: AtomicU32 = AtomicU32::new(0);

const TOLERANCE: Tolerance = Tolerance {
    rtol: 1e-5,
    atol: 1e-6,
};

/// Shader of an identity operator that wrongly adds 1 to elements larger than 7.
const WRONG: &str = "
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let index = id.x;
    if index >= x0_size(0u) { return; }
    y0[index] = x0[index] + select(0.0, 1.0, x0[index] > 7.0);
}
";

fn wrong_above_seven() -> CustomOperator {
    let host = |operands: &[Tensor]| Ok(operands[..1].to_vec());
    let operator = CustomOperator::new("tests.same", |types| Ok(types[..1].to_vec()), host);
    operator.with_shader(WRONG, |types| {
        [
            types[0].numel().ceil_div(&Dim::from(64)),
            Dim::ONE,
            Dim::ONE,
        ]
    })
}

/// Doubles a value up to a hundred; values larger than 3 pass through the operator.
fn doubling(operator: &CustomOperator, x: TracedTensor) -> Result<TracedTensor> {
    while_loop(
        x,
        |x| x.sum().lt(100.0),
        |x| {
            let doubled = x * 2.0;
            let large = doubled.sum().gt(3.0);
            LINE.store(line!() + 1, Ordering::Relaxed);
            let through = || operator.call(&[&doubled]).swap_remove(0);
            cond(&large, through, || doubled.clone()).unwrap()
        },
    )
}

fn model() -> Model {
    let operator = wrong_above_seven();
    let traced = trace_fn(TracedTensor::from_vec([1], vec![1f32]), |x| {
        doubling(&operator, x)
    })
    .unwrap();
    Model::from_module(traced.module)
}

fn one() -> Vec<Item> {
    vec![Tensor::from_vec([1], vec![1f32]).unwrap().into()]
}

/// The third iteration is the first wrong one, 9 instead of 8, in the branch within it.
#[test]
fn a_device_error_in_a_branch_of_an_iteration_is_found() {
    let Some(device) = samples::device(FeatureLevel::Full).map(Device::from) else {
        return;
    };
    let session = model().compile(&device, &CompileOptions::default());
    let session = session.unwrap();
    let found = first_divergence(&session, &one(), TOLERANCE, SearchOptions::default());
    let found = found.unwrap().found().unwrap();
    let parts: Vec<BodyKind> = found.site.enclosing.iter().map(|one| one.body).collect();
    assert_eq!(parts, [BodyKind::Iteration(2), BodyKind::Then], "{found}");
    assert_eq!(found.site.op, "custom");
    let text = found.to_string();
    let lines: Vec<&str> = text.lines().collect();
    let line = |number: u32| format!("  @ tests/trace/bisect.rs:{number}");
    let first = LINE.load(Ordering::Relaxed);
    let wanted = [
        format!("first value that differs: loop/if/custom = custom{}", line(first)),
        format!(
            "  in the true branch of loop/if = if{}",
            line(first + 1)
        ),
        format!("  in iteration 3 of loop = loop{}", line(first - 7)),
        "  loop/if/custom: max abs 1.000e0, max rel 1.250e-1, 1 of 1 wrong, worst at [0]: 9 instead of 8"
            .to_string(),
    ];
    assert_eq!(lines, wanted);
    let json = found.to_json();
    assert_eq!(json["within"].as_array().unwrap().len(), 2, "{json}");

    let verification = &verify(
        &model(),
        &device,
        &CompileOptions::default(),
        &[one()],
        TOLERANCE,
    )
    .unwrap()[0];
    let Some(Culprit::Device(found)) = &verification.culprit else {
        panic!("{verification:?}");
    };
    assert_eq!(found.site.enclosing.len(), 2);
}

/// A search without time compares nothing and reports that; one with time reports progress for every node.
#[test]
fn a_search_ends_at_its_limit_and_reports_progress() {
    let Some(device) = samples::device(FeatureLevel::Full).map(Device::from) else {
        return;
    };
    let session = model().compile(&device, &CompileOptions::default());
    let session = session.unwrap();
    let stopped = first_divergence(
        &session,
        &one(),
        TOLERANCE,
        SearchOptions {
            limit: Some(Duration::ZERO),
            progress: None,
        },
    );
    let DivergenceSearch::Stopped(progress) = stopped.unwrap() else {
        panic!("the search did not end");
    };
    assert_eq!(progress.done, 0);
    let told = RefCell::new(Vec::new());
    let tell = |progress: SearchProgress| told.borrow_mut().push(progress);
    let options = SearchOptions {
        limit: None,
        progress: Some(&tell),
    };
    assert!(
        first_divergence(&session, &one(), TOLERANCE, options)
            .unwrap()
            .found()
            .is_some()
    );
    let told = told.into_inner();
    assert!(
        !told.is_empty() && told.iter().all(|one| one.done <= one.total),
        "{told:?}"
    );
    assert!(told.is_sorted_by_key(|one| one.done), "{told:?}");
}

/// Two elements through the wrong operator, their sum, and a value that is computed beside it.
fn wrong_among_right() -> Model {
    let operator = wrong_above_seven();
    let traced = trace_fn(TracedTensor::from_vec([2], vec![1f32, 2.0]), |x| {
        let wrong = operator.call(&[&x]).swap_remove(0);
        let after = wrong.sum();
        (wrong, after, x.sum() * 2.0)
    });
    Model::from_module(traced.unwrap().module)
}

/// A comparison goes on after a value that differs, and tells right values too.
#[test]
fn all_values_are_compared() {
    let Some(device) = samples::device(FeatureLevel::Full).map(Device::from) else {
        return;
    };
    let session = wrong_among_right()
        .compile(&device, &CompileOptions::default())
        .unwrap();
    let input = vec![Tensor::from_vec([2], vec![9f32, 1.0]).unwrap().into()];
    let compare = |options| compare_values(&session, &input, TOLERANCE, options).unwrap();
    let found = compare(SearchOptions::default());
    assert!(found.stopped.is_none());
    let of = |op: &str| {
        let mut values = found.values.iter().filter(|value| value.site.op == op);
        values.next().unwrap_or_else(|| panic!("{op}: {found:?}"))
    };
    let wrong = &of("custom").difference;
    assert_eq!((wrong.wrong, wrong.numel, wrong.max_abs), (1, 2, 1.0));
    let passed: Vec<bool> = found
        .values
        .iter()
        .map(|value| value.difference.passed())
        .collect();
    assert_eq!(
        passed.iter().filter(|passed| !**passed).count(),
        2,
        "{found:?}"
    );
    assert!(passed.contains(&true), "{found:?}");
    let worst = found.worst_first();
    // The sum is wrong in its only element, the operator's result in one of two.
    assert_eq!(worst[0].difference.numel, 1, "{worst:?}");
    assert_eq!(worst[1].site, of("custom").site);
    let first = found.first_divergence().unwrap();
    assert_eq!(first.site.op, "custom");
    let json = of("custom").to_json();
    assert_eq!(
        (&json["wrong"], &json["max_abs_error"]),
        (&1.into(), &1.0.into()),
        "{json}"
    );
    assert!(
        json["location"].as_str().unwrap().contains("bisect.rs:"),
        "{json}"
    );
    let stopped = compare(SearchOptions {
        limit: Some(Duration::ZERO),
        progress: None,
    });
    assert!(stopped.values.is_empty());
    assert_eq!(stopped.stopped.map(|progress| progress.done), Some(0));
}

/// The result of a loop that only branches read has the value after the last iteration, not the one before the first.
#[test]
fn a_loop_that_branches_read_is_compared_after_its_end() {
    let Some(device) = samples::device(FeatureLevel::Full).map(Device::from) else {
        return;
    };
    let values = [5f32, 1.0, -2.0, 0.5];
    let traced = trace_fn(TracedTensor::from_vec([4], values.to_vec()), |x| {
        let small = while_loop(x, |x| x.abs().amax().gt(1.0), |x| x * 0.5)?;
        // A product: a cheap branch would become a selection.
        let product = || small.unsqueeze(1).matmul(&small.unsqueeze(0));
        cond(&small.sum().gt(0.0), product, || -product())
    });
    let session = Model::from_module(traced.unwrap().module)
        .compile(&device, &CompileOptions::default())
        .unwrap();
    // Three iterations, and none.
    for factor in [1.0, 0.1] {
        let input = Tensor::from_vec([4], values.map(|value| value * factor).to_vec()).unwrap();
        let options = SearchOptions::default();
        let found = compare_values(&session, &[input.into()], TOLERANCE, options).unwrap();
        let is_loop = |value: &&onionskin::model::ComparedValue| value.site.op == "loop";
        let small = found.values.iter().find(is_loop);
        assert!(small.is_some(), "{found:?}");
        assert!(small.unwrap().difference.passed(), "{small:?}");
    }
}

/// The report and its page name the value by the enclosing regions, with source lines.
#[test]
fn a_report_leads_into_regions() {
    let Some(device) = samples::device(FeatureLevel::Full).map(Device::from) else {
        return;
    };
    let reference = DeviceReference {
        device: &device,
        precision: Precision::Single,
        expected: None,
        tolerance: TOLERANCE,
    };
    let options = CheckOptions {
        inputs: vec![one()],
        perturb: false,
        ..CheckOptions::default()
    };
    let report = check(&model(), &options, &reference).unwrap();
    let finding = report
        .findings
        .iter()
        .find(|one| one.id == Id::DeviceDiffers);
    let finding = finding.unwrap();
    let value = finding.value.as_deref().unwrap();
    assert_eq!(value.split('/').count(), 3, "{report}");
    let page = report.to_html("model.pt").unwrap();
    let link = format!("<a href=\"#value-{value}\" data-finding=\"0\">{value}</a>");
    assert!(page.contains(&link));
    assert!(
        page.contains(&format!("<tr id=\"value-{value}\" class=\"error\">")),
        "{page}"
    );
    let json = report.to_json();
    assert_eq!(json["findings"][0]["value"], value);
}

const LOOP: &str = "graph forward(x: f32[2], n: i64[]) -> f32[2] {
  y: f32[2] = loop n, true, x, carried=1  @ model.py:3 {
    graph body(i: i64[], p: f32[2]) -> (bool[], f32[2]) {
      again = full true, dtype=bool, shape=[]
      q = mul p, 2.0  @ model.py:4
      r = minimum q, 7.0  @ model.py:5
      return again, r
    }
  }
  return y
}";

/// A pass whose graph is wrong from the second iteration on.
#[test]
fn a_pass_error_in_an_iteration_is_found() {
    let graph: Graph = LOOP.parse().unwrap();
    let wrong = Pass {
        name: "wrong",
        run: |graph| {
            graph
                .to_string()
                .replace("minimum q, 7.0", "minimum q, 3.0")
                .parse()
        },
    };
    let inputs = [
        Tensor::from_vec([2], vec![1f32, 0.5]).unwrap(),
        Tensor::from_vec([], vec![3i64]).unwrap(),
    ];
    let found = first_wrong_pass(&graph, &Default::default(), &inputs, [&wrong], TOLERANCE);
    let (name, found) = found.unwrap().unwrap();
    assert_eq!((name, &*found.site.value), ("wrong", "y/r"));
    assert_eq!(found.site.enclosing[0].body, BodyKind::Iteration(1));
    let wanted = "first value that differs: y/r = minimum  @ model.py:5\n  in iteration 2 of y = loop  @ model.py:3\n  \
                  y/r: max abs 1.000e0, max rel 2.500e-1, 1 of 2 wrong, worst at [0]: 3 instead of 4";
    assert_eq!(found.to_string(), wanted);
}
