//! Records, laid out flat.
//!
//! A [`Batch`] holds the records of one topic-partition in four primitive lists, exactly as the plugin contract has them
//! (`wit/tidegate-plugin.wit`), so that the bytes librdkafka hands out are copied once, and a batch enters a guest as four
//! memory copies. Everything else is a view.
//!
//! Null, empty and absent stay different everywhere: a field is `Option<&[u8]>`, and headers are an ordered list that may
//! hold a name twice.

mod ranges;

use std::fmt;
use std::sync::Arc;

pub use ranges::ranges;

/// The length of a field that is null.
pub const NULL: i32 = -1;

/// The offset of the next record to read: what Kafka calls a committed offset. One past the last record that is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextOffset(pub i64);

impl fmt::Display for NextOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    pub topic: Arc<str>,
    pub partition: i32,
}

impl TopicPartition {
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.topic, self.partition)
    }
}

/// Records of one topic-partition, in offset order. See the contract for the meaning of each list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    partition: TopicPartition,
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
    lengths: Vec<i32>,
    data: Vec<u8>,
    /// Where in `lengths` the header-count of the last record stands.
    last_count: usize,
}

impl Batch {
    pub fn new(partition: TopicPartition) -> Self {
        Self::with_capacity(partition, 0, 0)
    }

    /// A batch with room for `records` records of `bytes` bytes in all.
    pub fn with_capacity(partition: TopicPartition, records: usize, bytes: usize) -> Self {
        Self {
            partition,
            offsets: Vec::with_capacity(records),
            timestamps: Vec::with_capacity(records),
            lengths: Vec::with_capacity(records * 3),
            data: Vec::with_capacity(bytes),
            last_count: 0,
        }
    }

    /// Appends a record without headers; [`Batch::push_header`] adds them one by one.
    ///
    /// # Panics
    /// If a field is longer than `i32::MAX` bytes, which no Kafka record can hold.
    pub fn push(&mut self, offset: i64, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) {
        self.offsets.push(offset);
        self.timestamps.push(timestamp);
        self.push_field(key);
        self.push_field(value);
        self.last_count = self.lengths.len();
        self.lengths.push(0);
    }

    /// Appends a header to the record pushed last.
    ///
    /// # Panics
    /// If no record was pushed yet.
    pub fn push_header(&mut self, name: &[u8], value: Option<&[u8]>) {
        assert!(!self.offsets.is_empty(), "a header belongs to a record");
        self.push_field(Some(name));
        self.push_field(value);
        self.lengths[self.last_count] += 1;
    }

    /// Appends a copy of `record`, headers included.
    pub fn push_record(&mut self, record: &Record<'_>) {
        self.push(record.offset, record.timestamp, record.key, record.value);
        self.push_headers(record.headers);
    }

    /// Appends a copy of all `headers` to the record pushed last.
    pub fn push_headers(&mut self, headers: Headers<'_>) {
        for (name, value) in headers {
            self.push_header(name, value);
        }
    }

    fn push_field(&mut self, field: Option<&[u8]>) {
        match field {
            None => self.lengths.push(NULL),
            Some(bytes) => {
                self.lengths.push(i32::try_from(bytes.len()).expect("a Kafka field is shorter than 2 GiB"));
                self.data.extend_from_slice(bytes);
            }
        }
    }

    /// A copy of the first `count` records.
    pub fn first(&self, count: usize) -> Self {
        let mut batch = Self::new(self.partition.clone());
        self.iter().take(count).for_each(|record| batch.push_record(&record));
        batch
    }

    pub fn partition(&self) -> &TopicPartition {
        &self.partition
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The bytes of all fields, without the bookkeeping.
    pub fn data_bytes(&self) -> usize {
        self.data.len()
    }

    /// What the batch holds of the memory budget, bookkeeping and spare room included.
    pub fn held_bytes(&self) -> usize {
        self.data.capacity() + self.lengths.capacity() * 4 + (self.offsets.capacity() + self.timestamps.capacity()) * 8
    }

    pub fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    pub fn timestamps(&self) -> &[i64] {
        &self.timestamps
    }

    pub fn lengths(&self) -> &[i32] {
        &self.lengths
    }

    pub fn data(&self) -> &[u8] {
        &self.data
    }

    pub fn iter(&self) -> Records<'_> {
        Records { batch: self, index: 0, length: 0, data: 0 }
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = Record<'a>;
    type IntoIter = Records<'a>;

    fn into_iter(self) -> Records<'a> {
        self.iter()
    }
}

