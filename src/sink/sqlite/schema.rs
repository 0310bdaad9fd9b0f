//! The tables: what they look like, and whether those that are there are the ones that the configuration asks for.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, bail};
use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};

use super::columns::Pointer;
use super::ledger;
use crate::config::{ColumnType, Sqlite as Settings};

/// Of everything in the file that is not the user's table.
const FORMAT: &str = "1";

/// The pass over the snapshot that a partition is written in first.
pub const FIRST_GENERATION: i64 = 1;

/// What every row says of where it comes from, with its declaration.
pub const METADATA: [(&str, &str); 5] = [
    ("_topic", "TEXT NOT NULL"),
    ("_partition", "INTEGER NOT NULL"),
    ("_offset", "INTEGER NOT NULL"),
    ("_timestamp", "INTEGER NOT NULL"),
    ("_generation", "INTEGER NOT NULL"),
];

pub struct Schema {
    pub table: String,
    /// Empty = the value whole.
    pub columns: Vec<Column>,
    /// Whether rows say which source key they come from.
    pub source_keys: bool,
}

pub struct Column {
    pub name: String,
    pub pointer: Pointer,
    pub kind: ColumnType,
}

/// A schema as the database remembers it, to be compared with the configuration.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    table: String,
    columns: Vec<RememberedColumn>,
    source_keys: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RememberedColumn {
    name: String,
    pointer: String,
    kind: ColumnType,
}

impl Schema {
    pub fn new(settings: &Settings, source_keys: bool) -> anyhow::Result<Self> {
        let table = settings.table.clone();
        let lower = table.to_ascii_lowercase();
        if table.is_empty() || lower.starts_with("sqlite_") || lower.starts_with("_tidegate_") {
            bail!("`{table}` cannot be the table's name; names that begin with `sqlite_` or `_tidegate_` are taken");
        }
        let mut names: BTreeSet<String> = METADATA.iter().map(|(name, _)| (*name).to_owned()).collect();
        names.extend(["key", "_source_key", "rowid", "oid", "_rowid_"].map(str::to_owned));
        let mut columns = Vec::with_capacity(settings.columns.len());
        for column in &settings.columns {
            if !names.insert(column.name.to_ascii_lowercase()) {
                bail!("column `{}` of table `{table}` is taken; give it another name", column.name);
            }
            let pointer = Pointer::parse(&column.pointer)?;
            columns.push(Column { name: column.name.clone(), pointer, kind: column.kind });
        }
        Ok(Self { table, columns, source_keys })
    }

    /// The names of the columns that hold the value, quoted.
    pub fn value_columns(&self) -> Vec<String> {
        if self.columns.is_empty() {
            return vec!["value".to_owned()];
        }
        self.columns.iter().map(|column| quote(&column.name)).collect()
    }

    /// Makes the tables in a new database, or checks those that are there.
    pub fn prepare(&self, connection: &Connection, path: &Path) -> anyhow::Result<()> {
        let shown = path.display();
        let failed = || format!("failed to read the tables of `{shown}`");
        if has_table(connection, "_tidegate_meta").with_context(failed)? {
            self.check(connection, path)?;
            return ledger::add_columns(connection)
                .with_context(|| format!("failed to add columns to the offsets of `{shown}`"));
        }
        if has_table(connection, &self.table).with_context(failed)? {
            bail!(
                "`{shown}` has a table `{}` that this gateway did not make; name another table or another file",
                self.table
            );
        }
        self.create(connection).with_context(|| format!("failed to make the tables of `{shown}`"))
    }

    /// Checks whether the tables of the database are those that the configuration asks for.
    pub fn check(&self, connection: &Connection, path: &Path) -> anyhow::Result<()> {
        let shown = path.display();
        let failed = || format!("failed to read the tables of `{shown}`");
        if !has_table(connection, "_tidegate_meta").with_context(failed)? {
            bail!("`{shown}` was not made by a gateway");
        }
        let format = meta(connection, "format").with_context(failed)?;
        if format.as_deref() != Some(FORMAT) {
            let format = format.unwrap_or_default();
            bail!("`{shown}` has format `{format}`, and this version reads format `{FORMAT}`; use another file");
        }
        let remembered = meta(connection, "schema").with_context(failed)?.unwrap_or_default();
        let remembered: Remembered = serde_json::from_str(&remembered)
            .with_context(|| format!("the schema kept in `{shown}` cannot be read"))?;
        let mut differences = self.remember().differences(&remembered);
        if differences.is_empty() && !has_table(connection, &self.table).with_context(failed)? {
            bail!(
                "table `{}` of `{shown}` is gone, and the offsets kept beside it say that it was delivered; put it back, or \
                 delete `{shown}`, `{shown}-wal` and `{shown}-shm` to have the topic read again from its beginning",
                self.table
            );
        }
        if differences.is_empty() {
            differences = self.missing(connection).with_context(failed)?;
        }
        if !differences.is_empty() {
            bail!(
                "`{shown}` was made for another configuration: {}; change the configuration back, or give another \
                 `path`, or delete `{shown}`, `{shown}-wal` and `{shown}-shm` to have the topic read again from its beginning",
                differences.join("; ")
            );
        }
        Ok(())
    }

