//! `--timeout` and `--host-memory`: limits of a command.

use std::process::exit;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use clap::Args;

use super::{ERROR_CODE, Outcome, output};
use crate::error::{Error, Result};
use crate::interrupt::{self, RunOptions};

/// Time that a command has to end by itself once its limit is over.
const GRACE: Duration = Duration::from_millis(500);

/// `--timeout` and `--host-memory`.
#[derive(Args)]
pub(super) struct RunLimitOptions {
    /// End with an error after this many seconds. Opening, import, planning, compilation and runs count.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<Duration>,

    /// Most memory of a run on the host, instead of 4G. K, M and G are powers of 1024. Inputs and weights are not counted.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    host_memory: Option<u64>,
}

impl RunLimitOptions {
    /// Runs a command under the limits.
    pub(super) fn apply(&self, command: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
        let watchdog = self.timeout.map(end_after).transpose()?;
        let options = RunOptions {
            timeout: self.timeout,
            host_memory: self.host_memory,
            ..RunOptions::default()
        };
        // A command may count an interrupted call as a result, such as a check that was skipped.
        let outcome =
            options.scope(|| command().and_then(|outcome| interrupt::check().map(|()| outcome)));
        drop(watchdog);
        outcome
    }
}

/// Starts a thread that ends the process soon after a time, if a step cannot be interrupted. The result stops it when dropped.
fn end_after(timeout: Duration) -> Result<Sender<()>> {
    let (done, is_done) = channel::<()>();
    let watch = move || {
        let end = timeout.saturating_add(GRACE);
        if is_done.recv_timeout(end) == Err(RecvTimeoutError::Timeout) {
            let error = interrupt::timed_out(timeout).at("a step that cannot be interrupted");
            output::report(&error);
            exit(ERROR_CODE.into());
        }
    };
    let watchdog = std::thread::Builder::new().name("onionskin-timeout".into());
    match watchdog.spawn(watch) {
        Ok(_) => Ok(done),
        Err(error) => Err(Error::device(format!("no thread can be started: {error}"))),
    }
}

/// Parses a number of bytes: `4G`, `512M`, `1000000`.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((end, 'K')) => (&text[..end], 1 << 10),
        Some((end, 'M')) => (&text[..end], 1 << 20),
        Some((end, 'G')) => (&text[..end], 1 << 30),
        _ => (text, 1),
    };
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    bytes.ok_or_else(|| "a number of bytes is expected, such as 512M or 4G".into())
}

/// Parses a number of seconds above zero.
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "a number of seconds above zero is expected, such as 2.5".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        assert_eq!(parse_bytes("4G"), Ok(4 << 30));
        assert_eq!(parse_bytes("1000"), Ok(1000));
        for text in [
            "",
            "G",
            "-1",
            "1.5G",
            "4T",
            "99999999999999999999",
            "99999999999G",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_may_have_fractions() {
        assert_eq!(parse_seconds("2.5"), Ok(Duration::from_millis(2500)));
        for text in ["0", "-1", "nan", "inf", "1e300", "4s", ""] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
