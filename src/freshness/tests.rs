use std::collections::BTreeMap;

use super::*;
use proptest::prelude::*;

const RETENTION: i64 = 1000;

fn kept(next: i64, as_of: Option<i64>) -> Kept {
    let topic_id = Some("a".to_owned());
    Kept { next: NextOffset(next), topic_id, generation: 3, incarnation: 2, as_of, unswept: false }
}

fn log(id: Option<&str>, low: i64, end: i64, at: i64) -> Log {
    let retention = Duration::from_millis(RETENTION as u64);
    Log { topic_id: id.map(str::to_owned), low, end: NextOffset(end), at, retention }
}

#[test]
fn the_start_is_decided_by_id_then_offsets_then_time() {
    let check = |kept: Option<Kept>, log: Log, expected: Start| {
        let now = log.at;
        assert_eq!(start(kept.as_ref(), &log, now), expected, "{kept:?} {log:?}");
    };
    check(None, log(Some("a"), 0, 9, 0), Start::Build);
    check(Some(kept(5, Some(0))), log(Some("a"), 0, 9, 900), Start::Resume);
    check(Some(kept(5, Some(0))), log(None, 0, 9, 900), Start::Resume);
    check(Some(kept(5, Some(0))), log(Some("b"), 0, 9, 0), Start::Rebuild(Reason::Recreated));
    check(Some(kept(5, Some(0))), log(Some("a"), 6, 9, 0), Start::Rebuild(Reason::BelowLogStart));
    check(Some(kept(10, Some(0))), log(None, 0, 9, 0), Start::Rebuild(Reason::BeyondEnd));
    check(Some(kept(5, Some(0))), log(Some("a"), 0, 9, 901), Start::Rebuild(Reason::Late));
    check(Some(kept(5, Some(60_001))), log(Some("a"), 0, 9, 0), Start::Rebuild(Reason::ClockWentBack));
    check(Some(kept(5, None)), log(Some("a"), 0, 9, 0), Start::Rebuild(Reason::Unknown));
}

#[test]
fn a_new_log_begins_a_new_life_and_a_late_reader_does_not() {
    let begun = |reason| Freshness::begin(Some(&kept(5, Some(0))), &log(Some("b"), 2, 9, 7), Start::Rebuild(reason)).0;
    let expected = |incarnation| Kept {
        next: NextOffset(2),
        topic_id: Some("b".to_owned()),
        generation: 4,
        incarnation,
        as_of: Some(7),
        unswept: true,
    };
    assert_eq!(begun(Reason::Recreated), expected(4));
    assert_eq!(begun(Reason::BeyondEnd), expected(4));
    assert_eq!(begun(Reason::Late), expected(2));
    assert_eq!(begun(Reason::BelowLogStart), expected(2));
}

#[test]
fn the_second_end_is_one_that_was_asked_for_after_the_first_was_passed() {
    let (_, mut fresh) =
        Freshness::begin(Some(&kept(5, Some(0))), &log(Some("a"), 0, 9, 0), Start::Rebuild(Reason::Late));
    assert_eq!(fresh.finished(Some(NextOffset(8)), 10), None);
    assert_eq!(fresh.finished(Some(NextOffset(9)), 20), None);
    fresh.captured(NextOffset(12), 19);
    assert_eq!(fresh.finished(Some(NextOffset(12)), 30), Some(Act::Keep(19)));
    fresh.captured(NextOffset(14), 31);
    assert_eq!(fresh.finished(Some(NextOffset(13)), 40), None);
    assert_eq!(fresh.finished(Some(NextOffset(14)), 50), Some(Act::Sweep));
    assert_eq!(fresh.unverified(), Some(Reason::Late));
    fresh.swept();
    assert_eq!(fresh.unverified(), None);
}

#[test]
fn a_snapshot_that_takes_longer_than_the_retention_is_swept_and_not_read_for_ever() {
    let (_, mut fresh) =
        Freshness::begin(Some(&kept(5, Some(0))), &log(Some("a"), 0, 9, 0), Start::Rebuild(Reason::Late));
    assert_eq!(fresh.finished(Some(NextOffset(9)), 901), None);
    fresh.captured(NextOffset(9), 902);
    assert_eq!(fresh.finished(Some(NextOffset(9)), 903), Some(Act::Sweep));
    fresh.swept();
    fresh.captured(NextOffset(9), 2000);
    assert_eq!(fresh.finished(Some(NextOffset(9)), 2001), None);
    assert_eq!(fresh.unverified(), Some(Reason::Late));
}

