//! Sinks.

use std::num::NonZeroU32;

use super::Checker;
use super::template::template;
use crate::config::checked::{
    Column, ColumnType, File, Method, OnDrop, OnReject, PathTemplate, Retry, Sink, SinkKind, Sqlite,
};
use crate::config::path::KeyPath;
use crate::config::units::format_duration;
use crate::config::{defaults, written};
use crate::delivery::OnError;

/// What the sink keeps beside each row under these names.
const TAKEN_COLUMNS: [&str; 10] =
    ["key", "_topic", "_partition", "_offset", "_timestamp", "_generation", "_source_key", "rowid", "oid", "_rowid_"];
/// Names that begin so are SQLite's own and the sink's own.
const TAKEN_TABLES: [&str; 2] = ["sqlite_", "_tidegate_"];

impl Sink {
    /// Bytes that the sink keeps for itself, where that is configured.
    pub(super) fn cache(&self) -> Option<u64> {
        match &self.kind {
            SinkKind::Sqlite(sqlite) => Some(sqlite.cache),
            SinkKind::Discard | SinkKind::File(_) | SinkKind::Http(_) => None,
        }
    }

    /// Whether it holds the latest value per key and would keep what a record had under its former key.
    pub fn keeps_no_former_key(&self) -> bool {
        matches!(&self.kind, SinkKind::Http(http) if http.method == Method::Put)
    }
}

