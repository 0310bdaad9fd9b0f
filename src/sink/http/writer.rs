//! The task: takes deliveries, sends their rows as the queue and the gate allow, and acknowledges a delivery when each of
//! its rows is done, or safe as a dead letter.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::exchange::{Exchange, Outcome};
use super::gate::Gate;
use super::letters::{Kept, Letters};
use super::queue::{Key, Queue};
use super::row::{Action, Row};
use crate::config::{Http as Settings, Method, OnDrop, OnReject};
use crate::delivery::{Delivery, Fate, OnError, Output, Rejection, Span, Stage};
use crate::log;
use crate::metrics::ErrorKind;
use crate::sink::retry::Backoff;
use crate::sink::wait::Wait;
use crate::sink::{Context, Halt, Receipt};

/// Rows and dead letters in the task's hands, which the last delivery may pass.
const UNSETTLED: usize = 8192;

/// What a row in the task's hands costs beside its record, measured: its places in the queue and the map, and its key twice.
pub const ROW_BYTES: usize = 400;

/// How often failures of single keys are told at level warn.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

pub struct Writer {
    context: Context,
    exchange: Exchange,
    in_flight: usize,
    /// Whether a row stands for the ones of its key that wait before it.
    latest_only: bool,
    deletes: bool,
    queue: Queue<Row>,
    /// The deliveries in hand, by sequence.
    pending: BTreeMap<u64, Pending>,
    /// What [`Pending::left`] adds up to.
    unsettled: usize,
    next_sequence: u64,
    /// Rows without a key so far.
    alone: u64,
    under_way: usize,
    events: FuturesUnordered<BoxFuture<'static, Event>>,
    gate: Gate<Key>,
    letters: Letters,
    /// The first delivery that is not finished any more, and why.
    halt: Option<(u64, Halt)>,
    last_failure: Option<String>,
    /// It came after what is shown.
    is_news: bool,
    /// When a failure of a single key was last told at level warn.
    warned: Option<Instant>,
    wait: Wait,
}

struct Pending {
    span: Span,
    /// Rows and dead letters that have not come to their end.
    left: usize,
    /// The records that have a dead letter.
    lettered: HashSet<u32>,
}

enum Event {
    Answered { key: Key, outcome: Outcome, took: Duration },
    Rested(Key),
    GateOpens,
    Kept { result: io::Result<usize>, letters: Vec<Kept> },
    LettersRested(Vec<Kept>),
}

impl Writer {
    pub fn new(context: Context, settings: &Settings) -> anyhow::Result<Self> {
        let retry = context.sink.retry;
        Ok(Self {
            exchange: Exchange::new(settings)?,
            in_flight: settings.in_flight.get(),
            latest_only: settings.method == Method::Put,
            deletes: settings.delete.is_some(),
            queue: Queue::default(),
            pending: BTreeMap::new(),
            unsettled: 0,
            next_sequence: 0,
            alone: 0,
            under_way: 0,
            events: FuturesUnordered::new(),
            gate: Gate::new(retry),
            letters: Letters::new(context.dead_letters.clone(), retry),
            halt: None,
            last_failure: None,
            is_news: false,
            warned: None,
            wait: Wait::default(),
            context,
        })
    }

    /// Takes deliveries until no inlet is left, and brings what it took to its end.
    pub async fn run(mut self, mut deliveries: mpsc::Receiver<Delivery>) {
        let stop = self.context.stop.clone();
        let mut open = true;
        loop {
            self.send_what_may_be_sent();
            self.keep_letters();
            self.show_what_it_waits_for();
            if (!open || self.halt.is_some()) && self.is_finished() {
                break;
            }
            tokio::select! {
                () = stop.stopped() => return,
                delivery = deliveries.recv(), if open && self.has_room() => match delivery {
                    Some(delivery) => self.take(delivery),
                    None => open = false,
                },
                Some(event) = self.events.next(), if !self.events.is_empty() => self.handle(event),
            }
        }
        self.wait.give_up(&self.context);
        if let Some((_, halt)) = self.halt {
            self.context.tell_halt(halt);
        }
    }

    fn has_room(&self) -> bool {
        self.halt.is_none() && self.unsettled < UNSETTLED
    }

    /// Whether everything before a halt, or everything, has come to its end.
    fn is_finished(&self) -> bool {
        let end = self.halt.as_ref().map_or(u64::MAX, |(sequence, _)| *sequence);
        self.pending.range(..end).next().is_none()
    }

