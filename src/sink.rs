//! Where records go. Every sink has the same two faces: settings that were checked, and a writer that takes deliveries and
//! gives back the spans it has finished.
//!
//! A sink that blocks implements [`Blocking`] and is driven on a thread of its own; one that waits runs on the shared
//! runtime. Both retry what is transient, hand rejected records to the dead letters, and acknowledge a span only when each
//! of its outputs is written, dropped, or safe as a dead letter.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{Sink, SinkKind};
use crate::delivery::{Assignments, Delivery, Fate, OnError, Rejection, Skips, Span};
use crate::freshness::Kept;
use crate::metrics::LaneMetrics;
use crate::record::{NextOffset, TopicPartition};
use crate::stop::Stop;

mod blocking;
mod coalesce;
mod dead_letter;
mod discard;
mod disk;
mod file;
mod http;
pub mod ledger;
mod retry;
mod sqlite;
#[cfg(test)]
mod testing;
mod under_way;
mod wait;

pub use dead_letter::browse;
pub use sqlite::{Comparison, Difference, Kind, Report};
pub use under_way::UnderWay;

use ledger::{Entry, Ledger, Order};

/// The offsets that a sink itself keeps, per partition.
pub type Positions = BTreeMap<TopicPartition, NextOffset>;

/// What a sink is given by its lane.
#[derive(Clone)]
pub struct Context {
    pub route: String,
    pub sink: Arc<Sink>,
    /// The lane's dead letters.
    pub dead_letters: PathBuf,
    pub assignments: Assignments,
    pub skips: Skips,
    pub metrics: LaneMetrics,
    /// Shows what the sink is waiting for, and ends with `None` when it goes on.
    pub waiting: Arc<dyn Fn(Option<String>) + Send + Sync>,
    /// Tells when a write or request begins and when it is answered.
    pub under_way: Arc<UnderWay>,
    pub runtime: tokio::runtime::Handle,
    /// Bounded by `max_batches`, as is the inlet: neither end ever waits for the other.
    pub receipts: crossbeam_channel::Sender<Receipt>,
    /// The most deliveries that the lane has in hand.
    pub max_batches: usize,
    /// Whether the lane's chain may give an output another key than its record came with.
    pub changes_keys: bool,
    /// Cuts retries and waits short: what is not finished then is not acknowledged.
    pub stop: Stop,
}

/// Opens the lane's sink and starts its writer.
///
/// # Errors
/// When the sink cannot be opened: a file that is in use or of another shape, an address that cannot be called. What a
/// sink meets later is told by [`Context::waiting`] and [`Receipt::Halted`].
pub fn start(context: Context) -> anyhow::Result<Running> {
    let sink = Arc::clone(&context.sink);
    match &sink.kind {
        SinkKind::Discard => blocking::start(context, Box::new(discard::Discard)),
        SinkKind::Sqlite(settings) => {
            let sink = sqlite::Sqlite::open(settings, &context)?;
            blocking::start(context, Box::new(sink))
        }
        SinkKind::File(settings) => {
            let sink = file::Files::open(settings, &context)?;
            blocking::start(context, Box::new(sink))
        }
        SinkKind::Http(settings) => http::start(context, settings),
    }
}

/// Finds what is wrong with a sink's settings beyond their form, without opening it.
///
/// # Errors
/// What [`start`] would fail on, wherever the sink is.
pub fn check(kind: &SinkKind) -> anyhow::Result<()> {
    match kind {
        SinkKind::Http(settings) => http::check(settings),
        SinkKind::Discard | SinkKind::File(_) | SinkKind::Sqlite(_) => Ok(()),
    }
}

