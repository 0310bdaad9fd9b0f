//! Keeps a table of a SQLite database equal to the topic: one row per key, its offsets in the same transaction.
//!
//! The table can be read by any SQLite client while the gateway runs (write-ahead log). It has
//!
//! | column | holds |
//! |---|---|
//! | `key` | text when the key is UTF-8 without NUL, else a blob; the two never compare equal |
//! | `value`, or the configured columns | the value whole, text or blob as for `key`; or what JSON pointers find in it |
//! | `_topic`, `_partition`, `_offset`, `_timestamp`, `_generation` | where the row comes from |
//! | `_source_key` | only where the chain may change keys: the key that the record came with |
//!
//! Where it may, a newer version of a source key removes every row that an older one made. One row belongs to one source
//! key, the last that wrote it: two source keys whose records end under one output key take it from each other.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::ledger::Ledger;
use super::{Blocking, Context, Positions, WriteError, disk};
use crate::config::{Sink, Sqlite as Settings};
use crate::delivery::Delivery;
use crate::freshness::Kept;
use crate::metrics::LaneMetrics;
use crate::record::TopicPartition;

mod columns;
mod compare;
mod files;
mod ledger;
mod plan;
mod schema;
mod statements;
#[cfg(test)]
mod tests;

pub use compare::{Comparison, Difference, Kind, Report};
use files::Files;
use ledger::Generations;
use plan::Plan;
use schema::Schema;
use statements::Statements;

/// How long a write waits for another client's write before it counts as a failed try: short, since a stop has to wait
/// for it.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// Statements kept prepared: what a write uses, with room to spare.
const STATEMENTS: usize = 16;

/// Pages of the write-ahead log after which it is moved into the database: 16 MiB, since large transactions change the
/// same pages again and again.
const CHECKPOINT_PAGES: i64 = 4096;

/// Bytes that the write-ahead log's file keeps after a checkpoint.
const LOG_BYTES: i64 = 64 << 20;

pub struct Sqlite {
    connection: Connection,
    schema: Schema,
    statements: Statements,
    /// As it was when the database was opened.
    kept: BTreeMap<TopicPartition, Kept>,
    generations: Generations,
    /// The sweep under way: its partition, and the last row that was looked at.
    swept_up_to: Option<(TopicPartition, i64)>,
    sink: Arc<Sink>,
    metrics: LaneMetrics,
    files: Files,
    /// Whether something was written since the log was last moved into the database.
    behind: bool,
    /// Held so that no other lane or gateway writes to the same database.
    _lock: File,
}

impl Sqlite {
    /// Opens the database, or makes it.
    ///
    /// # Errors
    /// When it cannot be opened, is in use by another lane or gateway, or was made for another configuration.
    pub fn open(settings: &Settings, context: &Context) -> anyhow::Result<Self> {
        let path = &settings.path;
        let shown = path.display();
        let parent = disk::parent(path);
        disk::create_dirs(parent).with_context(|| format!("failed to create `{}`", parent.display()))?;
        let Some(lock) = disk::lock_beside(path).with_context(|| format!("failed to lock `{shown}`"))? else {
            bail!("`{shown}` is in use by another lane or gateway, which holds `{shown}.lock`; give each its own file");
        };
        let connection = Connection::open(path).with_context(|| format!("failed to open `{shown}`"))?;
        configure(&connection, settings).with_context(|| format!("failed to open `{shown}` as a SQLite database"))?;
        let schema = Schema::new(settings, context.changes_keys)?;
        schema.prepare(&connection, path)?;
        let kept = ledger::read(&connection).with_context(|| format!("failed to read `{shown}`"))?;
        let files = Files::new(path).with_context(|| format!("failed to look at `{shown}`"))?;
        Ok(Self {
            statements: Statements::new(&schema),
            generations: Generations::of(&kept),
            connection,
            schema,
            kept,
            swept_up_to: None,
            sink: Arc::clone(&context.sink),
            metrics: context.metrics.clone(),
            files,
            behind: false,
            _lock: lock,
        })
    }
}

/// `synchronous` is `NORMAL`: a process that dies loses nothing, and a power cut may lose the last transactions whole, with
/// the offsets in them, so that their records are read again from where the database says. `FULL` would pay a sync for
/// each transaction and save only that reading.
fn configure(connection: &Connection, settings: &Settings) -> anyhow::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        bail!("its file system cannot share memory between processes, which a write-ahead log needs; use a local disk");
    }
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // A negative size is in KiB, a positive one in pages.
    let kibibytes = i64::try_from(settings.cache / 1024).unwrap_or(i64::MAX);
    connection.pragma_update(None, "cache_size", -kibibytes)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    Ok(())
}

impl Blocking for Sqlite {
    fn positions(&self) -> Option<Positions> {
        Some(self.kept.iter().map(|(partition, kept)| (partition.clone(), kept.next)).collect())
    }

    fn keeps_latest(&self) -> bool {
        true
    }

    fn write(&mut self, deliveries: &[Delivery]) -> Result<(), WriteError> {
        let plan = Plan::new(&self.schema, &self.sink, deliveries).map_err(WriteError::Rows)?;
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(classify)?;
        let refused = self.statements.apply(&transaction, &plan, &self.generations).map_err(classify)?;
        if !refused.is_empty() {
            // When dropped, it is rolled back, unless a trigger has done that.
            drop(transaction);
            return Err(WriteError::Rows(refused));
        }
        for delivery in deliveries {
            let partition = delivery.input().partition();
            self.statements.set_position(&transaction, partition, delivery.span.next).map_err(classify)?;
        }
        transaction.commit().map_err(classify)?;
        // After the commit, so that nothing is acknowledged that went into a file which nobody can open any more.
        self.files.check()?;
        self.behind = true;
        self.metrics.coalesced.inc_by(plan.coalesced);
        self.metrics.stale.inc_by(plan.stale);
        Ok(())
    }

    fn ledger(&mut self) -> Option<&mut dyn Ledger> {
        Some(self)
    }

    fn row_bytes(&self) -> usize {
        plan::row_bytes(self.schema.columns.len())
    }

    fn idle(&mut self) {
        if !self.behind {
            return;
        }
        self.behind = false;
        // A reader that holds the log back only puts this off.
        if let Err(error) = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
            tracing::debug!(%error, "failed to checkpoint");
        }
    }
}

/// What may work later is what another process, the disk or an operator can change; a file that is not a database, or
/// has lost a table, stays so until somebody acts.
fn classify(error: rusqlite::Error) -> WriteError {
    let code = error.sqlite_error_code();
    let error = anyhow::Error::new(error).context("sqlite");
    match code {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::OutOfMemory
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OperationInterrupted
            | ErrorCode::OperationAborted
            | ErrorCode::SchemaChanged,
        ) => WriteError::Transient(error),
        _ => WriteError::Halt(error),
    }
}
