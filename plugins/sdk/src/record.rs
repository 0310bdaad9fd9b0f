//! Records as views into a batch: nothing is copied.

use std::fmt;

use crate::bindings::tidegate::plugin::types::Batch;
use crate::layout::{Field, LayoutError, Reader};

/// One record of a topic.
///
/// Key, value and a header's value are each null (`None`) or bytes; an empty field is `Some(b"")`. A field that the plugin
/// did not ask for in [`Setup::wants`](crate::Setup) is neither: asking for it is a mistake in the plugin, and panics. The
/// harness leaves out the same fields as the gateway, so that the first test finds such a mistake.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    batch: &'a Batch,
    index: usize,
    key: Field<'a>,
    value: Field<'a>,
    headers: Option<Headers<'a>>,
}

impl<'a> Record<'a> {
    /// The key; `None` = the record has none.
    ///
    /// # Panics
    ///
    /// If the plugin does not want keys.
    pub fn key(&self) -> Option<&'a [u8]> {
        wanted(self.key, "the key was not asked for: add `Wants::KEYS` to the plugin's setup")
    }

    /// The value; `None` = the record is a tombstone.
    ///
    /// # Panics
    ///
    /// If the plugin does not want values.
    pub fn value(&self) -> Option<&'a [u8]> {
        wanted(self.value, "the value was not asked for: add `Wants::VALUES` to the plugin's setup")
    }

    /// The headers, in the record's order, with repeats.
    ///
    /// # Panics
    ///
    /// If the plugin does not want headers.
    pub fn headers(&self) -> Headers<'a> {
        self.headers.expect("the headers were not asked for: add `Wants::HEADERS` to the plugin's setup")
    }

    /// The value of the last header of this name, as Kafka's `lastHeader`. The outer `None` = there is no such header,
    /// the inner one = it is null.
    ///
    /// # Panics
    ///
    /// If the plugin does not want headers.
    pub fn header(&self, name: impl AsRef<[u8]>) -> Option<Option<&'a [u8]>> {
        let name = name.as_ref();
        self.headers().filter(|header| header.name == name).last().map(|header| header.value)
    }

    /// The topic.
    pub fn topic(&self) -> &'a str {
        &self.batch.topic
    }

    /// The partition.
    pub fn partition(&self) -> i32 {
        self.batch.partition
    }

    /// The offset.
    pub fn offset(&self) -> i64 {
        self.batch.offsets[self.index]
    }

    /// Milliseconds since 1970-01-01 UTC; `None` = the broker gave none.
    pub fn timestamp_ms(&self) -> Option<i64> {
        let timestamp = self.batch.timestamps[self.index];
        (timestamp >= 0).then_some(timestamp)
    }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Record")
            .field("topic", &self.topic())
            .field("partition", &self.partition())
            .field("offset", &self.offset())
            .finish_non_exhaustive()
    }
}

/// A header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The name, which is bytes and usually, but not always, UTF-8.
    pub name: &'a [u8],
    /// The value; `None` = null.
    pub value: Option<&'a [u8]>,
}

/// The headers of a record, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    /// Checked when the record was read, so that it holds whole headers only.
    rest: Reader<'a>,
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        let name = self.rest.bytes().ok()?;
        let value = self.rest.present().ok()?;
        Some(Header { name, value })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.rest.lengths.len() / 2;
        (count, Some(count))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// The records of a batch.
pub(crate) struct Records<'a> {
    batch: &'a Batch,
    index: usize,
    rest: Reader<'a>,
}

impl<'a> Records<'a> {
    pub(crate) fn of(batch: &'a Batch) -> Result<Self, LayoutError> {
        if batch.offsets.len() != batch.timestamps.len() {
            return Err(LayoutError::Uneven { offsets: batch.offsets.len(), timestamps: batch.timestamps.len() });
        }
        let rest = Reader { lengths: &batch.lengths, data: &batch.data };
        Ok(Self { batch, index: 0, rest })
    }

    /// The next record; `None` = that was all, and nothing is left over.
    pub(crate) fn next(&mut self) -> Result<Option<Record<'a>>, LayoutError> {
        if self.index == self.batch.offsets.len() {
            self.rest.finish()?;
            return Ok(None);
        }
        let record = Record {
            batch: self.batch,
            index: self.index,
            key: self.rest.field()?,
            value: self.rest.field()?,
            headers: self.headers()?,
        };
        self.index += 1;
        Ok(Some(record))
    }

    fn headers(&mut self) -> Result<Option<Headers<'a>>, LayoutError> {
        let Some(count) = self.rest.count()? else {
            return Ok(None);
        };
        let before = self.rest;
        for _ in 0..count {
            self.rest.bytes()?;
            self.rest.present()?;
        }
        let lengths = &before.lengths[..before.lengths.len() - self.rest.lengths.len()];
        let data = &before.data[..before.data.len() - self.rest.data.len()];
        Ok(Some(Headers { rest: Reader { lengths, data } }))
    }
}

fn wanted<'a>(field: Field<'a>, message: &str) -> Option<&'a [u8]> {
    match field {
        Field::Absent => panic!("{message}"),
        Field::Null => None,
        Field::Bytes(bytes) => Some(bytes),
    }
}
