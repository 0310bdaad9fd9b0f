//! What commands print. The macros of the standard library panic when nobody reads: `tidegate status | head -1` is no fault.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use anyhow::Context as _;

/// Prints data on the standard output, as it is. A reader that has seen enough is no error: the command ends as it would
/// have, and its exit code still tells.
///
/// # Errors
/// When the data could not be written for another reason, such as a full disk.
pub fn print(text: impl Display) -> anyhow::Result<()> {
    forgive_a_closed_pipe(write(io::stdout().lock(), &text)).context("failed to write to the standard output")
}

/// Says on the standard error what went wrong.
pub fn complain(text: impl Display) {
    // Nobody is left to tell when this fails; the exit code still does.
    write(io::stderr().lock(), &text).ok();
}

fn write(mut out: impl Write, text: &dyn Display) -> io::Result<()> {
    write!(out, "{text}")?;
    // Here, and not unseen at the exit.
    out.flush()
}

fn forgive_a_closed_pipe(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reader_that_left_is_forgiven() {
        let fails = |kind: ErrorKind| forgive_a_closed_pipe(Err(kind.into()));
        assert!(forgive_a_closed_pipe(Ok(())).is_ok());
        assert!(fails(ErrorKind::BrokenPipe).is_ok());
        assert_eq!(fails(ErrorKind::StorageFull).unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
