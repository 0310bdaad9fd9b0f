//! What the database keeps of each partition so that no delete is missed, beside its offset.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::schema::{FIRST_GENERATION, quote};
use super::{Sqlite, classify};
use crate::freshness::Kept;
use crate::record::{NextOffset, TopicPartition};
use crate::sink::WriteError;
use crate::sink::ledger::{Ledger, Swept};

/// Rows looked at in one step of a sweep: some tens of milliseconds, between which deliveries are written.
const SWEEP_ROWS: i64 = 10_000;

/// The columns of `_tidegate_offsets` beside its key and the offset, which a database of an earlier version lacks.
const COLUMNS: [(&str, &str); 5] = [
    ("topic_id", "TEXT"),
    ("generation", "INTEGER NOT NULL DEFAULT 1"),
    ("incarnation", "INTEGER NOT NULL DEFAULT 1"),
    ("as_of", "INTEGER"),
    ("unswept", "INTEGER NOT NULL DEFAULT 0"),
];

pub fn declared() -> Vec<String> {
    COLUMNS.iter().map(|(name, declaration)| format!("{name} {declaration}")).collect()
}

/// Brings the table of an earlier version up to date. An earlier version goes on working with it.
pub fn add_columns(connection: &Connection) -> anyhow::Result<()> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info('_tidegate_offsets')")?;
    let there: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for (name, declaration) in COLUMNS.iter().filter(|(name, _)| !there.iter().any(|column| column == name)) {
        connection.execute_batch(&format!("ALTER TABLE _tidegate_offsets ADD COLUMN {name} {declaration}"))?;
    }
    Ok(())
}

pub fn read(connection: &Connection) -> rusqlite::Result<BTreeMap<TopicPartition, Kept>> {
    let mut statement = connection.prepare(
        "SELECT topic, partition, next_offset, topic_id, generation, incarnation, as_of, unswept FROM _tidegate_offsets",
    )?;
    let rows = statement.query_map([], |row| {
        let kept = Kept {
            next: NextOffset(row.get(2)?),
            topic_id: row.get(3)?,
            generation: row.get(4)?,
            incarnation: row.get(5)?,
            as_of: row.get(6)?,
            unswept: row.get(7)?,
        };
        Ok((TopicPartition::new(row.get::<_, String>(0)?, row.get(1)?), kept))
    })?;
    rows.collect()
}

/// The pass that each partition is written in.
#[derive(Debug, Default)]
pub struct Generations(HashMap<TopicPartition, i64>);

impl Generations {
    pub fn of(kept: &BTreeMap<TopicPartition, Kept>) -> Self {
        Self(kept.iter().map(|(partition, kept)| (partition.clone(), kept.generation)).collect())
    }

    pub fn get(&self, partition: &TopicPartition) -> i64 {
        self.0.get(partition).copied().unwrap_or(FIRST_GENERATION)
    }
}

impl Sqlite {
    fn transaction<T>(&mut self, act: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T, WriteError> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(classify)?;
        let value = act(&transaction).map_err(classify)?;
        transaction.commit().map_err(classify)?;
        self.files.check()?;
        self.behind = true;
        Ok(value)
    }
}

impl Ledger for Sqlite {
    fn kept(&self) -> BTreeMap<TopicPartition, Kept> {
        self.kept.clone()
    }

    fn begin(&mut self, partitions: &[(TopicPartition, Kept)]) -> Result<(), WriteError> {
        self.transaction(|transaction| {
            let mut begin = transaction.prepare_cached(
                "INSERT OR REPLACE INTO _tidegate_offsets
                 (topic, partition, next_offset, topic_id, generation, incarnation, as_of, unswept)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?;
            partitions.iter().try_for_each(|(TopicPartition { topic, partition }, kept)| {
                let Kept { next, topic_id, generation, incarnation, as_of, unswept } = kept;
                begin
                    .execute(params![&**topic, partition, next.0, topic_id, generation, incarnation, as_of, unswept])
                    .map(drop)
            })
        })?;
        // A sweep that was under way belongs to an older pass.
        self.swept_up_to = None;
        let begun = partitions.iter().map(|(partition, kept)| (partition.clone(), kept.generation));
        self.generations.0.extend(begun);
        Ok(())
    }

    fn keep(&mut self, moments: &[(TopicPartition, i64)]) -> Result<(), WriteError> {
        self.transaction(|transaction| {
            let mut keep = transaction
                .prepare_cached("UPDATE _tidegate_offsets SET as_of = ?3 WHERE topic = ?1 AND partition = ?2")?;
            moments.iter().try_for_each(|(TopicPartition { topic, partition }, as_of)| {
                keep.execute(params![&**topic, partition, as_of]).map(drop)
            })
        })
    }

    fn sweep(&mut self, partition: &TopicPartition) -> Result<Swept, WriteError> {
        let table = quote(&self.schema.table);
        let generation = self.generations.get(partition);
        let after = match &self.swept_up_to {
            Some((swept, row)) if swept == partition => *row,
            _ => i64::MIN,
        };
        let TopicPartition { topic, partition: number } = partition;
        let (last, rows) = self.transaction(|transaction| {
            let last: Option<i64> = transaction.query_row(
                &format!(
                    "SELECT max(rowid) FROM (SELECT rowid FROM {table} WHERE rowid > ?1 ORDER BY rowid LIMIT {SWEEP_ROWS})"
                ),
                [after],
                |row| row.get(0),
            )?;
            let Some(last) = last else {
                transaction.execute(
                    "UPDATE _tidegate_offsets SET unswept = 0 WHERE topic = ?1 AND partition = ?2 AND generation = ?3",
                    params![&**topic, number, generation],
                )?;
                return Ok((None, 0));
            };
            let rows = transaction.execute(
                &format!(
                    "DELETE FROM {table} WHERE rowid > ?1 AND rowid <= ?2
                     AND _topic = ?3 AND _partition = ?4 AND _generation < ?5"
                ),
                params![after, last, &**topic, number, generation],
            )?;
            Ok((Some(last), rows as u64))
        })?;
        self.swept_up_to = last.map(|last| (partition.clone(), last));
        Ok(Swept { rows, more: last.is_some() })
    }
}
