//! What honest plugins make of deliveries, one after the other.

use tidegate::config::KeyFormat;
use tidegate::delivery::Stage;

use super::*;

fn values(delivery: &Delivery) -> Vec<(i64, String)> {
    let written = delivery.outputs().filter(|output| *output.fate == Fate::Write);
    written
        .map(|output| {
            (output.record.offset, String::from_utf8_lossy(output.record.value.unwrap_or(b"null")).into_owned())
        })
        .collect()
}

/// Null, empty and absent, headers twice: byte for byte, and without a copy.
#[test]
fn what_is_kept_is_as_it_came() {
    let mut input = Batch::new(TopicPartition::new("t", 0));
    for (offset, (key, value)) in
        [(None, None), (Some(&b""[..]), Some(&b""[..])), (Some(b"\xff\0"), None), (None, Some(b"\0\xfe"))]
            .into_iter()
            .enumerate()
    {
        input.push(offset as i64, -1, key, value);
        input.push_header(b"", None);
        input.push_header(b"", Some(b""));
        input.push_header(b"\xff", Some(b"\0"));
    }
    input.push(9, 0, None, None);
    let mut bench = Bench::new(&vec![use_guest("identity.wasm", "{}"); 3]);
    let delivery = bench.run(input.clone());
    assert_eq!(*delivery.rows(), input);
    assert!(std::ptr::eq(delivery.rows(), delivery.input()), "nothing was copied");
    assert_eq!(bench.metric("records_kept", ""), 5);
}

#[test]
fn an_empty_batch_passes() {
    let mut bench = Bench::new(&[use_guest("identity.wasm", "{}")]);
    assert_eq!(bench.run(Batch::new(TopicPartition::new("t", 0))).rows().len(), 0);
}

/// A guest is given no more at once than a share of its memory, and its calls are cut by number as well.
#[test]
fn a_large_batch_is_given_in_several_calls() {
    let mut input = Batch::new(TopicPartition::new("t", 0));
    let value = vec![b'v'; 8 << 10];
    for offset in 0..10_000 {
        input.push(offset, 0, None, Some(&value));
    }
    let mut bench = Bench::new(&[use_guest("identity.wasm", "{}")]);
    let delivery = bench.run(input.clone());
    assert_eq!(rejected(&delivery), []);
    assert_eq!(*delivery.rows(), input);
}

#[test]
fn a_chain_checks_filters_and_masks() {
    let keys = Keys { missing: MissingKey::DeadLetter, format: Some(KeyFormat::Utf8), malformed: OnError::Drop };
    let plugins = [
        use_guest("key_check.wasm", r#"{"pattern": "[a-z0-9-]+"}"#),
        use_guest("filter.wasm", r#"{"keep": {"field": {"path": "country", "equals": "DE"}}}"#),
        use_guest("mask_fields.wasm", r#"{"fields": ["email"]}"#),
    ];
    let mut input = Batch::new(TopicPartition::new("t", 0));
    let de = br#"{"country": "DE",  "email": "a@b.c"}"#;
    input.push(10, 0, Some(b"a"), Some(de));
    input.push(11, 0, None, Some(de));
    input.push(12, 0, Some(b"b"), Some(br#"{"country": "FR", "email": "a@b.c"}"#));
    input.push(13, 0, Some(b"Not good"), Some(de));
    input.push(14, 0, Some(b"\xff"), Some(de));
    input.push(15, 0, Some(b"c"), None);
    input.push(16, 0, Some(b"d"), Some(b"not json"));
    input.push(17, 0, Some(b"e"), Some(de));
    let mut bench = Bench::on(&engine(), &keys, &plugins).unwrap_or_else(|error| panic!("{error}"));
    let delivery = bench.run(input.clone());

    let masked = r#"{"country": "DE",  "email": "***"}"#.to_owned();
    assert_eq!(values(&delivery), [(10, masked.clone()), (15, "null".to_owned()), (17, masked)]);
    let fate = |row: usize| delivery.fate(row).clone();
    assert_eq!(rejection(&fate(1)).unwrap().stage, Stage::Key);
    assert_eq!(fate(2), Fate::Drop);
    assert!(matches!(&rejection(&fate(3)).unwrap().stage, Stage::Plugin { name, .. } if &**name == "key_check"));
    let malformed = fate(4);
    let malformed = rejection(&malformed).unwrap();
    assert_eq!((&malformed.stage, malformed.policy, malformed.attempts), (&Stage::Key, OnError::Drop, 1));
    assert!(matches!(&rejection(&fate(6)).unwrap().stage, Stage::Plugin { name, .. } if &**name == "filter"));
    for (row, output) in delivery.outputs().enumerate() {
        assert_eq!(output.origin_index as usize, row);
        assert_eq!(output.origin.offset, output.record.offset);
    }
    assert_eq!(*delivery.input(), input, "the input stays for dead letters");
    let count = |name| bench.metric(name, "");
    let counts = ["records_kept", "records_changed", "records_dropped", "records_rejected"].map(count);
    assert_eq!(counts, [1, 2, 1, 4]);
    assert_eq!(bench.metric("errors", ",kind=\"key\""), 2);
    assert_eq!(bench.metric("errors", ",kind=\"plugin_reject\""), 2);
}

/// What is guilty in the second plugin is named by it, and what the first one changed stays changed.
#[test]
fn each_plugin_of_a_chain_answers_for_itself() {
    let plugins = [
        use_guest("mask_fields.wasm", r#"{"fields": ["email"]}"#),
        PluginUse { on_error: OnError::Halt, ..use_guest("hostile.wasm", "{}") },
        use_guest("identity.wasm", "{}"),
    ];
    let mut input = Batch::new(TopicPartition::new("t", 0));
    for offset in 0..100 {
        let key = if offset == 42 { "trap" } else { "good" };
        input.push(offset, 0, Some(key.as_bytes()), Some(br#"{"email": "a@b.c"}"#));
    }
    let delivery = Bench::new(&plugins).run(input);
    let guilty = rejected(&delivery);
    assert_eq!(guilty.len(), 1);
    let rejection = rejection(delivery.fate(42)).unwrap();
    assert!(matches!(&rejection.stage, Stage::Plugin { name, .. } if &**name == "hostile"));
    assert_eq!(rejection.policy, OnError::Halt);
    assert!(delivery.rows().iter().all(|record| record.value == Some(br#"{"email": "***"}"#)));
}

/// Runs without any plugin judge keys alone.
#[test]
fn a_chain_without_plugins_judges_keys() {
    let keys = Keys { missing: MissingKey::Drop, format: Some(KeyFormat::Integer), malformed: OnError::DeadLetter };
    let mut input = Batch::new(TopicPartition::new("t", 0));
    input.push(0, 0, Some(b"1"), None);
    input.push(1, 0, None, None);
    input.push(2, 0, Some(b"x"), None);
    let mut bench = Bench::on(&engine(), &keys, &[]).unwrap();
    let delivery = bench.run(input);
    assert_eq!(delivery.fate(0), &Fate::Write);
    assert_eq!(delivery.fate(1), &Fate::Drop);
    assert_eq!(rejection(delivery.fate(2)).unwrap().cause, "the key is not a decimal integer");
}
