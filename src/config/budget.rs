//! How `memory` is shared out.
//!
//! What is configured in bytes comes first: plugin instances at their limits, and the caches of sinks. The rest is divided
//! evenly among the lanes, each of which needs a minimum to make progress at all.

use super::checked::Budget;
use super::units::format_size;

const MIB: u64 = 1 << 20;

/// librdkafka's fetch queue of one lane. Measured: beyond 16 MiB it is slower and heavier, and one message of the usual
/// largest size must fit.
pub const FETCH_QUEUE_MIN: u64 = MIB;
pub const FETCH_QUEUE_MAX: u64 = 16 * MIB;
/// Records of one lane from the source's queue to the sink's acknowledgement. More than the most is only later to be
/// shared out, and holds what a slow sink cannot take anyway.
pub const IN_HAND_MIN: u64 = MIB;
pub const IN_HAND_MAX: u64 = 64 * MIB;
/// The part of a lane's share that goes to its fetch queue: one in this many.
const FETCH_QUEUE_PART: u64 = 4;

/// What one route needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    pub route: String,
    pub lanes: u64,
    pub workers: u64,
    /// Of one chain of instances at their limits: memory and output.
    pub chain: u64,
    /// The cache of each sink that has one, by the sink's name.
    pub caches: Vec<(String, u64)>,
}

/// Why `memory` is too small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Everything that is needed, each with its bytes.
    pub lines: Vec<(String, u64)>,
    /// The smallest `memory` that would do, in whole MiB.
    pub least: u64,
    /// Settings that would need less.
    pub savings: Vec<String>,
}

impl Needs {
    fn guests(&self) -> u64 {
        self.lanes.saturating_mul(self.workers).saturating_mul(self.chain)
    }

    fn caches(&self) -> u64 {
        self.caches.iter().fold(0, |sum, (_, cache)| sum.saturating_add(*cache))
    }
}

/// Shares `memory` out among `routes`.
///
/// # Errors
/// When it cannot hold what is configured.
pub fn share(memory: u64, routes: &[Needs]) -> Result<Budget, Shortage> {
    let sum = |of: fn(&Needs) -> u64| routes.iter().fold(0_u64, |sum, route| sum.saturating_add(of(route)));
    let (guests, sinks, lanes) = (sum(Needs::guests), sum(Needs::caches), sum(|route| route.lanes));
    let fixed = guests.saturating_add(sinks);
    let per_lane = FETCH_QUEUE_MIN + IN_HAND_MIN;
    let least = fixed.saturating_add(lanes.saturating_mul(per_lane));
    if memory < least {
        return Err(Shortage {
            lines: lines(routes, lanes, per_lane),
            least: round_up(least),
            savings: savings(routes),
        });
    }
    let share = (memory - fixed) / lanes.max(1);
    let fetch_queue = (share / FETCH_QUEUE_PART).clamp(FETCH_QUEUE_MIN, FETCH_QUEUE_MAX);
    let in_hand = (share - fetch_queue).min(IN_HAND_MAX);
    let count = |bytes: u64| usize::try_from(bytes).expect("at most 64 MiB");
    Ok(Budget { in_hand: count(in_hand), fetch_queue: count(fetch_queue), guests, sinks })
}

fn round_up(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(MIB).unwrap_or(bytes)
}

fn lines(routes: &[Needs], lanes: u64, per_lane: u64) -> Vec<(String, u64)> {
    let mut lines = Vec::new();
    for route in routes {
        if route.chain > 0 {
            let (lanes, workers) = (count(route.lanes, "sink"), count(route.workers, "worker"));
            let what = format!("plugins of `{}`: {lanes} × {workers} × {}", route.route, format_size(route.chain));
            lines.push((what, route.guests()));
        }
        for (sink, cache) in &route.caches {
            lines.push((format!("cache of `{}.{sink}`", route.route), *cache));
        }
    }
    let what = format!("queues and records in hand: {} × {}", count(lanes, "lane"), format_size(per_lane));
    lines.push((what, lanes.saturating_mul(per_lane)));
    lines
}

