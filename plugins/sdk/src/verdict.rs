//! What a plugin answers, written straight into the flat layout.

use std::fmt::{self, Write};

use crate::Header;
use crate::bindings::tidegate::plugin::types::{PluginError, Verdicts};
use crate::layout::{Field, action, length_of, push_field};

/// How much of a reason the gateway keeps; the rest is cut off here, at a character's end.
pub const MAX_REASON_BYTES: usize = 1024;

/// The place for the verdict on one record. Each method uses it up and returns the proof that it was given.
#[must_use = "each record needs a verdict"]
pub struct Verdict<'a> {
    answer: &'a mut Answer,
}

/// The proof that a verdict was given.
#[must_use = "to be returned from `Plugin::process`"]
pub struct Decided(());

impl<'a> Verdict<'a> {
    /// The record goes on as it came, byte for byte.
    #[inline]
    pub fn keep(self) -> Decided {
        self.answer.act(action::KEEP)
    }

    /// The record ends here.
    #[inline]
    pub fn drop(self) -> Decided {
        self.answer.act(action::DROP)
    }

    /// The record goes on with another value.
    pub fn set_value(self, value: impl AsRef<[u8]>) -> Decided {
        self.answer.push(Field::Bytes(value.as_ref()));
        self.answer.act(action::SET_VALUE)
    }

    /// The record goes on as a tombstone: "delete this key".
    pub fn set_tombstone(self) -> Decided {
        self.answer.push(Field::Null);
        self.answer.act(action::SET_VALUE)
    }

    /// The record goes on with what `output` changes. Another key must have been announced by
    /// [`Setup::changes_keys`](crate::Setup).
    pub fn replace(self, output: Output<'_>) -> Decided {
        self.answer.push_output(output);
        self.answer.act(action::REPLACE)
    }

    /// Several records take this one's place: those that are pushed. None at all is the same as [`drop`](Self::drop).
    pub fn expand(self) -> Expansion<'a> {
        let count_at = self.answer.lengths.len();
        self.answer.lengths.push(0);
        Expansion { answer: self.answer, count_at, count: 0 }
    }

    /// The record goes to the route's policy for errors, by default the dead letters. The reason is for people; it must not
    /// quote what a record should not show.
    pub fn reject(self, reason: impl fmt::Display) -> Decided {
        let mut writer = ReasonWriter { start: self.answer.data.len(), data: &mut self.answer.data };
        // Only a `Display` that fails by itself can fail here, and then half a reason is better than none.
        write!(writer, "{reason}").ok();
        let length = writer.data.len() - writer.start;
        self.answer.lengths.push(length_of(length));
        self.answer.act(action::REJECT)
    }

    /// The whole batch shall come again later, since something that the plugin needs is not there now. What was decided
    /// about other records of the batch is forgotten.
    pub fn retry_batch(self, reason: impl fmt::Display) -> Decided {
        self.answer.failure = Some(PluginError::Retry(reason.to_string()));
        Decided(())
    }

    /// The batch cannot be processed, and trying again would not help. The gateway splits it to find the guilty record;
    /// where that is known, [`reject`](Self::reject) is better.
    pub fn fail_batch(self, reason: impl fmt::Display) -> Decided {
        self.answer.failure = Some(PluginError::Fatal(reason.to_string()));
        Decided(())
    }
}

/// A record that takes an input's place: what is not set is as the input has it.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    key: Field<'a>,
    value: Field<'a>,
    headers: Option<&'a [Header<'a>]>,
}

impl<'a> Output<'a> {
    /// The input, unchanged so far.
    pub const fn unchanged() -> Self {
        Self { key: Field::Absent, value: Field::Absent, headers: None }
    }

    /// With this key; `None` = without a key.
    pub fn with_key(self, key: Option<&'a [u8]>) -> Self {
        Self { key: key.map_or(Field::Null, Field::Bytes), ..self }
    }

    /// With this value; `None` = as a tombstone.
    pub fn with_value(self, value: Option<&'a [u8]>) -> Self {
        Self { value: value.map_or(Field::Null, Field::Bytes), ..self }
    }

    /// With these headers instead of all that the input has.
    pub fn with_headers(self, headers: &'a [Header<'a>]) -> Self {
        Self { headers: Some(headers), ..self }
    }
}

/// The records that take one record's place.
#[must_use = "the verdict is given by `done`"]
pub struct Expansion<'a> {
    answer: &'a mut Answer,
    count_at: usize,
    count: usize,
}

impl Expansion<'_> {
    /// Adds a record.
    pub fn push(&mut self, output: Output<'_>) -> &mut Self {
        self.answer.push_output(output);
        self.count += 1;
        self
    }

    /// That was all.
    pub fn done(self) -> Decided {
        self.answer.lengths[self.count_at] = length_of(self.count);
        self.answer.act(action::EXPAND)
    }
}

/// The answer to a batch, as it grows.
pub(crate) struct Answer {
    actions: Vec<u8>,
    lengths: Vec<i32>,
    data: Vec<u8>,
    /// How large `data` is made at its first use: most plugins that change values give back about as much as they got.
    expected_bytes: usize,
    failure: Option<PluginError>,
}

impl Answer {
    pub(crate) fn new(records: usize, expected_bytes: usize) -> Self {
        Self {
            actions: Vec::with_capacity(records),
            lengths: Vec::new(),
            data: Vec::new(),
            expected_bytes,
            failure: None,
        }
    }

    pub(crate) fn next(&mut self) -> Verdict<'_> {
        Verdict { answer: self }
    }

    pub(crate) fn failure(&mut self) -> Option<PluginError> {
        self.failure.take()
    }

    pub(crate) fn finish(self) -> Verdicts {
        Verdicts { actions: self.actions, lengths: self.lengths, data: self.data }
    }

    #[inline]
    fn act(&mut self, action: u8) -> Decided {
        self.actions.push(action);
        Decided(())
    }

    fn push(&mut self, field: Field<'_>) {
        if self.data.is_empty() {
            self.lengths.reserve(self.actions.capacity());
            self.data.reserve(self.expected_bytes);
        }
        push_field(&mut self.lengths, &mut self.data, field);
    }

    fn push_output(&mut self, output: Output<'_>) {
        self.push(output.key);
        self.push(output.value);
        match output.headers {
            None => self.push(Field::Absent),
            Some(headers) => {
                self.lengths.push(length_of(headers.len()));
                for &Header { name, value } in headers {
                    self.push(Field::Bytes(name));
                    self.push(value.map_or(Field::Null, Field::Bytes));
                }
            }
        }
    }
}

/// Appends a reason up to its limit.
struct ReasonWriter<'a> {
    data: &'a mut Vec<u8>,
    start: usize,
}

impl Write for ReasonWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_REASON_BYTES - (self.data.len() - self.start);
        let kept = text.floor_char_boundary(room);
        self.data.extend_from_slice(&text.as_bytes()[..kept]);
        if kept < text.len() {
            // Whatever would still come is cut off as well, so that no later part closes up to the cut.
            return Err(fmt::Error);
        }
        Ok(())
    }
}
