//! What the gateway offers to plugins. Natively, where there is no gateway, a recorder for each thread takes its place; the
//! [harness](crate::harness) reads it.

use std::cell::RefCell;

pub use crate::bindings::tidegate::plugin::host::Level;

/// Whether a message of this level would be written. [`log!`](crate::log!) and its relatives ask by themselves.
pub fn enabled(level: Level) -> bool {
    outside::enabled(level)
}

/// Writes to the gateway's log. The gateway limits how much one call may write, and counts what it leaves out.
pub fn log(level: Level, message: &str) {
    outside::log(level, message);
}

/// Adds to a counter that is shown in `/metrics` for this plugin and route. The name must match `[a-z][a-z0-9_]{0,62}`.
///
/// Sums are kept in the plugin and passed on once for each batch, so that counting is cheap enough to be done for each
/// record. What was counted in a batch that traps is lost.
pub fn count(name: &'static str, by: u64) {
    SUMS.with_borrow_mut(|sums| match sums.iter_mut().find(|(known, _)| *known == name) {
        Some((_, sum)) => *sum = sum.saturating_add(by),
        None => sums.push((name, by)),
    });
}

/// Passes the sums of [`count`] on to the gateway.
pub(crate) fn flush_counts() {
    SUMS.with_borrow_mut(|sums| {
        for (name, sum) in sums.iter_mut().filter(|(_, sum)| *sum > 0) {
            outside::count(name, std::mem::take(sum));
        }
    });
}

thread_local! {
    /// As many entries as the plugin has names in its code; a search in a few of them is faster than a map.
    static SUMS: RefCell<Vec<(&'static str, u64)>> = const { RefCell::new(Vec::new()) };
}

/// Writes a formatted message to the gateway's log, if its level is written at all: `log!(Level::Info, "seen {n}")`.
#[macro_export]
macro_rules! log {
    ($level:expr, $($message:tt)+) => {{
        let level: $crate::Level = $level;
        if $crate::enabled(level) {
            $crate::log(level, &::std::format!($($message)+));
        }
    }};
}

/// [`log!`](crate::log!) at level `debug`.
#[macro_export]
macro_rules! debug {
    ($($message:tt)+) => { $crate::log!($crate::Level::Debug, $($message)+) };
}

/// [`log!`](crate::log!) at level `info`.
#[macro_export]
macro_rules! info {
    ($($message:tt)+) => { $crate::log!($crate::Level::Info, $($message)+) };
}

/// [`log!`](crate::log!) at level `warn`.
#[macro_export]
macro_rules! warn {
    ($($message:tt)+) => { $crate::log!($crate::Level::Warn, $($message)+) };
}

/// [`log!`](crate::log!) at level `error`.
#[macro_export]
macro_rules! error {
    ($($message:tt)+) => { $crate::log!($crate::Level::Error, $($message)+) };
}

#[cfg(target_arch = "wasm32")]
use crate::bindings::tidegate::plugin::host as outside;

#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod outside {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::Level;

    /// What a plugin said to the gateway, in a test.
    #[derive(Default)]
    pub(crate) struct Recorded {
        pub(crate) quietest: Option<Level>,
        pub(crate) logs: Vec<(Level, String)>,
        pub(crate) counts: BTreeMap<String, u64>,
    }

    thread_local! {
        pub(crate) static RECORDED: RefCell<Recorded> = RefCell::default();
    }

    pub(crate) fn enabled(level: Level) -> bool {
        RECORDED.with_borrow(|recorded| recorded.quietest.is_none_or(|quietest| level >= quietest))
    }

    pub(crate) fn log(level: Level, message: &str) {
        if enabled(level) {
            RECORDED.with_borrow_mut(|recorded| recorded.logs.push((level, message.into())));
        }
    }

    pub(crate) fn count(name: &str, by: u64) {
        RECORDED.with_borrow_mut(|recorded| *recorded.counts.entry(name.into()).or_default() += by);
    }
}
