//! Tidegate keeps systems in step with compacted Kafka topics. This is the map; the modules stand in reading order.

// They panic when nobody reads; `cli::out` does not.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

// One lane, from the source to the checkpoint: the record's way.
pub mod route;

// Pure leaves.
pub mod checkpoint;
pub mod delivery;
pub mod freshness;
pub mod line;
pub mod record;

// The rooms that do not know each other.
pub mod plugin;
pub mod sink;
pub mod source;

// The set of running lanes.
pub mod gateway;

// What the user wrote, checked.
pub mod config;

// Shared by all.
pub mod log;
pub mod metrics;
pub mod secret;
pub mod stop;

// The doors.
pub mod admin;
pub mod cli;
pub mod demo;
