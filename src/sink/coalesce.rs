//! Which of two rows of one output key counts: a pure rule, used by every state sink.
//!
//! | the two rows come from  | the one that counts                                                       |
//! |-------------------------|---------------------------------------------------------------------------|
//! | the same partition      | the higher offset; of one record's outputs, the last                      |
//! | different partitions    | the newer timestamp; at the same one, the greater topic, then partition   |
//!
//! The second line decides rightly as long as a key's timestamps ascend within each partition, as a producer's clock does.

use std::cmp::Ordering;

use crate::record::{Record, TopicPartition};

/// Where a row comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version<'a> {
    pub partition: &'a TopicPartition,
    pub offset: i64,
    pub timestamp: i64,
}

impl<'a> Version<'a> {
    pub fn of(partition: &'a TopicPartition, record: &Record<'_>) -> Self {
        Self { partition, offset: record.offset, timestamp: record.timestamp }
    }

    /// Whether this row counts rather than `older`, which came before it.
    pub fn supersedes(&self, older: &Version<'_>) -> bool {
        if self.partition == older.partition { self.offset >= older.offset } else { self.across() > older.across() }
    }

    fn across(&self) -> (i64, &str, i32) {
        (self.timestamp, &self.partition.topic, self.partition.partition)
    }
}

/// A row among others.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a, T> {
    pub key: &'a [u8],
    pub version: Version<'a>,
    pub row: T,
}

/// Keeps, of each key and partition, the last of `rows`, which come in the order of each partition. What is left is in the
/// order of keys, and within a key so that the one that counts across partitions comes last: applying it one by one, each
/// where it [supersedes](Version::supersedes) what is there, ends as applying the last version of each partition would.
///
/// The partitions of one key are not folded into one here, since what the sink holds may come from any of them: a row that
/// loses to another partition's must still replace its own partition's older one.
pub fn coalesce<T>(rows: &mut Vec<Row<'_, T>>) {
    // Stable: rows of one key and partition stay in the order they came in.
    rows.sort_by(|a, b| a.key.cmp(b.key).then_with(|| by_partition(&a.version, &b.version)));
    rows.reverse();
    rows.dedup_by(|earlier, later| earlier.key == later.key && earlier.version.partition == later.version.partition);
    rows.reverse();
    for same_key in rows.chunk_by_mut(|a, b| a.key == b.key).filter(|rows| rows.len() > 1) {
        same_key.sort_by(|a, b| a.version.across().cmp(&b.version.across()));
    }
}

fn by_partition(a: &Version<'_>, b: &Version<'_>) -> Ordering {
    a.partition.partition.cmp(&b.partition.partition).then_with(|| a.partition.topic.cmp(&b.partition.topic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn partitions() -> Vec<TopicPartition> {
        vec![TopicPartition::new("t", 0), TopicPartition::new("t", 1), TopicPartition::new("u", 0)]
    }

    fn check(newer: (usize, i64, i64), older: (usize, i64, i64), expected: bool) {
        let partitions = partitions();
        let version = |(index, offset, timestamp): (usize, i64, i64)| Version {
            partition: &partitions[index],
            offset,
            timestamp,
        };
        assert_eq!(version(newer).supersedes(&version(older)), expected);
    }

    #[test]
    fn offsets_decide_within_a_partition_and_timestamps_across() {
        check((0, 5, 1), (0, 4, 9), true);
        check((0, 4, 9), (0, 5, 1), false);
        check((0, 5, 1), (0, 5, 1), true);
        check((1, 1, 9), (0, 5, 8), true);
        check((1, 9, 8), (0, 5, 8), true);
        check((0, 9, 8), (1, 5, 8), false);
        check((2, 1, 8), (1, 5, 8), true);
        check((1, 9, 7), (2, 5, 8), false);
    }

    /// What a sink holds of a key: the partition's index, offset, timestamp, and the value.
    type Held = (usize, i64, i64, Option<u32>);

    fn apply(state: &mut BTreeMap<u8, Held>, partitions: &[TopicPartition], key: u8, row: Held) {
        let version = |held: &Held| Version { partition: &partitions[held.0], offset: held.1, timestamp: held.2 };
        if state.get(&key).is_none_or(|held| version(&row).supersedes(&version(held))) {
            state.insert(key, row);
        }
    }

    proptest! {
        /// Against the rule of the whole sink: of each partition the highest offset, across them the newest timestamp.
        /// However the rows are cut into batches, each coalesced, they end there. Timestamps ascend within a partition.
        #[test]
        fn batches_end_where_the_highest_offset_and_the_newest_timestamp_say(
            rows in proptest::collection::vec((0u8..4, 0usize..3, 0i64..5, any::<bool>()), 0..60),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..5),
        ) {
            let partitions = partitions();
            let mut next = [(0i64, 100i64); 3];
            let rows: Vec<(u8, Held)> = rows
                .into_iter()
                .enumerate()
                .map(|(n, (key, partition, later, delete))| {
                    let (offset, timestamp) = &mut next[partition];
                    *offset += 1;
                    *timestamp += later;
                    (key, (partition, *offset, *timestamp, (!delete).then_some(n as u32)))
                })
                .collect();

            let mut last: BTreeMap<(u8, usize), Held> = BTreeMap::new();
            rows.iter().for_each(|(key, row)| { last.insert((*key, row.0), *row); });
            let mut expected: BTreeMap<u8, Held> = BTreeMap::new();
            for ((key, _), row) in last {
                let across = |row: &Held| (row.2, partitions[row.0].topic.clone(), partitions[row.0].partition);
                let newer = expected.get(&key).is_none_or(|held| across(&row) > across(held));
                if newer {
                    expected.insert(key, row);
                }
            }

            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.index(rows.len() + 1)).collect();
            cuts.extend([0, rows.len()]);
            cuts.sort_unstable();
            let mut state = BTreeMap::new();
            for window in cuts.windows(2) {
                let batch = &rows[window[0]..window[1]];
                let keys: Vec<[u8; 1]> = batch.iter().map(|(key, _)| [*key]).collect();
                let mut left: Vec<Row<'_, Held>> = batch
                    .iter()
                    .zip(&keys)
                    .map(|((_, row), key)| {
                        let version = Version { partition: &partitions[row.0], offset: row.1, timestamp: row.2 };
                        Row { key, version, row: *row }
                    })
                    .collect();
                coalesce(&mut left);
                prop_assert!(left.is_sorted_by(|a, b| a.key <= b.key));
                for row in left {
                    apply(&mut state, &partitions, row.key[0], row.row);
                }
            }
            prop_assert_eq!(state, expected);
        }
    }
}
