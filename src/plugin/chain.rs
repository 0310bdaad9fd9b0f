//! A route's key policy and plugins, loaded and configured.

use std::sync::Arc;

use super::component::{LoadError, Plugin};
use super::contract::Setup;
use super::engine::{Engine, NoRoom};
use super::host::Counters;
use super::instance::{Instance, OpenError};
use super::keys::Policy;
use super::output::Speaker;
use super::rows::Author;
use super::runner::Runner;
use crate::config::{Keys, Limits, PluginUse};
use crate::delivery::Stage;
use crate::metrics::LaneMetrics;
use crate::stop::Stop;

/// What every lane of a route runs. Clones share it.
#[derive(Clone)]
pub struct Chain {
    engine: Engine,
    keys: Arc<Policy>,
    links: Arc<[Arc<Link>]>,
}

/// A plugin of a chain, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginDescription {
    /// As the route writes it: `mask`, `std/mask-fields`.
    pub used_as: Arc<str>,
    pub name: String,
    pub version: String,
    pub summary: String,
    /// The sha256 of the component, in lower-case hex.
    pub digest: String,
    pub changes_keys: bool,
}

/// What is wrong with a chain, and where.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    #[error("{0}")]
    Keys(LoadError),
    #[error("plugin `{name}`: {error}")]
    Plugin {
        /// In the chain, from 0.
        index: usize,
        /// As the route writes it.
        name: Arc<str>,
        error: LoadError,
    },
}

/// What a runner is given by its lane.
#[derive(Clone)]
pub struct RunnerContext {
    pub route: String,
    pub sink: String,
    pub metrics: LaneMetrics,
    /// Looked at between two calls of plugins: a runner stalls when it is set.
    pub stop: Stop,
}

/// One plugin with its configuration.
pub(super) struct Link {
    plugin: Plugin,
    pub name: Arc<str>,
    config: String,
    pub limits: Limits,
    /// As declared when the chain was loaded: an instance cannot widen it.
    pub setup: Setup,
    pub author: Author,
    counters: Counters,
}

impl Chain {
    /// Loads each plugin and tries its configuration.
    ///
    /// # Errors
    /// Everything that is wrong with the key policy and with each plugin.
    pub fn load(engine: &Engine, keys: &Keys, plugins: &[PluginUse]) -> Result<Self, Vec<ChainError>> {
        let mut errors = Vec::new();
        let keys = Policy::try_new(keys).map_err(|error| errors.push(ChainError::Keys(LoadError::KeyFormat(error))));
        let mut links = Vec::new();
        for (index, plugin) in plugins.iter().enumerate() {
            match Link::load(engine, plugin) {
                Ok(link) => links.push(Arc::new(link)),
                Err(error) => errors.push(ChainError::Plugin { index, name: plugin.name.clone(), error }),
            }
        }
        match keys {
            Ok(keys) if errors.is_empty() => {
                Ok(Self { engine: engine.clone(), keys: Arc::new(keys), links: links.into() })
            }
            _ => Err(errors),
        }
    }

    /// Whether an output's key may differ from its input's.
    pub fn changes_keys(&self) -> bool {
        self.links.iter().any(|link| link.setup.changes_keys)
    }

    /// The plugins, in order.
    pub fn descriptions(&self) -> Vec<PluginDescription> {
        self.links.iter().map(|link| link.describe()).collect()
    }

    /// What one worker of one lane runs. Instances are made when the first delivery comes.
    ///
    /// # Errors
    /// If the engine was not given room for as many instances.
    pub fn open(&self, context: RunnerContext) -> Result<Runner, NoRoom> {
        let slots = self.engine.reserve(self.links.len())?;
        Ok(Runner::new(self.keys.clone(), &self.links, context, slots))
    }
}

impl Link {
    fn load(engine: &Engine, used: &PluginUse) -> Result<Self, LoadError> {
        let plugin = engine.load(used)?;
        let setup = plugin.configure(&used.config)?;
        let stage = Stage::Plugin { name: used.name.clone(), version: plugin.version.as_str().into() };
        Ok(Self {
            plugin,
            name: used.name.clone(),
            config: used.config.clone(),
            limits: used.limits,
            setup,
            author: Author { stage, policy: used.on_error },
            counters: Counters::default(),
        })
    }

    /// A new instance. The runner has room for it.
    pub fn open(&self, route: &str) -> Result<Instance, OpenError> {
        let speaker = Speaker { route: route.into(), plugin: self.name.clone() };
        self.plugin.open(speaker, &self.config, self.counters.clone())
    }

    fn describe(&self) -> PluginDescription {
        let Plugin { name, version, summary, digest, .. } = self.plugin.clone();
        let changes_keys = self.setup.changes_keys;
        PluginDescription { used_as: self.name.clone(), name, version, summary, digest, changes_keys }
    }
}
