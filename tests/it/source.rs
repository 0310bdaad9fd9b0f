//! The Kafka source against a real broker: what it hands over, and what it says of positions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tidegate::config::{Kafka, Start};
use tidegate::record::{NextOffset, TopicPartition};
use tidegate::secret::Secret;
use tidegate::source::kafka::{KafkaSource, Membership};
use tidegate::source::{CommitMode, Demand, Event, Health, Source};

use crate::harness::{Broker, Producer, Record, Topic, group, wait_for};

const LIMIT: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_millis(20);
const BUDGET: usize = 8 << 20;
const ALL: Demand = Demand { records: 10_000, bytes: 64 << 20 };

type Owned = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

/// A lane without plugins and sinks: every record is finished when it is handed over.
struct Reader {
    source: Box<dyn Source>,
    demand: Demand,
    /// Where a partition begins that the lane is given.
    starts: BTreeMap<i32, i64>,
    assigned: BTreeSet<TopicPartition>,
    /// Per partition, what was handed over, with its offset.
    records: BTreeMap<TopicPartition, Vec<(i64, Owned)>>,
    /// Per partition of the present assignment.
    snapshot: BTreeMap<TopicPartition, i64>,
    lows: BTreeMap<TopicPartition, i64>,
    positions: BTreeMap<TopicPartition, i64>,
    health: Vec<Health>,
    warnings: Vec<String>,
    lost: usize,
}

impl Reader {
    fn start(settings: &Kafka, membership: Membership) -> Self {
        let source = KafkaSource::try_new(settings, &settings.group, membership, BUDGET).expect("a source");
        Self {
            source: Box::new(source),
            demand: ALL,
            starts: BTreeMap::new(),
            assigned: BTreeSet::new(),
            records: BTreeMap::new(),
            snapshot: BTreeMap::new(),
            lows: BTreeMap::new(),
            positions: BTreeMap::new(),
            health: Vec::new(),
            warnings: Vec::new(),
            lost: 0,
        }
    }

    fn shared(topic: &Topic<'_>) -> Self {
        Self::start(&settings(topic.broker, &[&topic.name]), Membership::Shared)
    }

    fn step(&mut self) -> anyhow::Result<()> {
        match self.source.poll(self.demand, WAIT)? {
            Event::Idle | Event::Standby | Event::Logs(_) | Event::Partitions(_) => {}
            Event::Records(batches) => {
                for batch in batches {
                    let partition = batch.partition().clone();
                    assert!(self.assigned.contains(&partition), "{partition} is not ours");
                    let records = self.records.entry(partition.clone()).or_default();
                    for record in &batch {
                        let headers = record.headers.map(|(n, v)| (n.to_vec(), v.map(<[u8]>::to_vec))).collect();
                        let owned = (record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec), headers);
                        records.push((record.offset, owned));
                    }
                    let last = *batch.offsets().last().expect("a batch is not empty");
                    self.positions.insert(partition, last + 1);
                }
            }
            Event::Assign(partitions) => {
                let start = |p: &TopicPartition| self.starts.get(&p.partition).copied().map(NextOffset);
                let starts: Vec<_> = partitions.iter().map(|p| (p.clone(), start(p))).collect();
                self.source.assign(&starts)?;
                self.assigned.extend(partitions);
            }
            Event::Revoke { partitions, lost } => {
                self.lost += usize::from(lost);
                if !lost {
                    let of_these = |(p, _): &(TopicPartition, NextOffset)| partitions.contains(p);
                    let heads: Vec<_> = self.heads().into_iter().filter(of_these).collect();
                    self.source.commit(&heads, CommitMode::Sync)?;
                }
                for partition in &partitions {
                    self.assigned.remove(partition);
                    self.snapshot.remove(partition);
                    self.positions.remove(partition);
                }
                self.source.release(&partitions)?;
            }
            Event::Progress(progress) => {
                for known in progress {
                    let partition = known.partition;
                    assert!(self.assigned.contains(&partition), "{partition} is not ours");
                    if let Some(low) = known.low {
                        self.lows.insert(partition.clone(), low);
                    }
                    if let Some(end) = known.end {
                        self.snapshot.entry(partition.clone()).or_insert(end.0);
                    }
                    if let Some(position) = known.position {
                        let before = self.positions.insert(partition.clone(), position.0);
                        assert!(before <= Some(position.0), "{partition} went back from {before:?}");
                    }
                }
            }
            Event::Health(health) => self.health.push(health),
            Event::Warning(warning) => self.warnings.push(warning),
        }
        Ok(())
    }

    fn heads(&self) -> Vec<(TopicPartition, NextOffset)> {
        self.positions.iter().map(|(partition, next)| (partition.clone(), NextOffset(*next))).collect()
    }

    #[track_caller]
    fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} for {what}\n{self:?}");
            self.step().expect("the source goes on");
        }
    }

    /// Until everything that was there at the start is read.
    #[track_caller]
    fn until_live(&mut self, partitions: usize) {
        self.until("the end of the snapshot", |reader| {
            reader.snapshot.len() == partitions
                && reader.snapshot.iter().all(|(p, end)| reader.positions.get(p).is_some_and(|at| at >= end))
        });
    }

    fn position(&self, topic: &Topic<'_>, partition: i32) -> Option<i64> {
        self.positions.get(&TopicPartition::new(topic.name.as_str(), partition)).copied()
    }

    fn offsets(&self, topic: &Topic<'_>, partition: i32) -> Vec<i64> {
        let partition = TopicPartition::new(topic.name.as_str(), partition);
        self.records.get(&partition).into_iter().flatten().map(|(offset, _)| *offset).collect()
    }

    fn count(&self) -> usize {
        self.records.values().map(Vec::len).sum()
    }

    fn commit(&mut self) {
        let heads = self.heads();
        wait_for("the commit", LIMIT, || self.source.commit(&heads, CommitMode::Sync).ok());
    }

    fn close(self) -> Duration {
        let start = Instant::now();
        self.source.close(Duration::from_secs(10));
        start.elapsed()
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { assigned, snapshot, lows, positions, health, .. } = self;
        write!(f, "{assigned:?} snapshot {snapshot:?} from {lows:?} at {positions:?}, {health:?}, {}", self.count())
    }
}

