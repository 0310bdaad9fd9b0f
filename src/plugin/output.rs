//! What a guest says: `host.log` and what it prints, line by line, on its way to the gateway's log and never beyond its
//! limits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::contract::Level;

/// The longest line that is written; the rest of it is left out.
pub const MAX_LINE_BYTES: usize = 4 << 10;

/// What one instance may write per second, however many calls it serves in it: the limit per call alone would let a plugin
/// that complains about each batch fill a disk.
pub const MAX_BYTES_PER_SECOND: usize = 64 << 10;

/// What is remembered of a guest's standard error, to be told when it traps: enough for a panic's message.
const MAX_LAST_WORDS: usize = 300;

/// The output of one instance. Clones share it.
#[derive(Clone)]
pub struct Output(Arc<Mutex<State>>);

/// Who is speaking.
#[derive(Clone, Debug)]
pub struct Speaker {
    pub route: Arc<str>,
    pub plugin: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

struct State {
    speaker: Speaker,
    /// Whether a level would be written: what would not costs nothing of the limits.
    enabled: fn(Level) -> bool,
    limit: usize,
    /// What is left of the limit of this call.
    call_left: usize,
    /// What is left of this second's limit.
    second_left: usize,
    second: Instant,
    left_out: u64,
    stdout: Line,
    stderr: Line,
    last_words: String,
}

/// The beginning of a line that has not ended yet.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
}

impl Output {
    /// `limit`: bytes that one call may write.
    pub fn new(speaker: Speaker, limit: usize) -> Self {
        Self::with_filter(speaker, limit, enabled)
    }

    fn with_filter(speaker: Speaker, limit: usize, enabled: fn(Level) -> bool) -> Self {
        Self(Arc::new(Mutex::new(State {
            speaker,
            enabled,
            limit,
            call_left: limit,
            second_left: MAX_BYTES_PER_SECOND,
            second: Instant::now(),
            left_out: 0,
            stdout: Line::default(),
            stderr: Line::default(),
            last_words: String::new(),
        })))
    }

    pub fn begin_call(&self) {
        let mut state = self.state();
        state.call_left = state.limit;
        state.last_words.clear();
    }

    /// Writes lines that have no end yet; returns how many messages and lines were left out since the last call.
    pub fn end_call(&self) -> u64 {
        let mut state = self.state();
        state.end_line(Stream::Stdout);
        state.end_line(Stream::Stderr);
        std::mem::take(&mut state.left_out)
    }

    pub fn log(&self, level: Level, message: &str) {
        self.state().say(level, message);
    }

