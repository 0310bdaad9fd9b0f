//! Which records of a delivery are known to be guilty.

use std::collections::BTreeMap;

use super::rows::Rows;
use crate::record::{Batch, TopicPartition};

/// The records of the delivery under way that were found guilty, so that a delivery that is given again after a stall makes
/// progress. At most as many as it has rows.
#[derive(Debug, Default)]
pub struct Guilt {
    /// Which delivery: its partition, and its first and last offsets.
    delivery: Option<(TopicPartition, i64, i64)>,
    /// By plugin, the origin's offset, and the how-manieth row of that origin it is.
    causes: BTreeMap<(usize, i64, u32), String>,
}

impl Guilt {
    /// Begins with a delivery, or goes on with the one that is given again.
    pub fn enter(&mut self, input: &Batch) {
        let offsets = input.offsets();
        let ends = offsets.first().zip(offsets.last());
        let delivery = ends.map(|(first, last)| (input.partition().clone(), *first, *last));
        if self.delivery != delivery {
            self.causes.clear();
            self.delivery = delivery;
        }
    }

    pub fn clear(&mut self) {
        self.causes.clear();
        self.delivery = None;
    }

    pub fn is_empty(&self) -> bool {
        self.causes.is_empty()
    }

    pub fn add(&mut self, station: usize, offset: i64, nth: u32, cause: String) {
        self.causes.insert((station, offset, nth), cause);
    }

    /// The guilty among the rows that are to be written, by their number.
    pub fn known(&self, station: usize, rows: &Rows<'_>) -> BTreeMap<usize, String> {
        if self.is_empty() {
            return BTreeMap::new();
        }
        let cause = |(row, (offset, nth))| Some((row, self.causes.get(&(station, offset, nth))?.clone()));
        rows.identities().enumerate().filter_map(cause).collect()
    }
}
