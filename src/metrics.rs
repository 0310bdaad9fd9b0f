//! Every metric, declared in one place: name, help, labels, and typed handles that cost an atomic add.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::gateway::status::{LaneState, LaneStatus, Status};

/// All metrics of the process. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    families: Families,
}

/// The metrics of one lane, resolved once so that counting costs no look-up.
#[derive(Clone, Debug)]
pub struct LaneMetrics {
    pub records_in: Counter,
    pub bytes_in: Counter,
    /// Rows that the sink has finished: written, or coalesced into a later one.
    pub records_out: Counter,
    pub bytes_out: Counter,
    pub kept: Counter,
    pub changed: Counter,
    pub dropped: Counter,
    pub rejected: Counter,
    pub dead_letters: Counter,
    /// Rows of older versions that a rejected newer one left in place.
    pub stale: Counter,
    /// Writes saved since a later row of the same batch had the same key.
    pub coalesced: Counter,
    /// Deletes that the sink was told not to send.
    pub tombstones_ignored: Counter,
    pub retries: Counter,
    /// Rows of older generations that were removed.
    pub swept: Counter,
    pub commits: Counter,
    /// Seconds inside plugins.
    pub plugin_seconds: Counter<f64, AtomicU64>,
    /// Seconds inside the sink, requests and transactions.
    pub sink_seconds: Counter<f64, AtomicU64>,
    lane: LaneLabels,
    families: Families,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct LaneLabels {
    pub route: String,
    pub sink: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartitionLabels {
    route: String,
    sink: String,
    topic: String,
    partition: i32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    route: String,
    sink: String,
    kind: ErrorKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabels {
    route: String,
    sink: String,
    plugin: String,
    name: String,
}

/// What went wrong, as a bounded label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    Key,
    PluginReject,
    PluginTrap,
    PluginTimeout,
    PluginMemory,
    PluginVerdict,
    PluginOther,
    SinkTransient,
    SinkPermanent,
    Source,
    Commit,
    DeadLetter,
}

impl EncodeLabelValue for ErrorKind {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        std::fmt::Write::write_str(
            encoder,
            match self {
                Self::Key => "key",
                Self::PluginReject => "plugin_reject",
                Self::PluginTrap => "plugin_trap",
                Self::PluginTimeout => "plugin_timeout",
                Self::PluginMemory => "plugin_memory",
                Self::PluginVerdict => "plugin_verdict",
                Self::PluginOther => "plugin_other",
                Self::SinkTransient => "sink_transient",
                Self::SinkPermanent => "sink_permanent",
                Self::Source => "source",
                Self::Commit => "commit",
                Self::DeadLetter => "dead_letter",
            },
        )
    }
}

#[derive(Clone, Debug, Default)]
struct Families {
    records_in: Family<LaneLabels, Counter>,
    bytes_in: Family<LaneLabels, Counter>,
    records_out: Family<LaneLabels, Counter>,
    bytes_out: Family<LaneLabels, Counter>,
    kept: Family<LaneLabels, Counter>,
    changed: Family<LaneLabels, Counter>,
    dropped: Family<LaneLabels, Counter>,
    rejected: Family<LaneLabels, Counter>,
    dead_letters: Family<LaneLabels, Counter>,
    stale: Family<LaneLabels, Counter>,
    coalesced: Family<LaneLabels, Counter>,
    tombstones_ignored: Family<LaneLabels, Counter>,
    retries: Family<LaneLabels, Counter>,
    swept: Family<LaneLabels, Counter>,
    unverified: Family<LaneLabels, Gauge>,
    commits: Family<LaneLabels, Counter>,
    plugin_seconds: Family<LaneLabels, Counter<f64, AtomicU64>>,
    sink_seconds: Family<LaneLabels, Counter<f64, AtomicU64>>,
    in_hand_bytes: Family<LaneLabels, Gauge>,
    live: Family<LaneLabels, Gauge>,
    halted: Family<LaneLabels, Gauge>,
    waiting: Family<LaneLabels, Gauge>,
    stalled: Family<LaneLabels, Gauge>,
    snapshot_passed: Family<LaneLabels, Gauge>,
    snapshot_total: Family<LaneLabels, Gauge>,
    lag: Family<PartitionLabels, Gauge>,
    committed: Family<PartitionLabels, Gauge>,
    errors: Family<ErrorLabels, Counter>,
    plugin_counts: Family<PluginLabels, Counter>,
    memory_budget: Gauge,
    memory_resident: Gauge,
}

impl Metrics {
    pub fn new() -> Self {
        let f = Families::default();
        let mut r = Registry::with_prefix("tidegate");
        // Counters get the suffix `_total` when they are encoded.
        r.register("records_in", "Records received from the source", f.records_in.clone());
        r.register("bytes_in", "Bytes of keys, values and headers received", f.bytes_in.clone());
        r.register("records_out", "Rows that the sink has finished", f.records_out.clone());
        r.register("bytes_out", "Bytes of keys and values that the sink has finished", f.bytes_out.clone());
        r.register("records_kept", "Records that left the chain as they came", f.kept.clone());
        r.register("records_changed", "Rows that a plugin changed or made", f.changed.clone());
        r.register("records_dropped", "Records that a plugin or the key policy dropped", f.dropped.clone());
        r.register(
            "records_rejected",
            "Records that the key policy, a plugin or the sink rejected",
            f.rejected.clone(),
        );
        r.register("dead_letters", "Records kept as dead letters", f.dead_letters.clone());
        r.register("stale", "Rejected newer versions that left an older row in place", f.stale.clone());
        r.register("coalesced", "Writes saved since a later row had the same key", f.coalesced.clone());
        r.register("tombstones_ignored", "Tombstones that the sink was told not to send", f.tombstones_ignored.clone());
        r.register("retries", "Attempts at the sink after the first", f.retries.clone());
        r.register(
            "swept_rows",
            "Rows removed since a new pass over the snapshot did not find their keys",
            f.swept.clone(),
        );
        r.register(
            "unverified_partitions",
            "Partitions of which the sink may hold keys whose delete was missed",
            f.unverified.clone(),
        );
        r.register("commits", "Offset commits asked for", f.commits.clone());
        r.register("plugin_seconds", "Seconds inside plugins", f.plugin_seconds.clone());
        r.register("sink_seconds", "Seconds inside the sink", f.sink_seconds.clone());
        r.register("in_hand_bytes", "Bytes of records between source and acknowledgement", f.in_hand_bytes.clone());
        r.register("lane_live", "1 when the lane has delivered its snapshot", f.live.clone());
        r.register("lane_halted", "1 when the lane has halted", f.halted.clone());
        r.register(
            "lane_waiting",
            "1 while the lane waits for something outside, such as its broker or its sink",
            f.waiting.clone(),
        );
        r.register(
            "lane_stalled_seconds",
            "Seconds in which the lane finished nothing although there is work",
            f.stalled.clone(),
        );
        r.register("snapshot_passed_offsets", "Offsets of the snapshot that are passed", f.snapshot_passed.clone());
        r.register("snapshot_offsets", "Offsets of the snapshot in all", f.snapshot_total.clone());
        r.register("lag_records", "Offsets between the end of the partition and what is finished", f.lag.clone());
        r.register("finished_offset", "The offset below which everything is finished", f.committed.clone());
        r.register("errors", "Errors by kind", f.errors.clone());
        r.register("plugin_count", "What plugins count themselves", f.plugin_counts.clone());
        r.register("memory_budget_bytes", "The configured memory budget", f.memory_budget.clone());
        r.register("memory_resident_bytes", "Resident memory of the process", f.memory_resident.clone());
        Self { registry: Arc::new(r), families: f }
    }

