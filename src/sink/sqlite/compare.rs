//! A table compared with a copy of it that was made anew from the topic.
//!
//! Both go on while they are compared, so that only some rows tell something. With `table`, the table as it was at one
//! moment, `delivered`, what it had of each partition then, and the copy ended when it had passed all of that:
//!
//! | row | in the copy | in the table | then |
//! |---|---|---|---|
//! | the copy's is from below `delivered` | yes | no | missing |
//! | the same | yes | with other contents | different |
//! | the copy's is from above | yes | either | not delivered yet |
//! | the table, looked at once it has passed the copy, still has it from below the copy's end | no | yes | stale |
//! | the table has not passed the copy | no | yes | undecided: its tombstone may be on its way |
//!
//! A stale row one of whose newer versions the copy saw rejected is *kept*, as `on_reject: keep` has it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};
use serde::{Deserialize, Serialize};

use super::BUSY_TIMEOUT;
use super::schema::{Schema, quote};
use super::statements::bytes;
use crate::config::Sqlite as Settings;
use crate::record::{NextOffset, TopicPartition};

/// A table under comparison. It is only read.
pub struct Comparison {
    connection: Connection,
    schema: Schema,
    path: PathBuf,
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the table.
    pub rows: u64,
    pub missing: u64,
    pub different: u64,
    pub stale: u64,
    /// Stale, and meant to be, since a newer version was rejected.
    pub kept: u64,
    /// In the topic, and not yet in the table.
    pub not_delivered: u64,
    /// Only in the table, which has not read as far as the copy has.
    pub undecided: u64,
    /// Some of each kind, by key.
    pub differences: Vec<Difference>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Missing,
    Different,
    Stale,
    Kept,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub kind: Kind,
    /// Text, or `x'…'` in hexadecimal.
    pub key: String,
    pub topic: String,
    pub partition: i32,
    /// Of the record that the row is, or would be, from.
    pub offset: i64,
}

impl Comparison {
    /// Of the table of `settings` with the copy of it in the database at `copy`, which is there and may be written to.
    ///
    /// # Errors
    /// When the table's database is not there, cannot be read, or was made for another configuration.
    pub fn open(settings: &Settings, changes_keys: bool, copy: &Path) -> anyhow::Result<Self> {
        let path = settings.path.clone();
        let shown = path.display();
        if !path.exists() {
            bail!("there is no `{shown}` yet: nothing was delivered to it");
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(&path, flags).with_context(|| format!("failed to open `{shown}`"))?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        let schema = Schema::new(settings, changes_keys)?;
        schema.check(&connection, &path)?;
        let name = copy.to_str().context("the copy's path is not UTF-8")?;
        connection.execute("ATTACH ?1 AS copy", [name]).with_context(|| format!("failed to open `{name}`"))?;
        Ok(Self { connection, schema, path })
    }

    /// What the table has of each partition: now, or when it was held.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn delivered(&self) -> anyhow::Result<Vec<(TopicPartition, NextOffset)>> {
        self.positions("main").with_context(|| format!("failed to read `{}`", self.path.display()))
    }

    fn positions(&self, database: &str) -> rusqlite::Result<Vec<(TopicPartition, NextOffset)>> {
        let sql = format!("SELECT topic, partition, next_offset FROM {database}._tidegate_offsets");
        let mut select = self.connection.prepare(&sql)?;
        let rows = select.query_map([], |row| {
            Ok((TopicPartition::new(row.get::<_, String>(0)?, row.get(1)?), NextOffset(row.get(2)?)))
        })?;
        rows.collect()
    }

    /// Holds the table as it is now, until it is compared; returns [`Comparison::delivered`].
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn hold(&self) -> anyhow::Result<Vec<(TopicPartition, NextOffset)>> {
        self.connection.execute_batch("BEGIN")?;
        // It begins with the first read, of each database by itself.
        self.delivered()
    }

    /// Compares the table that is held with the copy, which has passed what is delivered to that and is not written to any
    /// more. `rejected` = the copy's dead letters. Tells `limit` differences one by one, and counts all. `catch_up` is called
    /// with what the copy has of each partition, and returns when the table has passed that, or will not soon.
    ///
    /// # Errors
    /// When a database cannot be read.
    pub fn compare(
        self,
        rejected: &Path,
        limit: u64,
        catch_up: impl FnOnce(&Self, &[(TopicPartition, NextOffset)]) -> anyhow::Result<()>,
    ) -> anyhow::Result<Report> {
        let failed = || format!("failed to compare `{}`", self.path.display());
        let mut report = Report { rows: self.count("main").with_context(failed)?, ..Report::default() };
        self.what_the_table_lacks(limit, &mut report).with_context(failed)?;
        self.note_what_only_the_table_has().with_context(failed)?;
        let reached = self.positions("copy").with_context(failed)?;
        self.connection.execute_batch("COMMIT")?;
        catch_up(&self, &reached)?;
        self.note_rejected(rejected)?;
        self.what_the_table_has_too_much(limit, &mut report).with_context(failed)?;
        Ok(report)
    }

