//! What must not grow.

use std::time::Instant;

use super::*;

fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Ten thousand traps, most of what is given: the circuit slows them and lets them through, and nothing grows. In a process
/// of its own test threads would not disturb the measurement; the bound leaves room for them.
#[test]
fn ten_thousand_traps_leave_memory_flat() {
    let mut bench = Bench::new(&[use_guest("hostile.wasm", "{}")]);
    let half_bad = || batch((0..200).map(|number| if number % 2 == 0 { "trap" } else { "good" }));
    let mut traps = 0;
    let mut run = |bench: &mut Bench, batches: usize| {
        for _ in 0..batches {
            traps += rejected(&bench.run(half_bad())).len();
        }
    };
    run(&mut bench, 10);
    let (started, before) = (Instant::now(), resident_bytes());
    run(&mut bench, 100);
    let grown = resident_bytes().saturating_sub(before);
    println!("10,000 traps in {:.1?}, {} KiB more resident", started.elapsed(), grown >> 10);
    assert_eq!(traps, 11_000);
    assert!(grown < 32 << 20, "{grown}");
    assert_eq!(bench.metric("errors", ",kind=\"plugin_trap\""), 11_000);
}

/// A plugin that fails on everything is slowed: the lane shows why, and still gets through.
#[test]
fn a_plugin_that_fails_on_everything_opens_the_circuit() {
    let mut bench = Bench::new(&[use_guest("hostile.wasm", "{}")]);
    let mut bad = delivery(batch(std::iter::repeat_n("trap", 1_500)));
    let stall = bench.runner.run(&mut bad).unwrap_err();
    assert_eq!(stall.reason, "the circuit is open: plugin `hostile` failed on `1000` of `1000` records");
    assert!(bad.fates().all(|fate| *fate == Fate::Write), "a stalled delivery is as it was");
    bench.runner.run(&mut bad).unwrap();
    assert_eq!(rejected(&bad).len(), 1_500);
    assert_eq!(
        bench.metric("errors", ",kind=\"plugin_trap\""),
        1_500,
        "what was found before the stall is not tried again"
    );
}

/// A reload loads each component again: neither code nor instances of earlier ones stay.
#[test]
fn loading_again_and_again_leaves_memory_flat() {
    let engine = engine();
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read(guest("hostile.wasm")).unwrap();
    let load = |number: u32| {
        // A custom section makes it another component each time.
        let section = [&[0, 5, 0][..], &number.to_le_bytes()].concat();
        let plugin = use_bytes(dir.path(), &[whole.as_slice(), &section].concat());
        Bench::on(&engine, &all_keys(), &[plugin]).unwrap().run(batch(["good"]));
    };
    (0..10).for_each(load);
    let before = resident_bytes();
    (10..40).for_each(load);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown}");
}
