//! The command line; see `onionskin --help`.

fn main() -> std::process::ExitCode {
    onionskin::cli::main()
}
