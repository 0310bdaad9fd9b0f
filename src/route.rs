//! One lane: a route and one of its sinks. Read this first.
//!
//! ```text
//! source ─▶ poll thread (here) ─▶ worker: plugin chain ─▶ sink ─▶ receipt ─▶ checkpoint ─▶ commit of the head
//! ```
//!
//! The poll thread runs [`Lane::run`]. It never waits for a plugin, a sink or a queue: when the lane has in hand what its
//! budget allows, it does not drain the source, and goes on answering the source's events.

mod assigned;
mod command;
mod fresh;
mod shown;
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use self::assigned::Partitions;
pub use self::command::{Act, Command, Commands, Refused};
use self::fresh::Fresh;
pub use self::shown::{LaneName, Shown};
use self::worker::Workers;
use crate::config::{self, SinkKind};
use crate::delivery::{Assignments, Delivery, Hold, InHand, Skips, Span};
use crate::freshness;
use crate::gateway::status::LaneState;
use crate::metrics::{ErrorKind, LaneMetrics};
use crate::plugin::Chain;
use crate::record::{self, Batch, NextOffset, TopicPartition};
use crate::sink::{self, Halt, Receipt};
use crate::source::{CommitMode, Demand, Event, Health, Progress, Source};
use crate::stop::Stop;

/// How long one look at the source may wait. Bounds how late a receipt, a stop or a rebalance's deadline is noticed.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// Committed once a second: after a crash, at most this much of what was acknowledged is delivered again to a sink that does
/// not keep its own offsets.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// Unchanged heads are committed again this often, so that one lost commit is not lost for good.
const RECOMMIT_INTERVAL: Duration = Duration::from_secs(60);

/// The most batches that a lane has in hand, whatever their size: the depth of every queue behind the source.
const MAX_BATCHES: usize = 1024;

/// The most records asked for at once. A batch lives in the processor's cache and a call into a plugin is well amortised.
const MAX_RECORDS: usize = 1000;

/// The same for a sink that sends each record on its own. A batch is acknowledged as a whole, so what a stop or a crash
/// repeats is counted in batches, and a slow service would take minutes over a large one.
const MAX_HTTP_RECORDS: usize = 64;

/// How long before the end of the grace time the lane stops waiting for its sink, so that it still can commit.
const COMMIT_RESERVE: Duration = Duration::from_secs(2);

/// How long leaving the group may take: everything is committed, and a broker that is away does not answer.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// What a lane is made of.
#[derive(Clone)]
pub struct Lane {
    pub route: Arc<config::Route>,
    pub sink: Arc<config::Sink>,
    pub chain: Arc<Chain>,
    pub budget: config::Budget,
    pub metrics: LaneMetrics,
    pub shown: Arc<Shown>,
    pub runtime: tokio::runtime::Handle,
    pub commands: crossbeam_channel::Receiver<Command>,
    /// Records that were skipped by command, for as long as the process lives.
    pub skips: Skips,
    /// Whether the checkpoint is committed to the group. `false` = a lane that leaves no trace on the broker.
    pub commits: bool,
    /// Begins the orderly end.
    pub stop: Stop,
    pub grace: Duration,
}

/// Why a lane's run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stopped,
    /// It is to be opened anew, at its checkpoint.
    Resumed,
}

impl Lane {
    /// Runs until the stop signal. A lane that cannot open its sink or its source, or that meets a record it must not pass,
    /// halts: it shows where and why and waits for the stop or for a command; other lanes go on.
    pub fn run(self) {
        loop {
            let end = match Running::open(self.clone()) {
                Ok(running) => running.run(),
                Err(error) => self.cannot_start(&error),
            };
            match end {
                End::Stopped => break,
                End::Resumed => self.shown.resume(),
            }
        }
        self.shown.stopped();
    }

    fn cannot_start(&self, error: &anyhow::Error) -> End {
        let reason = format!("{error:#}");
        tracing::error!(lane = %self.shown.name(), reason, "lane cannot start");
        let halt = Halt::of("start", reason);
        self.shown.halt(halt.clone());
        while !self.stop.wait(POLL_WAIT) {
            let Ok(command) = self.commands.try_recv() else { continue };
            if let Some(end) = self.obey_while_halted(command, &halt) {
                return end;
            }
        }
        End::Stopped
    }

