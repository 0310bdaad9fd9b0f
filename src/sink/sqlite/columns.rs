//! Columns out of a JSON value.
//!
//! | what the pointer finds       | text  | integer         | real  | boolean | json             |
//! |------------------------------|-------|-----------------|-------|---------|------------------|
//! | nothing, or `null`           | NULL  | NULL            | NULL  | NULL    | NULL             |
//! | a string                     | it    | an error        | error | error   | its JSON text    |
//! | a number                     | error | it, if 64 bits hold it | it | error | its JSON text |
//! | `true`, `false`              | error | error           | error | 1, 0    | its JSON text    |
//! | an object, a list            | error | error           | error | error   | its JSON text    |

use std::borrow::{Borrow, Cow};
use std::collections::HashMap;
use std::fmt;

use anyhow::bail;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::schema::{Column, type_name};
use crate::config::ColumnType;

/// What goes into a column.
#[derive(Debug, PartialEq)]
pub enum Cell<'a> {
    Null,
    Text(Cow<'a, str>),
    Integer(i64),
    Real(f64),
}

/// An RFC 6901 JSON pointer.
#[derive(Debug)]
pub struct Pointer {
    written: String,
    tokens: Vec<String>,
}

/// The cells of `columns` in `value`.
///
/// # Errors
/// Why the value does not fit, in words that name the column and where it points.
pub fn cells<'a>(columns: &[Column], value: &'a [u8]) -> Result<Vec<Cell<'a>>, String> {
    let text = std::str::from_utf8(value).map_err(|_| "the value is not JSON: it is not UTF-8".to_owned())?;
    let object: Object<'a> = serde_json::from_str(text).map_err(|error| {
        if error.is_data() {
            "the value is not a JSON object".to_owned()
        } else {
            format!("the value is not JSON: {error}")
        }
    })?;
    let whole: &'a RawValue = serde_json::from_str(text).map_err(|error| format!("the value is not JSON: {error}"))?;
    columns.iter().map(|column| cell(column, &object, whole)).collect()
}

type Object<'a> = HashMap<Name<'a>, &'a RawValue>;

/// A member's name, borrowed where it holds no escapes.
#[derive(Deserialize, PartialEq, Eq, Hash)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl Borrow<str> for Name<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

fn cell<'a>(column: &Column, object: &Object<'a>, whole: &'a RawValue) -> Result<Cell<'a>, String> {
    let found = match column.pointer.tokens.split_first() {
        None => Some(whole),
        Some((first, rest)) => object.get(first.as_str()).and_then(|found| descend(found, rest)),
    };
    let Some(text) = found.map(RawValue::get).filter(|text| *text != "null") else { return Ok(Cell::Null) };
    let cell = match column.kind {
        ColumnType::Json => Some(Cell::Text(Cow::Borrowed(text))),
        ColumnType::Text => serde_json::from_str::<Name<'a>>(text).ok().map(|name| Cell::Text(name.0)),
        ColumnType::Integer => serde_json::from_str(text).ok().map(Cell::Integer),
        ColumnType::Real => serde_json::from_str(text).ok().map(Cell::Real),
        ColumnType::Boolean => serde_json::from_str::<bool>(text).ok().map(|value| Cell::Integer(value.into())),
    };
    cell.ok_or_else(|| {
        let (name, pointer, wanted) = (&column.name, &column.pointer, type_name(column.kind));
        format!("column `{name}` takes {wanted}, and `{pointer}` is {}", kind_of(text))
    })
}

fn descend<'a>(value: &'a RawValue, tokens: &[String]) -> Option<&'a RawValue> {
    let Some((first, rest)) = tokens.split_first() else { return Some(value) };
    let found = if value.get().starts_with('{') {
        serde_json::from_str::<Object<'a>>(value.get()).ok()?.remove(first.as_str())?
    } else {
        // A leading zero is no index.
        let index: usize = first.parse().ok().filter(|_| first == "0" || !first.starts_with(['0', '+']))?;
        let list: Vec<&'a RawValue> = serde_json::from_str(value.get()).ok()?;
        *list.get(index)?
    };
    descend(found, rest)
}

/// What kind of JSON stands there, without its contents, which may be nobody's business.
fn kind_of(text: &str) -> &'static str {
    match text.as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        _ if text.contains(['.', 'e', 'E']) => "a number with a fraction or an exponent",
        _ if text.parse::<i64>().is_err() => "a number beyond 64 bits",
        _ => "a number",
    }
}

