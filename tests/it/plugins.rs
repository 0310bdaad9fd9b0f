//! The WebAssembly host with compiled guests.

mod chains;
mod crimes;
mod endurance;
mod loading;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate::checkpoint::Checkpoint;
use tidegate::config::{ComponentSource, Keys, Limits, MissingKey, PluginUse};
use tidegate::delivery::{Delivery, Fate, Hold, OnError, Rejection, Span};
use tidegate::metrics::Metrics;
use tidegate::plugin::{Chain, ChainError, Engine, EngineSettings, Runner, RunnerContext, Stall};
use tidegate::record::{Batch, NextOffset, TopicPartition};
use tidegate::stop::Stop;

/// Enough for a thousand honest records on a busy machine, little enough that a dishonest one is soon cut.
const LIMITS: Limits = Limits {
    time: Duration::from_millis(200),
    time_per_record: Duration::ZERO,
    memory: 64 << 20,
    output: 16 << 20,
    log: 16 << 10,
};

/// A compiled guest.
fn guest(file: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins/target/wasm32-wasip2/release").join(file);
    assert!(path.exists(), "`{}` is missing: run `make plugins` first", path.display());
    path
}

fn use_file(path: &Path, config: &str) -> PluginUse {
    PluginUse {
        name: path.file_stem().unwrap().to_str().unwrap().into(),
        component: ComponentSource::File(path.to_owned()),
        sha256: None,
        config: config.to_owned(),
        on_error: OnError::DeadLetter,
        limits: LIMITS,
    }
}

fn use_guest(file: &str, config: &str) -> PluginUse {
    use_file(&guest(file), config)
}

/// A component that is written to a file of its own.
fn use_bytes(dir: &Path, bytes: &[u8]) -> PluginUse {
    let path = dir.join("written.wasm");
    fs::write(&path, bytes).unwrap();
    use_file(&path, "{}")
}

fn engine() -> Engine {
    engine_with_cache(None)
}

fn engine_with_cache(cache_dir: Option<&Path>) -> Engine {
    let cache_dir = cache_dir.map(Path::to_owned);
    Engine::try_new(EngineSettings { cache_dir, max_instances: 8, max_memory: LIMITS.memory }).unwrap()
}

fn all_keys() -> Keys {
    Keys { missing: MissingKey::Pass, format: None, malformed: OnError::DeadLetter }
}

/// A runner with what is needed to look at it.
struct Bench {
    runner: Runner,
    metrics: Metrics,
    stop: Stop,
}

impl Bench {
    fn try_new(plugins: &[PluginUse]) -> Result<Self, ChainError> {
        Self::on(&engine(), &all_keys(), plugins)
    }

    fn new(plugins: &[PluginUse]) -> Self {
        Self::try_new(plugins).unwrap_or_else(|error| panic!("{error}"))
    }

    fn on(engine: &Engine, keys: &Keys, plugins: &[PluginUse]) -> Result<Self, ChainError> {
        let chain = Chain::load(engine, keys, plugins).map_err(|mut errors| errors.swap_remove(0))?;
        let metrics = Metrics::new();
        let stop = Stop::new();
        let runner = chain.open(RunnerContext {
            route: "r".into(),
            sink: "s".into(),
            metrics: metrics.lane("r", "s"),
            stop: stop.clone(),
        });
        Ok(Self { runner: runner.unwrap(), metrics, stop })
    }

    /// Runs a batch, giving it again as often as the runner asks for, without the waits.
    fn run(&mut self, batch: Batch) -> Delivery {
        let mut delivery = delivery(batch);
        while let Err(stall) = self.runner.run(&mut delivery) {
            assert!(delivery.fates().all(|fate| *fate == Fate::Write), "a stalled delivery is as it was");
            assert!(!self.stop.is_set(), "{stall}");
        }
        delivery
    }

    fn run_once(&mut self, batch: Batch) -> Result<Delivery, Stall> {
        let mut delivery = delivery(batch);
        self.runner.run(&mut delivery).map(|()| delivery)
    }

    /// The value of a metric of the lane; `labels` come after those of the lane.
    fn metric(&self, name: &str, labels: &str) -> u64 {
        let start = format!("tidegate_{name}_total{{route=\"r\",sink=\"s\"{labels}}} ");
        let text = self.metrics.encode().unwrap();
        text.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok()).unwrap_or(0)
    }
}

fn delivery(batch: Batch) -> Delivery {
    let next = NextOffset(batch.offsets().last().map_or(1, |last| last + 1));
    let ticket = Checkpoint::new(None).received(batch.offsets().first().copied().unwrap_or(0), next);
    let hold = Hold::new(Arc::default(), &batch);
    let span = Span { assignment: 0, ticket, next, whole: true };
    Delivery::new(span, batch, hold)
}

/// Records with these keys, each with a value, a header twice and a header without a value.
fn batch<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Batch {
    let mut batch = Batch::new(TopicPartition::new("profiles", 3));
    for (number, key) in keys.into_iter().enumerate() {
        // Holes are normal.
        let offset = number as i64 * 3;
        batch.push(offset, 1_700_000_000_000, Some(key.as_ref()), Some(format!("value of {number}").as_bytes()));
        batch.push_header(b"h", Some(b"1"));
        batch.push_header(b"h", Some(b"2"));
        batch.push_header(b"n", None);
    }
    batch
}

/// `records` honest keys but for `bad` at `position`.
fn batch_with(records: usize, position: usize, bad: &str) -> Batch {
    batch((0..records).map(|number| if number == position { bad.to_owned() } else { format!("good-{number}") }))
}

fn rejection(fate: &Fate) -> Option<&Rejection> {
    match fate {
        Fate::Reject(rejection) => Some(rejection),
        _ => None,
    }
}

/// The numbers and causes of the rows that were rejected.
fn rejected(delivery: &Delivery) -> Vec<(usize, String)> {
    let fates = delivery.fates().enumerate();
    fates.filter_map(|(row, fate)| Some((row, rejection(fate)?.cause.clone()))).collect()
}
