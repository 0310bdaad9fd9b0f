//! Looks into a lane's dead letters while the lane writes them.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::read_range;

/// Bytes from the end of the file that are looked at for one page.
const LOOK_BYTES: u64 = 64 << 20;

/// The most letters of a page.
pub const MAX_LETTERS: usize = 1000;

/// Which letters are wanted: those that meet all that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// The record's key, as text.
    pub key: Option<String>,
    /// A part of the cause.
    pub cause: Option<String>,
    pub partition: Option<i32>,
    pub offset: Option<i64>,
    /// The newest ones; at most [`MAX_LETTERS`].
    #[serde(default)]
    pub limit: Option<usize>,
}

/// Letters as they stand in the file, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Page {
    pub letters: Vec<Value>,
    /// There may be more that are older.
    pub more: bool,
}

/// The letters that stand whole in the file at `path`; none when there is no file.
///
/// # Errors
/// When the file cannot be read.
pub fn browse(path: &Path, query: &Query) -> io::Result<Page> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Page::default()),
        Err(error) => return Err(error),
    };
    let end = file.seek(SeekFrom::End(0))?;
    let start = end.saturating_sub(LOOK_BYTES);
    let mut bytes = Vec::new();
    read_range(&mut file, start, end, &mut bytes)?;
    // Neither a line that began before nor one that is being written.
    let first =
        if start == 0 { 0 } else { bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1) };
    let last = bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(first).max(first);
    let limit = query.limit.unwrap_or(MAX_LETTERS).min(MAX_LETTERS);
    let mut page = Page { letters: Vec::new(), more: start > 0 };
    for line in bytes[first..last].rsplit(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let Ok(letter) = serde_json::from_slice::<Value>(line) else { continue };
        if !query.wants(&letter) {
            continue;
        }
        if page.letters.len() == limit {
            page.more = true;
            break;
        }
        page.letters.push(letter);
    }
    Ok(page)
}

impl Query {
    fn wants(&self, letter: &Value) -> bool {
        let is = |field: &str, wanted: Option<i64>| wanted.is_none_or(|wanted| letter[field].as_i64() == Some(wanted));
        let has_key = |key: &String| {
            let encoded = || BASE64_STANDARD.encode(key);
            letter["key"].as_str() == Some(key) || letter["key_base64"].as_str().is_some_and(|text| text == encoded())
        };
        let has_cause = |cause: &String| letter["cause"].as_str().is_some_and(|text| text.contains(cause));
        self.key.as_ref().is_none_or(has_key)
            && self.cause.as_ref().is_none_or(has_cause)
            && is("partition", self.partition.map(i64::from))
            && is("offset", self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(page: &Page) -> Vec<i64> {
        page.letters.iter().map(|letter| letter["offset"].as_i64().unwrap()).collect()
    }

    #[test]
    fn the_newest_come_first_and_only_whole_lines_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        assert_eq!(browse(&path, &Query::default()).unwrap(), Page::default());
        let line = |offset: i64, key: &str, cause: &str| {
            format!(
                "{{\"cause\":\"{cause}\",\"topic\":\"t\",\"partition\":1,\"offset\":{offset},{key},\"value\":null}}\n"
            )
        };
        let text = [
            line(1, "\"key\":\"a\"", "too long"),
            line(2, "\"key\":\"b\"", "no JSON"),
            "a remark\n".to_owned(),
            line(3, "\"key_base64\":\"AP8=\"", "too short"),
            line(4, "\"key\":\"a\"", "no JSON"),
            "{\"cause\":\"half".to_owned(),
        ];
        std::fs::write(&path, text.concat()).unwrap();
        let found = |query: &Query| browse(&path, query).unwrap();
        assert_eq!(offsets(&found(&Query::default())), [4, 3, 2, 1]);
        let two = found(&Query { limit: Some(2), ..Query::default() });
        assert_eq!((offsets(&two), two.more), (vec![4, 3], true));
        let all = found(&Query { limit: Some(4), ..Query::default() });
        assert!(!all.more);
        assert_eq!(offsets(&found(&Query { key: Some("a".to_owned()), ..Query::default() })), [4, 1]);
        assert_eq!(offsets(&found(&Query { cause: Some("too".to_owned()), ..Query::default() })), [3, 1]);
        assert_eq!(offsets(&found(&Query { partition: Some(1), offset: Some(2), ..Query::default() })), [2]);
        assert_eq!(offsets(&found(&Query { partition: Some(0), ..Query::default() })), [0i64; 0]);
    }
}
