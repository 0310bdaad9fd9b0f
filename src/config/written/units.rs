//! Values that have their own notation.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::config::units::{DURATION_PATTERN, SIZE_PATTERN, parse_size};

/// A number of bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Size {
    Bytes(u64),
    Text(String),
}

impl Size {
    /// `None` for text that is no size.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(*bytes),
            Self::Text(text) => parse_size(text),
        }
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of bytes, with `KiB`, `MiB`, `GiB` (powers of 1024) or `kB`, `MB`, `GB` (of 1000).",
            "type": ["string", "integer"],
            "pattern": SIZE_PATTERN,
            "minimum": 0,
            "examples": ["64KiB", "256MiB", "1GB"]
        })
    }
}

/// A length of time.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Duration(pub String);

impl JsonSchema for Duration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A length of time, with `us`, `ms`, `s`, `m`, `h` or `d`.",
            "type": "string",
            "pattern": DURATION_PATTERN,
            "examples": ["50ms", "5s", "1m30s"]
        })
    }
}

/// The value of a librdkafka property. Numbers and booleans are passed on as they are written.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "the text as written is what counts; it is read from the document")]
pub enum Property {
    Text(String),
    Number(serde_json::Number),
    Boolean(bool),
}

impl JsonSchema for Property {
    fn schema_name() -> Cow<'static, str> {
        "Property".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The value of a librdkafka property; numbers and booleans are passed on as they are written.",
            "type": ["string", "number", "boolean"]
        })
    }
}
