//! Waiting for a condition, with a deadline, instead of sleeping.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(20);

/// Returns what `probe` gives as soon as it gives something.
///
/// # Panics
/// When it gives nothing within `limit`.
#[track_caller]
pub fn wait_for<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(start.elapsed() < limit, "waited {limit:?} for {what}");
        std::thread::sleep(INTERVAL);
    }
}

/// Waits until `actual` equals `expected`.
///
/// # Panics
/// When it does not within `limit`; shows what it was last.
#[track_caller]
pub fn eventually<T: PartialEq + Debug>(what: &str, limit: Duration, expected: &T, mut actual: impl FnMut() -> T) {
    let start = Instant::now();
    loop {
        let now = actual();
        if now == *expected {
            return;
        }
        if start.elapsed() >= limit {
            panic!("waited {limit:?} for {what}\n expected: {expected:?}\n  but was: {now:?}");
        }
        std::thread::sleep(INTERVAL);
    }
}