fn settings(broker: &Broker, topics: &[&str]) -> Kafka {
    let topics: Vec<_> = topics.iter().map(|topic| (*topic).to_owned()).collect();
    Kafka {
        cluster: "main".to_owned(),
        properties: [("bootstrap.servers", broker.bootstrap()), ("reconnect.backoff.max.ms", "500".to_owned())]
            .map(|(name, value)| (name.to_owned(), Secret::new(value)))
            .into(),
        group: format!("source.{}", topics[0]),
        topics,
        start: Start::Earliest,
        drain_timeout: Duration::from_secs(5),
        inspect_topics: true,
    }
}

fn set(settings: &mut Kafka, name: &str, value: &str) {
    settings.properties.insert(name.to_owned(), Secret::new(value));
}

fn puts(range: std::ops::Range<i32>) -> impl Iterator<Item = Record> {
    range.map(|n| Record::put(format!("k{n}"), format!("{{\"n\":{n}}}")).to(0))
}

#[test]
fn a_marker_at_the_end_is_passed() {
    let topic = Topic::compacted(Broker::shared(), 1);
    let producer = Producer::transactional(topic.broker, &topic.name);
    producer.begin();
    puts(0..5).for_each(|record| producer.send(&topic.name, &record));
    producer.commit();

    let mut reader = Reader::shared(&topic);
    reader.until_live(1);
    assert_eq!(reader.offsets(&topic, 0), [0, 1, 2, 3, 4]);
    assert_eq!(reader.position(&topic, 0), Some(6));
    reader.commit();
    assert_eq!(group::committed(&format!("source.{}", topic.name), &topic), [Some(6)]);
    reader.close();
}

#[test]
fn an_aborted_transaction_at_the_end_is_passed() {
    let topic = Topic::compacted(Broker::shared(), 1);
    Producer::new(topic.broker).write(&topic, puts(0..5));
    let producer = Producer::transactional(topic.broker, &topic.name);
    producer.begin();
    puts(5..12).for_each(|record| producer.send(&topic.name, &record));
    producer.abort();

    let mut reader = Reader::shared(&topic);
    reader.until_live(1);
    assert_eq!(reader.offsets(&topic, 0), [0, 1, 2, 3, 4]);
    assert_eq!(reader.position(&topic, 0), Some(13));

    Producer::new(topic.broker).write(&topic, puts(20..21));
    reader.until("the record behind it", |reader| reader.offsets(&topic, 0).ends_with(&[13]));
    reader.close();
}

