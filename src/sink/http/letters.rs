//! Dead letters on their way to the disk: written one lot at a time, on a thread where blocking is allowed.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::config::Retry;
use crate::delivery::{Delivery, Rejection};
use crate::sink::dead_letter::{DeadLetters, Letter};
use crate::sink::retry::Backoff;

pub struct Letters {
    file: Arc<Mutex<DeadLetters>>,
    waiting: Vec<Kept>,
    /// Whether a lot is being written, or waits for the disk.
    busy: bool,
    retry: Retry,
    backoff: Backoff,
}

/// A record to keep.
pub struct Kept {
    pub sequence: u64,
    pub delivery: Arc<Delivery>,
    pub origin: u32,
    pub rejection: Rejection,
}

impl Letters {
    pub fn new(path: PathBuf, retry: Retry) -> Self {
        // Nothing is acknowledged before its letter is safe, however long the disk refuses.
        let retry = Retry { attempts: None, ..retry };
        let file = Arc::new(Mutex::new(DeadLetters::new(path)));
        Self { file, waiting: Vec::new(), busy: false, retry, backoff: Backoff::new(retry) }
    }

    pub fn push(&mut self, letter: Kept) {
        self.waiting.push(letter);
    }

    /// The next lot, if there is one and none is on its way: [`Letters::written`] or [`Letters::failed`] is to be called
    /// with what comes of it.
    pub fn next_lot(&mut self) -> Option<Lot> {
        if self.busy || self.waiting.is_empty() {
            return None;
        }
        self.busy = true;
        Some(Lot { file: Arc::clone(&self.file), letters: std::mem::take(&mut self.waiting) })
    }

    pub fn written(&mut self) {
        self.busy = false;
        self.backoff = Backoff::new(self.retry);
    }

    /// How long to wait before [`Letters::rested`].
    pub fn failed(&mut self) -> Duration {
        self.backoff.failed().unwrap_or(self.retry.max)
    }

    /// The lot that failed goes before those that came since.
    pub fn rested(&mut self, mut letters: Vec<Kept>) {
        letters.append(&mut self.waiting);
        self.waiting = letters;
        self.busy = false;
    }

    pub fn is_busy(&self) -> bool {
        self.busy
    }
}

/// Letters that are written together.
pub struct Lot {
    file: Arc<Mutex<DeadLetters>>,
    letters: Vec<Kept>,
}

impl Lot {
    /// Makes the letters durable; returns how many were new, and gives them back.
    pub async fn write(self) -> (io::Result<usize>, Vec<Kept>) {
        let Self { file, letters: kept } = self;
        let write = tokio::task::spawn_blocking(move || {
            let letters: Vec<Letter<'_>> = kept.iter().filter_map(Kept::letter).collect();
            let result = file.lock().unwrap_or_else(PoisonError::into_inner).append(&letters);
            drop(letters);
            (result, kept)
        });
        // It is never cancelled, so that it ends or panics.
        write.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}

impl Kept {
    fn letter(&self) -> Option<Letter<'_>> {
        let input = self.delivery.input();
        let record = input.iter().nth(self.origin as usize)?;
        Some(Letter { partition: input.partition(), record, rejection: &self.rejection })
    }
}
