//! Topics, and what the broker knows about them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use super::wait::wait_for;
use super::{Broker, block_on};

const LIMIT: Duration = Duration::from_secs(30);

/// A topic with a name that no other test has.
#[derive(Debug)]
pub struct Topic<'a> {
    pub broker: &'a Broker,
    pub name: String,
    pub partitions: i32,
}

impl<'a> Topic<'a> {
    /// A compacted one.
    pub fn compacted(broker: &'a Broker, partitions: i32) -> Self {
        Self::with_config(broker, partitions, &[("cleanup.policy", "compact")])
    }

    /// One that accepts records without a key, since it is not compacted.
    pub fn deleting(broker: &'a Broker, partitions: i32) -> Self {
        Self::with_config(broker, partitions, &[("cleanup.policy", "delete")])
    }

    pub fn with_config(broker: &'a Broker, partitions: i32, config: &[(&str, &str)]) -> Self {
        let topic = Self::named(broker, partitions);
        topic.create(config);
        topic
    }

    /// Only the name: the topic does not exist before [`Topic::create`].
    pub fn named(broker: &'a Broker, partitions: i32) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("profiles-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self { broker, name, partitions }
    }

    pub fn create(&self, config: &[(&str, &str)]) {
        let mut new = NewTopic::new(&self.name, self.partitions, TopicReplication::Fixed(1));
        for (key, value) in config {
            new = new.set(key, value);
        }
        let results = block_on(admin(self.broker).create_topics([&new], &options())).expect("an answer");
        results.into_iter().for_each(|result| drop(result.expect("the topic is created")));
        self.wait_for_leaders();
    }

    /// As [`Topic::create`]; returns whether the broker took it.
    pub fn try_create(&self, config: &[(&str, &str)]) -> bool {
        let mut new = NewTopic::new(&self.name, self.partitions, TopicReplication::Fixed(1));
        for (key, value) in config {
            new = new.set(key, value);
        }
        let results = block_on(admin(self.broker).create_topics([&new], &options())).expect("an answer");
        let created = results.iter().all(Result::is_ok);
        if created {
            self.wait_for_leaders();
        }
        created
    }

    pub fn delete(&self) {
        let results = block_on(admin(self.broker).delete_topics(&[&self.name], &options())).expect("an answer");
        results.into_iter().for_each(|result| drop(result.expect("the topic is deleted")));
    }

    /// Removes the records of a partition below an offset.
    pub fn cut(&self, partition: i32, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.name, partition, Offset::Offset(offset)).expect("a valid offset");
        let list = block_on(admin(self.broker).delete_records(&list, &options())).expect("an answer");
        list.elements().iter().for_each(|element| element.error().expect("the records are removed"));
    }

    /// Raises the number of partitions.
    pub fn grow(&mut self, partitions: i32) {
        self.grow_to(partitions);
        self.partitions = partitions;
        self.wait_for_leaders();
    }

    /// The same behind the back of whoever holds the topic.
    pub fn grow_to(&self, partitions: i32) {
        let new = NewPartitions::new(&self.name, partitions as usize);
        let results = block_on(admin(self.broker).create_partitions([&new], &options())).expect("an answer");
        results.into_iter().for_each(|result| drop(result.expect("the partitions are added")));
    }

    /// One past the last offset of each partition that `read_committed` can see.
    pub fn ends(&self) -> Vec<i64> {
        self.watermarks().into_iter().map(|(_, end)| end).collect()
    }

    /// Whether an open transaction hides records from `read_committed`.
    pub fn hides_anything(&self) -> bool {
        let consumers = ["read_committed", "read_uncommitted"].map(|level| {
            let consumer: BaseConsumer =
                self.broker.client().set("isolation.level", level).create().expect("a consumer");
            consumer
        });
        let metadata = wait_for("the partitions", LIMIT, || {
            consumers[0].fetch_metadata(Some(&self.name), Duration::from_secs(5)).ok()
        });
        let partitions = metadata.topics()[0].partitions().len() as i32;
        (0..partitions).any(|partition| {
            let [seen, all] = consumers.each_ref().map(|consumer| {
                consumer.fetch_watermarks(&self.name, partition, Duration::from_secs(5)).ok().map(|(_, end)| end)
            });
            seen.is_none() || seen != all
        })
    }

    /// The first offset, and one past the last stable one, of each partition.
    pub fn watermarks(&self) -> Vec<(i64, i64)> {
        let consumer = consumer(self.broker);
        (0..self.partitions)
            .map(|partition| {
                wait_for("the watermarks", LIMIT, || {
                    consumer.fetch_watermarks(&self.name, partition, Duration::from_secs(5)).ok()
                })
            })
            .collect()
    }

    fn wait_for_leaders(&self) {
        let consumer = consumer(self.broker);
        wait_for("the partitions' leaders", LIMIT, || {
            let metadata = consumer.fetch_metadata(Some(&self.name), Duration::from_secs(5)).ok()?;
            let partitions = metadata.topics().first()?.partitions();
            let led = partitions.iter().filter(|partition| partition.leader() >= 0 && partition.error().is_none());
            (led.count() == self.partitions as usize).then_some(())
        });
    }
}

fn admin(broker: &Broker) -> AdminClient<DefaultClientContext> {
    broker.client().create().expect("an admin client")
}

fn consumer(broker: &Broker) -> BaseConsumer {
    broker.client().set("isolation.level", "read_committed").create().expect("a consumer")
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(LIMIT)).request_timeout(Some(LIMIT))
}
