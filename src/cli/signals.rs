//! The signals that end a program, and what the first and the second of them do.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::gateway::Gateway;

/// SIGINT and SIGTERM, caught from the moment this is made until the process ends.
#[derive(Debug)]
pub struct Signals {
    interrupt: Stream,
    terminate: Stream,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    Terminate,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        })
    }
}

impl Signals {
    /// Called within a runtime.
    ///
    /// # Errors
    /// When the operating system refuses to tell of signals.
    pub fn catch() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next signal. One that came since the last call counts.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
        }
    }
}

/// How the lanes ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Drained {
    /// In order, but for these, which did not end in time.
    Late(Vec<String>),
    /// A signal cut it short. The lanes still run: only [`super::exit::at_once`] leaves nothing more to be done by them.
    Cut(Signal),
}

/// Signals within this time are one: `timeout` and other programs that start programs signal a process and then its group.
/// Nobody presses Ctrl-C twice as fast, having read what the first one says.
const ONE_SIGNAL: Duration = Duration::from_millis(300);

/// Ends the lanes, which takes up to the grace time, unless another signal comes.
///
/// # Errors
/// When the wait for the lanes panicked.
pub async fn drain(gateway: Gateway, signals: &mut Signals) -> anyhow::Result<Drained> {
    let begun = Instant::now();
    let mut stop = tokio::task::spawn_blocking(move || gateway.stop());
    loop {
        tokio::select! {
            late = &mut stop => return Ok(Drained::Late(late?)),
            signal = signals.next() => {
                if begun.elapsed() >= ONE_SIGNAL {
                    return Ok(Drained::Cut(signal));
                }
            }
        }
    }
}

/// What the first signal says.
pub fn draining(gateway: &Gateway) -> String {
    format!("draining, up to {} s; press Ctrl-C again to stop at once", gateway.grace().as_secs_f64())
}

/// What the second signal says.
pub const CUT: &str = "stopped at once; unfinished work is done again at the next start";
