//! Measures the work before a model runs: `cargo bench --bench passes [-- FILTER]`.
//!
//! This is import, all passes, and the plan for any device: of the repository's digits, and of recorded models where
//! `ONIONSKIN_CORPUS`, or `../shared/corpus`, has them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a bench may panic"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use onionskin::plan;
use onionskin::{Model, gpu, pass};

/// Returns archives with their names in the report.
fn archives() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = std::env::var_os("ONIONSKIN_CORPUS");
    let corpus = corpus.map_or_else(|| root.join("../shared/corpus"), PathBuf::from);
    let mut found = vec![("digits".to_string(), root.join("examples/digits/digits.pt"))];
    for name in ["squeezenet1_1", "resnet18_half", "gpt2_small"] {
        found.push((
            name.to_string(),
            corpus.join("models").join(name).join("model.pt"),
        ));
    }
    found.retain(|(_, path)| path.exists());
    found
}

fn all(criterion: &mut Criterion) {
    let capabilities = gpu::portable();
    for (name, path) in archives() {
        let mut measure = |step: &str, action: &dyn Fn()| {
            let mut group = criterion.benchmark_group(step);
            group
                .sample_size(10)
                .warm_up_time(Duration::from_millis(500));
            group.bench_function(BenchmarkId::from_parameter(&name), |bencher| {
                bencher.iter(action)
            });
            group.finish();
        };
        let import = || Model::open(&path).unwrap().import().unwrap();
        measure("import", &|| drop(import()));
        let module = import();
        measure("optimise", &|| {
            drop(pass::optimize_module(&module).unwrap())
        });
        let optimized = pass::optimize_module(&module).unwrap();
        measure("plan", &|| {
            drop(plan::plan(&optimized.graphs[0], &capabilities).unwrap())
        });
    }
}

criterion_group!(benches, all);
criterion_main!(benches);