#[test]
fn an_open_transaction_ends_what_is_visible() {
    let topic = Topic::compacted(Broker::shared(), 1);
    Producer::new(topic.broker).write(&topic, puts(0..5));
    let producer = Producer::transactional(topic.broker, &topic.name);
    producer.begin();
    puts(5..8).for_each(|record| producer.send(&topic.name, &record));
    producer.flush();
    Producer::new(topic.broker).write(&topic, puts(8..9));

    let mut reader = Reader::shared(&topic);
    reader.until_live(1);
    assert_eq!(reader.position(&topic, 0), Some(5));
    producer.commit();
    reader.until("the rest", |reader| reader.position(&topic, 0) == Some(10));
    assert_eq!(reader.offsets(&topic, 0), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    reader.close();
}

#[test]
fn holes_and_a_tail_that_compaction_left_are_passed() {
    let topic = Topic::with_config(
        Broker::shared(),
        1,
        &[
            ("cleanup.policy", "compact"),
            ("segment.ms", "200"),
            ("delete.retention.ms", "200"),
            ("min.cleanable.dirty.ratio", "0.001"),
            ("max.compaction.lag.ms", "500"),
        ],
    );
    let producer = Producer::new(topic.broker);
    producer.write(&topic, (0..20).map(|n| Record::put("same", n.to_string())));
    producer.write(&topic, [Record::put("other", "1"), Record::delete("gone")]);
    // A segment is closed by the first record after its time, and compacted when it is closed.
    let roll = Producer::transactional(topic.broker, &topic.name);
    wait_for("compaction", LIMIT, || {
        roll.begin();
        roll.send(&topic.name, &Record::put("aborted", "x"));
        roll.abort();
        let mut settings = settings(topic.broker, &[&topic.name]);
        settings.group.push_str(".look");
        let mut look = Reader::start(&settings, Membership::Local);
        look.until_live(1);
        let offsets = look.offsets(&topic, 0);
        look.close();
        (offsets == [19, 20]).then_some(())
    });

    let mut reader = Reader::shared(&topic);
    reader.until_live(1);
    assert_eq!(reader.offsets(&topic, 0), [19, 20]);
    assert_eq!(reader.position(&topic, 0), Some(topic.ends()[0]));
    assert!(topic.ends()[0] > 22);
    reader.close();
}

#[test]
fn a_log_that_begins_above_zero_and_one_that_was_never_written_end() {
    let topic = Topic::deleting(Broker::shared(), 3);
    let producer = Producer::new(topic.broker);
    producer.write(&topic, puts(0..10));
    producer.write(&topic, puts(0..4).map(|record| record.to(1)));
    topic.cut(0, 3);
    topic.cut(1, 4);

    for membership in [Membership::Shared, Membership::Local] {
        let mut reader = Reader::start(&settings(topic.broker, &[&topic.name]), membership);
        reader.starts = match membership {
            Membership::Shared => BTreeMap::new(),
            Membership::Local => [(0, 0), (1, 0)].into(),
        };
        reader.until_live(3);
        assert_eq!(reader.offsets(&topic, 0), [3, 4, 5, 6, 7, 8, 9]);
        assert_eq!((0..3).map(|p| reader.position(&topic, p)).collect::<Vec<_>>(), [Some(10), Some(4), Some(0)]);
        reader.until("the low watermarks", |reader| reader.lows.len() == 3);
        assert_eq!(reader.lows.values().copied().collect::<Vec<_>>(), [3, 4, 0]);
        reader.close();
    }
}

#[test]
fn null_and_empty_and_absent_arrive_as_they_were_written() {
    let topic = Topic::deleting(Broker::shared(), 1);
    let record = Record::put("k", "v").header("h", None).header("h", Some(b"")).header("", Some(b"\xff"));
    let written = [Record::put("", ""), Record::delete("k"), Record::without_key("v"), Record::default(), record];
    Producer::new(topic.broker).write(&topic, written.clone().map(|record| record.to(0)));

    let mut reader = Reader::shared(&topic);
    reader.until_live(1);
    let read: Vec<Owned> = reader.records.values().flatten().map(|(_, record)| record.clone()).collect();
    let headers = |r: &Record| r.headers.iter().map(|(n, v)| (n.clone().into_bytes(), v.clone())).collect();
    assert_eq!(read, written.map(|r| (r.key.clone(), r.value.clone(), headers(&r))));
    reader.close();
}

#[test]
fn a_topic_that_is_created_later_is_read_whole() {
    let early = Topic::compacted(Broker::shared(), 1);
    let late = Topic::named(Broker::shared(), 2);
    Producer::new(early.broker).write(&early, puts(0..1));
    for membership in [Membership::Shared, Membership::Local] {
        let mut settings = settings(early.broker, &[&early.name, &late.name]);
        settings.start = Start::Latest;
        let mut reader = Reader::start(&settings, membership);
        reader.until_live(1);
        let missing = Health::MissingTopic { topics: vec![late.name.clone()] };
        reader.until("the missing topic is told", |reader| reader.health.contains(&missing));
        assert_eq!(reader.count(), 0, "`start: latest` skips what was there");

        late.create(&[("cleanup.policy", "compact")]);
        Producer::new(late.broker).write(&late, (0..6).map(|n| Record::put("k", "v").to(n % 2)));
        reader.until("the late topic", |reader| reader.count() == 6);
        reader.until("all is well", |reader| reader.health.last() == Some(&Health::Ready));
        reader.close();
        late.delete();
        let gone = Topic { broker: late.broker, name: late.name.clone(), partitions: 1 };
        wait_for("the topic to go", LIMIT, || (!exists(&gone)).then_some(()));
    }
}

fn exists(topic: &Topic<'_>) -> bool {
    use rdkafka::consumer::{BaseConsumer, Consumer};
    let consumer: BaseConsumer = topic.broker.client().create().expect("a consumer");
    let metadata = consumer.fetch_metadata(Some(&topic.name), Duration::from_secs(5)).expect("an answer");
    metadata.topics().iter().all(|topic| topic.error().is_none())
}

#[test]
fn a_partition_that_is_added_later_is_read_from_its_beginning() {
    let mut topic = Topic::compacted(Broker::shared(), 1);
    let producer = Producer::new(topic.broker);
    producer.write(&topic, puts(0..3));
    let mut settings = settings(topic.broker, &[&topic.name]);
    settings.start = Start::Latest;
    let mut reader = Reader::start(&settings, Membership::Shared);
    reader.until_live(1);
    assert_eq!(reader.count(), 0);
    topic.grow(2);
    Producer::new(topic.broker).write(&topic, (0..3).map(|_| Record::put("k", "v").to(1)));
    reader.until("the new partition", |reader| reader.offsets(&topic, 1) == [0, 1, 2]);
    reader.commit();
    reader.close();

    // Added while nobody looked: the group is not new, so the partition is read whole.
    topic.grow(3);
    Producer::new(topic.broker).write(&topic, (0..3).map(|_| Record::put("k", "v").to(2)));
    let mut reader = Reader::start(&settings, Membership::Shared);
    reader.until("the newer partition", |reader| reader.offsets(&topic, 2) == [0, 1, 2]);
    reader.until_live(3);
    assert_eq!(reader.count(), 3);
    reader.close();
}

#[test]
fn partitions_that_move_between_two_members_are_read_once_each() {
    let topic = Topic::compacted(Broker::shared(), 4);
    let producer = Producer::new(topic.broker);
    let mut written = 0;
    let mut write = |count: i64| {
        for n in written..written + count {
            producer.send(&topic.name, &Record::put(format!("{n}"), "v").to((n % 4) as i32));
        }
        producer.flush();
        written += count;
        written as usize
    };
    let mut first = Reader::shared(&topic);
    let total = write(400);
    first.until("the first records", |reader| reader.count() == total);
    first.until_live(4);
    for round in 0..3 {
        let mut second = Reader::shared(&topic);
        // Less than what is taken from librdkafka at once, so that a rebalance meets messages that are not handed over.
        second.demand = Demand { records: 1000, bytes: 20 };
        let before = first.count();
        let start = Instant::now();
        // Both are polled while records arrive one by one, so that each rebalance meets partitions at their end.
        while second.assigned.len() != 2 || first.assigned.len() != 2 {
            assert!(start.elapsed() < LIMIT, "no balance in round {round}\n{first:?}\n{second:?}");
            write(4);
            first.step().expect("the first goes on");
            second.step().expect("the second goes on");
        }
        let total = write(400);
        let start = Instant::now();
        while first.count() + second.count() < total {
            assert!(start.elapsed() < LIMIT, "{} of {total}\n{first:?}\n{second:?}", first.count() + second.count());
            first.step().expect("the first goes on");
            second.step().expect("the second goes on");
        }
        assert!(first.count() > before && second.count() > 0);
        second.until_live(2);
        second.commit();
        for (partition, records) in second.records.clone() {
            first.records.entry(partition).or_default().extend(records);
        }
        let leaver = std::thread::spawn(move || second.close());
        first.until("the partitions come back", |reader| reader.assigned.len() == 4);
        assert!(leaver.join().expect("the second closes") < Duration::from_secs(10));
        let total = write(40);
        first.until("the records after", |reader| reader.count() >= total);
    }
    assert_eq!(first.lost, 0);
    let ends = topic.ends();
    for partition in 0..4 {
        assert_eq!(first.offsets(&topic, partition), (0..ends[partition as usize]).collect::<Vec<_>>());
    }
    first.close();
}

#[test]
fn without_demand_nothing_comes_and_the_group_is_kept() {
    let topic = Topic::compacted(Broker::shared(), 2);
    let value = "x".repeat(10_000);
    let write = || Producer::new(topic.broker).write(&topic, (0..4000).map(|n| Record::put("k", &value).to(n % 2)));
    write();
    let mut settings = settings(topic.broker, &[&topic.name]);
    set(&mut settings, "session.timeout.ms", "6000");
    set(&mut settings, "max.poll.interval.ms", "6000");
    let mut reader = Reader::start(&settings, Membership::Shared);
    reader.demand = Demand { records: 7, bytes: 25_000 };
    reader.until("the first records", |reader| reader.count() > 0);
    assert!(reader.count() <= 3, "a demand of 25,000 bytes is met by {} records", reader.count());
    reader.demand = Demand::NONE;
    let before = reader.count();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        reader.step().expect("the source goes on");
    }
    assert_eq!(reader.count(), before);
    assert_eq!(reader.assigned.len(), 2);
    reader.demand = ALL;
    reader.until("the rest", |reader| reader.count() == 4000);
    assert_eq!(reader.lost, 0);
    reader.close();
}

