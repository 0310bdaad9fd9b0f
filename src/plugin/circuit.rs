//! When failing records become too many.
//!
//! Some bad records are life: each goes to its policy and the lane goes on at full speed. A plugin that fails on most of
//! what it is given, or that burns its deadline again and again, is something else: nobody wants ten million dead letters
//! or a machine that does nothing but time out. Then the circuit opens: the lane waits, shows why, and tries again.
//!
//! An open circuit slows a lane and never stops it for good, since what is broken may be the data: at the longest
//! backoff a lane still gets through [`MAX_GUILTY`] bad records per [`MAX_BACKOFF`]. Stopping is what `on_error: halt` is
//! for.
//!
//! | in one window of [`WINDOW`]                                             | circuit |
//! |-------------------------------------------------------------------------|---------|
//! | fewer than [`MAX_GUILTY`] guilty records, less than [`MAX_WASTE`] wasted | closed  |
//! | [`MAX_GUILTY`] guilty records, but at least as many good ones            | closed  |
//! | [`MAX_GUILTY`] guilty records and fewer good ones                        | opens   |
//! | [`MAX_WASTE`] spent in calls that failed                                 | opens   |

use std::time::{Duration, Instant};

pub const WINDOW: Duration = Duration::from_secs(10);

/// A batch or so: enough to see that it is no accident.
pub const MAX_GUILTY: u64 = 1_000;

/// Half of the window: a lane may spend half of a worker on failures before it waits.
pub const MAX_WASTE: Duration = Duration::from_secs(5);

/// The wait after the first opening; doubled at each further one.
pub const MIN_BACKOFF: Duration = Duration::from_millis(250);

/// The longest wait: short enough that 10,000 bad records in a row are through within a minute, and that a plugin that was
/// repaired works again at once.
pub const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// The failures of one plugin in one runner. Pure: time is given.
#[derive(Clone, Debug, Default)]
pub struct Circuit {
    started: Option<Instant>,
    good: u64,
    guilty: u64,
    wasted: Duration,
    /// Openings without a quiet window between them.
    openings: u32,
}

/// Why the circuit opened, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// What the plugin did.
    pub reason: String,
    pub backoff: Duration,
}

impl Circuit {
    /// Counts records that went through.
    pub fn good(&mut self, now: Instant, records: usize) {
        self.turn(now);
        self.good = self.good.saturating_add(records as u64);
    }

    /// Counts a record that is guilty.
    pub fn guilty(&mut self, now: Instant) {
        self.turn(now);
        self.guilty += 1;
    }

    /// Counts the time of a call that failed.
    pub fn wasted(&mut self, now: Instant, time: Duration) {
        self.turn(now);
        self.wasted = self.wasted.saturating_add(time);
    }

    /// Opens the circuit when it is time to. The next window starts with the next event.
    pub fn open(&mut self, now: Instant) -> Option<Opening> {
        self.turn(now);
        let reason = if self.guilty >= MAX_GUILTY && self.guilty > self.good {
            format!("failed on `{}` of `{}` records", self.guilty, self.guilty + self.good)
        } else if self.wasted >= MAX_WASTE {
            format!("spent `{:.1?}` in calls that failed", self.wasted)
        } else {
            return None;
        };
        let backoff = MIN_BACKOFF.saturating_mul(1 << self.openings.min(16)).min(MAX_BACKOFF);
        *self = Self { openings: self.openings.saturating_add(1), ..Self::default() };
        Some(Opening { reason, backoff })
    }

    /// Begins a new window when the last one is over. One that ended without an opening forgets earlier ones.
    fn turn(&mut self, now: Instant) {
        match self.started {
            None => self.started = Some(now),
            Some(started) if now.saturating_duration_since(started) >= WINDOW => {
                *self = Self { started: Some(now), ..Self::default() };
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fail(circuit: &mut Circuit, now: Instant, records: u64) -> Option<Opening> {
        (0..records).for_each(|_| circuit.guilty(now));
        circuit.open(now)
    }

    #[test]
    fn some_bad_records_are_life() {
        let now = Instant::now();
        let mut circuit = Circuit::default();
        assert_eq!(fail(&mut circuit, now, MAX_GUILTY - 1), None);
        circuit.good(now, 5_000);
        assert_eq!(fail(&mut circuit, now, 4_000), None);
    }

    #[test]
    fn mostly_bad_records_open_it_and_each_time_for_longer() {
        let mut now = Instant::now();
        let mut circuit = Circuit::default();
        let mut backoffs = Vec::new();
        for _ in 0..10 {
            let opening = fail(&mut circuit, now, MAX_GUILTY).expect("mostly bad");
            assert_eq!(opening.reason, "failed on `1000` of `1000` records");
            now += opening.backoff;
            backoffs.push(opening.backoff);
        }
        assert_eq!(backoffs[..3], [MIN_BACKOFF, MIN_BACKOFF * 2, MIN_BACKOFF * 4]);
        assert_eq!(backoffs[9], MAX_BACKOFF);
        assert!(backoffs.iter().sum::<Duration>() < Duration::from_secs(60), "10,000 in a row pass within a minute");
    }

    #[test]
    fn a_quiet_window_forgets() {
        let now = Instant::now();
        let mut circuit = Circuit::default();
        fail(&mut circuit, now, MAX_GUILTY).expect("opens");
        circuit.good(now, 1);
        let later = now + WINDOW;
        assert_eq!(fail(&mut circuit, later, MAX_GUILTY).expect("opens again").backoff, MIN_BACKOFF);
    }

    #[test]
    fn time_burnt_opens_it_whatever_the_share() {
        let now = Instant::now();
        let mut circuit = Circuit::default();
        circuit.good(now, 1_000_000);
        circuit.wasted(now, MAX_WASTE - Duration::from_millis(1));
        assert_eq!(circuit.open(now), None);
        circuit.wasted(now, Duration::from_millis(1));
        assert_eq!(circuit.open(now).expect("burnt").reason, "spent `5.0s` in calls that failed");
    }

    proptest! {
        /// Whatever happens, a wait is between the two bounds, and an opening follows from this window's events alone.
        #[test]
        fn waits_are_bounded(events in proptest::collection::vec((0_u8..3, 0_u64..2_000, 0_u64..4_000), 1..60)) {
            let mut now = Instant::now();
            let mut circuit = Circuit::default();
            for (kind, amount, gap) in events {
                now += Duration::from_millis(gap);
                match kind {
                    0 => circuit.good(now, amount as usize),
                    1 => (0..amount).for_each(|_| circuit.guilty(now)),
                    _ => circuit.wasted(now, Duration::from_millis(amount)),
                }
                if let Some(opening) = circuit.open(now) {
                    prop_assert!((MIN_BACKOFF..=MAX_BACKOFF).contains(&opening.backoff));
                    prop_assert!(kind > 0 , "good records do not open it");
                    prop_assert_eq!(circuit.open(now), None, "an opening starts afresh");
                }
            }
        }
    }
}
