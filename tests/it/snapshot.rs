//! A whole topic through the gateway into a file, SQLite and an HTTP service, compared with a fold that shares no code with
//! it. Full size: `make verify-snapshot`.

use std::time::{Duration, Instant};

use super::harness::oracle::Dump;
use super::harness::profiles::{Profiles, write_plain, write_transactional};
use super::harness::random::Random;
use super::harness::trio::{Trio, wait_live};
use super::harness::{Broker, Topic, group, sized};

/// Of a million records into three sinks, on a machine that does other things.
const LIMIT: Duration = Duration::from_secs(1800);
const PARTITIONS: i32 = 4;

#[test]
fn every_sink_equals_the_fold_of_a_plain_topic() {
    let topic = Topic::compacted(Broker::shared(), PARTITIONS);
    write_plain(&topic, &mut profiles(), records());
    check(&topic);
}

#[test]
fn every_sink_equals_the_fold_of_a_transactional_topic_with_aborted_transactions_and_a_marker_at_its_end() {
    let topic = Topic::compacted(Broker::shared(), PARTITIONS);
    write_transactional(&topic, &mut profiles(), records());
    check(&topic);
}

fn records() -> u64 {
    sized("TIDEGATE_RECORDS", 40_000, 1_000_000)
}

fn profiles() -> Profiles {
    Profiles::new(Random::from_environment("profiles").next(), sized("TIDEGATE_KEYS", 8_000, 200_000))
}

fn check(topic: &Topic<'_>) {
    let trio = Trio::new(topic, &topic.name);
    let start = Instant::now();
    let mut gateway = trio.site.start();
    wait_live(&mut gateway, LIMIT);
    println!(
        "delivered into three sinks in {:.1?}, resident {} MiB",
        start.elapsed(),
        gateway.process.peak_resident() >> 20
    );
    gateway.stop();

    let dump = Dump::of(topic);
    assert_eq!(dump.records(), records());
    println!("{}", trio.assert_equal(&dump));
    trio.receiver.assert_order();
    assert_eq!(trio.receiver.stale_by_arrival(), 0, "a receiver that does not compare positions is right as well");
    // The lag is 0 for every tool that asks the broker, markers at the end included.
    let ends: Vec<_> = topic.ends().into_iter().map(Some).collect();
    for lane in super::harness::trio::LANES {
        assert_eq!(group::committed(&format!("{}.{lane}", topic.name), topic), ends, "{lane}");
    }
}