    fn create(&self, connection: &Connection) -> rusqlite::Result<()> {
        let table = quote(&self.table);
        let mut declared = vec!["key TEXT NOT NULL UNIQUE".to_owned()];
        if self.columns.is_empty() {
            declared.push("value TEXT NOT NULL".to_owned());
        }
        declared
            .extend(self.columns.iter().map(|column| format!("{} {}", quote(&column.name), declaration(column.kind))));
        declared.extend(METADATA.iter().map(|(name, declaration)| format!("{name} {declaration}")));
        let mut index = String::new();
        if self.source_keys {
            declared.push("_source_key TEXT".to_owned());
            let name = quote(&format!("{}_source_key", self.table));
            index = format!("CREATE INDEX {name} ON {table} (_source_key) WHERE _source_key IS NOT NULL;");
        }
        let schema = serde_json::to_string(&self.remember()).expect("a schema is always written to a string");
        // A table with row ids and an index on the key takes sorted upserts faster than one that is stored by its key.
        connection.execute_batch(&format!("BEGIN IMMEDIATE; CREATE TABLE {table} ({}); {index}
             CREATE TABLE _tidegate_offsets (topic TEXT NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,
                {},
                PRIMARY KEY (topic, partition)) WITHOUT ROWID;
             CREATE TABLE _tidegate_meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
             INSERT INTO _tidegate_meta VALUES ('format', '{FORMAT}'), ('generation', '{FIRST_GENERATION}'), ('schema', {});
             COMMIT;", declared.join(", "), ledger::declared().join(", "), quote_text(&schema)))
    }

    fn remember(&self) -> Remembered {
        let columns = self.columns.iter().map(|column| RememberedColumn {
            name: column.name.clone(),
            pointer: column.pointer.to_string(),
            kind: column.kind,
        });
        Remembered { table: self.table.clone(), columns: columns.collect(), source_keys: self.source_keys }
    }

    /// What somebody took away from the table since it was made. What they added is theirs.
    fn missing(&self, connection: &Connection) -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
        let there: BTreeSet<String> =
            statement.query_map([&self.table], |row| row.get::<_, String>(0))?.collect::<Result<_, _>>()?;
        let mut wanted = vec!["key"];
        wanted.extend(METADATA.iter().map(|(name, _)| *name));
        match &self.columns[..] {
            [] => wanted.push("value"),
            columns => wanted.extend(columns.iter().map(|column| column.name.as_str())),
        }
        if self.source_keys {
            wanted.push("_source_key");
        }
        let gone = wanted.into_iter().filter(|name| !there.contains(*name));
        Ok(gone.map(|name| format!("column `{name}` of table `{}` is gone", self.table)).collect())
    }
}

impl Remembered {
    fn differences(&self, before: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.table != before.table {
            found.push(format!("its table is `{}`, and `{}` is configured", before.table, self.table));
        }
        match (before.columns.is_empty(), self.columns.is_empty()) {
            (true, false) => found.push("it holds values whole, and columns are configured".to_owned()),
            (false, true) => found.push("it holds columns, and none are configured".to_owned()),
            _ => {
                for column in &self.columns {
                    match before.columns.iter().find(|candidate| candidate.name == column.name) {
                        None => found.push(format!("column `{}` is new", column.name)),
                        Some(was) if was != column => found.push(format!(
                            "column `{}` was `{}` as {}, and is `{}` as {}",
                            column.name,
                            was.pointer,
                            type_name(was.kind),
                            column.pointer,
                            type_name(column.kind)
                        )),
                        Some(_) => {}
                    }
                }
                let gone =
                    before.columns.iter().filter(|was| !self.columns.iter().any(|column| column.name == was.name));
                found.extend(gone.map(|column| format!("column `{}` is no longer configured", column.name)));
            }
        }
        match (before.source_keys, self.source_keys) {
            (false, true) => found.push("it does not keep source keys, and the chain now changes keys".to_owned()),
            (true, false) => found.push("it keeps source keys, and the chain no longer changes keys".to_owned()),
            _ => {}
        }
        found
    }
}

/// `name` as an identifier.
pub fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn quote_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn declaration(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Text | ColumnType::Json => "TEXT",
        ColumnType::Integer => "INTEGER",
        ColumnType::Real => "REAL",
        ColumnType::Boolean => "BOOLEAN",
    }
}

/// As the configuration writes it.
pub fn type_name(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Text => "text",
        ColumnType::Integer => "integer",
        ColumnType::Real => "real",
        ColumnType::Boolean => "boolean",
        ColumnType::Json => "json",
    }
}

fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM sqlite_schema WHERE type IN ('table', 'view') AND name = ?1 COLLATE NOCASE";
    Ok(connection.query_row(sql, [name], |_| Ok(())).optional()?.is_some())
}

fn meta(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    connection.query_row("SELECT value FROM _tidegate_meta WHERE name = ?1", [name], |row| row.get(0)).optional()
}
