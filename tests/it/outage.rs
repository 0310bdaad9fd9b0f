//! The HTTP service is down while far more waits in the topic than the gateway may hold. Full size: `make verify-outage`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::harness::alive::Alive;
use super::harness::gateway::run_header;
use super::harness::group;
use super::harness::oracle::{Dump, Sinks};
use super::harness::profiles::{Profiles, write_plain};
use super::harness::random::Random;
use super::harness::receiver::{Answer, Receiver};
use super::harness::{Broker, Site, Topic, route_from, sized};

const LIMIT: Duration = Duration::from_secs(1800);
const RECORD_BYTES: u64 = 2048;
/// The budget, and what the program itself may come to beside it.
const BUDGET_MB: u64 = 256;
const PROGRAM_MB: u64 = 64;

#[test]
fn a_service_that_is_down_costs_neither_memory_nor_membership_nor_records() {
    let backlog_mb = sized("TIDEGATE_BACKLOG_MB", 150, 1024);
    let outage = Duration::from_secs(sized("TIDEGATE_OUTAGE_SECONDS", 10, 60));
    let records = (backlog_mb << 20) / RECORD_BYTES;
    let topic = Topic::compacted(Broker::shared(), 4);
    let seed = Random::from_environment("outage").next();
    write_plain(&topic, &mut Profiles::padded(seed, records / 4, RECORD_BYTES as usize - 180), records);

    let receiver = Receiver::keeping_state();
    let down = Arc::new(AtomicBool::new(true));
    let is_down = down.clone();
    receiver.answer(move |_| if is_down.load(Ordering::Relaxed) { Answer::status(503) } else { Answer::ok() });
    let crm = format!(
        r#"sinks: {{ crm: {{ type: http, url: "{}", method: PUT, in_flight: 64, retry: {{ backoff: 100ms, max: 2s }}, {} }} }}"#,
        receiver.url(),
        run_header()
    );
    // Whoever does not poll for as long as this loses the membership: shorter than the outage.
    let routes = route_from(&topic, "properties: { max.poll.interval.ms: 8000 }", &[&crm]);
    let site = Site::with_memory(topic.broker, &format!("{BUDGET_MB}MiB"), &routes);
    let mut gateway = site.start();
    let alive = Alive::watch(gateway.address());
    let group = format!("{}.crm", topic.name);

    gateway.wait_until("the first refusals", LIMIT, |_| receiver.refused_count() > 10);
    let began = Instant::now();
    let (state, members) = group::members(topic.broker, &group);
    assert_eq!((state.as_str(), members.len()), ("Stable", 1));
    gateway.wait_until("the end of the outage", LIMIT, |gateway| {
        let now = group::members(topic.broker, &group);
        assert_eq!(now, (state.clone(), members.clone()), "the group was rebalanced");
        assert_eq!(receiver.accepted_count(), 0);
        assert!(!gateway.is_ready());
        began.elapsed() >= outage
    });
    let lane = gateway.lane("crm");
    assert!(lane.waiting.is_some(), "a lane that waits says for what: {lane:?}");
    let refused = receiver.refused_count();

    down.store(false, Ordering::Relaxed);
    gateway.wait_ready(LIMIT);
    let health = alive.assert_prompt();
    let peak = gateway.process.peak_resident();
    assert_eq!(group::members(topic.broker, &group).1, members, "still the same member");
    gateway.stop();
    println!(
        "{backlog_mb} MB waited for {outage:?}: {refused} refusals, peak resident {} MiB, slowest of {} health answers {:?}",
        peak >> 20,
        health.answers,
        health.slowest
    );
    assert!(peak <= (BUDGET_MB + PROGRAM_MB) << 20, "peak resident {} MiB", peak >> 20);
    println!("{}", Dump::of(&topic).assert_equal(&Sinks { http: Some(&receiver), ..Sinks::default() }));
    receiver.assert_order();
}
