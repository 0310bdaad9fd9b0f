//! The set of running lanes.

pub mod status;
