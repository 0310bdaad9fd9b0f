//! What the group, or a lane of its own, takes and gives, and how the lane's answer reaches librdkafka.
//!
//! librdkafka pauses what we keep during a rebalance, throws its prefetched messages away, and goes on from its own idea
//! of our position. That idea is one too far where the last message of a batch call was an end of partition. So each
//! answer to a rebalance ends with a seek to the position that is known here.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use rdkafka::consumer::{BaseConsumer, Consumer, RebalanceProtocol};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::context::{self, Context, Rebalance};
use super::lookup::{self, Question};
use super::{KafkaSource, Membership};
use crate::record::{NextOffset, TopicPartition};
use crate::source::{CommitMode, Event, Source};

/// How long librdkafka's own thread may take to move kept partitions to their position.
const SEEK_LIMIT: Duration = Duration::from_secs(10);

impl KafkaSource {
    /// Of a local lane: the partitions that came and went, as a rebalance of our own making.
    pub(super) fn discover(&mut self, topics: &lookup::Topics) {
        let news: Vec<_> = topics.partitions.difference(&self.announced).cloned().collect();
        // A topic that is refused or has no leader for a moment is not gone.
        let is_gone = |partition: &&TopicPartition| topics.missing.iter().any(|topic| **topic == *partition.topic);
        let gone: Vec<_> = self.announced.iter().filter(is_gone).cloned().collect();
        if !gone.is_empty() {
            self.announced.retain(|partition| !gone.contains(partition));
            self.rebalances.push_back(Rebalance::Revoke { partitions: gone, lost: false });
        }
        if !news.is_empty() {
            self.announced.extend(news.iter().cloned());
            self.rebalances.push_back(Rebalance::Assign(news));
        }
    }

    /// Tells the lane of the next rebalance, when none is open.
    pub(super) fn next_rebalance(&mut self) -> anyhow::Result<()> {
        while self.open.is_none() {
            let Some(rebalance) = self.rebalances.pop_front() else { return Ok(()) };
            tracing::debug!(?rebalance, group = self.group, "rebalance");
            self.watch.group_refused(None);
            self.open = Some(rebalance.clone());
            match rebalance {
                Rebalance::Assign(partitions) if partitions.is_empty() => self.begin(&[])?,
                Rebalance::Revoke { partitions, .. } if partitions.is_empty() => self.give_up(&partitions)?,
                Rebalance::Assign(partitions) if self.survey.is_watching() => {
                    let question = Question::Survey { partitions, opens: true };
                    ensure!(self.lookup.ask(question), "too many questions to the broker are open");
                }
                Rebalance::Assign(partitions) => {
                    self.standby.given();
                    self.ready.push_back(Event::Assign(partitions));
                }
                Rebalance::Revoke { partitions, lost } => {
                    self.partitions.revoke(&partitions);
                    self.ready.push_back(Event::Revoke { partitions, lost });
                }
            }
        }
        Ok(())
    }

    pub(super) fn resolved(&mut self, ends: Vec<(TopicPartition, NextOffset)>) -> anyhow::Result<()> {
        let Some(mut starts) = self.resolving.take() else { return Ok(()) };
        for (partition, start) in &mut starts {
            let end = ends.iter().find(|(candidate, _)| candidate == partition);
            *start = start.or(end.map(|(_, end)| *end));
        }
        self.begin(&starts)?;
        // So that the start stays where it is, whatever happens before the first record is finished.
        if !ends.is_empty()
            && let Err(error) = self.commit(&ends, CommitMode::Async)
        {
            tracing::warn!(%error, group = self.group, "failed to commit the start");
        }
        Ok(())
    }

    /// Answers the open assignment.
    pub(super) fn begin(&mut self, starts: &[(TopicPartition, Option<NextOffset>)]) -> anyhow::Result<()> {
        let mut list = TopicPartitionList::with_capacity(starts.len());
        for (partition, start) in starts {
            self.queue.forward(&partition.topic, partition.partition)?;
            let mut element = list.add_partition(&partition.topic, partition.partition);
            match (start, self.membership) {
                (Some(start), _) => element.set_offset(Offset::Offset(start.0))?,
                (None, Membership::Local) => element.set_offset(Offset::Beginning)?,
                // Unset: librdkafka asks for the group's offset, as often as it takes.
                (None, Membership::Shared) => {}
            }
        }
        if self.is_eager() {
            self.partitions.clear();
            self.consumer.assign(&list)?;
        } else {
            self.consumer.incremental_assign(&list)?;
        }
        if self.membership == Membership::Shared {
            self.go_on_from_here()?;
        }
        for (partition, start) in starts {
            self.partitions.insert(partition.clone(), *start);
        }
        if !starts.is_empty() {
            let partitions = starts.iter().map(|(partition, _)| partition.clone()).collect();
            ensure!(self.lookup.ask(Question::Ends(partitions)), "too many questions to the broker are open");
            // There may be more by now, which others got.
            self.lookup.ask(Question::Topics);
        }
        self.open = None;
        Ok(())
    }

    /// Answers the open revocation.
    pub(super) fn give_up(&mut self, partitions: &[TopicPartition]) -> anyhow::Result<()> {
        let list = list_of(partitions);
        match self.membership {
            Membership::Shared => context::give_up(&self.consumer, &list)?,
            Membership::Local => self.consumer.incremental_unassign(&list)?,
        }
        self.partitions.remove(partitions);
        self.open = None;
        self.go_on_from_here()
    }

    fn is_eager(&self) -> bool {
        self.membership == Membership::Shared
            && !matches!(self.consumer.rebalance_protocol(), RebalanceProtocol::Cooperative)
    }

    /// Moves every partition that we keep to the position that is known here. Messages that were taken from librdkafka and
    /// not handed over come again.
    fn go_on_from_here(&mut self) -> anyhow::Result<()> {
        while let Some(message) = self.queue.peek() {
            if let Some(slot) = self.partitions.find(message.topic(), message.partition()) {
                self.partitions.get_mut(slot).put_back(message.offset());
            }
            self.queue.advance();
        }
        let mut list = TopicPartitionList::new();
        for (partition, next) in self.partitions.positions() {
            list.add_partition_offset(&partition.topic, partition.partition, Offset::Offset(next))?;
        }
        if list.count() == 0 {
            return Ok(());
        }
        let list = self.consumer.seek_partitions(list, SEEK_LIMIT)?;
        for element in list.elements() {
            element.error().with_context(|| {
                format!("failed to go on reading `{}[{}]` after a rebalance", element.topic(), element.partition())
            })?;
        }
        Ok(())
    }
}

/// Closing waits for the answer to a rebalance that is open.
pub(super) fn answer_at_the_end(consumer: &BaseConsumer<Context>, rebalance: &Rebalance) {
    let answered = match rebalance {
        Rebalance::Revoke { partitions, .. } => context::give_up(consumer, &list_of(partitions)),
        Rebalance::Assign(partitions) => match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_assign(&list_of(partitions)),
            _ => consumer.assign(&list_of(partitions)),
        },
    };
    if let Err(error) = answered {
        tracing::debug!(%error, "failed to answer a rebalance while closing");
    }
}

fn list_of(partitions: &[TopicPartition]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for partition in partitions {
        list.add_partition(&partition.topic, partition.partition);
    }
    list
}