    fn count(&self, database: &str) -> rusqlite::Result<u64> {
        let sql = format!("SELECT count(*) FROM {database}.{}", quote(&self.schema.table));
        self.connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).map(|count| count as u64)
    }

    fn what_the_table_lacks(&self, limit: u64, report: &mut Report) -> rusqlite::Result<()> {
        let table = quote(&self.schema.table);
        let columns = self.schema.value_columns();
        let same: Vec<String> = columns.iter().map(|column| format!("t.{column} IS c.{column}")).collect();
        let sql = format!(
            "SELECT c.key, c._topic, c._partition, c._offset, t.key IS NULL
             FROM copy.{table} AS c
             JOIN main._tidegate_offsets AS d ON d.topic = c._topic AND d.partition = c._partition
             LEFT JOIN main.{table} AS t ON t.key = c.key
             WHERE c._offset < d.next_offset AND (t.key IS NULL OR NOT ({}))
             ORDER BY c.key",
            same.join(" AND ")
        );
        let mut select = self.connection.prepare(&sql)?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let kind = if row.get(4)? { Kind::Missing } else { Kind::Different };
            report.add(kind, limit, row)?;
        }
        let sql = format!(
            "SELECT count(*) FROM copy.{table} AS c
             LEFT JOIN main._tidegate_offsets AS d ON d.topic = c._topic AND d.partition = c._partition
             WHERE c._offset >= coalesce(d.next_offset, 0)"
        );
        report.not_delivered = self.connection.query_row(&sql, [], |row| row.get::<_, i64>(0))? as u64;
        Ok(())
    }

    fn note_what_only_the_table_has(&self) -> rusqlite::Result<()> {
        let table = quote(&self.schema.table);
        self.connection.execute_batch(&format!(
            "CREATE TEMP TABLE extra AS SELECT t.key AS key, t._topic AS topic, t._partition AS partition, t._offset AS offset
             FROM main.{table} AS t LEFT JOIN copy.{table} AS c ON c.key = t.key WHERE c.key IS NULL"
        ))
    }

    /// The keys of the records that the copy saw rejected.
    fn note_rejected(&self, letters: &Path) -> anyhow::Result<()> {
        self.connection.execute_batch("CREATE TEMP TABLE rejected (key PRIMARY KEY) WITHOUT ROWID")?;
        let Ok(file) = File::open(letters) else { return Ok(()) };
        let mut insert = self.connection.prepare("INSERT OR IGNORE INTO temp.rejected VALUES (?1)")?;
        for line in BufReader::new(file).lines() {
            let line = line.with_context(|| format!("failed to read `{}`", letters.display()))?;
            let Ok(Letter { key, key_base64 }) = serde_json::from_str(&line) else { continue };
            let encoded = key_base64.and_then(|encoded| BASE64_STANDARD.decode(encoded).ok());
            if let Some(key) = key.map(String::into_bytes).or(encoded) {
                insert.execute([bytes(&key)])?;
            }
        }
        Ok(())
    }

    fn what_the_table_has_too_much(&self, limit: u64, report: &mut Report) -> rusqlite::Result<()> {
        let table = quote(&self.schema.table);
        let source_key = if self.schema.source_keys { "coalesce(t._source_key, t.key)" } else { "t.key" };
        let sql = format!(
            "SELECT e.key, e.topic, e.partition, e.offset,
                    coalesce(d.next_offset, 0) >= coalesce(r.next_offset, 0), {source_key} IN temp.rejected
             FROM temp.extra AS e
             JOIN main.{table} AS t
             ON t.key = e.key AND t._topic = e.topic AND t._partition = e.partition AND t._offset = e.offset
             LEFT JOIN main._tidegate_offsets AS d ON d.topic = e.topic AND d.partition = e.partition
             LEFT JOIN copy._tidegate_offsets AS r ON r.topic = e.topic AND r.partition = e.partition
             ORDER BY e.key"
        );
        let mut select = self.connection.prepare(&sql)?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            match (row.get(4)?, row.get(5)?) {
                (_, true) => report.add(Kind::Kept, limit, row)?,
                (true, false) => report.add(Kind::Stale, limit, row)?,
                (false, false) => report.undecided += 1,
            }
        }
        Ok(())
    }
}

/// Of a dead letter, what is looked at.
#[derive(Deserialize)]
struct Letter {
    key: Option<String>,
    key_base64: Option<String>,
}

impl Report {
    pub fn is_equal(&self) -> bool {
        self.missing + self.different + self.stale == 0
    }

    fn add(&mut self, kind: Kind, limit: u64, row: &Row<'_>) -> rusqlite::Result<()> {
        let count = match kind {
            Kind::Missing => &mut self.missing,
            Kind::Different => &mut self.different,
            Kind::Stale => &mut self.stale,
            Kind::Kept => &mut self.kept,
        };
        *count += 1;
        if *count <= limit {
            let key = shown(row.get_ref(0)?);
            self.differences.push(Difference {
                kind,
                key,
                topic: row.get(1)?,
                partition: row.get(2)?,
                offset: row.get(3)?,
            });
        }
        Ok(())
    }
}

/// A key as SQL writes it, text without its quotes.
fn shown(key: ValueRef<'_>) -> String {
    match key {
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => format!("x'{}'", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        _ => String::new(),
    }
}
