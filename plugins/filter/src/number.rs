//! Numbers of JSON, compared by value: exactly for integers, which may be identifiers too long for a float.

use std::borrow::Cow;
use std::cmp::Ordering;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

/// A number of JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    /// Reads a number from the text that a JSON document has for it. What is beyond 128 bits is read as a float.
    pub(crate) fn read(json: &str) -> Option<Self> {
        let integer = json.parse().ok().map(Self::Integer);
        integer.or_else(|| json.parse().ok().map(Self::Float))
    }

    /// Which is greater; `None` only if one is not a number, which JSON cannot write.
    pub(crate) fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => Some(a.cmp(&b)),
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(&b),
            (Self::Integer(a), Self::Float(b)) => compare(a, b),
            (Self::Float(a), Self::Integer(b)) => compare(b, a).map(Ordering::reverse),
        }
    }
}

/// The conversion cuts a float's fraction off and brings what is too large to the type's ends, so that an integer that
/// equals the whole part is decided by the fraction's sign.
fn compare(integer: i128, float: f64) -> Option<Ordering> {
    const ENDS: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;
    if float.is_nan() {
        None
    } else if float >= ENDS {
        Some(Ordering::Less)
    } else if float < -ENDS {
        Some(Ordering::Greater)
    } else {
        #[allow(clippy::cast_possible_truncation, reason = "the range was checked, and the fraction is compared below")]
        let whole = float as i128;
        Some(integer.cmp(&whole).then_with(|| 0.0_f64.total_cmp(&(float.fract() + 0.0))))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(from)?;
        Self::read(&number.to_string()).ok_or_else(|| serde::de::Error::custom("is no number"))
    }
}

impl JsonSchema for Number {
    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(a: &str, expected: Ordering, b: &str) {
        let (read_a, read_b) = (Number::read(a).unwrap(), Number::read(b).unwrap());
        assert_eq!(read_a.compare(read_b), Some(expected), "{a} and {b}");
        assert_eq!(read_b.compare(read_a), Some(expected.reverse()), "{b} and {a}");
    }

    #[test]
    fn numbers_are_compared_by_value() {
        check("1", Ordering::Equal, "1.0");
        check("-0.0", Ordering::Equal, "0");
        check("1e3", Ordering::Equal, "1000");
        check("1", Ordering::Less, "1.5");
        check("-1", Ordering::Greater, "-1.5");
        check("2", Ordering::Greater, "1.5");
        check("0.1", Ordering::Less, "0.2");
    }

    #[test]
    fn long_integers_are_compared_exactly() {
        check("9007199254740993", Ordering::Greater, "9007199254740992");
        check("9007199254740993", Ordering::Greater, "9007199254740992.0");
        check("18446744073709551615", Ordering::Less, "18446744073709551616");
        check("1e39", Ordering::Greater, "170141183460469231731687303715884105727");
        check("-1e39", Ordering::Less, "-170141183460469231731687303715884105728");
        check("1000000000000000000000000000000000000000", Ordering::Equal, "1e39");
    }

    proptest! {
        #[test]
        fn small_numbers_compare_as_floats(a in -1000_i64..1000, b in -1000.0..1000.0_f64) {
            let ordering = Number::Integer(a.into()).compare(Number::Float(b));
            prop_assert_eq!(ordering, (a as f64).partial_cmp(&b));
        }
    }
}
