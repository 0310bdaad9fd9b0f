//! Where records come from: everything a source can say is one closed enum, [`Event`].
//!
//! A source is driven by its lane's poll thread alone. It never decides when something is finished: it hands records over,
//! tells what it knows of positions, asks for an answer when partitions come or go, and commits what it is told to.

pub mod kafka;
pub mod ndjson;

use std::time::{Duration, Instant};

use crate::record::{Batch, NextOffset, TopicPartition};

pub trait Source: Send {
    /// Returns the next thing to know. Waits at most `wait` when there is nothing.
    ///
    /// # Errors
    /// Only what cannot recover by itself; an unreachable broker or a missing topic is [`Event::Health`].
    fn poll(&mut self, demand: Demand, wait: Duration) -> anyhow::Result<Event>;

    /// Answers [`Event::Assign`]: reading begins, for each partition, at the given offset; `None` = where the source
    /// keeps its own (the consumer group's committed offset, else the configured start).
    fn assign(&mut self, starts: &[(TopicPartition, Option<NextOffset>)]) -> anyhow::Result<()>;

    /// Answers [`Event::Revoke`]: nothing of these partitions is in hand any more.
    fn release(&mut self, partitions: &[TopicPartition]) -> anyhow::Result<()>;

    /// From now on [`Event::Logs`] is told: before each assignment, and again and again of what is assigned.
    fn watch_logs(&mut self) {}

    /// Gives these partitions up and takes them again, as a rebalance of the source's own making. Only after
    /// [`Source::watch_logs`]; a source that has no logs does nothing.
    fn retake(&mut self, _partitions: &[TopicPartition]) {}

    /// Keeps the checkpoint where lag tools and a successor look for it.
    fn commit(&mut self, offsets: &[(TopicPartition, NextOffset)], mode: CommitMode) -> anyhow::Result<()>;

    /// Leaves the group and lets go of the connection, within `grace`.
    fn close(self: Box<Self>, grace: Duration);
}

/// What the lane has room for. With none of either nothing is drained, which is the back-pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Records in all, over the batches returned.
    pub records: usize,
    /// Bytes of keys, values and headers; the last record may pass it.
    pub bytes: usize,
}

impl Demand {
    pub const NONE: Self = Self { records: 0, bytes: 0 };

    pub fn is_none(self) -> bool {
        self.records == 0 || self.bytes == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitMode {
    /// Each second, while running.
    Async,
    /// Before a partition is given away, and at the end.
    Sync,
}

#[derive(Debug)]
pub enum Event {
    /// Nothing came within the wait.
    Idle,
    /// Batches of assigned partitions; at least one record each, in offset order per partition.
    Records(Vec<Batch>),
    /// These partitions are ours from now on. Nothing of them is read before [`Source::assign`].
    Assign(Vec<TopicPartition>),
    /// These partitions go. Nothing more of them is handed over. The lane finishes or drops what it has in hand, commits,
    /// and calls [`Source::release`]; when `lost`, somebody else may own them already and nothing may be committed.
    Revoke { partitions: Vec<TopicPartition>, lost: bool },
    /// The group has no partition for us: there are more instances than partitions. [`Event::Assign`] may follow any time.
    Standby,
    /// What the broker says of these partitions' logs, asked for at one moment each. See [`Source::watch_logs`].
    Logs(Vec<PartitionLog>),
    /// What is known of the partitions' ends and of our position.
    Progress(Vec<Progress>),
    /// How many partitions the topics have, some of which may be other instances'.
    Partitions(usize),
    /// The state of the connection changed.
    Health(Health),
    /// Something that an operator should know and that stays true, such as a topic that is not compacted.
    Warning(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionLog {
    pub partition: TopicPartition,
    /// Base64; `None` = the broker does not say.
    pub topic_id: Option<String>,
    pub low: i64,
    /// One past the last offset that is visible at our isolation level.
    pub end: NextOffset,
    /// The moment before the question was sent.
    pub asked: Instant,
    /// The topic's `delete.retention.ms`.
    pub retention: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub partition: TopicPartition,
    /// The first offset that the log still holds.
    pub low: Option<i64>,
    /// One past the last offset that is visible at our isolation level. The first one told after an assignment is the end
    /// of the lane's snapshot.
    pub end: Option<NextOffset>,
    /// Given only when every visible record below it was handed over.
    pub position: Option<NextOffset>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// No answer yet, or none any more.
    Connecting {
        reason: String,
    },
    /// The broker answers and the topics named here do not exist.
    MissingTopic {
        topics: Vec<String>,
    },
    Ready,
    /// The source has ended and nothing more will come (a file).
    Ended,
}
