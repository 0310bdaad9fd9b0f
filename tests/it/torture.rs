//! Everything that breaks, in random order, under load: in the end each sink equals the topic. The nemesis never looks at the
//! gateway, nor does the checker: the topic is folded by a script of its own. Longer: `make torture SEED=n SECONDS=n`.
//!
//! Two gateways of one configuration share an HTTP lane, and have a table and files each. The producer writes versions,
//! deletes, hot keys, large values and keys that the route rejects, half of it in transactions, some of which it aborts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use super::harness::gateway::run_header;
use super::harness::group::Watch;
use super::harness::oracle::{Dump, Sinks};
use super::harness::random::Random;
use super::harness::read::{lines, positions};
use super::harness::receiver::{Answer, Request};
use super::harness::{Broker, Gateway, Receiver, Site, Topic, full_size, route_from, sized, wait_for};

/// From the last fault to sinks that are equal to the topic.
const HEALED_WITHIN: Duration = Duration::from_secs(240);
/// From lanes that show no lag any more.
const ON_ITS_WAY: Duration = Duration::from_secs(20);
const PARTITIONS: i32 = 4;
/// Keys of each partition, a few of which are hot.
const KEYS: u64 = 400;
/// Records of such keys are rejected by the route.
const BAD_KEY: &str = "bad ";
/// A value near the largest that the broker takes.
const LARGE: usize = 900 << 10;
/// Files may not grow beyond it while the disk is full.
const FULL_DISK: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    KillGateway,
    FreezeGateway,
    RestartGateway,
    KillBroker,
    StopBroker,
    FreezeBroker,
    CutNetwork,
    FillDisk,
    SinkRefuses,
    SinkStalls,
    SinkBreaksOff,
    SinkLies,
    AddPartition,
    ChangeInstances,
}

const FAULTS: [Fault; 14] = [
    Fault::KillGateway,
    Fault::FreezeGateway,
    Fault::RestartGateway,
    Fault::KillBroker,
    Fault::StopBroker,
    Fault::FreezeBroker,
    Fault::CutNetwork,
    Fault::FillDisk,
    Fault::SinkRefuses,
    Fault::SinkStalls,
    Fault::SinkBreaksOff,
    Fault::SinkLies,
    Fault::AddPartition,
    Fault::ChangeInstances,
];

#[test]
fn whatever_breaks_each_sink_equals_the_topic_in_the_end() {
    let mut random = Random::from_environment("torture");
    let seconds = sized("TIDEGATE_TORTURE_SECONDS", 30, 600);
    let (rounds, deliveries) = if full_size() { (5, 50_000) } else { (1, 1000) };
    let broker = Broker::start_linked(2);
    let topic = Topic::compacted(&broker, PARTITIONS);
    let receiver = Receiver::keeping_state();
    let world = World {
        sites: [0, 1].map(|instance| site(&topic, &receiver, broker.link(instance).address())),
        gateways: [const { None }; 2].map(Mutex::new),
        broker: &broker,
        receiver: &receiver,
        partitions: RwLock::new(PARTITIONS),
        topic: &topic,
    };
    let watch = Watch::start(&format!("{}.crm", topic.name), &topic);
    let load = Load { stop: AtomicBool::new(false), seed: random.next() };
    let mut struck: BTreeMap<Fault, u32> = BTreeMap::new();
    std::thread::scope(|scope| {
        let _ends_with_the_test = StopOnDrop(&load.stop);
        scope.spawn(|| load.run(&world));
        world.start(0);
        world.start(1);
        let begin = Instant::now();
        let mut round = 0;
        while round < rounds || begin.elapsed() < Duration::from_secs(seconds) {
            round += 1;
            for fault in shuffled(&mut random) {
                println!("{:6.1} s  {fault:?}", begin.elapsed().as_secs_f64());
                world.strike(fault, &mut random);
                world.assert_alive();
                *struck.entry(fault).or_default() += 1;
                std::thread::sleep(Duration::from_millis(random.below(800)));
            }
        }
    });
    println!("healing");
    world.start(0);
    world.start(1);
    let dump = world.wait_until_equal();
    world.stop();

    let findings = watch.stop();
    assert_eq!(findings.backwards, [], "committed offsets went backwards");
    receiver.assert_one_at_a_time();
    let bad = dump.positions_of(BAD_KEY);
    for site in &world.sites {
        for lane in ["read_model", "audit"] {
            let mut letters = positions(&lines(&site.path(format!("dead/r.{lane}.ndjson"))));
            letters.sort_unstable();
            assert_eq!(letters, bad, "each rejected record is one dead letter of `{lane}`");
        }
    }
    let http = world.sites.iter().flat_map(|site| positions(&lines(&site.path("dead/r.crm.ndjson"))));
    let http: std::collections::BTreeSet<_> = http.collect();
    assert_eq!(
        http.into_iter().collect::<Vec<_>>(),
        bad,
        "each rejected record is a dead letter of an instance's `crm`"
    );
    println!(
        "{} records, {} rejected, {} requests accepted, {} refused, {} looks at the offsets; faults {struck:?}",
        dump.records(),
        bad.len(),
        receiver.accepted_count(),
        receiver.refused_count(),
        findings.looks
    );
    // Two tables and two sets of files took each of them.
    let delivered = receiver.accepted_count() + 4 * (dump.records() - bad.len() as u64);
    assert!(delivered >= deliveries, "only {delivered} deliveries, fewer than {deliveries}");
    assert!(FAULTS.iter().all(|fault| struck.get(fault).is_some_and(|times| *times >= rounds)));
}

