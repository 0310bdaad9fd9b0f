//! What the sinks hold, read as anyone would read it: the database by SQL, the files line by line.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use serde_json::value::RawValue;

use super::model::Position;

/// Key and value of each row.
///
/// # Errors
/// When the database or its table is not there.
pub fn sqlite(path: &Path, table: &str) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let read = || {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut select = connection.prepare(&format!("SELECT CAST(key AS BLOB), CAST(value AS BLOB) FROM {table}"))?;
        let rows = select.query_map((), |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get(1)?)))?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    let rows = read().with_context(|| format!("failed to read `{}`", path.display()))?;
    Ok(rows.into_iter().map(|(key, value)| (String::from_utf8_lossy(&key).into_owned(), value)).collect())
}

/// Where each line's record comes from, its key and its value.
pub type Line = (Position, (String, Option<Vec<u8>>));

/// The lines of every file in `dir` whose name ends in `.ndjson`.
///
/// # Errors
/// When a file cannot be read, or a line is not what the file sink's documentation says.
pub fn lines(dir: &Path) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for path in ndjson_files(dir)? {
        each_line(&path, |line| {
            let fields = Fields::parse(line)?;
            lines.push((fields.position()?, (fields.text("key")?, fields.bytes("value")?)));
            Ok(())
        })?;
    }
    Ok(lines)
}

/// Where each dead letter comes from, and the stage that rejected it. No file = no letters.
///
/// # Errors
/// When the file cannot be read, or a line is not what its documentation says.
pub fn dead_letters(path: &Path) -> anyhow::Result<Vec<(Position, String)>> {
    let mut letters = Vec::new();
    if path.exists() {
        each_line(path, |line| {
            let fields = Fields::parse(line)?;
            letters.push((fields.position()?, fields.text("stage")?));
            Ok(())
        })?;
    }
    Ok(letters)
}

fn ndjson_files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.with_context(|| format!("failed to list `{}`", dir.display()))?;
    let mut paths: Vec<_> = entries.iter().map(fs::DirEntry::path).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "ndjson"));
    paths.sort();
    Ok(paths)
}

fn each_line(path: &Path, mut take: impl FnMut(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("failed to read `{shown}`"))?;
    if !text.is_empty() && !text.ends_with('\n') {
        bail!("the last line of `{shown}` is torn");
    }
    for (number, line) in text.lines().enumerate() {
        take(line).with_context(|| format!("line {} of `{shown}`", number + 1))?;
    }
    Ok(())
}

/// The members of a line, as they are written: a value is compared byte for byte.
struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    fn parse(line: &'a str) -> anyhow::Result<Self> {
        Ok(Self(serde_json::from_str(line)?))
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(|value| value.get())
    }

    fn integer(&self, name: &str) -> anyhow::Result<i64> {
        let text = self.get(name).ok_or_else(|| anyhow!("it has no `{name}`"))?;
        text.parse().with_context(|| format!("its `{name}` is `{text}`"))
    }

    fn position(&self) -> anyhow::Result<Position> {
        Ok((i32::try_from(self.integer("partition")?)?, self.integer("offset")?))
    }

    /// An absent text is empty: no key that reaches a file here is.
    fn text(&self, name: &str) -> anyhow::Result<String> {
        match self.get(name) {
            Some(text) => serde_json::from_str(text).with_context(|| format!("its `{name}` is `{text}`")),
            None => Ok(String::new()),
        }
    }

    fn bytes(&self, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
        match (self.get(name), self.get(&format!("{name}_base64"))) {
            (Some("null"), None) => Ok(None),
            (Some(text), None) => Ok(Some(text.as_bytes().to_vec())),
            (None, Some(text)) => {
                let Value::String(text) = serde_json::from_str(text)? else { bail!("its `{name}_base64` is no text") };
                Ok(Some(STANDARD.decode(text)?))
            }
            _ => bail!("it has not just one of `{name}` and `{name}_base64`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_byte_for_byte_from_every_file() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("t-0.ndjson", "{\"topic\":\"t\",\"partition\":0,\"offset\":7,\"key\":\"a\",\"value\":{\"n\": 1.50}}\n");
        write(
            "t-1.ndjson",
            "{\"partition\":1,\"offset\":8,\"key\":\"b\",\"value\":null}\n{\"partition\":1,\"offset\":9,\"key\":\"b\",\"value_base64\":\"\"}\n",
        );
        write("t-1.manifest", "not a line");
        let expected = [
            ((0, 7), ("a".to_owned(), Some(b"{\"n\": 1.50}".to_vec()))),
            ((1, 8), ("b".to_owned(), None)),
            ((1, 9), ("b".to_owned(), Some(vec![]))),
        ];
        assert_eq!(lines(dir.path()).unwrap(), expected);
    }

    #[test]
    fn a_torn_or_foreign_line_is_an_error_that_says_where() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.ndjson");
        let error = |text: &str| {
            fs::write(&path, text).unwrap();
            format!("{:#}", lines(dir.path()).unwrap_err()).replace(&path.display().to_string(), "x")
        };
        assert_eq!(error("{\"partition\":1"), "the last line of `x` is torn");
        assert_eq!(error("{\"partition\":1}\n"), "line 1 of `x`: it has no `offset`");
        assert!(error("[]\n").starts_with("line 1 of `x`: "));
    }

    #[test]
    fn dead_letters_are_known_by_position_and_stage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dead.ndjson");
        assert!(dead_letters(&path).unwrap().is_empty());
        fs::write(&path, "{\"stage\":\"key\",\"cause\":\"x\",\"partition\":3,\"offset\":4,\"value\":null}\n").unwrap();
        assert_eq!(dead_letters(&path).unwrap(), [((3, 4), "key".to_owned())]);
    }

    #[test]
    fn rows_are_read_whatever_their_type() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch(
                "CREATE TABLE p (key, value); INSERT INTO p VALUES ('a', '{}'), (CAST('b' AS BLOB), x'7b7d')",
            )
            .unwrap();
        assert_eq!(sqlite(&path, "p").unwrap(), [("a".to_owned(), b"{}".to_vec()), ("b".to_owned(), b"{}".to_vec())]);
        assert!(sqlite(&path, "absent").is_err());
    }
}