#[test]
fn an_offset_beyond_the_end_is_reset_and_commits_work_again() {
    let topic = Topic::compacted(Broker::shared(), 1);
    Producer::new(topic.broker).write(&topic, puts(0..10));
    let settings = settings(topic.broker, &[&topic.name]);
    group::set_committed(&settings.group, &topic, &[1_000_000]);
    let mut reader = Reader::start(&settings, Membership::Shared);
    reader.until_live(1);
    assert_eq!(reader.count(), 10);
    reader.commit();
    assert_eq!(group::committed(&settings.group, &topic), [Some(10)]);
    reader.close();
}

#[test]
fn a_local_start_beyond_the_end_is_an_error_that_says_so() {
    let topic = Topic::compacted(Broker::shared(), 1);
    Producer::new(topic.broker).write(&topic, puts(0..10));
    let mut reader = Reader::start(&settings(topic.broker, &[&topic.name]), Membership::Local);
    reader.starts = [(0, 1000)].into();
    let error = wait_for("the error", LIMIT, || reader.step().err());
    let expected =
        format!("`{}[0]` went back from offset 1000 to 0: the topic was re-created or truncated", topic.name);
    assert_eq!(error.to_string(), expected);
    reader.close();
}

#[test]
fn a_local_lane_reads_all_partitions_from_its_own_offsets_and_still_commits() {
    let topic = Topic::compacted(Broker::shared(), 2);
    Producer::new(topic.broker).write(&topic, (0..20).map(|n| Record::put("k", "v").to(n % 2)));
    let settings = settings(topic.broker, &[&topic.name]);
    group::set_committed(&settings.group, &topic, &[2, 2]);
    let mut reader = Reader::start(&settings, Membership::Local);
    reader.starts = [(1, 4)].into();
    reader.until_live(2);
    assert_eq!(reader.offsets(&topic, 0).len(), 10, "the group's offset does not count");
    assert_eq!(reader.offsets(&topic, 1), [4, 5, 6, 7, 8, 9]);
    reader.commit();
    assert_eq!(group::committed(&settings.group, &topic), [Some(10), Some(10)]);
    reader.close();
}