/// A sink at work.
#[derive(Debug)]
pub struct Running {
    /// See [`Blocking::positions`].
    pub positions: Option<Positions>,
    /// Of a sink that has a [`Ledger`]: what it keeps, and the way for orders to it.
    pub ledger: Option<(BTreeMap<TopicPartition, Kept>, crossbeam_channel::Sender<Order>)>,
    pub inlet: Inlet,
    /// What the sink holds beside each row in its hands, bytes: part of what the lane may have in hand.
    pub row_bytes: usize,
    /// Nothing comes through it: it closes when the writer has ended.
    ended: crossbeam_channel::Receiver<Infallible>,
}

impl Running {
    /// Takes nothing more, and waits until the writer has finished what it holds, or until `deadline`; returns whether it
    /// has ended. Other inlets keep the writer going until they are dropped.
    pub fn join(self, deadline: Instant) -> bool {
        let Self { inlet, ended, .. } = self;
        drop(inlet);
        !matches!(ended.recv_deadline(deadline), Err(crossbeam_channel::RecvTimeoutError::Timeout))
    }
}

/// The way into a sink. When every clone is dropped, the writer finishes what it holds and ends.
#[derive(Clone, Debug)]
pub struct Inlet(Way);

#[derive(Clone, Debug)]
enum Way {
    Thread(crossbeam_channel::Sender<Delivery>),
    Task(tokio::sync::mpsc::Sender<Delivery>),
}

/// The sink has ended: it halted, which a receipt tells, or was stopped.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the sink has stopped")]
pub struct Stopped;

impl Inlet {
    /// Hands over a delivery; those of one partition come in order. Never waits while the lane keeps to
    /// [`Context::max_batches`]. Not to be called from a task.
    ///
    /// # Errors
    /// When the sink takes nothing more.
    pub fn send(&self, delivery: Delivery) -> Result<(), Stopped> {
        match &self.0 {
            Way::Thread(sender) => sender.send(delivery).map_err(|_| Stopped),
            Way::Task(sender) => sender.blocking_send(delivery).map_err(|_| Stopped),
        }
    }
}

impl Context {
    /// Ends the lane's work, which says so.
    fn tell_halt(&self, halt: Halt) {
        // A lane that is gone needs no word.
        drop(self.receipts.send(Receipt::Halted(halt)));
    }
}

/// A sink whose writes block the calling thread.
pub trait Blocking: Send {
    /// The offsets that the sink itself keeps, when every instance of the gateway has a whole one (a local sink).
    /// `None` = the consumer group's offsets count.
    fn positions(&self) -> Option<Positions>;

    /// Writes the rows of `deliveries`, which come in the order of each partition, and makes them durable.
    ///
    /// Either all of it is done when this returns `Ok`, or a later call with the same deliveries does it without doubling
    /// anything.
    ///
    /// # Errors
    /// See [`WriteError`]. After a `Rows` error the caller sets those rows' fate and calls again.
    fn write(&mut self, deliveries: &[Delivery]) -> Result<(), WriteError>;

    /// Whether it holds the latest value per key, so that a dropped or rejected version matters to what an older one wrote.
    fn keeps_latest(&self) -> bool {
        false
    }

    /// Of a sink whose rows can be swept.
    fn ledger(&mut self) -> Option<&mut dyn Ledger> {
        None
    }

    /// What it holds beside each row of a write, bytes.
    fn row_bytes(&self) -> usize {
        0
    }

    /// Called when nothing came for a while, and once before the end.
    fn idle(&mut self) {}

