//! From a file to a plugin: what is refused, and why.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use regex::Regex;
use sha2::{Digest, Sha256};
use wasmtime::component::{Component, InstancePre};

use super::contract::{self, PROCESSOR, Setup};
use super::engine::{Engine, MAX_MEMORIES, MAX_TABLES};
use super::host::{Counters, Host};
use super::instance::{Fault, Guest, Instance, OpenError};
use super::output::{Speaker, short};
use super::problem::{ConfigProblem, check_schema, refusal};
use crate::config::{ComponentSource, KeyPath, Limits, PluginUse, Segment};
use crate::metrics::ErrorKind;

/// The largest file that is accepted: componentised Python is 18 MB.
pub const MAX_COMPONENT_BYTES: usize = 50 << 20;

/// What is kept of a plugin's name, version and summary, in bytes.
const MAX_SUMMARY_BYTES: usize = 300;
const MAX_NAME_BYTES: usize = 64;

/// The largest schema of a configuration that is accepted.
const MAX_SCHEMA_BYTES: usize = 1 << 20;

/// Why a plugin cannot be used. For people; the caller says which plugin.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read `{}`: {error}", .path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("the file is empty; a WebAssembly component is expected")]
    Empty,
    #[error("the file has `{0}` bytes; at most `{MAX_COMPONENT_BYTES}` are accepted")]
    TooLarge(u64),
    #[error("the file's sha256 is `{actual}`, but `{expected}` is configured")]
    Digest { expected: String, actual: String },
    #[error("the file is not WebAssembly; a component is expected, in its binary form")]
    NotWasm,
    #[error(
        "the file is a core module; a component is expected: build for `wasm32-wasip2`, or wrap the module with `wasm-tools component new`"
    )]
    CoreModule,
    #[error("the file is not a valid component: {0}")]
    Invalid(String),
    #[error("the component is of another world: {0}")]
    World(String),
    #[error("the component imports what the gateway does not offer: {}", list(.0))]
    Imports(Vec<String>),
    #[error("the component is too large for an instance: {0}")]
    Size(String),
    #[error("the plugin does not work: {0}")]
    Broken(String),
    /// With its limit of memory the plugin cannot be started or configured.
    #[error("{0}")]
    Memory(String),
    #[error("the plugin describes itself wrongly: {0}")]
    Description(String),
    #[error("the configuration is wrong: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Config(Vec<ConfigProblem>),
    #[error("the key format is wrong: {0}")]
    KeyFormat(regex::Error),
}

/// A component that was found good, ready to be instantiated.
pub struct Compiled {
    pub pre: InstancePre<Host>,
}

/// A plugin that described itself.
#[derive(Clone)]
pub struct Plugin {
    pub name: String,
    pub version: String,
    pub summary: String,
    /// JSON Schema of the configuration; empty = none.
    pub config_schema: String,
    /// The sha256 of the component, in lower-case hex.
    pub digest: String,
    compiled: Arc<Compiled>,
    engine: Engine,
    limits: Limits,
}

impl Engine {
    /// Loads a component and asks it who it is.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(&self, plugin: &PluginUse) -> Result<Plugin, LoadError> {
        let read;
        let bytes = match &plugin.component {
            ComponentSource::Standard(bytes) => *bytes,
            ComponentSource::File(path) => {
                read = read_file(path)?;
                read.as_slice()
            }
        };
        check_kind(bytes)?;
        let digest = format!("{:x}", Sha256::digest(bytes));
        if let Some(expected) = plugin.sha256.as_ref().filter(|expected| **expected != digest) {
            return Err(LoadError::Digest { expected: expected.clone(), actual: digest });
        }
        if plugin.limits.memory > self.max_memory() {
            let (wanted, max) = (plugin.limits.memory, self.max_memory());
            return Err(LoadError::Size(format!(
                "its memory limit is `{wanted}` bytes, but the gateway was started for at most `{max}`"
            )));
        }
        let compiled = self.shared(&digest, || compile(self, bytes, &digest))?;
        let description = describe(self, &compiled, plugin)?;
        let contract::Description { name, version, summary, config_schema } = description;
        let (engine, limits) = (self.clone(), plugin.limits);
        Ok(Plugin { name, version, summary, config_schema, digest, compiled, engine, limits })
    }
}

