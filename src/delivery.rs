//! What the chain made of a batch, on its way to a sink.
//!
//! A [`Delivery`] keeps the batch as it was received (dead letters and re-keying need it) beside the rows that leave the
//! chain, so that what a plugin keeps is never copied: a chain that keeps everything adds nothing.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::checkpoint::Ticket;
use crate::record::{Batch, NextOffset, Record, TopicPartition};

/// Which received records a delivery stands for; the sink gives it back as the acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which assigned partition of the lane: numbers are never used twice, so that an acknowledgement of an earlier
    /// assignment is recognised and ignored.
    pub assignment: u64,
    pub ticket: Ticket,
    pub next: NextOffset,
    /// `false` = records at its end were cut off, since one of them halts the lane: `next` is where the first of them
    /// stands, and nothing from there on is acknowledged.
    pub whole: bool,
}

/// Why a record is rejected, and where on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub stage: Stage,
    /// For people, without the record's contents beyond what a plugin put there.
    pub cause: String,
    pub policy: OnError,
    /// How often it was tried.
    pub attempts: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The key policy of the source.
    Key,
    /// A plugin, as the route names it, with the version that it describes itself with.
    Plugin {
        name: Arc<str>,
        version: Arc<str>,
    },
    Sink,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key => f.write_str("key"),
            Self::Plugin { name, version } => write!(f, "plugin {name} {version}"),
            Self::Sink => f.write_str("sink"),
        }
    }
}

/// What happens to a record that cannot be processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// Keep it with its cause in the lane's dead letters and go on.
    DeadLetter,
    /// Count it and go on.
    Drop,
    /// Stop the lane before it.
    Halt,
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Write it; a null value is a delete.
    Write,
    /// A plugin dropped it, or the key policy did.
    Drop,
    Reject(Rejection),
}

/// One row that leaves the chain.
#[derive(Clone, Debug)]
struct Mark {
    /// The index in `input` of the record that it comes from. Never descends.
    origin: u32,
    fate: Fate,
}

/// A batch with what the chain made of it.
#[derive(Debug)]
pub struct Delivery {
    pub span: Span,
    input: Batch,
    /// `None` = the rows are those of `input`.
    rows: Option<Batch>,
    /// One per row; empty = every row is written.
    marks: Vec<Mark>,
    hold: Hold,
}

/// One row with where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// As it leaves the chain. Of a dropped or rejected record: as it was when that happened, so that its key is the one
    /// that an earlier version may have been written under.
    pub record: Record<'a>,
    /// As it was received.
    pub origin: Record<'a>,
    /// The index of `origin` in the input.
    pub origin_index: u32,
    pub fate: &'a Fate,
}

impl Delivery {
    /// Nothing decided yet: every record of `input` is to be written as it is.
    pub fn new(span: Span, input: Batch, hold: Hold) -> Self {
        Self { span, input, rows: None, marks: Vec::new(), hold }
    }

    /// The batch as it was received.
    pub fn input(&self) -> &Batch {
        &self.input
    }

    /// The rows as they stand now.
    pub fn rows(&self) -> &Batch {
        self.rows.as_ref().unwrap_or(&self.input)
    }

    /// The fate of each row, in order.
    pub fn fates(&self) -> impl Iterator<Item = &Fate> {
        (0..self.rows().len()).map(|row| self.fate(row))
    }

    pub fn fate(&self, row: usize) -> &Fate {
        self.marks.get(row).map_or(&Fate::Write, |mark| &mark.fate)
    }

    /// The index in the input of the record that `row` comes from.
    pub fn origin_index(&self, row: usize) -> u32 {
        self.marks.get(row).map_or(row as u32, |mark| mark.origin)
    }

    /// Changes what becomes of `row`.
    pub fn set_fate(&mut self, row: usize, fate: Fate) {
        if self.marks.is_empty() {
            if fate == Fate::Write {
                return;
            }
            self.marks = (0..self.rows().len() as u32).map(|origin| Mark { origin, fate: Fate::Write }).collect();
        }
        self.marks[row].fate = fate;
    }

    /// Replaces all rows: `marks` gives, for each row of `rows`, its origin's index in the input and its fate.
    ///
    /// # Panics
    /// If there is not exactly one mark for each row.
    pub fn set_rows(&mut self, rows: Batch, marks: impl IntoIterator<Item = (u32, Fate)>) {
        self.marks = marks.into_iter().map(|(origin, fate)| Mark { origin, fate }).collect();
        assert_eq!(rows.len(), self.marks.len(), "one mark for each row");
        self.hold.resize(self.input.held_bytes() + rows.held_bytes(), rows.len());
        self.rows = Some(rows);
    }