    /// What a halted lane does. Returns how that ends its run.
    fn obey_while_halted(&self, command: Command, halt: &Halt) -> Option<End> {
        let (answer, end) = match (command.act, halt.culprit()) {
            (Act::Skip, Some((partition, offset))) => {
                tracing::warn!(lane = %self.shown.name(), %partition, offset, "record is skipped by command");
                self.skips.insert(partition, offset);
                (Ok(()), Some(End::Resumed))
            }
            (Act::Skip, None) => {
                (Err(Refused(format!("no record is to blame that could be skipped; it halted at {halt}"))), None)
            }
            (Act::Resume, _) => (Ok(()), Some(End::Resumed)),
            (Act::Sweep, _) => (Err(Refused(format!("the lane is halted, and has to be resumed first: {halt}"))), None),
        };
        command.answer(answer);
        end
    }
}

struct Running {
    lane: Lane,
    source: Box<dyn Source>,
    workers: Workers,
    sink: sink::Running,
    receipts: crossbeam_channel::Receiver<Receipt>,
    in_hand: Arc<InHand>,
    assignments: Assignments,
    partitions: Partitions,
    /// Of a sink that has a ledger.
    fresh: Option<Fresh>,
    /// Partitions that go, and when the wait for their work ends.
    revoking: Vec<(Vec<TopicPartition>, Instant)>,
    /// The source has told which partitions are ours, or that none are meant to be.
    was_assigned: bool,
    /// Ends plugin and sink waits: what is unfinished then stays unacknowledged.
    abandon: Stop,
    next_commit: Instant,
    next_recommit: Instant,
    halted: Option<Halt>,
}

impl Running {
    fn open(lane: Lane) -> anyhow::Result<Self> {
        let (receipts_in, receipts) = crossbeam_channel::bounded(MAX_BATCHES);
        let assignments = Assignments::default();
        let abandon = Stop::new();
        let shown = Arc::clone(&lane.shown);
        let mut sink = sink::start(sink::Context {
            route: lane.route.name.clone(),
            sink: Arc::clone(&lane.sink),
            dead_letters: lane.route.dead_letter.for_lane(&lane.sink.name),
            assignments: assignments.clone(),
            skips: lane.skips.clone(),
            metrics: lane.metrics.clone(),
            waiting: Arc::new(move |why| shown.sink_waits(why)),
            under_way: Arc::clone(&lane.shown.under_way),
            runtime: lane.runtime.clone(),
            receipts: receipts_in.clone(),
            max_batches: MAX_BATCHES,
            stop: abandon.clone(),
            changes_keys: lane.chain.changes_keys(),
        })
        .with_context(|| format!("cannot open the sink `{}`", lane.sink.name))?;
        let in_hand = Arc::new(InHand::new(sink.row_bytes));
        let mut source = open_source(&lane, sink.positions.is_some())?;
        let fresh = sink.ledger.take().filter(|_| reads_all(&lane.route.source)).map(Fresh::new);
        if fresh.is_some() {
            source.watch_logs();
        }
        let workers = Workers::new(&lane, sink.inlet.clone(), receipts_in, assignments.clone(), abandon.clone());
        let now = Instant::now();
        Ok(Self {
            source,
            workers,
            sink,
            receipts,
            in_hand,
            assignments,
            partitions: Partitions::default(),
            fresh,
            revoking: Vec::new(),
            was_assigned: false,
            abandon,
            next_commit: now + COMMIT_INTERVAL,
            next_recommit: now + RECOMMIT_INTERVAL,
            halted: None,
            lane,
        })
    }

    fn run(mut self) -> End {
        let end = loop {
            if self.lane.stop.is_set() {
                break End::Stopped;
            }
            self.take_receipts();
            self.answer_revocations();
            self.commit_when_due();
            self.judge();
            self.show();
            self.step();
            if let Some(end) = self.obey() {
                break end;
            }
        };
        self.finish();
        end
    }

    /// Does what was asked for. Returns how that ends the run.
    fn obey(&mut self) -> Option<End> {
        let command = self.lane.commands.try_recv().ok()?;
        if let Some(halt) = &self.halted {
            return self.lane.obey_while_halted(command, halt);
        }
        let answer = match command.act {
            Act::Resume | Act::Skip => Err(Refused("the lane is not halted".to_owned())),
            Act::Sweep => self.sweep(),
        };
        command.answer(answer);
        None
    }

    /// Begins a pass over the snapshot at whose end the rows that it does not hold are removed.
    fn sweep(&mut self) -> Result<(), Refused> {
        let Some(fresh) = &mut self.fresh else {
            let why = match self.lane.sink.kind {
                SinkKind::Sqlite(_) => {
                    "its source does not begin with the snapshot, so that no pass over it tells what is gone"
                }
                _ => "its sink cannot be swept: only a `sqlite` sink keeps what tells old rows from new ones",
            };
            return Err(Refused(why.to_owned()));
        };
        let partitions: Vec<_> = self.partitions.iter().map(|(partition, _)| partition.clone()).collect();
        if partitions.is_empty() {
            return Err(Refused("no partition is assigned to it yet".to_owned()));
        }
        fresh.sweep(&partitions);
        self.source.retake(&partitions);
        Ok(())
    }