    pub fn lane(&self, route: &str, sink: &str) -> LaneMetrics {
        let lane = LaneLabels { route: route.to_owned(), sink: sink.to_owned() };
        let f = &self.families;
        LaneMetrics {
            records_in: f.records_in.get_or_create_owned(&lane),
            bytes_in: f.bytes_in.get_or_create_owned(&lane),
            records_out: f.records_out.get_or_create_owned(&lane),
            bytes_out: f.bytes_out.get_or_create_owned(&lane),
            kept: f.kept.get_or_create_owned(&lane),
            changed: f.changed.get_or_create_owned(&lane),
            dropped: f.dropped.get_or_create_owned(&lane),
            rejected: f.rejected.get_or_create_owned(&lane),
            dead_letters: f.dead_letters.get_or_create_owned(&lane),
            stale: f.stale.get_or_create_owned(&lane),
            coalesced: f.coalesced.get_or_create_owned(&lane),
            tombstones_ignored: f.tombstones_ignored.get_or_create_owned(&lane),
            retries: f.retries.get_or_create_owned(&lane),
            swept: f.swept.get_or_create_owned(&lane),
            commits: f.commits.get_or_create_owned(&lane),
            plugin_seconds: f.plugin_seconds.get_or_create_owned(&lane),
            sink_seconds: f.sink_seconds.get_or_create_owned(&lane),
            lane,
            families: f.clone(),
        }
    }

