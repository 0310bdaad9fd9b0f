//! What one worker does with a delivery: keys, then plugin after plugin.
//!
//! A call that fails costs its instance. Whether a record did it or what the instance had in its memory is told by giving
//! the same records to a fresh instance; what fails there is split in halves, each for a fresh instance, until the guilty
//! record stands alone. So `n` records take at most `2n` calls, whatever the plugin does, and an innocent record is never
//! rejected for what an instance had collected before it.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::chain::{Link, RunnerContext};
use super::circuit::Circuit;
use super::contract::Wants;
use super::encoded::{Encoded, whole_batch};
use super::engine::Slots;
use super::guilt::Guilt;
use super::instance::{Failure, Fault, Instance, OpenError};
use super::keys::Policy;
use super::rows::{Finished, Outcome, Part, Rows};
use super::verdict;
use crate::delivery::{Delivery, Stage};
use crate::metrics::{ErrorKind, LaneMetrics, add_seconds};
use crate::record::Record;

/// Records given to a plugin in one call, whatever it asks for: beyond a thousand, a call costs nothing more per record.
pub const MAX_CALL_RECORDS: usize = 4_096;

/// The share of a guest's memory that the records of one call may fill: it needs room for its own view of them, and for
/// its answer.
pub const CALL_MEMORY_SHARE: usize = 4;

/// What the rows of one delivery may take after one plugin, in output limits of one call: a delivery of several calls, or
/// one that was split, may hold more than one call's output, but not that of each of its records.
pub const DELIVERY_OUTPUTS: usize = 4;

/// How often a plugin may ask to be given the same records later, half a minute in all; after that its `retry` is a failure.
pub const MAX_RETRIES: u32 = 10;

/// The waits after a plugin asked for one, or could not start: doubled each time.
pub const MIN_BACKOFF: Duration = Duration::from_millis(100);
pub const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// How often a guilty record is told at level warn: each is in the dead letters, and the log is not to be flooded.
const WARN_INTERVAL: Duration = Duration::from_secs(1);

/// The chain cannot go on now. The delivery is as it was before: give it again after `retry_after`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Stall {
    /// For people.
    pub reason: String,
    pub retry_after: Duration,
}

/// One worker's instances of a chain.
pub struct Runner {
    keys: Arc<Policy>,
    stations: Vec<Station>,
    guilt: Guilt,
    context: RunnerContext,
    /// When a guilty record was last told at level warn.
    warned: Option<Instant>,
    _slots: Slots,
}

/// One plugin as this runner has it.
struct Station {
    link: Arc<Link>,
    instance: Option<Instance>,
    encoded: Encoded,
    circuit: Circuit,
    /// How often it asked for a retry since a delivery went through.
    retries: u32,
    /// How often it could not be started since it last could.
    failed_starts: u32,
}

/// What is to be done with some of the rows of a delivery.
enum Work {
    Call(Range<usize>),
    /// Part of what a fresh instance failed on.
    Suspected(Range<usize>),
    /// This row was found guilty before a stall.
    Known(String),
}

/// How a call ended that did not end well.
enum Trouble {
    Stall(Stall),
    /// `fresh` = the instance had served no other call.
    Fault {
        fault: Fault,
        fresh: bool,
    },
}

impl Runner {
    pub(super) fn new(keys: Arc<Policy>, links: &[Arc<Link>], context: RunnerContext, slots: Slots) -> Self {
        let stations = links.iter().cloned().map(Station::new).collect();
        Self { keys, stations, guilt: Guilt::default(), context, warned: None, _slots: slots }
    }

    /// Decides about every record of a delivery about which nothing was decided yet.
    ///
    /// # Errors
    /// A [`Stall`], when it has to be done later.
    pub fn run(&mut self, delivery: &mut Delivery) -> Result<(), Stall> {
        self.guilt.enter(delivery.input());
        let mut rows = Rows::new(delivery.input());
        if !self.keys.accepts_all() {
            rows.judge(|record| self.keys.judge(record.key));
        }
        if !self.stations.is_empty() {
            let started = Instant::now();
            let passed = (0..self.stations.len()).try_for_each(|station| self.pass(station, &mut rows));
            add_seconds(&self.context.metrics.plugin_seconds, started);
            passed?;
            self.stations.iter_mut().for_each(|station| station.retries = 0);
        }
        self.guilt.clear();
        let finished = rows.finish();
        count(&finished, &self.context.metrics);
        finished.store(delivery);
        Ok(())
    }

