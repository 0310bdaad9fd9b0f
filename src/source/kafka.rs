//! Kafka, driven by the lane's poll thread.
//!
//! | what | how |
//! |---|---|
//! | records | the partitions' queues are forwarded to one data queue, drained in batches ([`queue`]) |
//! | back-pressure | not draining it: librdkafka stops fetching when it is full; events are polled all the same |
//! | events | librdkafka's callbacks fill an inbox ([`context`]), which [`KafkaSource::poll`] empties |
//! | rebalance | told to the lane and answered from the loop, by [`KafkaSource::assign`] and [`KafkaSource::release`] ([`rebalance`]) |
//! | position | end-of-partition messages, which come in order behind the records and past markers, aborted and compacted ones |
//! | ends, topics | asked for on a thread of its own ([`lookup`]); then from statistics, each second |

mod context;
mod health;
mod lookup;
mod partitions;
mod queue;
mod rebalance;
mod settings;
mod standby;
mod statistics;
mod survey;
mod topic_id;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use crossbeam_channel::bounded;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use self::context::{Context, Rebalance};
use self::health::Watch;
use self::lookup::{Answer, Lookup, Question};
use self::partitions::Partitions;
use self::queue::DataQueue;
pub use self::settings::{Membership, RESERVED, validate};
use self::standby::Standby;
use self::survey::Survey;
use super::{CommitMode, Demand, Event, Progress, Source};
use crate::config::{Kafka, Start};
use crate::record::{Batch, NextOffset, TopicPartition};

/// Events taken from librdkafka per poll, so that records get their turn.
const EVENTS_PER_POLL: usize = 32;

/// How long a commit before a hand-over, or at the end, may take.
const SYNC_COMMIT_LIMIT: Duration = Duration::from_secs(5);

/// Commits on their way; with one a second, that many seconds without an answer.
const MAX_OPEN_COMMITS: u64 = 4;

/// Between two attempts at a group that the broker refuses.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);

/// Between two looks while waiting for librdkafka.
const SERVE_INTERVAL: Duration = Duration::from_millis(20);

pub struct KafkaSource {
    /// Before the consumer: it holds messages and a queue of it.
    queue: DataQueue,
    lookup: Lookup,
    consumer: Arc<BaseConsumer<Context>>,
    membership: Membership,
    start: Start,
    group: String,
    partitions: Partitions,
    /// Told to the lane and not answered yet.
    open: Option<Rebalance>,
    /// Those that come after.
    rebalances: VecDeque<Rebalance>,
    /// The lane's answer to an assignment, while the start of `latest` is looked up.
    resolving: Option<Vec<(TopicPartition, Option<NextOffset>)>>,
    /// Of [`Membership::Local`]: the partitions that the lane was told of.
    announced: BTreeSet<TopicPartition>,
    /// No assignment was answered yet.
    fresh: bool,
    ready: VecDeque<Event>,
    watch: Watch,
    standby: Standby,
    /// Of [`Membership::Shared`].
    topics: Vec<String>,
    /// The broker refused the group: when to ask again. librdkafka would ask without a pause.
    join_again: Option<Instant>,
    commits: u64,
    survey: Survey,
}

impl KafkaSource {
    /// Makes the consumer of one lane; it begins to connect. `budget` is in bytes.
    ///
    /// # Errors
    /// When librdkafka refuses the properties, or no thread can be had.
    pub fn try_new(settings: &Kafka, group: &str, membership: Membership, budget: usize) -> anyhow::Result<Self> {
        let config = settings::consumer(&settings.properties, group, budget);
        let context = Context::new(group, settings::is_read_committed(&settings.properties));
        let consumer: BaseConsumer<Context> = config
            .create_with_context(context)
            .with_context(|| format!("failed to make a consumer for cluster `{}`", settings.cluster))?;
        let consumer = Arc::new(consumer);
        if membership == Membership::Shared {
            subscribe(&consumer, &settings.topics)?;
        }
        let lookup = lookup::Settings {
            topics: settings.topics.clone(),
            group: group.to_owned(),
            inspect: settings.inspect_topics.then(|| settings::admin(&settings.properties)),
            discover: membership == Membership::Local,
        };
        Ok(Self {
            queue: DataQueue::new(consumer.clone()),
            lookup: Lookup::start(consumer.clone(), lookup).context("failed to start a thread")?,
            consumer,
            membership,
            start: settings.start,
            group: group.to_owned(),
            partitions: Partitions::default(),
            open: None,
            rebalances: VecDeque::new(),
            resolving: None,
            announced: BTreeSet::new(),
            fresh: true,
            ready: VecDeque::new(),
            watch: Watch::default(),
            standby: Standby::new(settings.drain_timeout),
            topics: settings.topics.clone(),
            join_again: None,
            commits: 0,
            survey: Survey::default(),
        })
    }

