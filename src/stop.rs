//! The signal that ends a thread's work: set once, seen by everyone, and a wait that it cuts short.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Clones share one signal.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    set: Mutex<bool>,
    changed: Condvar,
    /// The same, for tasks.
    notified: tokio::sync::Notify,
}

impl Stop {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn set(&self) {
        *self.0.set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
        self.0.notified.notify_waiters();
    }

    pub fn is_set(&self) -> bool {
        *self.0.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `duration` or until the signal; returns whether it is set.
    pub fn wait(&self, duration: Duration) -> bool {
        let deadline = Instant::now() + duration;
        let mut set = self.0.set.lock().unwrap_or_else(PoisonError::into_inner);
        while !*set {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            set = self.0.changed.wait_timeout(set, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *set
    }

    /// Resolves when the signal is set, at once if it is.
    pub async fn stopped(&self) {
        let notified = self.0.notified.notified();
        tokio::pin!(notified);
        // Registered before the look, so that a signal between the two is not missed.
        notified.as_mut().enable();
        if !self.is_set() {
            notified.await;
        }
    }
}