    /// Sets every gauge that is read off the gateway's status, and forgets those of partitions that are not ours any more:
    /// their lag is somebody else's. Not for two callers at once.
    pub fn refresh(&self, status: &Status) {
        let f = &self.families;
        self.set_memory(status.memory.budget, status.memory.resident);
        f.lag.clear();
        f.committed.clear();
        for route in &status.routes {
            for lane in &route.lanes {
                self.refresh_lane(&route.name, lane);
            }
        }
    }

    fn refresh_lane(&self, route: &str, lane: &LaneStatus) {
        let f = &self.families;
        let labels = LaneLabels { route: route.to_owned(), sink: lane.sink.clone() };
        let (passed, total) = lane.snapshot_progress();
        for (family, value) in [
            (&f.live, i64::from(lane.state == LaneState::Live)),
            (&f.halted, i64::from(lane.state == LaneState::Halted)),
            (&f.waiting, i64::from(lane.waiting.is_some())),
            (&f.stalled, lane.stalled_seconds as i64),
            (&f.unverified, lane.partitions.iter().filter(|p| p.unverified.is_some()).count() as i64),
            (&f.snapshot_passed, passed),
            (&f.snapshot_total, total),
            (&f.in_hand_bytes, lane.in_hand_bytes as i64),
        ] {
            family.get_or_create(&labels).set(value);
        }
        for p in &lane.partitions {
            let labels = PartitionLabels {
                route: route.to_owned(),
                sink: lane.sink.clone(),
                topic: p.topic.clone(),
                partition: p.partition,
            };
            for (family, value) in [(&f.lag, p.lag), (&f.committed, p.finished)] {
                if let Some(value) = value {
                    family.get_or_create(&labels).set(value);
                }
            }
        }
    }

    fn set_memory(&self, budget: u64, resident: u64) {
        self.families.memory_budget.set(budget as i64);
        self.families.memory_resident.set(resident as i64);
    }

    /// The exposition in OpenMetrics text.
    ///
    /// # Errors
    /// Never in practice: writing to a string does not fail.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl LaneMetrics {
    pub fn error(&self, kind: ErrorKind) {
        let LaneLabels { route, sink } = self.lane.clone();
        self.families.errors.get_or_create(&ErrorLabels { route, sink, kind }).inc();
    }

    /// The caller bounds the number of names per plugin.
    pub fn plugin_count(&self, plugin: &str, name: &str, by: u64) {
        let LaneLabels { route, sink } = self.lane.clone();
        let labels = PluginLabels { route, sink, plugin: plugin.to_owned(), name: name.to_owned() };
        self.families.plugin_counts.get_or_create(&labels).inc_by(by);
    }
}

/// Adds seconds to a counter of seconds.
pub fn add_seconds(counter: &Counter<f64, AtomicU64>, since: std::time::Instant) {
    counter.inc_by(since.elapsed().as_secs_f64());
}

#[cfg(test)]
mod tests;
