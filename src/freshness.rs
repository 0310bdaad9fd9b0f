//! Whether a partition's rows can still hold a key whose delete was missed: a pure value.
//!
//! A compacted topic keeps a tombstone for `delete.retention.ms` after the cleaner met it first, so never less than that
//! after it was written, and then forgets it. Whoever reads later never hears of that delete. Each partition therefore has
//! a moment `as_of`: every delete written before it was seen.
//!
//! | what happens | then |
//! |---|---|
//! | an end is *captured*: the broker was asked at `at`, and answered `end` | it is open until everything below is finished |
//! | everything below an open end is finished, and `now - as_of <= limit` | `as_of` becomes that end's `at` |
//! | the same, and `now - as_of > limit`, or an end is open for that long | *late*: `as_of` stays, the rows are unverified |
//! | late, and everything up to a captured end is finished | the partition is read anew, once |
//! | read anew: the end at its beginning is finished | the next end that is asked for is the pass's second one |
//! | read anew: the second end is finished | rows of older generations are removed |
//!
//! The second end is there for a key whose record compaction replaced by one above the first end, after which the record
//! below is gone when we come to it: without it, a row that is right would be removed and come back.
//!
//! Moments are milliseconds of the wall clock. They come from before a question was sent, never from when its answer came.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::record::NextOffset;

#[cfg(test)]
mod tests;

/// What a broker keeps tombstones for when nobody set it.
pub const DEFAULT_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// How far the clock may have gone back between two runs: what synchronising clocks corrects without anyone noticing.
const CLOCK_SLACK_MS: i64 = 60_000;

/// The part of the retention that is left unused, for clocks that differ between us and the broker.
const MARGIN: i64 = 10;

/// Captured ends are at least this part of the limit apart, which bounds how many are open.
const SPACING: i64 = 32;

/// What a sink keeps of a partition, beside its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Everything below is in the rows.
    pub next: NextOffset,
    /// `None` = the broker did not say.
    pub topic_id: Option<String>,
    /// The pass in which rows are written now.
    pub generation: i64,
    /// The first pass of this topic's life: rows of older ones come from a log that is gone, and any record replaces them.
    pub incarnation: i64,
    /// Every delete written before was seen by the rows of this generation. `None` = not known.
    pub as_of: Option<i64>,
    /// Rows of older generations may still be there.
    pub unswept: bool,
}

/// What the broker says of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    pub topic_id: Option<String>,
    pub low: i64,
    pub end: NextOffset,
    /// The moment before the question.
    pub at: i64,
    /// `delete.retention.ms`.
    pub retention: Duration,
}

/// Why the rows are not known to be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Recreated,
    BelowLogStart,
    BeyondEnd,
    Late,
    ClockWentBack,
    /// A database from before this was kept.
    Unknown,
    /// An operator asked for it.
    Asked,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Recreated => "the topic was re-created",
            Self::BelowLogStart => "records were removed from the log before they were read",
            Self::BeyondEnd => "the log is shorter than what was delivered of it",
            Self::Late => "it took longer than `delete.retention.ms` to catch up, so that deletes may be missed",
            Self::ClockWentBack => "the clock went back, so that it is not known for how long nothing was read",
            Self::Unknown => "it is not known when the rows were last complete",
            Self::Asked => "the rows are swept on demand",
        })
    }
}

/// How a partition begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Goes on at the offset that is kept.
    Resume,
    /// Nothing is kept.
    Build,
    /// From the log's first record, in a new generation.
    Rebuild(Reason),
}

/// Decides how a partition begins. A topic id that is unknown on either side decides nothing.
pub fn start(kept: Option<&Kept>, log: &Log, now: i64) -> Start {
    let Some(kept) = kept else { return Start::Build };
    let recreated = kept.topic_id.as_ref().zip(log.topic_id.as_ref()).is_some_and(|(was, is)| was != is);
    if recreated {
        return Start::Rebuild(Reason::Recreated);
    }
    if kept.next.0 > log.end.0 {
        return Start::Rebuild(Reason::BeyondEnd);
    }
    if kept.next.0 < log.low {
        return Start::Rebuild(Reason::BelowLogStart);
    }
    match kept.as_of {
        None => Start::Rebuild(Reason::Unknown),
        Some(as_of) if as_of > now.saturating_add(CLOCK_SLACK_MS) => Start::Rebuild(Reason::ClockWentBack),
        Some(as_of) if now.saturating_sub(as_of) > limit(log.retention) => Start::Rebuild(Reason::Late),
        Some(_) => Start::Resume,
    }
}

fn limit(retention: Duration) -> i64 {
    let retention = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
    retention - retention / MARGIN
}

/// What the lane has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Keep the new `as_of`.
    Keep(i64),
    /// Remove the rows of older generations, then tell [`Freshness::swept`].
    Sweep,
    /// Give the partition up and take it again: its start is decided anew.
    Retake,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Below the end that was captured when the pass began.
    First(NextOffset),
    /// That is finished, at the moment given; the second end is asked for.
    Between(i64),
    Second(NextOffset),
    Sweeping,
    Settled,
}

