//! One error of the schema's, in words of the configuration.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use super::alternatives;
use super::stand_in::stand_in;
use crate::config::document::Document;
use crate::config::errors::Errors;
use crate::config::path::{KeyPath, Segment};
use crate::config::schema::schema;
use crate::config::suggest::{accepted, nearest, suggest};
use crate::config::units::{DURATION_EXPECTED, DURATION_PATTERN, SIZE_EXPECTED, SIZE_PATTERN};
use crate::config::written::NAME_PATTERN;

#[derive(Debug)]
pub struct Finding {
    pub path: KeyPath,
    pub problem: Problem,
    /// Where the schema says what should stand at `path`: a JSON pointer into it.
    pub schema: String,
}

#[derive(Debug)]
pub enum Problem {
    UnknownKey {
        known: Vec<String>,
    },
    BadName,
    Missing,
    WrongType {
        found: Value,
        expected: String,
        scalar: bool,
    },
    NotOneOf {
        found: Value,
        options: Vec<String>,
    },
    NotLike {
        found: Value,
        expected: String,
    },
    TooFew {
        expected: String,
    },
    TooMany {
        limit: u64,
    },
    OutOfRange {
        found: Value,
        expected: String,
    },
    /// A mapping that says which alternative it is by its only key.
    NotOneKey {
        options: Vec<String>,
    },
}

/// The name that people know the value by, where the schema has one.
const DEFINITIONS: [(&str, &str); 2] = [("/$defs/Size/", SIZE_EXPECTED), ("/$defs/Duration/", DURATION_EXPECTED)];

