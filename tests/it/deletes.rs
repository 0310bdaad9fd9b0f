//! A delete that the gateway cannot have read, since the topic forgot it or is another one, is found all the same: the table
//! equals the topic in the end.

use std::path::PathBuf;
use std::time::Duration;

use tidegate::gateway::status::LaneState;

use super::harness::oracle::{Dump, Sinks};
use super::harness::random::Random;
use super::harness::{Broker, Gateway, Producer, Record, Site, Topic, eventually, route, wait_for};

const LIMIT: Duration = Duration::from_secs(120);

const SQLITE: &str = "sinks: { db: { type: sqlite, path: r.db, table: profiles } }";

/// Tombstones are gone soon, and yet not before a gateway on a busy machine has read them.
const FORGETFUL: [(&str, &str); 5] = [
    ("cleanup.policy", "compact"),
    ("segment.ms", "200"),
    ("min.cleanable.dirty.ratio", "0.001"),
    ("max.compaction.lag.ms", "500"),
    ("delete.retention.ms", "15000"),
];

const COMPACTED: [(&str, &str); 1] = [("cleanup.policy", "compact")];

/// A topic of three keys, and a gateway that has delivered them and stopped.
struct Delivered {
    topic: Topic<'static>,
    producer: Producer,
    site: Site,
}

impl Delivered {
    fn new(config: &[(&str, &str)]) -> Self {
        let topic = Topic::with_config(Broker::shared(), 1, config);
        let producer = Producer::new(topic.broker);
        producer.write(&topic, ["a", "b", "c"].map(|key| Record::put(key, "1")));
        let site = Site::new(topic.broker, &route(&topic, &[SQLITE]));
        let delivered = Self { topic, producer, site };
        delivered.start_until_right().stop();
        delivered
    }

    fn database(&self) -> PathBuf {
        self.site.path("r.db")
    }

    /// Deletes a key, and waits until no reader can hear of that.
    fn delete_and_forget(&self, key: &str) {
        self.producer.write(&self.topic, [Record::delete(key)]);
        wait_for("the tombstone to go", LIMIT, || {
            // A segment is rolled by a record that comes when it is old enough.
            self.producer.write(&self.topic, [Record::put("roller", "1")]);
            (!Dump::of(&self.topic).mentions(key)).then_some(())
        });
    }

    /// The table has what the topic has, and nothing is in doubt.
    fn is_right(&self, gateway: &Gateway) -> bool {
        let lane = gateway.lane("db");
        let settled = lane.state == LaneState::Live && !lane.partitions.is_empty() && lane.unverified().is_none();
        settled && Dump::of(&self.topic).compare(&self.sinks(&self.database())).0
    }

    fn sinks<'a>(&self, database: &'a std::path::Path) -> Sinks<'a> {
        Sinks { sqlite: Some((database, "profiles")), ..Sinks::default() }
    }

    fn start_until_right(&self) -> Gateway {
        let mut gateway = self.site.start();
        gateway.wait_until("the table equals the topic", LIMIT, |gateway| self.is_right(gateway));
        gateway
    }

    fn is_stale(&self) -> bool {
        !Dump::of(&self.topic).compare(&self.sinks(&self.database())).0
    }
}

#[test]
fn a_stop_longer_than_the_retention_is_noticed_and_the_deleted_row_goes() {
    let it = Delivered::new(&FORGETFUL);
    it.delete_and_forget("b");
    assert!(it.is_stale(), "the row of the deleted key is there before");
    let gateway = it.start_until_right();
    assert!(gateway.metric("tidegate_swept_rows_total", &["db"]) >= 1.0);
    gateway.stop();
}

#[test]
fn an_offset_below_the_start_of_the_log_is_noticed() {
    // A topic that is only compacted refuses to be cut.
    let it = Delivered::new(&[("cleanup.policy", "compact,delete")]);
    it.producer.write(&it.topic, [Record::delete("b"), Record::put("d", "1"), Record::put("a", "2")]);
    it.topic.cut(0, 5);
    assert!(it.is_stale(), "the rows of what was cut are there before");
    it.start_until_right().stop();
}

#[test]
fn a_topic_that_was_made_anew_while_the_gateway_was_down_replaces_the_rows_of_the_old_one() {
    for records in [1, 9] {
        let it = Delivered::new(&COMPACTED);
        it.topic.delete();
        recreate(&it.topic);
        // Fewer and lower offsets than the old rows have, or more.
        it.producer.write(&it.topic, (0..records).map(|value| Record::put("a", format!("new {value}"))));
        it.start_until_right().stop();
    }
}

#[test]
fn a_topic_that_is_made_anew_under_a_running_gateway_replaces_the_rows_of_the_old_one() {
    for records in [1, 9] {
        let it = Delivered::new(&COMPACTED);
        let mut gateway = it.start_until_right();
        it.topic.delete();
        recreate(&it.topic);
        it.producer.write(&it.topic, (0..records).map(|value| Record::put("a", format!("new {value}"))));
        gateway.wait_until("the table equals the new topic", LIMIT, |gateway| it.is_right(gateway));
        gateway.stop();
    }
}

#[test]
fn a_database_that_was_restored_from_an_older_copy_is_brought_up_to_date() {
    let it = Delivered::new(&FORGETFUL);
    let copy = it.site.path("copy.db");
    std::fs::copy(it.database(), &copy).expect("the database is closed");
    it.delete_and_forget("b");
    it.start_until_right().stop();
    for rest in ["r.db-wal", "r.db-shm"] {
        drop(std::fs::remove_file(it.site.path(rest)));
    }
    std::fs::copy(&copy, it.database()).expect("the database is closed");
    assert!(it.is_stale(), "the copy has the row of the deleted key");
    it.start_until_right().stop();
}

#[test]
fn a_kill_in_the_middle_of_the_pass_or_of_the_sweep_leaves_no_deleted_row() {
    let it = Delivered::new(&FORGETFUL);
    let mut random = Random::from_environment("deletes");
    it.producer.write(&it.topic, (0..20_000).map(|key| Record::put(format!("old {key}"), "1")));
    it.start_until_right().stop();
    it.producer.write(&it.topic, (0..20_000).map(|key| Record::delete(format!("old {key}"))));
    it.delete_and_forget("b");
    eventually("the other tombstones to go", LIMIT, &false, || {
        it.producer.write(&it.topic, [Record::put("roller", "1")]);
        Dump::of(&it.topic).mentions("old 19999")
    });
    for _ in 0..5 {
        let mut gateway = it.site.start();
        gateway.wait_until("a partition is assigned", LIMIT, |gateway| !gateway.lane("db").partitions.is_empty());
        std::thread::sleep(Duration::from_millis(random.below(1500)));
        gateway.kill();
    }
    it.start_until_right().stop();
}

/// The broker refuses the name until the old topic is gone.
fn recreate(topic: &Topic<'_>) {
    wait_for("the topic to be made anew", LIMIT, || topic.try_create(&COMPACTED).then_some(()));
}
