//! The JSON Schema of the configuration.

use std::sync::LazyLock;

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::Value;

use super::written;

static SCHEMA: LazyLock<Value> = LazyLock::new(generate);

/// What `tidegate schema` prints: for editors, and what every configuration is checked against.
pub fn schema() -> &'static Value {
    &SCHEMA
}

fn generate() -> Value {
    let mut schema =
        SchemaSettings::draft2020_12().for_deserialize().into_generator().into_root_schema_for::<written::Config>();
    RecursiveTransform(tidy).transform(&mut schema);
    schema.to_value()
}

/// Takes out what Rust's types bring in and a configuration does not want: a key without a value is an error, not an
/// absent key, and the formats of Rust's integers mean nothing to an editor.
fn tidy(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(options)) = object.get_mut("enum") {
        options.retain(|option| !option.is_null());
    }
    if let Some(Value::Array(variants)) = object.get_mut("anyOf") {
        variants.retain(|variant| variant.get("type") != Some(&Value::from("null")));
        if let [Value::Object(only)] = variants.as_slice() {
            let only = only.clone();
            object.remove("anyOf");
            object.extend(only);
        }
    }
    if matches!(object.get("format"), Some(Value::String(format)) if format.starts_with("uint")) {
        object.remove("format");
    }
    if object.get("default").is_some_and(|default| {
        default.is_null() || *default == Value::Array(Vec::new()) || *default == Value::Object(serde_json::Map::new())
    }) {
        object.remove("default");
    }
    // A doc comment's line breaks are the source file's.
    if let Some(Value::String(description)) = object.get_mut("description") {
        *description =
            description.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect::<Vec<_>>().join("\n\n");
    }
}