impl Finding {
    /// Everything that `error` says about `root`: of alternatives, only about the one that is meant.
    pub fn of(error: &ValidationError<'_>, root: &Value) -> Vec<Self> {
        let path = KeyPath::from_pointer(error.instance_path().as_str(), root);
        let found = || error.instance().clone().into_owned();
        let keyword = error.schema_path().as_str();
        let schema = keyword.rsplit_once('/').map_or("", |(schema, _)| schema);
        let one = |path, problem| vec![Self { path, problem, schema: schema.to_owned() }];
        match error.kind() {
            ValidationErrorKind::OneOfNotValid { context } | ValidationErrorKind::AnyOf { context } => {
                alternatives::choose(context, path, found(), schema, root)
            }
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let known = keys_of(schema);
                let of_key = |key: &String| Self {
                    path: path.key(key),
                    problem: Problem::UnknownKey { known: known.clone() },
                    schema: String::new(),
                };
                unexpected.iter().map(of_key).collect()
            }
            ValidationErrorKind::PropertyNames { error } => {
                let name = error.instance().as_str().unwrap_or_default().to_owned();
                one(path.key(&name), Problem::BadName)
            }
            ValidationErrorKind::Required { property } => {
                let key = property.as_str().unwrap_or_default();
                let schema = format!("{schema}/properties/{}", key.replace('~', "~0").replace('/', "~1"));
                vec![Self { path: path.key(key), problem: Problem::Missing, schema }]
            }
            ValidationErrorKind::Type { kind } => {
                let types = types_of(kind);
                let scalar =
                    types.iter().any(|kind| matches!(kind, JsonType::Integer | JsonType::Number | JsonType::Boolean));
                let expected = named(error).map_or_else(|| in_words(&types), str::to_owned);
                one(path, Problem::WrongType { found: found(), expected, scalar })
            }
            ValidationErrorKind::Enum { options } => {
                let options = options.as_array().map(Vec::as_slice).unwrap_or_default().iter().map(plain).collect();
                one(path, Problem::NotOneOf { found: found(), options })
            }
            ValidationErrorKind::Constant { expected_value } => {
                one(path, Problem::NotOneOf { found: found(), options: vec![plain(expected_value)] })
            }
            ValidationErrorKind::Pattern { pattern } => {
                one(path, Problem::NotLike { found: found(), expected: explain(pattern) })
            }
            ValidationErrorKind::MinLength { .. } => {
                one(path, Problem::TooFew { expected: "must not be empty".to_owned() })
            }
            ValidationErrorKind::MinItems { limit } => {
                one(path, Problem::TooFew { expected: format!("needs at least {limit} item") })
            }
            ValidationErrorKind::MinProperties { limit } => {
                one(path, Problem::TooFew { expected: format!("needs at least {limit} entry") })
            }
            ValidationErrorKind::MaxItems { limit } | ValidationErrorKind::MaxProperties { limit } => {
                one(path, Problem::TooMany { limit: *limit })
            }
            ValidationErrorKind::Minimum { limit } => {
                one(path, Problem::OutOfRange { found: found(), expected: format!("at least {limit}") })
            }
            ValidationErrorKind::Maximum { limit } => {
                one(path, Problem::OutOfRange { found: found(), expected: format!("at most {limit}") })
            }
            other => {
                // Words of the library, for a keyword that the schema does not use today.
                let expected = format!("what `{}` of the schema allows", other.keyword());
                one(path, Problem::NotLike { found: found(), expected })
            }
        }
    }

    /// What can stand there instead, so that the rest can be looked at: of options the one that is probably meant.
    pub fn stand_in(&self) -> Value {
        let meant = match &self.problem {
            Problem::NotOneOf { found: Value::String(found), options } => nearest(found, options),
            _ => None,
        };
        meant.map_or_else(|| stand_in(&self.schema), |meant| Value::String(meant.to_owned()))
    }

    pub fn is_unknown_key(&self) -> bool {
        matches!(self.problem, Problem::UnknownKey { .. })
    }

    /// The key that is probably meant by an unknown one.
    pub fn meant(&self) -> Option<String> {
        match &self.problem {
            Problem::UnknownKey { known } => nearest(&last_key(&self.path), known).map(str::to_owned),
            _ => None,
        }
    }

    /// Where a misspelt key stands, and where it would stand as it is meant.
    pub fn respelling(&self) -> Option<(KeyPath, KeyPath)> {
        let meant = self.meant().filter(|_| known_elsewhere(&self.path).is_none())?;
        Some((self.path.clone(), self.path.parent()?.key(&meant)))
    }

    /// Whether the value is not of the kind that belongs there.
    pub fn is_about_kind(&self) -> bool {
        matches!(self.problem, Problem::WrongType { .. } | Problem::NotOneOf { .. } | Problem::NotOneKey { .. })
    }

    /// Whether a key is missing only because it is misspelt, which another of `findings` says.
    pub fn is_misspelt_in(&self, findings: &[Self]) -> bool {
        matches!(self.problem, Problem::Missing)
            && findings.iter().any(|other| {
                other.path.parent() == self.path.parent()
                    && other.meant().is_some_and(|key| key == last_key(&self.path))
            })
    }

    /// Whether the property that a cluster must have is there under a misspelt name, which librdkafka will not know.
    pub fn is_misspelt_property(&self, root: &Value) -> bool {
        let beside = self.path.parent().and_then(|parent| parent.find(root)?.as_object());
        let is_near = |key: &String| nearest(key, &["bootstrap.servers"]).is_some();
        matches!(self.problem, Problem::Missing)
            && last_key(&self.path) == "bootstrap.servers"
            && beside.is_some_and(|beside| beside.keys().any(is_near))
    }

    /// Whether it is the number of parts that is wrong, or the name of one, and not what the parts are.
    pub fn is_about_a_part(&self) -> bool {
        matches!(self.problem, Problem::TooFew { .. } | Problem::TooMany { .. } | Problem::BadName)
    }

    /// Whether the value is of another type than everything else that is wrong with it assumes.
    pub fn is_about_type(&self) -> bool {
        matches!(self.problem, Problem::WrongType { .. })
    }

    /// Whether a number or a boolean would do.
    pub fn wants_scalar(&self) -> bool {
        matches!(self.problem, Problem::WrongType { scalar: true, .. })
    }

    pub fn report(&self, document: &Document, errors: &mut Errors) {
        let path = &self.path;
        let name = match path.segments().last() {
            Some(Segment::Key(key)) => format!("`{key}`"),
            Some(Segment::Index(index)) => format!("item {index}"),
            None => "the configuration".to_owned(),
        };
        match &self.problem {
            Problem::UnknownKey { known } => {
                let help = known_elsewhere(path).unwrap_or_else(|| suggest(&last_key(path), known));
                errors.push_key(path, format!("unknown key {name}"), help);
            }
            Problem::BadName => {
                errors.push_key(path, format!("{name} is not a name"), format!("accepted: {}", explain(NAME_PATTERN)))
            }
            Problem::Missing => errors.push(path, format!("{name} is missing"), self.missing_help()),
            Problem::WrongType { found: Value::Null, expected, .. } => {
                errors.push(
                    path,
                    format!("{name} has no value"),
                    format!("accepted: {expected}; or leave the key out"),
                );
            }
            Problem::WrongType { found, expected, .. } => {
                let mut help = format!("accepted: {expected}");
                if expected == "text" && matches!(found, Value::Number(_) | Value::Bool(_)) {
                    help.push_str("; put it into quotes");
                }
                if let Value::String(text) = found
                    && expected.contains("`true`")
                    && matches!(text.to_ascii_lowercase().as_str(), "yes" | "no" | "on" | "off" | "y" | "n")
                {
                    help.push_str("; in YAML 1.2 everything else is text");
                }
                errors.push(path, format!("{name} cannot be {}", describe(document, path, found)), help);
            }
            Problem::NotOneOf { found: Value::String(text), options } => {
                let help = if text == "pass" && last_key(path) == "on_error" {
                    format!("{}\npassing a record on would leak what a plugin should hide", accepted(options))
                } else {
                    suggest(text, options)
                };
                errors.push(path, format!("{name} cannot be `{}`", text), help);
            }
            Problem::NotOneOf { found, options } => {
                errors.push(path, format!("{name} cannot be {}", describe(document, path, found)), accepted(options));
            }
            Problem::NotLike { found, expected } | Problem::OutOfRange { found, expected } => {
                let written = document.text(path).map_or_else(|| plain(found), str::to_owned);
                let message = match written.as_str() {
                    "" => format!("{name} cannot be empty"),
                    written => format!("{name} cannot be `{written}`"),
                };
                errors.push(path, message, format!("accepted: {expected}"));
            }
            Problem::TooFew { expected } => errors.push(path, format!("{name} {expected}"), self.missing_help()),
            Problem::TooMany { limit } => {
                errors.push(path, format!("{name} has more than {limit} entries"), "split it");
            }
            Problem::NotOneKey { options } => {
                errors.push(path, format!("{name} takes exactly one key"), accepted(options))
            }
        }
    }

    fn is_in(&self, key: &str) -> bool {
        self.path.segments().iter().any(|segment| matches!(segment, Segment::Key(other) if other == key))
    }

    fn missing_help(&self) -> String {
        match last_key(&self.path).as_str() {
            "version" => "write `version: 1`",
            "bootstrap.servers" => "where to find the brokers: `bootstrap.servers: localhost:9092`",
            "topics" => "the topics to read: `topics: [profiles]`",
            "routes" => "a gateway needs at least one route",
            "sinks" => "a route needs at least one sink",
            "source" => "where records come from: `source: { topics: [profiles] }`",
            "url" => "the address: `url: \"https://crm.internal/profiles/{key}\"`",
            "use" => "a name under `plugins`, or `std/filter`, `std/key-check`, `std/mask-fields`",
            "table" => "the table, which is created if it is not there: `table: profiles`",
            "path" if self.is_in("columns") => "where it stands in the JSON value: `path: /email`",
            "path" => "the path of a file, relative to the configuration file's directory",
            "file" => "the path of a WebAssembly component, relative to the configuration file's directory",
            "topic" => "the topic's name, for plugins and sinks: `topic: profiles`",
            "name" => "who holds it, for the log: `name: ops`",
            "role" => "accepted: `viewer`, `operator`, `admin`",
            "token" => "the secret: `token: \"${env:TIDEGATE_TOKEN}\"`",
            "user" | "password" => "both are needed: `basic: { user: tidegate, password: \"${env:PASSWORD}\" }`",
            "type" => "accepted: `discard`, `file`, `sqlite`, `http`",
            _ => "",
        }
        .to_owned()
    }
}

