//! A lane that builds a table anew beside the one that is there, to be compared with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;

use super::status::LaneStatus;
use crate::config::{self, DeadLetter, Route, SinkKind, Sqlite};
use crate::delivery::{OnError, Skips};
use crate::metrics::Metrics;
use crate::plugin::Chain;
use crate::record::{NextOffset, TopicPartition};
use crate::route::{Commands, Lane, LaneName, Shown};
use crate::stop::Stop;

/// Nothing is lost when it is cut short: what it writes is thrown away.
const GRACE: Duration = Duration::from_secs(5);

/// A running lane from a route's source, through its chain, into a database of its own. It commits nothing, halts at no
/// record, and keeps each one that is rejected as a dead letter.
pub struct Copy {
    /// As that of the table that is there, but for its path.
    pub settings: Sqlite,
    pub dead_letters: PathBuf,
    shown: Arc<Shown>,
    stop: Stop,
    thread: JoinHandle<()>,
}

impl Copy {
    /// Begins to copy what the lane of `route` and its `sink` would write to `settings`, into files in `directory`.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub fn start(
        (route, sink, settings): (&Route, &config::Sink, &Sqlite),
        chain: &Arc<Chain>,
        budget: config::Budget,
        directory: &Path,
        runtime: tokio::runtime::Handle,
    ) -> anyhow::Result<Self> {
        let settings = Sqlite { path: directory.join("copy.db"), ..settings.clone() };
        let kind = SinkKind::Sqlite(settings.clone());
        let sink = Arc::new(config::Sink { kind, on_error: OnError::DeadLetter, ..sink.clone() });
        let dead_letter = DeadLetter { path: directory.join("rejected.ndjson") };
        let dead_letters = dead_letter.for_lane(&sink.name);
        let route = Arc::new(Route { sinks: vec![Arc::clone(&sink)], dead_letter, ..route.clone() });
        let metrics = Metrics::new().lane(&route.name, &sink.name);
        let name = LaneName { route: route.name.clone(), sink: sink.name.clone() };
        let shown = Arc::new(Shown::new(name, "sqlite", dead_letters.display().to_string(), metrics.clone()));
        let stop = Stop::new();
        let lane = Lane {
            route,
            sink,
            chain: Arc::clone(chain),
            budget,
            metrics,
            shown: Arc::clone(&shown),
            runtime,
            commands: Commands::new().1,
            skips: Skips::All,
            commits: false,
            stop: stop.clone(),
            grace: GRACE,
        };
        let thread = thread::Builder::new()
            .name(format!("copy:{}", shown.name()))
            .spawn(move || lane.run())
            .context("cannot start the copying lane's thread")?;
        Ok(Self { settings, dead_letters, shown, stop, thread })
    }

    pub fn status(&self) -> LaneStatus {
        self.shown.status()
    }

    /// Whether everything below these positions is in the copy.
    pub fn has_passed(&self, positions: &[(TopicPartition, NextOffset)]) -> bool {
        let status = self.status();
        positions.iter().all(|(partition, next)| {
            let of = |p: &&super::status::PartitionStatus| {
                *p.topic == *partition.topic && p.partition == partition.partition
            };
            next.0 == 0 || status.partitions.iter().find(of).and_then(|p| p.finished).is_some_and(|head| head >= next.0)
        })
    }

    /// Ends the lane; returns whether it ended in time, so that its files are closed.
    pub fn stop(self) -> bool {
        self.stop.set();
        self.thread.join().is_ok()
    }
}