fn site(topic: &Topic<'_>, receiver: &Receiver, bootstrap: String) -> Site {
    let crm = format!(
        r#"  crm: {{ type: http, url: "{}", method: PUT, delete: DELETE, in_flight: 32, timeout: 2s, retry: {{ backoff: 100ms, max: 1s }}, {} }}"#,
        receiver.url(),
        run_header()
    );
    let routes = route_from(
        topic,
        r#"keys: { format: { regex: "p[0-9]+ .*" } }"#,
        &[
            "plugins: [{ use: std/mask-fields, config: { fields: [email] } }]",
            "sinks:",
            r#"  audit: { type: file, path: "audit/{topic}-{partition}.ndjson", rotate: { size: 4MiB }, retry: { backoff: 50ms, max: 500ms } }"#,
            "  read_model: { type: sqlite, path: profiles.db, table: profiles, retry: { backoff: 50ms, max: 500ms } }",
            &crm,
        ],
    );
    let site = Site::new(topic.broker, &routes);
    site.rewrite(&site.yaml().replace(&topic.broker.bootstrap(), &bootstrap));
    site
}

fn shuffled(random: &mut Random) -> Vec<Fault> {
    let mut faults = FAULTS.to_vec();
    for last in (1..faults.len()).rev() {
        faults.swap(last, random.below(last as u64 + 1) as usize);
    }
    faults
}

/// What can break.
struct World<'a> {
    sites: [Site; 2],
    /// `None` = not there.
    gateways: [Mutex<Option<Gateway>>; 2],
    broker: &'a Broker,
    receiver: &'a Receiver,
    /// How many the topic has by now.
    partitions: RwLock<i32>,
    topic: &'a Topic<'a>,
}

