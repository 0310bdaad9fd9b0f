//! The checks on one key.

use std::borrow::Cow;

use regex_lite::Regex;
use uuid::Uuid;

use crate::config::{Format, Normalise, NullKey};

/// The length of a UUID with its hyphens.
const HYPHENATED: usize = 36;

/// The plugin.
pub struct KeyCheck {
    /// What is done to a key before it is checked, in this order.
    pub(crate) normalise: Vec<Normalise>,
    pub(crate) format: Format,
    /// Matches a whole key.
    pub(crate) pattern: Option<Regex>,
    pub(crate) min_length: usize,
    pub(crate) max_length: usize,
    pub(crate) null_key: NullKey,
}

/// What is wrong with a key. The key itself is not quoted: whoever sees the reason may not be meant to see the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wrong {
    #[error("key is not UTF-8")]
    NotUtf8,
    #[error("key is not a UUID")]
    NotUuid,
    #[error("key does not match the pattern")]
    NoMatch,
    #[error("key has {length} bytes; at least {min} are needed")]
    TooShort { length: usize, min: usize },
    #[error("key has {length} bytes; at most {max} are allowed")]
    TooLong { length: usize, max: usize },
}

impl KeyCheck {
    /// The normal form of a key that is as agreed.
    pub(crate) fn check<'a>(&self, key: &'a [u8]) -> Result<Cow<'a, [u8]>, Wrong> {
        if self.format == Format::Bytes && self.pattern.is_none() && self.normalise.is_empty() {
            self.check_length(key.len())?;
            return Ok(Cow::Borrowed(key));
        }
        let mut text = Cow::Borrowed(std::str::from_utf8(key).map_err(|_| Wrong::NotUtf8)?);
        for step in &self.normalise {
            text = step.apply(text)?;
        }
        self.check_length(text.len())?;
        if self.format == Format::Uuid && (text.len() != HYPHENATED || Uuid::try_parse(&text).is_err()) {
            return Err(Wrong::NotUuid);
        }
        if self.pattern.as_ref().is_some_and(|pattern| !pattern.is_match(&text)) {
            return Err(Wrong::NoMatch);
        }
        Ok(match text {
            Cow::Borrowed(text) if text.len() == key.len() => Cow::Borrowed(key),
            text => Cow::Owned(text.into_owned().into_bytes()),
        })
    }

    fn check_length(&self, length: usize) -> Result<(), Wrong> {
        if length < self.min_length {
            return Err(Wrong::TooShort { length, min: self.min_length });
        }
        if length > self.max_length {
            return Err(Wrong::TooLong { length, max: self.max_length });
        }
        Ok(())
    }
}

impl Normalise {
    fn apply(self, text: Cow<'_, str>) -> Result<Cow<'_, str>, Wrong> {
        Ok(match self {
            Self::Trim => match text {
                Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
                Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
            },
            Self::Lowercase => {
                if text.chars().any(|letter| !letter.is_ascii() || letter.is_ascii_uppercase()) {
                    Cow::Owned(text.to_lowercase())
                } else {
                    text
                }
            }
            Self::Uuid => {
                let uuid = Uuid::try_parse(&text).map_err(|_| Wrong::NotUuid)?;
                let mut buffer = Uuid::encode_buffer();
                Cow::Owned(uuid.hyphenated().encode_lower(&mut buffer).to_owned())
            }
        })
    }
}
