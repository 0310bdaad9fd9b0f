//! A row on its way to the receiver: where its bytes stand in a delivery that it keeps alive, so that a row that waits
//! costs no copy.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::delivery::{Delivery, Output};
use crate::record::{Record, TopicPartition};
use crate::sink::coalesce::Version;

#[derive(Debug)]
pub struct Row {
    /// Which delivery of the lane it belongs to, counted from its start.
    pub sequence: u64,
    pub offset: i64,
    pub timestamp: i64,
    /// The index of its record in the delivery's input.
    pub origin: u32,
    pub action: Action,
    /// Which of the record's outputs it is.
    nth: u32,
    delivery: Arc<Delivery>,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// PUT or POST.
    Write,
    /// DELETE for a tombstone.
    Delete,
    /// DELETE since a newer version was dropped or rejected, and what an older one wrote is to go.
    Clear,
}

impl Row {
    pub fn new(sequence: u64, delivery: &Arc<Delivery>, output: &Output<'_>, nth: u32, action: Action) -> Self {
        let data = delivery.rows().data();
        let Record { key, value, .. } = output.record;
        Self {
            sequence,
            offset: output.origin.offset,
            timestamp: output.origin.timestamp,
            origin: output.origin_index,
            action,
            nth,
            key: key.map(|key| place(data, key)),
            value: value.map(|value| place(data, value)),
            delivery: Arc::clone(delivery),
        }
    }

    pub fn key(&self) -> Option<&[u8]> {
        self.key.clone().map(|range| &self.delivery.rows().data()[range])
    }

    /// The value, still within its delivery.
    pub fn value(&self) -> Bytes {
        let Some(range) = self.value.clone() else { return Bytes::new() };
        Bytes::from_owner(Part { delivery: Arc::clone(&self.delivery), range })
    }

    /// Bytes of key and value.
    pub fn bytes(&self) -> usize {
        [&self.key, &self.value].into_iter().flatten().map(ExactSizeIterator::len).sum()
    }

    pub fn delivery(&self) -> &Arc<Delivery> {
        &self.delivery
    }

    pub fn partition(&self) -> &TopicPartition {
        self.delivery.input().partition()
    }

    pub fn version(&self) -> Version<'_> {
        Version { partition: self.partition(), offset: self.offset, timestamp: self.timestamp }
    }

    /// What tells requests of one record apart.
    pub fn suffix(&self) -> String {
        let delete = if self.action == Action::Clear { "-delete" } else { "" };
        if self.nth == 0 { delete.to_owned() } else { format!("-{}{delete}", self.nth) }
    }
}

/// Where `field` stands in the list of bytes that it is a part of.
fn place(data: &[u8], field: &[u8]) -> Range<usize> {
    // An empty field may point anywhere within the list, or past its end.
    let start = (field.as_ptr() as usize).saturating_sub(data.as_ptr() as usize).min(data.len());
    start..start + field.len()
}

struct Part {
    delivery: Arc<Delivery>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.delivery.rows().data()[self.range.clone()]
    }
}