    /// One look at the source. Without room in hand, receipts are what is waited for.
    fn step(&mut self) {
        let demand = self.demand();
        let wait = if demand.is_none() {
            if let Ok(receipt) = self.receipts.recv_timeout(POLL_WAIT) {
                self.receipt(receipt);
            }
            Duration::ZERO
        } else {
            POLL_WAIT
        };
        match self.source.poll(demand, wait) {
            Ok(Event::Idle) => {}
            Ok(Event::Records(batches)) => batches.into_iter().for_each(|batch| self.dispatch(batch)),
            Ok(Event::Assign(partitions)) => self.assign(partitions),
            Ok(Event::Revoke { partitions, lost }) => self.revoke(partitions, lost),
            Ok(Event::Standby) => self.stand_by(),
            Ok(Event::Progress(progress)) => progress.into_iter().for_each(|progress| self.progress(progress)),
            Ok(Event::Logs(logs)) => {
                if let Some(fresh) = &mut self.fresh {
                    let again = fresh.logs(logs, |partition| self.partitions.get(partition).is_some());
                    self.source.retake(&again);
                }
            }
            Ok(Event::Partitions(all)) => self.lane.shown.topic_partitions(all),
            Ok(Event::Health(health)) => self.health(health),
            Ok(Event::Warning(warning)) => self.lane.shown.warn(warning),
            Err(error) => {
                self.lane.metrics.error(ErrorKind::Source);
                self.halt(Halt::of("source", format!("{error:#}")));
            }
        }
    }

    fn demand(&self) -> Demand {
        let bytes = self.lane.budget.in_hand.saturating_sub(self.in_hand.bytes());
        let batches = self.in_hand.batches();
        let room = batches + self.partitions.len() <= MAX_BATCHES || batches == 0;
        if self.halted.is_some() || bytes == 0 || !room || self.workers.is_backed_up() {
            return Demand::NONE;
        }
        let records = match self.lane.sink.kind {
            SinkKind::Http(_) => MAX_HTTP_RECORDS,
            SinkKind::Discard | SinkKind::File(_) | SinkKind::Sqlite(_) => MAX_RECORDS,
        };
        Demand { records, bytes }
    }

    fn dispatch(&mut self, batch: Batch) {
        let (Some(&first), Some(&last)) = (batch.offsets().first(), batch.offsets().last()) else { return };
        let Some(assigned) = self.partitions.get_mut(batch.partition()) else { return };
        let next = NextOffset(last + 1);
        let span = Span { assignment: assigned.id, ticket: assigned.received(first, next), next, whole: true };
        if self.lane.metrics.records_in.inc_by(batch.len() as u64) == 0 {
            self.lane.shown.begun();
        }
        self.lane.metrics.bytes_in.inc_by(batch.data_bytes() as u64);
        let hold = Hold::new(Arc::clone(&self.in_hand), &batch);
        self.workers.send(assigned.worker, Delivery::new(span, batch, hold));
    }

    fn take_receipts(&mut self) {
        while let Ok(receipt) = self.receipts.try_recv() {
            self.receipt(receipt);
        }
        self.workers.flush();
    }

    fn receipt(&mut self, receipt: Receipt) {
        match receipt {
            Receipt::Done(span) => self.partitions.finished(span),
            Receipt::Ledger(entry) => {
                if let Some(starts) = self.fresh.as_mut().and_then(|fresh| fresh.entered(entry)) {
                    self.begin(&starts);
                }
            }
            Receipt::Halted(halt) => self.halt(halt),
        }
    }

    /// Nothing is fed, written or acknowledged from here on; events are still answered, so that the group keeps its member.
    fn halt(&mut self, halt: Halt) {
        if self.halted.is_some() {
            return;
        }
        tracing::error!(
            lane = %self.lane.shown.name(), stage = halt.stage, reason = halt.reason,
            topic = halt.topic, partition = halt.partition, offset = halt.offset, "lane halted"
        );
        self.halted = Some(halt.clone());
        self.partitions.iter().for_each(|(_, assigned)| self.assignments.remove(assigned.id));
        self.abandon.set();
        self.lane.shown.halt(halt);
    }