impl Checker<'_> {
    pub(super) fn sink(&mut self, path: &KeyPath, name: &str, written: &written::Sink) -> Sink {
        let (kind, on_drop, on_reject, on_error, retry) = match written {
            written::Sink::Discard(written::Discard {}) => (SinkKind::Discard, None, None, None, None),
            written::Sink::File(file) => {
                (SinkKind::File(self.file_sink(path, file)), None, None, file.on_error, file.retry.as_ref())
            }
            written::Sink::Sqlite(sqlite) => {
                let on_drop = sqlite.on_drop.unwrap_or(OnDrop::Delete);
                let kind = SinkKind::Sqlite(self.sqlite(path, sqlite));
                (kind, Some(on_drop), sqlite.on_reject, sqlite.on_error, sqlite.retry.as_ref())
            }
            written::Sink::Http(http) => (
                SinkKind::Http(self.http(path, http)),
                http.on_drop,
                http.on_reject,
                http.on_error,
                http.retry.as_ref(),
            ),
        };
        Sink {
            name: name.to_owned(),
            kind,
            on_drop: on_drop.unwrap_or(OnDrop::Ignore),
            on_reject: on_reject.unwrap_or(OnReject::Keep),
            on_error: on_error.unwrap_or(OnError::DeadLetter),
            retry: self.retry(&path.key("retry"), retry),
        }
    }

    /// Of a sink whose route may change keys.
    pub(super) fn former_key(&mut self, path: &KeyPath, sink: &Sink) {
        if sink.keeps_no_former_key() && !self.is_gone(&path.key("method")) {
            self.error(
                path,
                "the route's plugins may change keys, and this sink cannot remove what a record had under its former key",
                "use `method: POST`, a sink that keeps source keys (`sqlite`), or plugins that leave keys as they are",
            );
        }
    }

    fn file_sink(&mut self, path: &KeyPath, written: &written::File) -> File {
        let outside = self.outside;
        let template =
            template(&written.path, |directory| outside.resolve(directory)).unwrap_or_else(|(message, help)| {
                self.error(&path.key("path"), message, help);
                PathTemplate { root: outside.base_dir.clone(), rest: String::new() }
            });
        let place = path.key("rotate");
        let rotate = written.rotate.as_ref();
        let size = rotate.and_then(|rotate| rotate.size.as_ref());
        let age = rotate.and_then(|rotate| rotate.age.as_ref());
        File {
            path: template,
            rotate_size: self.size(&place.key("size"), size, defaults::ROTATE_SIZE, &defaults::ROTATE_SIZE_RANGE),
            rotate_age: age.map(|age| {
                self.duration(&place.key("age"), Some(age), defaults::ROTATE_AGE, &defaults::ROTATE_AGE_RANGE)
            }),
            compress: rotate.and_then(|rotate| rotate.compress),
        }
    }

    fn sqlite(&mut self, path: &KeyPath, written: &written::Sqlite) -> Sqlite {
        let place = path.key("table");
        if TAKEN_TABLES.iter().any(|taken| written.table.to_ascii_lowercase().starts_with(taken)) {
            self.error(
                &place,
                format!("the table cannot be named `{}`", written.table),
                "names that begin with `sqlite_` or `_tidegate_` are taken",
            );
        } else {
            self.identifier(&place, &written.table);
        }
        let place = path.key("columns");
        let mut columns: Vec<Column> = Vec::new();
        for (name, column) in &written.columns {
            columns.push(self.column(&place.key(name), name, column, &columns));
        }
        Sqlite {
            path: self.file(&path.key("path"), &written.path),
            table: written.table.clone(),
            columns,
            cache: self.size(
                &path.key("cache"),
                written.cache.as_ref(),
                defaults::SQLITE_CACHE,
                &defaults::SQLITE_CACHE_RANGE,
            ),
        }
    }

    fn column(&mut self, path: &KeyPath, name: &str, written: &written::Column, earlier: &[Column]) -> Column {
        if TAKEN_COLUMNS.iter().any(|taken| taken.eq_ignore_ascii_case(name)) {
            let help = format!("taken: {}", TAKEN_COLUMNS.map(|taken| format!("`{taken}`")).join(", "));
            self.error(path, format!("the column cannot be named `{name}`"), help);
        } else if let Some(other) = earlier.iter().find(|other| other.name.eq_ignore_ascii_case(name)) {
            self.error(
                path,
                format!("SQLite takes the columns `{name}` and `{}` for one", other.name),
                "give one of them another name",
            );
        } else {
            self.identifier(path, name);
        }
        let pointer = &written.path;
        let mut escapes = pointer.split('~').skip(1);
        if !(pointer.is_empty() || pointer.starts_with('/')) {
            let help =
                format!("accepted: a JSON pointer, such as `/{}`", pointer.trim_start_matches("$.").replace('.', "/"));
            self.error(&path.key("path"), format!("`{pointer}` is not a JSON pointer"), help);
        } else if escapes.any(|escape| !escape.starts_with(['0', '1'])) {
            self.error(
                &path.key("path"),
                format!("`{pointer}` is not a JSON pointer"),
                "in a name, `~0` stands for `~` and `~1` for `/`",
            );
        }
        Column { name: name.to_owned(), pointer: pointer.clone(), kind: written.kind.unwrap_or(ColumnType::Text) }
    }

    fn identifier(&mut self, path: &KeyPath, name: &str) {
        let is_identifier = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.len() <= 64
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_identifier {
            let help = "accepted: letters, digits and `_`, at most 64, the first no digit";
            self.error(path, format!("`{name}` is not a name that SQL takes without quotes"), help);
        }
    }

    fn retry(&mut self, path: &KeyPath, written: Option<&written::Retry>) -> Retry {
        let nothing = written::Retry::default();
        let written = written.unwrap_or(&nothing);
        let range = &defaults::RETRY_BACKOFF_RANGE;
        let backoff = self.duration(&path.key("backoff"), written.backoff.as_ref(), defaults::RETRY_BACKOFF, range);
        let max = self.duration(&path.key("max"), written.max.as_ref(), defaults::RETRY_MAX, range);
        if backoff > max {
            let (backoff, max) = (format_duration(backoff), format_duration(max));
            let key = if written.backoff.is_some() { "backoff" } else { "max" };
            self.conflict(
                &path.key(key),
                &["backoff", "max"],
                format!("the first wait, {backoff}, is longer than the longest, {max}"),
                "`backoff` must not be above `max`",
            );
        }
        Retry { attempts: written.attempts.and_then(NonZeroU32::new), backoff, max }
    }
}
