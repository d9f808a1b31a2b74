//! `onionskin bench`: how long a model takes on a device, the first time and from then on.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::activity::Activity;
use super::inputs::Inputs;
use super::{Outcome, output};
use crate::error::Result;
use crate::item::Item;
use crate::model::Session;
use crate::{Device, Model};

/// Measure a model: time to the first output of this process, latency in the steady state, memory.
#[derive(Args)]
pub(super) struct Bench {
    /// A TorchScript archive or a JSON graph.
    model: PathBuf,
    #[command(flatten)]
    inputs: Inputs,
    /// The device: auto, cpu, gpu, software, an adapter's index or a part of its name.
    #[arg(long, default_value = "auto")]
    device: String,
    /// Calls before those that count.
    #[arg(long, default_value_t = 3)]
    warm_up: usize,
    /// How many calls count, at least.
    #[arg(long, default_value_t = 10)]
    runs: usize,
    /// How long calls are counted, in seconds, at least.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

/// What was measured; times in milliseconds.
struct Figures {
    /// From the start of the command to the first output.
    cold: f64,
    /// Sorted.
    steady: Vec<f64>,
    /// Bytes on the device, where there is one.
    device_bytes: Option<u64>,
}

impl Bench {
    pub(super) fn run(&self) -> Result<Outcome> {
        let start = Instant::now();
        let arguments = self.inputs.read()?;
        let device = Device::open(&self.device)?;
        let activity = Activity::new(self.json);
        activity.step("reading and importing the model");
        let session = Model::open(&self.model)?.compile(&device, &activity.compile_options())?;
        session.call(&arguments)?;
        let cold = milliseconds(start);
        activity.step("measuring");
        let figures = Figures {
            cold,
            steady: self.steady(&session, &arguments)?,
            device_bytes: device_bytes(&session, &arguments)?,
        };
        drop(activity);
        if self.json {
            output::line(&figures.json(&device).to_string());
        } else {
            figures.print(&device);
        }
        Ok(Outcome::Yes)
    }

    /// The times of calls, shortest first.
    fn steady(&self, session: &Session, arguments: &[Item]) -> Result<Vec<f64>> {
        for _ in 0..self.warm_up {
            session.call(arguments)?;
        }
        let (watch, enough) = (
            Instant::now(),
            Duration::try_from_secs_f64(self.seconds).unwrap_or_default(),
        );
        let mut times = Vec::new();
        while times.len() < self.runs.max(1) || watch.elapsed() < enough {
            let start = Instant::now();
            session.call(arguments)?;
            times.push(milliseconds(start));
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }
}

impl Figures {
    /// The time that this share of the calls does not exceed.
    fn quantile(&self, share: f64) -> f64 {
        let last = self.steady.len().saturating_sub(1);
        let place = (share * last as f64).round() as usize;
        self.steady.get(place).copied().unwrap_or(f64::NAN)
    }

    fn json(&self, device: &Device) -> Value {
        json!({
            "device": device.to_string(),
            "cold_ms": self.cold,
            "runs": self.steady.len(),
            "median_ms": self.quantile(0.5),
            "low_ms": self.quantile(0.1),
            "high_ms": self.quantile(0.9),
            "device_bytes": self.device_bytes,
            "peak_bytes": peak_bytes(),
        })
    }

    fn print(&self, device: &Device) {
        let megabytes = |bytes: Option<u64>| match bytes {
            Some(bytes) => format!("{:.1} MB", bytes as f64 / 1e6),
            None => "unknown".to_string(),
        };
        output::line(&format!("on {device}"));
        output::line(&format!("first output   {:.1} ms", self.cold));
        output::line(&format!(
            "steady state   {:.2} ms (median of {}; four in five within {:.2} to {:.2} ms)",
            self.quantile(0.5),
            self.steady.len(),
            self.quantile(0.1),
            self.quantile(0.9),
        ));
        output::line(&format!("device memory  {}", megabytes(self.device_bytes)));
        output::line(&format!("peak memory    {}", megabytes(peak_bytes())));
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// What a call takes on the device; none on the host.
fn device_bytes(session: &Session, arguments: &[Item]) -> Result<Option<u64>> {
    let (variant, inputs) = session.prepare(arguments)?;
    let Some(program) = &variant.program else {
        return Ok(None);
    };
    let footprint = program.footprint(&variant.bind(&inputs)?)?;
    Ok(Some(footprint.total()))
}

/// The largest resident size of this process so far, where the system tells it.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_times_that_occurred() {
        let figures = Figures {
            cold: 9.0,
            steady: vec![1.0, 2.0, 3.0, 4.0, 50.0],
            device_bytes: None,
        };
        assert_eq!(
            [0.0, 0.5, 0.9].map(|share| figures.quantile(share)),
            [1.0, 3.0, 50.0]
        );
        let found = figures.json(&Device::Host);
        assert_eq!(
            (&found["median_ms"], &found["runs"]),
            (&json!(3.0), &json!(5))
        );
        assert!(found["device_bytes"].is_null());
    }
}
