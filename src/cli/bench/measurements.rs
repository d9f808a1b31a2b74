//! The measurements of a benchmark, as text and as JSON.

use serde_json::{Map, Value, json};

use super::cold_start::ColdStarts;
use crate::Device;
use crate::cli::output::line;
use crate::cli::show::dispatch_counts;
use crate::gpu::Footprint;
use crate::units::amount;

/// Measurements of a benchmark; times are in milliseconds.
pub(super) struct Measurements {
    pub(super) device: String,
    /// Time from the start of the command to the first output.
    pub(super) first_output: f64,
    /// Cold starts in separate processes.
    pub(super) cold_starts: Option<ColdStarts>,
    /// Times of calls in the steady state, sorted.
    pub(super) steady: Vec<f64>,
    /// Number of operators that PyTorch calls for the same graph, if it is known.
    pub(super) operators: Option<usize>,
    /// None on the host.
    pub(super) on_device: Option<GpuMeasurements>,
    pub(super) memory: ProcessMemory,
    /// Milliseconds that other runtimes take, by name.
    pub(super) peers: Vec<(String, f64)>,
}

/// Measurements of a call on a GPU.
pub(super) struct GpuMeasurements {
    pub(super) dispatches: u64,
    /// Distinct kernels.
    pub(super) kernels: usize,
    /// Milliseconds from the submission of a run to its end, including the upload of inputs.
    pub(super) graph_ms: f64,
    /// Sum of the milliseconds of the kernels, each measured alone.
    pub(super) kernels_ms: f64,
    pub(super) footprint: Footprint,
    /// Bytes allocated on the device, if known.
    pub(super) allocated: Option<u64>,
}

/// Resident bytes of this process, where the operating system reports them.
pub(super) struct ProcessMemory {
    /// Largest number of resident bytes so far.
    pub(super) peak: Option<u64>,
    /// Resident bytes at present.
    pub(super) now: Option<u64>,
    /// Resident bytes that no file backs: without programs, drivers and mapped weights.
    pub(super) anonymous: Option<u64>,
    /// True if the device's memory belongs to this process and is therefore part of the other fields.
    pub(super) shared: bool,
}

/// Reads the memory of this process.
pub(super) fn memory(device: &Device) -> ProcessMemory {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kilobytes * 1024)
    };
    ProcessMemory {
        peak: field("VmHWM:"),
        now: field("VmRSS:"),
        anonymous: field("RssAnon:"),
        shared: matches!(device, Device::Gpu(device) if device.capabilities().software),
    }
}

impl GpuMeasurements {
    /// Returns the microseconds that a dispatch costs beyond its kernel; `None` where the kernels take as long as the graph.
    /// Profiling waits between kernels, so that no kernel overlaps the next one or finds its operands in caches.
    fn overhead(&self) -> Option<f64> {
        let beyond = self.graph_ms - self.kernels_ms;
        (beyond > 0.0).then(|| 1e3 * beyond / self.dispatches.max(1) as f64)
    }

    /// Returns the bytes of inputs, temporaries and outputs.
    fn activations(&self) -> u64 {
        self.footprint.total() - self.footprint.weights
    }

    /// Returns the bytes of inputs, outputs and those temporaries that live at the same time.
    fn live(&self) -> u64 {
        self.activations() - self.footprint.temporaries + self.footprint.temporaries_live
    }

    fn bytes(&self) -> u64 {
        self.allocated.unwrap_or(0).max(self.footprint.total())
    }

    fn json(&self) -> Value {
        json!({
            "dispatches": self.dispatches,
            "kernels": self.kernels,
            "graph_ms": self.graph_ms,
            "kernels_ms": self.kernels_ms,
            "overhead_us": self.overhead(),
            "weight_bytes": self.footprint.weights,
            "activation_bytes": self.activations(),
            "live_bytes": self.live(),
            "allocated_bytes": self.allocated,
        })
    }

    fn print(&self, operators: Option<usize>) {
        line(&format!(
            "dispatches     {}",
            dispatch_counts(self.dispatches, self.kernels, operators)
        ));
        let (graph, kernels) = (self.graph_ms, self.kernels_ms);
        line(&match self.overhead() {
            Some(overhead) => format!(
                "overhead       {overhead:.1} µs a dispatch: the graph takes {graph:.2} ms, its kernels {kernels:.2} ms"
            ),
            None => format!(
                "overhead       too little to measure: the graph takes {graph:.2} ms, its kernels one by one {kernels:.2} ms"
            ),
        });
        let mega = |bytes: u64| amount(bytes as f64, "B");
        line(&format!(
            "device memory  {}: weights {}, activations {}, {:.2} times the {} that live at once",
            mega(self.bytes()),
            mega(self.footprint.weights),
            mega(self.activations()),
            self.activations() as f64 / self.live().max(1) as f64,
            mega(self.live())
        ));
    }
}

impl Measurements {
    /// Returns the time that a `share` of the calls does not exceed.
    fn quantile(&self, share: f64) -> f64 {
        let last = self.steady.len().saturating_sub(1);
        let place = (share * last as f64).round() as usize;
        self.steady.get(place).copied().unwrap_or(f64::NAN)
    }

