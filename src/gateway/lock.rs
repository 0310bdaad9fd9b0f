//! A file that one process holds at a time, and that names its holder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;

/// Held for as long as it lives; the kernel gives it back when the process dies, however that comes.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// `None` = the holder has not said yet which process it is.
    #[error("another process holds it")]
    Held { pid: Option<u32> },
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Lock {
    /// Takes the lock file at `path`, which is made when it is not there, and writes this process's id into it.
    ///
    /// # Errors
    /// When another holds it, in this process or another one, or the file cannot be written.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        // Not emptied before it is ours: it says who has it.
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held { pid: holder(&mut file) }),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self { _file: file })
    }
}

/// The process id that the file names.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    // More digits than any process id has.
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// ` (pid 123)`, where it is known.
pub fn shown(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_learns_who_holds_it_and_a_later_one_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        // What a longer id left must not become part of the next.
        std::fs::write(&path, "4294967295\n").unwrap();
        let first = Lock::take(&path).unwrap();
        let held = || Lock::take(&path).unwrap_err();
        assert!(matches!(held(), LockError::Held { pid: Some(pid) } if pid == std::process::id()));
        assert!(matches!(held(), LockError::Held { pid: Some(_) }), "asking does not erase the answer");
        std::fs::write(&path, "").unwrap();
        assert!(matches!(held(), LockError::Held { pid: None }));
        drop(first);
        Lock::take(&path).unwrap();
    }

    #[test]
    fn a_holder_is_shown_where_it_is_known() {
        assert_eq!([shown(Some(7)), shown(None)], [" (pid 7)", ""]);
    }
}
