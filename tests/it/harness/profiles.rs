//! Customer profiles: many versions of many keys, with deletes, the same for the same seed.

use super::random::Random;
use super::{Producer, Record, Topic};

/// Of a hundred records.
const TOMBSTONES: u64 = 1;
/// Records of one transaction: many transactions in a small topic, and bounded commits in a large one.
const TRANSACTION: std::ops::RangeInclusive<u64> = 50..=5000;

/// An endless stream of versions.
#[derive(Clone, Debug)]
pub struct Profiles {
    random: Random,
    keys: u64,
    version: u64,
    /// Bytes that pad each value.
    padding: usize,
}

impl Profiles {
    /// Values of about 300 bytes.
    pub fn new(seed: u64, keys: u64) -> Self {
        Self::padded(seed, keys, 120)
    }

    pub fn padded(seed: u64, keys: u64, padding: usize) -> Self {
        Self { random: Random::new(seed), keys, version: 0, padding }
    }
}

impl Iterator for Profiles {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        self.version += 1;
        let id = self.random.below(self.keys);
        let key = format!("customer-{id:07}");
        if self.random.below(100) < TOMBSTONES {
            return Some(Record::delete(key));
        }
        let noise = self.random.next();
        let value = format!(
            r#"{{"id":{id},"version":{},"name":"Ann-Lena Ørsted {}","email":"ann.{id}@example.com","address":{{"city":"Tromsø","zip":"{:05}"}},"newsletter":{},"note":"{}"}}"#,
            self.version,
            noise % 1000,
            noise % 100_000,
            noise.is_multiple_of(2),
            // Fresh digits each, so that compression does not make the topic small.
            (0..self.padding.div_ceil(16)).map(|_| format!("{:016x}", self.random.next())).collect::<String>(),
        );
        Some(Record::put(key, value).header("source", Some(b"crm")))
    }
}

/// Writes `count` of them plainly.
pub fn write_plain(topic: &Topic<'_>, profiles: &mut Profiles, count: u64) {
    Producer::new(topic.broker).write(topic, profiles.take(count as usize));
}

/// Writes `count` of them in about a hundred committed transactions, with an aborted one after every third and another at
/// the end, so that each partition's log ends in something that nobody sees.
pub fn write_transactional(topic: &Topic<'_>, profiles: &mut Profiles, count: u64) {
    let producer = Producer::transactional(topic.broker, &format!("{}-writer", topic.name));
    let transaction_size = (count / 100).clamp(*TRANSACTION.start(), *TRANSACTION.end());
    let mut left = count;
    let mut transaction = 0u64;
    while left > 0 {
        let size = left.min(transaction_size);
        producer.begin();
        profiles.take(size as usize).for_each(|record| producer.send(&topic.name, &record));
        transaction += 1;
        if transaction.is_multiple_of(4) {
            producer.abort();
        } else {
            producer.commit();
            left -= size;
        }
    }
    producer.begin();
    for partition in 0..topic.partitions {
        producer.send(&topic.name, &Record::put("customer-0000000", "never to be seen").to(partition));
    }
    producer.abort();
}