    /// Returns the bytes of this process beyond the device's memory: all of them, and those that no file backs.
    fn host_bytes(&self) -> [Option<u64>; 2] {
        let device = match (&self.on_device, self.memory.shared) {
            (Some(device), true) => device.bytes(),
            _ => 0,
        };
        let beyond = |bytes: Option<u64>| bytes.map(|bytes| bytes.saturating_sub(device));
        [self.memory.now, self.memory.anonymous].map(beyond)
    }

    pub(super) fn json(&self) -> Value {
        let cold_starts = self.cold_starts.as_ref();
        let [host, anonymous] = self.host_bytes();
        let peers = self.peers.iter();
        let peers: Map<String, Value> = peers
            .map(|(name, ms)| {
                (
                    name.clone(),
                    json!({"ms": ms, "ratio": self.quantile(0.5) / ms}),
                )
            })
            .collect();
        json!({
            "device": self.device,
            "cold_ms": self.first_output,
            "fresh_ms": cold_starts.map(|starts| starts.nothing_cached),
            "fresh_cached_ms": cold_starts.map(|starts| starts.cached),
            "runs": self.steady.len(),
            "median_ms": self.quantile(0.5),
            "least_ms": self.quantile(0.0),
            "low_ms": self.quantile(0.1),
            "high_ms": self.quantile(0.9),
            "operators": self.operators,
            "on_device": self.on_device.as_ref().map(GpuMeasurements::json),
            "device_bytes": self.on_device.as_ref().map(GpuMeasurements::bytes),
            "host_bytes": host,
            "host_anonymous_bytes": anonymous,
            "peak_bytes": self.memory.peak,
            "against": peers,
        })
    }

    pub(super) fn print(&self) {
        let megabytes = |bytes: Option<u64>| match bytes {
            Some(bytes) => amount(bytes as f64, "B"),
            None => "unknown".to_string(),
        };
        line(&format!("on {}", self.device));
        let cold_starts = match &self.cold_starts {
            Some(starts) => format!(
                " in this process; {:.0} ms in a new process with empty caches, {:.0} ms with filled caches",
                starts.nothing_cached, starts.cached
            ),
            None => String::new(),
        };
        line(&format!(
            "first output   {:.1} ms{cold_starts}",
            self.first_output
        ));
        line(&format!(
            "steady state   {:.2} ms (median of {}; 10 % to 90 % quantiles: {:.2} to {:.2} ms)",
            self.quantile(0.5),
            self.steady.len(),
            self.quantile(0.1),
            self.quantile(0.9),
        ));
        for (name, ms) in &self.peers {
            let ratio = self.quantile(0.5) / ms;
            line(&format!(
                "against        {name}, {ms:.2} ms: {ratio:.2} times as long"
            ));
        }
        if let Some(device) = &self.on_device {
            device.print(self.operators);
        }
        let [host, anonymous] = self.host_bytes().map(megabytes);
        line(&format!(
            "host memory    {host} resident without device memory; {anonymous} of it not backed by files"
        ));
        line(&format!(
            "peak memory    {} of this process",
            megabytes(self.memory.peak)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(on_device: Option<GpuMeasurements>) -> Measurements {
        Measurements {
            device: "some".to_string(),
            first_output: 9.0,
            cold_starts: None,
            steady: vec![1.0, 2.0, 3.0, 4.0, 50.0],
            operators: Some(7),
            on_device,
            memory: ProcessMemory {
                peak: None,
                now: Some(5000),
                anonymous: Some(1300),
                shared: true,
            },
            peers: vec![("peer".to_string(), 2.0)],
        }
    }

    #[test]
    fn quantiles_are_times_that_occurred() {
        let figures = figures(None);
        assert_eq!(
            [0.0, 0.5, 0.9].map(|share| figures.quantile(share)),
            [1.0, 3.0, 50.0]
        );
        let found = figures.json();
        assert_eq!(
            (&found["median_ms"], &found["runs"]),
            (&json!(3.0), &json!(5))
        );
        assert_eq!(found["against"]["peer"]["ratio"], 1.5);
        assert!(found["device_bytes"].is_null());
    }

    /// The overhead is unknown, not negative, where kernels measured one by one take longer than the graph.
    #[test]
    fn overhead_is_positive_or_unknown() {
        let found = figures(Some(on_device(0.5, 0.7))).json();
        assert!(found["on_device"]["overhead_us"].is_null());
    }

    fn on_device(graph_ms: f64, kernels_ms: f64) -> GpuMeasurements {
        GpuMeasurements {
            dispatches: 4,
            kernels: 3,
            graph_ms,
            kernels_ms,
            footprint: Footprint {
                weights: 100,
                inputs: 10,
                temporaries: 60,
                temporaries_live: 50,
                temporaries_unshared: 200,
                outputs: 30,
            },
            allocated: Some(300),
        }
    }

    #[test]
    fn overhead_is_what_kernels_do_not_take() {
        let figures = figures(Some(on_device(0.5, 0.3)));
        let found = &figures.json()["on_device"];
        assert!((found["overhead_us"].as_f64().unwrap() - 50.0).abs() < 1e-9);
        assert_eq!(
            (&found["activation_bytes"], &found["live_bytes"]),
            (&json!(100), &json!(90))
        );
        assert_eq!(figures.host_bytes(), [Some(4700), Some(1000)]);
    }
}
