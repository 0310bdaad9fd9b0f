//! Whether the receiver as a whole can be called: a pure value.
//!
//! One key that fails is that key's affair. When the receiver cannot be reached, asks to be left alone, or fails for many
//! keys without one success between, each key trying on its own would be a flood: the gate closes, with a backoff of its
//! own, and lets single requests through until one is answered.

use std::collections::HashSet;
use std::hash::Hash;
use std::time::Duration;

use crate::config::Retry;
use crate::sink::retry::Backoff;

/// Keys that fail, one after another and none answered between, until the receiver counts as down.
const DOWN_AFTER: usize = 8;

#[derive(Debug)]
pub struct Gate<K> {
    failing: HashSet<K>,
    down: bool,
    closed: bool,
    retry: Retry,
    backoff: Backoff,
}

impl<K: Hash + Eq> Gate<K> {
    pub fn new(retry: Retry) -> Self {
        // The receiver is tried for ever: it is a row's tries that are counted.
        let retry = Retry { attempts: None, ..retry };
        Self { failing: HashSet::new(), down: false, closed: false, retry, backoff: Backoff::new(retry) }
    }

    /// How many requests may be under way, of `all` when nothing is wrong.
    pub fn limit(&self, all: usize) -> usize {
        match (self.closed, self.down) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => all,
        }
    }

    /// The receiver has given an answer.
    pub fn answered(&mut self) {
        self.failing.clear();
        self.down = false;
        self.backoff = Backoff::new(self.retry);
    }

    /// A request has failed; `whole` = no other would have done better. Returns for how long the gate is closed, when it
    /// closes now: [`Gate::open`] is to be called after that.
    pub fn failed(&mut self, key: K, whole: bool, at_least: Option<Duration>) -> Option<Duration> {
        self.failing.insert(key);
        self.down |= whole || at_least.is_some() || self.failing.len() >= DOWN_AFTER;
        if self.down {
            self.failing.clear();
        }
        if !self.down || self.closed {
            return None;
        }
        self.closed = true;
        self.backoff.failed().max(at_least)
    }

    pub fn open(&mut self) {
        self.closed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate<u8> {
        let attempts = std::num::NonZeroU32::new(1);
        Gate::new(Retry { attempts, backoff: Duration::from_secs(1), max: Duration::from_secs(8) })
    }

    #[test]
    fn one_key_that_fails_is_its_own_affair() {
        let mut gate = gate();
        assert!((0..100).all(|_| gate.failed(1, false, None).is_none()));
        assert_eq!(gate.limit(32), 32);
    }

    #[test]
    fn many_keys_that_fail_close_the_gate_and_one_answer_opens_it() {
        let mut gate = gate();
        let last = DOWN_AFTER as u8 - 1;
        assert!((0..last).all(|key| gate.failed(key, false, None).is_none()));
        let first = gate.failed(last, false, None).unwrap();
        assert_eq!(gate.limit(32), 0);
        assert_eq!(gate.failed(9, true, None), None, "requests that were under way close it no further");
        gate.open();
        assert_eq!(gate.limit(32), 1, "one at a time");
        let second = gate.failed(3, false, None).unwrap();
        assert!(first <= Duration::from_secs(1) && second > Duration::from_millis(999), "{first:?} {second:?}");
        gate.open();
        gate.answered();
        assert_eq!(gate.limit(32), 32);
        assert_eq!(gate.failed(1, false, None), None);
    }

    #[test]
    fn an_answer_between_begins_the_count_anew() {
        let mut gate = gate();
        for key in 0..100 {
            assert_eq!(gate.failed(key, false, None), None);
            if key % 5 == 0 {
                gate.answered();
            }
        }
    }

    #[test]
    fn being_asked_to_wait_and_being_unreachable_close_at_once() {
        let mut gate = gate();
        assert_eq!(gate.failed(1, false, Some(Duration::from_secs(60))), Some(Duration::from_secs(60)));
        gate.open();
        gate.answered();
        assert!(gate.failed(1, true, None).is_some());
    }
}
