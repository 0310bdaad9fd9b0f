//! Rejects records whose key is not as agreed, or normalises the key. `README.md` describes the options.

mod check;
mod config;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use tidegate_plugin::{ConfigError, Decided, Output, Plugin, Record, Setup, Verdict, Wants};

use crate::check::KeyCheck;
use crate::config::{Config, NullKey};

impl Plugin for KeyCheck {
    type Config = Config;

    fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()
    }

    fn setup(&self) -> Setup {
        Setup { wants: Wants::KEYS, changes_keys: !self.normalise.is_empty(), ..Setup::default() }
    }

    fn process(&mut self, record: Record<'_>, verdict: Verdict<'_>) -> Decided {
        let Some(key) = record.key() else {
            return match self.null_key {
                NullKey::Reject => verdict.reject("key is null"),
                NullKey::Pass => verdict.keep(),
                NullKey::Drop => verdict.drop(),
            };
        };
        match self.check(key) {
            Ok(Cow::Owned(normal)) if normal.as_slice() != key => {
                verdict.replace(Output::unchanged().with_key(Some(&normal)))
            }
            Ok(_) => verdict.keep(),
            Err(wrong) => verdict.reject(wrong),
        }
    }
}

tidegate_plugin::export!(KeyCheck);