    /// Lets librdkafka run its callbacks, waiting up to `wait` for the first.
    fn serve(&mut self, wait: Duration) -> anyhow::Result<()> {
        let mut wait = wait;
        for _ in 0..EVENTS_PER_POLL {
            let before = self.consumer.context().inbox().callbacks;
            match self.consumer.poll(wait) {
                Some(Ok(_)) => bail!("a record came beside the data queue"),
                Some(Err(error)) => self.consumer_error(error)?,
                None if self.consumer.context().inbox().callbacks == before => break,
                None => {}
            }
            wait = Duration::ZERO;
        }
        Ok(())
    }

    /// An error that concerns no partition of ours.
    fn consumer_error(&mut self, error: KafkaError) -> anyhow::Result<()> {
        if let KafkaError::MessageConsumptionFatal(_) = error {
            return Err(error).context("the consumer cannot go on");
        }
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                self.lookup.ask(Question::Topics);
            }
            Some(RDKafkaErrorCode::PollExceeded) => {
                tracing::warn!(group = self.group, "left the group: nothing was polled for `max.poll.interval.ms`");
            }
            Some(
                code @ (RDKafkaErrorCode::GroupAuthorizationFailed
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::InvalidGroupId
                | RDKafkaErrorCode::InconsistentGroupProtocol
                | RDKafkaErrorCode::UnsupportedAssignor
                | RDKafkaErrorCode::InvalidSessionTimeout
                | RDKafkaErrorCode::GroupMaxSizeReached),
            ) => {
                self.watch.group_refused(Some(format!("the broker refuses group `{}`: {code}", self.group)));
                if self.membership == Membership::Shared && self.join_again.is_none() {
                    tracing::warn!(%error, group = self.group, pause = ?REFUSED_PAUSE, "the broker refuses the group");
                    self.consumer.unsubscribe();
                    self.join_again = Some(Instant::now() + REFUSED_PAUSE);
                }
            }
            // Of the connection: the error callback is told too, with the reason.
            _ => tracing::debug!(%error, group = self.group, "kafka consumer error"),
        }
        Ok(())
    }

    /// Takes what the callbacks left in the inbox.
    fn take_inbox(&mut self) -> anyhow::Result<()> {
        let (rebalances, statistics, errors) = {
            let mut inbox = self.consumer.context().inbox();
            let inbox = &mut *inbox;
            (std::mem::take(&mut inbox.rebalances), inbox.statistics.take(), std::mem::take(&mut inbox.errors))
        };
        self.rebalances.extend(rebalances);
        for (code, reason) in errors {
            match code {
                RDKafkaErrorCode::Fatal => bail!("the consumer cannot go on: {reason}"),
                RDKafkaErrorCode::AllBrokersDown => self.watch.unreachable(reason),
                _ => self.watch.failed(&reason),
            }
            self.lookup.ask(Question::Topics);
        }
        let Some(told) = statistics else { return Ok(()) };
        if self.standby.heard(told.without_share, Instant::now()) {
            self.ready.push_back(Event::Standby);
        }
        let progress: Vec<Progress> = told
            .ends
            .into_iter()
            .filter_map(|ends| {
                let slot = self.partitions.find(&ends.topic, ends.partition)?;
                self.partitions.get(slot).statistics(ends.low, ends.end)
            })
            .collect();
        if !progress.is_empty() {
            self.ready.push_back(Event::Progress(progress));
        }
        Ok(())
    }

    fn take_answers(&mut self) -> anyhow::Result<()> {
        while let Ok(answer) = self.lookup.answers.try_recv() {
            match answer {
                Answer::Ends { partition, low, end } => {
                    if let Some(slot) = self.partitions.find(&partition.topic, partition.partition) {
                        let progress = self.partitions.get_mut(slot).ends(low, end);
                        self.ready.push_back(Event::Progress(vec![progress]));
                    }
                }
                Answer::Latest(ends) => self.resolved(ends)?,
                Answer::Survey { logs, opens } => self.surveyed(logs, opens),
                Answer::Topics(topics) => {
                    self.watch.answered(&topics.missing, topics.refused.clone());
                    self.ready.push_back(Event::Partitions(topics.partitions.len()));
                    if self.membership == Membership::Local {
                        self.discover(&topics);
                    }
                }
                Answer::Unreachable(reason) => self.watch.unreachable(reason),
                Answer::Warning(warning) => self.ready.push_back(Event::Warning(warning)),
            }
        }
        Ok(())
    }

    /// Takes records until the demand is met or there are none, waiting up to `wait` for the first.
    fn drain(&mut self, demand: Demand, wait: Duration) -> anyhow::Result<Vec<Batch>> {
        let mut batches: Vec<(usize, Batch)> = Vec::new();
        let mut progress = Vec::new();
        let (mut records, mut bytes) = (0, 0);
        let mut place = None;
        self.queue.fill(demand.records, Duration::ZERO);
        if self.queue.peek().is_none() && !wait.is_zero() {
            self.queue.fill(1, wait);
        }
        while records < demand.records && bytes < demand.bytes {
            let Some(message) = self.queue.peek() else {
                // What came while we waited for the first is rarely alone.
                self.queue.fill(demand.records - records, Duration::ZERO);
                if self.queue.peek().is_none() {
                    break;
                }
                place = None;
                continue;
            };
            let slot = match place {
                Some((known, slot)) if known == message.place() => slot,
                _ => {
                    let slot = self.partitions.find(message.topic(), message.partition());
                    place = Some((message.place(), slot));
                    slot
                }
            };
            let Some(slot) = slot.filter(|slot| self.partitions.get(*slot).is_open()) else {
                self.queue.advance();
                continue;
            };
            match message.error() {
                None => {
                    let state = self.partitions.get_mut(slot);
                    if let Err(error) = state.hand_over(message.offset()) {
                        self.went_back(error)?;
                        self.queue.advance();
                        continue;
                    }
                    state.error = None;
                    let index = batches.iter().position(|(candidate, _)| *candidate == slot).unwrap_or_else(|| {
                        let (records, bytes) = self.queue.run(demand.records - records);
                        let partition = state.partition.clone();
                        batches.push((slot, Batch::with_capacity(partition, records, bytes.min(demand.bytes))));
                        batches.len() - 1
                    });
                    bytes += message.push_to(&mut batches[index].1);
                    records += 1;
                }
                Some(RDKafkaErrorCode::PartitionEOF) => match self.partitions.get_mut(slot).end(message.offset()) {
                    Ok(end) => progress.push((slot, end)),
                    Err(error) => self.went_back(error)?,
                },
                Some(code) => {
                    let (text, partition) = (message.error_text(), &self.partitions.get(slot).partition);
                    tracing::warn!(?code, %partition, text, group = self.group, "kafka partition error");
                    let error = format!("{partition}: {text}");
                    self.partitions.get_mut(slot).error = Some(error);
                    self.lookup.ask(Question::Topics);
                }
            }
            self.queue.advance();
        }
        if !progress.is_empty() {
            // It is told behind the records of this drain, some of which may have come after the end that was met.
            let progress = progress
                .into_iter()
                .map(|(slot, known)| Progress { position: self.partitions.get(slot).position(), ..known });
            self.ready.push_back(Event::Progress(progress.collect()));
        }
        Ok(batches.into_iter().map(|(_, batch)| batch).collect())
    }

    fn news(&mut self) -> anyhow::Result<Option<Event>> {
        self.take_inbox()?;
        self.take_answers()?;
        self.next_rebalance()?;
        self.survey_when_due();
        if let Some(health) = self.watch.news(self.partitions.error()) {
            self.ready.push_back(Event::Health(health));
        }
        Ok(self.ready.pop_front())
    }
}

