//! What a plugin answered, checked before anything is made of it. An answer is hostile input: whatever it holds, it is
//! either understood completely or refused with a reason.

use super::contract::{ABSENT, Verdicts};
use crate::record::{NULL, Record};

/// What is kept of a reason that a plugin gives for a rejection, in bytes.
pub const MAX_REASON_BYTES: usize = 1024;

/// What each row that a plugin makes costs of its output limit beside its fields: offset, timestamp, three lengths and the
/// mark of its origin, so that a flood of empty rows is bounded as well.
pub const ROW_BYTES: usize = 64;

const KEEP: u8 = 0;
const DROP: u8 = 1;
const SET_VALUE: u8 = 2;
const REPLACE: u8 = 3;
const REJECT: u8 = 4;
const EXPAND: u8 = 5;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerdictError {
    #[error("`{actions}` actions for `{records}` records; there must be one for each")]
    Count { actions: usize, records: usize },
    #[error("action `{0}` is unknown; actions go from `0` (keep) to `5` (expand)")]
    Action(u8),
    #[error("length `{0}` stands where only {1} is accepted")]
    Length(i32, &'static str),
    #[error("an action's lengths are missing")]
    LengthMissing,
    #[error("a length of `{length}` reaches beyond the data, of which `{left}` bytes are left")]
    Beyond { length: i32, left: usize },
    #[error("`{0}` lengths are left over")]
    LengthsLeft(usize),
    #[error("`{0}` bytes of data are left over")]
    DataLeft(usize),
    #[error("the reason of a rejection is not utf-8")]
    Reason,
    #[error("the output is larger than the limit of `{0}` bytes")]
    Output(usize),
    #[error("the key was changed, which the plugin must declare with `changes-keys`")]
    Key,
}

/// An answer that adds up.
#[derive(Clone, Debug)]
pub struct Checked {
    verdicts: Verdicts,
    effect: Effect,
    bytes: usize,
}

/// The most that an answer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Every record goes on as it came.
    None,
    /// Some records end here.
    Fates,
    /// Some rows are new.
    Rows,
}

/// What was decided for one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    Keep,
    Drop,
    SetValue(Option<&'a [u8]>),
    Replace(Shape<'a>),
    /// At most [`MAX_REASON_BYTES`].
    Reject(&'a str),
    /// So many shapes follow, each to be taken by [`Decisions::shape`].
    Expand(u32),
}

/// One row that a plugin made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape<'a> {
    pub key: Field<'a>,
    pub value: Field<'a>,
    /// `None` = the headers of the input record.
    pub headers: Option<Pairs<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// As the input record has it.
    Same,
    New(Option<&'a [u8]>),
}

/// Headers that a plugin made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pairs<'a> {
    left: usize,
    cursor: Cursor<'a>,
}

/// Checks the answer to a call with `records`.
///
/// `cap` bounds the bytes of the rows that the answer makes, with what they take over from their inputs and
/// [`ROW_BYTES`] each.
///
/// # Errors
/// The first thing in the answer that does not add up.
pub fn check<'r>(
    records: impl ExactSizeIterator<Item = Record<'r>>,
    verdicts: Verdicts,
    changes_keys: bool,
    cap: usize,
) -> Result<Checked, VerdictError> {
    let Verdicts { actions, lengths, data } = &verdicts;
    if actions.len() != records.len() {
        return Err(VerdictError::Count { actions: actions.len(), records: records.len() });
    }
    if lengths.is_empty() && data.is_empty() && actions.iter().all(|action| *action == KEEP) {
        return Ok(Checked { verdicts, effect: Effect::None, bytes: 0 });
    }
    let mut cursor = Cursor { lengths, data };
    let mut budget = Budget { cap, bytes: 0 };
    let mut effect = Effect::None;
    for (action, record) in actions.iter().zip(records) {
        effect = effect.max(cursor.check(*action, &record, changes_keys, &mut budget)?);
    }
    if !cursor.lengths.is_empty() {
        return Err(VerdictError::LengthsLeft(cursor.lengths.len()));
    }
    if !cursor.data.is_empty() {
        return Err(VerdictError::DataLeft(cursor.data.len()));
    }
    let bytes = budget.bytes;
    Ok(Checked { verdicts, effect, bytes })
}

impl Checked {
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// What the answer takes of the output limit.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn decisions(&self) -> Decisions<'_> {
        let Verdicts { actions, lengths, data } = &self.verdicts;
        Decisions { actions: actions.iter(), cursor: Cursor { lengths, data } }
    }
}

/// The decisions of an answer, one for each record.
#[derive(Clone, Debug)]
pub struct Decisions<'a> {
    actions: std::slice::Iter<'a, u8>,
    cursor: Cursor<'a>,
}

impl<'a> Decisions<'a> {
    /// The next shape of an expansion.
    pub fn shape(&mut self) -> Shape<'a> {
        self.cursor.shape().expect("the answer was checked")
    }
}

impl<'a> Iterator for Decisions<'a> {
    type Item = Decision<'a>;

    fn next(&mut self) -> Option<Decision<'a>> {
        let action = *self.actions.next()?;
        Some(self.cursor.decision(action).expect("the answer was checked"))
    }
}

