//! A lane for the sinks' tests: its partitions, deliveries and receipts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::{Context, Receipt};
use crate::checkpoint::Checkpoint;
use crate::config::{OnDrop, OnReject, Retry, Sink, SinkKind};
use crate::delivery::{Assignments, Delivery, Fate, Hold, OnError, Rejection, Skips, Span, Stage};
use crate::metrics::Metrics;
use crate::record::{Batch, NextOffset, TopicPartition};
use crate::stop::Stop;

/// Long enough for anything a test waits for, on the busiest machine.
pub const SOON: Duration = Duration::from_secs(30);

static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
});

pub fn runtime() -> tokio::runtime::Handle {
    RUNTIME.handle().clone()
}

pub struct Lane {
    pub context: Context,
    pub receipts: Receiver<Receipt>,
    /// What the lane was told that the sink waits for, oldest first.
    pub waits: Arc<Mutex<Vec<Option<String>>>>,
    partitions: BTreeMap<(String, i32), (u64, Checkpoint)>,
}

/// One row that leaves the chain: offset, timestamp, key, value, fate.
pub type Row<'a> = (i64, i64, Option<&'a [u8]>, Option<&'a [u8]>, Fate);

impl Lane {
    pub fn new(dir: &Path, kind: SinkKind) -> Self {
        Self::with(dir, kind, |_| {})
    }

    pub fn with(dir: &Path, kind: SinkKind, change: impl FnOnce(&mut Sink)) -> Self {
        let max_batches = 64;
        let (sender, receipts) = crossbeam_channel::bounded(max_batches);
        let waits = Arc::new(Mutex::new(Vec::new()));
        let shown = Arc::clone(&waits);
        let retry = Retry { attempts: None, backoff: Duration::from_millis(1), max: Duration::from_millis(4) };
        let mut sink = Sink {
            name: "s".to_owned(),
            kind,
            on_drop: OnDrop::Delete,
            on_reject: OnReject::Keep,
            on_error: OnError::DeadLetter,
            retry,
        };
        change(&mut sink);
        let context = Context {
            route: "r".to_owned(),
            sink: Arc::new(sink),
            dead_letters: dir.join("dead.ndjson"),
            assignments: Assignments::default(),
            skips: Skips::default(),
            metrics: Metrics::new().lane("r", "s"),
            waiting: Arc::new(move |wait| shown.lock().unwrap().push(wait)),
            under_way: Arc::default(),
            runtime: runtime(),
            receipts: sender,
            max_batches,
            changes_keys: false,
            stop: Stop::new(),
        };
        Self { context, receipts, waits, partitions: BTreeMap::new() }
    }

    /// A delivery of one partition, whose assignment lasts until it is removed.
    pub fn delivery(&mut self, topic: &str, partition: i32, rows: &[Row<'_>]) -> Delivery {
        let mut batch = Batch::new(TopicPartition::new(topic, partition));
        for (offset, timestamp, key, value, _) in rows {
            batch.push(*offset, *timestamp, *key, *value);
        }
        let hold = Hold::new(Arc::default(), &batch);
        let mut delivery = Delivery::new(self.span(&batch), batch, hold);
        for (row, (.., fate)) in rows.iter().enumerate() {
            delivery.set_fate(row, fate.clone());
        }
        delivery
    }

    /// A delivery whose rows are not its records: each row names its record's index.
    pub fn changed(&mut self, input: Batch, rows: Batch, marks: Vec<(u32, Fate)>) -> Delivery {
        let hold = Hold::new(Arc::default(), &input);
        let mut delivery = Delivery::new(self.span(&input), input, hold);
        delivery.set_rows(rows, marks);
        delivery
    }

    /// What was read may be read once more.
    pub fn read_again(&mut self) {
        self.partitions.clear();
    }

    fn span(&mut self, batch: &Batch) -> Span {
        let next_assignment = self.partitions.len() as u64 + 1;
        let TopicPartition { topic, partition } = batch.partition();
        let (assignment, checkpoint) = self
            .partitions
            .entry((topic.to_string(), *partition))
            .or_insert_with(|| (next_assignment, Checkpoint::new(None)));
        self.context.assignments.insert(*assignment);
        let (first, last) = (batch.offsets()[0], batch.offsets()[batch.len() - 1]);
        let next = NextOffset(last + 1);
        Span { assignment: *assignment, ticket: checkpoint.received(first, next), next, whole: true }
    }

    pub fn receipt(&self) -> Receipt {
        self.receipts.recv_timeout(SOON).expect("a receipt comes soon")
    }

    pub fn done(&self) -> Span {
        match self.receipt() {
            Receipt::Done(span) => span,
            Receipt::Ledger(entry) => panic!("not asked for: {entry:?}"),
            Receipt::Halted(halt) => panic!("halted: {halt:?}"),
        }
    }

    /// The offsets of the dead letters.
    pub fn dead_offsets(&self) -> Vec<i64> {
        self.dead_letters().iter().map(|letter| letter["offset"].as_i64().unwrap()).collect()
    }

    pub fn dead_letters(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&self.context.dead_letters).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub fn put<'a>(offset: i64, key: &'a str, value: &'a str) -> Row<'a> {
    (offset, offset, Some(key.as_bytes()), Some(value.as_bytes()), Fate::Write)
}

pub fn delete(offset: i64, key: &str) -> Row<'_> {
    (offset, offset, Some(key.as_bytes()), None, Fate::Write)
}

pub fn rejected(offset: i64, key: &str, policy: OnError) -> Row<'_> {
    let stage = Stage::Plugin { name: "p".into(), version: "1".into() };
    let rejection = Rejection { stage, cause: "no".to_owned(), policy, attempts: 1 };
    (offset, offset, Some(key.as_bytes()), Some(b"{}"), Fate::Reject(rejection))
}

/// Waits for a condition; fails when it does not come soon.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::yield_now();
    }
}
