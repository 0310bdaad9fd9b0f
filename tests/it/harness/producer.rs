//! Writing records, plainly and in transactions.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use super::{Broker, Topic};

const LIMIT: Duration = Duration::from_secs(120);

/// What is written. Null, empty and absent are different things.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `None` = by the key's hash, as every client of Kafka does it.
    pub partition: Option<i32>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Record {
    pub fn put(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        Self { key: Some(key.as_ref().to_vec()), value: Some(value.as_ref().to_vec()), ..Self::default() }
    }

    pub fn delete(key: impl AsRef<[u8]>) -> Self {
        Self { key: Some(key.as_ref().to_vec()), ..Self::default() }
    }

    pub fn without_key(value: impl AsRef<[u8]>) -> Self {
        Self { value: Some(value.as_ref().to_vec()), ..Self::default() }
    }

    pub fn header(mut self, name: &str, value: Option<&[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.map(<[u8]>::to_vec)));
        self
    }

    pub fn to(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }
}

/// One that panics when a record cannot be delivered.
pub struct Producer {
    inner: BaseProducer<Deliveries>,
    deliveries: Deliveries,
}

#[derive(Clone, Debug, Default)]
struct Deliveries {
    failures: Arc<Mutex<Vec<String>>>,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        match result {
            Ok(_) => {}
            // What a transaction's abort throws out of the queue was never meant to arrive.
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::PurgeQueue), _)) => {}
            Err((error, message)) => {
                let failure = format!("{error} for key {:?}", message.key().map(String::from_utf8_lossy));
                self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
            }
        }
    }
}

impl Producer {
    pub fn new(broker: &Broker) -> Self {
        Self::create(broker, None)
    }

    /// Between [`Producer::begin`] and [`Producer::commit`] or [`Producer::abort`].
    pub fn transactional(broker: &Broker, id: &str) -> Self {
        let producer = Self::create(broker, Some(id));
        producer.inner.init_transactions(LIMIT).expect("transactions begin");
        producer
    }

    fn create(broker: &Broker, transactional_id: Option<&str>) -> Self {
        let mut config = broker.client();
        config
            .set("partitioner", "murmur2_random")
            .set("enable.idempotence", "true")
            .set("linger.ms", "5")
            .set("compression.type", "lz4")
            .set("queue.buffering.max.messages", "200000")
            .set("queue.buffering.max.kbytes", "131072");
        if let Some(id) = transactional_id {
            config.set("transactional.id", id);
        }
        let deliveries = Deliveries::default();
        let inner = config.create_with_context(deliveries.clone()).expect("a producer");
        Self { inner, deliveries }
    }

    pub fn send(&self, topic: &str, record: &Record) {
        loop {
            let mut out: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(topic);
            out.partition = record.partition;
            out.key = record.key.as_deref();
            out.payload = record.value.as_deref();
            if !record.headers.is_empty() {
                out.headers = Some(record.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
                    headers.insert(Header { key, value: value.as_ref() })
                }));
            }
            match self.inner.send(out) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    self.inner.poll(Duration::from_millis(50));
                }
                Err((error, _)) => panic!("cannot send to `{topic}`: {error}"),
            }
        }
        self.inner.poll(Duration::ZERO);
    }

    /// Sends all of them and waits until the broker has them.
    pub fn write(&self, topic: &Topic<'_>, records: impl IntoIterator<Item = Record>) {
        records.into_iter().for_each(|record| self.send(&topic.name, &record));
        self.flush();
    }

    /// Waits until the broker has everything.
    pub fn flush(&self) {
        self.inner.flush(LIMIT).expect("everything is delivered");
        let failures = self.deliveries.failures.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(failures.is_empty(), "{} records were not delivered, first: {}", failures.len(), failures[0]);
    }

    pub fn begin(&self) {
        self.inner.begin_transaction().expect("a transaction begins");
    }

    pub fn commit(&self) {
        self.flush();
        self.inner.commit_transaction(LIMIT).expect("the transaction is committed");
    }

    /// Only after everything reached the broker, so that the log really holds what nobody may see.
    pub fn abort(&self) {
        self.flush();
        self.inner.abort_transaction(LIMIT).expect("the transaction is aborted");
    }
}
