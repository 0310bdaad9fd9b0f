//! Readers of what the sinks leave behind.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

/// Key and value of every row, as text, with the replacement character for what is none; empty when the database or its table does not exist yet.
pub fn sqlite(path: &Path, table: &str) -> BTreeMap<String, String> {
    let Ok(connection) = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY) else {
        return BTreeMap::new();
    };
    let Ok(mut select) =
        connection.prepare(&format!(r#"SELECT CAST("key" AS BLOB), CAST("value" AS BLOB) FROM "{table}""#))
    else {
        return BTreeMap::new();
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let rows =
        select.query_map([], |row| Ok((text(row.get(0)?), text(row.get(1)?)))).expect("a table that can be read");
    let rows: Vec<(String, String)> = rows.map(|row| row.expect("a row of two values")).collect();
    let count = rows.len();
    let map: BTreeMap<_, _> = rows.into_iter().collect();
    assert_eq!(map.len(), count, "rows share a key");
    map
}

/// How many rows the table has; 0 when it does not exist yet.
pub fn sqlite_count(path: &Path, table: &str) -> u64 {
    let open = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let select = format!(r#"SELECT count(*) FROM "{table}""#);
    open.and_then(|db| db.query_row(&select, [], |row| row.get::<_, i64>(0))).map_or(0, |count| count as u64)
}

/// Every `*.ndjson` file below `directory`, by name.
pub fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten() {
            let path = entry.expect("a readable directory").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "ndjson") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Every whole line of the segments below `directory`, or of one file; none when it does not exist yet. A line that is
/// being written is left out.
pub fn lines(path: &Path) -> Vec<Value> {
    let files = if path.is_dir() { segments(path) } else { vec![path.to_owned()] };
    let mut lines = Vec::new();
    for file in files {
        let content = std::fs::read(&file).unwrap_or_default();
        let whole = content.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        for line in content[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let text = String::from_utf8_lossy(line);
            lines.push(
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error} in {text}", file.display())),
            );
        }
    }
    lines
}

/// How many whole lines there are.
pub fn line_count(path: &Path) -> u64 {
    let files = if path.is_dir() { segments(path) } else { vec![path.to_owned()] };
    let count = |file: &PathBuf| {
        let content = std::fs::read(file).unwrap_or_default();
        content.iter().filter(|&&byte| byte == b'\n').count() as u64
    };
    files.iter().map(count).sum()
}

/// Partition and offset of every line, in the order of the file.
pub fn positions(lines: &[Value]) -> Vec<(i64, i64)> {
    let number = |line: &Value, field: &str| line[field].as_i64().unwrap_or_else(|| panic!("no `{field}` in {line}"));
    lines.iter().map(|line| (number(line, "partition"), number(line, "offset"))).collect()
}
