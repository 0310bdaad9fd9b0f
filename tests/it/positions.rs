//! Where a lane begins, how far it has come, and what is left for whoever comes after it.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::gateway::status::LaneState;

use super::harness::oracle::{Dump, Sinks};
use super::harness::profiles::{Profiles, write_plain, write_transactional};
use super::harness::read::{line_count, lines, positions, segments, sqlite};
use super::harness::receiver::Answer;
use super::harness::{Broker, Producer, Receiver, Record, Site, Topic, eventually, group, route, route_from, wait_for};

const LIMIT: Duration = Duration::from_secs(60);

const FILE: &str = r#"sinks: { audit: { type: file, path: "audit/{topic}-{partition}.ndjson" } }"#;
const SQLITE: &str = "sinks: { db: { type: sqlite, path: r.db, table: profiles } }";

fn http(receiver: &Receiver) -> String {
    let url = receiver.url();
    format!(
        r#"sinks: {{ crm: {{ type: http, url: "{url}", delete: DELETE, retry: {{ backoff: 50ms, max: 200ms }} }} }}"#
    )
}

fn ends(topic: &Topic<'_>) -> Vec<Option<i64>> {
    topic.ends().into_iter().map(Some).collect()
}

/// Partition and offset of every record in the file sink's segments, sorted.
fn filed(site: &Site) -> Vec<(i64, i64)> {
    let mut positions = positions(&lines(&site.path("audit")));
    positions.sort_unstable();
    positions
}

