//! The yardstick: a consumer that does nothing but take batches from librdkafka's queue and look at each record once.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rdkafka::bindings as native;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

const BATCH: usize = 1000;

/// Reads `topic` once, from its beginning to the ends found at the start. Returns the records read and the seconds from the
/// first to the last.
pub fn consume(brokers: &str, topic: &str) -> anyhow::Result<(u64, f64)> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "raw")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("fetch.queue.backoff.ms", "1")
        .create()?;
    let timeout = Duration::from_secs(10);
    let metadata = consumer.fetch_metadata(Some(topic), timeout)?;
    let mut ends = Vec::new();
    let mut assignment = TopicPartitionList::new();
    for partition in metadata.topics().first().context("no such topic")?.partitions() {
        let (low, high) = consumer.fetch_watermarks(topic, partition.id(), timeout)?;
        ends.resize(ends.len().max(partition.id() as usize + 1), 0);
        if low < high {
            ends[partition.id() as usize] = high;
        }
        assignment.add_partition_offset(topic, partition.id(), Offset::Beginning)?;
    }
    consumer.assign(&assignment)?;
    let mut unfinished = ends.iter().filter(|end| **end > 0).count();
    let mut seen = Seen::default();
    let mut first = None;
    // SAFETY: the client outlives the queue, which is destroyed below before the consumer is dropped; librdkafka fills the
    // first `count` pointers with messages that are ours, and each is destroyed once, after its last use.
    unsafe {
        let queue = native::rd_kafka_queue_get_consumer(consumer.client().native_ptr());
        let mut messages = vec![std::ptr::null_mut(); BATCH];
        while unfinished > 0 {
            let count = native::rd_kafka_consume_batch_queue(queue, 200, messages.as_mut_ptr(), BATCH);
            ensure!(count >= 0, "cannot consume");
            if count > 0 && first.is_none() {
                first = Some(Instant::now());
            }
            for &message in &messages[..count as usize] {
                let record = &*message;
                seen.look(record);
                if record.offset + 1 == ends[record.partition as usize] {
                    unfinished -= 1;
                }
                native::rd_kafka_message_destroy(message);
            }
        }
        native::rd_kafka_queue_destroy(queue);
    }
    std::hint::black_box(seen.mixed);
    Ok((seen.records, first.map_or(0.0, |first| first.elapsed().as_secs_f64())))
}

#[derive(Default)]
struct Seen {
    records: u64,
    /// Depends on each record, so that none can be optimised away.
    mixed: u64,
}

impl Seen {
    /// # Safety
    /// `record`'s key and payload point to as many bytes as it says, or are null.
    unsafe fn look(&mut self, record: &native::rd_kafka_message_t) {
        self.records += 1;
        for (field, length) in [(record.key, record.key_len), (record.payload, record.len)] {
            if !field.is_null() && length > 0 {
                // SAFETY: promised by the caller.
                let bytes = unsafe { std::slice::from_raw_parts(field.cast::<u8>(), length) };
                self.mixed = self.mixed.rotate_left(1) ^ u64::from(bytes[length / 2]);
            }
        }
    }
}
