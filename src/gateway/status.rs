//! What a gateway tells of itself: the body of `GET /api/v1/routes`, what `tidegate status` prints, and what the demo draws.

use serde::{Deserialize, Serialize};

use crate::record;
use crate::sink::Halt;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    pub version: String,
    pub uptime_seconds: u64,
    pub memory: Memory,
    pub routes: Vec<RouteStatus>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Memory {
    /// The configured budget, bytes.
    pub budget: u64,
    /// Resident memory of the process, bytes.
    pub resident: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouteStatus {
    pub name: String,
    /// Whether its lanes count for readiness.
    pub readiness: bool,
    /// `name version`, in the order of the chain.
    pub plugins: Vec<String>,
    pub lanes: Vec<LaneStatus>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaneStatus {
    pub sink: String,
    /// `sqlite`, `http`, …
    pub kind: String,
    pub state: LaneState,
    /// What the lane waits for, in words: an unreachable broker, a missing topic, a sink that refuses, a plugin's circuit.
    pub waiting: Option<String>,
    pub halt: Option<Halt>,
    /// Warnings that stay true, such as a topic that is not compacted.
    pub warnings: Vec<String>,
    /// Those that are assigned to it.
    pub partitions: Vec<PartitionStatus>,
    /// How many the topics have; `None` = not known yet.
    #[serde(default)]
    pub topic_partitions: Option<usize>,
    pub counts: Counts,
    pub in_hand_bytes: u64,
    /// The lane's dead letters.
    pub dead_letter_path: String,
    /// For how long nothing was finished although there is work. Only whoever looks again and again can tell: the admin
    /// server fills it in.
    #[serde(default)]
    pub stalled_seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneState {
    /// What is assigned is not known yet, or a snapshot's end is not. A lane that got its assignment and has no partition
    /// (there are more instances than partitions) has nothing to deliver and is live.
    Starting,
    /// The snapshot is not wholly delivered.
    Bootstrapping,
    /// The snapshot was delivered once. A lane stays live, whatever its lag.
    Live,
    Halted,
    Stopped,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub records_in: u64,
    pub records_out: u64,
    pub dropped: u64,
    pub rejected: u64,
    pub dead_letters: u64,
    pub retries: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionStatus {
    pub topic: String,
    pub partition: i32,
    /// Where reading began, when it is known.
    pub start: Option<i64>,
    /// The end of the snapshot, taken when the lane got the partition.
    pub target: Option<i64>,
    /// Everything below is finished.
    pub finished: Option<i64>,
    /// One past the last visible offset, as last heard.
    pub end: Option<i64>,
    /// `end - finished`, never negative. Compaction's holes count as work until they are passed.
    pub lag: Option<i64>,
    pub live: bool,
    /// Why the sink may hold keys whose delete was missed. `None` = it does not, or it keeps nothing that would tell.
    #[serde(default)]
    pub unverified: Option<String>,
}

impl LaneStatus {
    /// Offsets passed and offsets in all, of the snapshot, over the partitions whose target is known.
    pub fn snapshot_progress(&self) -> (i64, i64) {
        self.partitions.iter().fold((0, 0), |(done, all), p| {
            let (Some(start), Some(target)) = (p.start, p.target) else { return (done, all) };
            let size = (target - start).max(0);
            let passed = (p.finished.unwrap_or(start) - start).clamp(0, size);
            (done + passed, all + size)
        })
    }

    /// The lag over all partitions; `None` = not known of any.
    pub fn lag(&self) -> Option<i64> {
        self.partitions.iter().filter_map(|p| p.lag).fold(None, |sum, lag| Some(sum.unwrap_or(0) + lag))
    }
}

impl LaneStatus {
    /// Of which partitions the sink may hold keys whose delete was missed, and why, in words.
    pub fn unverified(&self) -> Option<String> {
        let first = self.partitions.iter().find_map(|p| p.unverified.as_deref())?;
        let all = self.partitions.iter().filter(|p| p.unverified.is_some()).map(|p| (&*p.topic, p.partition));
        Some(format!("{} may hold keys that are deleted: {first}", record::ranges(all)))
    }

    /// Whether other instances have a part of its topics.
    fn is_shared(&self) -> bool {
        self.kind == "http"
    }

    /// Of a lane that has some of the topics' partitions and not all: in words, which.
    pub fn share(&self) -> Option<String> {
        let (has, all) = (self.partitions.len(), self.topic_partitions?);
        if !self.is_shared() || has == 0 || has >= all {
            return None;
        }
        let which = record::ranges(self.partitions.iter().map(|p| (&*p.topic, p.partition)));
        Some(format!("{has} of {all} partitions, {which}; what is said of it is said of these"))
    }

    pub fn snapshot(&self) -> Snapshot {
        let (passed, total) = self.snapshot_progress();
        let delivered = !self.partitions.is_empty() && self.partitions.iter().all(|partition| partition.live);
        match total {
            _ if delivered || self.state == LaneState::Live => Snapshot::Delivered,
            0 => Snapshot::Unknown,
            _ => Snapshot::Percent((passed * 100 / total).clamp(0, 99) as u8),
        }
    }

    /// What the lane waits for, in words; for one that starts, what it does not know yet.
    pub fn waits_for(&self) -> Option<String> {
        match self.state {
            LaneState::Stopped => return None,
            LaneState::Starting if self.waiting.is_none() => {}
            LaneState::Live if self.waiting.is_none() && self.partitions.is_empty() => {
                return Some("stands by: other instances have all partitions".to_owned());
            }
            _ => return self.waiting.clone(),
        }
        let unknown = self.partitions.iter().filter(|p| p.target.is_none()).map(|p| (&*p.topic, p.partition));
        let unknown = record::ranges(unknown);
        Some(match self.partitions.len() {
            0 if self.is_shared() => {
                "no partitions are assigned to it yet; those of an instance that died are given to \
                                      another when its session has timed out (`session.timeout.ms`)"
                    .to_owned()
            }
            0 => "no partitions are assigned to it yet".to_owned(),
            _ => format!("the snapshot's end is not known yet of {unknown}"),
        })
    }
}

/// How much of a lane's snapshot is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Snapshot {
    /// It is not known how large it is.
    Unknown,
    /// Rounded down, and 99 at most: what is known of may be passed while more is to come.
    Percent(u8),
    Delivered,
}

/// Statuses for the tests of everyone who shows one.
#[cfg(test)]
pub mod samples {
    use super::*;

    /// One route, `profiles`.
    pub fn status(lanes: Vec<LaneStatus>) -> Status {
        Status {
            version: "1.2.3".to_owned(),
            uptime_seconds: 75,
            memory: Memory { budget: 256 << 20, resident: 84 << 20 },
            routes: vec![RouteStatus {
                name: "profiles".to_owned(),
                readiness: true,
                plugins: vec!["std/mask-fields 1.0.0".to_owned()],
                lanes,
            }],
        }
    }

    pub fn halt() -> Halt {
        Halt {
            topic: Some("user-profiles".to_owned()),
            partition: Some(0),
            offset: Some(5),
            stage: "sink".to_owned(),
            reason: "the disk is full".to_owned(),
            skippable: false,
        }
    }

    /// One partition, read from 0, with a snapshot of 20 offsets.
    pub fn lane(sink: &str, state: LaneState, finished: i64, end: i64) -> LaneStatus {
        LaneStatus {
            sink: sink.to_owned(),
            kind: "sqlite".to_owned(),
            state,
            waiting: None,
            halt: None,
            warnings: vec![],
            partitions: vec![PartitionStatus {
                topic: "user-profiles".to_owned(),
                partition: 0,
                start: Some(0),
                target: Some(20),
                finished: Some(finished),
                end: Some(end),
                lag: Some(end - finished),
                live: finished >= 20,
                unverified: None,
            }],
            topic_partitions: Some(1),
            counts: Counts::default(),
            in_hand_bytes: 0,
            dead_letter_path: format!("dead/profiles.{sink}.ndjson"),
            stalled_seconds: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_snapshot_that_is_delivered_is_shown_so() {
        let snapshot = |state, finished| samples::lane("a", state, finished, 30).snapshot();
        assert_eq!(snapshot(LaneState::Bootstrapping, 7), Snapshot::Percent(35));
        assert_eq!(snapshot(LaneState::Halted, 7), Snapshot::Percent(35));
        assert_eq!(snapshot(LaneState::Halted, 20), Snapshot::Delivered, "it halted later");
        assert_eq!(snapshot(LaneState::Live, 7), Snapshot::Delivered, "it was live once");
        let mut lane = samples::lane("a", LaneState::Halted, 20, 30);
        lane.partitions.push(PartitionStatus { partition: 1, target: None, live: false, ..lane.partitions[0].clone() });
        assert_eq!(lane.snapshot(), Snapshot::Percent(99), "a partition of unknown size is missing");
        lane.partitions.clear();
        assert_eq!(lane.snapshot(), Snapshot::Unknown, "it halted before it knew");
    }

    #[test]
    fn a_lane_says_of_which_partitions_it_speaks() {
        let mut lane = samples::lane("crm", LaneState::Live, 20, 20);
        lane.topic_partitions = Some(3);
        assert_eq!(lane.share(), None, "a local lane has them all, or will");
        lane.kind = "http".to_owned();
        let share = "1 of 3 partitions, user-profiles[0]; what is said of it is said of these";
        assert_eq!(lane.share().as_deref(), Some(share));
        lane.topic_partitions = Some(1);
        assert_eq!(lane.share(), None);
    }

    #[test]
    fn a_lane_that_starts_says_what_it_does_not_know() {
        let mut lane = samples::lane("a", LaneState::Starting, 0, 20);
        lane.partitions[0].target = None;
        for partition in [1, 2] {
            lane.partitions.push(PartitionStatus { partition, ..lane.partitions[0].clone() });
        }
        let end = "the snapshot's end is not known yet of user-profiles[0-2]";
        assert_eq!(lane.waits_for().as_deref(), Some(end));
        lane.partitions.clear();
        assert_eq!(lane.waits_for().as_deref(), Some("no partitions are assigned to it yet"));
        lane.waiting = Some("no broker answers".to_owned());
        assert_eq!(lane.waits_for(), lane.waiting);
        lane.state = LaneState::Stopped;
        assert_eq!(lane.waits_for(), None, "it waits no longer");
        lane.waiting = None;
        lane.state = LaneState::Live;
        assert_eq!(lane.waits_for().as_deref(), Some("stands by: other instances have all partitions"));
        lane.partitions = samples::lane("a", LaneState::Live, 20, 20).partitions;
        assert_eq!(lane.waits_for(), None);
    }
}
