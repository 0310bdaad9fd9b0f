//! Whether the group means to leave this member without a partition: a pure value.
//!
//! A member that joins is told first that it has nothing, also where it gets its share a moment later, when the others have
//! given it away. So only a while of nothing says that there are more members than partitions.

use std::time::{Duration, Instant};

/// What a hand-over takes beside the others' drain: two heartbeats by which they hear of it, and their joining again.
const HAND_OVER: Duration = Duration::from_secs(7);

#[derive(Debug)]
pub struct Standby {
    after: Duration,
    since: Option<Instant>,
    told: bool,
}

impl Standby {
    /// `drain_timeout` is how long another member may take to give a partition away.
    pub fn new(drain_timeout: Duration) -> Self {
        Self { after: drain_timeout + HAND_OVER, since: None, told: false }
    }

    /// Partitions are ours.
    pub fn given(&mut self) {
        (self.since, self.told) = (None, false);
    }

    /// Takes in what the group says now; returns `true` once, when it is time to tell.
    pub fn heard(&mut self, without_share: bool, now: Instant) -> bool {
        if !without_share {
            self.given();
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let due = now.duration_since(since) >= self.after && !self.told;
        self.told |= due;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_while_of_nothing_is_told_once_until_a_share_comes() {
        let (start, moment) = (Instant::now(), Duration::from_secs(1));
        let mut standby = Standby::new(Duration::from_secs(30));
        let after = Duration::from_secs(30) + HAND_OVER;
        assert!(!standby.heard(true, start));
        assert!(!standby.heard(true, start + after - moment));
        assert!(standby.heard(true, start + after));
        assert!(!standby.heard(true, start + after * 2));
        assert!(!standby.heard(false, start + after * 3));
        assert!(!standby.heard(true, start + after * 4));
        assert!(standby.heard(true, start + after * 5));
        standby.given();
        assert!(!standby.heard(true, start + after * 6), "what came and went between two looks counts");
        assert!(standby.heard(true, start + after * 7));
    }
}