#[test]
fn a_slow_sink_is_noticed_while_an_end_is_open_and_reads_anew_when_it_has_caught_up() {
    let (_, mut fresh) = Freshness::begin(Some(&kept(5, Some(0))), &log(Some("a"), 0, 9, 0), Start::Resume);
    assert_eq!(fresh.finished(Some(NextOffset(5)), 900), None);
    assert_eq!(fresh.unverified(), None);
    assert_eq!(fresh.finished(Some(NextOffset(5)), 901), None);
    assert_eq!(fresh.unverified(), Some(Reason::Late));
    assert_eq!(fresh.finished(Some(NextOffset(9)), 950), Some(Act::Retake));
    fresh.captured(NextOffset(9), 960);
    assert_eq!(fresh.finished(Some(NextOffset(9)), 970), None, "it is asked for once");
}

/// A record of the simulated log, with the moment from which a tombstone may go, once the cleaner has met it.
#[derive(Clone, Debug)]
struct Entry {
    key: u8,
    value: Option<u32>,
    horizon: Option<i64>,
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        key: u8,
        delete: bool,
    },
    Wait(i64),
    /// The cleaner passes over the lower part of the log, in percent.
    Clean(usize),
    /// The oldest part of the log above what was read is cut away, with all below.
    Cut,
    Recreate(usize),
    /// The lane learns the topic's id.
    Notice,
    Start,
    Stop,
    Read(usize),
    Capture,
    Sweep,
    Restore,
    Save,
}

#[derive(Clone, Debug, Default)]
struct Sink {
    /// Value, offset, generation.
    rows: BTreeMap<u8, (u32, i64, i64)>,
    kept: Option<Kept>,
}

#[derive(Debug, Default)]
struct World {
    now: i64,
    life: u32,
    log: Vec<Option<Entry>>,
    low: i64,
    sink: Sink,
    saved: Option<Sink>,
    lane: Option<(Freshness, i64, u32)>,
    values: u32,
    checked: usize,
}

impl World {
    fn log(&self) -> Log {
        log(Some(&self.life.to_string()), self.low, self.log.len() as i64, self.now)
    }

    fn fold(&self) -> BTreeMap<u8, u32> {
        let mut fold = BTreeMap::new();
        for entry in self.log.iter().flatten() {
            match entry.value {
                Some(value) => drop(fold.insert(entry.key, value)),
                None => drop(fold.remove(&entry.key)),
            }
        }
        fold
    }

    fn write(&mut self, key: u8, delete: bool) {
        self.values += 1;
        self.log.push(Some(Entry { key, value: (!delete).then_some(self.values), horizon: None }));
    }

    /// A superseded record goes at once; a tombstone gets its horizon when it is met first, and goes after it.
    fn clean(&mut self, percent: usize) {
        let dirty = self.log.len() * percent / 100;
        let mut last = BTreeMap::new();
        for (offset, entry) in self.log[..dirty].iter().enumerate() {
            last.extend(entry.as_ref().map(|entry| (entry.key, offset)));
        }
        for (offset, slot) in self.log[..dirty].iter_mut().enumerate() {
            let Some(entry) = slot else { continue };
            let gone = entry.value.is_none() && entry.horizon.is_some_and(|horizon| self.now >= horizon);
            if entry.value.is_none() {
                entry.horizon.get_or_insert(self.now + RETENTION);
            }
            if gone || last[&entry.key] != offset {
                *slot = None;
            }
        }
    }

    fn start(&mut self) {
        let log = self.log();
        let start = start(self.sink.kept.as_ref(), &log, self.now);
        let (kept, fresh) = Freshness::begin(self.sink.kept.as_ref(), &log, start);
        let next = kept.next.0;
        self.sink.kept = Some(kept);
        self.lane = Some((fresh, next, self.life));
        self.advance();
    }

    fn advance(&mut self) {
        let Some((fresh, next, _)) = &mut self.lane else { return };
        match fresh.finished(Some(NextOffset(*next)), self.now) {
            Some(Act::Keep(as_of)) => self.sink.kept.as_mut().expect("begun").as_of = Some(as_of),
            Some(Act::Retake) => self.start(),
            Some(Act::Sweep) | None => {}
        }
    }

