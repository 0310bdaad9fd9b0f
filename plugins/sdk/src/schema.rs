//! JSON Schema in a form that gives useful errors.
//!
//! A validator that fails all branches of a `oneOf` or `anyOf` can only say so; it cannot know which branch was meant. The
//! shapes that `schemars` gives to Rust's enums and options say the same without branches.

use schemars::Schema;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::{Map, Value, json};

/// Rewrites a schema and all those in it. What it accepts stays the same.
pub(crate) fn simplify(schema: &mut Schema) {
    RecursiveTransform(|schema: &mut Schema| {
        if let Some(schema) = schema.as_object_mut() {
            choice_of_names(schema);
            map_of_one(schema);
            option(schema);
        }
    })
    .transform(schema);
}

/// An enum whose variants are names: an `enum` instead of a `const` in each branch, so that an error lists them all.
fn choice_of_names(schema: &mut Map<String, Value>) {
    let Some(branches) = schema.get("oneOf").and_then(Value::as_array) else {
        return;
    };
    let mut names = Vec::new();
    let mut lines = Vec::new();
    for branch in branches {
        let known = ["const", "enum", "type", "description"];
        let Some(branch) = branch.as_object().filter(|branch| branch.keys().all(|key| known.contains(&key.as_str())))
        else {
            return;
        };
        match (branch.get("const"), branch.get("enum")) {
            (Some(name @ Value::String(text)), None) => {
                if let Some(Value::String(description)) = branch.get("description") {
                    lines.push(format!("* `{text}`: {description}"));
                }
                names.push(name.clone());
            }
            (None, Some(Value::Array(more))) if more.iter().all(Value::is_string) => names.extend(more.iter().cloned()),
            _ => return,
        }
    }
    if !lines.is_empty() {
        if let Some(Value::String(description)) = schema.get("description") {
            lines.insert(0, format!("{description}\n"));
        }
        schema.insert("description".into(), lines.join("\n").into());
    }
    schema.remove("oneOf");
    schema.insert("type".into(), "string".into());
    schema.insert("enum".into(), names.into());
}

/// An enum whose variants are maps of one entry: one map with all entries, of which there must be one.
fn map_of_one(schema: &mut Map<String, Value>) {
    let Some(branches) = schema.get("oneOf").and_then(Value::as_array) else {
        return;
    };
    let mut entries = Map::new();
    for branch in branches {
        let Some((name, entry)) = entry_of(branch) else {
            return;
        };
        entries.insert(name, entry);
    }
    if entries.len() < branches.len() || schema.contains_key("properties") {
        return;
    }
    schema.remove("oneOf");
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), entries.into());
    schema.insert("additionalProperties".into(), false.into());
    schema.insert("minProperties".into(), 1.into());
    schema.insert("maxProperties".into(), 1.into());
}

/// The only entry of a map, which has to be there.
fn entry_of(branch: &Value) -> Option<(String, Value)> {
    let known = ["type", "properties", "required", "additionalProperties", "description"];
    let branch = branch.as_object().filter(|branch| branch.keys().all(|key| known.contains(&key.as_str())))?;
    let properties = branch.get("properties")?.as_object()?;
    let (name, entry) = properties.iter().next()?;
    let only = properties.len() == 1
        && branch.get("type")? == "object"
        && branch.get("required")? == &json!([name])
        && branch.get("additionalProperties")? == false;
    let mut entry = entry.clone();
    if let (Some(entry), Some(description)) = (entry.as_object_mut(), branch.get("description")) {
        entry.entry("description").or_insert(description.clone());
    }
    only.then(|| (name.clone(), entry))
}

/// What may be null or of another schema: only what is not null has to be of that schema.
fn option(schema: &mut Map<String, Value>) {
    let null = json!({ "type": "null" });
    if schema.contains_key("if") {
        return;
    }
    if let Some([other, last]) = schema.get("anyOf").and_then(Value::as_array).map(Vec::as_slice)
        && *last == null
    {
        let other = other.clone();
        schema.remove("anyOf");
        schema.insert("if".into(), null);
        schema.insert("then".into(), true.into());
        schema.insert("else".into(), other);
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;

    use super::*;

    #[track_caller]
    fn check<T: JsonSchema>(expected: Value) {
        let mut schema = schemars::schema_for!(T);
        simplify(&mut schema);
        let mut schema = schema.to_value();
        let object = schema.as_object_mut().unwrap();
        object.remove("$schema");
        object.remove("title");
        assert_eq!(schema, expected);
    }

    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only their shape matters")]
    enum Names {
        /// The first.
        A,
        B,
        C,
    }

    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only their shape matters")]
    #[schemars(rename_all = "lowercase")]
    enum Maps {
        /// A number.
        One(u8),
        Two {
            text: String,
        },
    }

    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only their shape matters")]
    enum Mixed {
        A,
        One(u8),
    }

    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its shape matters")]
    struct Options {
        names: Option<Names>,
    }

    #[test]
    fn names_become_a_choice() {
        check::<Names>(json!({ "type": "string", "enum": ["B", "C", "A"], "description": "* `A`: The first." }));
    }

    #[test]
    fn maps_of_one_entry_become_one_map() {
        check::<Maps>(json!({
            "type": "object",
            "properties": {
                "one": { "type": "integer", "format": "uint8", "minimum": 0, "maximum": 255, "description": "A number." },
                "two": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] },
            },
            "additionalProperties": false,
            "minProperties": 1,
            "maxProperties": 1,
        }));
    }

    #[test]
    fn an_option_has_no_branches() {
        let mut schema = schemars::schema_for!(Options);
        simplify(&mut schema);
        let schema = schema.to_value();
        assert_eq!(
            schema["properties"]["names"],
            json!({ "if": { "type": "null" }, "then": true, "else": { "$ref": "#/$defs/Names" } })
        );
        assert_eq!(schema["$defs"]["Names"]["enum"], json!(["B", "C", "A"]));
    }

    #[test]
    fn what_is_neither_stays() {
        let before = schemars::schema_for!(Mixed);
        let mut after = before.clone();
        simplify(&mut after);
        assert_eq!(before.get("oneOf").unwrap().as_array().unwrap().len(), 2);
        assert_eq!(after.get("oneOf"), before.get("oneOf"));
    }
}
