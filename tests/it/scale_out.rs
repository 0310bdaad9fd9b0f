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

#[test]
fn three_instances_come_and_go_and_nothing_is_sent_twice() {
    for protocol in ["classic", "consumer"] {
        let topic = Topic::compacted(Broker::shared(), PARTITIONS);
        let receiver = Receiver::keeping_state();
        let sites: Vec<Site> =
            (0..3).map(|_| shared_site(&topic, &receiver, &format!("group.protocol: {protocol}"))).collect();
        let watch = Watch::start(&format!("{}.crm", topic.name), &topic);
        let done = AtomicBool::new(false);
        let written = std::thread::scope(|scope| {
            let load = scope.spawn(|| write_until(&topic, &done));
            let first = sites[0].start();
            wait_shared(&[&first]);
            let second = sites[1].start();
            let third = sites[2].start();
            wait_shared(&[&first, &second, &third]);
            second.stop();
            wait_shared(&[&first, &third]);
            third.stop();
            wait_shared(&[&first]);
            done.store(true, Ordering::Relaxed);
            let written = load.join().expect("the load did not panic");
            let ends: Vec<_> = topic.ends().into_iter().map(Some).collect();
            let group = format!("{}.crm", topic.name);
            wait_for("everything committed", LIMIT, || (group::committed(&group, &topic) == ends).then_some(()));
            first.stop();
            written
        });
        assert_eq!(watch.stop().backwards, [], "{protocol}");
        Dump::of(&topic).assert_equal(&Sinks { http: Some(&receiver), ..Sinks::default() });
        receiver.assert_order();
        // Who leaves in order has sent nothing that is not committed, so that the next owner begins behind it; a PUT may
        // stand for several versions.
        assert!(receiver.accepted_count() <= written, "{} of {written} ({protocol})", receiver.accepted_count());
    }
}

#[test]
fn a_static_member_comes_back_to_its_partitions_and_nobody_else_is_disturbed() {
    let topic = Topic::compacted(Broker::shared(), PARTITIONS);
    let receiver = Receiver::keeping_state();
    let site = |instance: &str| {
        let mut site = shared_site(&topic, &receiver, r#"group.instance.id: "${env:INSTANCE}""#);
        site.set_env("INSTANCE", instance);
        site
    };
    let (rolled, steady) = (site("a"), site("b"));
    let first = rolled.start();
    let other = steady.start();
    wait_shared(&[&first, &other]);
    let (before, kept) = (partitions(&first), partitions(&other));
    let rebalances = |gateway: &Gateway| gateway.process.output().matches("partitions assigned").count();
    let disturbed = rebalances(&other);
    first.stop();
    let again = rolled.start();
    wait_for("its partitions", LIMIT, || (partitions(&again) == before).then_some(()));
    assert_eq!((partitions(&other), rebalances(&other)), (kept, disturbed), "the other was disturbed");
    Producer::new(topic.broker).write(&topic, (0..50).map(|key| Record::put(key.to_string(), "1")));
    wait_for("the records of both", LIMIT, || (receiver.state().len() == 50).then_some(()));
    again.stop();
    other.stop();
}

/// One of several instances with an HTTP lane; `property` is one of librdkafka's.
fn shared_site(topic: &Topic<'_>, receiver: &Receiver, property: &str) -> Site {
    let crm = format!(r#"sinks: {{ crm: {{ type: http, url: "{}", {} }} }}"#, receiver.url(), run_header());
    let site = Site::new(topic.broker, &route(topic, &[&crm]));
    // The new protocol's session is the broker's affair.
    let session = "    session.timeout.ms: 6000\n    heartbeat.interval.ms: 1000\n";
    let yaml = site.yaml();
    let yaml = if property.contains("consumer") { yaml.replace(session, "") } else { yaml };
    site.rewrite(&yaml.replace("    reconnect.backoff", &format!("    {property}\n    reconnect.backoff")));
    site
}

fn partitions(gateway: &Gateway) -> Vec<i32> {
    gateway.lane("crm").partitions.iter().map(|partition| partition.partition).collect()
}

/// Returns how many records it has written.
fn write_until(topic: &Topic<'_>, done: &AtomicBool) -> u64 {
    let producer = Producer::new(topic.broker);
    let mut profiles = Profiles::new(7, 5_000);
    let mut written = 0;
    while !done.load(Ordering::Relaxed) {
        producer.write(topic, profiles.by_ref().take(100));
        written += 100;
        std::thread::sleep(PAUSE);
    }
    written
}

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

/// Waits until the partitions are spread over all of them.
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
