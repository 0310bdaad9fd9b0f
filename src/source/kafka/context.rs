//! librdkafka's callbacks, turned into values that the poll thread takes from an inbox.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaRespErr;

use super::statistics::{self, Told};
use crate::record::TopicPartition;

/// What came and was not looked at yet. All of it is bounded: librdkafka has one rebalance open at a time, only the newest
/// statistics are kept, and errors beyond [`MAX_ERRORS`] are logged alone.
#[derive(Debug, Default)]
pub struct Inbox {
    pub rebalances: VecDeque<Rebalance>,
    pub statistics: Option<Told>,
    pub errors: VecDeque<(RDKafkaErrorCode, String)>,
    /// Commits that were answered, since the start.
    pub commits_answered: u64,
    /// Why the last commit failed, if it did.
    pub commit_error: Option<String>,
    /// Callbacks since the start: how [`BaseConsumer::poll`] tells that it found something.
    pub callbacks: u64,
    /// From now on a rebalance is answered where it comes.
    closing: bool,
}

const MAX_ERRORS: usize = 16;

/// A rebalance that librdkafka waits to see answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rebalance {
    Assign(Vec<TopicPartition>),
    Revoke { partitions: Vec<TopicPartition>, lost: bool },
}

#[derive(Debug)]
pub struct Context {
    inbox: Mutex<Inbox>,
    group: String,
    read_committed: bool,
}

impl Context {
    pub fn new(group: &str, read_committed: bool) -> Self {
        Self { inbox: Mutex::default(), group: group.to_owned(), read_committed }
    }

    pub fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called before the consumer is closed, when nobody polls for rebalances any more.
    pub fn close(&self) {
        self.inbox().closing = true;
    }

    fn callback(&self) -> MutexGuard<'_, Inbox> {
        let mut inbox = self.inbox();
        inbox.callbacks += 1;
        inbox
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message, &self.group);
    }

    fn stats_raw(&self, json: &[u8]) {
        match statistics::parse(json, self.read_committed) {
            Ok(told) => self.callback().statistics = Some(told),
            Err(error) => {
                drop(self.callback());
                tracing::error!(%error, group = self.group, "librdkafka's statistics are not understood");
            }
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        // Repeated many times a second while no broker answers; the lane tells it once, in words.
        tracing::debug!(?code, reason, group = self.group, "kafka client error");
        let mut inbox = self.callback();
        if inbox.errors.len() < MAX_ERRORS {
            inbox.errors.push_back((code, reason.to_owned()));
        }
    }
}

impl ConsumerContext for Context {
    /// Notes the rebalance and leaves the answer to the poll thread: librdkafka waits for it, whatever time it takes below
    /// `max.poll.interval.ms`.
    fn rebalance(&self, consumer: &BaseConsumer<Self>, code: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let mut inbox = self.callback();
        if inbox.closing {
            drop(inbox);
            if let Err(error) = give_up(consumer, list) {
                tracing::warn!(%error, group = self.group, "failed to give partitions back while closing");
            }
            return;
        }
        let partitions = partitions(list);
        inbox.rebalances.push_back(match code {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => Rebalance::Assign(partitions),
            _ => Rebalance::Revoke { partitions, lost: consumer.assignment_lost() },
        });
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        let mut inbox = self.callback();
        inbox.commits_answered += 1;
        inbox.commit_error = result.err().map(|error| error.to_string());
        if let Some(error) = &inbox.commit_error {
            tracing::warn!(error, group = self.group, "offset commit failed");
        }
    }
}

/// Gives up `list` by the rules of the group's protocol.
pub fn give_up(consumer: &BaseConsumer<Context>, list: &TopicPartitionList) -> KafkaResult<()> {
    match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_unassign(list),
        _ => consumer.unassign(),
    }
}

pub fn partitions(list: &TopicPartitionList) -> Vec<TopicPartition> {
    list.elements().iter().map(|element| TopicPartition::new(element.topic(), element.partition())).collect()
}

/// Passes a line of librdkafka's log on. It masks secrets itself where it prints its configuration.
pub fn log(level: RDKafkaLogLevel, facility: &str, message: &str, group: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
            tracing::error!(target: "librdkafka", facility, group, "{message}");
        }
        RDKafkaLogLevel::Warning => tracing::warn!(target: "librdkafka", facility, group, "{message}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
            tracing::info!(target: "librdkafka", facility, group, "{message}");
        }
        RDKafkaLogLevel::Debug => tracing::debug!(target: "librdkafka", facility, group, "{message}"),
    }
}