impl World<'_> {
    fn start(&self, instance: usize) {
        let mut gateway = self.gateways[instance].lock().unwrap_or_else(PoisonError::into_inner);
        if gateway.is_none() {
            *gateway = Some(self.sites[instance].start());
        }
    }

    /// Does something to an instance that is there, and what `after` gives is there then.
    fn with(&self, random: &mut Random, after: impl FnOnce(Gateway, &Site, &mut Random) -> Option<Gateway>) {
        let first = random.below(2) as usize;
        let running =
            |instance: &usize| self.gateways[*instance].lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let instance = [first, 1 - first].into_iter().find(running).expect("one is always there");
        let mut slot = self.gateways[instance].lock().unwrap_or_else(PoisonError::into_inner);
        let gateway = slot.take().expect("it is there");
        *slot = after(gateway, &self.sites[instance], random);
    }

    /// Nothing that the nemesis does ends a gateway, but for what is meant to.
    fn assert_alive(&self) {
        for gateway in &self.gateways {
            let mut gateway = gateway.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(status) = gateway.as_mut().and_then(|gateway| gateway.process.exit_status()) {
                panic!("a gateway ended by itself with {status}");
            }
        }
    }

    fn strike(&self, fault: Fault, random: &mut Random) {
        let pause = |random: &mut Random, most: u64| std::thread::sleep(Duration::from_millis(random.below(most)));
        match fault {
            Fault::KillGateway => self.with(random, |gateway, site, random| {
                gateway.kill();
                pause(random, 1000);
                Some(site.start())
            }),
            // Beyond the session's time-out, so that its partitions are another's when it wakes up.
            Fault::FreezeGateway => self.with(random, |gateway, _, random| {
                gateway.process.signal(libc::SIGSTOP);
                pause(random, 9000);
                gateway.process.signal(libc::SIGCONT);
                Some(gateway)
            }),
            Fault::RestartGateway => self.with(random, |gateway, site, _| {
                gateway.stop();
                Some(site.start())
            }),
            Fault::KillBroker => {
                self.broker.kill();
                pause(random, 1000);
                self.broker.restart();
            }
            Fault::StopBroker => {
                self.broker.stop();
                self.broker.restart();
            }
            Fault::FreezeBroker => {
                self.broker.suspend();
                pause(random, 8000);
                self.broker.resume();
            }
            Fault::CutNetwork => {
                let link = self.broker.link(random.below(2) as usize);
                link.cut();
                pause(random, 9000);
                link.mend(random.below(2) == 0);
            }
            Fault::FillDisk => self.with(random, |gateway, _, random| {
                gateway.process.limit_files(FULL_DISK);
                pause(random, 3000);
                gateway.process.lift_file_limit();
                Some(gateway)
            }),
            Fault::SinkRefuses => self.answer(random, |n| Answer::status([503, 500, 429, 408][n as usize % 4])),
            Fault::SinkStalls => self.answer(random, |n| Answer::ok().after(Duration::from_millis(n % 4000))),
            Fault::SinkBreaksOff => self.answer(random, |_| Answer::ok().breaking_off()),
            Fault::SinkLies => self.answer(random, |n| match n % 2 {
                0 => Answer::status(500).lying(),
                _ => Answer::ok().lying().after(Duration::from_secs(4)),
            }),
            Fault::AddPartition => {
                let mut partitions = self.partitions.write().unwrap_or_else(PoisonError::into_inner);
                *partitions += 1;
                self.topic.grow_to(*partitions);
            }
            Fault::ChangeInstances => {
                self.with(random, |gateway, _, _| {
                    gateway.stop();
                    None
                });
                pause(random, 4000);
                self.start(0);
                self.start(1);
            }
        }
    }

    /// For a while, some requests get another answer than they should.
    fn answer(&self, random: &mut Random, other: impl Fn(u64) -> Answer + Send + 'static) {
        let (share, mut dice) = (random.below(90) + 10, Random::new(random.next()));
        self.receiver.answer(move |_: &Request| match dice.below(100) {
            roll if roll < share => other(dice.next()),
            _ => Answer::ok(),
        });
        std::thread::sleep(Duration::from_millis(500 + random.below(2500)));
        self.receiver.answer(|_| Answer::ok());
    }

    /// Waits until every sink of both instances equals the topic; returns that.
    fn wait_until_equal(&self) -> Dump {
        let settled = |gateway: &Mutex<Option<Gateway>>| {
            let gateway = gateway.lock().unwrap_or_else(PoisonError::into_inner);
            let gateway = gateway.as_ref().expect("both were started");
            let Ok((200, _)) = gateway.try_get("/readyz") else { return false };
            gateway.status().routes[0].lanes.iter().all(|lane| lane.lag().unwrap_or(0) == 0)
        };
        // The broker ends the transactions of a producer that is gone, and until then hides what stands behind them.
        wait_for("the end of open transactions", HEALED_WITHIN, || (!self.topic.hides_anything()).then_some(()));
        wait_for("lanes without a lag", HEALED_WITHIN, || self.gateways.iter().all(settled).then_some(()));
        let dump = Dump::of(self.topic);
        let begin = Instant::now();
        for (instance, site) in self.sites.iter().enumerate() {
            let (database, files) = (site.path("profiles.db"), site.path("audit"));
            let sinks = Sinks {
                sqlite: Some((&database, "profiles")),
                http: Some(self.receiver),
                files: Some(&files),
                masked: &["email"],
                rejected: Some(BAD_KEY),
            };
            loop {
                let (equal, report) = dump.compare(&sinks);
                println!("instance {instance}: {report}");
                if equal {
                    break;
                }
                // What is on its way comes soon; what is lost or doubled never.
                assert!(begin.elapsed() < ON_ITS_WAY, "instance {instance} differs from the topic's fold\n{report}");
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        dump
    }

    fn stop(&self) {
        for gateway in &self.gateways {
            gateway.lock().unwrap_or_else(PoisonError::into_inner).take().expect("both were started").stop();
        }
    }
}

/// Writes all the time, whatever the broker does.
struct Load {
    stop: AtomicBool,
    seed: u64,
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The longest that a transaction or a flush may take while the broker is away.
const WRITE_LIMIT: Duration = Duration::from_secs(60);

impl Load {
    fn run(&self, world: &World<'_>) {
        let mut random = Random::new(self.seed);
        let mut producers = (None, None);
        let mut version = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let records: Vec<_> =
                (0..random.below(60) + 1).map(|_| self.record(&mut random, &mut version, world)).collect();
            let transactional = random.below(2) == 0;
            let slot = if transactional { &mut producers.0 } else { &mut producers.1 };
            let producer = slot.take().map_or_else(|| producer(world, transactional), Some);
            let aborts = random.below(4) == 0;
            // What becomes of a batch whose producer failed is told by the topic.
            *slot =
                producer.filter(|producer| write(producer, &world.topic.name, &records, transactional, aborts).is_ok());
            std::thread::sleep(Duration::from_millis(random.below(60)));
        }
    }

    /// Partition, key and value.
    fn record(&self, random: &mut Random, version: &mut u64, world: &World<'_>) -> (i32, String, Option<Vec<u8>>) {
        *version += 1;
        let partitions = *world.partitions.read().unwrap_or_else(PoisonError::into_inner);
        let partition = random.below(partitions as u64) as i32;
        let id = if random.below(4) == 0 { random.below(3) } else { random.below(KEYS) };
        let key = format!("p{partition} {id}");
        let padding = if random.below(1500) == 0 { LARGE } else { 200 };
        let value = format!(r#"{{"version":{version},"email":"{id}@example.com","note":"{}"}}"#, "x".repeat(padding));
        match random.below(50) {
            0 => (partition, format!("{BAD_KEY}{id}"), Some(value.into_bytes())),
            1..=4 => (partition, key, None),
            _ => (partition, key, Some(value.into_bytes())),
        }
    }
}

fn producer(world: &World<'_>, transactional: bool) -> Option<BaseProducer> {
    let mut config = world.broker.client();
    config.set("enable.idempotence", "true").set("compression.type", "lz4").set("message.max.bytes", "1000000");
    if transactional {
        config.set("transactional.id", format!("{}-torture", world.topic.name)).set("transaction.timeout.ms", "10000");
    }
    let producer: BaseProducer = config.create().expect("a producer");
    (!transactional || producer.init_transactions(WRITE_LIMIT).is_ok()).then_some(producer)
}

fn write(
    producer: &BaseProducer,
    topic: &str,
    records: &[(i32, String, Option<Vec<u8>>)],
    transactional: bool,
    aborts: bool,
) -> rdkafka::error::KafkaResult<()> {
    if transactional {
        producer.begin_transaction()?;
    }
    for (partition, key, value) in records {
        let mut record: BaseRecord<'_, str, [u8]> = BaseRecord::to(topic).partition(*partition).key(key);
        record.payload = value.as_deref();
        producer.send(record).map_err(|(error, _)| error)?;
    }
    producer.flush(WRITE_LIMIT)?;
    match (transactional, aborts) {
        (true, true) => producer.abort_transaction(WRITE_LIMIT),
        (true, false) => producer.commit_transaction(WRITE_LIMIT),
        _ => Ok(()),
    }
}
