//! Keeps or drops records by conditions. `README.md` describes the options.

mod condition;
mod config;
mod number;
mod test;
#[cfg(test)]
mod tests;

use tidegate_plugin::{ConfigError, Decided, Plugin, Record, Setup, Verdict, Wants};

use crate::condition::{Facts, Filter};
use crate::config::{Config, NotJson, Tombstones};

impl Plugin for Filter {
    type Config = Config;

    fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()
    }

    fn setup(&self) -> Setup {
        let mut wants = Wants::empty();
        wants.set(Wants::KEYS, self.condition.needs_key());
        wants.set(Wants::HEADERS, self.condition.needs_headers());
        // Whether a record is a tombstone is known from its value only.
        wants.set(Wants::VALUES, !self.fields.is_empty() || self.tombstones != Tombstones::Test);
        Setup { wants, ..Setup::default() }
    }

    fn process(&mut self, record: Record<'_>, verdict: Verdict<'_>) -> Decided {
        if self.tombstones != Tombstones::Test && record.value().is_none() {
            return match self.tombstones {
                Tombstones::Pass | Tombstones::Test => verdict.keep(),
                Tombstones::Drop => verdict.drop(),
                Tombstones::Reject => verdict.reject("record is a tombstone"),
            };
        }
        match self.condition.holds(&mut Facts::of(&record, &self.paths, &self.fields)) {
            Ok(holds) if holds == self.keeps => verdict.keep(),
            Ok(_) => verdict.drop(),
            Err(malformed) => match self.not_json {
                NotJson::Reject => verdict.reject(format_args!("value is {malformed}")),
                NotJson::Keep => verdict.keep(),
                NotJson::Drop => verdict.drop(),
            },
        }
    }
}

tidegate_plugin::export!(Filter);