    fn assign(&mut self, partitions: Vec<TopicPartition>) {
        if let Some(fresh) = &mut self.fresh {
            for (partition, start) in fresh.begin(partitions) {
                if let freshness::Start::Rebuild(reason) = start {
                    tracing::warn!(
                        lane = %self.lane.shown.name(), %partition, %reason,
                        "the snapshot is read again, and what it does not hold any more is removed"
                    );
                }
            }
            return;
        }
        let kept = self.sink.positions.as_ref();
        let starts: Vec<(TopicPartition, Option<NextOffset>)> = partitions
            .into_iter()
            .map(|partition| {
                let start = kept.and_then(|kept| kept.get(&partition).copied());
                (partition, start)
            })
            .collect();
        self.begin(&starts);
    }

    /// Answers an assignment.
    fn begin(&mut self, starts: &[(TopicPartition, Option<NextOffset>)]) {
        self.was_assigned = true;
        let named = starts.iter().map(|(partition, _)| (&*partition.topic, partition.partition));
        tracing::info!(lane = %self.lane.shown.name(), partitions = %record::ranges(named), "partitions assigned");
        for (partition, start) in starts {
            tracing::debug!(lane = %self.lane.shown.name(), %partition, start = start.map(|s| s.0), "partition assigned");
            let id = self.partitions.insert(partition.clone(), *start, self.workers.count());
            if self.halted.is_none() {
                self.assignments.insert(id);
            }
        }
        if let Err(error) = self.source.assign(starts) {
            self.source_failed("cannot begin to read", &error);
        }
    }

    fn stand_by(&mut self) {
        if self.partitions.is_empty() {
            tracing::info!(lane = %self.lane.shown.name(), "stands by: the group has no partition for this instance");
            self.was_assigned = true;
        }
    }

    fn revoke(&mut self, partitions: Vec<TopicPartition>, lost: bool) {
        let named = partitions.iter().map(|partition| (&*partition.topic, partition.partition));
        tracing::info!(lane = %self.lane.shown.name(), partitions = %record::ranges(named), lost, "partitions revoked");
        if lost {
            self.release(&partitions);
        } else {
            self.revoking.push((partitions, Instant::now() + self.drain_timeout()));
        }
    }

    /// Gives partitions away whose work in hand is finished, or has had its time.
    fn answer_revocations(&mut self) {
        let now = Instant::now();
        while let Some((partitions, deadline)) = self.revoking.first() {
            if *deadline > now && self.halted.is_none() && !self.partitions.are_idle(partitions) {
                return;
            }
            let (partitions, _) = self.revoking.remove(0);
            let heads = self.partitions.heads(Some(&partitions));
            self.commit(heads, CommitMode::Sync);
            self.release(&partitions);
        }
    }

