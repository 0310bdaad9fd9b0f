//! The configuration.

pub mod checked;

pub use checked::*;
