//! From the configuration's properties to librdkafka's, and which of them are not the user's to set.

mod names;
mod validate;

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::ClientConfig;

pub use self::validate::validate;
use crate::secret::Secret;

/// Properties that cannot be set, each with the reason.
pub const RESERVED: &[(&str, &str)] = &[
    ("group.id", "a lane's group is `<group>.<sink>`; set `group` of the source"),
    ("enable.auto.commit", "the gateway commits what its sinks have finished"),
    ("auto.commit.interval.ms", "the gateway commits what its sinks have finished"),
    ("enable.auto.offset.store", "the gateway commits what its sinks have finished"),
    ("auto.offset.reset", "set `start` of the source; partitions that appear later are read from their beginning"),
    (
        "topic.auto.offset.reset",
        "set `start` of the source; partitions that appear later are read from their beginning",
    ),
    ("enable.partition.eof", "the end of the snapshot is known from it"),
    ("statistics.interval.ms", "lag and progress are known from it"),
    ("enabled_events", "the gateway needs the events that it asks for"),
    ("queued.max.messages.kbytes", "it is part of `memory`"),
    ("queued.min.messages", "it is part of `memory`"),
    ("fetch.max.bytes", "it is part of `memory`"),
    ("plugin.library.paths", "it loads code into the gateway"),
];

/// Statistics once in this time.
const STATISTICS_INTERVAL: Duration = Duration::from_secs(1);

/// How soon a new topic or partition is seen. librdkafka's default is 5 minutes.
pub const METADATA_INTERVAL: Duration = Duration::from_secs(3);

/// Per partition and fetch; bigger ones are slower and heavier.
const PARTITION_FETCH_BYTES: usize = 1 << 20;

/// librdkafka takes no less for one answer than its `message.max.bytes`, which is 1,000,000 by default.
const SMALLEST_FETCH_BYTES: usize = 1 << 20;

/// librdkafka's default, beyond which a bigger answer gains nothing.
const BIGGEST_FETCH_BYTES: usize = 50 << 20;

/// What librdkafka spends on a queued message beside its bytes, which its own bound does not count.
const MESSAGE_OVERHEAD: usize = 400;

/// How a lane comes by its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Shared with other instances through the consumer group: for sinks outside.
    Shared,
    /// All partitions, here: for sinks that live with the instance and keep their own offsets.
    Local,
}

/// The properties of a lane's consumer, which may hold `budget` bytes of fetched records.
pub fn consumer(properties: &BTreeMap<String, Secret>, group: &str, budget: usize) -> ClientConfig {
    // Of the budget, half may lie in the queue. A quarter may be on its way when the queue is just not full, and what the
    // queue's bound does not count takes about the rest.
    let queue = (budget / 2).max(SMALLEST_FETCH_BYTES);
    let fetch = (budget / 4).clamp(SMALLEST_FETCH_BYTES, BIGGEST_FETCH_BYTES);
    let mut config = ClientConfig::new();
    for (name, value) in [
        ("client.id", format!("tidegate.{group}")),
        ("isolation.level", "read_committed".to_owned()),
        ("topic.metadata.refresh.interval.ms", METADATA_INTERVAL.as_millis().to_string()),
        // With the default of a second, librdkafka sleeps whenever we are the slower side.
        ("fetch.queue.backoff.ms", "1".to_owned()),
        ("fetch.message.max.bytes", PARTITION_FETCH_BYTES.to_string()),
        ("reconnect.backoff.max.ms", "3000".to_owned()),
    ] {
        config.set(name, value);
    }
    if !is_consumer_protocol(properties) {
        config.set("partition.assignment.strategy", "cooperative-sticky");
    }
    for (name, value) in properties {
        config.set(name, value.reveal());
    }
    if let Some(instance) = properties.get("group.instance.id") {
        config.set("group.instance.id", format!("{}.{group}", instance.reveal()));
    }
    for (name, value) in [
        ("group.id", group.to_owned()),
        ("enable.auto.commit", "false".to_owned()),
        ("enable.auto.offset.store", "false".to_owned()),
        // Whatever `start` says: a partition that appears later is read whole. `latest` is resolved by ourselves.
        ("auto.offset.reset", "earliest".to_owned()),
        ("enable.partition.eof", "true".to_owned()),
        ("statistics.interval.ms", STATISTICS_INTERVAL.as_millis().to_string()),
        ("queued.max.messages.kbytes", (queue >> 10).to_string()),
        ("queued.min.messages", (queue / MESSAGE_OVERHEAD).clamp(1000, 100_000).to_string()),
        ("fetch.max.bytes", fetch.to_string()),
    ] {
        config.set(name, value);
    }
    config
}

/// The properties of a client that asks the broker about topics.
pub fn admin(properties: &BTreeMap<String, Secret>) -> ClientConfig {
    properties.iter().map(|(name, value)| (name.clone(), value.reveal().to_owned())).collect()
}

/// Whether offsets of open and aborted transactions are invisible.
pub fn is_read_committed(properties: &BTreeMap<String, Secret>) -> bool {
    properties.get("isolation.level").is_none_or(|level| level.reveal() != "read_uncommitted")
}

fn is_consumer_protocol(properties: &BTreeMap<String, Secret>) -> bool {
    properties.get("group.protocol").is_some_and(|protocol| protocol.reveal().eq_ignore_ascii_case("consumer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> BTreeMap<String, Secret> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect()
    }

    #[test]
    fn every_reserved_property_is_one_of_librdkafka() {
        for (name, _) in RESERVED {
            let error = ClientConfig::new().set(*name, "\u{1}").create_native_config().err();
            let text = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(!text.contains("No such configuration property"), "{name}");
        }
    }

    #[test]
    fn what_correctness_rests_on_cannot_be_overridden_and_the_rest_can() {
        let written = properties(&[("auto.offset.reset", "latest"), ("fetch.queue.backoff.ms", "7")]);
        let config = consumer(&written, "g.s", 16 << 20);
        assert_eq!(config.get("auto.offset.reset"), Some("earliest"));
        assert_eq!(config.get("fetch.queue.backoff.ms"), Some("7"));
        assert_eq!(config.get("queued.max.messages.kbytes"), Some("8192"));
        assert_eq!(config.get("fetch.max.bytes"), Some("4194304"));
        assert_eq!(config.get("partition.assignment.strategy"), Some("cooperative-sticky"));
    }

    #[test]
    fn static_members_of_two_lanes_differ() {
        let written = properties(&[("group.instance.id", "pod-0"), ("group.protocol", "consumer")]);
        let config = consumer(&written, "g.crm", 0);
        assert_eq!(config.get("group.instance.id"), Some("pod-0.g.crm"));
        assert_eq!(config.get("partition.assignment.strategy"), None);
    }
}
