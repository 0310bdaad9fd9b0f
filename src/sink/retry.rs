//! When a transient failure is tried again: a pure value.
//!
//! | failure | waits                                     |
//! |---------|-------------------------------------------|
//! | 1st     | `backoff`                                 |
//! | nth     | `backoff × 2^(n-1)`, at most `max`        |
//! | last    | nothing: `attempts` tries were made       |
//!
//! Each wait is shortened by up to half, at random, so that lanes that failed together do not come back together.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::config::Retry;

/// The failures of one piece of work so far.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    retry: Retry,
    failures: u32,
}

impl Backoff {
    pub fn new(retry: Retry) -> Self {
        Self { retry, failures: 0 }
    }

    /// As it stands after `failures` failed tries.
    pub fn after(retry: Retry, failures: u32) -> Self {
        Self { retry, failures }
    }

    /// Another try has failed: how long to wait before the next; `None` = it was the last.
    pub fn failed(&mut self) -> Option<Duration> {
        self.failed_with(random())
    }

    /// How often it was tried and failed.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// `random` is uniform over all numbers.
    fn failed_with(&mut self, random: u64) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        if self.retry.attempts.is_some_and(|attempts| self.failures >= attempts.get()) {
            return None;
        }
        let full = self.full_wait();
        let half = full / 2;
        let share = (random >> 32) as u32;
        Some(full - half + Duration::from_nanos((half.as_nanos() as u64 / u64::from(u32::MAX)) * u64::from(share)))
    }

    /// The wait before its jitter. A `backoff` of nothing stays nothing, however often it is doubled.
    fn full_wait(&self) -> Duration {
        let Retry { backoff, max, .. } = self.retry;
        if backoff.is_zero() {
            return Duration::ZERO;
        }
        let doubled = 1u32.checked_shl(self.failures - 1).and_then(|times| backoff.checked_mul(times));
        doubled.map_or(max, |wait| wait.min(max))
    }
}

/// The standard library seeds each of its hashers at random, which is all the chance that a jitter needs.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    fn retry(attempts: Option<u32>, backoff_ms: u64, max_ms: u64) -> Retry {
        Retry {
            attempts: attempts.and_then(NonZeroU32::new),
            backoff: Duration::from_millis(backoff_ms),
            max: Duration::from_millis(max_ms),
        }
    }

    #[test]
    fn one_attempt_is_never_repeated() {
        assert_eq!(Backoff::new(retry(Some(1), 10, 100)).failed(), None);
    }

    #[test]
    fn no_limit_on_attempts_is_none() {
        let mut backoff = Backoff::new(retry(None, 1, 2));
        assert!((0..1000).all(|_| backoff.failed().is_some()));
        assert_eq!(backoff.failures(), 1000);
    }

    #[test]
    fn no_backoff_stays_none_past_the_last_doubling() {
        let mut backoff = Backoff::new(retry(None, 0, 1_000));
        assert!((0..100).all(|_| backoff.failed() == Some(Duration::ZERO)));
    }

    proptest! {
        /// Against the rule written out: the wait doubles up to the cap, and chance takes off at most half.
        #[test]
        fn waits_double_up_to_the_cap_and_keep_their_jitter(
            attempts in proptest::option::of(1u32..80),
            backoff_ms in 0u64..5_000,
            max_ms in 1u64..60_000,
            chances in proptest::collection::vec(any::<u64>(), 1..90),
        ) {
            let mut backoff = Backoff::new(retry(attempts, backoff_ms, max_ms));
            let mut full_ms = u128::from(backoff_ms);
            for (n, chance) in chances.into_iter().enumerate() {
                let wait = backoff.failed_with(chance);
                if attempts.is_some_and(|attempts| n + 1 >= attempts as usize) {
                    prop_assert_eq!(wait, None);
                    continue;
                }
                let wait = wait.expect("a try is left").as_nanos();
                let full = full_ms.min(u128::from(max_ms)) * 1_000_000;
                prop_assert!(wait <= full && wait >= full / 2, "{} of {}", wait, full);
                full_ms = full_ms.saturating_mul(2).min(1 << 100);
            }
        }
    }
}
