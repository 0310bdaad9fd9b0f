//! What hostile guests do costs their guilty record, and nothing else.

use std::cell::RefCell;
use std::sync::Once;
use std::time::{Duration, Instant};

use tidegate::delivery::{Fate, OnError, Stage};

use super::*;

use crate::hostile::crimes::{Crime, Place};

/// What a crime leads to.
enum Sentence {
    /// The record is rejected with a cause that holds this.
    Rejected(&'static str),
    /// It is no crime: the record is kept.
    Kept,
    /// The plugin cannot be loaded, with a reason that holds this.
    Refused(&'static str),
}

use Sentence::{Kept, Refused, Rejected};

/// A crime without a sentence does not compile.
fn sentence(crime: Crime) -> Sentence {
    match crime {
        Crime::Trap => Rejected("`process` trapped: wasm `unreachable` instruction executed, saying `"),
        Crime::Loop | Crime::Sleep | Crime::DeepCall | Crime::PrintStdout | Crime::PrintStderr => {
            Rejected("`process` took longer than its limit of `200ms`")
        }
        Crime::Bomb => Rejected("`process` needed more memory than its limit of `67108864` bytes"),
        // A guest built by Rust keeps a stack of its own at the start of its memory, which is used up first.
        Crime::Recurse => Rejected("`process` trapped: out of bounds memory access"),
        Crime::LogFlood | Crime::LogHuge | Crime::CountFlood | Crime::CountName | Crime::Leak => Kept,
        Crime::Fatal => Rejected("the plugin gave up: i give up"),
        Crime::FatalHuge => Rejected("the plugin gave up: ffff"),
        Crime::Retry => Rejected("the plugin asked to wait more than `10` times: not now"),
        Crime::ConfigLate => Rejected("`process` refused the configuration: too late to complain"),
        Crime::TooFew => Rejected("the answer is wrong: `0` actions for `1` records"),
        Crime::TooMany => Rejected("the answer is wrong: `2` actions for `1` records"),
        Crime::UnknownAction => Rejected("action `77` is unknown"),
        Crime::NegativeLength => Rejected("length `-7` stands where only a length of bytes is accepted"),
        Crime::SameValue => Rejected("length `-2` stands where only a length of bytes is accepted"),
        Crime::NullHeaders => Rejected("length `-1` stands where only a number of headers or `-2` is accepted"),
        Crime::NullName | Crime::NullReason => Rejected("length `-1` stands where only a length of bytes"),
        Crime::LengthBeyond => Rejected("a length of `100` reaches beyond the data"),
        Crime::LengthOverflow => Rejected("a length of `2147483647` reaches beyond the data"),
        Crime::LengthMissing | Crime::ManyHeaders | Crime::ExpandBomb => Rejected("an action's lengths are missing"),
        Crime::LengthLeftOver => Rejected("`1` lengths are left over"),
        Crime::DataLeftOver => Rejected("`1` bytes of data are left over"),
        Crime::BadReason => Rejected("the reason of a rejection is not utf-8"),
        Crime::ExpandFlood => Rejected("the output is larger than the limit of `16777216` bytes"),
        Crime::ExpandNegative => Rejected("length `-1` stands where only a number of rows is accepted"),
        Crime::HugeOutput => Rejected("`process` gave the host more than its output limit of `16777216` bytes"),
        Crime::Rekey => Rejected("the key was changed, which the plugin must declare with `changes-keys`"),
        Crime::InitTrap => Refused("`init` trapped: wasm `unreachable` instruction executed, saying `"),
        Crime::InitLoop | Crime::InitSleep => Refused("`init` took longer than its limit of `2s`"),
        Crime::InitBomb => Refused("`init` needed more memory than its limit"),
        Crime::InitRetry => Refused("`init` failed: not now"),
        Crime::InitLongError => Refused("the configuration is wrong:  [31mno  [31mno"),
        Crime::DescribeTrap => Refused("`describe` trapped: wasm `unreachable` instruction executed"),
        Crime::DescribeLoop => Refused("`describe` took longer than its limit of `2s`"),
        Crime::DescribeGarbage => Refused("the plugin describes itself wrongly: the name `"),
    }
}

/// In a batch of a thousand, somewhere else for each crime.
const RECORDS: usize = 1_000;

fn commit(crime: Crime) {
    match (crime.place(), sentence(crime)) {
        (Place::Record, Rejected(cause)) => rejects_the_guilty_record(crime, cause),
        (Place::Record, Kept) => keeps_everything(crime),
        (Place::Init, Refused(reason)) => {
            let config = format!(r#"{{"crime": "{}"}}"#, crime.word());
            refuses(&use_guest(&crime.component(), &config), reason);
        }
        (Place::Describe, Refused(reason)) => refuses(&use_guest(&crime.component(), "{}"), reason),
        (_, Rejected(_) | Kept | Refused(_)) => panic!("the sentence on {crime:?} does not fit its place"),
    }
}

fn rejects_the_guilty_record(crime: Crime, cause: &str) {
    let mut bench = Bench::new(&[use_guest(&crime.component(), "{}")]);
    let position = (crime.word().bytes().map(usize::from).sum::<usize>() * 37) % RECORDS;
    let input = batch_with(RECORDS, position, crime.word());
    let delivery = bench.run(input.clone());
    let guilty = rejected(&delivery);
    assert_eq!(guilty.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [position], "{crime:?} {guilty:?}");
    assert!(guilty[0].1.contains(cause), "{crime:?} {}", guilty[0].1);
    assert!(guilty[0].1.len() < 2_048, "{crime:?}: the cause is {} bytes", guilty[0].1.len());
    assert!(delivery.fates().enumerate().all(|(row, fate)| row == position || *fate == Fate::Write));
    assert_eq!(*delivery.rows(), input, "{crime:?}: what was not guilty is as it came");
    let named = rejection(delivery.fate(position)).unwrap();
    assert_eq!(named.policy, OnError::DeadLetter);
    assert!(matches!(&named.stage, Stage::Plugin { name, version } if &**name == "hostile" && &**version == "0.1.0"));
    // The next batch is handled by a fresh instance.
    assert_eq!(rejected(&bench.run(batch_with(10, 10, ""))), []);
    assert_eq!((bench.metric("records_kept", ""), bench.metric("records_rejected", "")), (RECORDS as u64 + 9, 1));
}

fn keeps_everything(crime: Crime) {
    let mut bench = Bench::new(&[use_guest(&crime.component(), "{}")]);
    let input = batch_with(RECORDS, RECORDS / 2, crime.word());
    let delivery = bench.run(input.clone());
    assert_eq!(rejected(&delivery), [], "{crime:?}");
    assert_eq!(*delivery.rows(), input);
}

fn refuses(plugin: &PluginUse, reason: &str) {
    let started = Instant::now();
    let error = Bench::try_new(std::slice::from_ref(plugin)).err().expect("refused").to_string();
    assert!(error.contains(reason), "{error}");
    assert!(error.len() < 2_048 && !error.contains(char::is_control), "{error}");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

/// One by one, so that a crime that burns time does not make another one's honest records late.
#[test]
fn each_crime_meets_its_sentence() {
    let mut slow = Vec::new();
    for crime in Crime::ALL {
        let started = Instant::now();
        commit(*crime);
        let took = started.elapsed();
        if took > Duration::from_secs(1) {
            slow.push(format!("{} {took:.1?}", crime.word()));
        }
    }
    println!("{} crimes; those of more than a second: {}", Crime::ALL.len(), slow.join(", "));
}

thread_local! {
    /// What this thread logged; `None` = nobody listens.
    static LOGGED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What is logged in this thread while `run` runs. The subscriber is the process's: one that is set for a thread alone
/// misses what another thread was first to log without one.
fn logged(run: impl FnOnce()) -> String {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| ThreadLog).init());
    LOGGED.set(Some(String::new()));
    run();
    LOGGED.take().unwrap()
}

struct ThreadLog;

impl std::io::Write for ThreadLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOGGED.with_borrow_mut(|log| {
            if let Some(log) = log {
                log.push_str(&String::from_utf8_lossy(bytes));
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_is_logged_too_much_is_left_out() {
    let mut bench = Bench::new(&[use_guest("hostile.wasm", "{}")]);
    // The guest commits the first crime of a batch only.
    let log = logged(|| {
        for crime in ["log-flood", "log-huge", "stdout-flood", "stderr-flood"] {
            bench.run(batch([crime]));
        }
    });
    assert!(log.contains("llll") && log.contains("so much to say") && log.contains("so much to complain"), "{log}");
    // Sixteen messages of 1 KiB fit; the second's limit holds for what is printed in short lines, without their frames.
    assert_eq!(log.matches("llll").count() / (1 << 8), LIMITS.log >> 10);
    assert!(log.lines().all(|line| line.len() < 8 << 10));
    let left_out = bench.metric("plugin_count", ",plugin=\"hostile\",name=\"log_messages_left_out\"");
    assert!(left_out >= 9_984, "{left_out}");
}

#[test]
fn names_of_counters_are_bounded() {
    let mut bench = Bench::new(&[use_guest("hostile.wasm", "{}")]);
    bench.run(batch(["count-flood"]));
    bench.run(batch(["count-name"]));
    let text = bench.metrics.encode().unwrap();
    let counters = text.lines().filter(|line| line.contains("plugin=\"hostile\",name=\"flood_")).count();
    assert_eq!(counters, 50, "{text}");
    assert!(!text.contains("evil"), "{text}");
}

/// A panic is told with its message, and its record.
#[test]
fn a_trap_is_logged_with_its_record() {
    let mut bench = Bench::new(&[use_guest("hostile.wasm", "{}")]);
    let log = logged(|| drop(bench.run(batch_with(100, 7, "trap"))));
    let line = log.lines().find(|line| line.contains("a plugin failed on a record")).unwrap_or_else(|| panic!("{log}"));
    for part in ["route=r", "plugin=hostile", "partition=profiles[3]", "offset=21", "boom"] {
        assert!(line.contains(part), "{line}");
    }
}

/// The record that meets the memory limit is not the one that filled it.
#[test]
fn a_leak_is_met_by_a_fresh_instance() {
    let mut bench = Bench::new(&[use_guest("hostile.wasm", "{}")]);
    // 64 KiB each, twice as much as there is.
    for _ in 0..2 * (LIMITS.memory >> 16) {
        assert_eq!(rejected(&bench.run(batch(["leak", "good"]))), []);
    }
    assert!(bench.metric("errors", ",kind=\"plugin_memory\"") >= 1);
}

#[test]
fn several_guilty_records_are_each_found() {
    let mut bench = Bench::new(&[use_guest("hostile.wasm", "{}")]);
    let crime = |number| match number {
        0 | 499 | 500 | 998 => "trap",
        251 => "unknown-action",
        999 => "fatal",
        _ => "good",
    };
    let delivery = bench.run(batch((0..1_000).map(crime)));
    let rows: Vec<usize> = rejected(&delivery).into_iter().map(|(row, _)| row).collect();
    assert_eq!(rows, [0, 251, 499, 500, 998, 999]);
    assert_eq!(bench.metric("errors", ",kind=\"plugin_trap\""), 4);
    assert_eq!(bench.metric("errors", ",kind=\"plugin_verdict\""), 1);
    assert_eq!(bench.metric("errors", ",kind=\"plugin_other\""), 1);
}

/// A deadline counts from its call, however long the instance was idle, and is the same each time.
#[test]
fn each_loop_is_cut_at_the_same_limit() {
    let mut bench = Bench::new(&[use_guest("hostile.wasm", "{}")]);
    for _ in 0..3 {
        let started = Instant::now();
        assert_eq!(rejected(&bench.run(batch(["loop"]))).len(), 1);
        let took = started.elapsed();
        assert!(took >= LIMITS.time && took < LIMITS.time * 20, "{took:?}");
        assert_eq!(rejected(&bench.run(batch(["good"]))), []);
        // Idle for longer than the deadline.
        assert!(!bench.stop.wait(LIMITS.time * 2));
        assert_eq!(rejected(&bench.run(batch(["good"]))), []);
    }
}

#[test]
fn a_retry_leaves_the_delivery_as_it_was_and_waits_longer_each_time() {
    let mut bench = Bench::new(&[use_guest("hostile.wasm", "{}")]);
    let mut waits = Vec::new();
    for _ in 0..3 {
        let stall = bench.run_once(batch(["good", "retry"])).unwrap_err();
        assert_eq!(stall.reason, "plugin `hostile` asks to wait: not now");
        waits.push(stall.retry_after);
    }
    assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
}

/// A stop is not kept waiting by a plugin that fails again and again.
#[test]
fn a_stop_is_seen_between_two_calls() {
    let mut bench = Bench::new(&[use_guest("hostile.wasm", "{}")]);
    bench.stop.set();
    let stall = bench.run_once(batch(["good"])).unwrap_err();
    assert_eq!((stall.reason.as_str(), stall.retry_after), ("stopping", Duration::ZERO));
}
