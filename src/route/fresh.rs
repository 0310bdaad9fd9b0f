//! Of a lane whose sink has a ledger: where each partition begins, and whether its rows may hold a key whose delete was
//! missed. The rules are those of [`crate::freshness`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crossbeam_channel::Sender;

use crate::freshness::{self, Act, Clock, Freshness, Kept, Log, Reason, Start};
use crate::record::{NextOffset, TopicPartition};
use crate::sink::ledger::{Entry, Order};
use crate::source::PartitionLog;

pub struct Fresh {
    clock: Clock,
    orders: Sender<Order>,
    kept: BTreeMap<TopicPartition, Kept>,
    /// What was told last of the logs, until the assignment that it was told for.
    logs: BTreeMap<TopicPartition, Log>,
    states: BTreeMap<TopicPartition, Freshness>,
    /// The assignment that is answered once the sink has kept how it begins.
    begins: Option<Vec<(TopicPartition, Option<NextOffset>)>>,
    /// Moments that the sink is still to keep, and whether it is at it.
    moments: BTreeMap<TopicPartition, i64>,
    keeping: bool,
    /// Partitions to be swept, and whether the sink is at one.
    sweeps: VecDeque<TopicPartition>,
    sweeping: bool,
    told: BTreeMap<TopicPartition, Reason>,
    /// Partitions that an operator wants to be read anew, whatever is known of them.
    asked: BTreeSet<TopicPartition>,
}

/// What became known, in words for the log.
pub struct News {
    pub partition: TopicPartition,
    pub unverified: Option<Reason>,
}

impl Fresh {
    pub fn new((kept, orders): (BTreeMap<TopicPartition, Kept>, Sender<Order>)) -> Self {
        Self {
            clock: Clock::start(),
            orders,
            kept,
            logs: BTreeMap::new(),
            states: BTreeMap::new(),
            begins: None,
            moments: BTreeMap::new(),
            keeping: false,
            sweeps: VecDeque::new(),
            sweeping: false,
            told: BTreeMap::new(),
            asked: BTreeSet::new(),
        }
    }

    /// Takes what the broker says of the logs. Returns the partitions that began without a word of it, and so must begin
    /// again.
    pub fn logs(
        &mut self,
        logs: Vec<PartitionLog>,
        is_assigned: impl Fn(&TopicPartition) -> bool,
    ) -> Vec<TopicPartition> {
        let mut unknown = Vec::new();
        for PartitionLog { partition, topic_id, low, end, asked, retention } in logs {
            let log = Log { topic_id, low, end, at: self.clock.at(asked), retention };
            match self.states.get_mut(&partition) {
                Some(state) => state.captured(log.end, log.at),
                None if is_assigned(&partition) => unknown.push(partition),
                None => drop(self.logs.insert(partition, log)),
            }
        }
        unknown
    }

    /// Decides where partitions begin, and has the sink keep it: the assignment is answered at [`Entry::Begun`]. Those of
    /// which the broker said nothing go on where they were.
    pub fn begin(&mut self, partitions: Vec<TopicPartition>) -> Vec<(TopicPartition, Start)> {
        let (mut starts, mut begun, mut decided) = (Vec::new(), Vec::new(), Vec::new());
        for partition in partitions {
            let kept = self.kept.get(&partition);
            let Some(log) = self.logs.remove(&partition) else {
                starts.push((partition.clone(), kept.map(|kept| kept.next)));
                continue;
            };
            let start = match freshness::start(kept, &log, self.clock.now()) {
                Start::Resume if self.asked.contains(&partition) => Start::Rebuild(Reason::Asked),
                start => start,
            };
            self.asked.remove(&partition);
            let (kept, state) = Freshness::begin(kept, &log, start);
            starts.push((partition.clone(), Some(kept.next)));
            decided.push((partition.clone(), start));
            self.states.insert(partition.clone(), state);
            self.moments.remove(&partition);
            self.kept.insert(partition.clone(), kept.clone());
            begun.push((partition, kept));
        }
        self.forget_partitions_that_are_gone(&decided, &mut begun);
        self.begins = Some(starts);
        // Never full: there is one assignment at a time. A sink that is gone has told why.
        drop(self.orders.try_send(Order::Begin(begun)));
        decided
    }

