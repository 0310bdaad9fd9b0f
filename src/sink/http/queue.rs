//! Which row may be sent next: a pure value.
//!
//! A key has a line of entries, of which only the first may be under way: what is sent for a key is sent in order, through
//! all retries. An entry is one row, or, at a sink that holds the latest value, the versions that waited together: the
//! last is sent and stands for the others; when it is rejected, the one before it takes its place.
//!
//! | the first entry is | it leaves this state by |
//! |---|---|
//! | ready     | [`Queue::next`]: under way |
//! | under way | [`Queue::done`]: gone; [`Queue::again`]: ready; [`Queue::rest`]: resting |
//! | resting   | [`Queue::wake`]: ready |
//!
//! Rows wait in [`Queue::push`] behind what is there; into the last entry, if that has not been tried yet.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What must not be under way twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    Named(Arc<[u8]>),
    /// A row without a key, which no other has to wait for.
    Alone(u64),
}

#[derive(Debug)]
pub struct Queue<T> {
    lines: HashMap<Key, VecDeque<Entry<T>>>,
    /// The keys whose first entry is ready, each once.
    ready: VecDeque<Key>,
    resting: usize,
}

#[derive(Debug)]
pub struct Entry<T> {
    /// Oldest first; the last one is sent.
    pub rows: Vec<T>,
    /// Failed tries of the last row.
    pub failures: u32,
    tried: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { lines: HashMap::new(), ready: VecDeque::new(), resting: 0 }
    }
}

impl<T> Queue<T> {
    /// Adds a row behind those of its key. `supersedes` = that it may join rows that wait, and whether the first of two
    /// counts rather than the second.
    pub fn push(&mut self, key: Key, row: T, supersedes: Option<impl Fn(&T, &T) -> bool>) {
        let line = self.lines.entry(key.clone()).or_default();
        if line.is_empty() {
            self.ready.push_back(key);
        }
        match (supersedes, line.back_mut()) {
            (Some(supersedes), Some(last)) if !last.tried => {
                let older = last.rows.last().is_some_and(|last| !supersedes(&row, last));
                last.rows.insert(last.rows.len() - usize::from(older), row);
            }
            _ => line.push_back(Entry { rows: vec![row], failures: 0, tried: false }),
        }
    }

    /// The next key whose first entry may be sent, which is under way from now on.
    pub fn next(&mut self) -> Option<Key> {
        let key = self.ready.pop_front()?;
        if let Some(entry) = self.first(&key) {
            entry.tried = true;
        }
        Some(key)
    }

    /// The first entry of `key`.
    pub fn first(&mut self, key: &Key) -> Option<&mut Entry<T>> {
        self.lines.get_mut(key)?.front_mut()
    }

    /// The entry under way is finished: takes it out.
    pub fn done(&mut self, key: &Key) -> Option<Entry<T>> {
        let line = self.lines.get_mut(key)?;
        let entry = line.pop_front();
        if line.is_empty() {
            self.lines.remove(key);
        } else {
            self.ready.push_back(key.clone());
        }
        entry
    }

    /// The entry under way is to be sent once more, at once.
    pub fn again(&mut self, key: &Key) {
        self.ready.push_back(key.clone());
    }

    /// The entry under way has failed and waits for [`Queue::wake`].
    pub fn rest(&mut self, key: &Key) {
        debug_assert!(self.lines.contains_key(key));
        self.resting += 1;
    }

