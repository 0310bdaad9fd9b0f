//! What a sink that holds the latest value per key keeps of each partition so that no delete is missed, and how it removes
//! what a newer pass over the snapshot did not find.

use std::collections::BTreeMap;

use super::WriteError;
use crate::freshness::Kept;
use crate::record::TopicPartition;

/// Orders on their way to the sink: one assignment, one round of moments and one sweep at a time.
pub const MAX_ORDERS: usize = 4;

/// See [`crate::freshness`].
pub trait Ledger {
    fn kept(&self) -> BTreeMap<TopicPartition, Kept>;

    /// Keeps, in one transaction, how these partitions begin. What is written from now on belongs to their generation.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn begin(&mut self, partitions: &[(TopicPartition, Kept)]) -> Result<(), WriteError>;

    /// Keeps the moments before which every delete was seen.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn keep(&mut self, moments: &[(TopicPartition, i64)]) -> Result<(), WriteError>;

    /// Removes a bounded number of a partition's rows of older generations, in a transaction of its own. When none are
    /// left, that is kept with it.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn sweep(&mut self, partition: &TopicPartition) -> Result<Swept, WriteError>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    pub rows: u64,
    /// There may be more.
    pub more: bool,
}

/// What the lane tells a sink that has a [`Ledger`], beside its deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    Begin(Vec<(TopicPartition, Kept)>),
    Keep(Vec<(TopicPartition, i64)>),
    /// Ends when nothing is left, or when the partition begins anew.
    Sweep {
        partition: TopicPartition,
        generation: i64,
    },
}

/// An order is carried out, and kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Begun,
    Kept,
    Swept { partition: TopicPartition, generation: i64, rows: u64 },
}
