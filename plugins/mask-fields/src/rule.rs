//! The checked rules, and what each does to one value.

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use tidegate_json::{Paths, Set, decode, encode};

/// The rules, by the numbers of their paths.
pub(crate) struct Rules {
    pub(crate) paths: Paths,
    pub(crate) rules: Vec<Rule>,
    /// The rules that remove.
    pub(crate) drops: Set,
    /// The rules that put another value in the place of one.
    pub(crate) values: Set,
    /// The rules that change a name.
    pub(crate) renames: Set,
}

/// What to do with a field.
pub(crate) enum Rule {
    Mask { keep: Keep, with: String },
    Hash(HashState),
    Drop,
    Rename { to: String },
}

/// What of a masked text stays readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Nothing,
    /// So many characters. A text that has no more than these is hidden as a whole.
    Ends {
        first: usize,
        last: usize,
    },
    /// What follows the last `@`. A text without one is hidden as a whole.
    Domain,
}

/// A hash that has taken in its key, so that a value costs no more than without one.
pub(crate) enum HashState {
    Plain,
    Keyed(Box<Hmac<Sha256>>),
}

impl Rules {
    pub(crate) fn new(paths: Paths, rules: Vec<Rule>) -> Self {
        let those = |is: fn(&Rule) -> bool| {
            rules.iter().enumerate().filter(|(_, rule)| is(rule)).map(|(index, _)| index).collect()
        };
        Self {
            drops: those(|rule| matches!(rule, Rule::Drop)),
            values: those(|rule| matches!(rule, Rule::Mask { .. } | Rule::Hash(_))),
            renames: those(|rule| matches!(rule, Rule::Rename { .. })),
            paths,
            rules,
        }
    }

    /// The new name that a rule gives.
    pub(crate) fn new_name(&self, index: usize) -> &str {
        match &self.rules[index] {
            Rule::Rename { to } => to,
            _ => "",
        }
    }
}

impl Rule {
    /// Writes what takes the place of `json`, the text of one value.
    pub(crate) fn write(&self, json: &str, out: &mut Vec<u8>) {
        // A null hides nothing, and whoever reads the value may rely on its being one.
        if json == "null" {
            out.extend_from_slice(json.as_bytes());
            return;
        }
        out.push(b'"');
        match self {
            Rule::Mask { keep, with } => write_mask(*keep, with, json, out),
            Rule::Hash(state) => write_hex(&state.hash(says(json).as_bytes()), out),
            Rule::Drop | Rule::Rename { .. } => {}
        }
        out.push(b'"');
    }
}

/// The start of a hash with or without a key.
pub(crate) fn hash_state(key: Option<&[u8]>) -> HashState {
    match key {
        None => HashState::Plain,
        Some(key) => HashState::Keyed(Box::new(Hmac::new_from_slice(key).expect("an HMAC takes a key of any length"))),
    }
}

impl HashState {
    fn hash(&self, text: &[u8]) -> [u8; 32] {
        match self {
            HashState::Plain => Sha256::digest(text).into(),
            HashState::Keyed(state) => Hmac::clone(state).chain_update(text).finalize().into_bytes().into(),
        }
    }
}

/// What a value says: a string without quotes and escapes, so that each way to write it says the same; else its text.
fn says(json: &str) -> std::borrow::Cow<'_, str> {
    if json.starts_with('"') { decode(json) } else { json.into() }
}

fn write_mask(keep: Keep, with: &str, json: &str, out: &mut Vec<u8>) {
    // Parts of a string or number can be kept; parts of anything else would be parts of a structure.
    let text = match json.as_bytes().first() {
        Some(b'"' | b'-' | b'0'..=b'9') if keep != Keep::Nothing => says(json),
        _ => "".into(),
    };
    let (before, after) = kept(keep, &text);
    encode(out, before);
    encode(out, with);
    encode(out, after);
}

/// What stays of `text` before and after what is hidden.
fn kept(keep: Keep, text: &str) -> (&str, &str) {
    match keep {
        Keep::Nothing => ("", ""),
        Keep::Domain => ("", text.rfind('@').map_or("", |at| &text[at..])),
        Keep::Ends { first, last } => {
            let hidden = text.chars().count().saturating_sub(first.saturating_add(last));
            if hidden == 0 {
                return ("", "");
            }
            let mut starts = text.char_indices().map(|(start, _)| start).chain([text.len()]);
            let start = starts.nth(first).unwrap_or(text.len());
            let end = starts.nth(hidden - 1).unwrap_or(text.len());
            (&text[..start], &text[end..])
        }
    }
}

fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(keep: Keep, json: &str, expected: &str) {
        let mut out = Vec::new();
        Rule::Mask { keep, with: "***".into() }.write(json, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_mask_hides_whatever_it_is_not_told_to_keep() {
        for json in [r#""secret""#, "12", "true", "[1]", r#"{"a": 1}"#, r#""""#] {
            check(Keep::Nothing, json, r#""***""#);
        }
        check(Keep::Nothing, "null", "null");
    }

    #[test]
    fn ends_are_kept_only_if_something_is_hidden() {
        let keep = Keep::Ends { first: 2, last: 1 };
        check(keep, r#""abcdef""#, r#""ab***f""#);
        check(keep, r#""abcd""#, r#""ab***d""#);
        check(keep, r#""abc""#, r#""***""#);
        check(keep, r#""""#, r#""***""#);
        check(keep, "-12345", r#""-1***5""#);
        check(keep, "true", r#""***""#);
        check(keep, r#"["abcdef"]"#, r#""***""#);
        check(Keep::Ends { first: 0, last: usize::MAX }, r#""abcdef""#, r#""***""#);
    }

    #[test]
    fn characters_are_counted_as_what_they_say() {
        let keep = Keep::Ends { first: 1, last: 1 };
        check(keep, r#""\u00e4\"\u00f6""#, "\"\u{e4}***\u{f6}\"");
        check(keep, r#""\"abc\n""#, r#""\"***\n""#);
    }

    #[test]
    fn a_domain_follows_the_last_at() {
        check(Keep::Domain, r#""ann@example.com""#, r#""***@example.com""#);
        check(Keep::Domain, r#""\"a@b\"@example.com""#, r#""***@example.com""#);
        check(Keep::Domain, r#""ann""#, r#""***""#);
        check(Keep::Domain, "5", r#""***""#);
    }

    #[track_caller]
    fn check_hash(key: Option<&str>, json: &str, expected: &str) {
        let mut out = Vec::new();
        Rule::Hash(hash_state(key.map(str::as_bytes))).write(json, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("\"{expected}\""));
    }

    #[test]
    fn hashes_are_those_of_the_standards() {
        // FIPS 180-2, appendix B.1, and RFC 4231, test case 2.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        check_hash(None, r#""abc""#, abc);
        check_hash(None, r#""\u0061bc""#, abc);
        check_hash(
            Some("Jefe"),
            r#""what do ya want for nothing?""#,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        );
    }
}