fn subscribe(consumer: &BaseConsumer<Context>, topics: &[String]) -> anyhow::Result<()> {
    let topics: Vec<_> = topics.iter().map(String::as_str).collect();
    consumer.subscribe(&topics).context("failed to subscribe")
}

impl Source for KafkaSource {
    fn poll(&mut self, demand: Demand, wait: Duration) -> anyhow::Result<Event> {
        if let Some(event) = self.ready.pop_front() {
            return Ok(event);
        }
        if self.join_again.is_some_and(|at| Instant::now() >= at) {
            self.join_again = None;
            subscribe(&self.consumer, &self.topics)?;
        }
        self.serve(Duration::ZERO)?;
        if let Some(event) = self.news()? {
            return Ok(event);
        }
        if demand.is_none() || self.partitions.is_empty() {
            self.serve(wait)?;
        } else {
            let batches = self.drain(demand, wait)?;
            if !batches.is_empty() {
                return Ok(Event::Records(batches));
            }
        }
        Ok(self.news()?.unwrap_or(Event::Idle))
    }

    fn assign(&mut self, starts: &[(TopicPartition, Option<NextOffset>)]) -> anyhow::Result<()> {
        let Some(Rebalance::Assign(partitions)) = &self.open else { bail!("no assignment waits for an answer") };
        ensure!(
            partitions.len() == starts.len() && starts.iter().all(|(partition, _)| partitions.contains(partition)),
            "an assignment is answered as a whole"
        );
        let unknown: Vec<_> =
            starts.iter().filter(|(_, start)| start.is_none()).map(|(partition, _)| partition.clone()).collect();
        let is_new = match self.membership {
            Membership::Shared => !unknown.is_empty(),
            Membership::Local => unknown.len() == starts.len(),
        };
        if std::mem::take(&mut self.fresh) && self.start == Start::Latest && is_new {
            let ask_group = self.membership == Membership::Shared;
            ensure!(
                self.lookup.ask(Question::Latest { partitions: unknown, ask_group }),
                "too many questions to the broker are open"
            );
            self.resolving = Some(starts.to_vec());
            return Ok(());
        }
        self.begin(starts)
    }

