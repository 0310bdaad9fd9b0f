//! The partitions that a lane has now, and how far each is.

use std::collections::BTreeMap;

use crate::checkpoint::{Checkpoint, Ticket};
use crate::delivery::Span;
use crate::freshness::Reason;
use crate::gateway::status::{LaneState, PartitionStatus};
use crate::record::{NextOffset, TopicPartition};
use crate::source::Progress;

#[derive(Debug, Default)]
pub struct Partitions {
    assigned: BTreeMap<TopicPartition, Assigned>,
    next_id: u64,
}

/// One assigned partition.
#[derive(Debug)]
pub struct Assigned {
    /// Of this assignment; never used twice in the lane.
    pub id: u64,
    pub worker: usize,
    pub checkpoint: Checkpoint,
    /// Where reading began: at the offset that the sink gave, else at the first record or position that was told.
    start: Option<i64>,
    /// The first offset that the log held when it was told first.
    low: Option<i64>,
    /// The end of the snapshot.
    target: Option<NextOffset>,
    end: Option<NextOffset>,
    committed: Option<NextOffset>,
    live: bool,
    /// Why its rows are not known to be right.
    pub unverified: Option<Reason>,
}

impl Assigned {
    fn new(id: u64, worker: usize, start: Option<NextOffset>) -> Self {
        Self {
            id,
            worker,
            checkpoint: Checkpoint::new(start),
            start: start.map(|start| start.0),
            low: None,
            target: None,
            end: None,
            committed: None,
            live: false,
            unverified: None,
        }
    }

    /// The first end told after the assignment is the snapshot's: a topic that grows while it is read has a fixed target.
    pub fn learn(&mut self, progress: &Progress) {
        self.end = progress.end.or(self.end);
        self.target = self.target.or(progress.end);
        self.low = self.low.or(progress.low);
        if let Some(position) = progress.position {
            self.start = self.start.or(Some(position.0));
            self.checkpoint.fetched(position);
        }
    }

    /// Records from `first` up to `next` were received.
    pub fn received(&mut self, first: i64, next: NextOffset) -> Ticket {
        self.start = self.start.or(Some(first));
        self.checkpoint.received(first, next)
    }

    /// Live once everything below the target is finished, and for good.
    fn is_live(&mut self) -> bool {
        let passed = self.target.zip(self.checkpoint.head()).is_some_and(|(target, head)| head >= target);
        self.live |= passed;
        self.live
    }

    fn status(&mut self, partition: &TopicPartition) -> PartitionStatus {
        let live = self.is_live();
        let finished = self.checkpoint.head().map(|head| head.0);
        let end = self.end.map(|end| end.0);
        let begun = finished.or(self.start).or(self.low);
        PartitionStatus {
            topic: partition.topic.to_string(),
            partition: partition.partition,
            start: self.start.or(self.low),
            target: self.target.map(|target| target.0),
            finished,
            end,
            // The end is heard of once a second, so the head may be ahead of it.
            lag: end.zip(begun).map(|(end, begun)| (end - begun).max(0)),
            live,
            unverified: self.unverified.map(|reason| reason.to_string()),
        }
    }
}

impl Partitions {
    /// Takes a partition in and gives it to the worker with the fewest; returns the assignment's number.
    pub fn insert(&mut self, partition: TopicPartition, start: Option<NextOffset>, workers: usize) -> u64 {
        let load = |worker| self.assigned.values().filter(|assigned| assigned.worker == worker).count();
        let worker = (0..workers).min_by_key(|&worker| load(worker)).unwrap_or(0);
        self.next_id += 1;
        let id = self.next_id;
        self.assigned.insert(partition, Assigned::new(id, worker, start));
        id
    }

    pub fn remove(&mut self, partition: &TopicPartition) -> Option<Assigned> {
        self.assigned.remove(partition)
    }

    pub fn get_mut(&mut self, partition: &TopicPartition) -> Option<&mut Assigned> {
        self.assigned.get_mut(partition)
    }

    pub fn get(&self, partition: &TopicPartition) -> Option<&Assigned> {
        self.assigned.get(partition)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&TopicPartition, &mut Assigned)> {
        self.assigned.iter_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&TopicPartition, &Assigned)> {
        self.assigned.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.assigned.is_empty()
    }

    pub fn len(&self) -> usize {
        self.assigned.len()
    }

    /// An acknowledgement of an assignment that is over is ignored.
    pub fn finished(&mut self, span: Span) {
        let Some(assigned) = self.assigned.values_mut().find(|assigned| assigned.id == span.assignment) else { return };
        if span.whole {
            assigned.checkpoint.finished(span.ticket);
        } else {
            assigned.checkpoint.finished_up_to(span.ticket, span.next);
        }
    }

    pub fn all_idle(&self) -> bool {
        self.assigned.values().all(|assigned| assigned.checkpoint.is_idle())
    }

    pub fn are_idle(&self, partitions: &[TopicPartition]) -> bool {
        partitions
            .iter()
            .all(|partition| self.assigned.get(partition).is_none_or(|assigned| assigned.checkpoint.is_idle()))
    }

    /// The heads of `only` these partitions, or of all.
    pub fn heads(&self, only: Option<&[TopicPartition]>) -> Vec<(TopicPartition, NextOffset)> {
        self.assigned
            .iter()
            .filter(|(partition, _)| only.is_none_or(|only| only.contains(partition)))
            .filter_map(|(partition, assigned)| Some((partition.clone(), assigned.checkpoint.head()?)))
            .collect()
    }

