//! Whether the group means to leave this member without a partition: a pure value.
//!
//! A member that joins is told first that it has nothing, also where it gets its share a moment later, when the others have
//! given it away. So only a while of nothing says that there are more members than partitions.

use std::time::{Duration, Instant};

/// Longer than a hand-over takes, which is a heartbeat, the others' drain, and their joining again.
const SHOWN_AFTER: Duration = Duration::from_secs(12);

#[derive(Debug, Default)]
pub struct Standby {
    since: Option<Instant>,
    told: bool,
}

impl Standby {
    /// Takes in what the group says now; returns `true` once, when it is time to tell.
    pub fn heard(&mut self, without_share: bool, now: Instant) -> bool {
        if !without_share {
            *self = Self::default();
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let due = now.duration_since(since) >= SHOWN_AFTER && !self.told;
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
        let mut standby = Standby::default();
        assert!(!standby.heard(true, start));
        assert!(!standby.heard(true, start + SHOWN_AFTER - moment));
        assert!(standby.heard(true, start + SHOWN_AFTER));
        assert!(!standby.heard(true, start + SHOWN_AFTER * 2));
        assert!(!standby.heard(false, start + SHOWN_AFTER * 3));
        assert!(!standby.heard(true, start + SHOWN_AFTER * 4));
        assert!(standby.heard(true, start + SHOWN_AFTER * 5));
    }
}
