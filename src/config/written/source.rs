//! Sources.

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value, json};

use super::{Duration, Property};
use crate::config::checked::{MissingKey, Start};
use crate::config::defaults;
use crate::delivery::OnError;

/// Where records come from; `kafka` where no `type` is given.
#[derive(Debug)]
pub enum Source {
    Kafka(Kafka),
    Ndjson(Ndjson),
}

/// Topics of a Kafka cluster.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kafka {
    /// A name under `clusters`. May be left out when there is only one.
    pub cluster: Option<String>,
    /// The topics. They may be created later.
    #[schemars(length(min = 1, max = defaults::MAX_TOPICS))]
    pub topics: Vec<String>,
    /// The consumer group is `<group>.<sink>`. Default: `tidegate.<route>`.
    #[schemars(length(min = 1))]
    pub group: Option<String>,
    /// Where a lane begins that has no offsets yet. Partitions that appear later are always read from their beginning.
    #[schemars(extend("default" = "earliest"))]
    pub start: Option<Start>,
    pub keys: Option<Keys>,
    /// How long work in hand may take when partitions go to another instance. What is not done by then is done there.
    #[schemars(extend("default" = defaults::DRAIN_TIMEOUT))]
    pub drain_timeout: Option<Duration>,
    /// librdkafka properties for this source, over those of the cluster.
    #[serde(default)]
    pub properties: IndexMap<String, Property>,
}

/// A file with one JSON record per line, read as a topic of one partition.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ndjson {
    /// The file.
    #[schemars(length(min = 1))]
    pub path: String,
    /// The topic's name, for plugins and sinks.
    pub topic: String,
    pub keys: Option<Keys>,
}

/// What is done with keys before the first plugin.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// For a record without a key.
    #[schemars(extend("default" = "dead_letter"))]
    pub missing: Option<MissingKey>,
    /// What keys must be.
    pub format: Option<KeyFormat>,
    /// For a key that is not of `format`. Default: `dead_letter`.
    pub malformed: Option<OnError>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyFormat {
    /// Any UTF-8 text.
    Utf8,
    /// A UUID in its usual form.
    Uuid,
    /// A decimal integer in text.
    Integer,
    /// Any JSON text.
    Json,
    /// UTF-8 text that matches the expression as a whole.
    Regex(String),
}

// By hand, since serde has no tag that may be left out.
impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Map::deserialize(deserializer)?;
        let kind = fields.remove("type");
        let fields = Value::Object(fields);
        match kind.as_ref().map_or(Some("kafka"), Value::as_str) {
            Some("kafka") => Kafka::deserialize(fields).map(Self::Kafka),
            Some("ndjson") => Ndjson::deserialize(fields).map(Self::Ndjson),
            _ => return Err(de::Error::custom("`type` is neither `kafka` nor `ndjson`")),
        }
        .map_err(de::Error::custom)
    }
}

impl JsonSchema for Source {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Source".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Where records come from; `kafka` where no `type` is given.",
            "oneOf": [
                tagged(Kafka::json_schema(generator), "kafka", false),
                tagged(Ndjson::json_schema(generator), "ndjson", true),
            ]
        })
    }
}

fn tagged(mut variant: Schema, kind: &str, required: bool) -> Schema {
    let object = variant.ensure_object();
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        let mut first = Map::new();
        first.insert("type".to_owned(), json!({ "type": "string", "const": kind }));
        first.append(properties);
        *properties = first;
    }
    if required && let Some(required) = object.get_mut("required").and_then(Value::as_array_mut) {
        required.insert(0, "type".into());
    }
    variant
}
