//! The partitions that a source reads, and how far each was handed over. Pure.

use crate::record::{NextOffset, TopicPartition};
use crate::source::Progress;

/// One partition, from its assignment to its release.
#[derive(Debug)]
pub struct Slot {
    pub partition: TopicPartition,
    /// Everything visible below was handed over, and nothing at or above. `None` = where the group's offset says, until
    /// the first record or the end shows it.
    next: Option<i64>,
    /// Nothing more is handed over.
    revoked: bool,
    /// The end of the snapshot was told.
    told: bool,
    /// Why it cannot be read now.
    pub error: Option<String>,
}

/// The partition was read, and now it begins anew below.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{partition}` went back from offset {next} to {offset}: the topic was re-created or truncated")]
pub struct WentBack {
    pub partition: TopicPartition,
    pub next: i64,
    pub offset: i64,
}

impl Slot {
    /// Whether what comes of it is handed over.
    pub fn is_open(&self) -> bool {
        !self.revoked
    }

    /// Everything visible below was handed over.
    pub fn position(&self) -> Option<NextOffset> {
        self.next.map(NextOffset)
    }

    /// The record at `offset` is about to be handed over.
    ///
    /// # Errors
    /// When it was handed over before, which only a new history of the partition can bring about.
    #[inline]
    pub fn hand_over(&mut self, offset: i64) -> Result<(), WentBack> {
        self.reach(offset)?;
        self.next = Some(offset + 1);
        Ok(())
    }

    /// There is nothing visible from what was handed over last up to `end`.
    ///
    /// # Errors
    /// As for [`Slot::hand_over`].
    pub fn end(&mut self, end: i64) -> Result<Progress, WentBack> {
        self.reach(end)?;
        self.next = Some(end);
        self.told = true;
        self.error = None;
        let end = Some(NextOffset(end));
        Ok(Progress { partition: self.partition.clone(), low: None, end, position: end })
    }

    /// Where the log begins and ends, asked for after the assignment.
    pub fn ends(&mut self, low: i64, end: NextOffset) -> Progress {
        self.told = true;
        Progress { partition: self.partition.clone(), low: Some(low), end: Some(end), position: None }
    }

    /// The same from statistics, which may be older than the assignment: the first thing told is the end of the snapshot.
    pub fn statistics(&self, low: Option<i64>, end: Option<i64>) -> Option<Progress> {
        let end = end.map(NextOffset);
        self.told.then(|| Progress { partition: self.partition.clone(), low, end, position: None })
    }

    fn reach(&self, offset: i64) -> Result<(), WentBack> {
        match self.next {
            Some(next) if offset < next => Err(WentBack { partition: self.partition.clone(), next, offset }),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Default)]
pub struct Partitions {
    slots: Vec<Slot>,
}

impl Partitions {
    pub fn insert(&mut self, partition: TopicPartition, start: Option<NextOffset>) {
        self.slots.retain(|slot| slot.partition != partition);
        let next = start.map(|start| start.0);
        self.slots.push(Slot { partition, next, revoked: false, told: false, error: None });
    }

    pub fn revoke(&mut self, partitions: &[TopicPartition]) {
        for slot in self.slots.iter_mut().filter(|slot| partitions.contains(&slot.partition)) {
            slot.revoked = true;
        }
    }

    pub fn remove(&mut self, partitions: &[TopicPartition]) {
        self.slots.retain(|slot| !partitions.contains(&slot.partition));
    }

    pub fn clear(&mut self) {
        self.slots.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The place of a partition, valid until one is inserted or removed.
    pub fn find(&self, topic: &str, partition: i32) -> Option<usize> {
        self.slots.iter().position(|slot| slot.partition.partition == partition && &*slot.partition.topic == topic)
    }

    pub fn get(&self, index: usize) -> &Slot {
        &self.slots[index]
    }

    pub fn get_mut(&mut self, index: usize) -> &mut Slot {
        &mut self.slots[index]
    }

    /// Where reading goes on, of those partitions of which it is known.
    pub fn positions(&self) -> impl Iterator<Item = (&TopicPartition, i64)> {
        self.slots.iter().filter_map(|slot| Some((&slot.partition, slot.next?)))
    }

    /// Why one of them cannot be read.
    pub fn error(&self) -> Option<&str> {
        self.slots.iter().find_map(|slot| slot.error.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(start: Option<i64>) -> Slot {
        let mut partitions = Partitions::default();
        partitions.insert(TopicPartition::new("t", 0), start.map(NextOffset));
        partitions.slots.remove(0)
    }

    #[test]
    fn holes_are_passed_and_nothing_is_handed_over_twice() {
        let mut slot = slot(None);
        assert_eq!(slot.hand_over(3), Ok(()));
        assert_eq!(slot.hand_over(7), Ok(()));
        let error = slot.hand_over(7).expect_err("handed over before");
        assert_eq!(error.to_string(), "`t[0]` went back from offset 8 to 7: the topic was re-created or truncated");
    }

    #[test]
    fn the_end_is_a_position_past_what_is_invisible() {
        let mut slot = slot(Some(0));
        slot.hand_over(4).expect("the first");
        let progress = slot.end(13).expect("it lies ahead");
        assert_eq!(progress.position, Some(NextOffset(13)));
        assert_eq!(slot.hand_over(13), Ok(()));
        assert!(slot.end(5).is_err());
    }

    #[test]
    fn a_start_beyond_the_end_of_the_log_is_noticed() {
        assert!(slot(Some(1_000_000)).hand_over(0).is_err());
        assert!(slot(Some(1_000_000)).end(10).is_err());
        assert!(slot(None).end(10).is_ok());
    }

    #[test]
    fn statistics_are_told_only_after_the_end_of_the_snapshot() {
        let mut slot = slot(None);
        assert_eq!(slot.statistics(Some(0), Some(4)), None);
        assert_eq!(slot.ends(0, NextOffset(9)).end, Some(NextOffset(9)));
        assert_eq!(slot.statistics(Some(0), Some(10)).and_then(|progress| progress.end), Some(NextOffset(10)));
    }

    #[test]
    fn revoked_partitions_are_closed_until_they_come_again() {
        let (a, b) = (TopicPartition::new("t", 0), TopicPartition::new("t", 1));
        let mut partitions = Partitions::default();
        partitions.insert(a.clone(), Some(NextOffset(5)));
        partitions.insert(b.clone(), None);
        partitions.revoke(std::slice::from_ref(&a));
        assert!(!partitions.get(0).is_open() && partitions.get(1).is_open());
        partitions.remove(std::slice::from_ref(&a));
        assert_eq!(partitions.find("t", 0), None);
        assert_eq!(partitions.find("t", 1), Some(0));
        assert_eq!(partitions.find("u", 1), None);
        assert_eq!(partitions.positions().count(), 0);
    }
}
