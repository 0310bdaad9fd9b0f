//! What is wrong with a plugin's configuration, and at which of its keys.

use std::fmt;

use jsonschema::JsonType;
use jsonschema::error::{TypeKind, ValidationErrorKind};

use super::component::{LoadError, validator};
use crate::config::{KeyPath, Segment, nearest};

/// Problems of a configuration that are listed at once.
const MAX_PROBLEMS: usize = 20;

/// One thing that is wrong with a plugin's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// In the configuration; empty = as a whole.
    pub path: KeyPath,
    pub message: String,
    /// The keys that there are, where one is unknown.
    pub known: Vec<String>,
}

impl ConfigProblem {
    /// The place of the key that is probably meant by an unknown one.
    fn meant(&self) -> Option<KeyPath> {
        let Some(Segment::Key(key)) = self.path.segments().last() else { return None };
        Some(self.path.parent()?.key(nearest(key, &self.known)?))
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.segments().is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "`{}`: {}", self.path, self.message)
    }
}

/// Everything that the plugin's own schema says against `config`.
///
/// # Errors
/// [`LoadError::Config`] with that.
pub fn check_schema(schema: &str, config: &str) -> Result<(), LoadError> {
    let config: serde_json::Value = serde_json::from_str(config).map_err(|error| {
        let message = format!("it is not json: {error}");
        LoadError::Config(vec![ConfigProblem { path: KeyPath::root(), message, known: Vec::new() }])
    })?;
    let Some(validator) = validator(schema)? else { return Ok(()) };
    let schema = serde_json::from_str(schema).unwrap_or_default();
    let mut problems: Vec<ConfigProblem> =
        validator.iter_errors(&config).flat_map(|error| problems(&error, &config, &schema)).collect();
    // A key is missing only because it is misspelt, where another one is near.
    let meant: Vec<KeyPath> = problems.iter().filter_map(ConfigProblem::meant).collect();
    problems.retain(|problem| !problem.known.is_empty() || !meant.contains(&problem.path));
    problems.truncate(MAX_PROBLEMS);
    if problems.is_empty() { Ok(()) } else { Err(LoadError::Config(problems)) }
}

/// What one error of a plugin's schema means, at the key that it is about.
fn problems(
    error: &jsonschema::ValidationError<'_>,
    config: &serde_json::Value,
    schema: &serde_json::Value,
) -> Vec<ConfigProblem> {
    let path = KeyPath::from_pointer(error.instance_path().as_str(), config);
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let keyword = error.schema_path().as_str();
            let parent = keyword.rsplit_once('/').map_or("", |(parent, _)| parent);
            let known = schema.pointer(parent).and_then(|schema| schema.get("properties")?.as_object());
            let known: Vec<String> = known.into_iter().flat_map(|known| known.keys().cloned()).collect();
            let unknown = |key: &String| ConfigProblem {
                path: path.key(key),
                message: format!("unknown key `{key}`"),
                known: known.clone(),
            };
            unexpected.iter().map(unknown).collect()
        }
        ValidationErrorKind::Required { property } => {
            let key = property.as_str().unwrap_or_default();
            vec![ConfigProblem { path: path.key(key), message: format!("`{key}` is missing"), known: Vec::new() }]
        }
        ValidationErrorKind::Enum { options } => {
            let options = options.as_array().into_iter().flatten().map(|option| match option.as_str() {
                Some(text) => format!("`{text}`"),
                None => format!("`{option}`"),
            });
            let options: Vec<String> = options.collect();
            vec![ConfigProblem { path, message: format!("accepted: {}", options.join(", ")), known: Vec::new() }]
        }
        ValidationErrorKind::Type { kind } => {
            let message = format!("accepted: {}", accepted_types(kind));
            vec![ConfigProblem { path, message, known: Vec::new() }]
        }
        // The value itself may be a secret.
        _ => vec![ConfigProblem { path, message: error.masked().to_string(), known: Vec::new() }],
    }
}

/// As the gateway's own configuration names them.
fn accepted_types(kind: &TypeKind) -> String {
    let types: Vec<JsonType> = match kind {
        TypeKind::Single(kind) => vec![*kind],
        TypeKind::Multiple(kinds) => kinds.iter().collect(),
    };
    let words = types.iter().map(|kind| match kind {
        JsonType::Array => "a list",
        JsonType::Boolean => "`true` or `false`",
        JsonType::Integer => "a whole number",
        JsonType::Null => "nothing",
        JsonType::Number => "a number",
        JsonType::Object => "a mapping",
        JsonType::String => "text",
    });
    words.collect::<Vec<_>>().join(", or ")
}

/// What a plugin says against its configuration, at the place that it names: plugins that are made with the SDK begin with
/// the place in backticks.
pub fn refusal(reason: &str, config: &str) -> ConfigProblem {
    let named = reason.strip_prefix('`').and_then(|rest| rest.split_once("`: "));
    let config: serde_json::Value = serde_json::from_str(config).unwrap_or_default();
    let place = named.and_then(|(place, message)| Some((KeyPath::parse(place, &config)?, message)));
    let (path, message) = place.unwrap_or_else(|| (KeyPath::root(), reason));
    ConfigProblem { path, message: message.to_owned(), known: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_taken_at_its_word_only_for_places_that_there_are() {
        fn check(reason: &str, path: &str, message: &str) {
            let problem = refusal(reason, r#"{"fields": [{"path": "a"}]}"#);
            assert_eq!((problem.path.to_string().as_str(), problem.message.as_str()), (path, message));
        }
        check("`fields[0].path`: is empty", "fields[0].path", "is empty");
        check("`fields[7].path`: is empty", "", "`fields[7].path`: is empty");
        check("`paht` is unknown", "", "`paht` is unknown");
        check("no", "", "no");
    }

    #[test]
    fn a_configuration_is_told_where_it_is_wrong() {
        let schema = r#"{"type": "object", "properties": {"fields": {"type": "array", "items": {"type": "string"}}}}"#;
        assert!(check_schema(schema, r#"{"fields": ["email"]}"#).is_ok());
        let error = check_schema(schema, r#"{"fields": ["email", 7]}"#).expect_err("a number").to_string();
        assert!(error.contains("`fields[1]`"), "{error}");
        assert!(check_schema("", "{}").is_ok());
        assert!(check_schema("", "{").is_err());
    }
}
