//! `tidegate check`: everything that `run` would meet in the configuration, found without running.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use super::{Output, USAGE, out};
use crate::config::{self, Config, Errors, KeyPath, Loaded, Method, Route, SinkKind};
use crate::gateway::Plan;
use crate::plugin::{Chain, ChainError, Engine, EngineSettings, LoadError};
use crate::source::kafka;

/// What a guest can address: 4 GiB.
const MAX_GUEST_MEMORY: usize = 1 << 32;

#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// The configuration.
    #[arg(short, long, value_name = "FILE", default_value = "tidegate.yaml")]
    config: PathBuf,
    /// How to print errors
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let file = args.config.display();
    let plan = match load(&args.config) {
        Ok(plan) => plan,
        Err(errors) => {
            match args.output {
                Output::Text => out::complain(&errors),
                Output::Json => out::print(format_args!("{}\n", serde_json::to_string_pretty(&errors)?))?,
            }
            return Ok(ExitCode::from(USAGE));
        }
    };
    match args.output {
        Output::Json => out::print("[]\n")?,
        Output::Text => {
            let lanes = plan.config.routes.iter().map(|route| route.sinks.len()).sum();
            let routes = plan.config.routes.len();
            let (routes, lanes) = (count(routes, "route"), count(lanes, "lane"));
            out::print(format_args!("`{file}` is valid: {routes}, {lanes}\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Reads a configuration and loads its plugins: what a gateway starts from.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn load(path: &Path) -> Result<Plan, Errors> {
    let Loaded { config, document } = match read(path, &|_| None) {
        Ok(loaded) => loaded,
        // The chains of a broken configuration cannot be loaded, but each plugin can still say what it thinks of its use.
        Err(errors) => return Err(ask_plugins(path).unwrap_or(errors)),
    };
    let mut errors = Errors::new(document);
    let engine = match Engine::try_new(engine_settings(&config)) {
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

fn read(path: &Path, plugin: &config::CheckPlugin) -> Result<Loaded, Errors> {
    let properties =
        |properties: &_| kafka::validate(properties).into_iter().map(|error| (error.property, error.message)).collect();
    config::load(path, &properties, plugin)
}

/// What is wrong with a configuration, with what its plugins say of it. `None` where they cannot be asked.
fn ask_plugins(path: &Path) -> Option<Errors> {
    let settings = EngineSettings { cache_dir: None, max_instances: 0, max_memory: MAX_GUEST_MEMORY };
    let engine = Engine::try_new(settings).ok()?;
    read(path, &move |plugin| {
        let asked = engine.load(plugin).and_then(|loaded| loaded.configure(&plugin.config).map(drop));
        match asked.err()? {
            // Said already.
            LoadError::Read { .. } | LoadError::Digest { .. } => None,
            error => Some((matches!(error, LoadError::Config(_)), error.to_string())),
        }
    })
    .err()
}

/// Room for each worker of each lane to have one instance of each plugin of its chain.
fn engine_settings(config: &Config) -> EngineSettings {
    let instances = |route: &Arc<Route>| route.plugins.len() * route.sinks.len() * route.workers.get();
    let memory = config.routes.iter().flat_map(|route| &route.plugins).map(|plugin| plugin.limits.memory).max();
    EngineSettings {
        // What is compiled here is kept for the run, unless there is no data directory yet: `check` makes none.
        cache_dir: config.data_dir.exists().then(|| config.data_dir.join("compiled")),
        max_instances: config.routes.iter().map(instances).sum(),
        max_memory: memory.unwrap_or(0),
    }
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
