//! "No progress while there is work": what no single look at a lane can tell. A sink that hangs, or a plugin that never
//! comes back, leaves every other number looking healthy.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use crate::gateway::status::{LaneState, LaneStatus, Status};

/// When each lane was last seen to get on.
#[derive(Debug, Default)]
pub struct Stalls(HashMap<(String, String), Seen>);

#[derive(Debug)]
struct Seen {
    positions: u64,
    at: Instant,
}

impl Stalls {
    /// Fills in `stalled_seconds` of each lane. What is remembered is bounded by the lanes in `status`.
    pub fn observe(&mut self, status: &mut Status, now: Instant) {
        let mut next = HashMap::with_capacity(self.0.len());
        for route in &mut status.routes {
            for lane in &mut route.lanes {
                let key = (route.name.clone(), lane.sink.clone());
                let positions = positions(lane);
                let at =
                    self.0.get(&key).filter(|seen| has_work(lane) && seen.positions == positions).map_or(now, |s| s.at);
                lane.stalled_seconds = now.saturating_duration_since(at).as_secs();
                next.insert(key, Seen { positions, at });
            }
        }
        self.0 = next;
    }
}

/// A halted lane is not stalled: it says itself why it stands.
fn has_work(lane: &LaneStatus) -> bool {
    !matches!(lane.state, LaneState::Halted | LaneState::Stopped) && lane.lag().is_some_and(|lag| lag > 0)
}

/// Changes when any partition's checkpoint moves, or when partitions come and go.
fn positions(lane: &LaneStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    for p in &lane.partitions {
        (&p.topic, p.partition, p.finished).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::gateway::status::samples;

    #[test]
    fn a_lane_stalls_only_while_it_has_work_and_finishes_nothing() {
        let start = Instant::now();
        let mut stalls = Stalls::default();
        let mut at = |second: u64, finished: i64, end: i64, state: LaneState| {
            let mut status = samples::status(vec![samples::lane("a", state, finished, end)]);
            stalls.observe(&mut status, start + Duration::from_secs(second));
            status.routes[0].lanes[0].stalled_seconds
        };
        assert_eq!(at(0, 10, 20, LaneState::Live), 0);
        assert_eq!(at(5, 10, 20, LaneState::Live), 5);
        assert_eq!(at(9, 10, 30, LaneState::Live), 9, "more work is no progress");
        assert_eq!(at(10, 11, 30, LaneState::Live), 0, "it got on");
        assert_eq!(at(12, 11, 30, LaneState::Live), 2);
        assert_eq!(at(13, 11, 11, LaneState::Live), 0, "nothing to do");
        assert_eq!(at(99, 11, 12, LaneState::Live), 86, "judged from the last look that had nothing to do");
        assert_eq!(at(100, 11, 12, LaneState::Halted), 0);
    }
}