    pub fn wake(&mut self, key: &Key) {
        self.resting -= 1;
        self.ready.push_back(key.clone());
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether nothing can be sent before something has rested.
    pub fn all_rest(&self) -> bool {
        self.resting > 0 && self.resting == self.lines.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn key(n: u8) -> Key {
        Key::Named(Arc::from([n]))
    }

    fn joining() -> Option<fn(&u32, &u32) -> bool> {
        Some(|_, _| true)
    }

    #[test]
    fn versions_that_wait_together_are_one_entry_and_one_under_way_is_left_alone() {
        let mut queue = Queue::default();
        queue.push(key(1), 1, joining());
        queue.push(key(1), 2, joining());
        assert_eq!(queue.next(), Some(key(1)));
        queue.push(key(1), 3, joining());
        queue.push(key(1), 4, joining());
        assert_eq!(queue.next(), None, "a key is under way once");
        assert_eq!(queue.done(&key(1)).unwrap().rows, [1, 2]);
        assert_eq!(queue.next(), Some(key(1)));
        queue.rest(&key(1));
        assert!(queue.all_rest());
        queue.push(key(1), 5, joining());
        queue.wake(&key(1));
        assert_eq!(queue.next(), Some(key(1)));
        assert_eq!(queue.done(&key(1)).unwrap().rows, [3, 4], "an entry that was tried takes no other");
        assert_eq!(queue.next(), Some(key(1)));
        assert_eq!(queue.done(&key(1)).unwrap().rows, [5]);
        assert!(queue.is_empty());
    }

    #[test]
    fn an_older_version_that_comes_later_goes_below() {
        let mut queue = Queue::default();
        queue.push(key(1), 9, joining());
        queue.push(key(1), 3, Some(|new: &u32, last: &u32| new > last));
        queue.next();
        assert_eq!(queue.done(&key(1)).unwrap().rows, [3, 9]);
    }

    #[test]
    fn a_log_joins_nothing() {
        let mut queue = Queue::default();
        queue.push(key(1), 1, None::<fn(&u32, &u32) -> bool>);
        queue.push(key(1), 2, None::<fn(&u32, &u32) -> bool>);
        queue.next();
        assert_eq!(queue.done(&key(1)).unwrap().rows, [1]);
        queue.next();
        assert_eq!(queue.done(&key(1)).unwrap().rows, [2]);
    }

    proptest! {
        /// Whatever is pushed, tried, rested and finished: a key is under way at most once, its rows leave in the order
        /// they came, and none is lost.
        #[test]
        fn rows_of_a_key_leave_once_and_in_order(
            steps in proptest::collection::vec((0u8..5, 0u8..3, any::<bool>()), 0..120),
        ) {
            let mut queue = Queue::default();
            let (mut under_way, mut resting) = (BTreeSet::new(), BTreeSet::new());
            let mut pushed: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
            let mut left: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
            let mut count = 0;
            let number = |key: &Key| match key { Key::Named(bytes) => bytes[0], Key::Alone(_) => unreachable!() };
            let mut finish = |queue: &mut Queue<u32>, n: u8| {
                left.entry(n).or_default().extend(queue.done(&key(n)).expect("it is under way").rows);
            };
            for (step, n, join) in steps {
                match step {
                    0 | 1 => {
                        count += 1;
                        pushed.entry(n).or_default().push(count);
                        queue.push(key(n), count, joining().filter(|_| join));
                    }
                    2 => if let Some(key) = queue.next() {
                        prop_assert!(!resting.contains(&number(&key)));
                        prop_assert!(under_way.insert(number(&key)), "twice under way");
                    },
                    3 => if under_way.remove(&n) { finish(&mut queue, n); },
                    _ if resting.remove(&n) => queue.wake(&key(n)),
                    _ => if under_way.remove(&n) {
                        queue.rest(&key(n));
                        resting.insert(n);
                    },
                }
                prop_assert_eq!(queue.all_rest(), !resting.is_empty() && resting.len() == queue.lines.len());
            }
            resting.iter().for_each(|n| queue.wake(&key(*n)));
            under_way.iter().for_each(|n| finish(&mut queue, *n));
            while let Some(key) = queue.next() {
                finish(&mut queue, number(&key));
            }
            prop_assert!(queue.is_empty());
            prop_assert_eq!(left, pushed);
        }
    }
}
