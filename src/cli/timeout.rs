//! `--timeout`: the time limit of a command.

use std::process::exit;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use clap::Args;

use super::{ERROR_CODE, Outcome, output};
use crate::error::{Error, Result};
use crate::interrupt::{self, RunOptions};

/// Time that a command has to end by itself once its limit is over.
const GRACE: Duration = Duration::from_millis(500);

/// `--timeout`.
#[derive(Args)]
pub(super) struct TimeoutOption {
    /// End with an error after this many seconds. Opening, import, planning, compilation and runs count.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<Duration>,
}

impl TimeoutOption {
    /// Runs a command under the limit. A step that does not end soon after the limit ends with the process.
    pub(super) fn limit(&self, command: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
        let Some(timeout) = self.timeout else {
            return command();
        };
        let (done, is_done) = channel::<()>();
        let watch = move || {
            let end = timeout.saturating_add(GRACE);
            if is_done.recv_timeout(end) == Err(RecvTimeoutError::Timeout) {
                output::report(
                    &interrupt::timed_out(timeout).at("a step that cannot be interrupted"),
                );
                exit(ERROR_CODE.into());
            }
        };
        let watchdog = std::thread::Builder::new().name("onionskin-timeout".into());
        let started = watchdog.spawn(watch);
        started.map_err(|error| Error::device(format!("no thread can be started: {error}")))?;
        let options = RunOptions {
            timeout: Some(timeout),
            ..RunOptions::default()
        };
        // A command may count an interrupted call as a result, such as a check that was skipped.
        let outcome =
            options.scope(|| command().and_then(|outcome| interrupt::check().map(|()| outcome)));
        drop(done);
        outcome
    }
}

/// Parses a number of seconds above zero.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "a number of seconds above zero is expected, such as 2.5".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_have_fractions() {
        assert_eq!(parse_seconds("2.5"), Ok(Duration::from_millis(2500)));
        for text in ["0", "-1", "nan", "inf", "1e300", "4s", ""] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
