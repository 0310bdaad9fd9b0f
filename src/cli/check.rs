//! `tidegate check`: everything that `run` would meet in the configuration, found without running.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::USAGE;
use crate::config::{self, Config, Errors, Source};
use crate::gateway;
use crate::plugin::{Chain, Engine};
use crate::sink;
use crate::source::kafka;

#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// The configuration.
    #[arg(short, long, default_value = "tidegate.yaml")]
    config: PathBuf,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    #[default]
    Text,
    Json,
}
