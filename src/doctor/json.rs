//! The report as JSON.

use serde_json::{Value as Json, json};

use crate::compare::Difference;
use crate::gpu::{AdapterDetails, SubgroupSizes};

use super::check::{CheckVerdict, DoctorCheck};
use super::{DeviceExamination, DeviceTiming, DoctorReport, HostFacts};

impl DoctorReport {
    /// The report as a JSON object with the same contents as the Markdown. `format` is `onionskin-doctor-1`.
    pub fn to_json(&self) -> Json {
        json!({
            "format": "onionskin-doctor-1",
            "passed": self.passed(),
            "host": self.host.to_json(),
            "adapters": self.adapters,
            "devices": self.devices.iter().map(DeviceExamination::to_json).collect::<Vec<_>>(),
        })
    }
}

impl HostFacts {
    fn to_json(&self) -> Json {
        let environment = self.environment.iter();
        let environment =
            environment.map(|(name, value)| (name.clone(), Json::from(value.as_str())));
        json!({
            "version": self.version,
            "system": self.system,
            "architecture": self.architecture,
            "vectors": self.vectors,
            "processors": self.processors,
            "memory": self.memory,
            "environment": environment.collect::<serde_json::Map<_, _>>(),
        })
    }
}

impl DeviceExamination {
    fn to_json(&self) -> Json {
        json!({
            "passed": self.passed(),
            "adapter": self.details.as_ref().map(adapter_json),
            "error": self.error,
            "subgroups": self.subgroups.as_ref().map(subgroups_json),
            "timing": self.timing.as_ref().map(timing_json),
            "remarks": self.remarks,
            "seconds": self.elapsed.as_secs_f64(),
            "checks": self.checks.iter().map(check_json).collect::<Vec<_>>(),
        })
    }
}

fn adapter_json(details: &AdapterDetails) -> Json {
    let report = &details.report;
    let limits = details.limits.iter();
    let limits = limits.map(|(name, value)| (name.clone(), number_or_text(value)));
    let shortfalls = details.shortfalls.iter();
    let shortfalls = shortfalls
        .map(|limit| json!({"name": limit.name, "found": limit.found, "default": limit.default}));
    json!({
        "index": report.index,
        "name": report.name,
        "kind": report.kind.to_string(),
        "backend": report.backend,
        "driver": report.driver,
        "pci_ids": details.pci_ids,
        "features": report.features,
        "unused_features": details.unused_features,
        "limits": limits.collect::<serde_json::Map<_, _>>(),
        "below_webgpu_defaults": shortfalls.collect::<Vec<_>>(),
        "subgroup_sizes": details.subgroup_sizes,
    })
}

fn number_or_text(value: &str) -> Json {
    value
        .parse::<u64>()
        .map_or_else(|_| value.into(), Json::from)
}

fn subgroups_json(sizes: &SubgroupSizes) -> Json {
    json!({
        "reported": [sizes.smallest, sizes.largest],
        "read": sizes.read,
        "summed": sizes.summed,
        "contradiction": sizes.contradiction(),
    })
}

fn timing_json(timing: &DeviceTiming) -> Json {
    json!({
        "round_trip_ms": 1e3 * timing.round_trip.as_secs_f64(),
        "upload_gb_s": timing.upload / 1e9,
        "download_gb_s": timing.download / 1e9,
        "memory_gb_s": timing.ceilings.memory(),
        "cache_gb_s": timing.ceilings.cache(),
        "arithmetic_gflop_s": timing.ceilings.arithmetic,
        "product_gflop_s": timing.product_rate().map(|rate| rate / 1e9),
        "product_ms": 1e3 * timing.product.as_secs_f64(),
        "product_on_host_ms": 1e3 * timing.product_on_host.as_secs_f64(),
        "has_timestamps": timing.has_timestamps,
    })
}

fn check_json(check: &DoctorCheck) -> Json {
    let (verdict, reason) = match &check.verdict {
        CheckVerdict::Passed => ("passed", None),
        CheckVerdict::Failed(reason) => ("failed", Some(reason)),
        CheckVerdict::Refused(reason) => ("refused", Some(reason)),
        CheckVerdict::Skipped(reason) => ("skipped", Some(reason)),
    };
    let failed = verdict == "failed";
    json!({
        "group": check.group,
        "name": check.name,
        "verdict": verdict,
        "reason": reason,
        "outputs": check.differences.iter().map(Difference::to_json).collect::<Vec<_>>(),
        "kernels": check.kernels,
        "compile_ms": 1e3 * check.compile.as_secs_f64(),
        "run_ms": 1e3 * check.run.as_secs_f64(),
        "graph": failed.then_some(&check.graph),
    })
}
