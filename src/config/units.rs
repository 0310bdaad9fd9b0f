//! Sizes and durations as people write them.

use std::time::Duration;

/// What a size looks like in the schema.
pub const SIZE_PATTERN: &str = "^[0-9]+ ?(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?$";
/// What a duration looks like in the schema.
pub const DURATION_PATTERN: &str = "^([0-9]+ ?(us|ms|s|m|h|d) ?)+$";

pub const SIZE_EXPECTED: &str = "a size such as `64KiB`, `256MiB` or `1GB`";
pub const DURATION_EXPECTED: &str = "a duration such as `50ms`, `5s` or `1m30s`";

const UNITS: [(&str, u64); 10] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// Bytes; a number without a unit counts bytes. `None` for anything else, and for more than a `u64` holds.
pub fn parse_size(text: &str) -> Option<u64> {
    let (digits, factor) =
        UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor))).unwrap_or((text, 1));
    let digits = digits.strip_suffix(' ').unwrap_or(digits);
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// In the largest binary unit that divides it, which is how it would be written.
pub fn format_size(bytes: u64) -> String {
    let binary = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match binary.into_iter().find(|(_, factor)| bytes != 0 && bytes.is_multiple_of(*factor)) {
        Some((unit, factor)) => format!("{}{unit}", bytes / factor),
        None => format!("{bytes}B"),
    }
}

/// `None` for what has no unit, and for more than a `Duration` holds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    humantime::parse_duration(text).ok()
}

pub fn format_duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string().replace(' ', "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check_size(text: &str, expected: Option<u64>) {
        assert_eq!(parse_size(text), expected, "{text}");
    }

    #[test]
    fn sizes_have_units_of_both_kinds() {
        check_size("0", Some(0));
        check_size("17", Some(17));
        check_size("17B", Some(17));
        check_size("1kB", Some(1_000));
        check_size("64KiB", Some(65_536));
        check_size("256 MiB", Some(256 << 20));
        check_size("1GB", Some(1_000_000_000));
        for wrong in ["", "MiB", "-1MiB", "+1MiB", "1.5GiB", "1 M", "1  MiB", "20000000TiB"] {
            check_size(wrong, None);
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("50ms"), Some(Duration::from_millis(50)));
        assert_eq!(parse_duration("1m30s"), Some(Duration::from_secs(90)));
        for wrong in ["", "0", "5", "5 parsecs", "99999999999999999999s"] {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_formatted_parses_to_the_same(bytes: u64, millis in 0_u64..1 << 40) {
            prop_assert_eq!(parse_size(&format_size(bytes)), Some(bytes));
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Some(duration));
        }
    }
}
