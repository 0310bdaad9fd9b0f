//! The thread that drives a sink whose writes block.
//!
//! It takes what is there, without waiting for more; keeps the dead letters; writes; and only then acknowledges. Dead
//! letters come first, since a sink that keeps its own offsets moves them with the write.

use std::any::Any;
use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use crossbeam_channel::{Receiver, Select, Sender, TryRecvError};
use tracing::warn;

use super::dead_letter::{DeadLetters, Letter};
use super::ledger::{Entry, Ledger, MAX_ORDERS, Order};
use super::retry::Backoff;
use super::wait::Wait;
use super::{Blocking, Context, Halt, Inlet, Receipt, Running, Way, WriteError};
use crate::config::{OnDrop, OnReject, Retry};
use crate::delivery::{Assignments, Delivery, Fate, OnError, Rejection, Skips, Stage};
use crate::log;
use crate::metrics::{ErrorKind, add_seconds};
use crate::record::TopicPartition;

/// The most deliveries in one write.
const GROUP_BATCHES: usize = 4096;

/// Bytes of rows in one write, which the last delivery may pass: enough for large sorted transactions, and small enough to
/// leave a lane room to read ahead meanwhile.
const GROUP_BYTES: usize = 32 << 20;

/// Rows in one write, which the last delivery may pass: what a sink works out for each of them, about a hundred bytes, is
/// held beside the rows themselves.
const GROUP_ROWS: usize = 100_000;

/// How long nothing must come before the sink may tidy up.
const IDLE_AFTER: Duration = Duration::from_millis(500);

/// Starts the thread.
pub fn start(context: Context, mut sink: Box<dyn Blocking>) -> anyhow::Result<Running> {
    let (positions, row_bytes) = (sink.positions(), sink.row_bytes());
    let (inlet, deliveries) = crossbeam_channel::bounded(context.max_batches);
    let (orders_in, orders) = crossbeam_channel::bounded(MAX_ORDERS);
    let ledger = sink.ledger().map(|ledger| (ledger.kept(), orders_in));
    let (ending, ended) = crossbeam_channel::bounded::<Infallible>(0);
    let driver = Driver {
        dead_letters: DeadLetters::new(context.dead_letters.clone()),
        context,
        sink,
        deliveries,
        orders,
        sweeps: VecDeque::new(),
        wait: Wait::default(),
        _ending: ending,
    };
    thread::Builder::new()
        .name(format!("sink-{}", driver.context.sink.name))
        .spawn(move || driver.run())
        .context("failed to start the sink's thread")?;
    Ok(Running { positions, ledger, inlet: Inlet(Way::Thread(inlet)), row_bytes, ended })
}

struct Driver {
    context: Context,
    sink: Box<dyn Blocking>,
    dead_letters: DeadLetters,
    deliveries: Receiver<Delivery>,
    orders: Receiver<Order>,
    /// Partitions whose older rows are being removed, between the writes.
    sweeps: VecDeque<Sweep>,
    wait: Wait,
    /// Closes when the driver is dropped, as the last thing it does.
    _ending: Sender<Infallible>,
}

/// Why the driver ends before its deliveries do.
enum End {
    Halted(Halt),
    Stopped,
}

/// A partition, the generation that its rows must have, and how many went.
struct Sweep {
    partition: TopicPartition,
    generation: i64,
    rows: u64,
}

/// Deliveries that are written together.
struct Group {
    deliveries: Vec<Delivery>,
    /// Of each delivery, the records that are safe as dead letters already.
    lettered: Vec<HashSet<u32>>,
}

impl Driver {
    fn run(mut self) {
        let end = catch_unwind(AssertUnwindSafe(|| self.drive()));
        let end = end.unwrap_or_else(|panic| {
            Err(End::Halted(Halt::of(Stage::Sink, format!("the sink panicked: {}", panic_message(&*panic)))))
        });
        self.wait.give_up(&self.context);
        if let Err(End::Halted(halt)) = end {
            self.context.tell_halt(halt);
        }
    }

    fn drive(&mut self) -> Result<(), End> {
        while let Some(group) = self.take()? {
            if self.context.stop.is_set() {
                return Err(End::Stopped);
            }
            self.settle(group)?;
        }
        self.sink.idle();
        Ok(())
    }

    /// What is there; waits for the first delivery only. `None` = no inlet is left.
    fn take(&mut self) -> Result<Option<Group>, End> {
        let Some(first) = self.first()? else { return Ok(None) };
        let (mut bytes, mut rows) = (first.rows().data_bytes(), first.rows().len());
        let mut deliveries = vec![first];
        while bytes < GROUP_BYTES && rows < GROUP_ROWS && deliveries.len() < GROUP_BATCHES {
            let Ok(delivery) = self.deliveries.try_recv() else { break };
            bytes += delivery.rows().data_bytes();
            rows += delivery.rows().len();
            deliveries.push(delivery);
        }
        Ok(Some(Group { lettered: vec![HashSet::new(); deliveries.len()], deliveries }))
    }

