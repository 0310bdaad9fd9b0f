//! The way from the contract's types to a [`Plugin`] and back; the exported functions and the harness both take it.

use crate::bindings::tidegate::plugin::types::{Batch, Description, PluginError, Setup, Verdicts};
use crate::record::Records;
use crate::verdict::Answer;
use crate::{ConfigError, Plugin, config, host};

/// What Cargo knows about the plugin's package.
pub struct Package {
    pub name: &'static str,
    pub version: &'static str,
    pub description: &'static str,
}

/// Who the plugin is.
pub fn describe<P: Plugin>(package: &Package) -> Description {
    Description {
        name: P::NAME.unwrap_or(package.name).into(),
        version: P::VERSION.unwrap_or(package.version).into(),
        summary: P::SUMMARY.unwrap_or(package.description).into(),
        config_schema: config::config_schema::<P::Config>(),
    }
}

/// A configured plugin.
pub struct Instance<P> {
    plugin: P,
}

impl<P: Plugin> Instance<P> {
    /// Makes an instance and says what it needs.
    pub fn start(config: &str) -> Result<(Self, Setup), PluginError> {
        let started = Self::try_start(config);
        host::flush_counts();
        started.map_err(|error| PluginError::Config(error.to_string()))
    }

    pub(crate) fn try_start(config: &str) -> Result<(Self, Setup), ConfigError> {
        let plugin = P::new(config::parse(config)?)?;
        let setup = plugin.setup();
        Ok((Self { plugin }, setup))
    }

    #[cfg(test)]
    pub(crate) fn of(plugin: P) -> Self {
        Self { plugin }
    }

    /// Decides about each record of a batch.
    pub fn process(&mut self, batch: &Batch) -> Result<Verdicts, PluginError> {
        let answer = self.answer(batch);
        host::flush_counts();
        answer
    }

    fn answer(&mut self, batch: &Batch) -> Result<Verdicts, PluginError> {
        let bad_batch = |error| PluginError::Fatal(format!("batch does not add up: {error}"));
        let mut answer = Answer::new(batch.offsets.len(), batch.data.len());
        let mut records = Records::of(batch).map_err(bad_batch)?;
        while let Some(record) = records.next().map_err(bad_batch)? {
            let _decided = self.plugin.process(record, answer.next());
            if let Some(failure) = answer.failure() {
                return Err(failure);
            }
        }
        Ok(answer.finish())
    }
}