fn savings(routes: &[Needs]) -> Vec<String> {
    let mut savings = Vec::new();
    let fewer_workers = |route: &Needs| route.guests() - route.lanes.saturating_mul(route.chain).min(route.guests());
    if let Some(route) = routes.iter().max_by_key(|route| fewer_workers(route)).filter(|route| fewer_workers(route) > 0)
    {
        let saved = format_size(fewer_workers(route));
        savings.push(format!("`routes.{}.workers: 1` would need {saved} less", route.route));
    }
    if let Some(route) = routes.iter().max_by_key(|route| route.guests()).filter(|route| route.chain > 0) {
        let copies = route.lanes.saturating_mul(route.workers);
        savings.push(format!(
            "each MiB less in the `limits.memory` or `limits.output` of a plugin of `{}` needs {copies}MiB less",
            route.route
        ));
    }
    let caches = routes.iter().flat_map(|route| route.caches.iter().map(move |cache| (route, cache)));
    if let Some((route, (sink, _))) = caches.max_by_key(|(_, (_, cache))| *cache) {
        savings.push(format!("`routes.{}.sinks.{sink}.cache` can be smaller", route.route));
    }
    savings
}

fn count(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn route(lanes: u64, workers: u64, chain: u64, caches: &[u64]) -> Needs {
        let caches = caches.iter().enumerate().map(|(index, cache)| (format!("s{index}"), *cache)).collect();
        Needs { route: "r".to_owned(), lanes, workers, chain, caches }
    }

    #[test]
    fn one_lane_without_plugins_needs_little() {
        let budget = share(256 * MIB, &[route(1, 2, 0, &[])]).unwrap();
        assert_eq!(budget.fetch_queue as u64, FETCH_QUEUE_MAX);
        assert_eq!(budget.in_hand as u64, IN_HAND_MAX);
    }

    #[test]
    fn two_hundred_lanes_fit_into_the_default() {
        let budget = share(512 * MIB, &[route(200, 2, 0, &[])]).unwrap();
        assert!(budget.in_hand as u64 >= IN_HAND_MIN && budget.fetch_queue as u64 >= FETCH_QUEUE_MIN);
    }

    #[test]
    fn a_shortage_lists_what_is_needed() {
        let shortage = share(64 * MIB, &[route(3, 2, 24 * MIB, &[16 * MIB])]).unwrap_err();
        assert_eq!(
            shortage.lines,
            [
                ("plugins of `r`: 3 sinks × 2 workers × 24MiB".to_owned(), 144 * MIB),
                ("cache of `r.s0`".to_owned(), 16 * MIB),
                ("queues and records in hand: 3 lanes × 2MiB".to_owned(), 6 * MIB),
            ]
        );
        assert_eq!(shortage.least, 166 * MIB);
        assert_eq!(shortage.savings[0], "`routes.r.workers: 1` would need 72MiB less");
    }

    fn any_needs() -> impl Strategy<Value = Needs> {
        (1..50_u64, 1..65_u64, 0..1_u64 << 33, proptest::collection::vec(0..1_u64 << 36, 0..4))
            .prop_map(|(lanes, workers, chain, caches)| route(lanes, workers, chain, &caches))
    }

    proptest! {
        #[test]
        fn what_is_shared_out_is_never_more_than_there_is(
            routes in proptest::collection::vec(any_needs(), 1..6),
            memory in 0..1_u64 << 50,
        ) {
            if let Ok(budget) = share(memory, &routes) {
                let lanes: u64 = routes.iter().map(|route| route.lanes).sum();
                let of_lanes = lanes * (budget.in_hand as u64 + budget.fetch_queue as u64);
                prop_assert!(budget.guests + budget.sinks + of_lanes <= memory);
                prop_assert!(budget.in_hand as u64 >= IN_HAND_MIN);
            }
        }

        #[test]
        fn the_smallest_memory_that_is_named_is_the_smallest(routes in proptest::collection::vec(any_needs(), 1..6)) {
            let shortage = share(0, &routes).unwrap_err();
            prop_assert!(share(shortage.least, &routes).is_ok());
            prop_assert!(share(shortage.least - MIB, &routes).is_err());
            prop_assert_eq!(round_up(shortage.lines.iter().map(|(_, bytes)| bytes).sum()), shortage.least);
        }
    }
}
