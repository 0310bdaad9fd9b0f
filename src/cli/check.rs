//! `tidegate check`: everything that `run` would meet in the configuration, found without running.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use super::{Output, USAGE, out};
use crate::config::{self, Config, Errors, KeyPath, Loaded, PluginError, PluginUse, Route, Segment};
use crate::gateway::Plan;
use crate::plugin::{Chain, ConfigProblem, Engine, EngineSettings, LoadError};
use crate::sink;
use crate::source::kafka;

/// What a guest can address: 4 GiB.
const MAX_GUEST_MEMORY: usize = 1 << 32;
/// What guests' memories are counted in.
const WASM_PAGE: usize = 64 << 10;
/// A plugin that does not start with so much is not told how much it needs: a guest may take all that it is given.
const MOST_MEMORY_TRIED: usize = 256 << 20;
/// Where a plugin that may change keys could not be told again, beside its sink.
const FORMER_KEY: &str = "the route's plugins may change keys, and one of its sinks cannot remove what a record had under \
                          its former key";

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
    // What is wrong is told by asking each plugin by itself: the chains of a broken configuration cannot be loaded, and one
    // that is not may still have plugins which refuse their use.
    let Loaded { config, document } =
        read(path, &|_| Ok(false)).map_err(|errors| ask_plugins(path).unwrap_or(errors))?;
    start(config).map_err(|wrong| {
        ask_plugins(path).unwrap_or_else(|| {
            let mut errors = Errors::new(document);
            wrong.iter().for_each(|(place, message)| errors.push(place, message, ""));
            errors
        })
    })
}

/// Loads the chains of a valid configuration. Failing, it says where and why, in short: [`ask_plugins`] knows more.
fn start(config: Config) -> Result<Plan, Vec<(KeyPath, String)>> {
    let root = KeyPath::root().key("routes");
    let engine = Engine::try_new(engine_settings(&config)).map_err(|error| vec![(root.clone(), error.to_string())])?;
    let (mut chains, mut wrong) = (Vec::new(), Vec::new());
    for route in &config.routes {
        let path = root.key(&route.name);
        for sink in &route.sinks {
            // Their form was checked: what is left is whether certificates and keys can be used.
            if let Err(error) = sink::check(&sink.kind) {
                wrong.push((path.key("sinks").key(&sink.name).key("tls"), format!("{error:#}")));
            }
        }
        match Chain::load(&engine, &route.keys, &route.plugins) {
            Ok(chain) if chain.changes_keys() && route.sinks.iter().any(|sink| sink.keeps_no_former_key()) => {
                wrong.push((path, FORMER_KEY.to_owned()));
            }
            Ok(chain) => chains.push(Arc::new(chain)),
            Err(errors) => wrong.extend(errors.iter().map(|error| (path.clone(), error.to_string()))),
        }
    }
    if wrong.is_empty() { Ok(Plan { config, chains }) } else { Err(wrong) }
}

fn read(path: &Path, plugin: &config::CheckPlugin<'_>) -> Result<Loaded, Errors> {
    config::load(path, &kafka::validate, plugin)
}

/// What is wrong with a configuration, with what its plugins say of it. `None` where they cannot be asked, or say nothing.
fn ask_plugins(path: &Path) -> Option<Errors> {
    let settings = EngineSettings { cache_dir: None, max_instances: 0, max_memory: MAX_GUEST_MEMORY };
    let engine = Engine::try_new(settings).ok()?;
    // What is compiled is shared as long as somebody has it: a plugin is used by many routes.
    let compiled = RefCell::new(Vec::new());
    read(path, &|plugin| {
        let tried = engine.load(plugin).and_then(|loaded| {
            let setup = loaded.configure(&plugin.config);
            compiled.borrow_mut().push(loaded);
            setup
        });
        match tried {
            Ok(setup) => Ok(setup.changes_keys),
            // Said already.
            Err(LoadError::Read { .. } | LoadError::Digest { .. }) => Ok(false),
            Err(error) => Err(in_words(error, &engine, plugin)),
        }
    })
    .err()
}

/// What is wrong with one use of a plugin, each at its place in the use.
fn in_words(error: LoadError, engine: &Engine, plugin: &PluginUse) -> Vec<PluginError> {
    let at = |key: &str| KeyPath::root().key(key);
    match error {
        LoadError::Config(problems) => {
            let of_config = |ConfigProblem { path, message, known }| {
                let help = match path.segments().last() {
                    Some(Segment::Key(key)) if !known.is_empty() => config::suggest(key, &known),
                    _ => String::new(),
                };
                PluginError { path: at("config").below(&path), message, help }
            };
            problems.into_iter().map(of_config).collect()
        }
        LoadError::Memory(_) => {
            let path = at("limits").key("memory");
            let help = least_memory(engine, plugin).map_or_else(String::new, |least| {
                let least = config::format_size(least as u64);
                format!("accepted: at least `{least}`, with which it starts; records need some beside")
            });
            let given = config::format_size(plugin.limits.memory as u64);
            vec![PluginError { path, message: format!("it cannot start with `{given}` of memory"), help }]
        }
        error => vec![PluginError { path: at("use"), message: error.to_string(), help: String::new() }],
    }
}

/// The least memory with which the plugin starts and takes its configuration, if there is any.
fn least_memory(engine: &Engine, plugin: &PluginUse) -> Option<usize> {
    let starts = |pages: usize| {
        let mut plugin = plugin.clone();
        plugin.limits.memory = pages * WASM_PAGE;
        let tried = engine.load(&plugin).and_then(|loaded| loaded.configure(&plugin.config));
        !matches!(tried, Err(LoadError::Memory(_)))
    };
    let mut enough = (plugin.limits.memory / WASM_PAGE).max(1);
    while !starts(enough) {
        enough = enough.checked_mul(2).filter(|pages| pages * WASM_PAGE <= MOST_MEMORY_TRIED)?;
    }
    let mut too_few = enough / 2;
    while enough - too_few > 1 {
        let middle = too_few.midpoint(enough);
        if starts(middle) { enough = middle } else { too_few = middle }
    }
    Some(enough * WASM_PAGE)
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
