//! A record as one line of JSON: what the file sink and dead letters write, and what an NDJSON source reads.
//!
//! ```json
//! {"topic":"users","partition":0,"offset":7,"timestamp":1700000000000,"key":"a","value":{"n":1},"headers":[["h","v"]]}
//! ```
//!
//! | field | text | other bytes | null |
//! |---|---|---|---|
//! | key | `"key":"a"` | `"key_base64":"/w=="` | left out |
//! | value | `"value":` and the JSON document, byte for byte | `"value_base64":"/w=="` | `"value":null` |
//! | header's name | `"h"` | `{"base64":"/w=="}` | |
//! | header's value | `"v"` | `{"base64":"/w=="}` | `null` |
//!
//! A value is written inline when it is a JSON document that a reader finds again as it was: valid, on one line, without
//! white space around it, and not the text `null`, so that a plain `null` is always a tombstone. An empty value is an empty
//! `value_base64`. The timestamp is left out when there is none, the headers when there are none.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::record::{Batch, Record, TopicPartition};

/// The timestamp of a record that has none.
pub const NO_TIMESTAMP: i64 = -1;

/// Appends `record` as one line, line break included.
pub fn write_record(out: &mut Vec<u8>, partition: &TopicPartition, record: &Record<'_>) {
    out.push(b'{');
    write_fields(out, partition, record);
    out.extend_from_slice(b"}\n");
}

/// Appends the fields of `record` without the braces around them, for a line that says more beside them.
pub fn write_fields(out: &mut Vec<u8>, partition: &TopicPartition, record: &Record<'_>) {
    out.extend_from_slice(b"\"topic\":");
    write_string(out, &partition.topic);
    out.extend_from_slice(b",\"partition\":");
    write_integer(out, partition.partition.into());
    out.extend_from_slice(b",\"offset\":");
    write_integer(out, record.offset);
    if record.timestamp != NO_TIMESTAMP {
        out.extend_from_slice(b",\"timestamp\":");
        write_integer(out, record.timestamp);
    }
    match record.key.map(|key| (std::str::from_utf8(key), key)) {
        None => {}
        Some((Ok(text), _)) => {
            out.extend_from_slice(b",\"key\":");
            write_string(out, text);
        }
        Some((Err(_), bytes)) => {
            out.extend_from_slice(b",\"key_base64\":");
            write_base64(out, bytes);
        }
    }
    match record.value {
        None => out.extend_from_slice(b",\"value\":null"),
        Some(document) if is_inline(document) => {
            out.extend_from_slice(b",\"value\":");
            out.extend_from_slice(document);
        }
        Some(bytes) => {
            out.extend_from_slice(b",\"value_base64\":");
            write_base64(out, bytes);
        }
    }
    let mut separator: &[u8] = b",\"headers\":[[";
    for (name, value) in record.headers {
        out.extend_from_slice(separator);
        separator = b"],[";
        write_bytes(out, name);
        out.push(b',');
        match value {
            None => out.extend_from_slice(b"null"),
            Some(value) => write_bytes(out, value),
        }
    }
    if record.headers.len() > 0 {
        out.extend_from_slice(b"]]");
    }
}

/// Whether `value` is written as it stands.
fn is_inline(value: &[u8]) -> bool {
    let (Some(first), Some(last)) = (value.first(), value.last()) else { return false };
    !first.is_ascii_whitespace()
        && !last.is_ascii_whitespace()
        && value != b"null"
        && !value.iter().any(|byte| matches!(byte, b'\n' | b'\r'))
        // Skipping over a document leaves the bytes inside its strings unchecked.
        && std::str::from_utf8(value).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => write_string(out, text),
        Err(_) => {
            out.extend_from_slice(b"{\"base64\":");
            write_base64(out, bytes);
            out.push(b'}');
        }
    }
}

fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = base64::encoded_len(bytes.len(), true).expect("a Kafka field is shorter than 2 GiB");
    out.push(b'"');
    let start = out.len();
    out.resize(start + length, 0);
    STANDARD.encode_slice(bytes, &mut out[start..]).expect("the room is the encoded length");
    out.push(b'"');
}

