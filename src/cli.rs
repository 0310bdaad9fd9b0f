//! The command line. Exit codes: 0 = done, 1 = failed, 2 = wrong usage or configuration.

pub mod check;
mod dead;
pub mod exit;
mod lane;
pub mod out;
mod remote;
mod run;
pub mod screen;
pub mod signals;
pub mod status;
pub mod table;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Keeps systems in step with compacted Kafka topics, through WebAssembly plugins.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The whole thing in one process, on an embedded broker.
    Demo(crate::demo::DemoArgs),
    /// Run the gateway.
    Run(run::RunArgs),
    /// Find every error of a configuration without running it.
    Check(check::CheckArgs),
    /// Print the JSON Schema of the configuration.
    Schema,
    /// Show the lanes of a running gateway.
    Status(status::StatusArgs),
    /// Open a lane that halted anew, at its checkpoint.
    Resume(lane::LaneArgs),
    /// Let a lane go on without the record that halted it, which becomes a dead letter.
    Skip(lane::LaneArgs),
    /// Look into the dead letters of a lane.
    #[command(subcommand)]
    Dead(dead::DeadCommand),
    /// Read a route's topic again, and compare its tables with what it says.
    Verify(verify::VerifyArgs),
    /// Bring a table in step with its topic again, whatever it holds.
    Reset(lane::ResetArgs),
}

/// What was asked for was not done, or not wholly.
pub const FAILED: u8 = 1;

/// Something was done wrong by whoever called: usage or configuration.
pub const USAGE: u8 = 2;

pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => crate::demo::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Schema => schema(),
        Command::Status(args) => status::run(&args),
        Command::Resume(args) => lane::resume(&args),
        Command::Skip(args) => lane::skip(&args),
        Command::Dead(command) => dead::run(&command),
        Command::Verify(args) => verify::run(&args),
        Command::Reset(args) => lane::reset(&args),
    };
    result.unwrap_or_else(|error| {
        out::complain(format_args!("error: {error:#}\n"));
        ExitCode::from(FAILED)
    })
}

/// How a command prints data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

fn schema() -> anyhow::Result<ExitCode> {
    out::print(format_args!("{}\n", serde_json::to_string_pretty(&crate::config::schema())?))?;
    Ok(ExitCode::SUCCESS)
}
