//! What a command is doing, on a line of standard error that is there while it does it.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use super::output;
use crate::CompileOptions;
use crate::gpu::Progress;
use crate::model::SearchProgress;

/// Where there is no terminal, a long step is told of again after this time.
const INTERVAL: Duration = Duration::from_secs(5);

/// A line that tells steps; hidden where standard error is no terminal. It is gone when the command is done with it.
pub(super) struct Activity {
    bar: ProgressBar,
    /// True if steps are lines of their own, for want of a terminal.
    has_lines: bool,
    /// When the last of these was printed.
    told: Mutex<Instant>,
}

impl Activity {
    /// `quiet` hides the line on a terminal too: for output that programs read.
    pub(super) fn new(quiet: bool) -> Activity {
        let is_shown = !quiet && std::io::stderr().is_terminal();
        let bar = if is_shown {
            ProgressBar::new_spinner()
        } else {
            ProgressBar::hidden()
        };
        // Steps shorter than this are not seen at all.
        bar.enable_steady_tick(Duration::from_millis(100));
        Activity {
            bar,
            has_lines: false,
            told: Mutex::new(Instant::now()),
        }
    }

    /// For a command whose steps take minutes: they are told where there is no terminal, too.
    pub(super) fn told(quiet: bool) -> Activity {
        let mut activity = Activity::new(quiet);
        activity.has_lines = !quiet && !std::io::stderr().is_terminal();
        activity
    }

    /// A step of unknown length.
    pub(super) fn step(&self, what: impl Into<String>) {
        let what = what.into();
        if self.has_lines {
            self.tell(&what, Duration::ZERO);
        }
        self.bar.set_style(style("{spinner} {msg} {elapsed}"));
        self.bar.reset_elapsed();
        self.bar.set_message(what);
    }

    /// How far a search is.
    pub(super) fn searched(&self, SearchProgress { done, total }: SearchProgress) {
        self.progress(&format!(
            "looking for the first value that differs: {done} of {total} nodes agree"
        ));
    }

    /// How far a step is; without a terminal, a line every few seconds.
    pub(super) fn progress(&self, what: &str) {
        if self.has_lines {
            self.tell(what, INTERVAL);
        }
        self.bar.set_message(what.to_string());
    }

    /// A line of output while the step goes on.
    pub(super) fn print(&self, line: &str) {
        self.bar.suspend(|| output::line(line));
    }

    /// Prints a line, unless the last one was printed within an interval.
    fn tell(&self, what: &str, interval: Duration) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.elapsed() >= interval {
            output::note(what);
            *told = Instant::now();
        }
    }

    /// A step of so many parts, which [`Activity::advance`] counts.
    pub(super) fn count(&self, length: usize, what: &str) {
        self.bar
            .set_style(style("{bar:40} {pos}/{len} {msg} {eta}"));
        self.bar.set_length(length as u64);
        self.bar.set_message(what.to_string());
    }

    /// One part more is done.
    pub(super) fn advance(&self) {
        self.bar.inc(1);
    }

    /// Options by which compiling shows its kernels and the bytes of weights.
    pub(super) fn compile_options(&self) -> CompileOptions {
        let bar = self.bar.clone();
        CompileOptions {
            progress: Some(Arc::new(move |progress| show(&bar, progress))),
            ..CompileOptions::default()
        }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn show(bar: &ProgressBar, progress: Progress) {
    match progress {
        Progress::Pipelines { done, total } => {
            bar.set_style(style("{bar:40} {pos}/{len} kernels {msg}"));
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        }
        Progress::Weights { done, total } => {
            let (done, total) = (HumanBytes(done), HumanBytes(total));
            bar.set_message(format!("{done} of {total} of weights"));
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
