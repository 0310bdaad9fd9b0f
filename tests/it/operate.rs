//! What an operator does with the lanes of a gateway that runs.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::Connection;
use tidegate::gateway::status::LaneState;

use super::harness::read::{lines, positions, sqlite};
use super::harness::receiver::Answer;
use super::harness::{Broker, Gateway, Producer, Receiver, Record, Site, Topic, eventually, group, route, route_from};

const LIMIT: Duration = Duration::from_secs(60);

const SQLITE: &str = "sinks: { db: { type: sqlite, path: r.db, table: profiles } }";

fn rows(keys: &[&str]) -> BTreeMap<String, String> {
    keys.iter().map(|key| ((*key).to_owned(), (*key).to_owned())).collect()
}

fn topic_of<'a>(broker: &'a Broker, keys: &[&str]) -> Topic<'a> {
    let topic = Topic::compacted(broker, 1);
    Producer::new(broker).write(&topic, keys.iter().map(|key| Record::put(*key, *key)));
    topic
}

/// Runs a command against the gateway; returns its exit code and everything that it printed.
fn tidegate(site: &Site, gateway: &Gateway, arguments: &[&str]) -> (Option<i32>, String) {
    let url = format!("http://{}", gateway.address());
    let output = site.command().args(arguments).args(["--url", &url]).output().expect("it can be started");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("UTF-8"))
}

