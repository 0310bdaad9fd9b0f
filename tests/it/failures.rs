//! Sinks that refuse, that are down or full, and plugins that reject: what is right, shown and never silent.

use std::collections::BTreeMap;
use std::time::Duration;

use super::harness::oracle::{Dump, Sinks};
use super::harness::process::Limits;
use super::harness::profiles::{Profiles, write_plain};
use super::harness::read::{lines, positions, sqlite};
use super::harness::receiver::{Answer, Request};
use super::harness::{Broker, Producer, Receiver, Record, Site, Topic, eventually, group, route, route_from};

const LIMIT: Duration = Duration::from_secs(60);

fn http(receiver: &Receiver, more: &str) -> String {
    format!(r#"sinks: {{ crm: {{ type: http, url: "{}", delete: DELETE, {more} }} }}"#, receiver.url())
}

fn rows(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn three(broker: &Broker) -> Topic<'_> {
    let topic = Topic::compacted(broker, 1);
    Producer::new(broker).write(&topic, ["1", "2", "3"].map(|key| Record::put(key, key)));
    topic
}

/// Answers by `status` for the key `2`.
fn refusing(status: u16) -> Receiver {
    Receiver::scripted(move |request| if request.key == b"2" { Answer::status(status) } else { Answer::ok() })
}

fn tries(receiver: &Receiver, key: &str) -> Vec<Request> {
    receiver.requests().into_iter().filter(|request| request.key_text() == key).collect()
}

#[test]
fn a_refusal_for_good_is_a_dead_letter_at_once() {
    for status in [400, 401, 403, 404, 409, 410, 413, 422] {
        let topic = three(Broker::shared());
        let receiver = refusing(status);
        let site = Site::new(topic.broker, &route(&topic, &[&http(&receiver, "")]));
        let mut gateway = site.start();
        gateway.wait_ready(LIMIT);
        assert_eq!(gateway.lane("crm").counts.dead_letters, 1);
        assert_eq!(gateway.metric("tidegate_dead_letters_total", &[r#"sink="crm""#]), 1.0);
        gateway.stop();
        assert_eq!(receiver.state(), rows(&[("1", "1"), ("3", "3")]));
        assert_eq!(tries(&receiver, "2").len(), 1, "{status} is not tried again");
        let letters = lines(&site.path("dead/r.crm.ndjson"));
        assert_eq!(positions(&letters), [(0, 1)]);
        let cause = letters[0]["cause"].as_str().unwrap();
        assert!(cause.contains(&status.to_string()), "{cause}");
        assert_eq!(group::committed(&format!("{}.crm", topic.name), &topic), [Some(3)]);
    }
}

#[test]
fn a_refusal_can_halt_the_lane_before_the_record() {
    let topic = three(Broker::shared());
    let receiver = refusing(401);
    let site = Site::new(topic.broker, &route(&topic, &[&http(&receiver, "on_error: halt")]));
    let mut gateway = site.start();
    let halt = gateway.wait_halted("crm", LIMIT).halt.expect("it says where and why");
    assert_eq!((halt.partition, halt.offset, halt.stage.as_str()), (Some(0), Some(1), "sink"));
    assert!(halt.reason.contains("401"), "{}", halt.reason);
    gateway.stop();
    let group = format!("{}.crm", topic.name);
    assert!(group::committed(&group, &topic)[0] <= Some(1), "nothing passes the record");

    receiver.answer(|_| Answer::ok());
    let mut again = site.start();
    again.wait_ready(LIMIT);
    again.stop();
    assert_eq!(receiver.state(), rows(&[("1", "1"), ("2", "2"), ("3", "3")]));
    assert_eq!(group::committed(&group, &topic), [Some(3)]);
}

#[test]
fn a_failure_that_may_pass_is_tried_as_often_as_configured() {
    for status in [408, 425, 500, 502, 503, 504] {
        let topic = three(Broker::shared());
        let receiver = refusing(status);
        let settings = "retry: { attempts: 3, backoff: 20ms, max: 100ms }";
        let site = Site::new(topic.broker, &route(&topic, &[&http(&receiver, settings)]));
        let mut gateway = site.start();
        gateway.wait_ready(LIMIT);
        gateway.stop();
        assert_eq!(tries(&receiver, "2").len(), 3, "{status}");
        assert_eq!(receiver.state(), rows(&[("1", "1"), ("3", "3")]));
        let letters = lines(&site.path("dead/r.crm.ndjson"));
        assert_eq!((positions(&letters), &letters[0]["attempts"]), (vec![(0, 1)], &3.into()));
    }
}

#[test]
fn a_newer_version_never_overtakes_one_that_is_tried_again() {
    let topic = Topic::compacted(Broker::shared(), 1);
    let receiver = Receiver::start();
    let mut refusals = 0;
    receiver.answer(move |request| {
        refusals += u32::from(request.offset == 0);
        if request.offset == 0 && refusals <= 4 { Answer::status(503) } else { Answer::ok() }
    });
    let site = Site::new(topic.broker, &route(&topic, &[&http(&receiver, "retry: { backoff: 100ms, max: 500ms }")]));
    let mut gateway = site.start();
    let producer = Producer::new(topic.broker);
    producer.write(&topic, [Record::put("a", "1")]);
    gateway.wait_until("a refusal", LIMIT, |_| receiver.refused_count() > 0);
    producer.write(&topic, [Record::put("a", "2"), Record::put("b", "1")]);
    eventually("both keys", LIMIT, &rows(&[("a", "2"), ("b", "1")]), || receiver.state());
    gateway.stop();
    receiver.assert_order();
    assert_eq!(tries(&receiver, "a").len(), 6, "the first version was accepted before the second");
    let first_of_b = tries(&receiver, "b")[0].at;
    assert!(first_of_b < tries(&receiver, "a")[5].at, "another key is not held up");
}

#[test]
fn a_service_that_says_when_to_come_again_is_obeyed() {
    let topic = three(Broker::shared());
    let receiver = Receiver::start();
    let mut refused = false;
    receiver.answer(move |request| {
        let first = request.key == b"2" && !refused;
        refused |= first;
        if first { Answer::status(429).retry_after(2) } else { Answer::ok() }
    });
    let site = Site::new(topic.broker, &route(&topic, &[&http(&receiver, "retry: { backoff: 10ms, max: 10s }")]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    gateway.stop();
    let tries = tries(&receiver, "2");
    assert_eq!(tries.len(), 2);
    let waited = tries[1].at - tries[0].at;
    assert!(waited >= Duration::from_secs(2), "waited {waited:?}");
}

#[test]
fn a_service_that_never_answers_costs_the_timeout_and_is_tried_again() {
    let topic = three(Broker::shared());
    let receiver = Receiver::start();
    let mut held = false;
    receiver.answer(move |request| {
        let first = request.key == b"2" && !held;
        held |= first;
        if first { Answer::ok().after(Duration::from_secs(3600)) } else { Answer::ok() }
    });
    let settings = "timeout: 500ms, retry: { backoff: 10ms, max: 100ms }";
    let site = Site::new(topic.broker, &route(&topic, &[&http(&receiver, settings)]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    gateway.stop();
    assert_eq!(receiver.state(), rows(&[("1", "1"), ("2", "2"), ("3", "3")]));
}

#[test]
fn a_sink_that_is_down_holds_up_neither_another_sink_nor_the_stop() {
    let topic = three(Broker::shared());
    let receiver = Receiver::scripted(|_| Answer::status(503));
    let crm = format!(r#"  crm: {{ type: http, url: "{}" }}"#, receiver.url());
    let routes = route(&topic, &["sinks:", "  db: { type: sqlite, path: r.db, table: profiles }", &crm]);
    let site = Site::new(topic.broker, &routes);
    let mut gateway = site.start();
    let all = rows(&[("1", "1"), ("2", "2"), ("3", "3")]);
    eventually("the healthy sink", LIMIT, &all, || sqlite(&site.path("r.db"), "profiles"));
    let lane = gateway.wait_lane("crm", LIMIT, |lane| lane.waiting.is_some());
    assert!(lane.waiting.as_ref().is_some_and(|reason| reason.contains("503")), "{lane:?}");
    assert!(!gateway.is_ready());
    assert!(gateway.get("/readyz").1.contains("crm"), "it says which lane is not live: {}", gateway.get("/readyz").1);
    gateway.stop();
    assert_eq!(group::committed(&format!("{}.crm", topic.name), &topic)[0].unwrap_or(0), 0);
}

#[test]
fn what_a_plugin_rejects_halts_the_lane_when_the_route_says_so() {
    let topic = three(Broker::shared());
    let plugins = r#"plugins: [{ use: std/key-check, config: { pattern: "[13]" }, on_error: halt }]"#;
    let receiver = Receiver::start();
    let site = Site::new(topic.broker, &route(&topic, &[plugins, &http(&receiver, "")]));
    let mut gateway = site.start();
    let halt = gateway.wait_halted("crm", LIMIT).halt.expect("it says where and why");
    assert_eq!((halt.partition, halt.offset), (Some(0), Some(1)));
    assert!(halt.stage.contains("key-check"), "{}", halt.stage);
    gateway.stop();
    assert!(group::committed(&format!("{}.crm", topic.name), &topic)[0] <= Some(1));
    assert!(!receiver.state().contains_key("3"), "nothing after it is delivered: {:?}", receiver.state());
}

#[test]
fn a_rebuilt_table_equals_a_live_one_where_plugins_drop_and_reject() {
    let topic = Topic::compacted(Broker::shared(), 1);
    let producer = Producer::new(topic.broker);
    let settings = [
        r#"plugins: [{ use: std/filter, config: { drop: { field: { path: hidden, equals: true } } } }, { use: std/key-check, config: { pattern: "[a-z]+" } }]"#,
        "sinks: { db: { type: sqlite, path: r.db, table: profiles } }",
    ];
    let site = Site::new(topic.broker, &route(&topic, &settings));
    let mut gateway = site.start();
    let database = || sqlite(&site.path("r.db"), "profiles");
    let seen = r#"{"hidden":false}"#;
    producer.write(&topic, ["a", "b", "c"].map(|key| Record::put(key, seen)));
    eventually("three rows", LIMIT, &rows(&[("a", seen), ("b", seen), ("c", seen)]), database);
    // A newer version that is dropped removes what the older one wrote.
    let hidden = r#"{"hidden":true}"#;
    producer.write(
        &topic,
        [Record::put("a", hidden), Record::put("BAD", seen), Record::delete("b"), Record::put("d", hidden)],
    );
    eventually("one row", LIMIT, &rows(&[("c", seen)]), database);
    gateway.wait_lane("db", LIMIT, |lane| lane.counts.dead_letters == 1);
    gateway.stop();
    let live = database();

    for file in ["r.db", "r.db-wal", "r.db-shm"] {
        drop(std::fs::remove_file(site.path(file)));
    }
    let mut again = site.start();
    again.wait_ready(LIMIT);
    again.stop();
    assert_eq!(database(), live);
    assert_eq!(positions(&lines(&site.path("dead/r.db.ndjson"))).first(), Some(&(0, 4)));
}

#[test]
fn a_value_that_does_not_fit_the_columns_is_a_dead_letter() {
    let topic = Topic::compacted(Broker::shared(), 1);
    let values = [r#"{"n":1}"#, "{", r#"{"n":2}"#];
    Producer::new(topic.broker)
        .write(&topic, values.iter().enumerate().map(|(n, value)| Record::put(n.to_string(), value)));
    let columns =
        "sinks: { db: { type: sqlite, path: r.db, table: profiles, columns: { n: { path: /n, type: integer } } } }";
    let site = Site::new(topic.broker, &route(&topic, &[columns]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    gateway.stop();
    let db = rusqlite::Connection::open(site.path("r.db")).unwrap();
    let mut select = db.prepare("SELECT n FROM profiles ORDER BY n").unwrap();
    let found: Vec<i64> = select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(found, [1, 2]);
    assert_eq!(positions(&lines(&site.path("dead/r.db.ndjson"))), [(0, 1)]);
}

/// The limit on the size of files stands for a full disk: it works for every user, and the kernel refuses the write in the
/// same place.
#[test]
fn a_full_disk_is_waited_out_by_files_tables_and_dead_letters() {
    let topic = Topic::compacted(Broker::shared(), 1);
    write_plain(&topic, &mut Profiles::new(21, 500), 4000);
    // Rejected by the key's form, so that the dead letters grow as well.
    let bad = (0..3000).map(|n| Record::put(format!("bad {n}"), "x".repeat(300)));
    Producer::new(topic.broker).write(&topic, bad);
    let sinks = [
        "sinks:",
        "  db: { type: sqlite, path: r.db, table: profiles, retry: { backoff: 50ms, max: 500ms } }",
        r#"  audit: { type: file, path: "audit/{topic}-{partition}.ndjson", retry: { backoff: 50ms, max: 500ms } }"#,
        "  none: { type: discard }",
    ];
    let keys = r#"keys: { format: { regex: "customer-[0-9]+" } }"#;
    let site = Site::new(topic.broker, &route_from(&topic, keys, &sinks));
    let mut gateway = site.start_within(Limits { file_size: Some(200 << 10) });
    for sink in ["db", "audit", "none"] {
        gateway.wait_lane(sink, LIMIT, |lane| lane.waiting.is_some());
    }
    assert!(!gateway.is_ready());
    gateway.process.lift_file_limit();
    gateway.wait_ready(LIMIT);
    gateway.stop();

    let bad: Vec<(i64, i64)> = (4000..7000).map(|offset| (0, offset)).collect();
    for sink in ["db", "audit", "none"] {
        assert_eq!(positions(&lines(&site.path(format!("dead/r.{sink}.ndjson")))), bad, "{sink}");
    }
    assert_eq!(positions(&lines(&site.path("audit"))), (0..4000).map(|offset| (0, offset)).collect::<Vec<_>>());
    let (equal, report) =
        Dump::of(&topic).compare(&Sinks { sqlite: Some((&site.path("r.db"), "profiles")), ..Sinks::default() });
    assert!(!equal && report.contains("DIFFERS: 3000 missing ("), "only the rejected keys are missing: {report}");
}

#[test]
fn a_service_that_takes_requests_and_says_nothing_is_shown_long_before_its_time_out() {
    let topic = three(Broker::shared());
    let receiver = Receiver::scripted(|_| Answer::ok().after(Duration::from_secs(600)));
    let site = Site::new(topic.broker, &route(&topic, &[&http(&receiver, "timeout: 300s")]));
    let mut gateway = site.start();
    let lane = gateway.wait_lane("crm", LIMIT, |lane| lane.waiting.is_some());
    let waiting = lane.waiting.expect("it was looked at");
    assert!(waiting.starts_with("the sink has not answered for "), "{waiting}");
    assert!(!gateway.is_ready());

    // The service is mended; what hangs is not waited for.
    receiver.answer(|_| Answer::ok());
    gateway.kill();
    let mut again = site.start();
    again.wait_ready(LIMIT);
    assert_eq!(again.lane("crm").waiting, None);
    again.stop();
    assert_eq!(receiver.state(), rows(&[("1", "1"), ("2", "2"), ("3", "3")]));
}

#[test]
fn a_database_that_is_removed_under_a_running_gateway_halts_its_lane() {
    let topic = three(Broker::shared());
    let sink = "sinks: { db: { type: sqlite, path: profiles.db, table: profiles } }";
    let site = Site::new(topic.broker, &route(&topic, &[sink]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    std::fs::remove_file(site.path("profiles.db")).unwrap();
    Producer::new(topic.broker).write(&topic, [Record::put("4", "4")]);
    let halt = gateway.wait_halted("db", LIMIT).halt.expect("it says why");
    assert!(halt.reason.contains("profiles.db` was removed or replaced"), "{}", halt.reason);
    gateway.stop();

    let mut again = site.start();
    again.wait_ready(LIMIT);
    again.stop();
    let expected = rows(&[("1", "1"), ("2", "2"), ("3", "3"), ("4", "4")]);
    assert_eq!(sqlite(&site.path("profiles.db"), "profiles"), expected);
}
