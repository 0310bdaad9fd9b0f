//! The harness itself: what the other tests believe must be true before they can show anything.

use std::time::Duration;

use super::harness::oracle::{Dump, Sinks};
use super::harness::process::{Limits, Process};
use super::harness::profiles::{Profiles, write_plain, write_transactional};
use super::harness::receiver::{Answer, Receiver};
use super::harness::{Broker, Producer, Record, Topic, block_on, group, wait_for};

#[test]
fn a_transactional_log_ends_beyond_its_last_visible_record() {
    let topic = Topic::compacted(Broker::shared(), 2);
    write_transactional(&topic, &mut Profiles::new(1, 100), 3000);
    let dump = Dump::of(&topic);
    assert_eq!(dump.records(), 3000, "aborted records are not visible");
    let ends: i64 = topic.ends().iter().sum();
    assert!(ends > 3000 + 4, "{ends} offsets hold the records, the aborted ones and the markers");
}

#[test]
fn the_fold_tells_null_from_empty_and_bytes_from_text() {
    let topic = Topic::deleting(Broker::shared(), 1);
    Producer::new(topic.broker).write(
        &topic,
        [
            Record::put("a", "1"),
            Record::put("", ""),
            Record::put(b"\xff\n\t", b"\x00\n"),
            Record::delete("a").header("h", None).header("h", Some(b"")),
            Record::without_key("x"),
        ],
    );
    let receiver = Receiver::keeping_state();
    let put = |key: &str, offset: u32, body: &'static [u8]| {
        let url = receiver.url().replace("{key}", key);
        let request = reqwest::Client::new().put(url).header("tidegate-partition", 0).header("tidegate-offset", offset);
        assert!(block_on(request.body(body).send()).unwrap().status().is_success());
    };
    put("%FF%0A%09", 2, b"\x00\n");
    let dump = Dump::of(&topic);
    let (equal, report) = dump.compare(&Sinks { http: Some(&receiver), ..Sinks::default() });
    assert!(!equal && report.contains("1 missing") && report.contains("b''"), "{report}");
    put("", 1, b"");
    let report = dump.assert_equal(&Sinks { http: Some(&receiver), ..Sinks::default() });
    assert!(report.contains("5 records visible, 1 tombstones, 3 keys, 2 of them live"), "{report}");
    put("a", 0, b"1");
    let (equal, report) = dump.compare(&Sinks { http: Some(&receiver), ..Sinks::default() });
    assert!(!equal && report.contains("1 left over"), "{report}");
}

#[test]
fn the_receiver_finds_a_breach_of_order() {
    let receiver = Receiver::scripted(|request| match request.offset {
        3 => Answer::status(503),
        _ => Answer::ok(),
    });
    let put = |offset: u32| {
        let url = receiver.url().replace("{key}", "a%2Fb");
        let request = reqwest::Client::new().put(url).header("tidegate-partition", 0).header("tidegate-offset", offset);
        block_on(request.body(offset.to_string()).send()).unwrap().status().as_u16()
    };
    assert_eq!([put(1), put(3), put(3), put(4)], [204, 503, 503, 204]);
    receiver.assert_order();
    assert_eq!(receiver.state(), [("a/b".to_owned(), "4".to_owned())].into());
    put(2);
    assert_eq!(receiver.stale_by_arrival(), 1);
    let order = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| receiver.assert_order()));
    assert!(order.is_err(), "offset 2 after offset 4 is a breach");
}

#[test]
fn a_broker_keeps_its_records_and_groups_when_it_is_killed() {
    let broker = Broker::start();
    let name = {
        let topic = Topic::compacted(&broker, 2);
        write_plain(&topic, &mut Profiles::new(7, 10), 100);
        group::set_committed("g", &topic, &[3, 4]);
        topic.name
    };
    broker.restart();
    let topic = Topic { broker: &broker, name, partitions: 2 };
    assert_eq!(Dump::of(&topic).records(), 100);
    assert_eq!(group::committed("g", &topic), [Some(3), Some(4)]);
}

#[test]
fn a_child_is_limited_in_its_files_until_the_limit_is_lifted() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("sh");
    let script = "until head -c 200000 /dev/zero >big; do echo full; sleep 0.05; done; echo free";
    command.args(["-c", script]).current_dir(dir.path());
    let mut child = Process::spawn("writer", command, Limits { file_size: Some(100_000) });
    wait_for("a failed write", Duration::from_secs(10), || child.has_printed("full").then_some(()));
    child.lift_file_limit();
    assert!(child.wait(Duration::from_secs(10)).success());
    assert_eq!(std::fs::metadata(dir.path().join("big")).unwrap().len(), 200_000);
}