    /// Cuts off the record at `origin` of the input, and all behind it. Returns whether anything is left.
    pub fn cut_before(&mut self, origin: u32) -> bool {
        let keep = (0..self.rows().len()).take_while(|&row| self.origin_index(row) < origin).count();
        if let Some(first_cut) = self.input.offsets().get(origin as usize) {
            self.span.next = NextOffset(*first_cut);
            self.span.whole = false;
        }
        self.rows = self.rows.as_ref().map(|rows| rows.first(keep));
        self.input = self.input.first(origin as usize);
        self.marks.truncate(keep);
        !self.input.is_empty()
    }

    /// Every row with its origin, in order.
    pub fn outputs(&self) -> impl Iterator<Item = Output<'_>> {
        let mut origins = self.input.iter().enumerate().peekable();
        self.rows().iter().enumerate().filter_map(move |(row, record)| {
            let origin_index = self.origin_index(row);
            while origins.peek().is_some_and(|(index, _)| *index < origin_index as usize) {
                origins.next();
            }
            let origin = origins.peek()?.1;
            Some(Output { record, origin, origin_index, fate: self.fate(row) })
        })
    }
}

/// The bytes that a lane has in hand, from the source's queue to the sink's acknowledgement.
#[derive(Debug, Default)]
pub struct InHand {
    bytes: AtomicUsize,
    batches: AtomicUsize,
    row_bytes: usize,
}

impl InHand {
    /// `row_bytes` is what the sink holds beside each row in its hands, bytes.
    pub fn new(row_bytes: usize) -> Self {
        Self { row_bytes, ..Self::default() }
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn batches(&self) -> usize {
        self.batches.load(Ordering::Relaxed)
    }
}

/// A batch's share of what the lane has in hand; given back when it is dropped, whatever path the batch takes.
#[derive(Debug)]
pub struct Hold {
    in_hand: Arc<InHand>,
    bytes: usize,
}

impl Hold {
    pub fn new(in_hand: Arc<InHand>, batch: &Batch) -> Self {
        in_hand.batches.fetch_add(1, Ordering::Relaxed);
        let mut hold = Self { in_hand, bytes: 0 };
        hold.resize(batch.held_bytes(), batch.len());
        hold
    }

    /// For records of `bytes`, of which `rows` rows are made.
    fn resize(&mut self, bytes: usize, rows: usize) {
        let bytes = bytes + rows * self.in_hand.row_bytes;
        self.in_hand.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.in_hand.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.in_hand.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.in_hand.batches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The assignments that a lane has now. What belongs to none of them is not written any more: its partition may be
/// somebody else's, who may have written something newer.
#[derive(Clone, Debug, Default)]
pub struct Assignments(Arc<RwLock<BTreeSet<u64>>>);

impl Assignments {
    pub fn contains(&self, assignment: u64) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&assignment)
    }

    pub fn insert(&self, assignment: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(assignment);
    }

    pub fn remove(&self, assignment: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&assignment);
    }
}

/// The records that become dead letters, whatever the policy for them says.
#[derive(Clone, Debug)]
pub enum Skips {
    /// Those before which the lane would halt, and of which an operator said so.
    These(Arc<Mutex<BTreeSet<(TopicPartition, i64)>>>),
    /// Of a lane that is to come to the end, and to tell of each record that is rejected.
    All,
}

impl Default for Skips {
    fn default() -> Self {
        Self::These(Arc::default())
    }
}

impl Skips {
    pub fn insert(&self, partition: TopicPartition, offset: i64) {
        if let Self::These(skips) = self {
            skips.lock().unwrap_or_else(PoisonError::into_inner).insert((partition, offset));
        }
    }

    /// Whether `policy` may mean something else for some record.
    pub fn concern(&self, policy: OnError) -> bool {
        match self {
            Self::These(_) => policy == OnError::Halt,
            Self::All => policy != OnError::DeadLetter,
        }
    }

    /// What `policy` means for the record at `offset`.
    pub fn apply(&self, policy: OnError, partition: &TopicPartition, offset: i64) -> OnError {
        let skipped = self.concern(policy)
            && match self {
                Self::These(skips) => {
                    let skips = skips.lock().unwrap_or_else(PoisonError::into_inner);
                    skips.contains(&(partition.clone(), offset))
                }
                Self::All => true,
            };
        if skipped { OnError::DeadLetter } else { policy }
    }
}
