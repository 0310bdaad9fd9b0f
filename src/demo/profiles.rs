//! The topic's contents: customer profiles, many versions of each, from a seed, so that every run of the demo is the same.

/// A topic that is to be compacted has few partitions; several show that each has its own progress.
pub const PARTITIONS: i32 = 4;

/// Versions per customer, on average.
const VERSIONS: usize = 8;

/// Out of a thousand records of the crowd, and what is left is an ordinary version.
const DELETES: usize = 30;
const WITHDRAWALS: usize = 40;
const BROKEN_VALUES: usize = 2;
const BROKEN_KEYS: usize = 2;

/// Customers of the scenes have numbers above those of the crowd.
const FIRST_SCENE: usize = 900_000;

const NAMES: &[&str] = &["Ada", "Björn", "Chloé", "Dmitri", "Emeka", "Fatima", "Guðrún", "Hana", "Ines", "Jörg"];
const CITIES: &[&str] = &["Aarhus", "Brno", "Cádiz", "Dakar", "Erfurt", "Fès", "Genève", "Hanoi"];

/// What is sent to the topic. Null, empty and any other bytes are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub partition: i32,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
}

/// Customers whose profiles change.
#[derive(Clone, Debug)]
pub struct Crowd {
    random: fastrand::Rng,
    customers: usize,
    version: u64,
}

/// At least `count` records: scenes that show one rule each, their first halves before and their second halves behind a
/// crowd of customers, so that what happens within a batch and what happens long after are both there.
pub fn seed(count: usize) -> Vec<Record> {
    let scenes = scenes();
    let (first, second): (Vec<_>, Vec<_>) = scenes.iter().map(|scene| scene.split_at(scene.len().div_ceil(2))).unzip();
    let crowd = count.saturating_sub(scenes.iter().map(Vec::len).sum::<usize>());
    let mut records: Vec<_> = first.concat();
    records.extend(Crowd::new(count).take(crowd));
    records.extend(second.concat());
    records
}

impl Crowd {
    /// As many customers as `count` records make a number of versions of each.
    pub fn new(count: usize) -> Self {
        Self { random: fastrand::Rng::with_seed(2026), customers: (count / VERSIONS).max(10), version: 0 }
    }

    /// A crowd that goes on where another ends.
    pub fn later(count: usize) -> Self {
        Self { random: fastrand::Rng::with_seed(2027), version: count as u64, ..Self::new(count) }
    }
}

impl Iterator for Crowd {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let customer = self.random.usize(..self.customers);
        self.version += 1;
        let dice = self.random.usize(..1000);
        let limits = [DELETES, WITHDRAWALS, BROKEN_VALUES, BROKEN_KEYS];
        let kind = limits.iter().scan(0, |sum, share| Some(std::mem::replace(sum, *sum + share) + share));
        let random = &mut self.random;
        Some(match kind.take_while(|limit| dice >= *limit).count() {
            0 => of(customer, None),
            1 => of(customer, Some(profile(random, customer, self.version, false))),
            2 => of(customer, Some(broken(profile(random, customer, self.version, true)))),
            3 => Record {
                partition: (customer as i32) % PARTITIONS,
                key: Some(broken_key(customer)),
                value: Some(profile(random, customer, self.version, true)),
            },
            _ => of(customer, Some(profile(random, customer, self.version, true))),
        })
    }
}

