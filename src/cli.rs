//! The command line.

pub mod screen;
pub mod status;
pub mod table;
