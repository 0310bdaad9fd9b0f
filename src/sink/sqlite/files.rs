//! Whether the database's files are still the ones that were opened.
//!
//! A file that is removed or replaced stays open: SQLite would go on writing to what no reader can find, and a new
//! write-ahead log that a reader makes beside the old one would not fit the database.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::sink::disk;

/// Device and number of a file.
type Identity = (u64, u64);

pub struct Files {
    path: PathBuf,
    database: Identity,
    log_path: PathBuf,
    /// The write-ahead log's, once it is there: it stays as long as anybody has the database open.
    log: Option<Identity>,
}

impl Files {
    /// Of the database that was just opened at `path`.
    pub fn new(path: &Path) -> io::Result<Self> {
        let log_path = disk::with_suffix(path, "-wal");
        let log = log_path.metadata().ok().as_ref().map(identity);
        Ok(Self { path: path.to_owned(), database: identity(&path.metadata()?), log_path, log })
    }

    /// # Errors
    /// When another file, or none, stands where the database or its log stood.
    pub fn check(&mut self) -> anyhow::Result<()> {
        let now = |path: &Path| path.metadata().ok().as_ref().map(identity);
        let log = now(&self.log_path);
        self.log = self.log.or(log);
        let gone = if now(&self.path) != Some(self.database) {
            &self.path
        } else if log != self.log {
            &self.log_path
        } else {
            return Ok(());
        };
        bail!(
            "`{}` was removed or replaced while the lane wrote to it; put the database where it is to be, or leave it \
             away to have the topic read again from its beginning, and start again",
            gone.display()
        )
    }
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}
