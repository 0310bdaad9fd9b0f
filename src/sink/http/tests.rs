mod receiver;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::{Duration, Instant};

use axum::http::Method as Verb;
use proptest::prelude::*;

use self::receiver::{Answer, Receiver};
use super::exchange::Exchange;
use super::*;
use crate::config::{Auth, Delete, DeleteMethod, Method, OnDrop, OnReject, Sink, SinkKind, Tls};
use crate::delivery::{Fate, OnError, Span};
use crate::record::{Batch, TopicPartition};
use crate::secret::Secret;
use crate::sink::Receipt;
use crate::sink::testing::{Lane, Row as TestRow, SOON, delete, eventually, put, rejected};

fn settings(address: SocketAddr) -> Settings {
    Settings {
        url: format!("http://{address}/{{key}}"),
        method: Method::Put,
        delete: Some(Delete { method: DeleteMethod::Delete, url: format!("http://{address}/{{key}}"), body: None }),
        tls: Tls::default(),
        headers: Vec::new(),
        auth: None,
        connect_timeout: Duration::from_secs(5),
        timeout: Duration::from_secs(20),
        in_flight: NonZeroUsize::new(8).unwrap(),
    }
}

struct Fixture {
    dir: tempfile::TempDir,
    lane: Lane,
    receiver: Receiver,
    running: Running,
}

impl Fixture {
    fn new() -> Self {
        Self::with(|_| {}, |sink| sink.on_drop = OnDrop::Ignore)
    }

    fn with(change: impl FnOnce(&mut Settings), sink: impl FnOnce(&mut Sink)) -> Self {
        let (receiver, address) = Receiver::start();
        Self::at(receiver, address, change, sink)
    }

    fn at(
        receiver: Receiver,
        address: SocketAddr,
        change: impl FnOnce(&mut Settings),
        sink: impl FnOnce(&mut Sink),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = settings(address);
        change(&mut settings);
        let lane = Lane::with(dir.path(), SinkKind::Http(settings.clone()), sink);
        let running = super::super::start(lane.context.clone()).unwrap();
        Self { dir, lane, receiver, running }
    }

