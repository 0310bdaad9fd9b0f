//! Records as a plugin is given them.

use super::contract::{ABSENT, Input, Wants};
use crate::record::{Batch, NULL, Record};

/// The whole batch as it lies in memory.
pub fn whole_batch(batch: &Batch) -> Input<'_> {
    Input {
        topic: &batch.partition().topic,
        partition: batch.partition().partition,
        offsets: batch.offsets(),
        timestamps: batch.timestamps(),
        lengths: batch.lengths(),
        data: batch.data(),
    }
}

/// Records laid out for a plugin that does not get all of a batch. Kept, so that its memory is used again.
#[derive(Default)]
pub struct Encoded {
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
    lengths: Vec<i32>,
    data: Vec<u8>,
}

impl Encoded {
    /// Lays out `records`, leaving out what is not wanted.
    pub fn fill<'r>(&mut self, records: impl Iterator<Item = Record<'r>>, wants: Wants) {
        self.offsets.clear();
        self.timestamps.clear();
        self.lengths.clear();
        self.data.clear();
        let (keys, values) = (wants & Wants::KEYS == Wants::KEYS, wants & Wants::VALUES == Wants::VALUES);
        let headers = wants & Wants::HEADERS == Wants::HEADERS;
        for record in records {
            self.offsets.push(record.offset);
            self.timestamps.push(record.timestamp);
            self.push(record.key, keys);
            self.push(record.value, values);
            if headers {
                self.lengths.push(record.headers.len() as i32);
                for (name, value) in record.headers {
                    self.push(Some(name), true);
                    self.push(value, true);
                }
            } else {
                self.lengths.push(ABSENT);
            }
        }
    }

    fn push(&mut self, field: Option<&[u8]>, wanted: bool) {
        self.lengths.push(match field {
            _ if !wanted => ABSENT,
            None => NULL,
            Some(bytes) => {
                self.data.extend_from_slice(bytes);
                bytes.len() as i32
            }
        });
    }

    /// What was laid out, as records of `batch`'s partition.
    pub fn input<'a>(&'a self, batch: &'a Batch) -> Input<'a> {
        let Self { offsets, timestamps, lengths, data } = self;
        Input { offsets, timestamps, lengths, data, ..whole_batch(batch) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TopicPartition;

    fn batch() -> Batch {
        let mut batch = Batch::new(TopicPartition::new("t", 0));
        batch.push(5, 1, Some(b"k"), None);
        batch.push_header(b"h", None);
        batch.push_header(b"h", Some(b"v"));
        batch.push(7, 2, None, Some(b""));
        batch
    }

    #[test]
    fn everything_is_as_in_the_batch() {
        let (batch, mut encoded) = (batch(), Encoded::default());
        encoded.fill(batch.iter(), Wants::KEYS | Wants::VALUES | Wants::HEADERS);
        let (input, whole) = (encoded.input(&batch), whole_batch(&batch));
        assert_eq!((input.topic, input.partition), (whole.topic, whole.partition));
        assert_eq!((input.offsets, input.timestamps), (whole.offsets, whole.timestamps));
        assert_eq!((input.lengths, input.data), (whole.lengths, whole.data));
    }

    #[test]
    fn what_is_not_wanted_is_told_from_what_is_null() {
        let (batch, mut encoded) = (batch(), Encoded::default());
        for (wants, lengths, data) in [
            (Wants::KEYS, &[1, ABSENT, ABSENT, NULL, ABSENT, ABSENT][..], &b"k"[..]),
            (Wants::VALUES, &[ABSENT, NULL, ABSENT, ABSENT, 0, ABSENT], b""),
            (Wants::HEADERS, &[ABSENT, ABSENT, 2, 1, NULL, 1, 1, ABSENT, ABSENT, 0], b"hhv"),
        ] {
            encoded.fill(batch.iter(), wants);
            assert_eq!((encoded.input(&batch).lengths, encoded.input(&batch).data), (lengths, data));
        }
    }
}
