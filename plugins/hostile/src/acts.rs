//! The crimes that are deeds: they trap, hang, flood or hoard before an answer is given.

use std::hint::black_box;
use std::time::Duration;

use crate::bindings::tidegate::plugin::host::{self, Level};
use crate::bindings::tidegate::plugin::types::PluginError;
use crate::crimes::Crime;

/// Longer than any sensible deadline, short enough for a test that fails to end by itself.
const SLEEP: Duration = Duration::from_secs(60);
/// How much a `leak` loses: one page of a guest's memory.
const LEAK_BYTES: usize = 64 << 10;
const FLOOD_MESSAGES: usize = 10_000;
const FLOOD_MESSAGE_BYTES: usize = 1 << 10;
const HUGE_MESSAGE_BYTES: usize = 16 << 20;
const LONG_ERROR_BYTES: usize = 4 << 20;
/// Deep enough to matter, shallow enough to fit the megabyte of stack that a guest has.
const DEEP_CALL_LEVELS: u32 = 1_000;

/// Commits a crime of `process`, as far as it is a deed; what remains is in the answer.
pub fn commit(crime: Crime) -> Result<(), PluginError> {
    match crime {
        Crime::Trap => panic!("boom"),
        Crime::Loop => spin(),
        Crime::Sleep => std::thread::sleep(SLEEP),
        Crime::Bomb => hoard(),
        Crime::Recurse => {
            black_box(recurse(black_box(0), u32::MAX));
        }
        Crime::DeepCall => loop {
            black_box(recurse(black_box(0), DEEP_CALL_LEVELS));
        },
        Crime::PrintStdout => loop {
            println!("so much to say");
        },
        Crime::PrintStderr => loop {
            eprintln!("so much to complain about");
        },
        Crime::LogFlood => {
            let message = "l".repeat(FLOOD_MESSAGE_BYTES);
            for _ in 0..FLOOD_MESSAGES {
                host::log(Level::Warn, &message);
            }
        }
        Crime::LogHuge => host::log(Level::Warn, &"h".repeat(HUGE_MESSAGE_BYTES)),
        Crime::CountFlood => {
            for number in 0..FLOOD_MESSAGES {
                host::count(&format!("flood_{number}"), 1);
            }
        }
        Crime::CountName => host::count("evil\"} 1\nup{job=\"other\"", u64::MAX),
        Crime::Leak => Vec::leak(black_box(vec![1_u8; LEAK_BYTES])).fill(2),
        Crime::Fatal => return Err(PluginError::Fatal("i give up".into())),
        Crime::FatalHuge => return Err(PluginError::Fatal("f".repeat(LONG_ERROR_BYTES))),
        Crime::Retry => return Err(PluginError::Retry("not now".into())),
        Crime::ConfigLate => return Err(PluginError::Config("too late to complain".into())),
        _ => {}
    }
    Ok(())
}

/// Commits a crime of `init`.
pub fn commit_at_init(crime: Crime) -> Result<(), PluginError> {
    match crime {
        Crime::InitTrap => panic!("boom in init"),
        Crime::InitLoop => spin(),
        Crime::InitSleep => std::thread::sleep(SLEEP),
        Crime::InitBomb => hoard(),
        Crime::InitRetry => return Err(PluginError::Retry("not now".into())),
        Crime::InitLongError => {
            return Err(PluginError::Config("\u{1b}[31mno\n".repeat(LONG_ERROR_BYTES / 8)));
        }
        _ => {}
    }
    Ok(())
}

fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

/// Takes and touches memory until the host refuses, which the allocator turns into a trap.
fn hoard() -> ! {
    let mut hoard = Vec::new();
    loop {
        hoard.push(black_box(vec![1_u8; 1 << 20]));
    }
}

/// Each level keeps a little on the stack, so that the compiler cannot turn the recursion into a loop. At the bottom it
/// calls the host, which must cope with a caller that has used up its stack.
fn recurse(level: u32, bottom: u32) -> u32 {
    let frame = black_box([level; 16]);
    if level == bottom {
        host::count("bottom_reached", 1);
        return frame[3];
    }
    recurse(level + 1, bottom).wrapping_add(black_box(frame)[7])
}