    fn send(&mut self, rows: &[TestRow<'_>]) -> Span {
        self.send_of(0, rows)
    }

    fn send_of(&mut self, partition: i32, rows: &[TestRow<'_>]) -> Span {
        let delivery = self.lane.delivery("t", partition, rows);
        let span = delivery.span;
        self.running.inlet.send(delivery).unwrap();
        span
    }

    fn finish(self) -> (Lane, Receiver, tempfile::TempDir) {
        assert!(self.running.join(Instant::now() + SOON), "it ends when the inlet is gone");
        (self.lane, self.receiver, self.dir)
    }
}

#[test]
fn a_record_is_a_request_that_says_where_it_comes_from() {
    let mut f = Fixture::new();
    f.send(&[(7, 1234, Some(b"a"), Some(b"{\"n\":1}"), Fate::Write), (9, -1, Some(b"b"), Some(b"plain"), Fate::Write)]);
    f.lane.done();
    f.send(&[delete(10, "a")]);
    f.lane.done();
    let mut seen = f.receiver.seen();
    seen[..2].sort_by(|a, b| a.path.cmp(&b.path));
    let header = |index: usize, name: &str| seen[index].headers.get(name).map(|value| value.to_str().unwrap());
    assert_eq!((&seen[0].verb, &*seen[0].path, &*seen[0].body), (&Verb::PUT, "/a", "{\"n\":1}"));
    assert_eq!(header(0, "content-type"), Some("application/json"));
    assert_eq!(header(0, "idempotency-key"), Some("t-0-7"));
    assert_eq!(header(0, "tidegate-topic"), Some("t"));
    assert_eq!(header(0, "tidegate-partition"), Some("0"));
    assert_eq!(header(0, "tidegate-offset"), Some("7"));
    assert_eq!(header(0, "tidegate-timestamp"), Some("1234"));
    assert_eq!(header(1, "content-type"), Some("application/octet-stream"));
    assert_eq!(header(1, "tidegate-timestamp"), None);
    assert_eq!((&seen[2].verb, &*seen[2].path, &*seen[2].body), (&Verb::DELETE, "/a", ""));
    assert_eq!(header(2, "content-type"), None);
    assert_eq!(f.lane.context.metrics.records_out.get(), 3);
    f.finish();
}

#[test]
fn a_key_is_one_part_of_the_path_and_is_deleted_where_it_was_put() {
    let keys = ["a/b", "a?x=1", "../admin", "%2e%2e", "é"];
    let paths = ["/a%2Fb", "/a%3Fx%3D1", "/..%2Fadmin", "/%252e%252e", "/%C3%A9"];
    let mut f = Fixture::new();
    for (n, key) in keys.into_iter().enumerate() {
        f.send(&[put(n as i64 * 2, key, "1")]);
        f.lane.done();
        f.send(&[delete(n as i64 * 2 + 1, key)]);
        f.lane.done();
    }
    let expected: Vec<String> =
        paths.iter().flat_map(|path| [format!("PUT {path} 1"), format!("DELETE {path}")]).collect();
    assert_eq!(f.receiver.lines(), expected);
    f.finish();
}

#[test]
fn keys_without_an_address_are_dead_letters_and_no_request() {
    let mut f = Fixture::new();
    let null = (3, 0, None, Some(&b"v"[..]), Fate::Write);
    f.send(&[put(0, ".", "1"), delete(1, ".."), put(2, "", "1"), null, put(4, "a", "1")]);
    assert_eq!(f.lane.done().next.0, 5);
    assert_eq!(f.receiver.lines(), ["PUT /a 1"]);
    let mut offsets = f.lane.dead_offsets();
    offsets.sort_unstable();
    assert_eq!(offsets, [0, 1, 2, 3]);
    assert_eq!(f.lane.context.metrics.rejected.get(), 4);
    f.finish();
}

#[test]
fn a_key_that_always_fails_is_set_aside_after_its_tries_and_the_rest_goes_on() {
    let mut f = Fixture::with(|_| {}, |sink| sink.retry.attempts = NonZeroU32::new(3));
    f.receiver.script("/bad", [500, 500, 500]);
    let bad = f.send(&[put(0, "bad", "1"), put(1, "x", "1")]);
    let good = f.send(&[put(2, "y", "1")]);
    let mut done = [f.lane.done(), f.lane.done()];
    done.sort_by_key(|span| span.next);
    assert_eq!(done, [bad, good]);
    let letters = f.lane.dead_letters();
    assert_eq!(letters.len(), 1);
    assert_eq!((&letters[0]["offset"], &letters[0]["attempts"]), (&0.into(), &3.into()));
    assert!(letters[0]["cause"].as_str().unwrap().starts_with("http 500 from http://127.0.0.1:"));
    assert_eq!(f.receiver.lines().iter().filter(|line| line.contains("/bad")).count(), 3);
    assert_eq!(f.lane.context.metrics.retries.get(), 2);
    f.finish();
}

#[test]
fn a_permanent_error_is_not_tried_again_and_never_silent() {
    for status in [400, 401, 404, 302] {
        let mut f = Fixture::new();
        let headers = vec![("location", "http://127.0.0.1:1/elsewhere")];
        f.receiver.script("/2", [Answer { status, headers, body: "no\nway" }]);
        f.send(&[put(0, "1", "1"), put(1, "2", "1"), put(2, "3", "1")]);
        f.lane.done();
        let mut paths: Vec<_> = f.receiver.seen().into_iter().map(|seen| seen.path).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["/1", "/2", "/3"]);
        assert_eq!(f.lane.dead_offsets(), [1]);
        let cause = f.lane.dead_letters()[0]["cause"].as_str().unwrap().to_owned();
        assert!(cause.starts_with(&format!("http {status} from ")) && cause.ends_with(": no way"), "{cause}");
        assert_eq!(f.lane.context.metrics.stale.get(), 1);
        f.finish();
    }
}

#[test]
fn order_per_key_holds_through_retries() {
    let mut f = Fixture::new();
    f.receiver.script("/a", [503, 503]);
    let held = f.receiver.hold("/a");
    f.send(&[put(0, "a", "1")]);
    f.receiver.wait_for(1);
    f.send(&[put(1, "a", "2")]);
    held.add_permits(100);
    f.lane.done();
    f.lane.done();
    assert_eq!(f.receiver.lines(), ["PUT /a 1", "PUT /a 1", "PUT /a 1", "PUT /a 2"]);
    assert_eq!(f.receiver.most().0, 1);
    f.finish();
}

#[test]
fn versions_that_wait_are_sent_as_the_last_of_them() {
    let mut f = Fixture::new();
    let held = f.receiver.hold("/a");
    f.send(&[put(0, "a", "1")]);
    f.receiver.wait_for(1);
    f.send(&[put(1, "a", "2"), put(2, "b", "1"), delete(3, "b"), delete(4, "a")]);
    f.send(&[put(5, "a", "3")]);
    // Known to be taken when what came behind it is: partitions are taken in the order they are sent.
    f.send_of(1, &[put(0, "z", "1")]);
    assert_eq!(f.lane.done().next.0, 1);
    held.add_permits(100);
    let mut done: Vec<i64> = (0..3).map(|_| f.lane.done().next.0).collect();
    done.sort_unstable();
    assert_eq!(done, [1, 5, 6]);
    let of_a: Vec<String> = f.receiver.lines().into_iter().filter(|line| line.contains("/a")).collect();
    assert_eq!(of_a, ["PUT /a 1", "PUT /a 3"]);
    assert_eq!(f.lane.context.metrics.coalesced.get(), 3);
    assert_eq!(f.lane.context.metrics.records_out.get(), 7);
    f.finish();
}

#[test]
fn when_the_last_version_is_rejected_the_one_before_it_is_sent() {
    let mut f = Fixture::new();
    f.receiver.script("/a", [400, 200]);
    f.send(&[put(0, "a", "1"), put(1, "a", "2"), put(2, "a", "3")]);
    f.lane.done();
    assert_eq!(f.receiver.lines(), ["PUT /a 3", "PUT /a 2"]);
    assert_eq!(f.lane.dead_offsets(), [2]);
    f.finish();
}

#[test]
fn a_rejected_version_removes_the_older_one_where_it_is_told_to() {
    let mut f = Fixture::with(|_| {}, |sink| sink.on_reject = OnReject::Delete);
    f.receiver.script("/a", [200, 422, 200]);
    f.send(&[put(0, "a", "1")]);
    f.lane.done();
    f.send(&[put(1, "a", "2")]);
    f.lane.done();
    f.send(&[rejected(2, "b", OnError::DeadLetter)]);
    f.lane.done();
    assert_eq!(f.receiver.lines(), ["PUT /a 1", "PUT /a 2", "DELETE /a", "DELETE /b"]);
    assert_eq!(f.receiver.seen()[2].headers["idempotency-key"], "t-0-1-delete");
    assert_eq!(f.lane.dead_offsets(), [1, 2]);
    assert_eq!(f.lane.context.metrics.stale.get(), 0);
    f.finish();
}

#[test]
fn dropped_versions_and_tombstones_do_what_they_are_told() {
    let dropped = |offset, key| {
        let mut row = put(offset, key, "1");
        row.4 = Fate::Drop;
        row
    };
    let mut f = Fixture::new();
    f.send(&[dropped(0, "a"), rejected(1, "b", OnError::Drop), delete(2, "c")]);
    f.lane.done();
    assert_eq!(f.receiver.lines(), ["DELETE /c"]);
    assert_eq!(f.lane.context.metrics.stale.get(), 1);
    f.finish();

    let mut f = Fixture::with(|_| {}, |sink| sink.on_drop = OnDrop::Delete);
    f.receiver.script("/a", [404]);
    f.send(&[dropped(0, "a")]);
    f.lane.done();
    assert_eq!(f.receiver.lines(), ["DELETE /a"]);
    f.finish();

    let mut f = Fixture::with(|settings| settings.delete = None, |sink| sink.on_drop = OnDrop::Ignore);
    f.send(&[delete(0, "a")]);
    f.lane.done();
    assert!(f.receiver.lines().is_empty());
    assert_eq!(f.lane.context.metrics.tombstones_ignored.get(), 1);
    f.finish();
}

#[test]
fn post_sends_every_row_in_order_and_needs_no_key() {
    let log = |settings: &mut Settings| {
        settings.method = Method::Post;
        settings.url = settings.url.replace("{key}", "log");
        settings.delete = None;
    };
    let mut f = Fixture::with(log, |_| {});
    f.receiver.script("/log", [503]);
    f.send(&[put(0, "a", "1"), put(1, "a", "2"), put(2, "a", "3")]);
    f.lane.done();
    f.send(&[(3, 0, None, Some(b"4"), Fate::Write)]);
    f.lane.done();
    let bodies: Vec<String> = f.receiver.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies, ["1", "1", "2", "3", "4"]);
    f.finish();
}