#[test]
fn a_transactional_tail_leaves_no_lag_and_a_restart_delivers_nothing_twice() {
    let topic = Topic::compacted(Broker::shared(), 3);
    write_transactional(&topic, &mut Profiles::new(11, 50), 600);
    let receiver = Receiver::start();
    let site = Site::new(topic.broker, &route(&topic, &[&http(&receiver)]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    let group = format!("{}.crm", topic.name);
    eventually("no lag, while it runs", LIMIT, &ends(&topic), || group::committed(&group, &topic));
    gateway.stop();
    assert_eq!(group::committed(&group, &topic), ends(&topic));
    let delivered = receiver.request_count();

    let mut again = site.start();
    again.wait_ready(LIMIT);
    assert_eq!(again.lane("crm").counts.records_in, 0);
    again.stop();
    assert_eq!(receiver.request_count(), delivered);
    assert_eq!(group::committed(&group, &topic), ends(&topic));
}

#[test]
fn the_holes_of_compaction_hold_nothing_up() {
    let soon = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "200"),
        ("min.cleanable.dirty.ratio", "0.001"),
        ("max.compaction.lag.ms", "500"),
        ("delete.retention.ms", "200"),
    ];
    let topic = Topic::with_config(Broker::shared(), 1, &soon);
    let producer = Producer::new(topic.broker);
    producer.write(&topic, Profiles::new(3, 5).take(500));
    let dump = wait_for("compaction", Duration::from_secs(120), || {
        // A segment is rolled by a record that comes when it is old enough.
        producer.write(&topic, [Record::put("roller", "1")]);
        let dump = Dump::of(&topic);
        (dump.records() < 100).then_some(dump)
    });
    let receiver = Receiver::start();
    let site = Site::new(topic.broker, &route(&topic, &[&http(&receiver)]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    gateway.stop();
    assert_eq!(group::committed(&format!("{}.crm", topic.name), &topic), ends(&topic));
    dump.assert_equal(&Sinks { http: Some(&receiver), ..Sinks::default() });
}

#[test]
fn a_record_that_a_plugin_drops_does_not_carry_the_commit_past_one_that_is_not_delivered() {
    let topic = Topic::compacted(Broker::shared(), 1);
    let mut records = vec![Record::put("1", "1"), Record::put("2", "2")];
    records.extend((0..5000).map(|n| Record::put(format!("skip-{n}"), "x")));
    Producer::new(topic.broker).write(&topic, records);
    let receiver = Receiver::scripted(|request| match request.key_text() {
        "2" => Answer::status(503),
        _ => Answer::ok(),
    });
    let filter = "plugins: [{ use: std/filter, config: { drop: { key: { prefix: skip } } } }]";
    let site = Site::new(topic.broker, &route(&topic, &[filter, &http(&receiver)]));
    let mut gateway = site.start();
    gateway.wait_lane("crm", LIMIT, |lane| lane.counts.dropped == 5000);
    gateway.wait_until("tries of the second record", LIMIT, |_| receiver.refused_count() > 5);
    let group = format!("{}.crm", topic.name);
    assert!(group::committed(&group, &topic)[0] <= Some(1), "{:?}", group::committed(&group, &topic));
    assert!(!gateway.is_ready(), "the snapshot is not delivered");
    // An orderly stop must not pass it either.
    gateway.stop();
    assert!(group::committed(&group, &topic)[0] <= Some(1), "{:?}", group::committed(&group, &topic));

    receiver.answer(|_| Answer::ok());
    let mut again = site.start();
    again.wait_ready(LIMIT);
    again.stop();
    let expected: BTreeMap<_, _> = [("1".to_owned(), "1".to_owned()), ("2".to_owned(), "2".to_owned())].into();
    assert_eq!(receiver.state(), expected);
    assert_eq!(group::committed(&group, &topic), ends(&topic));
}

#[test]
fn a_stop_in_the_middle_leaves_every_record_in_the_file_once() {
    let topic = Topic::compacted(Broker::shared(), 1);
    let record = |n: i64| Record::put(format!("k{n}"), n.to_string());
    Producer::new(topic.broker).write(&topic, (0..50).map(record));
    let small = r#"sinks: { audit: { type: file, path: "audit/{topic}-{partition}.ndjson", rotate: { size: 1KiB } } }"#;
    let site = Site::new(topic.broker, &route(&topic, &[small]));
    // Whatever it has come to by then.
    site.start().stop();
    let mut again = site.start();
    again.wait_ready(LIMIT);
    assert_eq!(filed(&site), (0..50).map(|offset| (0, offset)).collect::<Vec<_>>());
    // The segment is full, so that the next line begins another; a stop right after changes nothing.
    Producer::new(topic.broker).write(&topic, (50..60).map(record));
    eventually("ten more lines", LIMIT, &60, || line_count(&site.path("audit")));
    again.stop();
    assert_eq!(filed(&site), (0..60).map(|offset| (0, offset)).collect::<Vec<_>>());
    assert!(segments(&site.path("audit")).len() > 1, "it was rotated");
}

#[test]
fn a_local_sink_that_lost_its_state_reads_everything_again_whatever_the_group_says() {
    let topic = Topic::compacted(Broker::shared(), 2);
    write_plain(&topic, &mut Profiles::new(5, 40), 300);
    let sinks = [
        "sinks:",
        "  db: { type: sqlite, path: r.db, table: profiles }",
        r#"  audit: { type: file, path: "audit/{topic}-{partition}.ndjson" }"#,
    ];
    let site = Site::new(topic.broker, &route(&topic, &sinks));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    gateway.stop();
    let (rows, records) = (sqlite(&site.path("r.db"), "profiles"), filed(&site));
    assert_eq!(records.len(), 300);
    assert_eq!(group::committed(&format!("{}.db", topic.name), &topic), ends(&topic), "for lag tools");

    for file in ["r.db", "r.db-wal", "r.db-shm"] {
        drop(std::fs::remove_file(site.path(file)));
    }
    std::fs::remove_dir_all(site.path("audit")).unwrap();
    let mut again = site.start();
    again.wait_ready(LIMIT);
    again.stop();
    assert_eq!(sqlite(&site.path("r.db"), "profiles"), rows);
    assert_eq!(filed(&site), records);
}

#[test]
fn a_partition_that_comes_later_is_read_from_its_beginning() {
    for start in ["earliest", "latest"] {
        let mut topic = Topic::compacted(Broker::shared(), 1);
        Producer::new(topic.broker).write(&topic, [Record::put("old", "1")]);
        let site = Site::new(topic.broker, &route_from(&topic, &format!("start: {start}"), &[FILE]));
        let mut gateway = site.start();
        gateway.wait_ready(LIMIT);
        topic.grow(3);
        // A client that knows the topic from before would refuse the new partitions for a while.
        let late = (0..6).map(|n| Record::put(format!("k{n}"), "2").to(1 + n % 2));
        Producer::new(topic.broker).write(&topic, late);
        let mut expected: Vec<(i64, i64)> = vec![(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)];
        if start == "earliest" {
            expected.insert(0, (0, 0));
        }
        eventually(&format!("the late partitions' records, start: {start}"), LIMIT, &expected, || filed(&site));
        gateway.stop();
    }
}

#[test]
fn a_missing_topic_is_shown_and_waited_for() {
    let topic = Topic::named(Broker::shared(), 2);
    let site = Site::new(topic.broker, &route(&topic, &[FILE]));
    let mut gateway = site.start();
    let lane = gateway
        .wait_lane("audit", LIMIT, |lane| lane.waiting.as_ref().is_some_and(|reason| reason.contains(&topic.name)));
    assert_eq!(lane.state, LaneState::Starting);
    assert!(!gateway.is_ready());
    topic.create(&[("cleanup.policy", "compact")]);
    Producer::new(topic.broker).write(&topic, [Record::put("a", "1").to(0), Record::put("b", "2").to(1)]);
    eventually("the records of the late topic", LIMIT, &vec![(0, 0), (1, 0)], || filed(&site));
    gateway.wait_ready(LIMIT);
    assert_eq!(gateway.lane("audit").waiting, None);
    gateway.stop();
}

#[test]
fn two_topics_are_live_when_both_are() {
    let (empty, full) = (Topic::compacted(Broker::shared(), 1), Topic::compacted(Broker::shared(), 1));
    write_plain(&full, &mut Profiles::new(9, 100), 20_000);
    let routes = route(&full, &[SQLITE]).replace("topics: [", &format!("topics: [{}, ", empty.name));
    let site = Site::new(full.broker, &routes);
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    let lane = gateway.lane("db");
    assert_eq!(lane.partitions.len(), 2);
    assert_eq!(lane.counts.records_in, 20_000, "ready before everything was read");
    gateway.stop();
    Dump::of(&full).assert_equal(&Sinks { sqlite: Some((&site.path("r.db"), "profiles")), ..Sinks::default() });
}

#[test]
fn an_open_transaction_is_neither_seen_nor_waited_for() {
    let topic = Topic::compacted(Broker::shared(), 1);
    let plain = Producer::new(topic.broker);
    plain.write(&topic, [Record::put("a", "1")]);
    let open = Producer::transactional(topic.broker, &format!("{}-open", topic.name));
    open.begin();
    open.write(&topic, [Record::put("b", "1")]);
    plain.write(&topic, [Record::put("c", "1")]);
    let site = Site::new(topic.broker, &route(&topic, &[FILE]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    assert_eq!(filed(&site), [(0, 0)]);
    open.commit();
    eventually("what the transaction held back", LIMIT, &vec![(0, 0), (0, 1), (0, 2)], || filed(&site));
    gateway.stop();
}

#[test]
fn a_log_whose_beginning_is_gone_is_read_from_where_it_begins() {
    let topic = Topic::deleting(Broker::shared(), 2);
    Producer::new(topic.broker).write(&topic, (0..10).map(|n| Record::put(format!("k{n}"), "1").to(0)));
    topic.cut(0, 3);
    let site = Site::new(topic.broker, &route(&topic, &[FILE]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    let partitions = gateway.lane("audit").partitions;
    assert_eq!(partitions.iter().map(|partition| partition.start).collect::<Vec<_>>(), [Some(3), Some(0)]);
    gateway.stop();
    assert_eq!(filed(&site), (3..10).map(|offset| (0, offset)).collect::<Vec<_>>());

    // What a stopped gateway had still to read is gone when it comes back: it goes on with what is there.
    Producer::new(topic.broker).write(&topic, (10..20).map(|n| Record::put(format!("k{n}"), "1").to(0)));
    topic.cut(0, 15);
    let mut again = site.start();
    again.wait_ready(LIMIT);
    again.stop();
    assert_eq!(filed(&site), (3..10).chain(15..20).map(|offset| (0, offset)).collect::<Vec<_>>());
}

#[test]
fn a_committed_offset_beyond_the_end_begins_anew() {
    let topic = Topic::compacted(Broker::shared(), 1);
    Producer::new(topic.broker).write(&topic, (0..10).map(|n| Record::put(format!("k{n}"), "1")));
    let group = format!("{}.crm", topic.name);
    group::set_committed(&group, &topic, &[1_000_000]);
    let receiver = Receiver::start();
    let site = Site::new(topic.broker, &route(&topic, &[&http(&receiver)]));
    let mut gateway = site.start();
    gateway.wait_until("all ten", LIMIT, |_| receiver.state().len() == 10);
    eventually("a commit that is right again", LIMIT, &ends(&topic), || group::committed(&group, &topic));
    gateway.stop();
}

#[test]
fn a_broker_that_stands_still_or_dies_is_shown_and_waited_for() {
    let broker = Broker::start();
    let name = {
        let topic = Topic::compacted(&broker, 2);
        Producer::new(&broker).write(&topic, [Record::put("a", "1").to(0), Record::put("b", "1").to(1)]);
        topic.name
    };
    let routes = route(&Topic { broker: &broker, name: name.clone(), partitions: 2 }, &[FILE]);
    let site = Site::new(&broker, &routes);
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    let files = site.path("audit");
    let write_more = |broker: &Broker| {
        let before = line_count(&files);
        let topic = Topic { broker, name: name.clone(), partitions: 2 };
        Producer::new(broker).write(&topic, [Record::put("a", "2").to(0), Record::put("b", "2").to(1)]);
        // Each partition goes on within half a minute.
        wait_for("records after the recovery", Duration::from_secs(30), || {
            (line_count(&files) == before + 2).then_some(())
        });
    };

    // Longer than the session's time-out: connections stay open and nothing is answered.
    broker.suspend();
    std::thread::sleep(Duration::from_secs(20));
    assert!(gateway.is_ready(), "a lane stays live, whatever its lag");
    broker.resume();
    write_more(&broker);

    broker.kill();
    gateway.wait_lane("audit", LIMIT, |lane| lane.waiting.is_some());
    broker.restart();
    write_more(&broker);
    gateway.wait_lane("audit", LIMIT, |lane| lane.waiting.is_none());
    gateway.stop();
    assert_eq!(filed(&site), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);

    // One that is not there at the start is waited for as well.
    broker.kill();
    let mut again = site.start();
    again.wait_lane("audit", LIMIT, |lane| lane.waiting.is_some());
    broker.restart();
    write_more(&broker);
    again.stop();
}

#[test]
fn a_topic_that_is_deleted_under_a_route_does_not_hold_up_its_end() {
    let topic = Topic::compacted(Broker::shared(), 1);
    Producer::new(topic.broker).write(&topic, [Record::put("a", "1")]);
    let receiver = Receiver::start();
    let site = Site::new(topic.broker, &route(&topic, &[&http(&receiver)]));
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    topic.delete();
    gateway.wait_lane("crm", LIMIT, |lane| lane.waiting.is_some());
    gateway.stop();
}
