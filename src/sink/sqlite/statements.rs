//! The statements that carry a plan out. Each changes a row only where it comes from an older version, by the rule of
//! [`crate::sink::coalesce`] written as SQL, so that what is read again changes nothing.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, ErrorCode, Transaction, params};

use super::columns::Cell;
use super::ledger::Generations;
use super::plan::{Action, Change, Plan, Step};
use super::schema::{METADATA, Schema, quote};
use crate::record::{NextOffset, TopicPartition};
use crate::sink::RowError;
use crate::sink::coalesce::{Row, Version};

/// The SQL of one table.
pub struct Statements {
    upsert: String,
    delete: String,
    /// Where rows keep their source key: what another version of it has written.
    of_source: Option<String>,
    delete_row: String,
}

impl Statements {
    pub fn new(schema: &Schema) -> Self {
        let table = quote(&schema.table);
        let mut names = vec!["key".to_owned()];
        names.extend(METADATA.iter().map(|(name, _)| (*name).to_owned()));
        if schema.source_keys {
            names.push("_source_key".to_owned());
        }
        names.extend(schema.value_columns());
        let places: Vec<String> = (1..=names.len()).map(|place| format!("?{place}")).collect();
        let set: Vec<String> = names[1..].iter().map(|name| format!("{name} = excluded.{name}")).collect();
        let newer = newer(["excluded._topic", "excluded._partition", "excluded._offset", "excluded._timestamp"]);
        Self {
            upsert: format!(
                "INSERT INTO {table} ({}) VALUES ({}) ON CONFLICT (key) DO UPDATE SET {} WHERE {newer}",
                names.join(", "),
                places.join(", "),
                set.join(", ")
            ),
            delete: format!("DELETE FROM {table} WHERE key = ?1 AND {}", self::newer(["?2", "?3", "?4", "?5"])),
            of_source: schema.source_keys.then(|| {
                let newer = self::newer(["?2", "?3", "?4", "?5"]);
                format!("SELECT rowid, key FROM {table} WHERE _source_key = ?1 AND {newer}")
            }),
            delete_row: format!("DELETE FROM {table} WHERE rowid = ?1"),
        }
    }

    /// Carries `plan` out; returns the rows that the table refuses, by a rule that somebody else gave it.
    pub fn apply(
        &self,
        transaction: &Transaction<'_>,
        plan: &Plan<'_>,
        generations: &Generations,
    ) -> rusqlite::Result<Vec<RowError>> {
        let mut upsert = transaction.prepare_cached(&self.upsert)?;
        let mut delete = transaction.prepare_cached(&self.delete)?;
        let mut refused = Vec::new();
        let mut change = |row: &Row<'_, Change<'_>>| {
            let generation = generations.get(row.version.partition);
            self.change((&mut upsert, &mut delete), row, generation, &mut refused)
        };
        for step in &plan.steps {
            // A trigger may end the transaction with its refusal; what follows would be on its own.
            if transaction.is_autocommit() {
                break;
            }
            match step {
                Step::Change(row) => change(row)?,
                Step::Source { key, version, changes, keep } => {
                    let stays = |key: &[u8]| {
                        keep.contains(&key)
                            || changes.iter().any(|row| row.key == key && !matches!(row.row.action, Action::Delete))
                    };
                    self.forget_source(transaction, key, version, stays)?;
                    changes.iter().try_for_each(&mut change)?;
                }
            }
        }
        Ok(refused)
    }