    fn take(&mut self, mut delivery: Delivery) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        if !self.context.assignments.contains(delivery.span.assignment) {
            return;
        }
        if let Some(halt) = Halt::cut(&mut delivery, &self.context.skips) {
            self.next_sequence += 1;
            self.halt_at(sequence + 1, halt);
            if delivery.input().is_empty() {
                return;
            }
        }
        let delivery = Arc::new(delivery);
        // One for the taking itself, so that it is not finished before all of it is in the queue.
        self.pending.insert(sequence, Pending { span: delivery.span, left: 0, lettered: HashSet::new() });
        self.expect(sequence);
        let (mut nth, mut last_origin) = (0, None);
        for output in delivery.outputs() {
            nth = if last_origin == Some(output.origin_index) { nth + 1 } else { 0 };
            last_origin = Some(output.origin_index);
            if let Some(action) = self.action(sequence, &delivery, &output) {
                self.enqueue(Row::new(sequence, &delivery, &output, nth, action));
            }
        }
        self.settle(sequence);
    }

    /// What is to be sent for `output`, if anything.
    fn action(&mut self, sequence: u64, delivery: &Arc<Delivery>, output: &Output<'_>) -> Option<Action> {
        let metrics = &self.context.metrics;
        let can_clear = self.deletes && output.record.key.is_some();
        match output.fate {
            Fate::Write if output.record.value.is_some() => Some(Action::Write),
            Fate::Write if self.deletes => Some(Action::Delete),
            Fate::Write => {
                metrics.tombstones_ignored.inc();
                None
            }
            Fate::Drop => (self.context.sink.on_drop == OnDrop::Delete && can_clear).then_some(Action::Clear),
            Fate::Reject(rejection) => {
                let clears = self.context.sink.on_reject == OnReject::Delete && can_clear;
                if !clears && self.latest_only && output.record.key.is_some() {
                    metrics.stale.inc();
                }
                if rejection.policy == OnError::DeadLetter {
                    self.push_letter(sequence, delivery, output.origin_index, rejection.clone());
                }
                clears.then_some(Action::Clear)
            }
        }
    }

    fn enqueue(&mut self, row: Row) {
        self.expect(row.sequence);
        let key = match row.key() {
            Some(key) => Key::Named(key.into()),
            None => Key::Alone(self.next_alone()),
        };
        let supersedes = |new: &Row, old: &Row| new.version().supersedes(&old.version());
        self.queue.push(key, row, self.latest_only.then_some(supersedes));
    }

    fn send_what_may_be_sent(&mut self) {
        while self.under_way < self.gate.limit(self.in_flight) {
            let Some(key) = self.queue.next() else { break };
            self.forget_lost(&key);
            let Some((row, failures)) =
                self.queue.first(&key).and_then(|entry| Some((entry.rows.last()?, entry.failures)))
            else {
                self.queue.done(&key);
                continue;
            };
            let request = match self.exchange.request(row) {
                Ok(request) => request,
                Err(cause) => {
                    self.reject(&key, cause, 1);
                    continue;
                }
            };
            if failures > 0 {
                self.context.metrics.retries.inc();
            }
            if self.under_way == 0 {
                self.context.under_way.begin();
            }
            self.under_way += 1;
            let (exchange, deletes) = (self.exchange.clone(), row.action != Action::Write);
            self.events.push(Box::pin(async move {
                let started = Instant::now();
                let outcome = exchange.send(request, deletes).await;
                Event::Answered { key, outcome, took: started.elapsed() }
            }));
        }
    }

    /// Takes out the rows whose partition is somebody else's by now, or that stand behind a halt.
    fn forget_lost(&mut self, key: &Key) {
        let Some(entry) = self.queue.first(key) else { return };
        let end = self.halt.as_ref().map_or(u64::MAX, |(sequence, _)| *sequence);
        let assignments = &self.context.assignments;
        let lost = |row: &mut Row| row.sequence >= end || !assignments.contains(row.delivery().span.assignment);
        let last = entry.rows.len();
        let lost: Vec<Row> = entry.rows.extract_if(.., lost).collect();
        if entry.rows.len() < last {
            // Perhaps another row is sent now, whose tries are its own.
            entry.failures = 0;
        }
        lost.iter().for_each(|row| self.settle(row.sequence));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Answered { key, outcome, took } => {
                self.under_way -= 1;
                // Whatever the answer is, the service speaks: from here on the silence is another one.
                match self.under_way {
                    0 => self.context.under_way.end(),
                    _ => self.context.under_way.begin(),
                }
                self.context.metrics.sink_seconds.inc_by(took.as_secs_f64());
                if !matches!(outcome, Outcome::Transient { .. }) {
                    self.gate.answered();
                    if matches!(outcome, Outcome::Permanent { .. }) && self.context.sink.on_error == OnError::Halt {
                        self.wait.give_up(&self.context);
                    } else {
                        self.wait.end(&self.context);
                    }
                }
                match outcome {
                    Outcome::Done => self.finish(&key),
                    Outcome::Permanent { cause } => {
                        let failures = self.queue.first(&key).map_or(0, |entry| entry.failures);
                        self.reject(&key, cause, failures + 1);
                    }
                    Outcome::Transient { cause, retry_after, unreachable } => {
                        self.failed(key, cause, retry_after, unreachable);
                    }
                }
            }
            Event::Rested(key) => self.queue.wake(&key),
            Event::GateOpens => self.gate.open(),
            Event::Kept { result: Ok(kept), letters } => {
                self.context.metrics.dead_letters.inc_by(kept as u64);
                self.letters.written();
                self.wait.end(&self.context);
                letters.iter().for_each(|letter| self.settle(letter.sequence));
            }
            Event::Kept { result: Err(error), letters } => {
                self.context.metrics.error(ErrorKind::DeadLetter);
                let delay = self.letters.failed();
                let path = self.context.dead_letters.display();
                let cause = format!("the dead letters cannot be written to `{path}`: {error}");
                self.show_failure(&cause, delay);
                self.after(delay, Event::LettersRested(letters));
            }
            Event::LettersRested(letters) => self.letters.rested(letters),
        }
    }

    /// The entry under way has arrived, and stands for the versions below it.
    fn finish(&mut self, key: &Key) {
        let Some(entry) = self.queue.done(key) else { return };
        let metrics = &self.context.metrics;
        metrics.coalesced.inc_by(entry.rows.len().saturating_sub(1) as u64);
        for row in entry.rows.iter().filter(|row| row.action != Action::Clear) {
            metrics.records_out.inc();
            metrics.bytes_out.inc_by(row.bytes() as u64);
        }
        entry.rows.iter().for_each(|row| self.settle(row.sequence));
    }

    fn failed(&mut self, key: Key, cause: String, retry_after: Option<Duration>, unreachable: bool) {
        self.context.metrics.error(ErrorKind::SinkTransient);
        let closed = self.gate.failed(key.clone(), unreachable, retry_after);
        if let Some(delay) = closed {
            self.show_failure(&cause, delay);
            self.after(delay, Event::GateOpens);
        }
        let Some(entry) = self.queue.first(&key) else { return };
        let mut backoff = Backoff::after(self.context.sink.retry, entry.failures);
        let delay = backoff.failed();
        entry.failures = backoff.failures();
        match delay {
            Some(delay) => {
                let delay = delay.max(retry_after.unwrap_or_default());
                if closed.is_none() {
                    self.tell_failure(&cause, delay);
                    (self.last_failure, self.is_news) = (Some(wait_text(&cause, delay)), true);
                }
                self.queue.rest(&key);
                self.after(delay, Event::Rested(key));
            }
            None => self.reject(&key, cause, backoff.failures()),
        }
    }

    /// The row under way can never be written: it goes to the policy, and what waited below it takes its place.
    fn reject(&mut self, key: &Key, cause: String, attempts: u32) {
        let Some(entry) = self.queue.first(key) else { return };
        let Some(mut row) = entry.rows.pop() else { return };
        entry.failures = 0;
        let (sink, metrics) = (&self.context.sink, &self.context.metrics);
        metrics.error(ErrorKind::SinkPermanent);
        debug!(route = self.context.route, sink = sink.name, offset = row.offset, cause, attempts, "rejected");
        if row.action == Action::Clear {
            // The record has come to its end without it; what it was to remove stays, with what is older still.
            metrics.stale.inc();
            let covered = std::mem::take(&mut entry.rows);
            self.queue.done(key);
            covered.iter().chain([&row]).for_each(|row| self.settle(row.sequence));
            return;
        }
        metrics.rejected.inc();
        let policy = self.context.skips.apply(sink.on_error, row.partition(), row.offset);
        if policy == OnError::Halt {
            // Only older versions may still be sent: `forget_lost` sees to that.
            let halt = Halt::by(row.partition(), row.offset, Stage::Sink, cause);
            self.queue.again(key);
            self.halt_at(row.sequence, halt);
            return;
        }
        let clears = row.action == Action::Write && sink.on_reject == OnReject::Delete && self.deletes;
        if !clears && self.latest_only {
            metrics.stale.inc();
        }
        let (sequence, origin, delivery) = (row.sequence, row.origin, Arc::clone(row.delivery()));
        if clears {
            row.action = Action::Clear;
            entry.rows.push(row);
            self.expect(sequence);
        }
        if self.queue.first(key).is_some_and(|entry| entry.rows.is_empty()) {
            self.queue.done(key);
        } else {
            self.queue.again(key);
        }
        if policy == OnError::DeadLetter {
            self.push_letter(sequence, &delivery, origin, Rejection { stage: Stage::Sink, cause, policy, attempts });
        }
        self.settle(sequence);
    }

    /// One dead letter for each record, whichever of its outputs came first.
    fn push_letter(&mut self, sequence: u64, delivery: &Arc<Delivery>, origin: u32, rejection: Rejection) {
        let Some(pending) = self.pending.get_mut(&sequence) else { return };
        if pending.lettered.insert(origin) {
            self.expect(sequence);
            self.letters.push(Kept { sequence, delivery: Arc::clone(delivery), origin, rejection });
        }
    }

    fn keep_letters(&mut self) {
        if let Some(lot) = self.letters.next_lot() {
            self.events.push(Box::pin(async move {
                let (result, letters) = lot.write().await;
                Event::Kept { result, letters }
            }));
        }
    }

    /// One more row or dead letter of a delivery is to come to its end.
    fn expect(&mut self, sequence: u64) {
        if let Some(pending) = self.pending.get_mut(&sequence) {
            pending.left += 1;
            self.unsettled += 1;
        }
    }

    /// One row or dead letter of a delivery has come to its end; with the last, the delivery has.
    fn settle(&mut self, sequence: u64) {
        let Some(pending) = self.pending.get_mut(&sequence) else { return };
        pending.left -= 1;
        self.unsettled -= 1;
        if pending.left > 0 {
            return;
        }
        let span = pending.span;
        self.pending.remove(&sequence);
        let behind_halt = self.halt.as_ref().is_some_and(|(end, _)| sequence >= *end);
        if !behind_halt && self.context.assignments.contains(span.assignment) {
            // Never waits: the lane has room for a receipt of each delivery. A lane that is gone needs none.
            drop(self.context.receipts.send(Receipt::Done(span)));
        }
    }

    fn halt_at(&mut self, sequence: u64, halt: Halt) {
        if self.halt.as_ref().is_none_or(|(earlier, _)| sequence < *earlier) {
            self.halt = Some((sequence, halt));
        }
    }

    fn next_alone(&mut self) -> u64 {
        self.alone += 1;
        self.alone
    }

    fn after(&self, delay: Duration, event: Event) {
        self.events.push(Box::pin(async move {
            tokio::time::sleep(delay).await;
            event
        }));
    }

    /// When nothing can be sent now, the lane waits for what failed last.
    fn show_what_it_waits_for(&mut self) {
        let nothing_to_send = self.under_way == 0 && (self.queue.all_rest() || self.gate.limit(1) == 0);
        if self.queue.is_empty() && !self.letters.is_busy() {
            // Whatever was written has ended the wait before.
            self.wait.give_up(&self.context);
        } else if nothing_to_send
            && (!self.wait.is_shown() || self.is_news)
            && let Some(reason) = &self.last_failure
        {
            self.is_news = false;
            self.wait.show(&self.context, reason.clone());
        }
    }

    /// One of many keys that fail is told now and then; the others only to who debugs.
    fn tell_failure(&mut self, cause: &str, delay: Duration) {
        let (route, sink, seconds) = (&self.context.route, &self.context.sink.name, log::seconds(delay));
        if self.warned.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) {
            self.warned = Some(Instant::now());
            warn!(route, sink, cause, seconds, "failed, trying again");
        } else {
            debug!(route, sink, cause, seconds, "failed, trying again");
        }
    }

    fn show_failure(&mut self, cause: &str, delay: Duration) {
        warn!(
            route = self.context.route,
            sink = self.context.sink.name,
            cause,
            seconds = log::seconds(delay),
            "failed, trying again"
        );
        let reason = wait_text(cause, delay);
        self.last_failure = Some(reason.clone());
        self.wait.show(&self.context, reason);
    }
}

fn wait_text(cause: &str, delay: Duration) -> String {
    format!("{cause}, trying again in {:.1} s", delay.as_secs_f32())
}
