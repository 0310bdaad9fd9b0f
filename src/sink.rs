//! Where records go. Every sink has the same two faces: settings that were checked, and a writer that takes deliveries and
//! gives back the spans it has finished.
//!
//! A sink that blocks implements [`Blocking`] and is driven on a thread of its own; one that waits runs on the shared
//! runtime. Both retry what is transient, hand rejected records to the dead letters, and acknowledge a span only when each
//! of its outputs is written, dropped, or safe as a dead letter.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::config::Sink;
use crate::delivery::{Assignments, Delivery, Span};
use crate::metrics::LaneMetrics;
use crate::record::{NextOffset, TopicPartition};
use crate::stop::Stop;

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
    pub metrics: LaneMetrics,
    /// Shows what the sink is waiting for, and ends with `None` when it goes on.
    pub waiting: Arc<dyn Fn(Option<String>) + Send + Sync>,
    pub runtime: tokio::runtime::Handle,
    /// Bounded by `max_batches`, as is the inlet: neither end ever waits for the other.
    pub receipts: crossbeam_channel::Sender<Receipt>,
    /// The most deliveries that the lane has in hand.
    pub max_batches: usize,
    /// Cuts retries and waits short: what is not finished then is not acknowledged.
    pub stop: Stop,
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

    /// Called when nothing came for a while, and once before the end.
    fn idle(&mut self) {}
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
