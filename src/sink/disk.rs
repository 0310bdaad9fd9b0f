//! What files need so that they survive a power cut, and so that two writers never share one.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Creates `dir` and the directories above it that are missing, each of them durable in its parent.
pub fn create_dirs(dir: &Path) -> io::Result<()> {
    if dir.as_os_str().is_empty() || dir.is_dir() {
        return Ok(());
    }
    let parent = parent(dir);
    create_dirs(parent)?;
    match std::fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    sync_dir(parent)
}

/// Makes what was created, renamed or removed in `dir` durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir)?.sync_all()
}

/// The directory that `path` stands in.
pub fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Replaces the file at `path` in one step: a crash leaves the old contents or the new ones.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = with_suffix(path, ".tmp");
    let mut file = File::create(&temporary)?;
    io::Write::write_all(&mut file, contents)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    sync_dir(parent(path))
}

/// Takes the lock file beside `path`, which is held until the returned file is dropped, by the process's death too.
/// `None` = somebody else has it.
pub fn lock_beside(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(with_suffix(path, ".lock"))?;
    try_lock(&file).map(|locked| locked.then_some(file))
}

/// Locks `file` as long as it is open; `false` = somebody else has it.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// `path` with `suffix` after its name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_by_one_and_given_back_with_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let held = lock_beside(&path).unwrap();
        assert!(held.is_some());
        assert!(lock_beside(&path).unwrap().is_none());
        drop(held);
        assert!(lock_beside(&path).unwrap().is_some());
    }

    #[test]
    fn directories_are_created_and_contents_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/x");
        create_dirs(parent(&path)).unwrap();
        create_dirs(parent(&path)).unwrap();
        replace(&path, b"one").unwrap();
        replace(&path, b"2").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"2");
    }
}
