//! Masks, hashes, drops or renames fields of JSON values. `README.md` describes the options.

mod config;
mod edit;
mod rule;
#[cfg(test)]
mod tests;

use tidegate_plugin::{ConfigError, Decided, Plugin, Record, Setup, Verdict, Wants};

use crate::config::Config;
use crate::rule::Rules;

/// The plugin.
pub struct MaskFields {
    rules: Rules,
    /// The changed value, kept so that its memory is used again.
    changed: Vec<u8>,
}

impl Plugin for MaskFields {
    type Config = Config;

    fn new(config: Config) -> Result<Self, ConfigError> {
        Ok(Self { rules: config.check()?, changed: Vec::new() })
    }

    fn setup(&self) -> Setup {
        Setup { wants: Wants::VALUES, ..Setup::default() }
    }

    fn process(&mut self, record: Record<'_>, verdict: Verdict<'_>) -> Decided {
        let Some(value) = record.value() else {
            return verdict.keep();
        };
        match edit::apply(&self.rules, value, &mut self.changed) {
            Ok(false) => verdict.keep(),
            Ok(true) => verdict.set_value(&self.changed),
            Err(refused) => verdict.reject(refused),
        }
    }
}

tidegate_plugin::export!(MaskFields);