    /// The next delivery; orders go before it, and one step of a sweep between two of them.
    fn first(&mut self) -> Result<Option<Delivery>, End> {
        let mut wait = Some(IDLE_AFTER);
        loop {
            while let Ok(order) = self.orders.try_recv() {
                self.obey(order)?;
            }
            let swept = self.sweep()?;
            match self.deliveries.try_recv() {
                Ok(delivery) => return Ok(Some(delivery)),
                Err(TryRecvError::Disconnected) => return Ok(None),
                Err(TryRecvError::Empty) if swept => {
                    if self.context.stop.is_set() {
                        return Err(End::Stopped);
                    }
                    continue;
                }
                Err(TryRecvError::Empty) => {}
            }
            let mut select = Select::new();
            select.recv(&self.deliveries);
            select.recv(&self.orders);
            match wait {
                None => drop(select.ready()),
                Some(wait_for) => {
                    if select.ready_timeout(wait_for).is_err() {
                        self.sink.idle();
                        wait = self.sink.wakes_after();
                    }
                }
            }
            match self.orders.try_recv() {
                Ok(order) => self.obey(order)?,
                // A closed way is always ready, and would be looked at without a pause.
                Err(TryRecvError::Disconnected) => self.orders = crossbeam_channel::never(),
                Err(TryRecvError::Empty) => {}
            }
        }
    }

    fn obey(&mut self, order: Order) -> Result<(), End> {
        let entry = match order {
            Order::Begin(partitions) => {
                self.sweeps.retain(|sweep| partitions.iter().all(|(partition, _)| *partition != sweep.partition));
                self.enter(|ledger| ledger.begin(&partitions))?;
                Entry::Begun
            }
            Order::Keep(moments) => {
                self.enter(|ledger| ledger.keep(&moments))?;
                Entry::Kept
            }
            Order::Sweep { partition, generation } => {
                self.sweeps.push_back(Sweep { partition, generation, rows: 0 });
                return Ok(());
            }
        };
        self.context.receipts.send(Receipt::Ledger(entry)).map_err(|_| End::Stopped)
    }

    /// One step of the oldest sweep. Returns whether there was any.
    fn sweep(&mut self) -> Result<bool, End> {
        let Some(mut sweep) = self.sweeps.pop_front() else { return Ok(false) };
        let swept = self.enter(|ledger| ledger.sweep(&sweep.partition))?;
        self.context.metrics.swept.inc_by(swept.rows);
        sweep.rows += swept.rows;
        if swept.more {
            self.sweeps.push_front(sweep);
            return Ok(true);
        }
        let Sweep { partition, generation, rows } = sweep;
        let entry = Entry::Swept { partition, generation, rows };
        self.context.receipts.send(Receipt::Ledger(entry)).map_err(|_| End::Stopped)?;
        Ok(true)
    }

    /// Does something with the sink's ledger, however long it takes: it is no record's fault, so that nothing is given up.
    fn enter<T>(&mut self, act: impl Fn(&mut dyn Ledger) -> Result<T, WriteError>) -> Result<T, End> {
        let mut backoff = Backoff::new(Retry { attempts: None, ..self.context.sink.retry });
        loop {
            let Some(ledger) = self.sink.ledger() else {
                return Err(End::Halted(Halt::of(Stage::Sink, "the sink keeps no ledger")));
            };
            self.context.under_way.begin();
            let result = act(ledger);
            self.context.under_way.end();
            match result {
                Ok(value) => {
                    self.wait.end(&self.context);
                    return Ok(value);
                }
                Err(WriteError::Transient(error)) => {
                    if let Some(delay) = self.failed(&mut backoff, ErrorKind::SinkTransient, &error) {
                        self.wait(delay)?;
                    }
                }
                Err(error) => return Err(End::Halted(Halt::of(Stage::Sink, format!("{error:#}")))),
            }
        }
    }

    /// Brings every record of `group` to its end and acknowledges it, up to the first one that halts the lane.
    fn settle(&mut self, mut group: Group) -> Result<(), End> {
        let mut halt = None;
        let mut written = false;
        let mut given_up = false;
        while !written && !given_up {
            group.keep_assigned(&self.context.assignments);
            halt = group.cut_at_halt(&self.context.skips).or(halt);
            self.keep_dead_letters(&mut group)?;
            if group.deliveries.is_empty() {
                break;
            }
            match self.write(&mut group)? {
                Written::All => written = true,
                Written::Rejected => {}
                Written::GaveUp => {
                    halt = group.cut_at_halt(&self.context.skips).or(halt);
                    self.keep_dead_letters(&mut group)?;
                    given_up = true;
                }
            }
        }
        if written {
            self.count_rows(&group);
        }
        for delivery in &group.deliveries {
            self.context.receipts.send(Receipt::Done(delivery.span)).map_err(|_| End::Stopped)?;
        }
        halt.map_or(Ok(()), |halt| Err(End::Halted(halt)))
    }