/// What is left of an answer's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor<'a> {
    lengths: &'a [i32],
    data: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn check(
        &mut self,
        action: u8,
        record: &Record<'_>,
        changes_keys: bool,
        budget: &mut Budget,
    ) -> Result<Effect, VerdictError> {
        Ok(match self.decision(action)? {
            Decision::Keep => Effect::None,
            Decision::Drop | Decision::Reject(_) => Effect::Fates,
            Decision::SetValue(value) => {
                let same = Shape { key: Field::Same, value: Field::New(value), headers: None };
                budget.take(&same, record)?;
                Effect::Rows
            }
            Decision::Replace(shape) => {
                check_key(&shape, record, changes_keys)?;
                budget.take(&shape, record)?;
                Effect::Rows
            }
            Decision::Expand(0) => Effect::Fates,
            Decision::Expand(rows) => {
                for _ in 0..rows {
                    let shape = self.shape()?;
                    check_key(&shape, record, changes_keys)?;
                    budget.take(&shape, record)?;
                }
                Effect::Rows
            }
        })
    }

    fn decision(&mut self, action: u8) -> Result<Decision<'a>, VerdictError> {
        Ok(match action {
            KEEP => Decision::Keep,
            DROP => Decision::Drop,
            SET_VALUE => {
                let length = self.length()?;
                Decision::SetValue(self.optional(length)?)
            }
            REPLACE => Decision::Replace(self.shape()?),
            REJECT => Decision::Reject(self.reason()?),
            EXPAND => {
                let length = self.length()?;
                Decision::Expand(u32::try_from(length).map_err(|_| VerdictError::Length(length, "a number of rows"))?)
            }
            unknown => return Err(VerdictError::Action(unknown)),
        })
    }

    fn shape(&mut self) -> Result<Shape<'a>, VerdictError> {
        let key = self.field()?;
        let value = self.field()?;
        let count = self.length()?;
        if count == ABSENT {
            return Ok(Shape { key, value, headers: None });
        }
        let left = usize::try_from(count).map_err(|_| VerdictError::Length(count, "a number of headers or `-2`"))?;
        let headers = Pairs { left, cursor: *self };
        for _ in 0..left {
            let name = self.length()?;
            self.bytes(name)?;
            let value = self.length()?;
            self.optional(value)?;
        }
        Ok(Shape { key, value, headers: Some(headers) })
    }

    fn reason(&mut self) -> Result<&'a str, VerdictError> {
        let length = self.length()?;
        let reason = std::str::from_utf8(self.bytes(length)?).map_err(|_| VerdictError::Reason)?;
        Ok(&reason[..reason.floor_char_boundary(MAX_REASON_BYTES)])
    }

    fn field(&mut self) -> Result<Field<'a>, VerdictError> {
        match self.length()? {
            ABSENT => Ok(Field::Same),
            length => Ok(Field::New(self.optional(length)?)),
        }
    }

    fn optional(&mut self, length: i32) -> Result<Option<&'a [u8]>, VerdictError> {
        if length == NULL { Ok(None) } else { self.bytes(length).map(Some) }
    }

    fn bytes(&mut self, length: i32) -> Result<&'a [u8], VerdictError> {
        let wanted = usize::try_from(length).map_err(|_| VerdictError::Length(length, "a length of bytes"))?;
        let beyond = VerdictError::Beyond { length, left: self.data.len() };
        let (bytes, rest) = self.data.split_at_checked(wanted).ok_or(beyond)?;
        self.data = rest;
        Ok(bytes)
    }

    fn length(&mut self) -> Result<i32, VerdictError> {
        let (first, rest) = self.lengths.split_first().ok_or(VerdictError::LengthMissing)?;
        self.lengths = rest;
        Ok(*first)
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let cursor = &mut self.cursor;
        let name = cursor.length().and_then(|length| cursor.bytes(length)).ok()?;
        let value = cursor.length().and_then(|length| cursor.optional(length)).ok()?;
        Some((name, value))
    }
}

fn check_key(shape: &Shape<'_>, record: &Record<'_>, changes_keys: bool) -> Result<(), VerdictError> {
    match shape.key {
        Field::New(key) if !changes_keys && key != record.key => Err(VerdictError::Key),
        _ => Ok(()),
    }
}

struct Budget {
    cap: usize,
    bytes: usize,
}

impl Budget {
    fn take(&mut self, shape: &Shape<'_>, record: &Record<'_>) -> Result<(), VerdictError> {
        let field = |field: Field<'_>, same: Option<&[u8]>| match field {
            Field::Same => same.map_or(0, <[u8]>::len),
            Field::New(bytes) => bytes.map_or(0, <[u8]>::len),
        };
        let pair = |(name, value): (&[u8], Option<&[u8]>)| 8 + name.len() + value.map_or(0, <[u8]>::len);
        let headers: usize = match shape.headers {
            Some(pairs) => pairs.map(pair).sum(),
            None => record.headers.map(pair).sum(),
        };
        let row = ROW_BYTES + field(shape.key, record.key) + field(shape.value, record.value) + headers;
        self.bytes = self.bytes.saturating_add(row);
        if self.bytes > self.cap { Err(VerdictError::Output(self.cap)) } else { Ok(()) }
    }
}

#[cfg(test)]
pub(super) mod tests;