    fn read(&mut self, count: usize) {
        let Some((_, next, _)) = &mut self.lane else { return };
        let kept = self.sink.kept.as_mut().expect("begun");
        for _ in 0..count {
            let Some(slot) = self.log.get(*next as usize) else { break };
            if let Some(entry) = slot {
                let row = self.sink.rows.get(&entry.key);
                if row.is_none_or(|(_, offset, generation)| *next >= *offset || *generation < kept.incarnation) {
                    match entry.value {
                        Some(value) => drop(self.sink.rows.insert(entry.key, (value, *next, kept.generation))),
                        None => drop(self.sink.rows.remove(&entry.key)),
                    }
                }
            }
            *next += 1;
            kept.next = NextOffset(*next);
        }
        self.advance();
    }

    /// Removes one row, and says so when there is none left.
    fn sweep(&mut self) {
        let Some((fresh, ..)) = &mut self.lane else { return };
        let kept = self.sink.kept.as_mut().expect("begun");
        if fresh.phase != Phase::Sweeping {
            return;
        }
        let old =
            self.sink.rows.iter().find(|(_, (.., generation))| *generation < kept.generation).map(|(key, _)| *key);
        match old {
            Some(key) => drop(self.sink.rows.remove(&key)),
            None => {
                kept.unswept = false;
                fresh.swept();
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write { key, delete } => self.write(key, delete),
            Step::Wait(ms) => self.now += ms,
            Step::Clean(percent) => self.clean(percent),
            Step::Cut => {
                let next = self.sink.kept.as_ref().map_or(0, |kept| kept.next.0);
                let cut = next + 1;
                if self.lane.is_none() && cut <= self.log.len() as i64 {
                    self.log[..cut as usize].fill(None);
                    self.low = cut;
                }
            }
            Step::Recreate(length) => {
                (self.life, self.low) = (self.life + 1, 0);
                self.log.clear();
                (0..length).for_each(|key| self.write(key as u8 % 5, key % 3 == 2));
            }
            Step::Notice => {
                if self.lane.as_ref().is_some_and(|(.., life)| *life != self.life) {
                    self.start();
                }
            }
            Step::Start if self.lane.is_none() => self.start(),
            Step::Start => {}
            Step::Stop => self.lane = None,
            Step::Read(count) => self.read(count),
            Step::Capture => {
                let (end, now) = (NextOffset(self.log.len() as i64), self.now);
                if let Some((fresh, ..)) = &mut self.lane {
                    fresh.captured(end, now);
                }
                self.advance();
            }
            Step::Sweep => self.sweep(),
            Step::Save => self.saved = Some(self.sink.clone()),
            Step::Restore => {
                if let Some(saved) = self.saved.clone() {
                    (self.sink, self.lane) = (saved, None);
                }
            }
        }
    }

    /// The claim.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let Some((fresh, next, life)) = &self.lane else { return Ok(()) };
        if *life != self.life || *next != self.log.len() as i64 || fresh.unverified().is_some() {
            return Ok(());
        }
        // A moment may pass in which nobody looked.
        if self.now - fresh.as_of > fresh.limit {
            return Ok(());
        }
        self.checked += 1;
        let rows: BTreeMap<u8, u32> = self.sink.rows.iter().map(|(key, (value, ..))| (*key, *value)).collect();
        prop_assert_eq!(rows, self.fold());
        Ok(())
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u8..5, prop::bool::weighted(0.4)).prop_map(|(key, delete)| Step::Write { key, delete }),
        4 => (1i64..400).prop_map(Step::Wait),
        1 => (600i64..3000).prop_map(Step::Wait),
        5 => (0usize..=100).prop_map(Step::Clean),
        1 => Just(Step::Cut),
        1 => (0usize..12).prop_map(Step::Recreate),
        2 => Just(Step::Notice),
        3 => Just(Step::Start),
        1 => Just(Step::Stop),
        8 => (1usize..8).prop_map(Step::Read),
        5 => Just(Step::Capture),
        5 => Just(Step::Sweep),
        1 => Just(Step::Save),
        1 => Just(Step::Restore),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whenever the rows count as verified and everything is read, they are the fold of the topic; and whatever happened,
    /// a lane that is left alone with the topic comes to be verified.
    #[test]
    fn rows_that_count_as_verified_are_the_fold_of_the_topic(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::default();
        for step in &steps {
            world.step(step);
            world.check()?;
        }
        world.lane = None;
        world.start();
        let keys = world.sink.rows.len() + 1;
        for _ in 0..4 {
            world.read(usize::MAX);
            world.step(&Step::Capture);
            world.now += 1;
            (0..keys).for_each(|_| world.sweep());
        }
        world.checked = 0;
        world.check()?;
        prop_assert_eq!(world.checked, 1, "verified at the end: {:?}", world.lane);
    }
}
