//! A plugin's configuration: from JSON into the plugin's own type, with errors that name the place.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::schema;

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    path: String,
    message: String,
}

impl ConfigError {
    /// An error of the configuration as a whole.
    pub fn new(message: impl fmt::Display) -> Self {
        Self::at("", message)
    }

    /// An error at a place such as `fields[2].path`.
    pub fn at(path: impl fmt::Display, message: impl fmt::Display) -> Self {
        Self { path: path.to_string(), message: message.to_string() }
    }

    /// The place; empty = the configuration as a whole.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(out, "{}", self.message)
        } else {
            write!(out, "`{}`: {}", self.path, self.message)
        }
    }
}

/// The configuration of a plugin without options: anything but `{}` is an error.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// The JSON Schema of a configuration, as JSON.
pub fn config_schema<C: JsonSchema>() -> String {
    let mut schema = schemars::schema_for!(C);
    schema::simplify(&mut schema);
    schema.to_value().to_string()
}

/// Reads a configuration. It is parsed into a tree first, since a line and column of the JSON that the gateway made of the
/// operator's YAML would lead nowhere.
pub(crate) fn parse<C: DeserializeOwned>(json: &str) -> Result<C, ConfigError> {
    let tree: serde_json::Value = serde_json::from_str(json)
        .map_err(|error| ConfigError::new(format_args!("configuration is not JSON: {error}")))?;
    serde_path_to_error::deserialize(tree).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { "" } else { &path };
        ConfigError::at(path, error.inner())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its shape matters")]
    struct Config {
        fields: Vec<Field>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its shape matters")]
    struct Field {
        path: String,
    }

    #[track_caller]
    fn check(json: &str, expected: &str) {
        assert_eq!(parse::<Config>(json).unwrap_err().to_string(), expected);
    }

    #[test]
    fn errors_name_the_place() {
        check(
            r#"{"fields": [{"path": "a"}, {"path": 7}]}"#,
            "`fields[1].path`: invalid type: integer `7`, expected a string",
        );
        check(r#"{"fields": [{"path": "a", "paht": "b"}]}"#, "`fields[0].paht`: unknown field `paht`, expected `path`");
        check("{}", "missing field `fields`");
        check("{", "configuration is not JSON: EOF while parsing an object at line 1 column 1");
    }

    #[test]
    fn no_config_refuses_options() {
        assert!(parse::<NoConfig>("{}").is_ok());
        assert!(parse::<NoConfig>(r#"{"a": 1}"#).is_err());
    }

    #[test]
    fn the_schema_describes_the_type() {
        let schema: serde_json::Value = serde_json::from_str(&config_schema::<Config>()).unwrap();
        assert_eq!(schema["required"], serde_json::json!(["fields"]));
        assert_eq!(schema["additionalProperties"], false);
    }
}
