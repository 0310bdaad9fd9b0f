//! JSON strings: what their escapes mean, and how to write them.

use std::borrow::Cow;

/// What a JSON string says. `json` is the string as it stands in a text that [`scan`](crate::scan()) has passed, with its
/// quotes. Half of a surrogate pair, which JSON can write but no text can hold, becomes U+FFFD.
pub fn decode(json: &str) -> Cow<'_, str> {
    let inner = json.get(1..json.len().saturating_sub(1)).unwrap_or_default();
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.push_str(plain);
        let (meaning, after) = unescape(escape);
        text.push(meaning);
        rest = after;
    }
    text.push_str(rest);
    Cow::Owned(text)
}

/// Writes a text as the inside of a JSON string, without quotes.
pub fn encode(out: &mut Vec<u8>, text: &str) {
    let mut copied = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&text.as_bytes()[copied..at]);
        copied = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => out.extend_from_slice(format!("\\u{control:04x}").as_bytes()),
        }
    }
    out.extend_from_slice(&text.as_bytes()[copied..]);
}

/// What an escape means, from behind its backslash, and what follows it.
fn unescape(escape: &str) -> (char, &str) {
    let mut chars = escape.chars();
    let meaning = match chars.next() {
        Some('n') => '\n',
        Some('t') => '\t',
        Some('r') => '\r',
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('u') => return unescape_unicode(chars.as_str()),
        Some(plain) => plain,
        None => char::REPLACEMENT_CHARACTER,
    };
    (meaning, chars.as_str())
}

fn unescape_unicode(after_u: &str) -> (char, &str) {
    let (first, rest) = code_unit(after_u);
    if !(0xd800..0xdc00).contains(&first) {
        return (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), rest);
    }
    // A high surrogate takes a low one with it; alone it means nothing.
    if let Some(after_u) = rest.strip_prefix("\\u")
        && let (second @ 0xdc00..0xe000, rest) = code_unit(after_u)
    {
        let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), rest);
    }
    (char::REPLACEMENT_CHARACTER, rest)
}

fn code_unit(digits: &str) -> (u32, &str) {
    match digits.split_at_checked(4) {
        Some((digits, rest)) => {
            (u32::from_str_radix(digits, 16).unwrap_or(u32::from(char::REPLACEMENT_CHARACTER)), rest)
        }
        None => (u32::from(char::REPLACEMENT_CHARACTER), ""),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_mean_what_the_rfc_says() {
        assert_eq!(decode(r#""plain""#), "plain");
        assert_eq!(decode(r#""\"\\\/\b\f\n\r\t""#), "\"\\/\u{8}\u{c}\n\r\t");
        assert_eq!(decode(r#""\u0065m\u00E4il""#), "em\u{e4}il");
        assert_eq!(decode(r#""\ud83d\ude00!""#), "\u{1f600}!");
    }

    #[test]
    fn half_a_pair_is_replaced() {
        assert_eq!(decode(r#""\ud83d""#), "\u{fffd}");
        assert_eq!(decode(r#""\ude00x""#), "\u{fffd}x");
        assert_eq!(decode(r#""\ud83d\u0041""#), "\u{fffd}A");
        assert_eq!(decode(r#""\ud83d\n""#), "\u{fffd}\n");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(text in any::<String>()) {
            let mut json = b"\"".to_vec();
            encode(&mut json, &text);
            json.push(b'"');
            let json = String::from_utf8(json).unwrap();
            prop_assert_eq!(decode(&json), text.as_str());
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }

        #[test]
        fn escaped_units_read_as_serde_reads_them(units in proptest::collection::vec(any::<u16>(), 0..6)) {
            let json: String = units.iter().map(|unit| format!("\\u{unit:04X}")).collect();
            let json = format!("\"{json}\"");
            let text = String::from_utf16_lossy(&units);
            prop_assert_eq!(decode(&json), text);
        }
    }
}
