//! The gateway as its users run it: a real broker, the real process, real sinks.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod harness;

mod foundations;
mod tidy;