#[test]
fn a_broker_that_stops_and_comes_back_is_read_on() {
    let broker = Broker::start();
    let name = {
        let topic = Topic::compacted(&broker, 2);
        Producer::new(&broker).write(&topic, (0..10).map(|n| Record::put("k", "v").to(n % 2)));
        topic.name
    };
    let mut reader = Reader::start(&settings(&broker, &[&name]), Membership::Shared);
    reader.until_live(2);
    broker.kill();
    let is_down = |health: &Health| matches!(health, Health::Connecting { reason } if !reason.is_empty());
    reader.until("the outage is told", |reader| reader.health.last().is_some_and(is_down));
    broker.restart();
    reader.until("the recovery is told", |reader| reader.health.last() == Some(&Health::Ready));
    let topic = Topic { broker: &broker, name, partitions: 2 };
    Producer::new(&broker).write(&topic, (0..10).map(|n| Record::put("k", "w").to(n % 2)));
    reader.until("the records after", |reader| reader.count() >= 20);
    assert_eq!(reader.offsets(&topic, 0), (0..10).collect::<Vec<_>>());
    reader.commit();
    assert_eq!(group::committed(&format!("source.{}", topic.name), &topic), [Some(10), Some(10)]);
    reader.close();
}

#[test]
fn closing_is_bounded_when_the_topic_or_the_broker_is_gone() {
    let broker = Broker::start();
    let name = {
        let topic = Topic::compacted(&broker, 1);
        Producer::new(&broker).write(&topic, puts(0..10));
        let mut reader = Reader::shared(&topic);
        reader.until_live(1);
        topic.delete();
        assert!(reader.close() < Duration::from_secs(10), "the topic was deleted");
        let topic = Topic::compacted(&broker, 1);
        topic.name
    };
    let mut reader = Reader::start(&settings(&broker, &[&name]), Membership::Shared);
    reader.until_live(1);
    broker.kill();
    let heads = reader.heads();
    let start = Instant::now();
    reader.source.commit(&heads, CommitMode::Sync).expect_err("nobody answers");
    assert!(start.elapsed() < Duration::from_secs(8));
    assert!(reader.close() < Duration::from_secs(11), "the broker was killed");
}