    /// Writes `group` once it can be, or says which of its rows got another fate.
    fn write(&mut self, group: &mut Group) -> Result<Written, End> {
        let mut backoff = Backoff::new(self.context.sink.retry);
        loop {
            let started = Instant::now();
            self.context.under_way.begin();
            let result = self.sink.write(&group.deliveries);
            self.context.under_way.end();
            add_seconds(&self.context.metrics.sink_seconds, started);
            let error = match result {
                Ok(()) => {
                    self.wait.end(&self.context);
                    return Ok(Written::All);
                }
                Err(WriteError::Transient(error)) => error,
                Err(WriteError::Rows(rows)) => {
                    let policy = self.context.sink.on_error;
                    if policy == OnError::Halt {
                        self.wait.give_up(&self.context);
                    } else {
                        self.wait.end(&self.context);
                    }
                    let mut changed = 0;
                    for row in rows {
                        let Some(delivery) = group.deliveries.get_mut(row.delivery) else { continue };
                        if !matches!(delivery.fate(row.row), Fate::Reject(_)) {
                            let rejection = Rejection { stage: Stage::Sink, cause: row.cause, policy, attempts: 1 };
                            delivery.set_fate(row.row, Fate::Reject(rejection));
                            changed += 1;
                        }
                    }
                    if changed == 0 {
                        // Calling again would change nothing, for ever.
                        return Err(End::Halted(group.halt("the sink rejects rows that it was told to leave out")));
                    }
                    self.count_rejected(changed, ErrorKind::SinkPermanent);
                    return Ok(Written::Rejected);
                }
                Err(WriteError::Halt(error)) => return Err(End::Halted(group.halt(format!("{error:#}")))),
            };
            let Some(delay) = self.failed(&mut backoff, ErrorKind::SinkTransient, &error) else {
                let cause = format!("{error:#}");
                let changed = group.give_up(&self.context, self.sink.keeps_latest(), &cause, backoff.failures());
                self.count_rejected(changed, ErrorKind::SinkPermanent);
                return Ok(Written::GaveUp);
            };
            self.wait(delay)?;
            group.keep_assigned(&self.context.assignments);
            if group.deliveries.is_empty() {
                return Ok(Written::All);
            }
        }
    }

    /// Makes the rejected records of `group` safe, however long the disk refuses: nothing is acknowledged before.
    fn keep_dead_letters(&mut self, group: &mut Group) -> Result<(), End> {
        let mut backoff = Backoff::new(Retry { attempts: None, ..self.context.sink.retry });
        loop {
            let (letters, of) = group.letters();
            if letters.is_empty() {
                return Ok(());
            }
            match self.dead_letters.append(&letters) {
                Ok(kept) => {
                    self.context.metrics.dead_letters.inc_by(kept as u64);
                    drop(letters);
                    of.into_iter().for_each(|(delivery, record)| {
                        group.lettered[delivery].insert(record);
                    });
                    self.wait.end(&self.context);
                    return Ok(());
                }
                Err(error) => {
                    drop(letters);
                    let path = self.context.dead_letters.display();
                    let error = anyhow::anyhow!("the dead letters cannot be written to `{path}`: {error}");
                    if let Some(delay) = self.failed(&mut backoff, ErrorKind::DeadLetter, &error) {
                        self.wait(delay)?;
                    }
                }
            }
        }
    }

    /// Counts, logs and shows a failed try. `None` = there is to be no other.
    fn failed(&mut self, backoff: &mut Backoff, kind: ErrorKind, error: &anyhow::Error) -> Option<Duration> {
        self.context.metrics.error(kind);
        let delay = backoff.failed();
        let Context { route, sink, .. } = &self.context;
        match delay {
            Some(delay) => {
                let seconds = log::seconds(delay);
                warn!(route, sink = sink.name, error = %format!("{error:#}"), seconds, "failed, trying again");
                self.wait.show(&self.context, format!("{error:#}, trying again in {seconds:.1} s"));
            }
            None => {
                warn!(route, sink = sink.name, error = %format!("{error:#}"), tries = backoff.failures(), "gave up");
                self.wait.give_up(&self.context);
            }
        }
        delay
    }

