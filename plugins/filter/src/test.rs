//! Tests on texts and on JSON values.

use std::borrow::Cow;
use std::cmp::Ordering;

use regex_lite::Regex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use tidegate_json::decode;

use crate::number::Number;

/// Tests on the bytes of a key or of a header's value.
#[derive(Debug)]
pub(crate) struct TextTest {
    pub(crate) one_of: Option<Vec<String>>,
    pub(crate) prefix: String,
    pub(crate) regex: Option<Regex>,
    /// Whether it has to be there.
    pub(crate) exists: bool,
    /// Whether there is a test on what it is, beyond its being there.
    pub(crate) tests_value: bool,
}

impl TextTest {
    /// `None` = it is not there; `Some(None)` = it is there as null.
    pub(crate) fn passes(&self, text: Option<Option<&[u8]>>) -> bool {
        match text {
            None => !self.exists,
            Some(_) if !self.exists => false,
            Some(None) => !self.tests_value,
            Some(Some(text)) => self.passes_bytes(text),
        }
    }

    fn passes_bytes(&self, text: &[u8]) -> bool {
        text.starts_with(self.prefix.as_bytes())
            && self.one_of.as_ref().is_none_or(|choices| choices.iter().any(|choice| choice.as_bytes() == text))
            && self.regex.as_ref().is_none_or(|regex| std::str::from_utf8(text).is_ok_and(|text| regex.is_match(text)))
    }
}

/// Tests on a JSON field.
#[derive(Debug)]
pub(crate) struct FieldTest {
    pub(crate) one_of: Option<Vec<Scalar>>,
    pub(crate) prefix: Option<String>,
    pub(crate) regex: Option<Regex>,
    pub(crate) less_than: Option<Number>,
    pub(crate) at_most: Option<Number>,
    pub(crate) greater_than: Option<Number>,
    pub(crate) at_least: Option<Number>,
    /// Whether it has to be there; if not, there is no other test.
    pub(crate) exists: bool,
}

impl FieldTest {
    /// Whether a field with this text of JSON passes the tests on what it is.
    pub(crate) fn passes(&self, json: &str) -> bool {
        self.one_of.as_ref().is_none_or(|choices| choices.iter().any(|choice| choice.is(json)))
            && self.passes_as_text(json)
            && self.passes_as_number(json)
    }

    fn passes_as_text(&self, json: &str) -> bool {
        if self.prefix.is_none() && self.regex.is_none() {
            return true;
        }
        if !json.starts_with('"') {
            return false;
        }
        let text = decode(json);
        self.prefix.as_ref().is_none_or(|prefix| text.starts_with(prefix))
            && self.regex.as_ref().is_none_or(|regex| regex.is_match(&text))
    }

    fn passes_as_number(&self, json: &str) -> bool {
        let holds = |bound: Option<Number>, holds: fn(Ordering) -> bool| match bound {
            None => true,
            Some(bound) => read_number(json).and_then(|number| number.compare(bound)).is_some_and(holds),
        };
        holds(self.less_than, Ordering::is_lt)
            && holds(self.at_most, Ordering::is_le)
            && holds(self.greater_than, Ordering::is_gt)
            && holds(self.at_least, Ordering::is_ge)
    }
}

/// A JSON value without parts.
#[derive(Clone, Debug)]
pub(crate) enum Scalar {
    Null,
    Boolean(bool),
    Number(Number),
    Text(String),
}

impl Scalar {
    /// Whether a text of JSON is this value, however it is written.
    fn is(&self, json: &str) -> bool {
        match self {
            Self::Null => json == "null",
            Self::Boolean(true) => json == "true",
            Self::Boolean(false) => json == "false",
            Self::Number(number) => {
                read_number(json).and_then(|read| read.compare(*number)).is_some_and(Ordering::is_eq)
            }
            Self::Text(text) => json.starts_with('"') && decode(json) == text.as_str(),
        }
    }
}

/// A number, if the JSON is one. Without the look at its start, texts such as `inf` would need thought.
fn read_number(json: &str) -> Option<Number> {
    let is_number = matches!(json.as_bytes().first(), Some(b'-' | b'0'..=b'9'));
    is_number.then(|| Number::read(json)).flatten()
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(from)? {
            serde_json::Value::Null => Ok(Self::Null),
            serde_json::Value::Bool(boolean) => Ok(Self::Boolean(boolean)),
            serde_json::Value::String(text) => Ok(Self::Text(text)),
            number @ serde_json::Value::Number(_) => {
                Number::deserialize(number).map(Self::Number).map_err(serde::de::Error::custom)
            }
            serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
                Err(serde::de::Error::custom("must be a string, number, boolean or null"))
            }
        }
    }
}

impl JsonSchema for Scalar {
    fn schema_name() -> Cow<'static, str> {
        "Scalar".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean", "null"] })
    }
}
