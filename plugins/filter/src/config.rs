//! What the operator writes, and how it becomes a [`Filter`].

use std::borrow::Cow;

use regex_lite::Regex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use tidegate_json::{MAX_PATHS, Path, Paths};
use tidegate_plugin::ConfigError;

use crate::condition::{Condition, Filter};
use crate::number::Number;
use crate::test::{FieldTest, Scalar, TextTest};

/// The configuration of `filter`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Records that meet this condition go on, others are dropped. Either this or `drop`.
    keep: Option<Written>,
    /// Records that meet this condition are dropped, others go on. Either this or `keep`.
    drop: Option<Written>,
    /// What happens to records without a value.
    #[serde(default)]
    tombstones: Tombstones,
    /// What happens to a record when a condition needs a field of a value that is not JSON.
    #[serde(default)]
    not_json: NotJson,
}

/// What happens to records without a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tombstones {
    /// They go on, so that deletes reach the sinks.
    #[default]
    Pass,
    /// They are dropped.
    Drop,
    /// They are rejected.
    Reject,
    /// They are tested like other records; they have no fields.
    Test,
}

/// What happens to a value that is not JSON, when it has to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NotJson {
    /// The record is rejected.
    #[default]
    Reject,
    /// The record goes on.
    Keep,
    /// The record is dropped.
    Drop,
}

/// A condition: one of these.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Condition")]
enum Written {
    /// Each of these holds.
    All(
        #[serde(deserialize_with = "at_least_one")]
        #[schemars(length(min = 1))]
        Vec<Written>,
    ),
    /// One of these holds at least.
    Any(
        #[serde(deserialize_with = "at_least_one")]
        #[schemars(length(min = 1))]
        Vec<Written>,
    ),
    /// This does not hold.
    Not(Box<Written>),
    /// The key passes these tests.
    Key(Text),
    /// A header passes these tests; of several with one name, the last counts.
    Header(Header),
    /// A JSON field passes these tests; where several are of that path, one of them does.
    Field(Field),
}

/// Tests on the bytes of a key. All that are given must pass. A key that is null passes none but `exists: false`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Text {
    /// It is this text.
    equals: Option<String>,
    /// It is one of these texts.
    r#in: Option<Vec<String>>,
    /// It starts with this text.
    prefix: Option<String>,
    /// It is UTF-8, and this matches somewhere in it.
    regex: Option<Pattern>,
    /// It is there at all, or not.
    exists: Option<bool>,
}

/// Tests on the bytes of a header's value. All that are given must pass. A value that is null passes none but `exists`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Header {
    /// The header's name.
    name: String,
    /// It is this text.
    equals: Option<String>,
    /// It is one of these texts.
    r#in: Option<Vec<String>>,
    /// It starts with this text.
    prefix: Option<String>,
    /// It is UTF-8, and this matches somewhere in it.
    regex: Option<Pattern>,
    /// It is there at all, or not.
    exists: Option<bool>,
}

/// Tests on a field of a JSON value. All that are given must pass.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Field {
    /// Where the field is.
    path: Path,
    /// It is this string, number, boolean or null. Numbers are compared by value: 1 is 1.0.
    #[serde(default, deserialize_with = "given")]
    equals: Option<Scalar>,
    /// It is one of these.
    r#in: Option<Vec<Scalar>>,
    /// It is a string that starts with this text.
    prefix: Option<String>,
    /// It is a string, and this matches somewhere in it.
    regex: Option<Pattern>,
    /// It is there at all, if only as null, or not.
    exists: Option<bool>,
    /// It is a number below this.
    less_than: Option<Number>,
    /// It is a number not above this.
    at_most: Option<Number>,
    /// It is a number above this.
    greater_than: Option<Number>,
    /// It is a number not below this.
    at_least: Option<Number>,
}

impl Config {
    /// The filter that the configuration describes.
    pub(crate) fn check(self) -> Result<Filter, ConfigError> {
        let (place, written, keeps) = match (self.keep, self.drop) {
            (Some(condition), None) => ("keep", condition, true),
            (None, Some(condition)) => ("drop", condition, false),
            (None, None) => return Err(ConfigError::new("missing a condition: `keep` or `drop`")),
            (Some(_), Some(_)) => {
                return Err(ConfigError::at("drop", "does not go together with `keep`; use `all` and `not`"));
            }
        };
        let mut fields = Vec::new();
        let condition = written.check(place, &mut fields)?;
        let number = fields.len();
        let (paths, fields): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
        let paths = Paths::new(paths).ok_or_else(|| {
            ConfigError::at(place, format_args!("has {number} conditions on fields; at most {MAX_PATHS} are allowed"))
        })?;
        Ok(Filter { condition, keeps, paths, fields, tombstones: self.tombstones, not_json: self.not_json })
    }
}