    fn wait(&mut self, delay: Duration) -> Result<(), End> {
        if self.context.stop.wait(delay) {
            return Err(End::Stopped);
        }
        self.context.metrics.retries.inc();
        Ok(())
    }

    fn count_rejected(&self, rows: u64, kind: ErrorKind) {
        self.context.metrics.rejected.inc_by(rows);
        (0..rows).for_each(|_| self.context.metrics.error(kind));
    }

    fn count_rows(&self, group: &Group) {
        let (mut rows, mut bytes) = (0, 0);
        for delivery in &group.deliveries {
            for (record, fate) in delivery.rows().iter().zip(delivery.fates()) {
                if *fate == Fate::Write {
                    rows += 1;
                    bytes += record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
                }
            }
        }
        self.context.metrics.records_out.inc_by(rows);
        self.context.metrics.bytes_out.inc_by(bytes as u64);
    }
}

/// How a write ended.
enum Written {
    All,
    /// Some rows can never be written: their fate is set, and the rest is still to be written.
    Rejected,
    /// There was a last try: every row's fate is set, and nothing is to be written.
    GaveUp,
}

impl Group {
    /// Forgets what belongs to partitions that are no longer ours.
    fn keep_assigned(&mut self, assignments: &Assignments) {
        let mut keep: Vec<bool> = Vec::with_capacity(self.deliveries.len());
        self.deliveries.retain(|delivery| {
            keep.push(assignments.contains(delivery.span.assignment));
            keep.last().is_some_and(|keep| *keep)
        });
        let mut keep = keep.into_iter();
        self.lettered.retain(|_| keep.next().unwrap_or(false));
    }

    /// Cuts the group before the first record that halts the lane.
    fn cut_at_halt(&mut self, skips: &Skips) -> Option<Halt> {
        let halting = |(index, delivery): (usize, &mut Delivery)| Some((index, Halt::cut(delivery, skips)?));
        let (index, halt) = self.deliveries.iter_mut().enumerate().find_map(halting)?;
        let kept = index + usize::from(!self.deliveries[index].input().is_empty());
        self.deliveries.truncate(kept);
        self.lettered.truncate(kept);
        Some(halt)
    }

    /// The dead letters still to be kept, one for each record, and where each comes from.
    fn letters(&self) -> (Vec<Letter<'_>>, Vec<(usize, u32)>) {
        let (mut letters, mut of) = (Vec::new(), Vec::new());
        for (index, delivery) in self.deliveries.iter().enumerate() {
            if !delivery.fates().any(|fate| matches!(fate, Fate::Reject(_))) {
                continue;
            }
            for output in delivery.outputs() {
                let Fate::Reject(rejection) = output.fate else { continue };
                let here = (index, output.origin_index);
                if rejection.policy == OnError::DeadLetter
                    && !self.lettered[index].contains(&output.origin_index)
                    && of.last() != Some(&here)
                {
                    let partition = delivery.input().partition();
                    letters.push(Letter { partition, record: output.origin, rejection });
                    of.push(here);
                }
            }
        }
        (letters, of)
    }

    /// Gives every row that the sink had still to act on to the policy; returns how many there were.
    fn give_up(&mut self, context: &Context, keeps_latest: bool, cause: &str, attempts: u32) -> u64 {
        let sink = &context.sink;
        let (mut changed, mut stale) = (0, 0);
        for delivery in &mut self.deliveries {
            for row in 0..delivery.rows().len() {
                let acts = match delivery.fate(row) {
                    Fate::Write => true,
                    Fate::Drop => keeps_latest && sink.on_drop == OnDrop::Delete,
                    Fate::Reject(_) => false,
                };
                if acts {
                    let (input, origin) = (delivery.input(), delivery.origin_index(row) as usize);
                    let policy = context.skips.apply(sink.on_error, input.partition(), input.offsets()[origin]);
                    let cause = cause.to_owned();
                    delivery.set_fate(row, Fate::Reject(Rejection { stage: Stage::Sink, cause, policy, attempts }));
                    changed += 1;
                    stale += u64::from(policy != OnError::Halt);
                }
            }
        }
        if keeps_latest && sink.on_reject == OnReject::Keep {
            context.metrics.stale.inc_by(stale);
        }
        changed
    }

    /// A halt before the group's first record.
    fn halt(&self, reason: impl Into<String>) -> Halt {
        let first = self.deliveries.first().and_then(|delivery| {
            let record = delivery.input().iter().next()?;
            Some((delivery.input().partition(), record.offset))
        });
        match first {
            Some((partition, offset)) => Halt::before(partition, offset, Stage::Sink, reason),
            None => Halt::of(Stage::Sink, reason),
        }
    }
}

/// What a panic said.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests;
