//! One walk over a JSON text.

use std::ops::Range;

use crate::paths::{Paths, Reached, Set};
use crate::text;

/// How deep objects and arrays may nest: as deep as `serde_json` reads, and shallow enough for a guest's stack.
pub const MAX_DEPTH: usize = 128;

/// Why a text is not JSON. It quotes nothing of the text, which may be secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not JSON: expected {expected} at byte {at}")]
pub struct Malformed {
    /// What would have been right.
    pub expected: &'static str,
    /// Where, counted from 0.
    pub at: usize,
}

/// Who is shown what the paths reach.
pub trait Visitor {
    /// What is kept for each object or array on the way.
    type Frame: Default;

    /// A member or element of an object or array that a path leads into, reached or not, before its value is scanned.
    fn item(&mut self, frame: &mut Self::Frame, item: &Item<'_>) -> Walk;

    /// The value of an item at which a path ends, after it was scanned.
    fn value(&mut self, item: &Item<'_>, value: Range<usize>);

    /// The end of that object or array. `end` is where its last item's value ends, or else behind its opening bracket.
    fn close(&mut self, frame: &mut Self::Frame, end: usize) {
        let _ = (frame, end);
    }
}

/// Whether to look for more inside an item's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// Where paths lead further.
    Into,
    /// The value is checked, but nothing in it is shown.
    Over,
}

/// A member of an object or an element of an array.
#[derive(Clone, Debug)]
pub struct Item<'a> {
    /// The paths that end here.
    pub ends: Set,
    /// Where the value before it ends, or behind the opening bracket.
    pub gap: usize,
    /// Where the comma before it stands, if there is one.
    pub comma: Option<usize>,
    /// A member's name and where it stands, with its quotes.
    pub member: Option<(&'a [u8], Range<usize>)>,
}

/// Checks that `json` is one JSON value, and shows `visitor` what `paths` reach.
pub fn scan<V: Visitor>(json: &[u8], paths: &Paths, visitor: &mut V) -> Result<(), Malformed> {
    let text = std::str::from_utf8(json).map_err(|error| Malformed { expected: "UTF-8", at: error.valid_up_to() })?;
    let mut scanner = Scanner { text, bytes: json, at: 0, paths };
    scanner.space();
    scanner.walk(visitor, paths.all(), 0)?;
    scanner.space();
    if scanner.at < json.len() { Err(scanner.expected("the end")) } else { Ok(()) }
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    paths: &'a Paths,
}

impl Scanner<'_> {
    /// A value that `active` paths lead into.
    fn walk<V: Visitor>(&mut self, visitor: &mut V, active: Set, depth: usize) -> Result<(), Malformed> {
        match self.peek() {
            _ if active.is_empty() => self.skip(depth),
            Some(b'{') => self.walk_items(visitor, active, depth, b'}'),
            Some(b'[') => self.walk_items(visitor, active, depth, b']'),
            _ => self.skip(depth),
        }
    }

    fn walk_items<V: Visitor>(
        &mut self,
        visitor: &mut V,
        active: Set,
        depth: usize,
        close: u8,
    ) -> Result<(), Malformed> {
        self.open(depth)?;
        let mut frame = V::Frame::default();
        let mut gap = self.at;
        let mut comma = None;
        let mut index = 0;
        self.space();
        if !self.take(close) {
            loop {
                gap = self.walk_item(visitor, &mut frame, active, depth, close, Place { gap, comma, index })?;
                index += 1;
                self.space();
                if self.take(close) {
                    break;
                }
                comma = Some(self.at);
                self.comma(close)?;
            }
        }
        visitor.close(&mut frame, gap);
        Ok(())
    }

    /// One member or element; returns where its value ends.
    fn walk_item<V: Visitor>(
        &mut self,
        visitor: &mut V,
        frame: &mut V::Frame,
        active: Set,
        depth: usize,
        close: u8,
        place: Place,
    ) -> Result<usize, Malformed> {
        let name;
        let (Reached { ends, inside }, member) = if close == b'}' {
            let (span, escaped) = self.name()?;
            let json = &self.text[span.clone()];
            name = if escaped { text::decode(json) } else { json[1..json.len() - 1].into() };
            let name = name.as_bytes();
            (self.paths.to_member(active, depth, name), Some((name, span)))
        } else {
            (self.paths.to_element(active, depth, place.index), None)
        };
        let item = Item { ends, gap: place.gap, comma: place.comma, member };
        let walk = visitor.item(frame, &item);
        let start = self.at;
        match walk {
            Walk::Into => self.walk(visitor, inside, depth + 1)?,
            Walk::Over => self.skip(depth + 1)?,
        }
        if !ends.is_empty() {
            visitor.value(&item, start..self.at);
        }
        Ok(self.at)
    }