impl Plugin {
    /// Tries a configuration: against the plugin's schema, then on the plugin itself.
    ///
    /// # Errors
    /// [`LoadError::Config`] with each problem and where it is, or why the plugin cannot take any configuration.
    pub fn configure(&self, config: &str) -> Result<Setup, LoadError> {
        match check_schema(&self.config_schema, config) {
            Ok(()) => self.try_init(config),
            Err(LoadError::Config(mut problems)) => {
                problems.extend(self.more_problems(config, &problems));
                Err(LoadError::Config(problems))
            }
            Err(error) => Err(error),
        }
    }

    /// What the plugin says against the values that its schema has nothing against. The others are left out, of which it
    /// would say again what was said.
    fn more_problems(&self, config: &str, problems: &[ConfigProblem]) -> Option<ConfigProblem> {
        let mut config: serde_json::Value = serde_json::from_str(config).ok()?;
        for problem in problems {
            let (parent, Some(Segment::Key(key))) = (problem.path.parent()?, problem.path.segments().last()) else {
                // Without it the places of those after it would not be theirs.
                return None;
            };
            parent.find_mut(&mut config)?.as_object_mut()?.shift_remove(key);
        }
        let Err(LoadError::Config(more)) = self.try_init(&config.to_string()) else { return None };
        // What it misses may be what was left out.
        let is_there = |more: &ConfigProblem| {
            !more.path.segments().is_empty()
                && more.path.find(&config).is_some()
                && !problems.iter().any(|problem| problem.path.starts_with(&more.path))
        };
        more.into_iter().find(is_there)
    }

    fn try_init(&self, config: &str) -> Result<Setup, LoadError> {
        let _spare = self.engine.spare();
        let speaker = Speaker { route: "check".into(), plugin: self.name.as_str().into() };
        match self.open(speaker, config, Counters::default()) {
            Ok(instance) => Ok(instance.setup),
            Err(OpenError::Config(reason)) => Err(LoadError::Config(vec![refusal(&reason, config)])),
            Err(error) => Err(error.into()),
        }
    }

    /// A new instance. The caller has room for it.
    pub(super) fn open(&self, speaker: Speaker, config: &str, counters: Counters) -> Result<Instance, OpenError> {
        Guest::new(&self.compiled.pre, speaker, self.limits, counters)?.init(config)
    }
}

impl From<OpenError> for LoadError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::World(reason) => Self::World(reason),
            OpenError::Config(message) => {
                Self::Config(vec![ConfigProblem { path: KeyPath::root(), message, known: Vec::new() }])
            }
            OpenError::Failed(Fault { kind: ErrorKind::PluginMemory, cause }) => Self::Memory(cause),
            OpenError::Failed(Fault { cause, .. }) => Self::Broken(cause),
        }
    }
}

fn read_file(path: &PathBuf) -> Result<Vec<u8>, LoadError> {
    let failed = |error| LoadError::Read { path: path.clone(), error };
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > MAX_COMPONENT_BYTES as u64 {
        return Err(LoadError::TooLarge(length));
    }
    fs::read(path).map_err(failed)
}

/// Tells apart what people upload by mistake, by the first eight bytes.
fn check_kind(bytes: &[u8]) -> Result<(), LoadError> {
    match bytes {
        [] => Err(LoadError::Empty),
        [b'\0', b'a', b's', b'm', 1, 0, 0, 0, ..] => Err(LoadError::CoreModule),
        [b'\0', b'a', b's', b'm', ..] => Ok(()),
        _ => Err(LoadError::NotWasm),
    }
}

fn compile(engine: &Engine, bytes: &[u8], digest: &str) -> Result<Compiled, LoadError> {
    let wasmtime = engine.wasmtime();
    let cached = engine.cache().and_then(|cache| cache.load(wasmtime, digest));
    let component = match cached {
        Some(component) => component,
        None => {
            let component = Component::from_binary(wasmtime, bytes)
                .map_err(|error| LoadError::Invalid(short(&format!("{error:#}"), MAX_SUMMARY_BYTES)))?;
            if let Some(cache) = engine.cache() {
                cache.store(&component, digest);
            }
            component
        }
    };
    check_world(engine, &component)?;
    check_size(&component)?;
    let pre = engine.linker().instantiate_pre(&component).map_err(|error| LoadError::World(format!("{error:#}")))?;
    Ok(Compiled { pre })
}

