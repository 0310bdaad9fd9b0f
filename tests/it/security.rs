//! A cluster that asks for TLS and a password: let in as told, and otherwise told why not, without an exit.

use std::time::Duration;

use super::harness::broker::{PASSWORD, USER};
use super::harness::read::sqlite;
use super::harness::{Broker, Gateway, Producer, Record, Site, Topic};

const LIMIT: Duration = Duration::from_secs(60);

/// A gateway whose cluster is reached with `password`, trusting `certificate`.
fn site(topic: &Topic<'_>, certificate: &str, password: &str) -> Site {
    let mut site = Site::with_config(&format!(
        "version: 1
data_dir: data
admin: {{ listen: 127.0.0.1:0 }}
clusters:
  main:
    bootstrap.servers: {}
    security.protocol: SASL_SSL
    ssl.ca.location: {certificate}
    sasl.mechanism: SCRAM-SHA-512
    sasl.username: {USER}
    sasl.password: ${{env:KAFKA_PASSWORD}}
    reconnect.backoff.max.ms: 1000
routes:
  r:
    source: {{ cluster: main, topics: [{}] }}
    sinks: {{ db: {{ type: sqlite, path: profiles.db, table: profiles }} }}
",
        topic.broker.secure_bootstrap(),
        topic.name,
    ));
    site.set_env("KAFKA_PASSWORD", password);
    site
}

fn profiles(broker: &Broker) -> Topic<'_> {
    let topic = Topic::compacted(broker, 2);
    Producer::new(broker).write(&topic, ["1", "2", "3"].map(|key| Record::put(key, key)));
    topic
}

/// Waits until the lane says why it is not connected.
fn refusal(gateway: &mut Gateway, word: &str) -> String {
    let shows = |waiting: &Option<String>| waiting.as_ref().is_some_and(|reason| reason.contains(word));
    let lane = gateway.wait_lane("db", LIMIT, |lane| shows(&lane.waiting));
    assert!(!gateway.is_ready());
    lane.waiting.expect("it was looked at")
}

#[test]
fn tls_and_scram_let_the_gateway_in_and_nothing_else_does() {
    let broker = Broker::start_secure();
    let topic = profiles(&broker);
    let certificate = broker.certificate().display().to_string();

    let trusted = site(&topic, &certificate, PASSWORD);
    let mut gateway = trusted.start();
    gateway.wait_ready(LIMIT);
    let log = gateway.process.output();
    gateway.stop();
    assert_eq!(sqlite(&trusted.path("profiles.db"), "profiles").len(), 3);
    assert!(!log.contains(PASSWORD), "{log}");

    let mut gateway = site(&topic, &certificate, "wrong").start();
    let reason = refusal(&mut gateway, "Authentication failed");
    assert!(!reason.contains("wrong"), "{reason}");
    gateway.stop();

    // The machine's own authorities know nothing of this broker.
    let mut gateway = site(&topic, "probe", PASSWORD).start();
    refusal(&mut gateway, "certificate");
    gateway.stop();
}
