//! What is done with keys before the first plugin.

use regex::Regex;

use crate::config::{KeyFormat, Keys, MissingKey};
use crate::delivery::{Fate, OnError, Rejection, Stage};

#[derive(Clone, Debug)]
pub struct Policy {
    missing: MissingKey,
    format: Option<KeyFormat>,
    malformed: OnError,
}

impl Policy {
    /// # Errors
    /// If a regular expression that compiles by itself does not when it is anchored, as one that is near the size limit.
    pub fn try_new(keys: &Keys) -> Result<Self, regex::Error> {
        let format = match &keys.format {
            Some(KeyFormat::Regex(regex)) => Some(KeyFormat::Regex(whole(regex)?)),
            other => other.clone(),
        };
        Ok(Self { missing: keys.missing, format, malformed: keys.malformed })
    }

    /// Whether no key needs a look.
    pub fn accepts_all(&self) -> bool {
        self.missing == MissingKey::Pass && self.format.is_none()
    }

    /// What becomes of a record with this key. `None` = it goes on.
    pub fn judge(&self, key: Option<&[u8]>) -> Option<Fate> {
        match key {
            None => match self.missing {
                MissingKey::Pass => None,
                MissingKey::Drop => Some(Fate::Drop),
                MissingKey::DeadLetter => Some(reject("the key is missing", OnError::DeadLetter)),
                MissingKey::Halt => Some(reject("the key is missing", OnError::Halt)),
            },
            Some(key) => malformed(self.format.as_ref()?, key).map(|fault| reject(fault, self.malformed)),
        }
    }
}

/// The same expression, matching whole texts only. Searching for a match and comparing its ends is not the same: `a|ab`
/// finds `a` in `ab`.
fn whole(regex: &Regex) -> Result<Regex, regex::Error> {
    let text = regex.as_str();
    // In an expression in verbose mode, which may end in a comment, the line break closes that and matches nothing.
    Regex::new(&format!(r"\A(?:{text})\z")).or_else(|_| Regex::new(&format!("\\A(?:{text}\n)\\z")))
}

fn reject(cause: &str, policy: OnError) -> Fate {
    Fate::Reject(Rejection { stage: Stage::Key, cause: cause.to_owned(), policy, attempts: 1 })
}

/// Why `key` is not of `format`; the key itself is not repeated, since keys may be personal data.
fn malformed(format: &KeyFormat, key: &[u8]) -> Option<&'static str> {
    let Ok(text) = std::str::from_utf8(key) else {
        return Some("the key is not utf-8");
    };
    let (valid, fault) = match format {
        KeyFormat::Utf8 => (true, ""),
        KeyFormat::Uuid => (uuid::Uuid::try_parse(text).is_ok(), "the key is not a uuid"),
        KeyFormat::Integer => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            (valid, "the key is not a decimal integer")
        }
        KeyFormat::Json => (serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok(), "the key is not json"),
        KeyFormat::Regex(whole) => (whole.is_match(text), "the key does not match the expression of its format"),
    };
    (!valid).then_some(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(missing: MissingKey, format: Option<KeyFormat>) -> Policy {
        Policy::try_new(&Keys { missing, format, malformed: OnError::Halt }).expect("valid")
    }

    fn check(format: KeyFormat, good: &[&[u8]], bad: &[&[u8]]) {
        let policy = policy(MissingKey::Pass, Some(format));
        for key in good {
            assert_eq!(policy.judge(Some(key)), None, "{}", String::from_utf8_lossy(key));
        }
        for key in bad {
            let fate = policy.judge(Some(key));
            assert!(
                matches!(&fate, Some(Fate::Reject(Rejection { stage: Stage::Key, policy: OnError::Halt, .. }))),
                "{} {fate:?}",
                String::from_utf8_lossy(key)
            );
        }
        assert_eq!(policy.judge(None), None, "a missing key is not a malformed one");
    }

    #[test]
    fn a_missing_key_meets_its_policy() {
        assert_eq!(policy(MissingKey::Pass, None).judge(None), None);
        assert_eq!(policy(MissingKey::Drop, None).judge(None), Some(Fate::Drop));
        for (missing, expected) in [(MissingKey::DeadLetter, OnError::DeadLetter), (MissingKey::Halt, OnError::Halt)] {
            match policy(missing, None).judge(None) {
                Some(Fate::Reject(rejection)) => assert_eq!(rejection.policy, expected),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(policy(MissingKey::Halt, None).judge(Some(b"")), None, "empty is not missing");
    }

    #[test]
    fn formats() {
        check(KeyFormat::Utf8, &[b"", b"a", "ü".as_bytes()], &[b"\xff"]);
        check(
            KeyFormat::Uuid,
            &[b"67e55044-10b1-426f-9247-bb680e5fe0c8", b"67e5504410b1426f9247bb680e5fe0c8"],
            &[b"", b"67e55044", b"\xff", b"67e55044-10b1-426f-9247-bb680e5fe0c8 "],
        );
        check(
            KeyFormat::Integer,
            &[b"0", b"-12", b"99999999999999999999999"],
            &[b"", b"-", b"+1", b"1.0", b" 1", b"1a"],
        );
        check(KeyFormat::Json, &[b"1", b"\"a\"", b"{\"a\": [null]}"], &[b"", b"{", b"a", b"1 2"]);
        let regex = |text| KeyFormat::Regex(Regex::new(text).expect("valid"));
        check(regex("[a-z]+"), &[b"abc"], &[b"", b"abc1", b"1abc", b"abc\n", b"\xff"]);
    }

    /// A leftmost-first alternative must not hide a longer one that covers the whole key.
    #[test]
    fn a_regex_must_cover_the_whole_key() {
        check(KeyFormat::Regex(Regex::new("a|ab").expect("valid")), &[b"a", b"ab"], &[b"abc"]);
        check(KeyFormat::Regex(Regex::new("(?x) a | ab # two").expect("valid")), &[b"a", b"ab"], &[b"abc", b"ab\n"]);
    }
}
