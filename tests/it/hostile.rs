//! Every hostile guest through the whole gateway: health answers, the guilty record is found, all others are delivered, and
//! memory stays flat. Full size: `make verify-hostile`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::harness::alive::Alive;
use super::harness::read::{lines, positions, sqlite};
use super::harness::{Broker, Gateway, Producer, Record, Site, Topic, route, sized};

#[path = "../../plugins/hostile/crimes.rs"]
#[allow(dead_code, reason = "the guests use the rest of the list")]
pub mod crimes;

use crimes::{Crime, Place};

const LIMIT: Duration = Duration::from_secs(300);
const SQLITE: &str = "sinks: { db: { type: sqlite, path: r.db, table: profiles } }";

/// What becomes of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The crime costs the record.
    Rejected,
    /// The crime is cut short and the record kept.
    Kept,
}

/// Without a wildcard: a crime without a test does not compile.
fn fate(crime: Crime) -> Option<Fate> {
    match crime {
        Crime::Trap
        | Crime::Loop
        | Crime::Sleep
        | Crime::Bomb
        | Crime::Recurse
        | Crime::DeepCall
        | Crime::PrintStdout
        | Crime::PrintStderr
        | Crime::LogHuge
        | Crime::Fatal
        | Crime::FatalHuge
        | Crime::Retry
        | Crime::ConfigLate
        | Crime::TooFew
        | Crime::TooMany
        | Crime::UnknownAction
        | Crime::NegativeLength
        | Crime::SameValue
        | Crime::NullHeaders
        | Crime::NullName
        | Crime::LengthBeyond
        | Crime::LengthOverflow
        | Crime::LengthMissing
        | Crime::LengthLeftOver
        | Crime::DataLeftOver
        | Crime::BadReason
        | Crime::NullReason
        | Crime::ManyHeaders
        | Crime::ExpandBomb
        | Crime::ExpandFlood
        | Crime::ExpandNegative
        | Crime::HugeOutput
        | Crime::Rekey => Some(Fate::Rejected),
        Crime::LogFlood | Crime::CountFlood | Crime::CountName | Crime::Leak => Some(Fate::Kept),
        Crime::InitTrap
        | Crime::InitLoop
        | Crime::InitSleep
        | Crime::InitBomb
        | Crime::InitRetry
        | Crime::InitLongError
        | Crime::DescribeTrap
        | Crime::DescribeLoop
        | Crime::DescribeGarbage => None,
    }
}

fn component(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins/target/wasm32-wasip2/release").join(name);
    assert!(path.is_file(), "no `{}`: run `make plugins`", path.display());
    path
}

/// A site whose route runs `file` with `config` before an SQLite table.
fn site(topic: &Topic<'_>, file: &str, config: &str) -> Site {
    let plugins = format!("plugins: [{{ use: guest, config: {config} }}]");
    let declared = format!("plugins:\n  guest: {{ file: {} }}\n", component(file).display());
    Site::new(topic.broker, &(declared + &route(topic, &[&plugins, SQLITE])))
}

#[test]
fn each_crime_costs_its_own_record_and_nothing_else() {
    let topic = Topic::compacted(Broker::shared(), 1);
    let (mut records, mut rejected, mut kept) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut push = |key: String, fate: Fate| {
        let offset = records.len() as i64;
        match fate {
            Fate::Rejected => rejected.push((0, offset)),
            Fate::Kept => drop(kept.insert(key.clone(), offset.to_string())),
        }
        records.push(Record::put(key, offset.to_string()));
    };
    let mut crimes: Vec<_> = Crime::ALL.iter().filter_map(|crime| Some((*crime, fate(*crime)?))).collect();
    // The guest commits the first crime of a batch only: one that keeps all records must not hide one behind it.
    crimes.sort_by_key(|(_, fate)| *fate == Fate::Kept);
    for (crime, fate) in crimes {
        assert_eq!(crime.place(), Place::Record);
        (0..3).for_each(|n| push(format!("good-before-{}-{n}", crime.word()), Fate::Kept));
        push(format!("{}-guilty", crime.word()), fate);
        (0..3).for_each(|n| push(format!("good-after-{}-{n}", crime.word()), Fate::Kept));
    }
    Producer::new(topic.broker).write(&topic, records);
    let site = site(&topic, "hostile.wasm", "{}");
    let mut gateway = site.start();
    let alive = Alive::watch(gateway.address());
    gateway.wait_ready(LIMIT);
    let health = alive.assert_prompt();
    gateway.stop();
    println!("slowest of {} health answers: {:?}", health.answers, health.slowest);

    let letters = lines(&site.path("dead/r.db.ndjson"));
    assert_eq!(positions(&letters), rejected, "exactly the guilty records, in order");
    assert_eq!(sqlite(&site.path("r.db"), "profiles"), kept);
    for letter in &letters {
        assert_eq!(letter["plugin"], "guest", "{letter}");
        let cause = letter["cause"].as_str().unwrap();
        assert!(!cause.is_empty() && cause.len() < 4096, "a cause is bounded: {} bytes", cause.len());
    }
}

#[test]
fn a_guest_that_fails_before_its_first_record_halts_its_lane_and_no_other() {
    let topic = Topic::compacted(Broker::shared(), 1);
    Producer::new(topic.broker).write(&topic, [Record::put("a", "1")]);
    for crime in Crime::ALL.iter().filter(|crime| fate(**crime).is_none()) {
        let config = match crime.place() {
            Place::Init => format!("{{ crime: {} }}", crime.word()),
            Place::Describe => "{}".to_owned(),
            Place::Record => unreachable!("it has a fate"),
        };
        let site = site(&topic, &crime.component(), &config);
        let (status, output) = site.run_once(LIMIT);
        assert!(!status.success(), "`{}` must not look like a success\n{output}", crime.word());
        assert!(output.contains("guest"), "`{}` names the plugin\n{output}", crime.word());
        assert!(output.len() < 64 << 10, "`{}` floods the log with {} bytes", crime.word(), output.len());
    }
}

#[test]
fn memory_is_flat_over_many_traps() {
    let traps = sized("TIDEGATE_TRAPS", 1_000, 10_000);
    let topic = Topic::compacted(Broker::shared(), 1);
    let keys = (0..traps).flat_map(|n| [format!("trap-{n}"), format!("good-{n}")]);
    Producer::new(topic.broker).write(&topic, keys.map(|key| Record::put(key, "1")));
    let site = site(&topic, "hostile.wasm", "{}");
    let started = Instant::now();
    let mut gateway = site.start();
    let alive = Alive::watch(gateway.address());
    let trapped = |gateway: &Gateway| gateway.lane("db").counts.dead_letters;
    gateway.wait_until("the first tenth", LIMIT, |gateway| trapped(gateway) >= traps / 10);
    let early = gateway.process.resident();
    gateway.wait_ready(Duration::from_secs(1800));
    let late = gateway.process.resident();
    let health = alive.assert_prompt();
    println!(
        "{traps} traps in {:.1?}: resident {} MiB after a tenth, {} MiB at the end; slowest health answer {:?}",
        started.elapsed(),
        early >> 20,
        late >> 20,
        health.slowest
    );
    assert!(late <= early + (16 << 20), "resident grew from {early} to {late} bytes");
    gateway.stop();
    let expected: Vec<(i64, i64)> = (0..traps as i64).map(|n| (0, 2 * n)).collect();
    assert_eq!(positions(&lines(&site.path("dead/r.db.ndjson"))), expected);
    assert_eq!(sqlite(&site.path("r.db"), "profiles").len() as u64, traps);
}