    /// After how long [`Blocking::idle`] is to be called again while nothing comes; `None` = not at all.
    fn wakes_after(&self) -> Option<Duration> {
        None
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// It may work later: try again with backoff.
    #[error("{0:#}")]
    Transient(anyhow::Error),
    /// These rows can never be written; the others can.
    #[error("{} rows cannot be written", .0.len())]
    Rows(Vec<RowError>),
    /// Nothing can be written until somebody acts: the lane halts.
    #[error("{0:#}")]
    Halt(anyhow::Error),
}

/// A row that can never be written.
#[derive(Debug, PartialEq, Eq)]
pub struct RowError {
    /// Index of the delivery in the slice given to [`Blocking::write`].
    pub delivery: usize,
    /// Index of the row in that delivery.
    pub row: usize,
    pub cause: String,
}

/// What a running sink tells its lane.
#[derive(Debug)]
pub enum Receipt {
    /// This span is finished.
    Done(Span),
    /// An order is carried out.
    Ledger(Entry),
    /// The lane cannot go on: nothing of this span or of later ones is acknowledged.
    Halted(Halt),
}

/// Where and why a lane halted.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Halt {
    pub topic: Option<String>,
    pub partition: Option<i32>,
    pub offset: Option<i64>,
    /// `key`, `plugin mask 1.2.0`, `sink`.
    pub stage: String,
    pub reason: String,
    /// A record is to blame, by a policy that halts: the lane can go on without it.
    #[serde(default)]
    pub skippable: bool,
}

impl std::fmt::Display for Halt {
    /// `user-profiles[0] at offset 42, stage sink: the disk is full`, with as much of the place as is known.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(topic) = &self.topic {
            f.write_str(topic)?;
            if let Some(partition) = self.partition {
                write!(f, "[{partition}]")?;
            }
            if let Some(offset) = self.offset {
                write!(f, " at offset {offset}")?;
            }
            f.write_str(", ")?;
        }
        write!(f, "stage {}: {}", self.stage, self.reason)
    }
}

impl Halt {
    /// A halt that no record is to blame for.
    pub fn of(stage: impl ToString, reason: impl Into<String>) -> Self {
        Self {
            topic: None,
            partition: None,
            offset: None,
            stage: stage.to_string(),
            reason: reason.into(),
            skippable: false,
        }
    }

    /// A halt before the record at `offset`, whoever is to blame.
    pub fn before(partition: &TopicPartition, offset: i64, stage: impl ToString, reason: impl Into<String>) -> Self {
        Self {
            topic: Some(partition.topic.to_string()),
            partition: Some(partition.partition),
            offset: Some(offset),
            ..Self::of(stage, reason)
        }
    }

    /// A halt that the policy demands for the record at `offset`.
    pub fn by(partition: &TopicPartition, offset: i64, stage: impl ToString, reason: impl Into<String>) -> Self {
        Self { skippable: true, ..Self::before(partition, offset, stage, reason) }
    }

    /// The record to blame.
    pub fn culprit(&self) -> Option<(TopicPartition, i64)> {
        let partition = TopicPartition::new(self.topic.as_deref()?, self.partition?);
        Some((partition, self.offset?)).filter(|_| self.skippable)
    }

    /// Cuts `delivery` before the first record that is rejected by a policy which halts, and is not skipped, and tells where
    /// that is. What was before it is still to be delivered, if there is anything.
    fn cut(delivery: &mut Delivery, skips: &Skips) -> Option<Self> {
        let concerned = |fate: &Fate| matches!(fate, Fate::Reject(rejection) if skips.concern(rejection.policy));
        // Most deliveries reject nothing, and looking at fates costs less than looking at records.
        if !delivery.fates().any(concerned) {
            return None;
        }
        let partition = delivery.input().partition().clone();
        let mut skipped = Vec::new();
        let mut halt = None;
        for (row, output) in delivery.outputs().enumerate() {
            let Fate::Reject(rejection) = output.fate else { continue };
            match skips.apply(rejection.policy, &partition, output.origin.offset) {
                OnError::Halt => {
                    let by = Self::by(&partition, output.origin.offset, &rejection.stage, &rejection.cause);
                    halt = Some((output.origin_index, by));
                    break;
                }
                policy if policy != rejection.policy => skipped.push((row, Rejection { policy, ..rejection.clone() })),
                _ => {}
            }
        }
        skipped.into_iter().for_each(|(row, rejection)| delivery.set_fate(row, Fate::Reject(rejection)));
        let (origin, halt) = halt?;
        delivery.cut_before(origin);
        Some(halt)
    }
}
