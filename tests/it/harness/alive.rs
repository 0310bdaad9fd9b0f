//! Asks a gateway for its health all the time, and remembers the slowest answer.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{block_on, full_size};

/// Between two questions.
const INTERVAL: Duration = Duration::from_millis(50);
/// After this an answer counts as none.
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Alive {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub answers: u64,
    pub slowest: Duration,
    pub failures: Vec<String>,
}

impl Alive {
    pub fn watch(address: SocketAddr) -> Self {
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Seen::default())));
        let (stopping, sink) = (stop.clone(), seen.clone());
        let thread = std::thread::spawn(move || {
            let client = reqwest::Client::builder().timeout(LIMIT).build().expect("a client");
            let url = format!("http://{address}/livez");
            while !stopping.load(Ordering::Relaxed) {
                let start = Instant::now();
                let answer = block_on(async { client.get(&url).send().await });
                let took = start.elapsed();
                let mut seen = sink.lock().unwrap_or_else(PoisonError::into_inner);
                seen.answers += 1;
                seen.slowest = seen.slowest.max(took);
                match answer {
                    Ok(response) if response.status().as_u16() == 200 => {}
                    Ok(response) => seen.failures.push(response.status().to_string()),
                    Err(error) => seen.failures.push(error.to_string()),
                }
                drop(seen);
                std::thread::sleep(INTERVAL);
            }
        });
        Self { stop, seen, thread: Some(thread) }
    }

    /// Ends the watch, before the gateway ends.
    ///
    /// # Panics
    /// When an answer took longer than the limit (at full size: a second), or was no success.
    #[track_caller]
    pub fn assert_prompt(mut self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("stopped once").join().expect("the watch did not panic");
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(seen.answers > 0 && seen.failures.is_empty(), "health failed: {seen:?}");
        // On a machine that has other things to do, the limit of each request is all that can be asked for.
        assert!(!full_size() || seen.slowest < Duration::from_secs(1), "health took {:?}", seen.slowest);
        seen
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
