//! The directory that belongs to one gateway: compiled plugins and dead letters, under a format version and a lock.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

use super::lock::{self, Lock, LockError};

/// Raised when what is kept there changes its form.
const FORMAT: &str = "1";

/// The lock's name in the directory.
pub const LOCK: &str = "lock";

/// Holds the lock for as long as it lives.
#[derive(Debug)]
pub struct DataDir {
    _lock: Lock,
}

impl DataDir {
    /// # Errors
    /// When the directory cannot be made, another gateway uses it, or it was made by a version that keeps it otherwise.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        fs::create_dir_all(path).with_context(|| format!("cannot make the data directory `{shown}`"))?;
        let lock = match Lock::take(&path.join(LOCK)) {
            Ok(lock) => lock,
            Err(LockError::Held { pid }) => bail!(
                "the data directory `{shown}` is in use by another gateway{}; stop that one, or give each its own `data_dir`",
                lock::shown(pid)
            ),
            Err(LockError::Io(error)) => return Err(error).with_context(|| format!("cannot lock `{shown}`")),
        };
        let format = path.join("format");
        match fs::read_to_string(&format) {
            Ok(text) if text.trim() == FORMAT => {}
            Ok(text) => bail!(
                "the data directory `{shown}` has format `{}`, and this version reads `{FORMAT}`; give it a new directory or run the version that made it",
                text.trim()
            ),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                fs::write(&format, FORMAT).with_context(|| format!("cannot write `{}`", format.display()))?;
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", format.display())),
        }
        Ok(Self { _lock: lock })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_gateway_is_refused_and_a_later_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::open(dir.path()).unwrap();
        let error = DataDir::open(dir.path()).unwrap_err().to_string();
        let (path, pid) = (dir.path().display(), std::process::id());
        assert_eq!(
            error,
            format!(
                "the data directory `{path}` is in use by another gateway (pid {pid}); \
                 stop that one, or give each its own `data_dir`"
            )
        );
        drop(first);
        DataDir::open(dir.path()).unwrap();
    }

    #[test]
    fn another_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("format"), "9").unwrap();
        let error = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("has format `9`"), "{error}");
    }
}
