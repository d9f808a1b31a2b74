//! The `onionskin` program; see `onionskin --help`.

fn main() -> std::process::ExitCode {
    onionskin::cli::main()
}