impl Written {
    /// Takes the tests on fields aside, since one walk over a value does them all.
    fn check(self, place: &str, fields: &mut Vec<(Path, FieldTest)>) -> Result<Condition, ConfigError> {
        let mut each = |name, conditions: Vec<Written>| {
            let conditions = conditions.into_iter().enumerate();
            conditions
                .map(|(index, condition)| condition.check(&format!("{place}.{name}[{index}]"), fields))
                .collect::<Result<_, _>>()
        };
        Ok(match self {
            Written::All(conditions) => Condition::All(each("all", conditions)?),
            Written::Any(conditions) => Condition::Any(each("any", conditions)?),
            Written::Not(condition) => Condition::Not(Box::new(condition.check(&format!("{place}.not"), fields)?)),
            Written::Key(text) => Condition::Key(text.check(&format!("{place}.key"))?),
            Written::Header(Header { name, equals, r#in, prefix, regex, exists }) => {
                let text = Text { equals, r#in, prefix, regex, exists };
                Condition::Header { name, test: text.check(&format!("{place}.header"))? }
            }
            Written::Field(field) => {
                let path = field.path.clone();
                fields.push((path, field.check(&format!("{place}.field"))?));
                Condition::Field(fields.len() - 1)
            }
        })
    }
}

impl Text {
    fn check(self, place: &str) -> Result<TextTest, ConfigError> {
        let tests = [self.equals.is_some(), self.r#in.is_some(), self.prefix.is_some(), self.regex.is_some()];
        check_exists(self.exists, tests.contains(&true), place)?;
        Ok(TextTest {
            one_of: one_of(self.equals, self.r#in, place)?,
            prefix: self.prefix.unwrap_or_default(),
            regex: self.regex.map(|pattern| pattern.0),
            exists: self.exists.unwrap_or(true),
            tests_value: tests.contains(&true),
        })
    }
}

impl Field {
    fn check(self, place: &str) -> Result<FieldTest, ConfigError> {
        let numbers = [&self.less_than, &self.at_most, &self.greater_than, &self.at_least];
        let tests = [self.equals.is_some(), self.r#in.is_some(), self.prefix.is_some(), self.regex.is_some()];
        let any = tests.contains(&true) || numbers.iter().any(|bound| bound.is_some());
        check_exists(self.exists, any, place)?;
        Ok(FieldTest {
            one_of: one_of(self.equals, self.r#in, place)?,
            prefix: self.prefix,
            regex: self.regex.map(|pattern| pattern.0),
            less_than: self.less_than,
            at_most: self.at_most,
            greater_than: self.greater_than,
            at_least: self.at_least,
            exists: self.exists.unwrap_or(true),
        })
    }
}

/// A condition tests something, and nothing about what is not there.
fn check_exists(exists: Option<bool>, tests: bool, place: &str) -> Result<(), ConfigError> {
    match (exists, tests) {
        (None, false) => Err(ConfigError::at(place, "has no test, such as `equals` or `exists`")),
        (Some(false), true) => {
            Err(ConfigError::at(format_args!("{place}.exists"), "`false` does not go together with other tests"))
        }
        _ => Ok(()),
    }
}

/// `equals` is an `in` with one choice.
fn one_of<T>(equals: Option<T>, r#in: Option<Vec<T>>, place: &str) -> Result<Option<Vec<T>>, ConfigError> {
    match (equals, r#in) {
        (Some(_), Some(_)) => Err(ConfigError::at(format_args!("{place}.in"), "does not go together with `equals`")),
        (Some(equals), None) => Ok(Some(vec![equals])),
        (None, Some(choices)) if choices.is_empty() => {
            Err(ConfigError::at(format_args!("{place}.in"), "must hold at least one value"))
        }
        (None, choices) => Ok(choices),
    }
}

fn at_least_one<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Written>, D::Error> {
    let conditions = Vec::deserialize(from)?;
    if conditions.is_empty() {
        return Err(serde::de::Error::custom("must hold at least one condition"));
    }
    Ok(conditions)
}

/// Tells a null that was written from an option that was not.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// A regular expression.
#[derive(Debug)]
struct Pattern(Regex);

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let pattern = Cow::<str>::deserialize(from)?;
        Regex::new(&pattern)
            .map(Pattern)
            .map_err(|error| serde::de::Error::custom(format_args!("`{pattern}` is no regular expression: {error}")))
    }
}

impl JsonSchema for Pattern {
    fn schema_name() -> Cow<'static, str> {
        "Pattern".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": "a regular expression in the syntax of Rust's `regex-lite`" })
    }
}
