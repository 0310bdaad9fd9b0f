//! What stands in the logs of a lane of its own: told before an assignment, so that the lane can decide where it begins,
//! and then again and again, so that it knows how late it is and that a topic was re-created.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::context::Rebalance;
use super::lookup::Question;
use super::partitions::WentBack;
use super::{KafkaSource, Membership};
use crate::record::TopicPartition;
use crate::source::{Event, PartitionLog};

/// Between two looks, for topics that keep tombstones for long: how late a re-created topic is noticed.
const LONGEST_INTERVAL: Duration = Duration::from_secs(5);

/// The same for topics that keep them for a moment only.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// Looks within the shortest retention.
const LOOKS: u32 = 10;

#[derive(Debug, Default)]
pub struct Survey {
    watching: bool,
    /// When to look again; `None` = not before what was asked is answered.
    due: Option<Instant>,
    /// The topics' ids as last told.
    ids: BTreeMap<String, String>,
}

impl Survey {
    pub fn watch(&mut self) {
        self.watching = true;
    }

    pub fn is_watching(&self) -> bool {
        self.watching
    }

    /// Takes an answer; returns the topics that have another id than before.
    fn answered(&mut self, logs: &[PartitionLog], now: Instant) -> Vec<String> {
        let shortest = logs.iter().map(|log| log.retention / LOOKS).min().unwrap_or(LONGEST_INTERVAL);
        self.due = Some(now + shortest.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL));
        let mut changed = Vec::new();
        for log in logs {
            let Some(id) = &log.topic_id else { continue };
            let before = self.ids.insert(log.partition.topic.to_string(), id.clone());
            if before.is_some_and(|before| before != *id) {
                changed.push(log.partition.topic.to_string());
            }
        }
        changed
    }
}

impl KafkaSource {
    pub(super) fn survey_when_due(&mut self) {
        if self.survey.due.is_none_or(|due| due > Instant::now()) || self.partitions.is_empty() {
            return;
        }
        let partitions = self.announced.iter().cloned().collect();
        if self.lookup.ask(Question::Survey { partitions, opens: false }) {
            self.survey.due = None;
        }
    }

    pub(super) fn surveyed(&mut self, mut logs: Vec<PartitionLog>, opens: bool) {
        let changed = self.survey.answered(&logs, Instant::now());
        if opens {
            if let Some(Rebalance::Assign(partitions)) = &self.open {
                let partitions = partitions.clone();
                self.ready.extend([Event::Logs(logs), Event::Assign(partitions)]);
            }
            return;
        }
        let again: Vec<_> = self
            .announced
            .iter()
            .filter(|partition| changed.iter().any(|topic| **topic == *partition.topic))
            .cloned()
            .collect();
        self.take_again(&again);
        // What is told of the new log says nothing of how far the old one was read.
        logs.retain(|log| !again.contains(&log.partition));
        if !logs.is_empty() {
            self.ready.push_back(Event::Logs(logs));
        }
    }

    /// Nothing more of these partitions is handed over until the lane has answered for them again.
    pub(super) fn take_again(&mut self, partitions: &[TopicPartition]) {
        let is_open = |partition: &TopicPartition| {
            self.partitions
                .find(&partition.topic, partition.partition)
                .is_some_and(|slot| self.partitions.get(slot).is_open())
        };
        let again: Vec<_> = partitions.iter().filter(|partition| is_open(partition)).cloned().collect();
        if again.is_empty() || !self.survey.watching || self.membership != Membership::Local {
            return;
        }
        self.partitions.revoke(&again);
        self.rebalances.push_back(Rebalance::Revoke { partitions: again.clone(), lost: false });
        self.rebalances.push_back(Rebalance::Assign(again));
    }

    /// The log begins anew below what was handed over. A lane that watches decides again where it begins; for any other
    /// there is no right answer.
    pub(super) fn went_back(&mut self, error: WentBack) -> anyhow::Result<()> {
        if !self.survey.watching {
            return Err(error.into());
        }
        tracing::warn!(%error, group = self.group, "the partition is read anew");
        self.take_again(&[error.partition]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::NextOffset;

    fn log(id: Option<&str>, retention: u64) -> PartitionLog {
        PartitionLog {
            partition: TopicPartition::new("t", 0),
            topic_id: id.map(str::to_owned),
            low: 0,
            end: NextOffset(0),
            asked: Instant::now(),
            retention: Duration::from_secs(retention),
        }
    }

    #[test]
    fn a_topic_with_another_id_is_noticed_and_one_without_says_nothing() {
        let mut survey = Survey::default();
        let mut check = |id, expected: &[&str]| assert_eq!(survey.answered(&[log(id, 1)], Instant::now()), expected);
        check(None, &[]);
        check(Some("a"), &[]);
        check(None, &[]);
        check(Some("a"), &[]);
        check(Some("b"), &["t"]);
    }

    #[test]
    fn the_logs_are_looked_at_several_times_within_the_retention_and_not_without_a_pause() {
        let check = |retention, expected| {
            let (mut survey, now) = (Survey::default(), Instant::now());
            survey.answered(&[log(None, retention)], now);
            assert_eq!(survey.due, Some(now + Duration::from_secs(expected)));
        };
        check(0, 1);
        check(30, 3);
        check(86_400, 5);
    }
}