fn write_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a string is always written to a vector");
}

fn write_integer(out: &mut Vec<u8>, number: i64) {
    serde_json::to_writer(out, &number).expect("a number is always written to a vector");
}

/// One line, taken apart. What was left out is `None`.
#[derive(Debug, PartialEq, Eq)]
pub struct Line<'a> {
    pub topic: Option<Cow<'a, str>>,
    pub partition: Option<i32>,
    pub offset: Option<i64>,
    pub timestamp: Option<i64>,
    pub key: Option<Cow<'a, [u8]>>,
    /// `None` = a tombstone; a line that says nothing of the value is refused.
    pub value: Option<Cow<'a, [u8]>>,
    pub headers: Vec<Header<'a>>,
}

/// A header's name and value.
pub type Header<'a> = (Cow<'a, [u8]>, Option<Cow<'a, [u8]>>);

/// Why a line is not a record.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON, or not of the right shape; serde's message with its column.
    #[error("{message} (column {column})")]
    Shape { message: String, column: usize },
    #[error("`{0}` and `{0}_base64` are both given; give one of them")]
    Both(&'static str),
    #[error("neither `value` nor `value_base64` is given; a tombstone is `\"value\":null`")]
    NoValue,
    #[error("`{field}` is not base64: {cause}")]
    Base64 { field: &'static str, cause: base64::DecodeError },
}

impl<'a> Line<'a> {
    /// Takes `line` apart; a line break at its end does no harm.
    ///
    /// # Errors
    /// See [`Error`]. Unknown fields and fields given twice are errors, so that a slip of the pen never becomes a tombstone.
    pub fn parse(line: &'a [u8]) -> Result<Self, Error> {
        let raw: Raw<'a> = serde_json::from_slice(line).map_err(Error::shape)?;
        let key = match (raw.key, raw.key_base64) {
            (Some(_), Some(_)) => return Err(Error::Both("key")),
            (Some(text), None) => Some(into_bytes(text)),
            (None, Some(encoded)) => Some(decode("key_base64", &encoded)?),
            (None, None) => None,
        };
        let value = match (raw.value, raw.value_base64) {
            (Some(_), Some(_)) => return Err(Error::Both("value")),
            (Some(document), None) if document.get() == "null" => None,
            (Some(document), None) => Some(Cow::Borrowed(document.get().as_bytes())),
            (None, Some(encoded)) => Some(decode("value_base64", &encoded)?),
            (None, None) => return Err(Error::NoValue),
        };
        let headers =
            raw.headers.into_iter().map(|(name, value)| Ok((name.decode()?, value.map(Bytes::decode).transpose()?)));
        Ok(Self {
            topic: raw.topic,
            partition: raw.partition,
            offset: raw.offset,
            timestamp: raw.timestamp,
            key,
            value,
            headers: headers.collect::<Result<_, Error>>()?,
        })
    }

    /// Appends the record to `batch`, at `offset`.
    pub fn push_to(&self, batch: &mut Batch, offset: i64) {
        batch.push(offset, self.timestamp.unwrap_or(NO_TIMESTAMP), self.key.as_deref(), self.value.as_deref());
        for (name, value) in &self.headers {
            batch.push_header(name, value.as_deref());
        }
    }
}

impl Error {
    fn shape(error: serde_json::Error) -> Self {
        let column = error.column();
        let text = error.to_string();
        // Serde counts lines within the one line that it is given.
        let message = text.split_once(" at line ").map_or(text.as_str(), |(message, _)| message).to_owned();
        Self::Shape { message, column }
    }
}

/// The fields as they are written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw<'a> {
    #[serde(default, borrow)]
    topic: Option<Cow<'a, str>>,
    #[serde(default)]
    partition: Option<i32>,
    #[serde(default)]
    offset: Option<i64>,
    #[serde(default)]
    timestamp: Option<i64>,
    #[serde(default, borrow)]
    key: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    key_base64: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "given")]
    value: Option<&'a RawValue>,
    #[serde(default, borrow)]
    value_base64: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    headers: Vec<(Bytes<'a>, Option<Bytes<'a>>)>,
}

