//! Whether a table holds what its topic says, as `tidegate verify` tells it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use serde_json::Value;

use super::harness::{Broker, Producer, Record, Site, Topic, route, route_from};

const LIMIT: Duration = Duration::from_secs(60);

const SQLITE: &str = "sinks: { db: { type: sqlite, path: r.db, table: profiles } }";

/// Exit code, standard output and standard error.
fn verify(site: &Site, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = site.command().args(["verify", "-c", "tidegate.yaml"]).args(arguments).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[track_caller]
fn report(site: &Site, code: i32) -> Value {
    let (status, out, error) = verify(site, &["r", "--output", "json"]);
    assert_eq!(status, Some(code), "{out}{error}");
    serde_json::from_str::<Value>(&out).expect("JSON")[0].clone()
}

fn counts(report: &Value) -> [u64; 6] {
    ["missing", "different", "stale", "kept", "not_delivered", "undecided"].map(|name| report[name].as_u64().unwrap())
}

fn write(topic: &Topic<'_>, keys: &[&str]) {
    Producer::new(topic.broker).write(topic, keys.iter().map(|key| Record::put(*key, *key)));
}

fn edit(site: &Site, sql: &str) {
    let database = Connection::open(site.path("r.db")).unwrap();
    database.busy_timeout(LIMIT).unwrap();
    database.execute_batch(sql).unwrap();
}

/// As the tests of somebody's hand in the table make it: one row too few, one changed, one too many.
const TAMPER: &str = "DELETE FROM profiles WHERE key = '1';
    UPDATE profiles SET value = 'wrong' WHERE key = '2';
    INSERT INTO profiles SELECT 'ghost', value, _topic, _partition, _offset, _timestamp, _generation
    FROM profiles WHERE key = '3'";

#[test]
fn each_row_that_differs_is_found_while_the_gateway_runs_and_a_sweep_mends_them() {
    let topic = Topic::compacted(Broker::shared(), 2);
    write(&topic, &["1", "2", "3", "4", "5"]);
    let site = Site::new(topic.broker, &route(&topic, &[SQLITE]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    assert_eq!(verify(&site, &["r"]).1, "r/db: 5 rows, equal to what the topic says\n");
    edit(&site, TAMPER);

    let found = report(&site, 1);
    assert_eq!(counts(&found), [1, 1, 1, 0, 0, 0], "{found}");
    let named = found["differences"].as_array().unwrap().iter();
    let named: Vec<_> = named.map(|row| (row["kind"].as_str().unwrap(), row["key"].as_str().unwrap())).collect();
    assert_eq!(named, [("missing", "1"), ("different", "2"), ("stale", "ghost")]);
    let (code, out, _) = verify(&site, &["r/db", "--limit", "0"]);
    assert!(code == Some(1) && out.contains("DIFFERS") && !out.contains("ghost"), "{out}");

    let url = format!("http://{}", gateway.address());
    let reset = site.command().args(["reset", "r/db", "--sweep", "--url", &url]).status().unwrap();
    assert!(reset.success());
    gateway.wait_until("the sweep", LIMIT, |gateway| {
        gateway.metric("tidegate_swept_rows_total", &["db"]) == 1.0 && gateway.lane("db").unverified().is_none()
    });
    assert_eq!(counts(&report(&site, 0)), [0; 6]);
    gateway.stop();
    let left: Vec<_> = std::fs::read_dir(site.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("verify")), "it leaves nothing behind: {left:?}");
}

#[test]
fn a_topic_that_changes_all_the_time_is_no_difference() {
    let topic = Topic::compacted(Broker::shared(), 2);
    write(&topic, &["first"]);
    let plugins = r#"plugins: [{ use: std/filter, config: { drop: { field: { path: hidden, equals: true } } } }]"#;
    let site = Site::new(topic.broker, &route(&topic, &[plugins, SQLITE]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let producer = Producer::new(topic.broker);
            let mut round = 0u64;
            while !done.load(Ordering::Relaxed) {
                producer.write(
                    &topic,
                    (0..50).map(|n| {
                        let key = format!("key {}", (round * 31 + n * 7) % 997);
                        match (round + n) % 5 {
                            0 => Record::delete(key),
                            1 => Record::put(key, r#"{"hidden":true}"#),
                            _ => Record::put(key, format!("{{\"n\":{round}}}")),
                        }
                    }),
                );
                round += 1;
            }
        });
        for _ in 0..5 {
            let (code, out, error) = verify(&site, &["r"]);
            if code != Some(0) {
                done.store(true, Ordering::Relaxed);
                panic!("exit {code:?}: {out}{error}");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    gateway.stop();
}

#[test]
fn what_a_stopped_gateway_has_not_delivered_is_no_difference_and_not_called_equal_either() {
    let topic = Topic::compacted(Broker::shared(), 1);
    write(&topic, &["1", "2", "3", "gone"]);
    let site = Site::new(topic.broker, &route(&topic, &[SQLITE]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    gateway.stop();
    write(&topic, &["3", "4"]);
    Producer::new(topic.broker).write(&topic, [Record::delete("gone")]);
    let found = report(&site, 0);
    assert_eq!(counts(&found), [0, 0, 0, 0, 2, 1], "{found}");
    let (_, out, _) = verify(&site, &["r"]);
    assert!(out.starts_with("r/db: 4 rows, equal to what the topic says, as far as it is delivered\n"), "{out}");
    edit(&site, TAMPER);
    assert_eq!(counts(&report(&site, 1)), [1, 1, 0, 0, 2, 2]);
}

#[test]
fn a_row_that_stays_since_its_newer_version_was_rejected_is_named_as_such() {
    let topic = Topic::with_config(Broker::shared(), 1, &[("cleanup.policy", "compact,delete")]);
    let keys = r#"plugins: [{ use: std/filter, config: { drop: { field: { path: x, equals: 1 } } }, on_error: drop }]"#;
    let columns =
        "sinks: { db: { type: sqlite, path: r.db, table: profiles, columns: { n: { path: /n, type: integer } } } }";
    let site = Site::new(topic.broker, &route(&topic, &[keys, columns]));
    let producer = Producer::new(topic.broker);
    producer.write(&topic, [Record::put("a", r#"{"n":1}"#), Record::put("b", r#"{"n":2}"#)]);
    producer.write(&topic, [Record::put("a", r#"{"n":"no number"}"#), Record::put("c", r#"{"n":3}"#)]);
    let mut gateway = site.start();
    gateway.wait_lane("db", LIMIT, |lane| lane.counts.dead_letters == 1 && lane.lag() == Some(0));
    gateway.stop();
    assert_eq!(counts(&report(&site, 0)), [0; 6], "both versions are there");
    topic.cut(0, 1);
    let found = report(&site, 0);
    assert_eq!(counts(&found), [0, 0, 0, 1, 0, 0], "{found}");
    assert_eq!(found["differences"][0]["key"], "a");
}

#[test]
fn what_cannot_be_compared_is_told() {
    let topic = Topic::compacted(Broker::shared(), 1);
    write(&topic, &["1"]);
    let fails = |site: &Site, arguments: &[&str], why: &str| {
        std::fs::copy(site.path("written.yaml"), site.path("tidegate.yaml")).unwrap();
        let (code, out, error) = verify(site, arguments);
        assert!(code == Some(1) && error.contains(why), "{arguments:?}: exit {code:?}, {out}{error}");
    };
    let site = Site::new(topic.broker, &route(&topic, &[SQLITE]));
    fails(&site, &["s"], "there is no route `s`; the routes are `r`");
    fails(&site, &["r/crm"], "route `r` has no sink `crm`; its sinks are `db`");
    fails(&site, &["r"], "r.db` yet: nothing was delivered to it");
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    gateway.stop();
    fails(&site, &["r", "--scratch", "nowhere"], "`--scratch` names another directory");
    site.rewrite(&site.yaml().replace("table: profiles", "table: people"));
    fails(&site, &["r"], "was made for another configuration: its table is `profiles`, and `people` is configured");
    let files = Site::new(topic.broker, &route(&topic, &["sinks: { out: { type: file, path: out.ndjson } }"]));
    fails(&files, &["r"], "only a `sqlite` sink can be read back");
    let latest = Site::new(topic.broker, &route_from(&topic, "start: latest", &[SQLITE]));
    fails(&latest, &["r"], "begins at the topic's end");
    let stopped = Broker::start();
    let other = Topic::compacted(&stopped, 1);
    write(&other, &["1"]);
    let site = Site::new(&stopped, &route(&other, &[SQLITE]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    gateway.stop();
    stopped.suspend();
    fails(&site, &["r", "--timeout", "3"], "nothing moved for 3 s");
    stopped.resume();
}