/// The keys that the schema at `pointer` knows.
fn keys_of(pointer: &str) -> Vec<String> {
    let properties = schema().pointer(pointer).and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    properties.map(|properties| properties.keys().cloned().collect()).unwrap_or_default()
}

fn named(error: &ValidationError<'_>) -> Option<&'static str> {
    let path = error.schema_path().as_str();
    DEFINITIONS.iter().find(|(definition, _)| path.starts_with(definition)).map(|(_, name)| *name)
}

fn explain(pattern: &str) -> String {
    match pattern {
        SIZE_PATTERN => SIZE_EXPECTED.to_owned(),
        DURATION_PATTERN => DURATION_EXPECTED.to_owned(),
        NAME_PATTERN => {
            "letters, digits, `-` and `_`, at most 64, the first a letter or a digit, such as `profiles-2`".to_owned()
        }
        "^[0-9a-fA-F]{64}$" => "64 hexadecimal digits, as `sha256sum` prints them".to_owned(),
        other => format!("text that matches `{other}`"),
    }
}

fn types_of(kind: &TypeKind) -> Vec<JsonType> {
    match kind {
        TypeKind::Single(kind) => vec![*kind],
        TypeKind::Multiple(kinds) => kinds.iter().collect(),
    }
}

fn in_words(types: &[JsonType]) -> String {
    let word = |kind: &JsonType| match kind {
        JsonType::Array => "a list",
        JsonType::Boolean => "`true` or `false`",
        JsonType::Integer => "a whole number",
        JsonType::Null => "nothing",
        JsonType::Number => "a number",
        JsonType::Object => "a mapping",
        JsonType::String => "text",
    };
    let mut types = types.to_vec();
    types.sort_by_key(|kind| *kind != JsonType::String);
    types.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// What stands there, by its kind.
fn describe(document: &Document, path: &KeyPath, found: &Value) -> String {
    // As it is written: `1e3` and `0x10` are what people look for.
    let text = |value: &Value| document.text(path).map_or_else(|| plain(value), str::to_owned);
    match found {
        Value::Null => "nothing".to_owned(),
        Value::Bool(_) => format!("the boolean `{}`", text(found)),
        Value::Number(_) => format!("the number `{}`", text(found)),
        Value::String(text) if text.is_empty() => "empty text".to_owned(),
        Value::String(_) => format!("the text `{}`", text(found)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub fn last_key(path: &KeyPath) -> String {
    match path.segments().last() {
        Some(Segment::Key(key)) => key.clone(),
        _ => String::new(),
    }
}

/// For keys that mean something, but not here.
fn known_elsewhere(path: &KeyPath) -> Option<String> {
    let keys: Vec<&str> = path
        .segments()
        .iter()
        .filter_map(|segment| match segment {
            Segment::Key(key) => Some(key.as_str()),
            Segment::Index(_) => None,
        })
        .collect();
    let help = match keys.as_slice() {
        ["routes", _, "sinks", _, "on_drop" | "on_reject"] => {
            "this sink keeps every record it is given, so there is nothing to delete; `sqlite` and `http` sinks take it"
        }
        ["routes", _, "sinks", _, "dead_letter"] => {
            "dead letters are set up once for the route, beside `sinks`; each sink gets a file of its own"
        }
        ["routes", _, "sinks", _, "on_error" | "retry"] => "a `discard` sink never fails",
        ["routes", _, "source", key] if key.contains('.') => {
            "properties of librdkafka stand under `properties` here, or under the cluster"
        }
        ["routes", _, "plugins", "file" | "sha256"] => {
            "declare the plugin under `plugins`, and `use` it here by its name"
        }
        ["routes", _, "sink"] => "`sinks` is a mapping of names to sinks",
        _ => return None,
    };
    Some(help.to_owned())
}
