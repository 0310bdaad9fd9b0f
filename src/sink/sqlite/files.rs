//! Whether the database's files are still the ones that were opened.
//!
//! A file that is removed or replaced stays open: SQLite would go on writing to what no reader can find, and a new
//! write-ahead log or index of it that a reader makes beside the old one would not fit the database.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};

use crate::sink::{WriteError, disk};

/// Device and number of a file.
type Identity = (u64, u64);

/// The database, its write-ahead log, and the index of that, each with what it was when it was first seen: they stay as long
/// as anybody has the database open.
pub struct Files([(PathBuf, Option<Identity>); 3]);

impl Files {
    /// Of the database that was just opened at `path`.
    pub fn new(path: &Path) -> io::Result<Self> {
        let noted = |suffix| {
            let path = disk::with_suffix(path, suffix);
            identity(&path).map(|identity| (path, identity))
        };
        Ok(Self([noted("")?, noted("-wal")?, noted("-shm")?]))
    }

    /// # Errors
    /// `Halt` when another file, or none, stands where one stood; `Transient` when that cannot be told now.
    pub fn check(&mut self) -> Result<(), WriteError> {
        for (path, noted) in &mut self.0 {
            let shown = path.display();
            let now = identity(path).with_context(|| format!("failed to look at `{shown}`"));
            let now = now.map_err(WriteError::Transient)?;
            *noted = noted.or(now);
            if *noted != now {
                return Err(WriteError::Halt(anyhow!(
                    "`{shown}` was removed or replaced while the lane wrote to it; put the database where it is to be, or \
                     leave it away to have the topic read again from its beginning, and start again"
                )));
            }
        }
        Ok(())
    }
}

/// `None` = there is no such file.
fn identity(path: &Path) -> io::Result<Option<Identity>> {
    match path.metadata() {
        Ok(metadata) => Ok(Some((metadata.dev(), metadata.ino()))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}
