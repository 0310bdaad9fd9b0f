//! What a lane shows of itself, written by its threads and read by the admin server.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::assigned::Partitions;
use crate::gateway::status::{Counts, LaneState, LaneStatus, PartitionStatus};
use crate::log;
use crate::metrics::LaneMetrics;
use crate::sink::{Halt, UnderWay};

/// How often the partitions' figures are refreshed.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

pub struct Shown {
    name: LaneName,
    kind: &'static str,
    dead_letter_path: String,
    metrics: LaneMetrics,
    /// The write or request that the sink waits for.
    pub under_way: Arc<UnderWay>,
    inner: Mutex<Inner>,
}

#[derive(Clone, Debug)]
pub struct LaneName {
    pub route: String,
    pub sink: String,
}

impl fmt::Display for LaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.route, self.sink)
    }
}

struct Inner {
    state: LaneState,
    /// A lane that was live once stays ready.
    was_live: bool,
    source: Option<String>,
    plugin: Option<String>,
    sink: Option<String>,
    halt: Option<Halt>,
    warnings: Vec<String>,
    partitions: Vec<PartitionStatus>,
    topic_partitions: Option<usize>,
    in_hand: usize,
    refreshed: Option<Instant>,
    first_record: Option<Instant>,
}

impl Shown {
    pub fn new(name: LaneName, kind: &'static str, dead_letter_path: String, metrics: LaneMetrics) -> Self {
        let inner = Inner {
            state: LaneState::Starting,
            was_live: false,
            source: None,
            plugin: None,
            sink: None,
            halt: None,
            warnings: Vec::new(),
            partitions: Vec::new(),
            topic_partitions: None,
            in_hand: 0,
            refreshed: None,
            first_record: None,
        };
        Self { name, kind, dead_letter_path, metrics, under_way: Arc::default(), inner: Mutex::new(inner) }
    }

    pub fn name(&self) -> &LaneName {
        &self.name
    }

    pub fn dead_letter_path(&self) -> &str {
        &self.dead_letter_path
    }

    pub fn state(&self) -> LaneState {
        self.lock().state
    }

    pub fn topic_partitions(&self, all: usize) {
        self.lock().topic_partitions = Some(all);
    }

    pub fn source_waits(&self, why: Option<String>) {
        self.lock().source = why;
    }

    pub fn plugin_waits(&self, why: Option<String>) {
        self.lock().plugin = why;
    }

    pub fn sink_waits(&self, why: Option<String>) {
        self.lock().sink = why;
    }

    /// Adds a warning that stays; the same one is told once.
    pub fn warn(&self, warning: String) {
        let mut inner = self.lock();
        if !inner.warnings.contains(&warning) {
            tracing::warn!(lane = %self.name, warning, "warning");
            inner.warnings.push(warning);
        }
    }

    /// The first record came.
    pub fn begun(&self) {
        self.lock().first_record = Some(Instant::now());
    }

    pub fn halt(&self, halt: Halt) {
        let mut inner = self.lock();
        inner.state = LaneState::Halted;
        inner.halt = Some(halt);
    }

    /// It is opened anew.
    pub fn resume(&self) {
        let mut inner = self.lock();
        tracing::info!(lane = %self.name, "lane is resumed");
        inner.state = LaneState::Starting;
        (inner.halt, inner.source, inner.plugin, inner.sink) = (None, None, None, None);
        (inner.partitions, inner.in_hand, inner.refreshed) = (Vec::new(), 0, None);
    }

    pub fn stopped(&self) {
        self.lock().state = LaneState::Stopped;
    }

    /// Takes new figures, at most one time per interval unless the state changed.
    pub(super) fn refresh(&self, state: LaneState, partitions: &mut Partitions, in_hand: usize) {
        let now = Instant::now();
        let mut inner = self.lock();
        let state = if inner.was_live && state != LaneState::Halted { LaneState::Live } else { state };
        if state == inner.state && inner.refreshed.is_some_and(|at| now < at + REFRESH_INTERVAL) {
            return;
        }
        if state == LaneState::Live && !inner.was_live {
            inner.was_live = true;
            let seconds = inner.first_record.map_or(0.0, |first| log::seconds(first.elapsed()));
            let records = self.metrics.records_in.get();
            tracing::info!(lane = %self.name, records, seconds, "lane is live: its snapshot is delivered");
        }
        inner.state = state;
        inner.partitions = partitions.status();
        inner.in_hand = in_hand;
        inner.refreshed = Some(now);
    }

    pub fn status(&self) -> LaneStatus {
        // It is newer than what the sink said of an earlier failure.
        let silence = self.under_way.silence();
        let inner = self.lock();
        let waiting = [&inner.source, &silence, &inner.sink, &inner.plugin];
        LaneStatus {
            sink: self.name.sink.clone(),
            kind: self.kind.to_owned(),
            state: inner.state,
            waiting: waiting.into_iter().flatten().next().cloned(),
            halt: inner.halt.clone(),
            warnings: inner.warnings.clone(),
            partitions: inner.partitions.clone(),
            topic_partitions: inner.topic_partitions,
            counts: Counts {
                records_in: self.metrics.records_in.get(),
                records_out: self.metrics.records_out.get(),
                dropped: self.metrics.dropped.get(),
                rejected: self.metrics.rejected.get(),
                dead_letters: self.metrics.dead_letters.get(),
                retries: self.metrics.retries.get(),
            },
            in_hand_bytes: inner.in_hand as u64,
            dead_letter_path: self.dead_letter_path.clone(),
            stalled_seconds: 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
