//! `tidegate check`: everything that `run` would meet in the configuration, found without running.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use super::{Output, USAGE};
use crate::config::{self, Errors, KeyPath, Loaded, Method, Route, SinkKind};
use crate::gateway::Plan;
use crate::plugin::{Chain, ChainError, Engine, EngineSettings, LoadError};
use crate::source::kafka;

#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// The configuration.
    #[arg(short, long, value_name = "FILE", default_value = "tidegate.yaml")]
    config: PathBuf,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let file = args.config.display();
    let plan = match load(&args.config) {
        Ok(plan) => plan,
        Err(errors) => {
            match args.output {
                Output::Text => eprint!("{errors}"),
                Output::Json => println!("{}", serde_json::to_string_pretty(&errors)?),
            }
            return Ok(ExitCode::from(USAGE));
        }
    };
    match args.output {
        Output::Json => println!("[]"),
        Output::Text => {
            let lanes: usize = plan.config.routes.iter().map(|route| route.sinks.len()).sum();
            println!("`{file}` is valid: {} routes, {lanes} lanes", plan.config.routes.len());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a configuration and loads its plugins: what a gateway starts from.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn load(path: &Path) -> Result<Plan, Errors> {
    let Loaded { config, document } = config::load(path, &kafka::check_property)?;
    let mut errors = Errors::new(document);
    let mut settings = EngineSettings::for_config(&config);
    // What is compiled here is kept for the run, unless there is no data directory yet: `check` makes none.
    if !config.data_dir.exists() {
        settings.cache_dir = None;
    }
    let engine = match Engine::try_new(settings) {
        Ok(engine) => engine,
        Err(error) => {
            errors.push(&KeyPath::root().key("routes"), error.to_string(), "");
            return Err(errors);
        }
    };
    let mut chains = Vec::new();
    for route in &config.routes {
        let path = KeyPath::root().key("routes").key(&route.name);
        match Chain::load(&engine, &route.keys, &route.plugins) {
            Ok(chain) => {
                check_keys(route, &chain, &path, &mut errors);
                chains.push(Arc::new(chain));
            }
            Err(failed) => failed.iter().for_each(|error| push(error, &path, &mut errors)),
        }
    }
    errors.into_result(Plan { config, chains })
}

/// A service that holds the latest value per key would keep what a record had under its former key.
fn check_keys(route: &Route, chain: &Chain, path: &KeyPath, errors: &mut Errors) {
    if !chain.changes_keys() {
        return;
    }
    for sink in &route.sinks {
        if matches!(&sink.kind, SinkKind::Http(http) if http.method == Method::Put) {
            errors.push(
                &path.key("sinks").key(&sink.name),
                "the route's plugins may change keys, and this sink cannot remove what a record had under its former key",
                "use `method: POST`, a sink that keeps source keys (`sqlite`), or plugins that leave keys as they are",
            );
        }
    }
}

fn push(error: &ChainError, path: &KeyPath, errors: &mut Errors) {
    let place = match error {
        ChainError::Keys(_) => path.key("source").key("keys").key("format"),
        ChainError::Plugin { index, error: LoadError::Config(_), .. } => {
            path.key("plugins").index(*index).key("config")
        }
        ChainError::Plugin { index, .. } => path.key("plugins").index(*index).key("use"),
    };
    errors.push(&place, error.to_string(), "");
}