/// Names what is wrong before the linker stops at the first thing that it does not know.
fn check_world(engine: &Engine, component: &Component) -> Result<(), LoadError> {
    let ty = component.component_type();
    if component.get_export_index(None, PROCESSOR).is_none() {
        let exports: Vec<String> = ty.exports(engine.wasmtime()).map(|(name, _)| name.to_owned()).collect();
        let has = if exports.is_empty() { "nothing".to_owned() } else { list(&exports) };
        return Err(LoadError::World(format!("it exports {has}; an export `{PROCESSOR}` is expected")));
    }
    let unknown = |name: &str| !name.starts_with("wasi:") && !name.starts_with("tidegate:plugin/");
    let imports = ty.imports(engine.wasmtime()).map(|(name, _)| name.to_owned());
    let unknown: Vec<String> = imports.filter(|name| unknown(name)).collect();
    if unknown.is_empty() { Ok(()) } else { Err(LoadError::Imports(unknown)) }
}

fn check_size(component: &Component) -> Result<(), LoadError> {
    let Some(needed) = component.resources_required() else {
        return Err(LoadError::Size("it brings modules of its own that are not known beforehand".to_owned()));
    };
    for (what, needed, max) in
        [("memories", needed.num_memories, MAX_MEMORIES), ("tables", needed.num_tables, MAX_TABLES)]
    {
        if needed > max {
            return Err(LoadError::Size(format!("it needs `{needed}` {what}; at most `{max}` are accepted")));
        }
    }
    Ok(())
}

fn describe(engine: &Engine, compiled: &Compiled, plugin: &PluginUse) -> Result<contract::Description, LoadError> {
    let _spare = engine.spare();
    let speaker = Speaker { route: "load".into(), plugin: plugin.name.clone() };
    let guest = Guest::new(&compiled.pre, speaker, plugin.limits, Counters::default())?;
    let mut description = guest.describe()?;
    check_description(&description)?;
    description.summary = short(&description.summary, MAX_SUMMARY_BYTES);
    Ok(description)
}

fn check_description(description: &contract::Description) -> Result<(), LoadError> {
    static NAME: LazyLock<Regex> =
        LazyLock::new(|| Regex::new("^[a-z][a-z0-9]*(-[a-z0-9]+)*$").expect("a fixed expression"));
    static VERSION: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$").expect("a fixed expression")
    });
    let contract::Description { name, version, config_schema, .. } = description;
    if name.len() > MAX_NAME_BYTES || !NAME.is_match(name) {
        let name = short(name, MAX_NAME_BYTES);
        return Err(LoadError::Description(format!(
            "the name `{name}` is not made of lower-case words joined by hyphens, such as `mask-fields`"
        )));
    }
    if version.len() > MAX_NAME_BYTES || !VERSION.is_match(version) {
        let version = short(version, MAX_NAME_BYTES);
        return Err(LoadError::Description(format!("the version `{version}` is not a semantic one, such as `1.2.0`")));
    }
    validator(config_schema).map(drop)
}

/// The validator of a plugin's configuration; `None` = it has no schema.
pub(super) fn validator(schema: &str) -> Result<Option<jsonschema::Validator>, LoadError> {
    if schema.is_empty() {
        return Ok(None);
    }
    if schema.len() > MAX_SCHEMA_BYTES {
        return Err(LoadError::Description(format!("the schema has more than `{MAX_SCHEMA_BYTES}` bytes")));
    }
    let wrong = |error: String| {
        LoadError::Description(format!("the schema of its configuration is none: {}", short(&error, MAX_SUMMARY_BYTES)))
    };
    let schema: serde_json::Value = serde_json::from_str(schema).map_err(|error| wrong(error.to_string()))?;
    jsonschema::validator_for(&schema).map(Some).map_err(|error| wrong(error.to_string()))
}

fn list(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{}`", short(name, 100))).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(name: &str, version: &str, schema: &str) -> contract::Description {
        let summary = String::new();
        contract::Description { name: name.into(), version: version.into(), summary, config_schema: schema.into() }
    }

    #[test]
    fn descriptions() {
        for (name, version, schema) in [("mask-fields", "1.2.0", ""), ("a1", "0.1.0-rc.1+b", r#"{"type": "object"}"#)] {
            check_description(&description(name, version, schema)).expect(name);
        }
        for (name, version, schema, about) in [
            ("Mask", "1.0.0", "", "name"),
            ("", "1.0.0", "", "name"),
            ("a\nb", "1.0.0", "", "name"),
            ("a", "1", "", "version"),
            ("a", "1.0.0\n", "", "version"),
            ("a", "1.0.0", "{", "schema"),
            ("a", "1.0.0", r#"{"type": 7}"#, "schema"),
        ] {
            let error = check_description(&description(name, version, schema)).expect_err(about).to_string();
            assert!(error.contains(about), "{error}");
        }
    }
}