#[test]
fn an_address_where_nobody_listens_is_told_with_the_reason() {
    let broker = Broker::shared();
    let mut settings = settings(broker, &["t"]);
    set(&mut settings, "bootstrap.servers", "127.0.0.1:1");
    let mut reader = Reader::start(&settings, Membership::Shared);
    reader.until("the reason", |reader| {
        let refused = |reason: &str| reason.contains("127.0.0.1:1") && reason.contains("refused");
        matches!(reader.health.last(), Some(Health::Connecting { reason }) if refused(reason))
    });
    assert!(reader.close() < Duration::from_secs(10));
}

#[test]
fn a_topic_that_is_not_compacted_is_warned_of() {
    let (compacted, deleting) = (Topic::compacted(Broker::shared(), 1), Topic::deleting(Broker::shared(), 1));
    let settings = settings(compacted.broker, &[&compacted.name, &deleting.name]);
    let mut reader = Reader::start(&settings, Membership::Local);
    reader.until("the warning", |reader| !reader.warnings.is_empty());
    reader.until_live(2);
    assert_eq!(reader.warnings.len(), 1);
    assert!(reader.warnings[0].starts_with(&format!("topic `{}` is not compacted", deleting.name)));
    reader.close();
}

#[test]
fn the_new_protocol_and_eager_assignors_work_alike() {
    for (name, value) in [("group.protocol", "consumer"), ("partition.assignment.strategy", "range")] {
        let topic = Topic::compacted(Broker::shared(), 4);
        let producer = Producer::new(topic.broker);
        producer.write(&topic, (0..40).map(|n| Record::put("k", "v").to(n % 4)));
        let mut settings = settings(topic.broker, &[&topic.name]);
        set(&mut settings, name, value);
        let mut first = Reader::start(&settings, Membership::Shared);
        first.until_live(4);
        assert_eq!(first.count(), 40, "{value}");
        let mut second = Reader::start(&settings, Membership::Shared);
        let start = Instant::now();
        while second.assigned.len() != 2 || first.assigned.len() != 2 {
            assert!(start.elapsed() < LIMIT, "{value}: no balance\n{first:?}\n{second:?}");
            first.step().expect("the first goes on");
            second.step().expect("the second goes on");
        }
        producer.write(&topic, (0..40).map(|n| Record::put("k", "v").to(n % 4)));
        first.until("its half", |reader| reader.count() == 60);
        second.until("its half", |reader| reader.count() == 20);
        second.close();
        first.close();
    }
}
