//! How fast the gateway loads a snapshot, next to a consumer that does nothing, in one interleaved run.
//!
//! `make bench` runs it; `RECORDS=` and `ROUNDS=` size it. Machines are noisy: trust the ratios of one run, never a figure
//! across runs. Prints a table and writes `target/bench/results.json`.

// An inline module names the directory, so that the harness finds its own modules where the tests do.
#[path = "../tests/it"]
#[allow(dead_code, unused_imports, reason = "the tests use more of the harness")]
mod it {
    pub mod harness;
}

#[path = "throughput/child.rs"]
mod child;
#[path = "throughput/raw.rs"]
mod raw;
#[path = "throughput/report.rs"]
mod report;

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use self::it::harness::profiles::{Profiles, write_plain};
use self::it::harness::{Broker, Topic, sized};
use self::report::{Report, Sample};

const SEED: u64 = 42;
const PARTITIONS: i32 = 4;

/// What the chain is, per column of the table.
const CHAINS: &[(&str, &str)] = &[
    ("no plugin", ""),
    ("identity", "{ use: identity }"),
    ("mask-fields", "{ use: std/mask-fields, config: { fields: [email] } }"),
    (
        "key-check, filter, mask-fields",
        "{ use: std/key-check, config: { max_length: 64 } }, \
         { use: std/filter, config: { drop: { field: { path: newsletter, equals: never } } } }, \
         { use: std/mask-fields, config: { fields: [email] } }",
    ),
];

const SINKS: &[(&str, &str)] = &[
    ("discard", "{ type: discard }"),
    ("file", "{ type: file, path: \"out/{topic}-{partition}.ndjson\" }"),
    ("sqlite", "{ type: sqlite, path: out/profiles.db, table: profiles, cache: 64MiB }"),
];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mode, brokers, topic] = &arguments[..]
        && mode == "raw"
    {
        let (records, seconds) = raw::consume(brokers, topic)?;
        println!("{}", serde_json::json!({ "records": records, "seconds": seconds }));
        return Ok(());
    }
    let records = sized("RECORDS", 2_000_000, 2_000_000);
    let rounds = sized("ROUNDS", 3, 3);
    let broker = Broker::start();
    let topic = Topic::compacted(&broker, PARTITIONS);
    eprintln!("writing {records} records over {} keys, seed {SEED}", records / 2);
    write_plain(&topic, &mut Profiles::new(SEED, records / 2), records);
    let mut report = Report::new(records, rounds);
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        report.add("raw consumer", "", run_raw(&broker, &topic)?);
        for (sink, sink_yaml) in SINKS {
            for (chain, chain_yaml) in CHAINS {
                report.add(sink, chain, run_gateway(&broker, &topic, chain_yaml, sink_yaml)?);
            }
        }
    }
    print!("{}", report.table());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench/results.json");
    report.write(&file).with_context(|| format!("cannot write `{}`", file.display()))
}

fn run_raw(broker: &Broker, topic: &Topic<'_>) -> anyhow::Result<Sample> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["raw", &broker.bootstrap(), &topic.name]);
    let ended = child::run(command)?;
    let said: serde_json::Value = serde_json::from_str(ended.stdout.trim())
        .with_context(|| format!("the raw consumer failed: {}", ended.stderr))?;
    Sample::new(&said, &ended)
}

/// One fresh gateway that loads the snapshot and ends.
fn run_gateway(broker: &Broker, topic: &Topic<'_>, chain: &str, sink: &str) -> anyhow::Result<Sample> {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let dir = tempfile::Builder::new().prefix("bench-").tempdir_in(scratch)?;
    let identity = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins/target/wasm32-wasip2/release/identity.wasm");
    // Compiled plugins are shared by all runs, as they are by all starts of a gateway.
    let yaml = format!(
        "version: 1
data_dir: {scratch}/bench-data
memory: 512MiB
log: {{ format: json }}
admin: {{ listen: 127.0.0.1:0 }}
clusters: {{ main: {{ bootstrap.servers: \"{brokers}\" }} }}
plugins: {{ identity: {{ file: {identity} }} }}
routes:
  bench:
    source: {{ topics: [{topic}], group: {group} }}
    plugins: [{chain}]
    sinks: {{ out: {sink} }}
",
        scratch = scratch.display(),
        brokers = broker.bootstrap(),
        identity = identity.display(),
        topic = topic.name,
        group = dir.path().file_name().and_then(|name| name.to_str()).context("a name in UTF-8")?,
    );
    let config = dir.path().join("tidegate.yaml");
    std::fs::write(&config, yaml)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["run", "--once", "-c"]).arg(&config);
    let ended = child::run(command)?;
    let live = ended.stderr.lines().find(|line| line.contains("lane is live"));
    let Some(live) = live else { bail!("the gateway did not load the snapshot:\n{}", ended.stderr) };
    let said: serde_json::Value = serde_json::from_str(live)?;
    Sample::new(&said, &ended)
}