/// Each scene is one customer's life, in order.
fn scenes() -> Vec<Vec<Record>> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut customer = FIRST_SCENE;
    let mut scene = |acts: &[fn(&mut fastrand::Rng, usize) -> Record]| {
        customer += 1;
        acts.iter().map(|act| act(&mut random, customer)).collect::<Vec<_>>()
    };
    let write = |r: &mut fastrand::Rng, c| of(c, Some(profile(r, c, 1, true)));
    let rewrite = |r: &mut fastrand::Rng, c| of(c, Some(profile(r, c, 2, true)));
    let withdraw = |r: &mut fastrand::Rng, c| of(c, Some(profile(r, c, 3, false)));
    let spoil = |r: &mut fastrand::Rng, c| of(c, Some(broken(profile(r, c, 4, true))));
    let delete = |_: &mut fastrand::Rng, c| of(c, None);
    let empty = |_: &mut fastrand::Rng, c| of(c, Some(Vec::new()));
    let no_key = |r: &mut fastrand::Rng, c| Record { key: None, ..of(c, Some(profile(r, c, 1, true))) };
    let empty_key = |r: &mut fastrand::Rng, c| Record { key: Some(Vec::new()), ..of(c, Some(profile(r, c, 1, true))) };
    vec![
        scene(&[write, delete]),
        scene(&[write, rewrite, delete, rewrite]),
        scene(&[write, withdraw]),
        scene(&[write, rewrite, withdraw, rewrite]),
        scene(&[write, spoil]),
        scene(&[write, rewrite, delete, spoil]),
        scene(&[write, empty]),
        scene(&[withdraw, withdraw]),
        scene(&[delete, delete]),
        scene(&[write, delete, withdraw, spoil]),
        scene(&[no_key]),
        scene(&[empty_key]),
    ]
}

/// A record of a customer, in the partition of all of that customer's records.
fn of(customer: usize, value: Option<Vec<u8>>) -> Record {
    let key = format!("user-{customer:06}");
    Record { partition: (customer as i32) % PARTITIONS, key: Some(key.into_bytes()), value }
}

/// As different systems write it: with and without blanks, with numbers that a careless copy would write differently.
fn profile(random: &mut fastrand::Rng, customer: usize, version: u64, consent: bool) -> Vec<u8> {
    let name = NAMES[random.usize(..NAMES.len())];
    let city = CITIES[random.usize(..CITIES.len())];
    let cents = random.u32(..100_000);
    let blank = if random.bool() { " " } else { "" };
    let email = match random.u8(..20) {
        0 => String::new(),
        1 => format!("\"email\":{blank}null,{blank}"),
        _ => format!("\"email\":{blank}\"customer{customer}.{version}@example.com\",{blank}"),
    };
    format!(
        "{{\"id\":{blank}{customer},{blank}\"name\":{blank}\"{name}\",{blank}{email}\"city\":{blank}\"{city}\",{blank}\
         \"balance\":{blank}{}.{:02},{blank}\"consent\":{blank}{consent},{blank}\"version\":{blank}{version}}}",
        cents / 100,
        cents % 100,
    )
    .into_bytes()
}

/// Cut off in the middle, as by a producer with too small a buffer.
fn broken(mut value: Vec<u8>) -> Vec<u8> {
    value.truncate(value.len() / 2);
    value
}

fn broken_key(customer: usize) -> Vec<u8> {
    match customer % 3 {
        0 => format!("USER {customer}").into_bytes(),
        1 => format!("user-{customer}").into_bytes(),
        _ => vec![b'u', 0xff, 0xfe],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::MIN_RECORDS;

    #[test]
    fn every_run_is_the_same() {
        assert_eq!(seed(5_000), seed(5_000));
        assert_eq!(seed(5_000).len(), 5_000);
        let later: Vec<_> = Crowd::later(5_000).take(100).collect();
        assert_ne!(later, Crowd::new(5_000).take(100).collect::<Vec<_>>());
    }

    #[test]
    fn even_the_smallest_seed_has_what_the_demo_shows() {
        let records = seed(MIN_RECORDS);
        let has = |what: fn(&Record) -> bool| records.iter().any(what);
        assert!(has(|r| r.key.is_none()), "a missing key");
        assert!(has(|r| r.key.as_deref() == Some(b"")), "an empty key");
        assert!(has(|r| r.value.is_none()), "a delete");
        assert!(has(|r| r.value.as_deref() == Some(b"")), "an empty value");
        let crowd = seed(20_000);
        assert!(crowd.iter().any(|r| r.key.as_ref().is_some_and(|key| std::str::from_utf8(key).is_err())));
    }

    #[test]
    fn a_key_stays_in_its_partition() {
        let mut partitions = std::collections::BTreeMap::new();
        for record in seed(20_000) {
            if let Some(key) = record.key.filter(|key| key.starts_with(b"user-") && key.len() == 11) {
                assert_eq!(*partitions.entry(key).or_insert(record.partition), record.partition);
            }
        }
    }
}
