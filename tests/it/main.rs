//! The gateway as its users run it: a real broker, the real process, real sinks.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod harness;

mod foundations;
mod tidy;

// What users read, copy and type first.
mod cli;
mod docs;
mod examples;
mod pipes;
mod scripts;

mod plugins;
mod source;

mod deletes;
mod failures;
mod operate;
mod positions;
mod security;
mod tombstones;
mod verify;

// At the size of every run, and at full size by `make verify-…`.
mod crashes;
mod hostile;
mod lanes;
mod outage;
mod scale_out;
mod snapshot;
mod torture;