    pub fn print(&self, stream: Stream, mut bytes: &[u8]) {
        let mut state = self.state();
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            state.line(stream).extend(&bytes[..end]);
            state.end_line(stream);
            bytes = &bytes[end + 1..];
        }
        state.line(stream).extend(bytes);
    }

    /// What the guest printed to standard error in this call, in one line; empty if nothing.
    pub fn last_words(&self) -> String {
        self.state().last_words.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn line(&mut self, stream: Stream) -> &mut Line {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    fn end_line(&mut self, stream: Stream) {
        let line = std::mem::take(self.line(stream));
        if line.bytes.is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(&line.bytes);
        if stream == Stream::Stderr {
            self.remember(&text);
        }
        self.say(if stream == Stream::Stderr { Level::Warn } else { Level::Info }, &text);
    }

    fn say(&mut self, level: Level, message: &str) {
        if (self.enabled)(level) && self.afford(message.len().min(MAX_LINE_BYTES)) {
            self.write(level, message);
        }
    }

    /// Rust's panics, and those of most languages, are told on standard error just before the trap.
    fn remember(&mut self, text: &str) {
        if text.starts_with("note: run with `RUST_BACKTRACE") || self.last_words.len() >= MAX_LAST_WORDS {
            return;
        }
        if !self.last_words.is_empty() {
            self.last_words.push_str(": ");
        }
        self.last_words.push_str(&printable(text.trim()));
        let end = self.last_words.floor_char_boundary(MAX_LAST_WORDS);
        self.last_words.truncate(end);
    }

    /// Takes `bytes` from the limits, or counts the message as left out.
    fn afford(&mut self, bytes: usize) -> bool {
        if bytes > self.call_left {
            self.left_out += 1;
            return false;
        }
        if self.second.elapsed() >= Duration::from_secs(1) {
            self.second = Instant::now();
            self.second_left = MAX_BYTES_PER_SECOND;
        }
        if bytes > self.second_left {
            self.left_out += 1;
            return false;
        }
        self.call_left -= bytes;
        self.second_left -= bytes;
        true
    }

    fn write(&self, level: Level, message: &str) {
        let message = printable(&message[..message.floor_char_boundary(MAX_LINE_BYTES)]);
        let Speaker { route, plugin } = &self.speaker;
        macro_rules! say {
            ($level:ident) => {
                tracing::event!(target: TARGET, tracing::Level::$level, %route, %plugin, "{message}")
            };
        }
        match level {
            Level::Trace => say!(TRACE),
            Level::Debug => say!(DEBUG),
            Level::Info => say!(INFO),
            Level::Warn => say!(WARN),
            Level::Error => say!(ERROR),
        }
    }
}

/// The `tracing` target of what guests say, so that a filter can tell it from the gateway's own: `tidegate::guest=debug`.
pub const TARGET: &str = "tidegate::guest";

/// Whether a message of this level would be written.
pub fn enabled(level: Level) -> bool {
    match level {
        Level::Trace => tracing::enabled!(target: TARGET, tracing::Level::TRACE),
        Level::Debug => tracing::enabled!(target: TARGET, tracing::Level::DEBUG),
        Level::Info => tracing::enabled!(target: TARGET, tracing::Level::INFO),
        Level::Warn => tracing::enabled!(target: TARGET, tracing::Level::WARN),
        Level::Error => tracing::enabled!(target: TARGET, tracing::Level::ERROR),
    }
}

/// Text of a guest without what could forge a line of the log or drive a terminal, and without line breaks.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `text` as [`printable`], at most `bytes` long.
pub fn short(text: &str, bytes: usize) -> String {
    let cut = &text[..text.floor_char_boundary(bytes)];
    let dots = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{dots}", printable(cut.trim()))
}

impl Line {
    fn extend(&mut self, bytes: &[u8]) {
        let room = MAX_LINE_BYTES - self.bytes.len();
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(limit: usize) -> Output {
        let speaker = Speaker { route: "r".into(), plugin: "p".into() };
        Output::with_filter(speaker, limit, |level| !matches!(level, Level::Trace | Level::Debug))
    }

    #[test]
    fn what_is_over_a_calls_limit_is_counted_and_left_out() {
        let output = output(100);
        output.begin_call();
        (0..7).for_each(|_| output.log(Level::Info, &"x".repeat(30)));
        assert_eq!(output.end_call(), 4);
        output.begin_call();
        output.log(Level::Info, "x");
        assert_eq!(output.end_call(), 0);
    }

    #[test]
    fn what_would_not_be_written_costs_nothing() {
        let output = output(100);
        output.begin_call();
        (0..100).for_each(|_| output.log(Level::Debug, &"x".repeat(30)));
        output.log(Level::Info, &"x".repeat(100));
        assert_eq!(output.end_call(), 0);
    }

    #[test]
    fn what_is_over_a_seconds_limit_is_left_out_whatever_the_calls() {
        let output = output(MAX_BYTES_PER_SECOND);
        let mut left_out = 0;
        for _ in 0..100 {
            output.begin_call();
            output.log(Level::Info, &"x".repeat(MAX_LINE_BYTES));
            left_out += output.end_call();
        }
        assert!(left_out >= 50, "{left_out}");
    }

    #[test]
    fn a_line_without_an_end_is_bounded() {
        let output = output(1 << 20);
        (0..100_000).for_each(|_| output.print(Stream::Stdout, b"no end in sight "));
        assert!(output.state().stdout.bytes.len() <= MAX_LINE_BYTES);
        assert_eq!(output.end_call(), 0);
    }

    #[test]
    fn a_panic_is_remembered_in_one_line() {
        let output = output(1 << 10);
        output.print(
            Stream::Stderr,
            b"\nthread '<unnamed>' panicked at src/lib.rs:1:1:\nboom\x1b[31m\nnote: run with `RUST_BACKTRACE=1`",
        );
        output.end_call();
        assert_eq!(output.last_words(), "thread '<unnamed>' panicked at src/lib.rs:1:1:: boom [31m");
        output.begin_call();
        assert_eq!(output.last_words(), "");
    }

    #[test]
    fn a_guests_text_cannot_forge_a_line() {
        assert_eq!(short("a\nb\x1b[0m", 100), "a b [0m");
        assert_eq!(short("äää", 3), "ä…");
    }
}
