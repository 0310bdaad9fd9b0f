//! SIGKILL at moments drawn uniformly between the first delivery and the end of the snapshot, then a restart: nothing is
//! lost, the state is right, and the file holds each record once. Full size: `make verify-crashes`.

use std::time::{Duration, Instant};

use super::harness::oracle::{Dump, Sinks};
use super::harness::profiles::{Profiles, write_transactional};
use super::harness::random::Random;
use super::harness::trio::{LANES, Trio, is_live, wait_live};
use super::harness::{Broker, Topic, full_size, sized, wait_for};

const LIMIT: Duration = Duration::from_secs(1800);

#[test]
fn a_kill_at_any_moment_of_the_snapshot_loses_doubles_and_tears_nothing() {
    let mut random = Random::from_environment("crashes");
    let topic = Topic::compacted(Broker::shared(), 4);
    let keys = sized("TIDEGATE_KEYS", 8_000, 200_000);
    write_transactional(&topic, &mut Profiles::new(random.next(), keys), sized("TIDEGATE_RECORDS", 60_000, 1_000_000));
    let dump = Dump::of(&topic);
    let mut durations = undisturbed(&topic, &dump);
    println!("from first delivery to live: {durations:.1?}");

    let kills = sized("TIDEGATE_KILLS", 4, 10);
    let mut effective = 0;
    for kill in 0..kills {
        // The lanes differ in speed: each is aimed at in turn, so that the fast ones are hit as well.
        let aim = kill as usize % LANES.len();
        let moment = durations[aim].mul_f64(random.fraction());
        let undelivered = killed(&topic, &dump, kill, LANES[aim], moment);
        if undelivered[aim] == 0 {
            // This load went faster than the ones before it, so that the interval to draw from was too long.
            durations[aim] = moment;
        }
        effective += u64::from(undelivered.iter().any(|&records| records > 0));
    }
    // On a machine that runs other tests beside this one, a load may be done before its moment comes.
    let required = if full_size() { kills * 8 / 10 } else { 1 };
    println!("{effective} of {kills} kills found undelivered records");
    assert!(effective >= required, "only {effective} of {kills} kills found undelivered records");
}

/// How long each lane takes from its first delivery to the end of its snapshot.
fn undisturbed(topic: &Topic<'_>, dump: &Dump) -> [Duration; 3] {
    let trio = Trio::new(topic, &format!("{}-undisturbed", topic.name));
    let mut gateway = trio.site.start();
    let (mut first, mut live) = ([None; 3], [None; 3]);
    gateway.wait_until("all lanes live", LIMIT, |gateway| {
        // Only a later look than the one that finds the first delivery can find the end.
        for (lane, name) in LANES.into_iter().enumerate() {
            first[lane] = first[lane].or_else(|| trio.has_delivered(name).then(Instant::now));
            live[lane] = live[lane].or_else(|| is_live(gateway, name).then(Instant::now));
        }
        live.iter().all(Option::is_some)
    });
    gateway.stop();
    trio.assert_equal(dump);
    let took = |lane: usize| live[lane].zip(first[lane]).map(|(live, first)| live.saturating_duration_since(first));
    [0, 1, 2].map(|lane| took(lane).expect("each lane has delivered").max(Duration::from_millis(50)))
}

/// Kills a fresh load `moment` after the first delivery of the lane `aim`, and starts it again; returns how many records
/// each lane had still to read then, 0 where its sink had everything.
fn killed(topic: &Topic<'_>, dump: &Dump, kill: u64, aim: &str, moment: Duration) -> [u64; 3] {
    let trio = Trio::new(topic, &format!("{}-kill-{kill}", topic.name));
    let gateway = trio.site.start();
    wait_for("the first delivery", LIMIT, || trio.has_delivered(aim).then_some(()));
    let first = Instant::now();
    std::thread::sleep(moment.saturating_sub(first.elapsed()));
    gateway.kill();
    let behind = !dump.compare(&Sinks { http: Some(&trio.receiver), masked: &["email"], ..Sinks::default() }).0;

    let mut again = trio.site.start();
    wait_live(&mut again, LIMIT);
    let mut undelivered = LANES.map(|lane| again.lane(lane).counts.records_in);
    if !behind {
        // Commits trail by a second: what the service has accepted already is read again and is not undelivered.
        undelivered[2] = 0;
    }
    again.stop();
    println!(
        "kill {kill}: {moment:.1?} after the first delivery of `{aim}`; still to deliver: {}",
        LANES.iter().zip(undelivered).map(|(lane, records)| format!("{lane} {records}")).collect::<Vec<_>>().join(", ")
    );
    println!("{}", trio.assert_equal(dump));
    trio.receiver.assert_order();
    undelivered
}
