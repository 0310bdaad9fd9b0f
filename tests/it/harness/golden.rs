//! Committed files that a public surface is compared with.

use std::path::{Path, PathBuf};

/// A path of the repository.
pub fn in_repository(path: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Compares with `tests/golden/NAME`, or renews it when `UPDATE_GOLDEN` is set.
///
/// # Panics
/// When they differ.
#[track_caller]
pub fn assert_golden(name: &str, actual: &str) {
    let path = in_repository("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().expect("below tests/golden")).expect("writable");
        std::fs::write(&path, actual).expect("writable");
        return;
    }
    let expected = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("tests/golden/{name}: {error}; set UPDATE_GOLDEN=1 to write it"));
    assert!(
        expected == actual,
        "tests/golden/{name} differs; if that is meant, set UPDATE_GOLDEN=1\n--- expected\n{expected}\n--- actual\n{actual}"
    );
}