    /// A topic that was made anew may have fewer partitions: the rows of the others go.
    fn forget_partitions_that_are_gone(
        &mut self,
        decided: &[(TopicPartition, Start)],
        begun: &mut Vec<(TopicPartition, Kept)>,
    ) {
        let is_new = |topic: &str| {
            decided.iter().any(|(p, start)| *p.topic == *topic && *start == Start::Rebuild(Reason::Recreated))
        };
        let topic_id =
            |topic: &str| begun.iter().find(|(p, _)| *p.topic == *topic).and_then(|(_, k)| k.topic_id.clone());
        let mut gone = Vec::new();
        for (partition, kept) in &mut self.kept {
            if !is_new(&partition.topic) || decided.iter().any(|(decided, _)| decided == partition) {
                continue;
            }
            *kept = Kept {
                next: NextOffset(0),
                topic_id: topic_id(&partition.topic),
                generation: kept.generation + 1,
                incarnation: kept.generation + 1,
                as_of: Some(self.clock.now()),
                unswept: true,
            };
            self.states.remove(partition);
            self.sweeps.push_back(partition.clone());
            gone.push((partition.clone(), kept.clone()));
        }
        begun.append(&mut gone);
    }

    /// Everything below `head` is finished. Returns whether the partition is to be taken again.
    pub fn finished(&mut self, partition: &TopicPartition, head: Option<NextOffset>) -> bool {
        let Some(state) = self.states.get_mut(partition) else { return false };
        match state.finished(head, self.clock.now()) {
            Some(Act::Keep(as_of)) => {
                if let Some(kept) = self.kept.get_mut(partition) {
                    kept.as_of = Some(as_of);
                }
                self.moments.insert(partition.clone(), as_of);
                false
            }
            Some(Act::Sweep) => {
                self.sweeps.push_back(partition.clone());
                false
            }
            Some(Act::Retake) => true,
            None => false,
        }
    }

    /// Sends what is due and the sink is not at already.
    pub fn order(&mut self) {
        if !self.keeping && !self.moments.is_empty() {
            let moments = std::mem::take(&mut self.moments).into_iter().collect();
            self.keeping = self.orders.try_send(Order::Keep(moments)).is_ok();
        }
        while !self.sweeping
            && let Some(partition) = self.sweeps.pop_front()
        {
            let Some(generation) = self.kept.get(&partition).map(|kept| kept.generation) else { continue };
            self.sweeping = self.orders.try_send(Order::Sweep { partition, generation }).is_ok();
        }
    }

    /// Takes the sink's word; returns the assignment that can be answered now.
    pub fn entered(&mut self, entry: Entry) -> Option<Vec<(TopicPartition, Option<NextOffset>)>> {
        match entry {
            Entry::Begun => return self.begins.take(),
            Entry::Kept => self.keeping = false,
            Entry::Swept { partition, generation, rows } => {
                self.sweeping = false;
                tracing::info!(%partition, generation, rows, "rows of older passes are removed");
                if let Some(kept) = self.kept.get_mut(&partition).filter(|kept| kept.generation == generation) {
                    kept.unswept = false;
                    self.states.get_mut(&partition).into_iter().for_each(Freshness::swept);
                }
            }
        }
        None
    }

    /// These partitions are to be read anew when they are assigned next.
    pub fn sweep(&mut self, partitions: &[TopicPartition]) {
        self.asked.extend(partitions.iter().cloned());
    }

    /// The partition goes, finished below `head`.
    pub fn release(&mut self, partition: &TopicPartition, head: Option<NextOffset>) {
        self.states.remove(partition);
        self.sweeps.retain(|sweep| sweep != partition);
        if let Some((kept, head)) = self.kept.get_mut(partition).zip(head) {
            kept.next = kept.next.max(head);
        }
    }

    pub fn unverified(&self, partition: &TopicPartition) -> Option<Reason> {
        self.states.get(partition)?.unverified()
    }

