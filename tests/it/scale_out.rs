//! Two instances share the partitions of an HTTP lane under load; one is killed and comes back. Full size:
//! `make verify-scale-out`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::harness::gateway::run_header;
use super::harness::group::{self, Watch};
use super::harness::oracle::{Dump, Sinks};
use super::harness::profiles::Profiles;
use super::harness::random::Random;
use super::harness::{Broker, Gateway, Producer, Receiver, Record, Site, Topic, route, sized, wait_for};

const LIMIT: Duration = Duration::from_secs(900);
const PARTITIONS: i32 = 6;
/// Records between two pauses of the producer.
const CHUNK: u64 = 500;
/// Makes the load last, so that the instances come and go in the middle of it.
const PAUSE: Duration = Duration::from_millis(40);

#[test]
fn two_instances_share_the_load_and_one_is_killed_and_comes_back() {
    let topic = Topic::compacted(Broker::shared(), PARTITIONS);
    let receiver = Receiver::keeping_state();
    let crm = format!(
        r#"sinks: {{ crm: {{ type: http, url: "{}", method: PUT, delete: DELETE, in_flight: 32, {} }} }}"#,
        receiver.url(),
        run_header()
    );
    // Two sites, as two machines have: each its own directory, the same configuration.
    let routes = route(&topic, &[&crm]);
    let (first_site, second_site) = (Site::new(topic.broker, &routes), Site::new(topic.broker, &routes));
    let group = format!("{}.crm", topic.name);
    let watch = Watch::start(&group, &topic);

    let written = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            write_under_load(&topic);
            written.store(true, Ordering::Relaxed);
        });
        let accepted_more = |what: &str, by: u64| {
            let before = receiver.accepted_count();
            wait_for(what, LIMIT, || (receiver.accepted_count() >= before + by).then_some(()));
        };

        let mut first = first_site.start();
        accepted_more("the first instance's deliveries", 500);
        let second = second_site.start();
        wait_shared(&[&first, &second]);
        accepted_more("deliveries of both", 500);
        first.process.kill();
        drop(first);
        // The survivor gets the other's partitions when the session has timed out.
        wait_for("the takeover", LIMIT, || (owned(&second) == PARTITIONS as usize).then_some(()));
        accepted_more("deliveries of the survivor", 500);
        let mut again = first_site.start();
        wait_shared(&[&again, &second]);
        accepted_more("deliveries of both again", 500);
        assert!(!written.load(Ordering::Relaxed), "the load ended too early to show anything: raise TIDEGATE_RECORDS");

        // An orderly leave hands over what is finished, and nothing else.
        second.stop();
        wait_for("the end of the load", LIMIT, || written.load(Ordering::Relaxed).then_some(()));
        let ends: Vec<_> = topic.ends().into_iter().map(Some).collect();
        again.wait_until("everything committed", LIMIT, |_| group::committed(&group, &topic) == ends);
        again.stop();
    });

    let findings = watch.stop();
    println!("{} looks at the committed offsets", findings.looks);
    assert!(findings.looks > 20);
    assert_eq!(findings.backwards, [], "committed offsets went backwards");
    let report = Dump::of(&topic).assert_equal(&Sinks { http: Some(&receiver), ..Sinks::default() });
    println!(
        "{report}{} keys would be stale at a receiver that does not compare positions",
        receiver.stale_by_arrival()
    );
    receiver.assert_order();
}

/// Waits until the partitions are spread over all of them.
/// An orchestrator that waits for readiness must not wait for ever for the instance that is one too many.
#[test]
fn an_instance_without_a_share_stands_by_and_takes_over() {
    let topic = Topic::compacted(Broker::shared(), 1);
    Producer::new(topic.broker).write(&topic, [Record::put("1", "1")]);
    let receiver = Receiver::start();
    let crm = format!(r#"sinks: {{ crm: {{ type: http, url: "{}" }} }}"#, receiver.url());
    let routes = route(&topic, &[&crm]);
    let (first_site, second_site) = (Site::new(topic.broker, &routes), Site::new(topic.broker, &routes));
    let mut first = first_site.start();
    first.wait_ready(LIMIT);
    let mut second = second_site.start();
    second.wait_ready(LIMIT);
    let (working, standing_by) = if owned(&first) == 1 { (first, second) } else { (second, first) };
    assert_eq!(owned(&standing_by), 0);
    working.stop();
    Producer::new(topic.broker).write(&topic, [Record::put("2", "2")]);
    wait_for("the takeover", LIMIT, || receiver.state().contains_key("2").then_some(()));
    assert!(standing_by.is_ready());
}

fn wait_shared(gateways: &[&Gateway]) {
    wait_for("the partitions to be shared", LIMIT, || {
        let owned: Vec<usize> = gateways.iter().map(|gateway| owned(gateway)).collect();
        (owned.iter().sum::<usize>() == PARTITIONS as usize && !owned.contains(&0)).then_some(())
    });
}

fn owned(gateway: &Gateway) -> usize {
    gateway.lane("crm").partitions.len()
}

fn write_under_load(topic: &Topic<'_>) {
    let mut profiles =
        Profiles::new(Random::from_environment("scale-out").next(), sized("TIDEGATE_KEYS", 5_000, 50_000));
    let producer = Producer::new(topic.broker);
    for _ in 0..sized("TIDEGATE_RECORDS", 250_000, 1_000_000) / CHUNK {
        producer.write(topic, profiles.by_ref().take(CHUNK as usize));
        std::thread::sleep(PAUSE);
    }
}
