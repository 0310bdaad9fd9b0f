//! The end that waits for nothing.

/// Ends the process, with its threads wherever they are: what they have not finished is not committed. Nothing of the C
/// libraries is run at this exit, since librdkafka's threads still use what it would tear down.
pub fn at_once(code: u8) -> ! {
    // SAFETY: `_exit` takes no pointers, runs no code of this program, and does not return.
    unsafe { libc::_exit(i32::from(code)) }
}
