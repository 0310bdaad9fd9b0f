fn main() -> std::process::ExitCode {
    tidegate::cli::main()
}
