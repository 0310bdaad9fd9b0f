//! The plugin as a whole, by example and against `serde_json`.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tidegate_plugin::harness::{Harness, Message, Outcome};
use tidegate_plugin::{ConfigError, Wants};

use crate::MaskFields;

fn harness(fields: Value) -> Harness<MaskFields> {
    Harness::new(&json!({ "fields": fields }).to_string()).unwrap()
}

#[track_caller]
fn check(fields: Value, value: &str, expected: &str) {
    let outcome = harness(fields).decide(Message::new("key", value));
    let expected = if value == expected { Outcome::Keep } else { Outcome::value(expected) };
    assert_eq!(outcome, expected);
}

#[track_caller]
fn check_refused(fields: Value, value: &str, reason: &str) {
    assert_eq!(harness(fields).decide(Message::new("key", value)), Outcome::Reject(reason.into()));
}

#[track_caller]
fn check_config(config: Value, expected: &str) {
    let error: ConfigError = Harness::<MaskFields>::new(&config.to_string()).err().unwrap();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_path_alone_masks() {
    check(json!(["email"]), r#"{"id": 7, "email": "ann@example.com"}"#, r#"{"id": 7, "email": "***"}"#);
}

#[test]
fn what_is_not_named_keeps_its_bytes() {
    check(
        json!(["email"]),
        " {\"n\" : 1.50e0 ,\t\"email\"\n:  \"x\" , \"s\":\"\\u0041\\/\", \"n\" : 2}\r\n",
        " {\"n\" : 1.50e0 ,\t\"email\"\n:  \"***\" , \"s\":\"\\u0041\\/\", \"n\" : 2}\r\n",
    );
    check(json!(["email"]), r#"{"Email": 1, "e-mail": {"email": 2}}"#, r#"{"Email": 1, "e-mail": {"email": 2}}"#);
    check(json!(["email"]), r#""email""#, r#""email""#);
    check(json!(["email"]), "[\"email\"]", "[\"email\"]");
}

#[test]
fn repeated_and_escaped_names_hide_nothing_from_the_mask() {
    check(
        json!(["email"]),
        r#"{"email": "a", "\u0065mail": "b", "\u0065\u006d\u0061\u0069\u006C": "c", "email": ["d"]}"#,
        r#"{"email": "***", "\u0065mail": "***", "\u0065\u006d\u0061\u0069\u006C": "***", "email": "***"}"#,
    );
    check(
        json!(["a.b"]),
        r#"{"a": 1, "a": {"b": 2}, "a": {"b": 3}}"#,
        r#"{"a": 1, "a": {"b": "***"}, "a": {"b": "***"}}"#,
    );
}

#[test]
fn paths_lead_through_objects_and_arrays() {
    check(
        json!(["contacts.*.email", "address.street"]),
        r#"{"contacts": [{"email": "a"}, {"phone": 1}, {"email": "b"}], "address": {"street": "c", "city": "d"}}"#,
        r#"{"contacts": [{"email": "***"}, {"phone": 1}, {"email": "***"}], "address": {"street": "***", "city": "d"}}"#,
    );
    check(json!([r"a\.b", "list.1"]), r#"{"a.b": 1, "list": [1, 2, 3]}"#, r#"{"a.b": "***", "list": [1, "***", 3]}"#);
    check(json!(["*"]), r#"[1, "b", null]"#, r#"["***", "***", null]"#);
}

#[test]
fn parts_can_stay_readable() {
    let fields = json!([
        { "path": "email", "keep_domain": true },
        { "path": "iban", "keep_first": 2, "keep_last": 4, "with": "..." },
    ]);
    check(
        fields,
        r#"{"email": "ann@example.com", "iban": "DE89370400440532013000"}"#,
        r#"{"email": "***@example.com", "iban": "DE...3000"}"#,
    );
}

#[test]
fn dropped_fields_take_their_commas_along() {
    let drop = |path| json!([{ "path": path, "action": "drop" }]);
    check(drop("a"), r#"{ "a": 1, "b": 2, "c": 3 }"#, r#"{ "b": 2, "c": 3 }"#);
    check(drop("b"), r#"{ "a": 1 , "b": 2, "c": 3 }"#, r#"{ "a": 1, "c": 3 }"#);
    check(drop("c"), r#"{ "a": 1, "b": 2 , "c": 3 }"#, r#"{ "a": 1, "b": 2 }"#);
    check(drop("a"), r#"{ "a": 1 }"#, r#"{ }"#);
    check(drop("a"), r#"{"a":1,"b":2,"a":3,"\u0061":4}"#, r#"{"b":2}"#);
    check(drop("*"), "[1, 2, 3]", "[]");
    check(drop("1"), "[1, 2, 3]", "[1, 3]");
    check(drop("*.x"), r#"[{"x": 1}, {"y": 2}]"#, r#"[{}, {"y": 2}]"#);
}

#[test]
fn renamed_fields_keep_their_place_and_value() {
    let rename = json!([{ "path": "user.mail", "action": "rename", "to": "e\"mail" }]);
    check(rename, r#"{"user": {"id" : 1, "ma\u0069l" : [ ]}}"#, r#"{"user": {"id" : 1, "e\"mail" : [ ]}}"#);
}

#[test]
fn renaming_makes_no_name_twice() {
    let reason = "renaming `a` would give an object two members of one name";
    let rename = json!([{ "path": "a", "action": "rename", "to": "b" }]);
    check_refused(rename.clone(), r#"{"a": 1, "b": 2}"#, reason);
    check_refused(rename.clone(), r#"{"b": 2, "a": 1}"#, reason);
    check(rename, r#"{"b": 2}"#, r#"{"b": 2}"#);
    let swap = json!([
        { "path": "a", "action": "rename", "to": "b" },
        { "path": "b", "action": "rename", "to": "a" },
    ]);
    check(swap, r#"{"a": 1, "b": 2}"#, r#"{"b": 1, "a": 2}"#);
    let replace = json!([{ "path": "a", "action": "rename", "to": "b" }, { "path": "b", "action": "drop" }]);
    check(replace, r#"{"b": 2, "a": 1}"#, r#"{ "b": 1}"#);
}

#[test]
fn of_several_rules_the_strictest_decides() {
    let rules = json!([
        { "path": "*", "action": "mask", "with": "first" },
        { "path": "a", "action": "mask", "with": "second" },
        { "path": "b", "action": "drop" },
        { "path": "c", "action": "rename", "to": "d" },
        "e.f",
    ]);
    check(rules, r#"{"a": 1, "b": 2, "c": 3, "e": {"f": 4}}"#, r#"{"a": "first", "d": "first", "e": "first"}"#);
    let rename_inside = json!([{ "path": "a", "action": "rename", "to": "b" }, "a.c"]);
    check(rename_inside, r#"{"a": {"c": 1}}"#, r#"{"b": {"c": "***"}}"#);
}

#[test]
fn what_is_not_json_is_rejected_without_being_quoted() {
    check_refused(json!(["a"]), "secret", "value is not JSON: expected a value at byte 0");
    check_refused(json!(["a"]), "", "value is not JSON: expected a value at byte 0");
    check_refused(json!(["a"]), r#"{"a": "secret"} {"a": 2}"#, "value is not JSON: expected the end at byte 16");
    check_refused(json!(["a"]), r#"{"a": 'secret'}"#, "value is not JSON: expected a value at byte 6");
}

#[test]
fn tombstones_pass() {
    assert_eq!(harness(json!(["a"])).decide(Message::tombstone("key")), Outcome::Keep);
}

#[test]
fn only_values_are_wanted() {
    let harness = harness(json!(["a"]));
    assert_eq!(harness.setup().wants, Wants::VALUES);
    assert!(!harness.setup().changes_keys);
}

#[test]
fn the_readmes_examples_are_accepted() {
    let examples: Vec<&str> = include_str!("../README.md").split("```yaml\n").skip(1).collect();
    assert!(!examples.is_empty());
    for example in examples {
        let example = example.split("```").next().unwrap();
        let example: Value = serde_saphyr::from_str(example).unwrap();
        let config = &example["plugins"][0]["config"];
        assert!(config.is_object(), "{example}");
        if let Err(error) = Harness::<MaskFields>::new(&config.to_string()) {
            panic!("{error} in {config}");
        }
    }
}

#[test]
fn wrong_configurations_are_explained() {
    check_config(json!({}), "missing field `fields`");
    check_config(json!({ "fields": [] }), "`fields`: must name at least one field");
    check_config(
        json!({ "fields": ["a", 7] }),
        "`fields[1]`: invalid type: integer `7`, expected a path such as `address.city`, or a map with `path` and `action`",
    );
    check_config(
        json!({ "fields": ["a..b"] }),
        "`fields[0]`: path `a..b` has an empty step; a path is steps joined by dots, such as `address.city`",
    );
    check_config(
        json!({ "fields": [{ "path": "a", "action": "hide" }] }),
        "`fields[0].action`: unknown variant `hide`, expected one of `mask`, `hash`, `drop`, `rename`",
    );
    check_config(
        json!({ "fields": [{ "path": "a", "action": "hash", "with": "x" }] }),
        "`fields[0].with`: goes with action `mask` only",
    );
    check_config(
        json!({ "fields": [{ "path": "a", "action": "hash", "hmac_key": "" }] }),
        "`fields[0].hmac_key`: must not be empty",
    );
    check_config(
        json!({ "fields": [{ "path": "a", "action": "rename" }] }),
        "`fields[0]`: missing field `to`: the new name",
    );
    check_config(
        json!({ "fields": [{ "path": "a.*", "action": "rename", "to": "b" }] }),
        "`fields[0].path`: ends in `*`; only a member with a name can be renamed",
    );
    check_config(
        json!({ "fields": [{ "path": "a.b", "action": "rename", "to": "b" }] }),
        "`fields[0].to`: is `b` already",
    );
    check_config(
        json!({ "fields": [{ "path": "a", "keep_domain": true, "keep_last": 2 }] }),
        "`fields[0].keep_domain`: does not go together with `keep_first` and `keep_last`",
    );
    check_config(json!({ "fields": vec!["a"; 65] }), "`fields`: has 65 fields; at most 64 are allowed");
}

/// A document with few names, so that paths often meet them.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a\"\\\\\u{e4}\u{1f600}\n]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[abc]", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// How a document may be written: with space anywhere, and with escapes for any character.
#[derive(Clone, Debug)]
struct Hand {
    choices: Vec<u8>,
    next: usize,
}

impl Hand {
    fn choose(&mut self) -> u8 {
        self.next += 1;
        self.choices[self.next % self.choices.len()]
    }

    fn space(&mut self, out: &mut String) {
        out.push_str(["", "", " ", "\n\t"][usize::from(self.choose() % 4)]);
    }

    fn write(&mut self, value: &Value, out: &mut String) {
        self.space(out);
        match value {
            Value::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    self.write(item, out);
                }
                self.space(out);
                out.push(']');
            }
            Value::Object(members) => {
                out.push('{');
                for (index, (name, member)) in members.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    self.space(out);
                    self.write_text(name, out);
                    self.space(out);
                    out.push(':');
                    self.write(member, out);
                }
                self.space(out);
                out.push('}');
            }
            Value::String(text) => self.write_text(text, out),
            plain => out.push_str(&plain.to_string()),
        }
        self.space(out);
    }

    fn write_text(&mut self, text: &str, out: &mut String) {
        out.push('"');
        for unit in text.chars() {
            let plain = serde_json::to_string(&unit.to_string()).unwrap();
            if self.choose().is_multiple_of(3) {
                for unit in unit.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            } else {
                out.push_str(&plain[1..plain.len() - 1]);
            }
        }
        out.push('"');
    }
}

fn hand() -> impl Strategy<Value = Hand> {
    prop::collection::vec(any::<u8>(), 1..40).prop_map(|choices| Hand { choices, next: 0 })
}

/// What the plugin should do, on a tree: the naive way.
fn model(value: &Value, rules: &[(Vec<String>, &str)]) -> Value {
    let step = |name: &str, index: Option<usize>| -> (Vec<&str>, Vec<(Vec<String>, &str)>) {
        let mut ends = Vec::new();
        let mut inside = Vec::new();
        for (path, action) in rules {
            let matches = path[0] == "*" || path[0] == index.map_or(name.into(), |index| index.to_string());
            match (matches, path.len()) {
                (false, _) => {}
                (true, 1) => ends.push(*action),
                (true, _) => inside.push((path[1..].to_vec(), *action)),
            }
        }
        (ends, inside)
    };
    let item = |item: &Value, (ends, inside): (Vec<&str>, Vec<(Vec<String>, &str)>)| {
        if ends.contains(&"drop") {
            return None;
        }
        if ends.contains(&"mask") {
            return Some(if item.is_null() { Value::Null } else { json!("***") });
        }
        Some(model(item, &inside))
    };
    match value {
        Value::Array(items) => {
            items.iter().enumerate().filter_map(|(index, element)| item(element, step("", Some(index)))).collect()
        }
        Value::Object(members) => {
            let members = members.iter();
            let members = members.filter_map(|(name, member)| Some((name.clone(), item(member, step(name, None))?)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        plain => plain.clone(),
    }
}

fn rules() -> impl Strategy<Value = Vec<(Vec<String>, &'static str)>> {
    let path = prop::collection::vec("[abc*01]", 1..4);
    let action = prop_oneof![Just("mask"), Just("mask"), Just("drop")];
    prop::collection::vec((path, action), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn edits_equal_those_on_a_tree(document in document(), rules in rules(), mut hand in hand()) {
        let fields: Value = rules
            .iter()
            .map(|(path, action)| json!({ "path": path.join("."), "action": action }))
            .collect();
        let mut written = String::new();
        hand.write(&document, &mut written);
        let expected = model(&document, &rules);
        match harness(fields).decide(Message::new("key", &written)) {
            Outcome::Keep => prop_assert_eq!(expected, document),
            Outcome::SetValue(Some(edited)) => {
                let edited: Value = serde_json::from_slice(&edited.0).unwrap();
                prop_assert_eq!(edited.to_string(), expected.to_string(), "from {}", written);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn a_broken_document_is_rejected_or_masked(
        document in document(),
        mut hand in hand(),
        at in any::<prop::sample::Index>(),
        byte in prop_oneof![any::<u8>(), Just(b'"'), Just(b'\\'), Just(b','), Just(b'{'), Just(b'}')],
    ) {
        let mut written = String::new();
        hand.write(&json!({ "a": "secret", "b": document, "\u{61}": ["secret"], "c": { "a": "secret" } }), &mut written);
        let mut broken = written.into_bytes();
        let at = at.index(broken.len());
        broken[at] = byte;
        let outcome = harness(json!(["a", "*.a"])).decide(Message::new("key", &broken));
        match (serde_json::from_slice::<serde::de::IgnoredAny>(&broken), outcome) {
            (Err(_), outcome) => prop_assert!(matches!(outcome, Outcome::Reject(_))),
            (Ok(_), Outcome::Reject(reason)) => prop_assert!(std::str::from_utf8(&broken).is_err(), "{}", reason),
            (Ok(_), Outcome::SetValue(Some(edited))) => {
                // A lone surrogate in a text that is not masked stays as it came: JSON by its grammar, and no text to compare.
                let Ok(edited) = serde_json::from_slice::<Value>(&edited.0) else {
                    prop_assert!(serde_json::from_slice::<Value>(&broken).is_err());
                    return Ok(());
                };
                for (place, value) in [("a", &edited["a"]), ("c.a", &edited["c"]["a"])] {
                    prop_assert!(value.is_null() || value == "***", "{} is {}", place, value);
                }
            }
            // The byte may have given `a` another name everywhere, or have been what it was.
            (Ok(_), outcome) => prop_assert_eq!(outcome, Outcome::Keep),
        }
    }
}
