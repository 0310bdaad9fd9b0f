//! The reference page, from the schema.

use std::fmt::Write as _;

use serde_json::Value;

use super::schema::schema;

/// The page `docs/reference/configuration.md`.
pub fn reference_markdown() -> String {
    let mut page = Page { text: String::new(), done: Vec::new() };
    page.text.push_str("# Configuration\n\n<!-- Generated from the program's types; `UPDATE_GOLDEN=1 cargo test config` renews it. -->\n\n");
    let schema = schema();
    page.text.push_str(description(schema));
    page.text.push_str(
        "\n\n`tidegate check` finds every error in a configuration at once, and `tidegate schema` prints its JSON Schema, which \
         editors use to complete and check it: with the YAML language server, put `# yaml-language-server: $schema=PATH` into \
         the first line.\n\nSizes are written with `KiB`, `MiB`, `GiB` (powers of 1024) or `kB`, `MB`, `GB` (of 1000), durations \
         with `us`, `ms`, `s`, `m`, `h` or `d`.\n",
    );
    page.section("", schema);
    page.text
}

struct Page {
    text: String,
    /// Sections that several keys lead to are written once.
    done: Vec<String>,
}

impl Page {
    /// The keys of an object, or of each of its variants, and then what stands below them.
    fn section(&mut self, path: &str, schema: &Value) {
        let schema = target(schema);
        if let Some(variants) = schema.get("oneOf").and_then(Value::as_array) {
            for variant in variants.iter().filter(|variant| variant.get("properties").is_some()) {
                match variant.pointer("/properties/type/const").and_then(Value::as_str) {
                    Some(kind) => self.object(path, &format!("`{path}` with `type: {kind}`"), variant),
                    // Named by its only key, which is listed where the choice is.
                    None => self.keys_below(path, variant),
                }
            }
            return;
        }
        let heading = if path.is_empty() { String::new() } else { format!("`{path}`") };
        self.object(path, &heading, schema);
    }

    fn object(&mut self, path: &str, heading: &str, schema: &Value) {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
        if !heading.is_empty() {
            let _infallible = write!(self.text, "\n## {heading}\n\n{}\n", description(schema));
        }
        self.text.push_str("\n| key | value | default | |\n|---|---|---|---|\n");
        let required: Vec<&str> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        for (key, value) in properties {
            let default = match value.get("default").or_else(|| target(value).get("default")) {
                Some(default) => format!("`{}`", plain(default)),
                None if required.contains(&key.as_str()) => "must be given".to_owned(),
                None => String::new(),
            };
            let text = if description(value).is_empty() { description(target(value)) } else { description(value) };
            let text = text.replace("\n\n", " ").replace('|', "\\|");
            let _infallible =
                writeln!(self.text, "| `{key}` | {} | {default} | {text} |", kind(value).replace('|', "\\|"));
        }
        self.options(properties);
        self.keys_below(path, schema);
    }

    fn keys_below(&mut self, path: &str, schema: &Value) {
        for (key, value) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            self.below(&below, value);
        }
    }

    /// What the values mean that can be chosen from, where the schema says so.
    fn options(&mut self, properties: &serde_json::Map<String, Value>) {
        for (key, value) in properties {
            let variants = target(value).get("oneOf").and_then(Value::as_array).into_iter().flatten();
            let described: Vec<String> = variants
                .filter(|variant| !description(variant).is_empty())
                .filter_map(|variant| {
                    let name = match variant.get("const") {
                        Some(name) => plain(name),
                        None => {
                            let required = variant.get("required")?.get(0)?.as_str()?;
                            (variant.pointer("/properties/type").is_none()).then(|| format!("{{ {required}: … }}"))?
                        }
                    };
                    Some(format!("* `{name}`: {}\n", description(variant)))
                })
                .collect();
            if !described.is_empty() {
                let _infallible = write!(self.text, "\nThe values of `{key}`:\n\n{}", described.concat());
            }
        }
    }

    fn below(&mut self, path: &str, schema: &Value) {
        if let Some(definition) = schema.get("$ref").and_then(Value::as_str) {
            if self.done.iter().any(|done| done == definition) {
                return;
            }
            self.done.push(definition.to_owned());
        }
        let schema = target(schema);
        if let Some(items) = schema.get("items") {
            self.below(&format!("{path}[]"), items);
        }
        let values = schema.get("additionalProperties").filter(|values| values.is_object());
        if let (Some(values), None) = (values, schema.get("properties")) {
            self.below(&format!("{path}.<name>"), values);
        }
        if schema.get("properties").is_some() || schema.get("oneOf").is_some() {
            self.section(path, schema);
        }
    }
}

/// What a reference leads to.
fn target(value: &Value) -> &Value {
    let definition = value.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    definition.and_then(|pointer| schema().pointer(pointer)).unwrap_or(value)
}

fn description(schema: &Value) -> &str {
    schema.get("description").and_then(Value::as_str).unwrap_or_default()
}

/// What a value looks like, in a word or by its options.
fn kind(value: &Value) -> String {
    match value.get("$ref").and_then(Value::as_str) {
        Some("#/$defs/Size") => return "size".to_owned(),
        Some("#/$defs/Duration") => return "duration".to_owned(),
        _ => {}
    }
    let value = target(value);
    if let Some(constant) = value.get("const") {
        return format!("`{}`", plain(constant));
    }
    let options = value.get("enum").and_then(Value::as_array);
    if let Some(options) = options {
        return options.iter().map(|option| format!("`{}`", plain(option))).collect::<Vec<_>>().join(" | ");
    }
    if let Some(variants) = value.get("oneOf").and_then(Value::as_array) {
        let mut words: Vec<String> = variants.iter().map(kind).collect();
        words.dedup();
        return words.join(" | ");
    }
    match value.get("type") {
        Some(Value::String(kind)) => match kind.as_str() {
            "object" => "mapping",
            "array" => "list",
            "string" => "text",
            "integer" => "whole number",
            "boolean" => "`true` | `false`",
            other => other,
        }
        .to_owned(),
        Some(Value::Array(_)) => "text, number or boolean".to_owned(),
        _ => "anything".to_owned(),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