    /// Any value, only checked.
    fn skip(&mut self, depth: usize) -> Result<(), Malformed> {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'{') => self.skip_items(depth, b'}'),
            Some(b'[') => self.skip_items(depth, b']'),
            Some(b't') => self.literal(b"true", "`true`"),
            Some(b'f') => self.literal(b"false", "`false`"),
            Some(b'n') => self.literal(b"null", "`null`"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.expected("a value")),
        }
    }

    fn skip_items(&mut self, depth: usize, close: u8) -> Result<(), Malformed> {
        self.open(depth)?;
        self.space();
        if self.take(close) {
            return Ok(());
        }
        loop {
            if close == b'}' {
                self.name()?;
            }
            self.skip(depth + 1)?;
            self.space();
            if self.take(close) {
                return Ok(());
            }
            self.comma(close)?;
        }
    }

    /// The opening bracket.
    fn open(&mut self, depth: usize) -> Result<(), Malformed> {
        if depth >= MAX_DEPTH {
            return Err(self.expected("at most 128 levels of nesting"));
        }
        self.at += 1;
        Ok(())
    }

    fn comma(&mut self, close: u8) -> Result<(), Malformed> {
        if !self.take(b',') {
            return Err(self.expected(if close == b'}' { "`,` or `}`" } else { "`,` or `]`" }));
        }
        self.space();
        Ok(())
    }

    /// A member's name with its colon: where it stands, and whether it has escapes.
    fn name(&mut self) -> Result<(Range<usize>, bool), Malformed> {
        if self.peek() != Some(b'"') {
            return Err(self.expected("a name in quotes"));
        }
        let start = self.at;
        let escaped = self.string()?;
        let end = self.at;
        self.space();
        if !self.take(b':') {
            return Err(self.expected("`:`"));
        }
        self.space();
        Ok((start..end, escaped))
    }

    /// A string from its opening quote; returns whether it has escapes.
    fn string(&mut self) -> Result<bool, Malformed> {
        self.at += 1;
        let mut escaped = false;
        loop {
            self.plain();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return Err(self.expected("an escape instead of a control character")),
                None => return Err(self.expected("`\"`")),
            }
        }
    }

    /// Goes to the next byte that is not plain text, eight bytes at a time.
    #[inline]
    fn plain(&mut self) {
        while let Some(chunk) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk) {
            let special = special(u64::from_le_bytes(*chunk));
            if special != 0 {
                self.at += (special.trailing_zeros() / 8) as usize;
                return;
            }
            self.at += 8;
        }
        while self.peek().is_some_and(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
            self.at += 1;
        }
    }

    fn escape(&mut self) -> Result<(), Malformed> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return Err(self.expected("four hexadecimal digits"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.expected("an escape")),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Malformed> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _sign = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.expected("a digit")) } else { Ok(()) }
    }

    fn literal(&mut self, literal: &[u8], expected: &'static str) -> Result<(), Malformed> {
        if !self.bytes[self.at..].starts_with(literal) {
            return Err(self.expected(expected));
        }
        self.at += literal.len();
        Ok(())
    }

    #[inline]
    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn expected(&self, expected: &'static str) -> Malformed {
        Malformed { expected, at: self.at }
    }
}

/// Where an item stands among its siblings.
#[derive(Clone, Copy)]
struct Place {
    gap: usize,
    comma: Option<usize>,
    index: usize,
}