#[track_caller]
fn done(site: &Site, gateway: &Gateway, arguments: &[&str]) -> String {
    let (code, text) = tidegate(site, gateway, arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {text}\n{}", gateway.process.output());
    text
}

#[track_caller]
fn refused(site: &Site, gateway: &Gateway, arguments: &[&str], why: &str) {
    let (code, text) = tidegate(site, gateway, arguments);
    assert!(code == Some(1) && text.contains(why), "{arguments:?}: exit {code:?}, {text}");
}

#[test]
fn a_lane_that_halted_at_a_refusal_is_resumed_when_the_service_is_mended() {
    let topic = topic_of(Broker::shared(), &["1", "2", "3"]);
    let receiver = Receiver::scripted(|request| match request.key_text() {
        "2" => Answer::status(401),
        _ => Answer::ok(),
    });
    let http = format!(r#"sinks: {{ crm: {{ type: http, url: "{}", on_error: halt }} }}"#, receiver.url());
    let site = Site::new(topic.broker, &route(&topic, &[&http]));
    let mut gateway = site.start();
    gateway.wait_halted("crm", LIMIT);
    let shown = done(&site, &gateway, &["status"]);
    assert!(shown.contains("`tidegate resume r/crm` tries again, `tidegate skip r/crm`"), "{shown}");

    // As often as it takes.
    done(&site, &gateway, &["resume", "r/crm"]);
    eventually("the next try", LIMIT, &true, || {
        receiver.requests().iter().filter(|request| request.key == b"2").count() >= 2
    });
    gateway.wait_halted("crm", LIMIT);
    receiver.answer(|_| Answer::ok());
    done(&site, &gateway, &["resume", "r/crm"]);
    eventually("every row", LIMIT, &rows(&["1", "2", "3"]), || receiver.state());
    gateway.wait_lane("crm", LIMIT, |lane| lane.state == LaneState::Live && lane.halt.is_none());
    Producer::new(topic.broker).write(&topic, [Record::put("4", "4")]);
    eventually("what comes later", LIMIT, &rows(&["1", "2", "3", "4"]), || receiver.state());
    refused(&site, &gateway, &["resume", "r/crm"], "r.crm: the lane is not halted");
    gateway.stop();
    assert_eq!(group::committed(&format!("{}.crm", topic.name), &topic), [Some(4)]);
    assert_eq!(lines(&site.path("dead/r.crm.ndjson")).len(), 0);
}

#[test]
fn the_record_that_halted_a_lane_is_skipped_into_the_dead_letters_and_no_other_is() {
    let topic = topic_of(Broker::shared(), &["1", "bad", "2", "worse", "3"]);
    let receiver = Receiver::start();
    let keys = r#"keys: { format: { regex: "[0-9]+" }, malformed: halt }"#;
    let http = format!(r#"  crm: {{ type: http, url: "{}" }}"#, receiver.url());
    let sinks = ["sinks:", "  db: { type: sqlite, path: r.db, table: profiles }", &http];
    let site = Site::new(topic.broker, &route_from(&topic, keys, &sinks));
    let mut gateway = site.start();
    for sink in ["db", "crm"] {
        for (offset, ..) in [(1, "bad"), (3, "worse")] {
            let halted = gateway.wait_lane(sink, LIMIT, |lane| {
                lane.halt.as_ref().is_some_and(|halt| halt.offset == Some(offset) && halt.skippable)
            });
            assert_eq!(halted.state, LaneState::Halted);
            done(&site, &gateway, &["skip", &format!("r/{sink}")]);
        }
        gateway.wait_lane(sink, LIMIT, |lane| lane.state == LaneState::Live && lane.lag() == Some(0));
        assert_eq!(positions(&lines(&site.path(format!("dead/r.{sink}.ndjson")))), [(0, 1), (0, 3)]);
    }
    let listed = done(&site, &gateway, &["dead", "list", "r/crm"]);
    let order = listed.find("worse").zip(listed.find("bad")).is_some_and(|(newest, oldest)| newest < oldest);
    assert!(order && listed.contains(&format!("{}[0]@3", topic.name)), "{listed}");
    let one = done(&site, &gateway, &["dead", "show", "r/crm", "--key", "bad"]);
    assert!(one.contains("\"offset\": 1") && !one.contains("worse"), "{one}");
    assert_eq!(done(&site, &gateway, &["dead", "list", "r/db", "--cause", "nothing like it"]), "no dead letters\n");
    gateway.stop();
    assert_eq!(sqlite(&site.path("r.db"), "profiles"), rows(&["1", "2", "3"]));
    assert_eq!(receiver.state(), rows(&["1", "2", "3"]));
    let letters = lines(&site.path("dead/r.db.ndjson"));
    assert_eq!(letters[0]["stage"], "key");
}

#[test]
fn what_a_sink_refuses_is_skipped_too() {
    let topic = topic_of(Broker::shared(), &["1", "2", "3"]);
    let receiver = Receiver::scripted(|request| match request.key_text() {
        "2" => Answer::status(422),
        _ => Answer::ok(),
    });
    let http = format!(r#"sinks: {{ crm: {{ type: http, url: "{}", on_error: halt }} }}"#, receiver.url());
    let site = Site::new(topic.broker, &route(&topic, &[&http]));
    let mut gateway = site.start();
    gateway.wait_halted("crm", LIMIT);
    done(&site, &gateway, &["skip", "r/crm"]);
    eventually("the others", LIMIT, &rows(&["1", "3"]), || receiver.state());
    gateway.wait_lane("crm", LIMIT, |lane| lane.state == LaneState::Live && lane.lag() == Some(0));
    gateway.stop();
    assert_eq!(positions(&lines(&site.path("dead/r.crm.ndjson"))), [(0, 1)]);
    assert_eq!(group::committed(&format!("{}.crm", topic.name), &topic), [Some(3)]);
}

#[test]
fn a_lane_that_could_not_open_its_sink_is_resumed_and_has_no_record_to_skip() {
    let topic = topic_of(Broker::shared(), &["1"]);
    let site = Site::new(topic.broker, &route(&topic, &[SQLITE]));
    std::fs::write(site.path("r.db"), "no database").unwrap();
    let mut gateway = site.start();
    gateway.wait_halted("db", LIMIT);
    refused(&site, &gateway, &["skip", "r/db"], "no record is to blame");
    refused(&site, &gateway, &["reset", "r", "--sweep"], "has to be resumed first");
    std::fs::remove_file(site.path("r.db")).unwrap();
    done(&site, &gateway, &["resume", "r/db"]);
    eventually("the row", LIMIT, &rows(&["1"]), || sqlite(&site.path("r.db"), "profiles"));
    gateway.wait_lane("db", LIMIT, |lane| lane.state == LaneState::Live && lane.halt.is_none());
    gateway.stop();
}

#[test]
fn a_table_is_swept_on_demand() {
    let topic = topic_of(Broker::shared(), &["1", "2", "3"]);
    let site = Site::new(topic.broker, &route(&topic, &[SQLITE]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    // As after a restore that somebody patched by hand: no offset tells that the row is wrong.
    let database = Connection::open(site.path("r.db")).unwrap();
    database.busy_timeout(LIMIT).unwrap();
    let ghost = "INSERT INTO profiles SELECT 'ghost', value, _topic, _partition, _offset, _timestamp, _generation \
                 FROM profiles WHERE key = '2'";
    assert_eq!(database.execute(ghost, []).unwrap(), 1);
    drop(database);
    let text = done(&site, &gateway, &["reset", "r", "--sweep"]);
    assert!(text.contains("r/db reads its snapshot again"), "{text}");
    eventually("the ghost to go", LIMIT, &rows(&["1", "2", "3"]), || sqlite(&site.path("r.db"), "profiles"));
    gateway.wait_lane("db", LIMIT, |lane| lane.state == LaneState::Live && lane.unverified().is_none());
    assert_eq!(gateway.metric("tidegate_swept_rows_total", &["db"]), 1.0);
    gateway.stop();
}

#[test]
fn a_sweep_is_refused_where_it_would_mean_nothing() {
    let topic = topic_of(Broker::shared(), &["1"]);
    let sinks =
        ["sinks:", r"  files: { type: file, path: out.ndjson }", "  db: { type: sqlite, path: r.db, table: t }"];
    let site = Site::new(topic.broker, &route_from(&topic, "start: latest", &sinks));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    refused(&site, &gateway, &["reset", "r/files", "--sweep"], "its sink cannot be swept");
    refused(&site, &gateway, &["reset", "r", "--sweep"], "does not begin with the snapshot");
    refused(&site, &gateway, &["reset", "s", "--sweep"], "there is no route `s`; the routes are `r`");
    refused(&site, &gateway, &["reset", "r/crm", "--sweep"], "has no sink `crm`; its sinks are `files`, `db`");
    let (code, text) = tidegate(&site, &gateway, &["reset", "r"]);
    assert!(code == Some(2) && text.contains("--sweep"), "{code:?}: {text}");
    gateway.stop();
}

#[test]
fn a_halted_lane_can_be_stopped_and_a_resumed_one_goes_on_where_it_was() {
    let topic = topic_of(Broker::shared(), &["1", "2"]);
    let plugins = r#"plugins: [{ use: std/key-check, config: { pattern: "[0-9]" }, on_error: halt }]"#;
    let site = Site::new(topic.broker, &route(&topic, &[plugins, SQLITE]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    let producer = Producer::new(topic.broker);
    producer.write(&topic, [Record::put("bad", "bad"), Record::put("3", "3")]);
    gateway.wait_halted("db", LIMIT);
    done(&site, &gateway, &["resume", "r/db"]);
    gateway.wait_halted("db", LIMIT);
    gateway.stop();
    let mut again = site.start();
    again.wait_halted("db", LIMIT);
    done(&site, &again, &["skip", "r/db"]);
    eventually("the rest", LIMIT, &rows(&["1", "2", "3"]), || sqlite(&site.path("r.db"), "profiles"));
    again.stop();
    assert_eq!(positions(&lines(&site.path("dead/r.db.ndjson"))), [(0, 2)]);
}