/// One record, as a view into a [`Batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub offset: i64,
    /// Milliseconds since 1970-01-01 UTC; -1 = the broker gave none.
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    /// `None` = a tombstone.
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

impl Record<'_> {
    pub fn is_tombstone(&self) -> bool {
        self.value.is_none()
    }
}

/// The records of a batch, in order.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    batch: &'a Batch,
    index: usize,
    length: usize,
    data: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        let batch = self.batch;
        let offset = *batch.offsets.get(self.index)?;
        let timestamp = batch.timestamps[self.index];
        self.index += 1;
        let mut rest = Headers { left: 0, lengths: &batch.lengths[self.length..], data: &batch.data[self.data..] };
        let key = rest.take_field();
        let value = rest.take_field();
        let count = rest.take_length() as usize;
        let (lengths, data) = (rest.lengths, rest.data);
        let headers = Headers { left: count, lengths, data };
        let header_bytes: usize = lengths[..count * 2].iter().map(|&length| length.max(0) as usize).sum();
        self.length = batch.lengths.len() - lengths.len() + count * 2;
        self.data = batch.data.len() - data.len() + header_bytes;
        Some(Record { offset, timestamp, key, value, headers })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.batch.len() - self.index;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Records<'_> {}

/// The headers of one record: an ordered list of (name, value) in which a name may come twice. Names are bytes.
#[derive(Clone, Copy)]
pub struct Headers<'a> {
    left: usize,
    lengths: &'a [i32],
    data: &'a [u8],
}

impl<'a> Headers<'a> {
    pub const NONE: Headers<'static> = Headers { left: 0, lengths: &[], data: &[] };

    fn take_length(&mut self) -> i32 {
        let (&first, rest) = self.lengths.split_first().expect("a batch's lengths cover its records");
        self.lengths = rest;
        first
    }

    fn take_field(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.take_length()).ok()?;
        let (field, rest) = self.data.split_at(length);
        self.data = rest;
        Some(field)
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = self.take_field().unwrap_or_default();
        Some((name, self.take_field()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Headers<'_> {}

impl PartialEq for Headers<'_> {
    fn eq(&self, other: &Self) -> bool {
        Iterator::eq(*self, *other)
    }
}

impl Eq for Headers<'_> {}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Field = Option<Vec<u8>>;
    type Owned = (i64, i64, Field, Field, Vec<(Vec<u8>, Field)>);

    fn field() -> impl Strategy<Value = Field> {
        proptest::option::of(proptest::collection::vec(any::<u8>(), 0..6))
    }

    fn record() -> impl Strategy<Value = Owned> {
        let name = proptest::collection::vec(any::<u8>(), 0..3);
        (any::<i64>(), any::<i64>(), field(), field(), proptest::collection::vec((name, field()), 0..4))
    }

    proptest! {
        /// Whatever is pushed comes back: null, empty and absent, duplicates and order of headers.
        #[test]
        fn a_batch_gives_back_what_it_was_given(records in proptest::collection::vec(record(), 0..20)) {
            let mut batch = Batch::new(TopicPartition::new("t", 0));
            for (offset, timestamp, key, value, headers) in &records {
                batch.push(*offset, *timestamp, key.as_deref(), value.as_deref());
                for (name, value) in headers {
                    batch.push_header(name, value.as_deref());
                }
            }
            let seen: Vec<Owned> = batch
                .iter()
                .map(|r| {
                    let headers = r.headers.map(|(n, v)| (n.to_vec(), v.map(<[u8]>::to_vec))).collect();
                    (r.offset, r.timestamp, r.key.map(<[u8]>::to_vec), r.value.map(<[u8]>::to_vec), headers)
                })
                .collect();
            prop_assert_eq!(&seen, &records);

            let mut copy = Batch::new(TopicPartition::new("t", 0));
            batch.iter().for_each(|r| copy.push_record(&r));
            prop_assert_eq!(copy.lengths(), batch.lengths());
            prop_assert_eq!(copy.data(), batch.data());
        }
    }

    #[test]
    fn null_and_empty_differ_and_headers_keep_order_and_repeats() {
        let mut batch = Batch::new(TopicPartition::new("t", 0));
        batch.push(0, 0, Some(b""), None);
        batch.push_header(b"h", None);
        batch.push_header(b"h", Some(b""));
        let record = batch.iter().next().expect("one record");
        assert_eq!(record.key, Some(&b""[..]));
        assert!(record.is_tombstone());
        let headers: Vec<_> = record.headers.into_iter().collect();
        assert_eq!(headers, [(&b"h"[..], None), (&b"h"[..], Some(&b""[..]))]);
    }
}
