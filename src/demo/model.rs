//! What the demo's chain is to make of the records, in plain Rust and from their bytes alone. Nothing here calls the gateway
//! or its plugins: a mistake there has to show as a difference.

use std::collections::BTreeMap;

use serde_json::Value;

use super::broker::Produced;

/// Partition and offset.
pub type Position = (i32, i64);

/// The latest value per key.
pub type State = BTreeMap<String, Vec<u8>>;

/// What each place is to hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// At sinks that keep the latest value.
    pub state: State,
    /// Every record that leaves the chain, with key and value; a null value is a delete.
    pub log: BTreeMap<Position, (String, Option<Vec<u8>>)>,
    /// The stage that each rejected record was rejected at.
    pub dead: BTreeMap<Position, &'static str>,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Write(String, Vec<u8>),
    Delete(String),
    /// The key of what may have been written before.
    Drop(String),
    Reject(&'static str),
}

/// Folds the records in the order in which they were produced.
///
/// | the newest version of a key | the state holds |
/// |---|---|
/// | is written | it, masked |
/// | is deleted, or dropped by the filter | nothing |
/// | is rejected | what it held before |
pub fn fold(records: &[Produced]) -> Expected {
    let mut expected = Expected::default();
    for Produced { record, offset } in records {
        let position = (record.partition, *offset);
        match judge(record.key.as_deref(), record.value.as_deref()) {
            Verdict::Write(key, value) => {
                expected.log.insert(position, (key.clone(), Some(value.clone())));
                expected.state.insert(key, value);
            }
            Verdict::Delete(key) => {
                expected.state.remove(&key);
                expected.log.insert(position, (key, None));
            }
            Verdict::Drop(key) => {
                expected.state.remove(&key);
            }
            Verdict::Reject(stage) => {
                expected.dead.insert(position, stage);
            }
        }
    }
    expected
}

fn judge(key: Option<&[u8]>, value: Option<&[u8]>) -> Verdict {
    let Some(Ok(key)) = key.map(std::str::from_utf8) else { return Verdict::Reject("key") };
    let digits = key.strip_prefix("user-").unwrap_or_default();
    if digits.len() != 6 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Verdict::Reject("plugin");
    }
    let key = key.to_owned();
    let Some(value) = value else { return Verdict::Delete(key) };
    let Some((text, profile)) = std::str::from_utf8(value).ok().and_then(parse) else {
        return Verdict::Reject("plugin");
    };
    if profile["consent"] != true {
        return Verdict::Drop(key);
    }
    let masked = match profile["email"].as_str().and_then(|email| email.rsplit_once('@').map(|(_, d)| (email, d))) {
        Some((email, domain)) => text.replacen(&format!("\"{email}\""), &format!("\"***@{domain}\""), 1),
        None => text.to_owned(),
    };
    Verdict::Write(key, masked.into_bytes())
}

fn parse(text: &str) -> Option<(&str, Value)> {
    serde_json::from_str(text).ok().map(|value| (text, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::profiles::Record;

    fn check(key: Option<&str>, value: Option<&str>, expected: Verdict) {
        assert_eq!(judge(key.map(str::as_bytes), value.map(str::as_bytes)), expected, "{key:?} {value:?}");
    }

    #[test]
    fn one_record_at_a_time() {
        let key = || "user-000001".to_owned();
        let write = |value: &str| Verdict::Write(key(), value.as_bytes().to_vec());
        let judge = |value, expected| check(Some("user-000001"), value, expected);
        judge(
            Some(r#"{"email": "a.b@c.example","n":1.50, "consent":true}"#),
            write(r#"{"email": "***@c.example","n":1.50, "consent":true}"#),
        );
        judge(Some(r#"{"email":null,"consent":true}"#), write(r#"{"email":null,"consent":true}"#));
        judge(Some(r#"{"consent":true}"#), write(r#"{"consent":true}"#));
        judge(Some(r#"{"consent":false}"#), Verdict::Drop(key()));
        judge(None, Verdict::Delete(key()));
        judge(Some(r#"{"consent":tr"#), Verdict::Reject("plugin"));
        judge(Some(""), Verdict::Reject("plugin"));
        for malformed in ["", "user-1", "USER 000001", "user-0000001", "user-00000x"] {
            check(Some(malformed), None, Verdict::Reject("plugin"));
        }
        check(None, Some("{}"), Verdict::Reject("key"));
        assert_eq!(super::judge(Some(b"u\xff"), None), Verdict::Reject("key"));
    }

    #[test]
    fn the_newest_version_decides_unless_it_is_rejected() {
        const OLD: &str = r#"{"consent":true,"v":1}"#;
        const NEW: &str = r#"{"consent":true,"v":2}"#;
        const WITHDRAWN: &str = r#"{"consent":false}"#;
        let state = |versions: &[Option<&str>]| {
            let records: Vec<_> = versions.iter().zip(0..).map(|(value, offset)| produced(*value, offset)).collect();
            let state = fold(&records).state;
            state.get("user-000001").map(|value| String::from_utf8(value.clone()).unwrap())
        };
        assert_eq!(state(&[Some(OLD), Some(NEW)]).as_deref(), Some(NEW));
        assert_eq!(state(&[Some(OLD), None]), None);
        assert_eq!(state(&[Some(OLD), Some(WITHDRAWN)]), None);
        assert_eq!(state(&[Some(OLD), None, Some(NEW)]).as_deref(), Some(NEW));
        assert_eq!(state(&[Some(OLD), Some("{")]).as_deref(), Some(OLD));
        assert_eq!(state(&[Some(OLD), None, Some("{")]), None);
    }

    #[test]
    fn the_log_holds_what_leaves_the_chain_and_the_dead_letters_what_is_rejected() {
        let values = [Some(r#"{"consent":true}"#), Some(r#"{"consent":false}"#), Some("{"), None];
        let records: Vec<_> = values.into_iter().zip(0..).map(|(value, offset)| produced(value, offset)).collect();
        let expected = fold(&records);
        assert_eq!(expected.log.keys().collect::<Vec<_>>(), [&(1, 0), &(1, 3)]);
        assert_eq!(expected.log[&(1, 3)], ("user-000001".to_owned(), None));
        assert_eq!(expected.dead, BTreeMap::from([((1, 2), "plugin")]));
    }

    fn produced(value: Option<&str>, offset: i64) -> Produced {
        let value = value.map(|value| value.as_bytes().to_vec());
        Produced { record: Record { partition: 1, key: Some(b"user-000001".to_vec()), value }, offset }
    }
}
