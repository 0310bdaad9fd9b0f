//! The embedded broker, librdkafka's mock cluster, and the producer that fills it.
//!
//! It keeps records in memory, knows groups and commits, and does not compact. It does not answer admin requests, so that
//! nothing here or in the gateway may send it one.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, bail};
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ProducerContext, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;
use tracing::warn;

use super::MAX_RECORDS;
use super::profiles::{Crowd, PARTITIONS, Record};
use crate::stop::Stop;

pub const TOPIC: &str = "user-profiles-compacted";

/// What the embedded broker keeps of a partition; the oldest go first.
const PARTITION_BYTES: usize = 5 << 20;

/// What a batch adds to its records, which may be as few as one.
const BATCH_BYTES: usize = 80;

/// For all records of the seed to be acknowledged.
const SEED_TIMEOUT: Duration = Duration::from_secs(60);

/// Between two changes of a profile: fast enough to see, slow enough to follow.
const CHANGE_INTERVAL: Duration = Duration::from_millis(40);

pub struct Broker(MockCluster<'static, DefaultProducerContext>);

/// A record as the broker has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Produced {
    pub record: Record,
    pub offset: i64,
}

impl Broker {
    /// # Errors
    /// When the cluster cannot be created, for want of memory or of ports.
    pub fn start() -> anyhow::Result<Self> {
        let cluster = MockCluster::new(1).context("failed to start the embedded broker")?;
        cluster.create_topic(TOPIC, PARTITIONS, 1).context("failed to create the topic on the embedded broker")?;
        Ok(Self(cluster))
    }

    pub fn bootstrap_servers(&self) -> String {
        self.0.bootstrap_servers()
    }

    /// Sends `records` in order, and tells which offset each got.
    ///
    /// # Errors
    /// When they do not fit, or not all of them are acknowledged in time.
    pub fn fill(&self, records: Vec<Record>) -> anyhow::Result<Vec<Produced>> {
        check_size(&records)?;
        let offsets = Offsets(Arc::new(Mutex::new(vec![Ok(None); records.len()])));
        let producer = self.producer(offsets.clone())?;
        for (index, record) in records.iter().enumerate() {
            producer.send(message(record, index)).map_err(|(error, _)| error).context("failed to produce")?;
        }
        producer.flush(SEED_TIMEOUT).context("the embedded broker did not take all records in time")?;
        let offsets = std::mem::take(&mut *offsets.0.lock().unwrap_or_else(PoisonError::into_inner));
        records
            .into_iter()
            .zip(offsets)
            .map(|(record, offset)| match offset {
                Ok(Some(offset)) => Ok(Produced { record, offset }),
                Ok(None) => bail!("the embedded broker did not acknowledge a record"),
                Err(error) => Err(error).context("the embedded broker refused a record"),
            })
            .collect()
    }

    /// Goes on changing profiles on a thread of its own, until `stop`.
    ///
    /// # Errors
    /// When the producer cannot be created.
    pub fn go_on(&self, crowd: Crowd, stop: Stop) -> anyhow::Result<JoinHandle<()>> {
        let producer = self.producer(Ignored)?;
        let live = move || {
            for record in crowd {
                if stop.wait(CHANGE_INTERVAL) {
                    break;
                }
                // Nothing is lost by a change that did not happen.
                if let Err((error, _)) = producer.send(message(&record, 0)) {
                    warn!(%error, "failed to change a profile");
                }
            }
        };
        thread::Builder::new().name("demo-producer".to_owned()).spawn(live).context("failed to start a thread")
    }

    fn producer<C: ProducerContext>(&self, context: C) -> Result<ThreadedProducer<C>, KafkaError> {
        ClientConfig::new()
            .set("bootstrap.servers", self.bootstrap_servers())
            // The order of a partition is the order of sending.
            .set("max.in.flight.requests.per.connection", "1")
            .set("queue.buffering.max.messages", (MAX_RECORDS * 2).to_string())
            .set("linger.ms", "5")
            .create_with_context(context)
    }
}

/// What no longer fits would push the oldest records out, unseen.
fn check_size(records: &[Record]) -> anyhow::Result<()> {
    let mut bytes = [0; PARTITIONS as usize];
    let length = |field: &Option<Vec<u8>>| field.as_ref().map_or(0, Vec::len);
    for record in records {
        bytes[record.partition as usize] += BATCH_BYTES + length(&record.key) + length(&record.value);
    }
    if bytes.iter().any(|bytes| *bytes > PARTITION_BYTES) {
        bail!("the embedded broker keeps {} MiB of a partition, and the records need more", PARTITION_BYTES >> 20);
    }
    Ok(())
}

fn message<D: rdkafka::util::IntoOpaque>(record: &Record, opaque: D) -> BaseRecord<'_, [u8], [u8], D> {
    let mut message = BaseRecord::with_opaque_to(TOPIC, opaque).partition(record.partition);
    message.key = record.key.as_deref();
    message.payload = record.value.as_deref();
    message
}

/// By the index of the record: its offset when it is acknowledged.
#[derive(Clone)]
struct Offsets(Arc<Mutex<Vec<Acknowledged>>>);

/// `None` = not yet.
type Acknowledged = Result<Option<i64>, RDKafkaErrorCode>;

impl ClientContext for Offsets {}

impl ProducerContext for Offsets {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, index: usize) {
        let mut offsets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(offset) = offsets.get_mut(index) {
            *offset = match result {
                Ok(message) => Ok(Some(message.offset())),
                Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown)),
            };
        }
    }
}

/// For changes that nobody compares with anything.
#[derive(Clone)]
struct Ignored;

impl ClientContext for Ignored {}

impl ProducerContext for Ignored {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, _: usize) {
        if let Err((error, _)) = result {
            warn!(%error, "the embedded broker refused a change");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rdkafka::consumer::{BaseConsumer, Consumer};

    use super::*;
    use crate::demo::profiles::seed;

    #[test]
    fn the_largest_seed_fits_and_twice_of_it_does_not() {
        check_size(&seed(MAX_RECORDS)).unwrap();
        let error = check_size(&seed(MAX_RECORDS * 2)).unwrap_err().to_string();
        assert_eq!(error, "the embedded broker keeps 5 MiB of a partition, and the records need more");
    }

    /// The embedded broker drops the oldest records of a partition that is full, as the bytes above say.
    #[test]
    fn nothing_of_the_largest_seed_is_dropped() {
        let broker = Broker::start().unwrap();
        let produced = broker.fill(seed(MAX_RECORDS)).unwrap();
        let consumer: BaseConsumer =
            ClientConfig::new().set("bootstrap.servers", broker.bootstrap_servers()).create().unwrap();
        for partition in 0..PARTITIONS {
            let records = produced.iter().filter(|p| p.record.partition == partition).count();
            let watermarks = consumer.fetch_watermarks(TOPIC, partition, Duration::from_secs(10)).unwrap();
            assert_eq!(watermarks, (0, records as i64));
        }
    }

    /// Offsets are those of a fresh topic: each partition's records, in the order of sending.
    #[test]
    fn what_is_produced_is_known_by_its_position() {
        let broker = Broker::start().unwrap();
        let records = seed(300);
        let produced = broker.fill(records.clone()).unwrap();
        assert_eq!(produced.iter().map(|p| p.record.clone()).collect::<Vec<_>>(), records);
        let mut next = BTreeMap::<i32, i64>::new();
        for Produced { record, offset } in &produced {
            let expected = next.entry(record.partition).or_default();
            assert_eq!(offset, expected);
            *expected += 1;
        }
        assert_eq!(next.len(), PARTITIONS as usize);
    }
}
