//! The plugin as a whole, by example and by property.

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_plugin::Wants;
use tidegate_plugin::harness::{Harness, Message, Outcome};

use crate::KeyCheck;

const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

fn decide(config: Value, key: impl AsRef<[u8]>) -> Outcome {
    Harness::<KeyCheck>::new(&config.to_string()).unwrap().decide(Message::new(key, "value"))
}

#[track_caller]
fn check_refused(config: Value, key: impl AsRef<[u8]>, reason: &str) {
    assert_eq!(decide(config, key), Outcome::Reject(reason.into()));
}

#[track_caller]
fn check_config(config: Value, expected: &str) {
    let error = Harness::<KeyCheck>::new(&config.to_string()).err().unwrap();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn by_default_only_a_null_key_is_refused() {
    assert_eq!(decide(json!({}), b"\xff"), Outcome::Keep);
    assert_eq!(decide(json!({}), ""), Outcome::Keep);
    let null = |config: Value| {
        let message = Message::new("", "value").without_key();
        Harness::<KeyCheck>::new(&config.to_string()).unwrap().decide(message)
    };
    assert_eq!(null(json!({})), Outcome::Reject("key is null".into()));
    assert_eq!(null(json!({ "null_key": "pass", "min_length": 1 })), Outcome::Keep);
    assert_eq!(null(json!({ "null_key": "drop" })), Outcome::Drop);
}

#[test]
fn lengths_are_bytes() {
    let config = || json!({ "min_length": 2, "max_length": 3 });
    assert_eq!(decide(config(), "ab"), Outcome::Keep);
    assert_eq!(decide(config(), "\u{e4}"), Outcome::Keep);
    check_refused(config(), "a", "key has 1 bytes; at least 2 are needed");
    check_refused(config(), "abcd", "key has 4 bytes; at most 3 are allowed");
    check_refused(json!({ "min_length": 1 }), "", "key has 0 bytes; at least 1 are needed");
}

#[test]
fn formats_are_checked() {
    check_refused(json!({ "format": "utf8" }), b"a\xff", "key is not UTF-8");
    assert_eq!(decide(json!({ "format": "utf8" }), "\u{e4}"), Outcome::Keep);
    let uuid = || json!({ "format": "uuid" });
    assert_eq!(decide(uuid(), UUID), Outcome::Keep);
    assert_eq!(decide(uuid(), UUID.to_uppercase()), Outcome::Keep);
    for wrong in ["", "67e55044", &UUID.replace('-', ""), &format!("{{{UUID}}}"), &UUID.replace('6', "g")] {
        check_refused(uuid(), wrong, "key is not a UUID");
    }
}

#[test]
fn a_pattern_matches_the_whole_key() {
    let config = |pattern: &str| json!({ "pattern": pattern });
    assert_eq!(decide(config("[a-z]+"), "abc"), Outcome::Keep);
    check_refused(config("[a-z]+"), "abc1", "key does not match the pattern");
    check_refused(config("[a-z]+"), "abc\n", "key does not match the pattern");
    check_refused(config("a|b"), "ab", "key does not match the pattern");
    check_refused(config(".*"), b"\xff", "key is not UTF-8");
}

#[test]
fn keys_are_normalised_before_they_are_checked() {
    let config = || json!({ "normalise": ["trim", "lowercase"], "pattern": "[a-z]+", "max_length": 3 });
    assert_eq!(decide(config(), "  AbC\n"), Outcome::key("abc"));
    assert_eq!(decide(config(), "abc"), Outcome::Keep);
    check_refused(config(), " a1 ", "key does not match the pattern");
    assert_eq!(decide(json!({ "normalise": ["lowercase"] }), "\u{c4}"), Outcome::key("\u{e4}"));
    assert_eq!(decide(json!({ "normalise": ["lowercase"] }), "\u{e4}"), Outcome::Keep);
    assert_eq!(decide(json!({ "normalise": ["trim"] }), "  "), Outcome::key(""));
}

#[test]
fn each_way_to_write_a_uuid_has_one_normal_form() {
    let config = || json!({ "normalise": ["trim", "uuid"] });
    let written = [
        UUID.to_uppercase(),
        UUID.replace('-', ""),
        format!("{{{UUID}}}"),
        format!("urn:uuid:{UUID}"),
        format!(" {UUID}"),
    ];
    for key in written {
        assert_eq!(decide(config(), key), Outcome::key(UUID));
    }
    assert_eq!(decide(config(), UUID), Outcome::Keep);
    check_refused(config(), "abc", "key is not a UUID");
}

#[test]
fn a_tombstone_gets_the_same_key_as_its_record() {
    let mut harness = Harness::<KeyCheck>::new(r#"{"normalise": ["lowercase"]}"#).unwrap();
    let outcomes = harness.process([Message::new("A", "1"), Message::tombstone("A")]);
    assert_eq!(outcomes, [Outcome::key("a"), Outcome::key("a")]);
}

#[test]
fn only_keys_are_wanted_and_changes_are_announced() {
    let setup = |config: &str| {
        let harness = Harness::<KeyCheck>::new(config).unwrap();
        (harness.setup().wants, harness.setup().changes_keys)
    };
    assert_eq!(setup("{}"), (Wants::KEYS, false));
    assert_eq!(setup(r#"{"normalise": ["trim"]}"#), (Wants::KEYS, true));
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
        if let Err(error) = Harness::<KeyCheck>::new(&config.to_string()) {
            panic!("{error} in {config}");
        }
    }
}

#[test]
fn wrong_configurations_are_explained() {
    check_config(
        json!({ "pattern": ")(" }),
        "`pattern`: `)(` is no regular expression: found closing ')' without matching '('",
    );
    check_config(json!({ "min_length": 3, "max_length": 2 }), "`max_length`: is 2, less than `min_length`, which is 3");
    check_config(
        json!({ "normalise": ["trim", "upper"] }),
        "`normalise[1]`: unknown variant `upper`, expected one of `trim`, `lowercase`, `uuid`",
    );
    check_config(
        json!({ "format": "int" }),
        "`format`: unknown variant `int`, expected one of `bytes`, `utf8`, `uuid`",
    );
}

proptest! {
    #[test]
    fn a_normal_key_stays(key in "\\PC{0,12}", steps in prop::sample::subsequence(vec!["trim", "lowercase"], 0..3)) {
        let config = json!({ "normalise": steps });
        let normal = match decide(config.clone(), &key) {
            Outcome::Keep => key.into_bytes(),
            Outcome::Replace(changed) => changed.key.unwrap().unwrap().0,
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        prop_assert_eq!(decide(config, normal), Outcome::Keep);
    }
}