    /// Gives what is still to be written to one plugin.
    fn pass(&mut self, station: usize, rows: &mut Rows<'_>) -> Result<(), Stall> {
        let link = self.stations[station].link.clone();
        let mut todo = self.plan(station, rows);
        let mut parts = Vec::with_capacity(todo.len());
        let mut output_left = link.limits.output.saturating_mul(DELIVERY_OUTPUTS);
        // What a used instance failed on last.
        let mut suspect: Option<(Range<usize>, ErrorKind)> = None;
        while let Some(work) = todo.pop() {
            let range = match work {
                Work::Call(range) => range,
                Work::Suspected(range) => {
                    self.stations[station].freshen();
                    range
                }
                Work::Known(cause) => {
                    parts.push(Part { rows: 1, outcome: Outcome::Rejected(link.author.reject(cause, 1)) });
                    continue;
                }
            };
            if self.context.stop.is_set() {
                return Err(Stall { reason: "stopping".to_owned(), retry_after: Duration::ZERO });
            }
            let started = Instant::now();
            let cap = output_left.min(link.limits.output);
            match self.stations[station].call(rows, range.clone(), cap, &self.context) {
                Ok(outcome) => {
                    let part = Part { rows: range.len(), outcome };
                    output_left = output_left.saturating_sub(part.bytes());
                    parts.push(part);
                    self.stations[station].circuit.good(started, range.len());
                    if let Some((_, kind)) = suspect.take_if(|(suspect, _)| *suspect == range) {
                        self.context.metrics.error(kind);
                        tracing::warn!(route = %self.context.route, plugin = %link.name, "a used-up instance was replaced");
                    }
                }
                Err(Trouble::Stall(stall)) => return Err(stall),
                Err(Trouble::Fault { fault, fresh }) => {
                    let now = Instant::now();
                    self.stations[station].circuit.wasted(now, now - started);
                    if !fresh {
                        suspect = Some((range.clone(), fault.kind));
                        todo.push(Work::Call(range));
                    } else if range.len() > 1 {
                        let middle = range.start + range.len() / 2;
                        todo.push(Work::Suspected(middle..range.end));
                        todo.push(Work::Suspected(range.start..middle));
                    } else {
                        parts.push(self.convict(station, rows, range.start, fault, now));
                        // Only now, so that each attempt at a delivery finds one guilty record at least.
                        if let Some(opening) = self.stations[station].circuit.open(now) {
                            let reason = format!("the circuit is open: plugin `{}` {}", link.name, opening.reason);
                            return Err(Stall { reason, retry_after: opening.backoff });
                        }
                    }
                }
            }
        }
        rows.apply(&parts, &link.author);
        Ok(())
    }

    /// The calls to make, last first.
    fn plan(&self, station: usize, rows: &Rows<'_>) -> Vec<Work> {
        let mut plan = Vec::new();
        let known = self.guilt.known(station, rows);
        for range in self.stations[station].calls(rows) {
            let mut start = range.start;
            for (row, cause) in known.range(range.clone()) {
                if start < *row {
                    plan.push(Work::Call(start..*row));
                }
                plan.push(Work::Known(cause.clone()));
                start = row + 1;
            }
            if start < range.end {
                plan.push(Work::Call(start..range.end));
            }
        }
        plan.reverse();
        plan
    }

    /// The record that stands alone is guilty.
    fn convict(&mut self, station: usize, rows: &Rows<'_>, row: usize, fault: Fault, now: Instant) -> Part {
        let Station { link, retries, circuit, .. } = &mut self.stations[station];
        circuit.guilty(now);
        let RunnerContext { route, metrics, .. } = &self.context;
        metrics.error(fault.kind);
        if let Some((offset, nth)) = rows.identities().nth(row) {
            let (plugin, partition, cause) = (&link.name, rows.batch().partition(), &fault.cause);
            if self.warned.is_none_or(|last| now - last >= WARN_INTERVAL) {
                self.warned = Some(now);
                tracing::warn!(%route, %plugin, %partition, offset, cause, "a plugin failed on a record");
            } else {
                tracing::debug!(%route, %plugin, %partition, offset, cause, "a plugin failed on a record");
            }
            self.guilt.add(station, offset, nth, fault.cause.clone());
        }
        Part { rows: 1, outcome: Outcome::Rejected(link.author.reject(fault.cause, *retries + 1)) }
    }
}

impl Station {
    fn new(link: Arc<Link>) -> Self {
        Self {
            link,
            instance: None,
            encoded: Encoded::default(),
            circuit: Circuit::default(),
            retries: 0,
            failed_starts: 0,
        }
    }

    /// How the rows are cut into calls.
    fn calls(&self, rows: &Rows<'_>) -> Vec<Range<usize>> {
        let asked = self.link.setup.max_batch as usize;
        let max_records = if asked == 0 { MAX_CALL_RECORDS } else { asked.min(MAX_CALL_RECORDS) };
        let max_bytes = self.link.limits.memory / CALL_MEMORY_SHARE;
        let total = rows.writes();
        if total == 0 {
            return Vec::new();
        }
        let mut calls = Vec::new();
        let (mut start, mut bytes) = (0, 0_usize);
        if total > max_records || rows.batch().held_bytes() > max_bytes {
            for (row, record) in rows.written().enumerate() {
                let size = size(&record);
                if row > start && (row - start == max_records || bytes + size > max_bytes) {
                    calls.push(start..row);
                    (start, bytes) = (row, 0);
                }
                bytes += size;
            }
        }
        calls.push(start..total);
        calls
    }

