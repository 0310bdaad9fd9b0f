//! The plainest value of a shape.

use serde_json::{Map, Value};

use crate::config::schema::schema;

/// A value that has the shape that the schema at `pointer` asks for, though neither its pattern nor its length: the types of
/// the configuration can be read from it, and that is all it is for.
pub fn stand_in(pointer: &str) -> Value {
    schema().pointer(pointer).map_or(Value::Null, of)
}

fn of(schema: &Value) -> Value {
    if let Some(pointer) = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'))
    {
        return stand_in(pointer);
    }
    if let Some(only) = schema.get("const") {
        return only.clone();
    }
    let first = ["enum", "oneOf", "anyOf"].iter().find_map(|keyword| Some((*keyword, schema.get(keyword)?.get(0)?)));
    match first {
        Some(("enum", option)) => return option.clone(),
        Some((_, alternative)) => return of(alternative),
        None => {}
    }
    let kind = schema.get("type").and_then(|kind| kind.as_str().or_else(|| kind.get(0)?.as_str()));
    match kind {
        Some("object") => object(schema),
        Some("array") => Value::Array(Vec::new()),
        Some("string") => Value::String(String::new()),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or_else(|| 0.into()),
        Some("boolean") => Value::Bool(false),
        _ => Value::Null,
    }
}

fn object(schema: &Value) -> Value {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let value = |key: &str| schema.get("properties").and_then(|properties| properties.get(key)).map_or(Value::Null, of);
    Value::Object(required.map(|key| (key.to_owned(), value(key))).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::written;

    /// The types can be read from it, which is what the checks after the schema's rely on.
    #[test]
    fn every_shape_of_the_configuration_has_a_stand_in() {
        fn check<T: serde::de::DeserializeOwned>(definition: &str) {
            let value = stand_in(&format!("/$defs/{definition}"));
            if let Err(error) = serde_json::from_value::<T>(value.clone()) {
                panic!("{definition}: {value}: {error}");
            }
        }
        assert!(serde_json::from_value::<written::Config>(stand_in("")).is_ok());
        check::<written::Cluster>("Cluster");
        check::<written::Property>("Property");
        check::<written::Plugin>("Plugin");
        check::<written::Limits>("Limits");
        check::<written::PluginUse>("PluginUse");
        check::<written::Route>("Route");
        check::<written::Source>("Source");
        check::<written::Keys>("Keys");
        check::<written::KeyFormat>("KeyFormat");
        check::<written::Sink>("Sink");
        check::<written::Auth>("Auth");
        check::<written::Column>("Column");
        check::<written::Retry>("Retry");
        check::<written::Size>("Size");
        check::<written::Duration>("Duration");
    }
}