#[test]
fn patch_sends_every_version_to_the_address_of_its_key() {
    let mut f = Fixture::with(|settings| settings.method = Method::Patch, |_| {});
    f.send(&[put(0, "a", "1"), put(1, "a", "2"), delete(2, "a"), put(3, "b", "3")]);
    f.lane.done();
    let mut lines = f.receiver.lines();
    lines.sort();
    assert_eq!(lines, ["DELETE /a", "PATCH /a 1", "PATCH /a 2", "PATCH /b 3"]);
    f.finish();
}

#[test]
fn a_tombstone_may_be_a_request_of_ones_own() {
    let request = |settings: &mut Settings| {
        let url = settings.url.replace("{key}", "gone/{key}");
        let body = Some(r#"{"id":"{key}","was":"{key}"}"#.to_owned());
        settings.delete = Some(Delete { method: DeleteMethod::Post, url, body });
    };
    let mut f = Fixture::with(request, |_| {});
    f.receiver.script("/gone/b", [404]);
    f.send(&[put(0, "a \"q\"", "1"), delete(1, "a \"q\""), delete(2, "b")]);
    f.lane.done();
    let mut lines = f.receiver.lines();
    lines.sort();
    let expected =
        [r#"POST /gone/a%20%22q%22 {"id":"a \"q\"","was":"a \"q\""}"#, r#"POST /gone/b {"id":"b","was":"b"}"#];
    assert_eq!(lines, expected);
    let posted = &f.receiver.seen()[0];
    assert_eq!(posted.headers["content-type"], "application/json");
    assert!(posted.headers.contains_key("idempotency-key") && posted.headers.contains_key("tidegate-offset"));
    f.send(&[(3, 0, Some(b"\xff"), None, Fate::Write)]);
    f.lane.done();
    assert_eq!(f.lane.dead_offsets(), [3], "a key that no JSON string can hold");
    f.finish();
}

#[test]
fn outputs_of_one_record_have_keys_of_their_own() {
    let mut f = Fixture::new();
    let partition = TopicPartition::new("t", 0);
    let (mut input, mut rows) = (Batch::new(partition.clone()), Batch::new(partition));
    input.push(5, 0, Some(b"k"), Some(b"1"));
    input.push(6, 0, Some(b"k"), Some(b"1"));
    ["x", "y"].iter().for_each(|key| rows.push(5, 0, Some(key.as_bytes()), Some(b"1")));
    rows.push(6, 0, Some(b"z"), Some(b"1"));
    let marks = vec![(0, Fate::Write), (0, Fate::Write), (1, Fate::Write)];
    let delivery = f.lane.changed(input, rows, marks);
    f.running.inlet.send(delivery).unwrap();
    f.lane.done();
    let mut keys: Vec<_> = f.receiver.seen().iter().map(|seen| seen.headers["idempotency-key"].clone()).collect();
    keys.sort();
    assert_eq!(keys, ["t-0-5", "t-0-5-1", "t-0-6"]);
    f.finish();
}

#[test]
fn a_halt_lets_earlier_deliveries_finish_and_acknowledges_nothing_later() {
    for by_chain in [true, false] {
        let mut f = Fixture::with(|_| {}, |sink| sink.on_error = OnError::Halt);
        let held = f.receiver.hold("/a");
        f.receiver.script("/bad", [400]);
        let first = f.send(&[put(0, "a", "1")]);
        f.receiver.wait_for(1);
        let bad = if by_chain { rejected(1, "bad", OnError::Halt) } else { put(1, "bad", "1") };
        f.send(&[bad]);
        // May come too late to be taken.
        let later = f.lane.delivery("t", 1, &[put(0, "a", "2")]);
        drop(f.running.inlet.send(later));
        if !by_chain {
            eventually("the rejection", || f.lane.context.metrics.rejected.get() == 1);
        }
        assert!(f.lane.receipts.try_recv().is_err());
        held.add_permits(100);
        assert_eq!(f.lane.done(), first);
        let Receipt::Halted(halt) = f.lane.receipt() else { panic!("no halt") };
        assert_eq!((halt.partition, halt.offset), (Some(0), Some(1)));
        assert_eq!(halt.stage, if by_chain { "plugin p 1" } else { "sink" });
        let (lane, receiver, _dir) = f.finish();
        assert!(lane.receipts.try_recv().is_err());
        assert!(!receiver.lines().contains(&"PUT /a 2".to_owned()));
    }
}

#[test]
fn what_belongs_to_a_lost_partition_is_neither_sent_nor_acknowledged() {
    let mut f = Fixture::new();
    let held = f.receiver.hold("/a");
    let lost = f.send(&[put(0, "a", "1")]);
    f.receiver.wait_for(1);
    f.send(&[put(1, "a", "2")]);
    let kept = f.send_of(1, &[put(0, "a", "3")]);
    f.lane.context.assignments.remove(lost.assignment);
    held.add_permits(100);
    assert_eq!(f.lane.done(), kept);
    let (lane, receiver, _dir) = f.finish();
    assert!(lane.receipts.try_recv().is_err());
    assert_eq!(receiver.lines(), ["PUT /a 1", "PUT /a 3"]);
}

#[test]
fn a_receiver_that_is_not_there_is_waited_for() {
    // A port that is taken and does not listen refuses connections.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let receiver = Receiver::default();
    let mut f = Fixture::at(receiver.clone(), address, |_| {}, |_| {});
    for n in 0..20 {
        f.send(&[put(n, &n.to_string(), "1")]);
    }
    eventually("the wait", || !f.lane.waits.lock().unwrap().is_empty());
    let wait = f.lane.waits.lock().unwrap()[0].clone().unwrap();
    assert!(wait.starts_with(&format!("http://{address}: Connection refused")), "{wait}");
    assert!(wait.contains(", trying again in 0.0 s"), "{wait}");
    receiver.serve(socket);
    (0..20).for_each(|_| {
        f.lane.done();
    });
    eventually("the end of the wait", || f.lane.waits.lock().unwrap().last() == Some(&None));
    f.finish();
}

#[test]
fn no_more_is_taken_than_the_task_may_hold() {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let receiver = Receiver::default();
    let mut f = Fixture::at(receiver.clone(), socket.local_addr().unwrap(), |_| {}, |_| {});
    let Way::Task(inlet) = f.running.inlet.0.clone() else { panic!("a task") };
    let keys: Vec<String> = (0..1000).map(|n| (n % 20).to_string()).collect();
    for first in (0..12_000).step_by(1000) {
        let rows: Vec<_> = keys.iter().enumerate().map(|(n, key)| put(first + n as i64, key, "1")).collect();
        f.send(&rows);
    }
    // 8192 rows are begun to be passed with the ninth delivery.
    eventually("the limit", || inlet.max_capacity() - inlet.capacity() == 3);
    drop(inlet);
    receiver.serve(socket);
    (0..12).for_each(|_| {
        f.lane.done();
    });
    assert_eq!(f.lane.context.metrics.records_out.get(), 12_000);
    f.finish();
}

#[test]
fn a_receiver_that_asks_for_time_is_left_alone_by_every_key() {
    let mut f = Fixture::new();
    f.receiver.script("/a", [Answer { status: 429, headers: vec![("retry-after", "1")], body: "" }]);
    f.send(&[put(0, "a", "1")]);
    eventually("the wait", || !f.lane.waits.lock().unwrap().is_empty());
    let began = Instant::now();
    f.send(&[put(1, "b", "1")]);
    f.lane.done();
    f.lane.done();
    assert!(began.elapsed() > Duration::from_millis(700));
    let wait = f.lane.waits.lock().unwrap()[0].clone().unwrap();
    assert!(wait.contains("http 429 from ") && wait.ends_with("trying again in 1.0 s"), "{wait}");
    f.finish();
}

#[test]
fn an_answer_that_takes_too_long_is_a_failure_that_passes() {
    let mut f = Fixture::with(|settings| settings.timeout = Duration::from_millis(100), |_| {});
    let held = f.receiver.hold("/a");
    f.send(&[put(0, "a", "1")]);
    eventually("the wait", || !f.lane.waits.lock().unwrap().is_empty());
    let wait = f.lane.waits.lock().unwrap()[0].clone().unwrap();
    assert!(wait.contains("no answer in time"), "{wait}");
    held.add_permits(1000);
    f.lane.done();
    f.finish();
}

#[test]
fn a_stop_cuts_retries_short_and_acknowledges_nothing() {
    let mut f = Fixture::with(
        |_| {},
        |sink| {
            (sink.retry.backoff, sink.retry.max) = (Duration::from_secs(3600), Duration::from_secs(3600));
        },
    );
    f.receiver.script("/a", [503]);
    f.send(&[put(0, "a", "1")]);
    eventually("the wait", || !f.lane.waits.lock().unwrap().is_empty());
    f.lane.context.stop.set();
    let inlet = f.running.inlet.clone();
    let (mut lane, ..) = f.finish();
    assert!(lane.receipts.try_recv().is_err());
    assert!(inlet.send(lane.delivery("t", 0, &[put(1, "a", "2")])).is_err());
}

#[test]
fn credentials_are_sent_and_never_shown() {
    let mut f = Fixture::with(
        |settings| {
            settings.headers = vec![
                ("X-Api-Key".to_owned(), Secret::new("hunter2")),
                ("Content-Type".to_owned(), Secret::new("application/x-mine")),
            ];
            settings.auth = Some(Auth::Basic { user: "me".to_owned(), password: Secret::new("hunter2") });
        },
        |_| {},
    );
    f.receiver.script("/a", [503, 400]);
    f.send(&[put(0, "a", "1")]);
    f.lane.done();
    let headers = &f.receiver.seen()[0].headers;
    assert_eq!(headers["x-api-key"], "hunter2");
    assert_eq!(headers["content-type"], "application/x-mine");
    assert_eq!(headers["authorization"], "Basic bWU6aHVudGVyMg==");
    let shown = format!("{:?} {:?}", f.lane.waits.lock().unwrap(), f.lane.dead_letters());
    assert!(shown.contains("http 503") && shown.contains("http 400") && !shown.contains("hunter2"), "{shown}");
    f.finish();
}

#[test]
fn settings_that_cannot_be_used_are_refused_without_their_secrets() {
    let address = "127.0.0.1:1".parse().unwrap();
    let check = |change: &dyn Fn(&mut Settings), expected: &str| {
        let mut settings = settings(address);
        change(&mut settings);
        let error = format!("{:#}", Exchange::new(&settings).err().expect(expected));
        assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
    };
    check(&|s| s.url = "http://h/x".to_owned(), "PUT needs one");
    check(&|s| s.headers = vec![("a b".to_owned(), Secret::new("x"))], "`a b` is no header name");
    check(&|s| s.headers = vec![("a".to_owned(), Secret::new("hunter2\n"))], "the value of header `a`");
    check(&|s| s.auth = Some(Auth::Bearer(Secret::new("hunter2\n"))), "the credentials of `auth`");
}

#[test]
fn dead_letters_that_cannot_be_written_hold_the_acknowledgement() {
    let mut f = Fixture::new();
    std::fs::create_dir(&f.lane.context.dead_letters).unwrap();
    f.receiver.script("/a", [400]);
    f.send(&[put(0, "a", "1")]);
    eventually("the wait", || !f.lane.waits.lock().unwrap().is_empty());
    let wait = f.lane.waits.lock().unwrap()[0].clone().unwrap();
    assert!(wait.starts_with("the dead letters cannot be written to `"), "{wait}");
    assert!(f.lane.receipts.try_recv().is_err());
    std::fs::remove_dir(&f.lane.context.dead_letters).unwrap();
    f.lane.done();
    assert_eq!(f.lane.dead_offsets(), [0]);
    f.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Against the fold of the records: whatever fails, and however often, the receiver ends with the last version of each
    /// key, saw no key twice at once, kept to the limit, and saw each key's versions in order.
    #[test]
    fn the_receiver_ends_with_the_last_version_of_each_key(
        deliveries in proptest::collection::vec(proptest::collection::vec((0u8..6, any::<bool>()), 1..8), 1..12),
        scripts in proptest::collection::vec(
            proptest::collection::vec(proptest::sample::select(vec![200u16, 429, 500, 503, 408]), 0..6), 6),
    ) {
        let mut f = Fixture::with(|settings| settings.in_flight = NonZeroUsize::new(3).unwrap(), |_| {});
        for (key, script) in scripts.into_iter().enumerate() {
            f.receiver.script(&format!("/k{key}"), script);
        }
        let (mut offset, mut model) = (0, HashMap::new());
        let count = deliveries.len();
        for rows in deliveries {
            let rows: Vec<(i64, String, Option<String>)> = rows
                .into_iter()
                .map(|(key, deletes)| {
                    offset += 1;
                    let (key, value) = (format!("k{key}"), (!deletes).then(|| offset.to_string()));
                    model.insert(format!("/{key}"), value.clone());
                    (offset, key, value)
                })
                .collect();
            let rows: Vec<TestRow<'_>> = rows
                .iter()
                .map(|(offset, key, value)| {
                    (*offset, *offset, Some(key.as_bytes()), value.as_ref().map(|value| value.as_bytes()), Fate::Write)
                })
                .collect();
            f.send(&rows);
        }
        (0..count).for_each(|_| {
            f.lane.done();
        });
        let mut state: HashMap<String, Option<String>> = HashMap::new();
        let mut last: HashMap<String, i64> = HashMap::new();
        for seen in f.receiver.seen() {
            let offset: i64 = seen.headers["tidegate-offset"].to_str().unwrap().parse().unwrap();
            let before = last.insert(seen.path.clone(), offset).unwrap_or(0);
            prop_assert!(before <= offset, "{} went back from {before} to {offset}", seen.path);
            state.insert(seen.path, (seen.verb == Verb::PUT).then_some(seen.body));
        }
        prop_assert_eq!(state, model);
        let (of_one_path, in_all) = f.receiver.most();
        prop_assert!(of_one_path <= 1 && in_all <= 3, "{of_one_path} {in_all}");
        f.finish();
    }
}