    fn change(
        &self,
        (upsert, delete): (&mut CachedStatement<'_>, &mut CachedStatement<'_>),
        Row { key, version, row }: &Row<'_, Change<'_>>,
        generation: i64,
        refused: &mut Vec<RowError>,
    ) -> rusqlite::Result<()> {
        let Version { partition: TopicPartition { topic, partition }, offset, timestamp } = version;
        let result = match &row.action {
            Action::Delete => delete.execute(params![bytes(key), &**topic, partition, offset, timestamp]),
            action => {
                let mut place = 0;
                let mut bind = |value: ToSqlOutput<'_>| {
                    place += 1;
                    upsert.raw_bind_parameter(place, value)
                };
                bind(bytes(key))?;
                bind(ToSqlOutput::Borrowed(ValueRef::Text(topic.as_bytes())))?;
                bind((*partition).into())?;
                bind((*offset).into())?;
                bind((*timestamp).into())?;
                bind(generation.into())?;
                if self.of_source.is_some() {
                    bind(row.source_key.map_or(ToSqlOutput::Borrowed(ValueRef::Null), bytes))?;
                }
                match action {
                    Action::Columns(cells) => cells.iter().try_for_each(|value| bind(cell(value)))?,
                    Action::Whole(value) => bind(bytes(value))?,
                    Action::Delete => {}
                }
                upsert.raw_execute()
            }
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) if is_refusal(&error) => {
                refused.push(RowError {
                    delivery: row.at.0,
                    row: row.at.1,
                    cause: format!("the table refuses the row: {error}"),
                });
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Removes what older versions of a source key have written, except where `stays` says so.
    fn forget_source(
        &self,
        transaction: &Transaction<'_>,
        source: &[u8],
        version: &Version<'_>,
        stays: impl Fn(&[u8]) -> bool,
    ) -> rusqlite::Result<()> {
        let Some(of_source) = &self.of_source else { return Ok(()) };
        let Version { partition: TopicPartition { topic, partition }, offset, timestamp } = version;
        let mut found = transaction.prepare_cached(of_source)?;
        let mut rows = found.query(params![bytes(source), &**topic, partition, offset, timestamp])?;
        let mut gone: Vec<i64> = Vec::new();
        while let Some(row) = rows.next()? {
            let key = match row.get_ref(1)? {
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
                _ => continue,
            };
            if !stays(key) {
                gone.push(row.get(0)?);
            }
        }
        let mut delete = transaction.prepare_cached(&self.delete_row)?;
        gone.iter().try_for_each(|row| delete.execute([row]).map(drop))
    }

    pub fn set_position(
        &self,
        transaction: &Transaction<'_>,
        TopicPartition { topic, partition }: &TopicPartition,
        next: NextOffset,
    ) -> rusqlite::Result<()> {
        transaction
            .prepare_cached(
                "INSERT INTO _tidegate_offsets (topic, partition, next_offset) VALUES (?1, ?2, ?3)
                 ON CONFLICT (topic, partition) DO UPDATE SET next_offset = excluded.next_offset",
            )?
            .execute(params![&**topic, partition, next.0])
            .map(drop)
    }
}

/// Whether the version at the given places supersedes the row's: see [`Version::supersedes`]. A row of a log that is gone
/// is superseded by any.
fn newer([topic, partition, offset, timestamp]: [&str; 4]) -> String {
    format!(
        "(CASE WHEN {partition} = _partition AND {topic} = _topic THEN {offset} >= _offset
         ELSE ({timestamp}, {topic}, {partition}) > (_timestamp, _topic, _partition) END
         OR _generation < (SELECT incarnation FROM _tidegate_offsets AS kept
         WHERE kept.topic = _topic AND kept.partition = _partition))"
    )
}

/// Bytes as text where every client reads them as the same text, else as a blob. A NUL would end the text for many.
pub fn bytes(bytes: &[u8]) -> ToSqlOutput<'_> {
    let is_text = std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0);
    ToSqlOutput::Borrowed(if is_text { ValueRef::Text(bytes) } else { ValueRef::Blob(bytes) })
}

fn cell<'a>(cell: &'a Cell<'_>) -> ToSqlOutput<'a> {
    ToSqlOutput::Borrowed(match cell {
        Cell::Null => ValueRef::Null,
        Cell::Text(text) => ValueRef::Text(text.as_bytes()),
        Cell::Integer(number) => ValueRef::Integer(*number),
        Cell::Real(number) => ValueRef::Real(*number),
    })
}

/// Whether it is this row that cannot be written. A statement that fails so leaves the transaction as it was.
fn is_refusal(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch)
    )
}