    /// What changed since it was asked last.
    pub fn news(&mut self) -> Vec<News> {
        let mut news = Vec::new();
        for (partition, state) in &self.states {
            let now = state.unverified();
            if now != self.told.get(partition).copied() {
                match now {
                    Some(reason) => drop(self.told.insert(partition.clone(), reason)),
                    None => drop(self.told.remove(partition)),
                }
                news.push(News { partition: partition.clone(), unverified: now });
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    const HOUR: Duration = Duration::from_secs(3600);

    fn partition(number: i32) -> TopicPartition {
        TopicPartition::new("t", number)
    }

    fn log(number: i32, id: &str, end: i64) -> PartitionLog {
        PartitionLog {
            partition: partition(number),
            topic_id: Some(id.to_owned()),
            low: 0,
            end: NextOffset(end),
            asked: Instant::now(),
            retention: HOUR,
        }
    }

    fn kept(generation: i64) -> Kept {
        let (next, topic_id, as_of) = (NextOffset(4), Some("old".to_owned()), Some(Clock::start().now()));
        Kept { next, topic_id, generation, incarnation: 1, as_of, unswept: false }
    }

    fn fresh(kept: BTreeMap<TopicPartition, Kept>) -> (Fresh, crossbeam_channel::Receiver<Order>) {
        let (orders, taken) = crossbeam_channel::bounded(4);
        (Fresh::new((kept, orders)), taken)
    }

    #[test]
    fn an_assignment_is_answered_once_the_sink_has_kept_how_it_begins() {
        let (mut fresh, orders) = fresh(BTreeMap::from([(partition(0), kept(1))]));
        assert_eq!(fresh.logs(vec![log(0, "old", 9), log(1, "old", 3)], |_| false), []);
        let decided = fresh.begin(vec![partition(0), partition(1), partition(2)]);
        assert_eq!(decided, [(partition(0), Start::Resume), (partition(1), Start::Build)]);
        let Ok(Order::Begin(begun)) = orders.try_recv() else { panic!("the sink is told") };
        assert_eq!(begun.len(), 2, "nothing is kept of a partition that the broker did not speak of");
        assert_eq!(fresh.entered(Entry::Kept), None);
        let starts =
            vec![(partition(0), Some(NextOffset(4))), (partition(1), Some(NextOffset(0))), (partition(2), None)];
        assert_eq!(fresh.entered(Entry::Begun), Some(starts));
        assert_eq!(fresh.logs(vec![log(2, "old", 1)], |_| true), [partition(2)], "it has to begin again");
    }

    #[test]
    fn a_partition_is_read_anew_once_for_each_time_that_it_is_asked_for() {
        let (mut fresh, _orders) = fresh(BTreeMap::from([(partition(0), kept(1))]));
        fresh.sweep(&[partition(0), partition(1)]);
        for expected in [Start::Rebuild(Reason::Asked), Start::Resume] {
            fresh.logs(vec![log(0, "old", 9), log(1, "old", 9)], |_| false);
            let decided = fresh.begin(vec![partition(0)]);
            assert_eq!(decided, [(partition(0), expected)]);
            fresh.entered(Entry::Begun);
            fresh.release(&partition(0), None);
        }
        fresh.logs(vec![log(1, "old", 9)], |_| false);
        assert_eq!(fresh.begin(vec![partition(1)]), [(partition(1), Start::Build)], "nothing is kept of it");
    }

    #[test]
    fn a_new_topic_with_fewer_partitions_leaves_no_rows_of_the_others() {
        let (mut fresh, orders) = fresh((0..3).map(|number| (partition(number), kept(5))).collect());
        fresh.logs(vec![log(0, "new", 9)], |_| false);
        let decided = fresh.begin(vec![partition(0)]);
        assert_eq!(decided, [(partition(0), Start::Rebuild(Reason::Recreated))]);
        let Ok(Order::Begin(begun)) = orders.try_recv() else { panic!("the sink is told") };
        assert!(begun.len() == 3 && begun.iter().all(|(_, kept)| kept.generation == 6 && kept.unswept));
        let mut swept = Vec::new();
        for _ in 0..3 {
            fresh.order();
            if let Ok(Order::Sweep { partition, generation }) = orders.try_recv() {
                swept.push(partition.partition);
                fresh.entered(Entry::Swept { partition, generation, rows: 1 });
            }
        }
        assert_eq!(swept, [1, 2], "the one that is there is read first");
        assert!(!fresh.kept[&partition(2)].unswept);
    }

    #[test]
    fn the_sink_keeps_one_round_of_moments_at_a_time() {
        let (mut fresh, orders) = fresh(BTreeMap::from([(partition(0), kept(1))]));
        fresh.logs(vec![log(0, "old", 4)], |_| false);
        fresh.begin(vec![partition(0)]);
        drop(orders.try_recv());
        std::iter::repeat_with(|| fresh.finished(&partition(0), Some(NextOffset(4)))).take(2).for_each(drop);
        fresh.moments.insert(partition(0), 1);
        fresh.order();
        fresh.moments.insert(partition(0), 2);
        fresh.order();
        assert_eq!(orders.try_iter().collect::<Vec<_>>(), [Order::Keep(vec![(partition(0), 1)])]);
        fresh.entered(Entry::Kept);
        fresh.order();
        assert_eq!(orders.try_iter().collect::<Vec<_>>(), [Order::Keep(vec![(partition(0), 2)])]);
    }
}