/// The high bit of each byte that is a quote, a backslash or a control character; the lowest one that is set is exact, and
/// no other matters. Bytes beyond ASCII are none of them.
#[inline]
fn special(chunk: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;
    let below = |chunk: u64, bound: u8| chunk.wrapping_sub(ONES * u64::from(bound)) & !chunk & HIGHS;
    let equal = |byte: u8| below(chunk ^ (ONES * u64::from(byte)), 1);
    below(chunk, b' ') | equal(b'"') | equal(b'\\')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    use super::*;

    /// Collects the values that the paths reach.
    #[derive(Default)]
    struct Found(Vec<(usize, Range<usize>)>);

    impl Visitor for Found {
        type Frame = ();

        fn item(&mut self, (): &mut (), _: &Item<'_>) -> Walk {
            Walk::Into
        }

        fn value(&mut self, item: &Item<'_>, value: Range<usize>) {
            self.0.extend(item.ends.map(|path| (path, value.clone())));
        }
    }

    fn paths(written: &[&str]) -> Paths {
        Paths::new(written.iter().map(|path| path.parse().unwrap())).unwrap()
    }

    fn find<'a>(json: &'a str, written: &[&str]) -> Result<Vec<(usize, &'a str)>, Malformed> {
        let mut found = Found::default();
        scan(json.as_bytes(), &paths(written), &mut found)?;
        Ok(found.0.into_iter().map(|(path, span)| (path, &json[span])).collect())
    }

    #[test]
    fn paths_reach_members_and_elements() {
        let json = r#" { "a" : { "b" : 1 , "c":[ {"d":2},{"d" : 3 } ]}, "a": true,"\u0061" : "x" } "#;
        assert_eq!(find(json, &["a.b"]), Ok(vec![(0, "1")]));
        assert_eq!(find(json, &["a.c.*.d", "a.c.1"]), Ok(vec![(0, "2"), (0, "3"), (1, r#"{"d" : 3 }"#)]));
        assert_eq!(find(json, &["b", "a.c.d", "a.c.2"]), Ok(vec![]));
        let all = find(json, &["a"]).unwrap();
        assert_eq!(all.len(), 3, "a repeated name and an escaped one are the same member");
        assert_eq!(all[2], (0, r#""x""#));
    }

    #[test]
    fn errors_say_where_and_what() {
        for (json, expected) in [
            ("", "not JSON: expected a value at byte 0"),
            ("{\"a\" 1}", "not JSON: expected `:` at byte 5"),
            ("{\"a\":1,}", "not JSON: expected a name in quotes at byte 7"),
            ("[1 2]", "not JSON: expected `,` or `]` at byte 3"),
            ("[01]", "not JSON: expected `,` or `]` at byte 2"),
            ("\"\\x\"", "not JSON: expected an escape at byte 2"),
            ("\"a\nb\"", "not JSON: expected an escape instead of a control character at byte 2"),
            ("nul", "not JSON: expected `null` at byte 0"),
            ("1 1", "not JSON: expected the end at byte 2"),
            ("\u{feff}1", "not JSON: expected a value at byte 0"),
        ] {
            assert_eq!(find(json, &["a"]).unwrap_err().to_string(), expected, "{json}");
        }
        let mut found = Found::default();
        let error = scan(b"\"a\xff\"", &paths(&["a"]), &mut found).unwrap_err();
        assert_eq!(error, Malformed { expected: "UTF-8", at: 2 });
    }

    #[test]
    fn nesting_is_limited_on_and_off_the_path() {
        for path in ["a", "0"] {
            let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
            assert!(find(&nested(MAX_DEPTH), &[path]).is_ok());
            assert!(find(&nested(MAX_DEPTH + 1), &[path]).is_err());
        }
    }

    /// Pieces of JSON, right and wrong, from which texts are put together.
    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            "[\\[\\]{}:,\"\\\\ \n0-9.eE+\\-]",
            "[a-z\u{e4}\u{1}]{1,10}",
            Just("\"a\"".into()),
            Just("\"a\":".into()),
            Just("\\u00e4".into()),
            Just("\\\"".into()),
            Just("true".into()),
            Just("null".into()),
            Just("-1.5e3".into()),
            Just("{\"b\":[1,\"text that is longer\"]}".into()),
        ]
    }

    proptest! {
        #[test]
        fn a_text_passes_if_serde_reads_it(pieces in proptest::collection::vec(piece(), 0..8)) {
            let json = pieces.concat();
            let expected = serde_json::from_str::<IgnoredAny>(&json).is_ok();
            prop_assert_eq!(find(&json, &["a", "*.b"]).is_ok(), expected, "{}", json);
        }

        #[test]
        fn eight_bytes_are_searched_as_one_by_one(text in proptest::collection::vec(
            prop_oneof![any::<u8>(), Just(b'"'), Just(b'\\'), Just(0x1f), Just(b' ')], 8)
        ) {
            let chunk = u64::from_le_bytes(text.clone().try_into().unwrap());
            let found = (special(chunk) != 0).then(|| (special(chunk).trailing_zeros() / 8) as usize);
            let expected = text.iter().position(|byte| *byte < b' ' || *byte == b'"' || *byte == b'\\');
            prop_assert_eq!(found, expected);
        }
    }
}
