//! The plugin as a whole, by example and against a naive model.

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_plugin::Wants;
use tidegate_plugin::harness::{Harness, Message, Outcome};

use crate::Filter;

fn harness(config: Value) -> Harness<Filter> {
    Harness::new(&config.to_string()).unwrap()
}

#[track_caller]
fn check(condition: Value, message: Message, holds: bool) {
    let outcomes = [Outcome::Drop, Outcome::Keep];
    let kept = harness(json!({ "keep": condition })).decide(message.clone());
    assert_eq!(kept, outcomes[usize::from(holds)]);
    let dropped = harness(json!({ "drop": condition })).decide(message);
    assert_eq!(dropped, outcomes[usize::from(!holds)]);
}

fn value(value: &str) -> Message {
    Message::new("key", value)
}

#[track_caller]
fn check_config(config: Value, expected: &str) {
    let error = Harness::<Filter>::new(&config.to_string()).err().unwrap();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn keys_are_tested_as_bytes() {
    let key = |key: &[u8]| Message::new(key, "x");
    check(json!({ "key": { "prefix": "test-" } }), key(b"test-1"), true);
    check(json!({ "key": { "prefix": "test-" } }), key(b"tes"), false);
    check(json!({ "key": { "equals": "a" } }), key(b"a"), true);
    check(json!({ "key": { "equals": "" } }), key(b""), true);
    check(json!({ "key": { "in": ["a", "b"], "prefix": "b" } }), key(b"b"), true);
    check(json!({ "key": { "in": ["a", "b"], "prefix": "b" } }), key(b"a"), false);
    check(json!({ "key": { "regex": "^[0-9]+$" } }), key(b"42"), true);
    check(json!({ "key": { "regex": "[0-9]" } }), key(b"a4b"), true);
    check(json!({ "key": { "regex": "." } }), key(b"a\xff"), false);
    check(json!({ "key": { "prefix": "a" } }), key(b"a\xff"), true);
}

#[test]
fn a_null_key_passes_only_the_test_for_it() {
    let null = || Message::new("", "x").without_key();
    check(json!({ "key": { "exists": false } }), null(), true);
    check(json!({ "key": { "exists": true } }), null(), false);
    check(json!({ "key": { "equals": "" } }), null(), false);
    check(json!({ "key": { "exists": true } }), Message::new("", "x"), true);
    check(json!({ "key": { "exists": false } }), Message::new("", "x"), false);
}

#[test]
fn the_last_header_of_a_name_counts() {
    let message = || {
        value("x").with_header("source", Some(b"crm")).with_header("source", Some(b"web")).with_header("empty", None)
    };
    check(json!({ "header": { "name": "source", "equals": "web" } }), message(), true);
    check(json!({ "header": { "name": "source", "equals": "crm" } }), message(), false);
    check(json!({ "header": { "name": "Source", "exists": true } }), message(), false);
    check(json!({ "header": { "name": "other", "exists": false } }), message(), true);
    check(json!({ "header": { "name": "empty", "exists": true } }), message(), true);
    check(json!({ "header": { "name": "empty", "exists": false } }), message(), false);
    check(json!({ "header": { "name": "empty", "equals": "" } }), message(), false);
    check(json!({ "header": { "name": "empty", "prefix": "" } }), message(), false);
}

#[test]
fn fields_are_tested_by_what_they_say() {
    let message = || value(r#"{"name": "\u0041nn", "age": 41.0, "ok": true, "none": null, "list": [1, {"x": "y"}]}"#);
    let field = |path: &str, test: Value| {
        let mut field = json!({ "path": path });
        field.as_object_mut().unwrap().extend(test.as_object().unwrap().clone());
        json!({ "field": field })
    };
    check(field("name", json!({ "equals": "Ann" })), message(), true);
    check(field("name", json!({ "equals": "ann" })), message(), false);
    check(field("name", json!({ "in": ["Bob", "Ann"] })), message(), true);
    check(field("name", json!({ "prefix": "A", "regex": "n{2}" })), message(), true);
    check(field("name", json!({ "at_least": 0 })), message(), false);
    check(field("age", json!({ "equals": 41 })), message(), true);
    check(field("age", json!({ "equals": "41.0" })), message(), false);
    check(field("age", json!({ "at_least": 41, "at_most": 41 })), message(), true);
    check(field("age", json!({ "greater_than": 41 })), message(), false);
    check(field("age", json!({ "less_than": 41.5 })), message(), true);
    check(field("age", json!({ "regex": "4" })), message(), false);
    check(field("ok", json!({ "equals": true })), message(), true);
    check(field("ok", json!({ "in": [false, null] })), message(), false);
    check(field("none", json!({ "equals": null })), message(), true);
    check(field("none", json!({ "exists": true })), message(), true);
    check(field("none.x", json!({ "exists": true })), message(), false);
    check(field("gone", json!({ "equals": null })), message(), false);
    check(field("gone", json!({ "exists": false })), message(), true);
    check(field("list", json!({ "exists": true })), message(), true);
    check(field("list.0", json!({ "equals": 1 })), message(), true);
    check(field("list.*.x", json!({ "equals": "y" })), message(), true);
    check(field("list.*", json!({ "equals": 2 })), message(), false);
}

#[test]
fn conditions_combine() {
    let both = json!({ "all": [
        { "key": { "prefix": "k" } },
        { "not": { "any": [
            { "field": { "path": "a", "equals": 1 } },
            { "field": { "path": "a", "equals": 2 } },
        ] } },
    ] });
    check(both.clone(), value(r#"{"a": 3}"#), true);
    check(both.clone(), value(r#"{"a": 2}"#), false);
    check(both, Message::new("other", r#"{"a": 3}"#), false);
}

#[test]
fn tombstones_pass_unless_asked_otherwise() {
    let outcome = |tombstones: &str| {
        let config = json!({ "keep": { "field": { "path": "a", "equals": 1 } }, "tombstones": tombstones });
        harness(config).decide(Message::tombstone("k"))
    };
    let config = json!({ "keep": { "field": { "path": "a", "equals": 1 } } });
    assert_eq!(harness(config).decide(Message::tombstone("k")), Outcome::Keep);
    assert_eq!(outcome("pass"), Outcome::Keep);
    assert_eq!(outcome("drop"), Outcome::Drop);
    assert_eq!(outcome("reject"), Outcome::Reject("record is a tombstone".into()));
    assert_eq!(outcome("test"), Outcome::Drop);
    let config = json!({ "keep": { "key": { "equals": "k" } }, "tombstones": "test" });
    assert_eq!(harness(config).decide(Message::tombstone("k")), Outcome::Keep);
}

#[test]
fn a_value_is_to_be_json_only_where_a_field_is_needed() {
    let condition = json!({ "any": [{ "key": { "equals": "k" } }, { "field": { "path": "a", "equals": 1 } }] });
    let outcome = |key: &str, not_json: &str| {
        harness(json!({ "keep": condition, "not_json": not_json })).decide(Message::new(key, "{\"a\": 1"))
    };
    let reason = "value is not JSON: expected `,` or `}` at byte 7";
    assert_eq!(outcome("other", "reject"), Outcome::Reject(reason.into()));
    assert_eq!(outcome("other", "keep"), Outcome::Keep);
    assert_eq!(outcome("other", "drop"), Outcome::Drop);
    assert_eq!(outcome("k", "reject"), Outcome::Keep);
    let default = harness(json!({ "keep": condition })).decide(value(""));
    assert_eq!(default, Outcome::Reject("value is not JSON: expected a value at byte 0".into()));
}

#[test]
fn only_what_is_tested_is_wanted() {
    let wants = |config| harness(config).setup().wants;
    let key = json!({ "not": { "key": { "equals": "k" } } });
    let header = json!({ "any": [{ "header": { "name": "h", "exists": true } }] });
    let field = json!({ "field": { "path": "a", "exists": true } });
    assert_eq!(wants(json!({ "keep": key })), Wants::KEYS | Wants::VALUES);
    assert_eq!(wants(json!({ "keep": key, "tombstones": "test" })), Wants::KEYS);
    assert_eq!(wants(json!({ "drop": header, "tombstones": "test" })), Wants::HEADERS);
    assert_eq!(wants(json!({ "drop": field, "tombstones": "test" })), Wants::VALUES);
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
        if let Err(error) = Harness::<Filter>::new(&config.to_string()) {
            panic!("{error} in {config}");
        }
    }
}

#[test]
fn wrong_configurations_are_explained() {
    check_config(json!({}), "missing a condition: `keep` or `drop`");
    let condition = json!({ "key": { "equals": "k" } });
    check_config(
        json!({ "keep": condition, "drop": condition }),
        "`drop`: does not go together with `keep`; use `all` and `not`",
    );
    check_config(
        json!({ "keep": { "feild": {} } }),
        "`keep`: unknown variant `feild`, expected one of `all`, `any`, `not`, `key`, `header`, `field`",
    );
    check_config(json!({ "keep": { "all": [] } }), "`keep.all`: must hold at least one condition");
    check_config(
        json!({ "keep": { "any": [condition, { "not": { "key": {} } }] } }),
        "`keep.any[1].not.key`: has no test, such as `equals` or `exists`",
    );
    check_config(
        json!({ "keep": { "key": { "exists": false, "prefix": "a" } } }),
        "`keep.key.exists`: `false` does not go together with other tests",
    );
    check_config(
        json!({ "keep": { "field": { "path": "a", "equals": [1] } } }),
        "`keep.field.equals`: must be a string, number, boolean or null",
    );
    check_config(
        json!({ "keep": { "field": { "path": "a", "equals": 1, "in": [2] } } }),
        "`keep.field.in`: does not go together with `equals`",
    );
    check_config(json!({ "keep": { "key": { "in": [] } } }), "`keep.key.in`: must hold at least one value");
    check_config(
        json!({ "keep": { "key": { "regex": "(" } } }),
        "`keep.key.regex`: `(` is no regular expression: found open group without closing ')'",
    );
    check_config(
        json!({ "keep": condition, "tombstones": "skip" }),
        "`tombstones`: unknown variant `skip`, expected one of `pass`, `drop`, `reject`, `test`",
    );
    let many = vec![json!({ "field": { "path": "a", "exists": true } }); 65];
    check_config(json!({ "keep": { "all": many } }), "`keep`: has 65 conditions on fields; at most 64 are allowed");
}

/// A condition on the fields `a` to `c`, which are there or not, and what it should be for a document.
fn condition() -> impl Strategy<Value = Value> {
    let leaf = (
        "[abc]",
        prop_oneof![
            any::<bool>().prop_map(|exists| json!({ "exists": exists })),
            (0..3).prop_map(|number| json!({ "equals": number })),
            (0..3).prop_map(|number| json!({ "at_least": number })),
        ],
    );
    let leaf = leaf.prop_map(|(path, mut test)| {
        test["path"] = path.into();
        json!({ "field": test })
    });
    leaf.prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|conditions| json!({ "all": conditions })),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|conditions| json!({ "any": conditions })),
            inner.prop_map(|condition| json!({ "not": condition })),
        ]
    })
}

fn model(condition: &Value, document: &Value) -> bool {
    let (name, inner) = condition.as_object().unwrap().iter().next().unwrap();
    match name.as_str() {
        "all" => inner.as_array().unwrap().iter().all(|condition| model(condition, document)),
        "any" => inner.as_array().unwrap().iter().any(|condition| model(condition, document)),
        "not" => !model(inner, document),
        _ => {
            let field = document.get(inner["path"].as_str().unwrap());
            match (inner.get("exists"), inner.get("equals"), inner.get("at_least")) {
                (Some(exists), _, _) => field.is_some() == exists.as_bool().unwrap(),
                (_, Some(equals), _) => field == Some(equals),
                (_, _, at_least) => field.is_some_and(|field| field.as_i64() >= at_least.unwrap().as_i64()),
            }
        }
    }
}

proptest! {
    #[test]
    fn conditions_hold_as_in_the_model(
        condition in condition(),
        fields in prop::collection::btree_map("[abc]", 0..3_i64, 0..4),
    ) {
        let document = json!(fields);
        let holds = model(&condition, &document);
        check(condition, value(&document.to_string()), holds);
    }
}
