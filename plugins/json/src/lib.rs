//! Finds the fields of a JSON text without taking it apart.
//!
//! Parsing, changing and writing a document costs microseconds and changes bytes that nobody asked to change. [`scan`]
//! walks over the text once, checks all of it against RFC 8259, and shows a [`Visitor`] the members and elements that its
//! [`Paths`] reach, as spans of the text.

mod paths;
mod scan;
mod text;

pub use paths::{MAX_PATHS, Path, PathError, Paths, Set};
pub use scan::{Item, MAX_DEPTH, Malformed, Visitor, Walk, scan};
pub use text::{decode, encode};
