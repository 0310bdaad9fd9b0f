//! What the operator writes, and how it becomes a [`KeyCheck`].

use regex_lite::Regex;
use schemars::JsonSchema;
use serde::Deserialize;
use tidegate_plugin::ConfigError;

use crate::check::KeyCheck;

/// The configuration of `key-check`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What is done to a key before it is checked, in this order.
    #[serde(default)]
    normalise: Vec<Normalise>,
    /// What a key is.
    #[serde(default)]
    format: Format,
    /// A regular expression that has to match the whole key.
    pattern: Option<String>,
    /// The fewest bytes of a key.
    #[serde(default)]
    min_length: usize,
    /// The most bytes of a key; none by default.
    max_length: Option<usize>,
    /// What happens to records without a key.
    #[serde(default)]
    null_key: NullKey,
}

/// A step towards a key's normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Normalise {
    /// White space at both ends goes away.
    Trim,
    /// Letters become lower-case.
    Lowercase,
    /// A UUID in braces, as a URN or without hyphens is written with hyphens in lower-case; what is no UUID is rejected.
    Uuid,
}

/// What a key is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// Any bytes.
    #[default]
    Bytes,
    /// UTF-8.
    Utf8,
    /// A UUID with hyphens, in upper- or lower-case.
    Uuid,
}

/// What happens to records without a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NullKey {
    /// They are rejected.
    #[default]
    Reject,
    /// They go on.
    Pass,
    /// They are dropped.
    Drop,
}

impl Config {
    /// The check that the configuration describes.
    pub(crate) fn check(self) -> Result<KeyCheck, ConfigError> {
        let max_length = self.max_length.unwrap_or(usize::MAX);
        if max_length < self.min_length {
            let message = format_args!("is {max_length}, less than `min_length`, which is {}", self.min_length);
            return Err(ConfigError::at("max_length", message));
        }
        Ok(KeyCheck {
            normalise: self.normalise,
            format: self.format,
            pattern: self.pattern.as_deref().map(whole).transpose()?,
            min_length: self.min_length,
            max_length,
            null_key: self.null_key,
        })
    }
}

/// A pattern that matches as a whole. It is tried by itself first, so that `)(` is an error and not two groups.
fn whole(pattern: &str) -> Result<Regex, ConfigError> {
    Regex::new(pattern)
        .and_then(|_| Regex::new(&format!(r"\A(?:{pattern})\z")))
        .map_err(|error| ConfigError::at("pattern", format_args!("`{pattern}` is no regular expression: {error}")))
}
