//! Deletes, keys and the difference between null, empty and absent, from the topic to each sink.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::harness::read::{lines, positions, segments, sqlite};
use super::harness::{Broker, Producer, Receiver, Record, Site, Topic, eventually, route, route_from};

const LIMIT: Duration = Duration::from_secs(60);

const FILE: &str = r#"  audit: { type: file, path: "audit/{topic}.ndjson" }"#;
const SQLITE: &str = "  db: { type: sqlite, path: r.db, table: profiles }";

fn http(receiver: &Receiver) -> String {
    format!(
        r#"  crm: {{ type: http, url: "{}", delete: DELETE, retry: {{ backoff: 50ms, max: 200ms }} }}"#,
        receiver.url()
    )
}

fn rows(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Runs the route until its snapshot is delivered, and stops it.
fn deliver(site: &Site) {
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    gateway.stop();
}

fn database(site: &Site) -> BTreeMap<String, String> {
    sqlite(&site.path("r.db"), "profiles")
}

fn dead(site: &Site, sink: &str) -> PathBuf {
    site.path(format!("dead/r.{sink}.ndjson"))
}

#[test]
fn a_topic_may_begin_with_a_tombstone_and_end_with_one() {
    let topic = Topic::compacted(Broker::shared(), 1);
    let records = [Record::delete("never"), Record::put("k1", r#"{"n":1}"#), Record::delete("k1")];
    Producer::new(topic.broker).write(&topic, records);
    let receiver = Receiver::start();
    let site = Site::new(topic.broker, &route(&topic, &["sinks:", FILE, SQLITE, &http(&receiver)]));
    deliver(&site);

    assert_eq!(database(&site), rows(&[]));
    assert_eq!(receiver.state(), rows(&[]));
    let requests = receiver.requests();
    let last = requests.iter().rev().find(|request| request.key == b"k1").expect("a request for k1");
    assert_eq!(last.method, "DELETE");
    let lines = lines(&site.path("audit"));
    assert_eq!(positions(&lines), [(0, 0), (0, 1), (0, 2)]);
    assert!(lines[0]["value"].is_null() && lines[2]["value"].is_null(), "{lines:?}");
}

#[test]
fn upserts_and_deletes_of_one_key_in_one_batch_keep_their_order() {
    let topic = Topic::compacted(Broker::shared(), 1);
    let mut records = vec![
        Record::put("a", "1"),
        Record::put("b", "1"),
        Record::delete("a"),
        Record::delete("b"),
        Record::put("a", "2"),
        Record::delete("c"),
        Record::put("c", "1"),
    ];
    // Once more in one batch that no sink can write at once.
    records.extend((0..5000).map(|n| if n % 3 == 1 { Record::delete("d") } else { Record::put("d", n.to_string()) }));
    Producer::new(topic.broker).write(&topic, records);
    let receiver = Receiver::start();
    let site = Site::new(topic.broker, &route(&topic, &["sinks:", FILE, SQLITE, &http(&receiver)]));
    deliver(&site);

    // The last of `d`, number 4,999, is a tombstone.
    let expected = rows(&[("a", "2"), ("c", "1")]);
    assert_eq!(database(&site), expected);
    assert_eq!(receiver.state(), expected);
    receiver.assert_order();
    assert_eq!(positions(&lines(&site.path("audit"))), (0..5007).map(|offset| (0, offset)).collect::<Vec<_>>());
}

#[test]
fn a_key_is_one_segment_of_the_address_whatever_it_holds() {
    let topic = Topic::compacted(Broker::shared(), 1);
    let keys =
        ["a/b", "a?x=1", "../admin", "%2e%2e", "é", "a b", "a+b", "a#b", "a;b", r"a\b", "...", "\u{7f}", "a\nb", "😀"];
    let writes = keys.iter().map(|key| Record::put(key, "1"));
    let producer = Producer::new(topic.broker);
    producer.write(&topic, writes);
    let receiver = Receiver::start();
    let site = Site::new(topic.broker, &route(&topic, &["sinks:", &http(&receiver)]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    assert_eq!(receiver.state(), keys.iter().map(|key| ((*key).to_owned(), "1".to_owned())).collect());

    producer.write(&topic, keys.iter().map(Record::delete));
    eventually("every key deleted", LIMIT, &rows(&[]), || receiver.state());
    gateway.stop();
    let requests = receiver.requests();
    for request in &requests {
        assert_eq!(request.path.matches('/').count(), 2, "`{}` is one segment below /profiles", request.path);
        let twins = requests.iter().filter(|other| other.path == request.path).count();
        assert_eq!(twins, 2, "PUT and DELETE of `{}` have the same address", request.path);
    }
}

#[test]
fn keys_that_no_address_can_hold_become_dead_letters_without_a_request() {
    let topic = Topic::compacted(Broker::shared(), 1);
    let keys = [".", "..", "", "good"];
    Producer::new(topic.broker).write(&topic, keys.map(|key| Record::put(key, "1")));
    let receiver = Receiver::start();
    let site = Site::new(topic.broker, &route(&topic, &["sinks:", &http(&receiver)]));
    deliver(&site);

    assert_eq!(receiver.request_count(), 1);
    assert_eq!(receiver.state(), rows(&[("good", "1")]));
    let letters = lines(&dead(&site, "crm"));
    assert_eq!(positions(&letters), [(0, 0), (0, 1), (0, 2)]);
    assert!(letters.iter().all(|letter| letter["stage"] == "sink"), "{letters:?}");
}

#[test]
fn a_record_without_a_key_goes_the_way_that_the_source_says() {
    let topic = Topic::deleting(Broker::shared(), 1);
    let records = [Record::put("a", "1"), Record::without_key("2"), Record::put("b", "3"), Record::put("", "4")];
    Producer::new(topic.broker).write(&topic, records);
    let sinks = ["sinks:", FILE, SQLITE];
    let site = |missing: &str| {
        let source = format!("keys: {{ missing: {missing} }}");
        Site::new(topic.broker, &route_from(&topic, &source, &sinks).replace("group: ", &format!("group: {missing}-")))
    };
    let all_but_one = rows(&[("", "4"), ("a", "1"), ("b", "3")]);

    let dead_letter = site("dead_letter");
    deliver(&dead_letter);
    assert_eq!(database(&dead_letter), all_but_one);
    assert_eq!(positions(&lines(&dead_letter.path("audit"))), [(0, 0), (0, 2), (0, 3)]);
    for sink in ["db", "audit"] {
        let letters = lines(&dead(&dead_letter, sink));
        assert_eq!(positions(&letters), [(0, 1)]);
        assert_eq!((&letters[0]["stage"], &letters[0]["value"]), (&json!("key"), &json!(2)));
        assert!(letters[0].get("key").is_none(), "a missing key is absent, not empty: {letters:?}");
    }

    let dropped = site("drop");
    deliver(&dropped);
    assert_eq!(database(&dropped), all_but_one);
    assert!(!dead(&dropped, "db").exists());

    // A log sink can hold it; a sink by key cannot.
    let passed = site("pass");
    deliver(&passed);
    assert_eq!(database(&passed), all_but_one);
    assert_eq!(positions(&lines(&passed.path("audit"))), [(0, 0), (0, 1), (0, 2), (0, 3)]);
    assert_eq!(positions(&lines(&dead(&passed, "db"))), [(0, 1)]);

    let halted = site("halt");
    let mut gateway = halted.start();
    let lane = gateway.wait_halted("db", LIMIT);
    let halt = lane.halt.expect("a halted lane says where and why");
    assert_eq!((halt.partition, halt.offset, halt.stage.as_str()), (Some(0), Some(1), "key"));
    gateway.stop();
    assert!(!database(&halted).contains_key("b"), "nothing behind it is delivered: {:?}", database(&halted));
    // Told to pass it, the lane goes on from there.
    halted.rewrite(&halted.yaml().replace("missing: halt", "missing: drop"));
    deliver(&halted);
    assert_eq!(database(&halted), all_but_one);
    assert_eq!(positions(&lines(&halted.path("audit"))), [(0, 0), (0, 2), (0, 3)]);
}

#[test]
fn a_key_of_another_form_becomes_a_dead_letter() {
    let topic = Topic::compacted(Broker::shared(), 1);
    let good = "8c1f0f5e-6a4c-4f4e-9d5b-3a1f2b4c5d6e";
    let records =
        [Record::put(good, "1"), Record::put("not-a-uuid", "2"), Record::put(b"\xff\xfe", "3"), Record::put("", "4")];
    Producer::new(topic.broker).write(&topic, records);
    let routes = route_from(&topic, "keys: { format: uuid }", &["sinks:", SQLITE]);
    let site = Site::new(topic.broker, &routes);
    deliver(&site);
    assert_eq!(database(&site), rows(&[(good, "1")]));
    let letters = lines(&dead(&site, "db"));
    assert_eq!(positions(&letters), [(0, 1), (0, 2), (0, 3)]);
    assert_eq!(letters[1]["key_base64"], "//4=", "the record's bytes are kept: {}", letters[1]);
}

#[test]
fn null_empty_and_absent_stay_apart_in_every_sink() {
    let topic = Topic::compacted(Broker::shared(), 1);
    let records = [
        Record::put("empty", ""),
        Record::put("null-text", "null"),
        Record::put("bytes", b"\x00\xff"),
        Record::put("json", r#"{ "b" : 1,"a":1.50, "a": "\u00e9" }"#),
        Record::put("lines", "{\n}"),
        Record::delete("gone"),
        Record::put("headers", "1")
            .header("h", None)
            .header("h", Some(b""))
            .header("h", Some(b"\xff"))
            .header("", Some(b"x")),
    ];
    Producer::new(topic.broker).write(&topic, records);
    let receiver = Receiver::start();
    let site = Site::new(topic.broker, &route(&topic, &["sinks:", FILE, SQLITE, &http(&receiver)]));
    deliver(&site);

    let text = std::fs::read_to_string(&segments(&site.path("audit"))[0]).unwrap();
    let expect = |line: usize, part: &str| {
        let line = text.lines().nth(line).unwrap();
        assert!(line.contains(part), "`{part}` in {line}");
    };
    expect(0, r#""value_base64":"""#);
    expect(1, r#""value_base64":"bnVsbA==""#);
    expect(2, r#""value_base64":"AP8=""#);
    expect(3, r#""value":{ "b" : 1,"a":1.50, "a": "\u00e9" }"#);
    expect(4, r#""value_base64":"ewp9""#);
    expect(5, r#""value":null"#);
    expect(6, r#""headers":[["h",null],["h",""],["h",{"base64":"/w=="}],["","x"]]"#);

    let held = database(&site);
    assert_eq!(held.get("empty").map(String::as_str), Some(""), "an empty value is a row");
    assert_eq!(held.get("null-text").map(String::as_str), Some("null"));
    assert_eq!(held.get("gone"), None);
    let body = |key: &str| {
        let requests = receiver.requests();
        let request = requests.iter().find(|request| request.key == key.as_bytes()).unwrap();
        (request.method.to_string(), request.body.to_vec())
    };
    assert_eq!(body("empty"), ("PUT".to_owned(), Vec::new()));
    assert_eq!(body("bytes"), ("PUT".to_owned(), b"\x00\xff".to_vec()));
    assert_eq!(body("gone"), ("DELETE".to_owned(), Vec::new()));
}