    fn release(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            if let Some(assigned) = self.partitions.remove(partition) {
                self.assignments.remove(assigned.id);
                if let Some(fresh) = &mut self.fresh {
                    fresh.release(partition, assigned.checkpoint.head());
                }
                if !assigned.checkpoint.is_idle() {
                    tracing::warn!(lane = %self.lane.shown.name(), %partition, "work in hand is dropped; its next owner does it again");
                }
            }
        }
        // What comes instead is not known: nothing that is left undone counts as delivered.
        self.was_assigned &= !self.partitions.is_empty();
        if let Err(error) = self.source.release(partitions) {
            self.source_failed("cannot give partitions away", &error);
        }
    }

    fn progress(&mut self, progress: Progress) {
        if let Some(assigned) = self.partitions.get_mut(&progress.partition) {
            assigned.learn(&progress);
        }
    }

    fn health(&mut self, health: Health) {
        let why = match &health {
            Health::Ready | Health::Ended => None,
            Health::Connecting { reason } => Some(format!("source: {reason}")),
            Health::MissingTopic { topics } => Some(format!("source: no topic `{}` yet", topics.join("`, `"))),
        };
        match &why {
            Some(why) => tracing::warn!(lane = %self.lane.shown.name(), why, "source waits"),
            None if health == Health::Ended => tracing::info!(lane = %self.lane.shown.name(), "source has ended"),
            None => tracing::info!(lane = %self.lane.shown.name(), "source is ready"),
        }
        self.lane.shown.source_waits(why);
    }

    fn source_failed(&self, what: &str, error: &anyhow::Error) {
        self.lane.metrics.error(ErrorKind::Source);
        tracing::error!(lane = %self.lane.shown.name(), error = format!("{error:#}"), "{what}");
    }

    fn commit_when_due(&mut self) {
        let now = Instant::now();
        if now < self.next_commit {
            return;
        }
        self.next_commit = now + COMMIT_INTERVAL;
        if now >= self.next_recommit {
            self.next_recommit = now + RECOMMIT_INTERVAL;
            self.partitions.forget_commits();
        }
        let heads = self.partitions.heads_to_commit();
        self.commit(heads, CommitMode::Async);
    }

    fn commit(&mut self, heads: Vec<(TopicPartition, NextOffset)>, mode: CommitMode) {
        if heads.is_empty() || !self.lane.commits {
            return;
        }
        self.lane.metrics.commits.inc();
        match self.source.commit(&heads, mode) {
            Ok(()) => self.partitions.committed(&heads),
            Err(error) => {
                self.lane.metrics.error(ErrorKind::Commit);
                tracing::warn!(lane = %self.lane.shown.name(), error = format!("{error:#}"), "failed to commit; it is tried again");
            }
        }
    }

    /// Sees to it that no delete is missed.
    fn judge(&mut self) {
        let Some(fresh) = self.fresh.as_mut().filter(|_| self.halted.is_none()) else { return };
        let mut again = Vec::new();
        for (partition, assigned) in self.partitions.iter_mut() {
            if fresh.finished(partition, assigned.checkpoint.head()) {
                again.push(partition.clone());
            }
            assigned.unverified = fresh.unverified(partition);
        }
        fresh.order();
        for news in fresh.news() {
            let (lane, partition) = (self.lane.shown.name(), &news.partition);
            match news.unverified {
                Some(reason) => tracing::warn!(%lane, %partition, %reason, "partition is unverified"),
                None => tracing::info!(%lane, %partition, "partition is verified"),
            }
        }
        self.source.retake(&again);
    }

    fn show(&mut self) {
        let state = if self.halted.is_some() {
            LaneState::Halted
        } else if !self.was_assigned {
            LaneState::Starting
        } else {
            self.partitions.state()
        };
        self.lane.shown.refresh(state, &mut self.partitions, self.in_hand.bytes());
    }

    /// The orderly end: nothing more is fed; what is in hand is finished, or given up when the time is over; what is
    /// finished is committed.
    fn finish(mut self) {
        let end = Instant::now() + self.lane.grace;
        let drained_by = end.checked_sub(COMMIT_RESERVE.min(self.lane.grace / 2)).unwrap_or(end);
        while self.halted.is_none() && !self.partitions.all_idle() && Instant::now() < drained_by {
            if let Ok(receipt) = self.receipts.recv_timeout(POLL_WAIT) {
                self.receipt(receipt);
            }
            self.take_receipts();
            self.answer_revocations();
            // Heartbeats and rebalances go on while the sink finishes.
            if let Err(error) = self.source.poll(Demand::NONE, Duration::ZERO) {
                self.source_failed("source failed while stopping", &error);
            }
        }
        if !self.partitions.all_idle() {
            tracing::warn!(lane = %self.lane.shown.name(), "stopping with unfinished work; it is done again at the next start");
        }
        self.abandon.set();
        let heads = self.partitions.heads(None);
        self.commit(heads, CommitMode::Sync);
        self.workers.close();
        let left = |end: Instant| end.saturating_duration_since(Instant::now());
        if !self.sink.join(end) {
            tracing::warn!(lane = %self.lane.shown.name(), "the sink did not end in time");
        }
        self.source.close(left(end).min(CLOSE_LIMIT));
    }

    fn drain_timeout(&self) -> Duration {
        match &self.lane.route.source {
            config::Source::Kafka(kafka) => kafka.drain_timeout,
            config::Source::Ndjson(_) => Duration::ZERO,
        }
    }
}

/// Whether the sink is to hold what the whole topic says: one that begins at its end holds no snapshot that could be read
/// again.
fn reads_all(source: &config::Source) -> bool {
    matches!(source, config::Source::Kafka(settings) if settings.start == config::Start::Earliest)
}

fn open_source(lane: &Lane, sink_keeps_offsets: bool) -> anyhow::Result<Box<dyn Source>> {
    use crate::source::{kafka, ndjson};
    Ok(match &lane.route.source {
        config::Source::Kafka(settings) => {
            let membership = if sink_keeps_offsets { kafka::Membership::Local } else { kafka::Membership::Shared };
            let group = format!("{}.{}", settings.group, lane.sink.name);
            Box::new(kafka::KafkaSource::try_new(settings, &group, membership, lane.budget.fetch_queue)?)
        }
        config::Source::Ndjson(settings) => Box::new(ndjson::NdjsonSource::new(settings)),
    })
}