impl Pointer {
    pub fn parse(written: &str) -> anyhow::Result<Self> {
        if !written.is_empty() && !written.starts_with('/') {
            bail!("`{written}` is no JSON pointer; write `/name` or `/name/inner`");
        }
        let tokens = written.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~"));
        Ok(Self { written: written.to_owned(), tokens: tokens.collect() })
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, pointer: &str, kind: ColumnType, expected: Result<Cell<'_>, &str>) {
        let column = Column { name: "c".to_owned(), pointer: Pointer::parse(pointer).unwrap(), kind };
        let found = cells(&[column], value.as_bytes()).map(|mut cells| cells.remove(0));
        assert_eq!(found, expected.map_err(str::to_owned), "{value} {pointer}");
    }

    fn text(text: &str) -> Result<Cell<'_>, &str> {
        Ok(Cell::Text(Cow::Borrowed(text)))
    }

    #[test]
    fn pointers_find_what_they_name() {
        let value = r#"{"a":{"b":[1,{"c":"x"}]},"/~":"odd","":"empty","d":"1","d":"2"}"#;
        check(value, "/a/b/1/c", ColumnType::Text, text("x"));
        check(value, "/a/b/0", ColumnType::Integer, Ok(Cell::Integer(1)));
        check(value, "/a/b/00", ColumnType::Integer, Ok(Cell::Null));
        check(value, "/a/b/2", ColumnType::Integer, Ok(Cell::Null));
        check(value, "/~1~0", ColumnType::Text, text("odd"));
        check(value, "/", ColumnType::Text, text("empty"));
        check(value, "/d", ColumnType::Text, text("2"));
        check(value, "/nope/x", ColumnType::Text, Ok(Cell::Null));
        check(value, "/d/x", ColumnType::Text, Ok(Cell::Null));
        check("{\"a\": 1}", "", ColumnType::Json, text("{\"a\": 1}"));
    }

    #[test]
    fn types_are_taken_as_they_are_or_refused() {
        let value = r#"{"s":"é\n","i":-7,"f":1.5,"t":true,"n":null,"o":{"x": 1},"big":9223372036854775808}"#;
        check(value, "/s", ColumnType::Text, Ok(Cell::Text("é\n".into())));
        check(value, "/i", ColumnType::Integer, Ok(Cell::Integer(-7)));
        check(value, "/i", ColumnType::Real, Ok(Cell::Real(-7.0)));
        check(value, "/f", ColumnType::Real, Ok(Cell::Real(1.5)));
        check(value, "/t", ColumnType::Boolean, Ok(Cell::Integer(1)));
        check(value, "/o", ColumnType::Json, text("{\"x\": 1}"));
        check(value, "/big", ColumnType::Json, text("9223372036854775808"));
        for kind in [ColumnType::Text, ColumnType::Integer, ColumnType::Boolean, ColumnType::Json] {
            check(value, "/n", kind, Ok(Cell::Null));
        }
        check(value, "/i", ColumnType::Text, Err("column `c` takes text, and `/i` is a number"));
        check(value, "/s", ColumnType::Integer, Err("column `c` takes integer, and `/s` is a string"));
        check(
            value,
            "/big",
            ColumnType::Integer,
            Err("column `c` takes integer, and `/big` is a number beyond 64 bits"),
        );
        check(
            value,
            "/f",
            ColumnType::Integer,
            Err("column `c` takes integer, and `/f` is a number with a fraction or an exponent"),
        );
        check(value, "/i", ColumnType::Boolean, Err("column `c` takes boolean, and `/i` is a number"));
        check(value, "/o", ColumnType::Text, Err("column `c` takes text, and `/o` is an object"));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        check("[1]", "/a", ColumnType::Text, Err("the value is not a JSON object"));
        check("null", "/a", ColumnType::Text, Err("the value is not a JSON object"));
        check(
            "{",
            "/a",
            ColumnType::Text,
            Err("the value is not JSON: EOF while parsing an object at line 1 column 1"),
        );
        check("", "/a", ColumnType::Text, Err("the value is not JSON: EOF while parsing a value at line 1 column 0"));
        let column = Column { name: "c".into(), pointer: Pointer::parse("/a").unwrap(), kind: ColumnType::Text };
        assert_eq!(cells(&[column], b"\xff"), Err("the value is not JSON: it is not UTF-8".to_owned()));
        assert!(Pointer::parse("a").is_err());
    }
}
