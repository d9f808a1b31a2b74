//! The command line: one file per command.
//!
//! Exit codes: 0 success; 1 the command ran and its answer is no (outputs differ, cases failed, a check found errors);
//! 2 wrong usage; 3 any other error, such as a malformed file or an unsupported operator.

mod argument_errors;
mod backward;
mod bench;
mod check;
mod compare;
mod demo;
mod devices;
mod doctor;
mod explain;
mod import;
mod inputs;
mod libtorch;
mod model_args;
mod model_file;
mod ops;
mod output;
mod overwrite;
mod plan;
mod precision;
mod prepare;
mod profile;
mod progress_line;
mod results;
mod run;
mod run_limits;
mod show;
mod test;
mod tune;
mod verify;
mod view;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::run_limits::RunLimitOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::gpu::{self, VectorWidth};

/// Run PyTorch models on any GPU.
#[derive(Parser)]
#[command(name = "onionskin", version, about, long_about = None, propagate_version = true)]
#[command(
    after_help = "Exit codes: 0 success, 1 outputs differ, cases failed or a check found errors, 2 wrong usage, 3 any other error."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Import(import::ImportCommand),
    Show(show::ShowCommand),
    View(view::ViewCommand),
    Prepare(prepare::PrepareCommand),
    Run(run::RunCommand),
    Check(check::CheckCommand),
    Verify(verify::VerifyCommand),
    Explain(explain::ExplainCommand),
    Compare(compare::CompareCommand),
    Test(test::TestCommand),
    Bench(bench::BenchCommand),
    Profile(profile::ProfileCommand),
    Tune(tune::TuneCommand),
    Devices(devices::DevicesCommand),
    Doctor(doctor::DoctorCommand),
    Ops(ops::OpsCommand),
    Demo(demo::DemoCommand),
}

impl Command {
    fn run(&self, vectors: &VectorWidth) -> Result<Outcome> {
        match self {
            Command::Import(command) => command.run(),
            Command::Show(command) => command.run(),
            Command::View(command) => command.run(),
            Command::Prepare(command) => command.run(),
            Command::Run(command) => command.run(),
            Command::Test(command) => command.run(),
            Command::Check(command) => command.run(),
            Command::Verify(command) => command.run(),
            Command::Explain(command) => command.run(),
            Command::Compare(command) => command.run(),
            Command::Bench(command) => command.run(),
            Command::Profile(command) => command.run(),
            Command::Tune(command) => command.run(),
            Command::Devices(command) => command.run(vectors),
            Command::Doctor(command) => command.run(),
            Command::Ops(command) => command.run(),
            Command::Demo(command) => command.run(),
        }
    }

    /// The limits of a command that imports or runs models. Each case of `test` and each check of
    /// `doctor` has a time limit of its own.
    fn limits(&self) -> Option<&RunLimitOptions> {
        match self {
            Command::Import(command) => Some(&command.limits),
            Command::Show(command) => Some(&command.limits),
            Command::View(command) => Some(&command.limits),
            Command::Prepare(command) => Some(&command.limits),
            Command::Run(command) => Some(&command.model.limits),
            Command::Check(command) => Some(&command.limits),
            Command::Verify(command) => Some(&command.limits),
            Command::Compare(command) => Some(&command.model.limits),
            Command::Bench(command) => Some(&command.model.limits),
            Command::Profile(command) => Some(&command.model.limits),
            Command::Tune(command) => Some(&command.model.limits),
            Command::Test(_)
            | Command::Explain(_)
            | Command::Devices(_)
            | Command::Doctor(_)
            | Command::Ops(_)
            | Command::Demo(_) => None,
        }
    }
}

/// Answer of a command that ran to its end.
pub(crate) enum Outcome {
    /// Exit code 0.
    Success,
    /// Exit code 1.
    Failure,
}

/// Exit code of errors other than wrong usage.
const ERROR_CODE: u8 = 3;

/// Runs the command in the process's arguments.
pub fn main() -> ExitCode {
    // Both calls change the environment: they must precede the first thread and the loading of a driver.
    let vectors = gpu::widen_vectors();
    gpu::silence_mesa();
    let command = match Cli::try_parse() {
        Ok(parsed) => parsed.command,
        Err(message) => return output::parser_message(&message).unwrap_or_else(failed),
    };
    let run = || command.run(&vectors);
    let outcome = match command.limits() {
        Some(limits) => limits.apply(run),
        None => run(),
    };
    // An error of the command says more than one of its output.
    let printed = output::finish();
    exit_code(outcome.and_then(|outcome| printed.map(|()| outcome)))
}

fn exit_code(outcome: Result<Outcome>) -> ExitCode {
    match outcome {
        Ok(Outcome::Success) => ExitCode::SUCCESS,
        Ok(Outcome::Failure) => ExitCode::from(1),
        Err(error) => failed(error),
    }
}

/// Reports an error; returns its exit code.
fn failed(error: Error) -> ExitCode {
    output::report(&error);
    ExitCode::from(if error.kind() == ErrorKind::Usage {
        2
    } else {
        ERROR_CODE
    })
}

/// Internal error for JSON that could not be serialised or parsed.
pub(crate) fn json_error(error: serde_json::Error) -> Error {
    Error::internal(format!("JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use clap::{Arg, CommandFactory};

    #[test]
    fn options_do_not_clash() {
        super::Cli::command().debug_assert();
    }

    /// Commands that read no model or tensors: a new command is either here, or has the options for files.
    const WITHOUT_FILES: [&str; 5] = ["explain", "devices", "doctor", "ops", "demo"];

    #[test]
    fn commands_that_read_files_have_limits() {
        let cli = super::Cli::command();
        for command in cli.get_subcommands() {
            let options: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
            let reads_files = !WITHOUT_FILES.contains(&command.get_name());
            for option in ["limit", "mmap", "timeout"] {
                // Each check of `doctor` has a time limit.
                let is_wanted =
                    reads_files || (command.get_name() == "doctor" && option == "timeout");
                let has_option = options.contains(&option);
                assert_eq!(has_option, is_wanted, "{} --{option}", command.get_name());
            }
        }
    }
}
