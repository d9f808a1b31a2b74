//! A status line on standard error that shows the current step of a command.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use super::output;
use crate::CompileOptions;
use crate::gpu::Progress;
use crate::model::SearchProgress;

/// Time between two progress lines of a step where standard error is not a terminal.
const INTERVAL: Duration = Duration::from_secs(5);

/// Status line for the current step. It is hidden where standard error is not a terminal, and is cleared when dropped.
pub(super) struct ProgressLine {
    bar: ProgressBar,
    /// True if each step prints a line of its own because standard error is not a terminal.
    prints_lines: bool,
    /// Time at which the last such line was printed.
    last_printed: Mutex<Instant>,
}

impl ProgressLine {
    /// Creates a status line. `quiet` hides it on a terminal too, for commands whose output is read by programs.
    pub(super) fn new(quiet: bool) -> ProgressLine {
        let is_shown = !quiet && std::io::stderr().is_terminal();
        let bar = if is_shown {
            ProgressBar::new_spinner()
        } else {
            ProgressBar::hidden()
        };
        // Shorter steps are not shown.
        bar.enable_steady_tick(Duration::from_millis(100));
        ProgressLine {
            bar,
            prints_lines: false,
            last_printed: Mutex::new(Instant::now()),
        }
    }

    /// Creates a status line for a command whose steps take minutes: without a terminal each step prints a line.
    pub(super) fn with_lines(quiet: bool) -> ProgressLine {
        let mut progress = ProgressLine::new(quiet);
        progress.prints_lines = !quiet && !std::io::stderr().is_terminal();
        progress
    }

    /// Begins a step of unknown length.
    pub(super) fn step(&self, what: impl Into<String>) {
        let what = what.into();
        if self.prints_lines {
            self.print_throttled(&what, Duration::ZERO);
        }
        self.bar.set_style(style("{spinner} {msg} {elapsed}"));
        self.bar.reset_elapsed();
        self.bar.set_message(what);
    }

    /// Shows the progress of a search for the first difference or of a comparison of values.
    pub(super) fn search_progress(
        &self,
        what: &str,
        SearchProgress { done, total }: SearchProgress,
    ) {
        self.progress(&format!("{what}: {done} of {total} nodes are compared"));
    }

    /// Shows the progress of the current step. Without a terminal it prints a line every [`INTERVAL`].
    pub(super) fn progress(&self, what: &str) {
        if self.prints_lines {
            self.print_throttled(what, INTERVAL);
        }
        self.bar.set_message(what.to_string());
    }

    /// Prints a line of output without ending the step.
    pub(super) fn print(&self, line: &str) {
        self.bar.suspend(|| output::line(line));
    }

    /// Prints a line, unless the last one was printed less than `interval` ago.
    fn print_throttled(&self, what: &str, interval: Duration) {
        let mut told = self
            .last_printed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if told.elapsed() >= interval {
            output::note(what);
            *told = Instant::now();
        }
    }

    /// Begins a step of `length` parts, counted by [`ProgressLine::advance`].
    pub(super) fn begin_count(&self, length: usize, what: &str) {
        self.bar
            .set_style(style("{bar:40} {pos}/{len} {msg} {eta}"));
        self.bar.set_length(length as u64);
        self.bar.set_message(what.to_string());
    }

    /// Counts one more finished part.
    pub(super) fn advance(&self) {
        self.bar.inc(1);
    }

    /// Compile options that show the compiled kernels and the uploaded bytes of weights.
    pub(super) fn compile_options(&self) -> CompileOptions {
        let bar = self.bar.clone();
        CompileOptions {
            progress: Some(Arc::new(move |progress| show_compilation(&bar, progress))),
            ..CompileOptions::default()
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn show_compilation(bar: &ProgressBar, progress: Progress) {
    match progress {
        Progress::Pipelines { done, total } => {
            bar.set_style(style("{bar:40} {pos}/{len} kernels {msg}"));
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        }
        Progress::DeviceReplaced => {
            bar.suspend(|| output::note("warning: the device was lost; it is opened again"));
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