/// Keeps a `null` that is written apart from a field that is left out.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields, expecting = "expected a string or `{\"base64\": \"…\"}`")]
enum Bytes<'a> {
    Text(#[serde(borrow)] Cow<'a, str>),
    Encoded {
        #[serde(borrow)]
        base64: Cow<'a, str>,
    },
}

impl<'a> Bytes<'a> {
    fn decode(self) -> Result<Cow<'a, [u8]>, Error> {
        match self {
            Self::Text(text) => Ok(into_bytes(text)),
            Self::Encoded { base64 } => decode("headers", &base64),
        }
    }
}

fn into_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

fn decode<'a>(field: &'static str, encoded: &str) -> Result<Cow<'a, [u8]>, Error> {
    STANDARD.decode(encoded).map(Cow::Owned).map_err(|cause| Error::Base64 { field, cause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(key: Option<&[u8]>, value: Option<&[u8]>, headers: &[(&[u8], Option<&[u8]>)]) -> String {
        let partition = TopicPartition::new("t", 3);
        let mut batch = Batch::new(partition.clone());
        batch.push(7, 1000, key, value);
        headers.iter().for_each(|(name, value)| batch.push_header(name, *value));
        let mut out = Vec::new();
        write_record(&mut out, &partition, &batch.iter().next().expect("one record"));
        String::from_utf8(out).expect("a line is UTF-8")
    }

    fn check_value(value: Option<&str>, expected: &str) {
        let start = "{\"topic\":\"t\",\"partition\":3,\"offset\":7,\"timestamp\":1000,\"key\":\"k\",";
        assert_eq!(written(Some(b"k"), value.map(str::as_bytes), &[]), format!("{start}{expected}}}\n"));
    }

    #[test]
    fn a_json_document_stands_inline_byte_for_byte() {
        for document in [
            "{}",
            "[1,  2]",
            "\"text\"",
            "true",
            "12345678901234567890123456789",
            "1.50e+2",
            "{\"a\":1,\"a\":2}",
            "{\"s\":\"\\ud800 \\u00e9\"}",
        ] {
            check_value(Some(document), &format!("\"value\":{document}"));
        }
    }

    #[test]
    fn what_a_reader_could_mistake_is_base64() {
        check_value(None, "\"value\":null");
        check_value(Some("null"), "\"value_base64\":\"bnVsbA==\"");
        check_value(Some(""), "\"value_base64\":\"\"");
        check_value(Some(" 1"), "\"value_base64\":\"IDE=\"");
        check_value(Some("1 "), "\"value_base64\":\"MSA=\"");
        check_value(Some("[1,\n2]"), "\"value_base64\":\"WzEsCjJd\"");
        check_value(Some("plain"), "\"value_base64\":\"cGxhaW4=\"");
        check_value(Some("1}"), "\"value_base64\":\"MX0=\"");
    }

    #[test]
    fn invalid_utf8_inside_a_json_string_is_base64() {
        assert!(written(None, Some(b"\"\xff\""), &[]).ends_with("\"timestamp\":1000,\"value_base64\":\"Iv8i\"}\n"));
    }

    #[test]
    fn keys_and_headers_keep_null_empty_absent_and_bytes_apart() {
        let headers: [(&[u8], Option<&[u8]>); 5] =
            [(b"h", Some(b"v")), (b"h", None), (b"", Some(b"")), (b"\xff", Some(b"\xfe")), (b"\n", Some(b"\""))];
        assert!(written(Some(b""), None, &headers).ends_with(
            "\"key\":\"\",\"value\":null,\"headers\":[[\"h\",\"v\"],[\"h\",null],[\"\",\"\"],\
             [{\"base64\":\"/w==\"},{\"base64\":\"/g==\"}],[\"\\n\",\"\\\"\"]]}\n"
        ));
        assert!(written(Some(b"\xff"), None, &[]).contains("\"key_base64\":\"/w==\""));
        assert!(!written(None, None, &[]).contains("key"));
    }

    fn check_error(line: &str, expected: &str) {
        assert_eq!(Line::parse(line.as_bytes()).expect_err("not a record").to_string(), expected);
    }

    #[test]
    fn a_line_that_is_not_a_record_says_why() {
        check_error("{\"key\":\"k\"}", "neither `value` nor `value_base64` is given; a tombstone is `\"value\":null`");
        check_error(
            "{\"value\":1,\"value_base64\":\"\"}",
            "`value` and `value_base64` are both given; give one of them",
        );
        check_error(
            "{\"key\":\"\",\"key_base64\":\"\",\"value\":1}",
            "`key` and `key_base64` are both given; give one of them",
        );
        check_error("{\"value_base64\":\"*\"}", "`value_base64` is not base64: Invalid symbol 42, offset 0.");
        check_error("{\"key\":1,\"value\":1}", "invalid type: integer `1`, expected a string (column 8)");
        check_error("{\"value\":1", "EOF while parsing an object (column 10)");
        check_error("{\"value\":1,\"value\":2}", "duplicate field `value` (column 18)");
        let unknown = Line::parse(b"{\"vlaue\":1}").expect_err("not a record").to_string();
        assert!(unknown.starts_with("unknown field `vlaue`, expected one of `topic`, "), "{unknown}");
        let header = Line::parse(b"{\"value\":1,\"headers\":[[1,null]]}").expect_err("not a record").to_string();
        assert!(header.starts_with("expected a string or `{\"base64\": \"…\"}`"), "{header}");
    }

    #[test]
    fn null_and_absent_keys_are_the_same_and_empty_is_not() {
        let key = |line: &'static str| Line::parse(line.as_bytes()).expect("a record").key;
        assert_eq!(key("{\"value\":null}"), None);
        assert_eq!(key("{\"key\":null,\"value\":null}"), None);
        assert_eq!(key("{\"key\":\"\",\"value\":null}"), Some(Cow::Borrowed(&b""[..])));
    }

    #[test]
    fn white_space_around_an_inline_null_still_means_a_tombstone() {
        assert_eq!(Line::parse(b"{\"value\" : null }\r\n").expect("a record").value, None);
    }

    type Owned = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..8),
            "[ -~\\n\"\\\\é]{0,8}".prop_map(String::into_bytes),
            proptest::sample::select(vec!["", "null", " null", "{\"a\":[1,2 ]}", "0", "\"x\"", "[\r1]", "1 "])
                .prop_map(|text| text.as_bytes().to_vec()),
        ]
    }

    fn record() -> impl Strategy<Value = Owned> {
        let field = || proptest::option::of(bytes());
        (any::<i64>(), any::<i64>(), field(), field(), proptest::collection::vec((bytes(), field()), 0..4))
    }

    proptest! {
        #[test]
        fn every_record_comes_back_as_it_was((offset, timestamp, key, value, headers) in record()) {
            let partition = TopicPartition::new("a\"é", 2);
            let mut batch = Batch::new(partition.clone());
            batch.push(offset, timestamp, key.as_deref(), value.as_deref());
            headers.iter().for_each(|(name, value)| batch.push_header(name, value.as_deref()));
            let mut out = Vec::new();
            write_record(&mut out, &partition, &batch.iter().next().expect("one record"));
            prop_assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
            prop_assert_eq!(out.last(), Some(&b'\n'));

            let line = Line::parse(&out).expect("what was written is read");
            prop_assert_eq!(line.topic.as_deref(), Some("a\"é"));
            prop_assert_eq!(line.partition, Some(2));
            prop_assert_eq!(line.offset, Some(offset));
            let mut read = Batch::new(partition);
            line.push_to(&mut read, offset);
            prop_assert_eq!(read.timestamps(), batch.timestamps());
            prop_assert_eq!(read.lengths(), batch.lengths());
            prop_assert_eq!(read.data(), batch.data());
        }

        #[test]
        fn no_line_makes_the_parser_panic(line in "[{}\\[\\]\":,a-z0-9 =/\\\\]{0,60}") {
            drop(Line::parse(line.as_bytes()));
        }
    }
}