    /// Gives the rows in `range`, counted among those to be written, to the plugin.
    fn call(
        &mut self,
        rows: &Rows<'_>,
        range: Range<usize>,
        cap: usize,
        context: &RunnerContext,
    ) -> Result<Outcome, Trouble> {
        let link = self.link.clone();
        let mut instance = self.take_instance(context).map_err(Trouble::Stall)?;
        let fresh = instance.calls == 0;
        let records = || rows.written().skip(range.start).take(range.len());
        let whole = range.len() == rows.batch().len();
        let batch = rows.batch();
        let input = if whole && instance.setup.wants == (Wants::KEYS | Wants::VALUES | Wants::HEADERS) {
            whole_batch(batch)
        } else {
            self.encoded.fill(records(), instance.setup.wants);
            self.encoded.input(batch)
        };
        let fault = match instance.process(input, &link.name, &context.metrics) {
            Ok(verdicts) => {
                let records = Exactly { records: records(), left: range.len() };
                match verdict::check(records, verdicts, link.setup.changes_keys, cap) {
                    Ok(checked) => {
                        self.instance = Some(instance);
                        return Ok(Outcome::Answered(checked));
                    }
                    Err(error) => {
                        Fault { kind: ErrorKind::PluginVerdict, cause: format!("the answer is wrong: {error}") }
                    }
                }
            }
            Err(Failure::Retry(text)) if self.retries < MAX_RETRIES => {
                self.instance = Some(instance);
                let retry_after = backoff(self.retries);
                self.retries += 1;
                let reason = format!("plugin `{}` asks to wait: {text}", link.name);
                return Err(Trouble::Stall(Stall { reason, retry_after }));
            }
            Err(Failure::Retry(text)) => {
                let cause = format!("the plugin asked to wait more than `{MAX_RETRIES}` times: {text}");
                Fault { kind: ErrorKind::PluginOther, cause }
            }
            Err(Failure::Fault(fault)) => fault,
        };
        Err(Trouble::Fault { fault, fresh })
    }

    /// What comes next is not to meet what an instance has in its memory.
    fn freshen(&mut self) {
        self.instance.take_if(|instance| instance.calls > 0);
    }

    fn take_instance(&mut self, context: &RunnerContext) -> Result<Instance, Stall> {
        if let Some(instance) = self.instance.take() {
            return Ok(instance);
        }
        match self.link.open(&context.route) {
            Ok(instance) => {
                self.failed_starts = 0;
                Ok(instance)
            }
            Err(error) => {
                let (kind, cause) = match error {
                    OpenError::Failed(Fault { kind, cause }) => (kind, cause),
                    OpenError::World(cause) | OpenError::Config(cause) => (ErrorKind::PluginOther, cause),
                };
                context.metrics.error(kind);
                let reason = format!("plugin `{}` does not start: {cause}", self.link.name);
                let retry_after = backoff(self.failed_starts);
                self.failed_starts = self.failed_starts.saturating_add(1);
                Err(Stall { reason, retry_after })
            }
        }
    }
}

fn backoff(earlier: u32) -> Duration {
    MIN_BACKOFF.saturating_mul(1 << earlier.min(16)).min(MAX_BACKOFF)
}

/// What a record takes in a guest's memory.
fn size(record: &Record<'_>) -> usize {
    let field = |field: Option<&[u8]>| 4 + field.map_or(0, <[u8]>::len);
    let headers: usize = record.headers.map(|(name, value)| 4 + name.len() + field(value)).sum();
    20 + field(record.key) + field(record.value) + headers
}

fn count(finished: &Finished, metrics: &LaneMetrics) {
    let tally = finished.tally();
    metrics.kept.inc_by(tally.kept);
    metrics.changed.inc_by(tally.changed);
    metrics.dropped.inc_by(tally.dropped);
    metrics.rejected.inc_by(tally.rejected);
    for rejection in finished.rejections().filter(|rejection| rejection.stage == Stage::Key) {
        debug_assert_eq!(rejection.attempts, 1, "keys are looked at once");
        metrics.error(ErrorKind::Key);
    }
    (0..finished.rejects).for_each(|_| metrics.error(ErrorKind::PluginReject));
}

/// An iterator that is known to have `left` items.
struct Exactly<I> {
    records: I,
    left: usize,
}

impl<I: Iterator> Iterator for Exactly<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.left = self.left.saturating_sub(1);
        self.records.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<I: Iterator> ExactSizeIterator for Exactly<I> {}
