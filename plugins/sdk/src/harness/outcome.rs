//! What a plugin under test decided, read back from the flat layout with the gateway's strictness.

use std::fmt;

use crate::bindings::tidegate::plugin::types::Verdicts;
use crate::layout::{Field, LayoutError, Reader, action};

/// What a plugin decided about one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It goes on as it came.
    Keep,
    /// It ends here.
    Drop,
    /// It goes on with another value; `None` = as a tombstone.
    SetValue(Option<Text>),
    /// It goes on changed.
    Replace(Changed),
    /// It goes to the route's policy for errors.
    Reject(String),
    /// These take its place.
    Expand(Vec<Changed>),
}

impl Outcome {
    /// The record goes on with this value.
    pub fn value(value: impl AsRef<[u8]>) -> Self {
        Self::SetValue(Some(Text::new(value)))
    }

    /// The record goes on with this key and all else as it was.
    pub fn key(key: impl AsRef<[u8]>) -> Self {
        Self::Replace(Changed { key: Some(Some(Text::new(key))), ..Changed::default() })
    }

    pub(crate) fn changes_key(&self, input: Option<&[u8]>) -> bool {
        let outputs = match self {
            Self::Replace(output) => std::slice::from_ref(output),
            Self::Expand(outputs) => outputs,
            _ => return false,
        };
        outputs
            .iter()
            .filter_map(|output| output.key.as_ref())
            .any(|key| key.as_ref().map(|key| key.0.as_slice()) != input)
    }
}

/// What a record that takes an input's place has of its own. The outer `None` = as the input has it, the inner one = null.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The key.
    pub key: Option<Option<Text>>,
    /// The value.
    pub value: Option<Option<Text>>,
    /// All headers, as names and values.
    pub headers: Option<Vec<(Text, Option<Text>)>>,
}

/// Bytes that a failed assertion shows as text.
#[derive(Clone, PartialEq, Eq)]
pub struct Text(pub Vec<u8>);

impl Text {
    /// These bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        Self(bytes.as_ref().into())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.0.escape_ascii())
    }
}

/// Reads an answer to `records` records.
pub(crate) fn decode(verdicts: &Verdicts, records: usize) -> Result<Vec<Outcome>, String> {
    if verdicts.actions.len() != records {
        return Err(format!("{} actions for {records} records", verdicts.actions.len()));
    }
    let mut rest = Reader { lengths: &verdicts.lengths, data: &verdicts.data };
    let outcomes = verdicts.actions.iter().map(|&action| outcome(action, &mut rest)).collect::<Result<_, _>>()?;
    rest.finish().map_err(|error| error.to_string())?;
    Ok(outcomes)
}

fn outcome(action: u8, rest: &mut Reader<'_>) -> Result<Outcome, String> {
    let outcome = match action {
        action::KEEP => Ok(Outcome::Keep),
        action::DROP => Ok(Outcome::Drop),
        action::SET_VALUE => rest.present().map(|value| Outcome::SetValue(value.map(Text::new))),
        action::REPLACE => changed(rest).map(Outcome::Replace),
        action::REJECT => match rest.bytes().map(|reason| String::from_utf8(reason.into())) {
            Ok(Ok(reason)) => Ok(Outcome::Reject(reason)),
            Ok(Err(_)) => return Err("a reason is not UTF-8".into()),
            Err(error) => Err(error),
        },
        action::EXPAND => expanded(rest).map(Outcome::Expand),
        unknown => return Err(format!("`{unknown}` is no action")),
    };
    outcome.map_err(|error| error.to_string())
}

fn expanded(rest: &mut Reader<'_>) -> Result<Vec<Changed>, LayoutError> {
    let count = rest.count()?.ok_or(LayoutError::BadLength(crate::layout::ABSENT))?;
    (0..count).map(|_| changed(rest)).collect()
}

fn changed(rest: &mut Reader<'_>) -> Result<Changed, LayoutError> {
    Ok(Changed {
        key: own(rest.field()?),
        value: own(rest.field()?),
        headers: match rest.count()? {
            None => None,
            Some(count) => {
                Some(
                    (0..count)
                        .map(|_| Ok((Text::new(rest.bytes()?), rest.present()?.map(Text::new))))
                        .collect::<Result<_, LayoutError>>()?,
                )
            }
        },
    })
}

fn own(field: Field<'_>) -> Option<Option<Text>> {
    match field {
        Field::Absent => None,
        Field::Null => Some(None),
        Field::Bytes(bytes) => Some(Some(Text::new(bytes))),
    }
}