    /// The heads that moved since they were committed.
    pub fn heads_to_commit(&self) -> Vec<(TopicPartition, NextOffset)> {
        let mut heads = self.heads(None);
        heads.retain(|(partition, head)| {
            self.assigned.get(partition).is_some_and(|assigned| Some(*head) > assigned.committed)
        });
        heads
    }

    pub fn committed(&mut self, heads: &[(TopicPartition, NextOffset)]) {
        for (partition, head) in heads {
            if let Some(assigned) = self.assigned.get_mut(partition) {
                assigned.committed = Some(*head);
            }
        }
    }

    /// Makes every head due again.
    pub fn forget_commits(&mut self) {
        self.assigned.values_mut().for_each(|assigned| assigned.committed = None);
    }

    /// Live when every partition is, which is so of none: an instance that was given nothing has nothing to wait for.
    pub fn state(&mut self) -> LaneState {
        let known = self.assigned.values().all(|assigned| assigned.target.is_some());
        let live = self.assigned.values_mut().map(Assigned::is_live).fold(true, |all, live| all & live);
        match (known, live) {
            (false, _) => LaneState::Starting,
            (true, false) => LaneState::Bootstrapping,
            (true, true) => LaneState::Live,
        }
    }

    pub fn status(&mut self) -> Vec<PartitionStatus> {
        self.assigned.iter_mut().map(|(partition, assigned)| assigned.status(partition)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(partition: &TopicPartition, end: i64, position: Option<i64>) -> Progress {
        Progress {
            partition: partition.clone(),
            low: Some(0),
            end: Some(NextOffset(end)),
            position: position.map(NextOffset),
        }
    }

    #[test]
    fn the_first_end_is_the_target_and_live_is_for_good() {
        let tp = TopicPartition::new("t", 0);
        let mut partitions = Partitions::default();
        partitions.insert(tp.clone(), None, 1);
        assert_eq!(partitions.state(), LaneState::Starting);
        partitions.get_mut(&tp).unwrap().learn(&progress(&tp, 10, None));
        assert_eq!(partitions.state(), LaneState::Bootstrapping);
        partitions.get_mut(&tp).unwrap().learn(&progress(&tp, 50, Some(10)));
        assert_eq!(partitions.state(), LaneState::Live);
        let status = &partitions.status()[0];
        assert_eq!((status.target, status.end, status.lag), (Some(10), Some(50), Some(40)));
        partitions.get_mut(&tp).unwrap().learn(&progress(&tp, 90, None));
        assert_eq!(partitions.state(), LaneState::Live);
    }

    #[test]
    fn reading_began_at_the_first_record_whatever_is_told_of_the_log_and_when() {
        let tp = TopicPartition::new("t", 0);
        let mut partitions = Partitions::default();
        partitions.insert(tp.clone(), None, 1);
        let assigned = partitions.get_mut(&tp).unwrap();
        let ticket = assigned.received(3, NextOffset(10));
        assigned.checkpoint.finished(ticket);
        assigned.learn(&Progress { low: None, ..progress(&tp, 10, Some(10)) });
        assert_eq!(partitions.status()[0].start, Some(3));
    }

    #[test]
    fn an_empty_partition_is_live_at_once_and_so_is_an_empty_assignment() {
        let tp = TopicPartition::new("t", 0);
        let mut partitions = Partitions::default();
        assert_eq!(partitions.state(), LaneState::Live);
        partitions.insert(tp.clone(), None, 1);
        partitions.get_mut(&tp).unwrap().learn(&progress(&tp, 0, Some(0)));
        assert_eq!(partitions.state(), LaneState::Live);
    }

    #[test]
    fn partitions_are_spread_evenly_over_workers() {
        let mut partitions = Partitions::default();
        (0..6).for_each(|p| {
            partitions.insert(TopicPartition::new("t", p), None, 3);
        });
        let load = |worker| partitions.iter().filter(|(_, a)| a.worker == worker).count();
        assert_eq!((load(0), load(1), load(2)), (2, 2, 2));
    }

    #[test]
    fn a_receipt_of_an_assignment_that_is_over_is_ignored() {
        let tp = TopicPartition::new("t", 0);
        let mut partitions = Partitions::default();
        let old = partitions.insert(tp.clone(), Some(NextOffset(0)), 1);
        let ticket = partitions.get_mut(&tp).unwrap().checkpoint.received(0, NextOffset(5));
        partitions.remove(&tp);
        partitions.insert(tp.clone(), Some(NextOffset(0)), 1);
        partitions.get_mut(&tp).unwrap().checkpoint.received(0, NextOffset(5));
        partitions.finished(Span { assignment: old, ticket, next: NextOffset(5), whole: true });
        assert_eq!(partitions.heads(None), [(tp, NextOffset(0))]);
    }

    #[test]
    fn only_heads_that_moved_are_committed_again() {
        let tp = TopicPartition::new("t", 0);
        let mut partitions = Partitions::default();
        partitions.insert(tp.clone(), Some(NextOffset(3)), 1);
        let heads = partitions.heads_to_commit();
        assert_eq!(heads, [(tp.clone(), NextOffset(3))]);
        partitions.committed(&heads);
        assert_eq!(partitions.heads_to_commit(), []);
        partitions.get_mut(&tp).unwrap().checkpoint.fetched(NextOffset(4));
        assert_eq!(partitions.heads_to_commit(), [(tp, NextOffset(4))]);
    }
}
