//! Worker processes that run cases.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::{Against, TestCommand, WorkerAnswer};
use crate::cli::json_error;
use crate::error::{Error, Result};

/// A worker process.
pub(super) struct Worker {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Worker {
    pub(super) fn get_or_start<'a>(
        worker: &'a mut Option<Worker>,
        test: &TestCommand,
    ) -> Result<&'a mut Worker> {
        match worker {
            Some(worker) => Ok(worker),
            None => Ok(worker.insert(Worker::start(test)?)),
        }
    }

    fn start(test: &TestCommand) -> Result<Worker> {
        let failed = |error| Error::io("the worker process", error);
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command
            .arg("test")
            .arg("--worker")
            .args(test.file.command_line_options())
            .args(test.device.command_line_options())
            .args(test.platform.command_line_options());
        if test.against == Against::Libtorch {
            command.args(["--against", "libtorch"]);
        }
        if test.translate {
            command.arg("--translate");
        }
        if let Some(folder) = &test.kernels {
            command.arg("--kernels").arg(folder);
        }
        if let Some(folder) = &test.record {
            command.arg("--record").arg(folder);
        }
        if let Some(folder) = &test.gradients {
            command.arg("--gradients").arg(folder);
        }
        if let Some(pattern) = &test.only {
            command.arg(format!("--only={pattern}"));
        }
        command.arg("--").arg(&test.folder);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let missing = || Error::internal("a worker process has no pipes");
        let input = child.stdin.take().ok_or_else(missing)?;
        let lines = BufReader::new(child.stdout.take().ok_or_else(missing)?).lines();
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            lines
                .map_while(|line| line.ok())
                .try_for_each(|line| sender.send(line))
        });
        Ok(Worker {
            child,
            input,
            answers,
        })
    }

    pub(super) fn ask(&mut self, index: usize, limit: Duration) -> Result<WorkerAnswer> {
        let crashed = || Error::internal("crashed");
        writeln!(self.input, "{index}")
            .and_then(|()| self.input.flush())
            .map_err(|_| crashed())?;
        let answer = self
            .answers
            .recv_timeout(limit)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => {
                    Error::device(format!("no answer after {} s", limit.as_secs()))
                }
                RecvTimeoutError::Disconnected => crashed(),
            })?;
        serde_json::from_str(&answer).map_err(json_error)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
