//! Consumer groups, seen from outside the gateway.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use super::wait::wait_for;
use super::{Broker, Topic};

const LIMIT: Duration = Duration::from_secs(30);
/// Between two looks of a [`Watch`].
const INTERVAL: Duration = Duration::from_millis(100);

/// A group's committed offset for each partition; `None` = it has none.
pub fn committed(group: &str, topic: &Topic<'_>) -> Vec<Option<i64>> {
    let consumer = member(topic.broker, group);
    // On a fresh broker the coordinator may not be there yet.
    wait_for("the committed offsets", LIMIT, || look(&consumer, &topic.name, topic.partitions))
}

/// State and member ids of a group.
pub fn members(broker: &Broker, group: &str) -> (String, Vec<String>) {
    let consumer: BaseConsumer = broker.client().create().expect("a consumer");
    wait_for("the group's description", LIMIT, || {
        let list = consumer.fetch_group_list(Some(group), Duration::from_secs(5)).ok()?;
        let found = list.groups().iter().find(|found| found.name() == group)?;
        let ids = found.members().iter().map(|member| member.id().to_owned()).collect();
        Some((found.state().to_owned(), ids))
    })
}

/// Moves a group that has no members.
pub fn set_committed(group: &str, topic: &Topic<'_>, offsets: &[i64]) {
    let consumer = member(topic.broker, group);
    let mut list = TopicPartitionList::new();
    for (partition, offset) in offsets.iter().enumerate() {
        list.add_partition_offset(&topic.name, partition as i32, Offset::Offset(*offset)).expect("a valid offset");
    }
    wait_for("the commit", LIMIT, || consumer.commit(&list, rdkafka::consumer::CommitMode::Sync).ok());
}

/// Looks at a group's committed offsets all the time, and remembers each step backwards.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    findings: Arc<Mutex<Findings>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Debug, Default)]
pub struct Findings {
    pub looks: u64,
    /// Partition, the offset before, the offset after.
    pub backwards: Vec<(usize, Option<i64>, Option<i64>)>,
    pub last: Vec<Option<i64>>,
}

impl Watch {
    pub fn start(group: &str, topic: &Topic<'_>) -> Self {
        let (stop, findings) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Findings::default())));
        let consumer = member(topic.broker, group);
        let (name, partitions) = (topic.name.clone(), topic.partitions);
        let (stop_seen, found) = (stop.clone(), findings.clone());
        let thread = std::thread::spawn(move || {
            while !stop_seen.load(Ordering::Relaxed) {
                if let Some(now) = look(&consumer, &name, partitions) {
                    let mut findings = found.lock().unwrap_or_else(PoisonError::into_inner);
                    findings.looks += 1;
                    let before = std::mem::replace(&mut findings.last, now.clone());
                    for (partition, (before, after)) in before.into_iter().zip(now).enumerate() {
                        if after < before {
                            findings.backwards.push((partition, before, after));
                        }
                    }
                }
                std::thread::sleep(INTERVAL);
            }
        });
        Self { stop, findings, thread: Some(thread) }
    }

    pub fn stop(mut self) -> Findings {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("stopped once").join().expect("the watch did not panic");
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn look(consumer: &BaseConsumer, topic: &str, partitions: i32) -> Option<Vec<Option<i64>>> {
    let mut list = TopicPartitionList::new();
    list.add_partition_range(topic, 0, partitions - 1);
    let list = consumer.committed_offsets(list, Duration::from_secs(5)).ok()?;
    let offset = |partition| match list.find_partition(topic, partition)?.offset() {
        Offset::Offset(offset) => Some(offset),
        _ => None,
    };
    Some((0..partitions).map(offset).collect())
}

/// A client that knows the group's name and never joins it.
fn member(broker: &Broker, group: &str) -> BaseConsumer {
    broker.client().set("group.id", group).set("enable.auto.commit", "false").create().expect("a consumer")
}