    fn release(&mut self, partitions: &[TopicPartition]) -> anyhow::Result<()> {
        let Some(Rebalance::Revoke { partitions: open, .. }) = self.open.clone() else {
            bail!("no revocation waits for an answer");
        };
        ensure!(
            open.len() == partitions.len() && partitions.iter().all(|partition| open.contains(partition)),
            "a revocation is answered as a whole"
        );
        self.give_up(&open)
    }

    fn watch_logs(&mut self) {
        self.survey.watch();
    }

    fn retake(&mut self, partitions: &[TopicPartition]) {
        self.take_again(partitions);
    }

    fn commit(&mut self, offsets: &[(TopicPartition, NextOffset)], mode: CommitMode) -> anyhow::Result<()> {
        if offsets.is_empty() {
            return Ok(());
        }
        let context = self.consumer.context().clone();
        let (answered, failed) = {
            let mut inbox = context.inbox();
            (inbox.commits_answered, inbox.commit_error.take())
        };
        if mode == CommitMode::Async && self.commits - answered >= MAX_OPEN_COMMITS {
            bail!("{MAX_OPEN_COMMITS} commits are not answered yet");
        }
        let mut list = TopicPartitionList::with_capacity(offsets.len());
        for (partition, next) in offsets {
            list.add_partition_offset(&partition.topic, partition.partition, Offset::Offset(next.0))?;
        }
        queue::commit(&self.consumer, &list)?;
        self.commits += 1;
        if mode == CommitMode::Async {
            return failed.map_or(Ok(()), |error| bail!("the commit before failed: {error}"));
        }
        let deadline = Instant::now() + SYNC_COMMIT_LIMIT;
        while context.inbox().commits_answered < self.commits {
            ensure!(Instant::now() < deadline, "the commit was not answered within {SYNC_COMMIT_LIMIT:?}");
            self.serve(SERVE_INTERVAL)?;
        }
        context.inbox().commit_error.take().map_or(Ok(()), |error| bail!(error))
    }

    fn close(self: Box<Self>, grace: Duration) {
        let Self { queue, lookup, consumer, open, rebalances, membership, group, .. } = *self;
        drop((queue, lookup));
        consumer.context().close();
        let (done, closed) = bounded(1);
        // librdkafka may hang here, on a topic that was deleted or a broker that is gone. Then the thread is left behind.
        let spawned = thread::Builder::new().name("kafka-close".to_owned()).spawn(move || {
            for rebalance in open.into_iter().chain(rebalances).filter(|_| membership == Membership::Shared) {
                rebalance::answer_at_the_end(&consumer, &rebalance);
            }
            if consumer.close_queue().is_ok() {
                while !consumer.closed() {
                    drop(consumer.poll(SERVE_INTERVAL));
                }
            }
            drop(consumer);
            done.send(()).ok()
        });
        if spawned.is_err() || closed.recv_timeout(grace).is_err() {
            tracing::warn!(group, ?grace, "the consumer did not close in time");
        }
    }
}