/// One assigned partition.
#[derive(Debug)]
pub struct Freshness {
    limit: i64,
    as_of: i64,
    /// Captured ends that are not finished: moment and end, both rising.
    open: VecDeque<(i64, NextOffset)>,
    phase: Phase,
    late: bool,
    /// Why this pass is read anew, while it is.
    reason: Option<Reason>,
    /// Reading anew did not help, and is not tried again before the partition was verified or the gateway starts anew.
    spent: bool,
    retaking: bool,
}

impl Freshness {
    /// Begins a partition: what is to be kept of it before anything is read, and its state. `start` is what [`start`] said.
    pub fn begin(kept: Option<&Kept>, log: &Log, start: Start) -> (Kept, Self) {
        let fresh = |generation, incarnation, unswept| Kept {
            next: NextOffset(log.low),
            topic_id: log.topic_id.clone(),
            generation,
            incarnation,
            as_of: Some(log.at),
            unswept,
        };
        let kept = match (start, kept) {
            (Start::Resume, Some(kept)) => {
                Kept { topic_id: log.topic_id.clone().or_else(|| kept.topic_id.clone()), ..kept.clone() }
            }
            (Start::Rebuild(reason), Some(kept)) => {
                let generation = kept.generation + 1;
                let new_log = matches!(reason, Reason::Recreated | Reason::BeyondEnd);
                fresh(generation, if new_log { generation } else { kept.incarnation }, true)
            }
            (Start::Build, _) | (_, None) => fresh(1, 1, false),
        };
        let reason = match start {
            Start::Rebuild(reason) => Some(reason),
            Start::Resume | Start::Build => kept.unswept.then_some(Reason::Late),
        };
        let freshness = Self {
            limit: limit(log.retention),
            as_of: kept.as_of.unwrap_or(log.at),
            open: VecDeque::from([(log.at, log.end)]),
            phase: if kept.unswept { Phase::First(log.end) } else { Phase::Settled },
            late: false,
            reason,
            spent: reason.is_some(),
            retaking: false,
        };
        (kept, freshness)
    }

    /// The broker, asked at `at`, said that the log ends at `end`.
    pub fn captured(&mut self, end: NextOffset, at: i64) {
        match self.phase {
            Phase::Between(passed) if at >= passed => self.phase = Phase::Second(end),
            _ => {}
        }
        match self.open.back_mut() {
            Some((last, same)) if *same == end => *last = at.max(*last),
            Some((last, _)) if at.saturating_sub(*last) < self.limit / SPACING => {}
            // Late already: one open end is enough to know when everything is finished.
            Some(_) if self.late => {}
            _ => self.open.push_back((at, end)),
        }
    }

    /// Everything below `head` is finished at `now`.
    pub fn finished(&mut self, head: Option<NextOffset>, now: i64) -> Option<Act> {
        let mut passed = None;
        if let Some(head) = head {
            while let Some((at, _)) = self.open.front().copied().filter(|(_, end)| *end <= head) {
                self.open.pop_front();
                passed = Some(at);
            }
        }
        let waited = passed.is_some() || !self.open.is_empty();
        self.late |= waited && now.saturating_sub(self.as_of) > self.limit;
        self.phase = match (self.phase, head) {
            (Phase::First(end), Some(head)) if head >= end => Phase::Between(now),
            (Phase::Second(end), Some(head)) if head >= end => {
                // Its new `as_of` goes to the sink with the next one: until then the older one is only more careful.
                self.phase = Phase::Sweeping;
                self.keep(passed);
                return Some(Act::Sweep);
            }
            (phase, _) => phase,
        };
        if self.late {
            let again = self.phase == Phase::Settled && passed.is_some() && !self.spent && !self.retaking;
            self.retaking |= again;
            return again.then_some(Act::Retake);
        }
        self.keep(passed).map(Act::Keep)
    }

    /// The rows of older generations are gone.
    pub fn swept(&mut self) {
        self.phase = Phase::Settled;
        if !self.late {
            (self.reason, self.spent) = (None, false);
        }
    }

    /// Why the rows are not known to be right; `None` = they hold no deleted key older than the lag.
    pub fn unverified(&self) -> Option<Reason> {
        if self.late { Some(Reason::Late) } else { self.reason }
    }

    fn keep(&mut self, passed: Option<i64>) -> Option<i64> {
        let at = passed.filter(|at| !self.late && *at > self.as_of)?;
        self.as_of = at;
        Some(at)
    }
}

/// The wall clock as it was at the start, moved on by a clock that nobody sets: a jump in between changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall: i64,
    since: Instant,
}

impl Clock {
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall: i64::try_from(wall.as_millis()).unwrap_or(i64::MAX), since: Instant::now() }
    }

    pub fn now(&self) -> i64 {
        self.at(Instant::now())
    }

    pub fn at(&self, moment: Instant) -> i64 {
        let elapsed = moment.saturating_duration_since(self.since);
        self.wall.saturating_add(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
    }
}
