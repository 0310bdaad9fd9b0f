//! A record to give to a plugin under test.

use crate::Wants;
use crate::bindings::tidegate::plugin::types::Batch;
use crate::layout::{Field, length_of, push_field};

/// A record to give to a plugin under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub(crate) timestamp: i64,
}

impl Message {
    /// A record with a key and a value.
    pub fn new(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        Self { key: Some(key.as_ref().into()), value: Some(value.as_ref().into()), headers: Vec::new(), timestamp: 0 }
    }

    /// A record with a key and a null value.
    pub fn tombstone(key: impl AsRef<[u8]>) -> Self {
        Self { value: None, ..Self::new(key, "") }
    }

    /// The same without a key.
    pub fn without_key(self) -> Self {
        Self { key: None, ..self }
    }

    /// The same with one more header; `None` = its value is null.
    pub fn with_header(mut self, name: impl AsRef<[u8]>, value: Option<&[u8]>) -> Self {
        self.headers.push((name.as_ref().into(), value.map(Into::into)));
        self
    }

    /// The same with a timestamp in milliseconds since 1970-01-01 UTC; -1 = none.
    pub fn with_timestamp_ms(self, timestamp: i64) -> Self {
        Self { timestamp, ..self }
    }
}

/// Lays messages out as the gateway does, with those fields that are wanted. Offsets count from 0.
pub(crate) fn encode(messages: &[Message], wants: Wants) -> Batch {
    let mut lengths = Vec::new();
    let mut data = Vec::new();
    for message in messages {
        let mut push = |want: Wants, field: &Option<Vec<u8>>| {
            let field = match field {
                _ if !wants.contains(want) => Field::Absent,
                None => Field::Null,
                Some(bytes) => Field::Bytes(bytes),
            };
            push_field(&mut lengths, &mut data, field);
        };
        push(Wants::KEYS, &message.key);
        push(Wants::VALUES, &message.value);
        if !wants.contains(Wants::HEADERS) {
            push(Wants::HEADERS, &None);
            continue;
        }
        lengths.push(length_of(message.headers.len()));
        for (name, value) in &message.headers {
            push_field(&mut lengths, &mut data, Field::Bytes(name));
            push_field(&mut lengths, &mut data, value.as_deref().map_or(Field::Null, Field::Bytes));
        }
    }
    Batch {
        topic: "test".into(),
        partition: 0,
        offsets: (0..).take(messages.len()).collect(),
        timestamps: messages.iter().map(|message| message.timestamp).collect(),
        lengths,
        data,
    }
}
