use super::*;
use crate::config::SinkKind;
use crate::sink::testing::{Lane, SOON, delete, put, rejected};
use crate::sink::{RowError, Stopped};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

/// A sink that answers as it is told, then with success, and remembers what it wrote.
#[derive(Clone, Default)]
struct Scripted {
    answers: Arc<Mutex<Vec<WriteError>>>,
    /// Keys of the rows written, in order.
    written: Arc<Mutex<Vec<String>>>,
    calls: Arc<Mutex<u32>>,
}

impl Scripted {
    fn answering(answers: impl IntoIterator<Item = WriteError>) -> Self {
        let mut answers: Vec<_> = answers.into_iter().collect();
        answers.reverse();
        Self { answers: Arc::new(Mutex::new(answers)), ..Self::default() }
    }

    fn written(&self) -> Vec<String> {
        self.written.lock().unwrap().clone()
    }
}

impl Blocking for Scripted {
    fn positions(&self) -> Option<crate::sink::Positions> {
        None
    }

    fn keeps_latest(&self) -> bool {
        true
    }

    fn write(&mut self, deliveries: &[Delivery]) -> Result<(), WriteError> {
        *self.calls.lock().unwrap() += 1;
        if let Some(error) = self.answers.lock().unwrap().pop() {
            return Err(error);
        }
        let outputs = deliveries.iter().flat_map(Delivery::outputs).filter(|output| *output.fate == Fate::Write);
        let keys = outputs.map(|output| String::from_utf8(output.record.key.unwrap().to_vec()).unwrap());
        self.written.lock().unwrap().extend(keys);
        Ok(())
    }
}

fn transient(times: usize) -> Vec<WriteError> {
    (0..times).map(|_| WriteError::Transient(anyhow::anyhow!("disk full"))).collect()
}

fn bad_row(row: usize) -> WriteError {
    WriteError::Rows(vec![RowError { delivery: 0, row, cause: "bad".to_owned() }])
}

fn with_policy(dir: &tempfile::TempDir, policy: OnError, attempts: Option<u32>) -> Lane {
    Lane::with(dir.path(), SinkKind::Discard, |sink| {
        sink.on_error = policy;
        sink.retry.attempts = attempts.and_then(NonZeroU32::new);
    })
}

#[test]
fn what_was_handed_over_is_finished_when_the_inlets_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut lane = Lane::new(dir.path(), SinkKind::Discard);
    let sink = Scripted::default();
    let running = start(lane.context.clone(), Box::new(sink.clone())).unwrap();
    for offset in 0..20 {
        running.inlet.send(lane.delivery("t", 0, &[put(offset, &offset.to_string(), "1")])).unwrap();
    }
    assert!(running.join(Instant::now() + SOON));
    assert_eq!((0..20).map(|_| lane.done().next.0).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
    assert_eq!(sink.written(), (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(lane.context.metrics.records_out.get(), 20);
}

#[test]
fn transient_failures_hold_the_lane_and_show_until_they_pass() {
    let dir = tempfile::tempdir().unwrap();
    let mut lane = Lane::new(dir.path(), SinkKind::Discard);
    let sink = Scripted::answering(transient(3));
    let running = start(lane.context.clone(), Box::new(sink.clone())).unwrap();
    running.inlet.send(lane.delivery("t", 0, &[put(0, "a", "1")])).unwrap();
    lane.done();
    assert_eq!(sink.written(), ["a"]);
    assert_eq!(lane.context.metrics.retries.get(), 3);
    let waits = lane.waits.lock().unwrap().clone();
    assert_eq!(waits.len(), 4);
    assert!(waits[0].as_deref().unwrap().starts_with("disk full, trying again in "), "{waits:?}");
    assert_eq!(waits[3], None);
    assert!(running.join(Instant::now() + SOON));
}

#[test]
fn a_stop_cuts_a_wait_short_and_acknowledges_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut lane = Lane::with(dir.path(), SinkKind::Discard, |sink| {
        (sink.retry.backoff, sink.retry.max) = (Duration::from_secs(3600), Duration::from_secs(3600));
    });
    let context = Context { stop: lane.context.stop.clone(), ..lane.context.clone() };
    let running = start(context, Box::new(Scripted::answering(transient(1)))).unwrap();
    running.inlet.send(lane.delivery("t", 0, &[put(0, "a", "1")])).unwrap();
    crate::sink::testing::eventually("the wait", || !lane.waits.lock().unwrap().is_empty());
    lane.context.stop.set();
    assert!(running.join(Instant::now() + SOON));
    assert!(lane.receipts.try_recv().is_err());
}

#[test]
fn dead_letters_are_kept_once_and_the_rest_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut lane = with_policy(&dir, OnError::DeadLetter, None);
    let sink = Scripted::answering([bad_row(0), bad_row(2)]);
    let running = start(lane.context.clone(), Box::new(sink.clone())).unwrap();
    let rows = [put(5, "a", "1"), rejected(6, "b", OnError::DeadLetter), put(7, "c", "1"), delete(8, "d")];
    running.inlet.send(lane.delivery("t", 0, &rows)).unwrap();
    assert_eq!(lane.done().next.0, 9);
    assert_eq!(sink.written(), ["d"]);
    assert_eq!(lane.dead_offsets(), [6, 5, 7]);
    assert_eq!(lane.dead_letters()[1]["cause"], "bad");
    assert_eq!(lane.context.metrics.dead_letters.get(), 3);
    assert_eq!(lane.context.metrics.rejected.get(), 2, "the chain counts its own rejections");
    assert!(running.join(Instant::now() + SOON));
}

#[test]
fn dropped_by_policy_leaves_no_letter() {
    let dir = tempfile::tempdir().unwrap();
    let mut lane = with_policy(&dir, OnError::Drop, None);
    let running = start(lane.context.clone(), Box::new(Scripted::answering([bad_row(0)]))).unwrap();
    running.inlet.send(lane.delivery("t", 0, &[put(0, "a", "1"), rejected(1, "b", OnError::Drop)])).unwrap();
    lane.done();
    assert!(lane.dead_letters().is_empty());
    assert!(running.join(Instant::now() + SOON));
}

#[test]
fn a_halt_acknowledges_what_came_before_it_and_nothing_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut lane = with_policy(&dir, OnError::DeadLetter, None);
    let sink = Scripted::default();
    let deliveries = [
        lane.delivery("t", 0, &[put(0, "a", "1")]),
        lane.delivery("t", 0, &[put(1, "b", "1"), rejected(2, "c", OnError::Halt)]),
        lane.delivery("t", 1, &[put(0, "d", "1")]),
    ];
    let running = start(lane.context.clone(), Box::new(sink.clone())).unwrap();
    // The writer may end before the last is handed over.
    let sent: Vec<_> = deliveries.into_iter().map(|delivery| running.inlet.send(delivery)).collect();
    assert_eq!(sent[0], Ok(()));
    assert_eq!(lane.done().next.0, 1);
    let cut = lane.done();
    assert_eq!((cut.next.0, cut.whole), (2, false), "what stands before the halt is written, and acknowledges nothing");
    let Receipt::Halted(halt) = lane.receipt() else { panic!("no halt") };
    assert_eq!((halt.partition, halt.offset, &*halt.stage, &*halt.reason), (Some(0), Some(2), "plugin p 1", "no"));
    let inlet = running.inlet.clone();
    assert!(running.join(Instant::now() + SOON));
    assert_eq!(inlet.send(lane.delivery("t", 1, &[put(9, "e", "1")])), Err(Stopped));
    assert!(lane.receipts.try_recv().is_err());
    assert_eq!(sink.written(), ["a", "b"]);
}

#[test]
fn a_sink_that_halts_by_policy_names_the_row() {
    let dir = tempfile::tempdir().unwrap();
    let mut lane = with_policy(&dir, OnError::Halt, None);
    let running = start(lane.context.clone(), Box::new(Scripted::answering([bad_row(1)]))).unwrap();
    running.inlet.send(lane.delivery("t", 0, &[put(3, "a", "1"), put(4, "b", "1")])).unwrap();
    let cut = lane.done();
    assert_eq!((cut.next.0, cut.whole), (4, false));
    let Receipt::Halted(halt) = lane.receipt() else { panic!("no halt") };
    assert_eq!((halt.offset, &*halt.stage, &*halt.reason), (Some(4), "sink", "bad"));
    assert!(running.join(Instant::now() + SOON));
}

#[test]
fn when_the_tries_are_used_up_the_policy_takes_the_whole_group() {
    let dir = tempfile::tempdir().unwrap();
    let mut lane = with_policy(&dir, OnError::DeadLetter, Some(3));
    let sink = Scripted::answering(transient(3));
    let running = start(lane.context.clone(), Box::new(sink.clone())).unwrap();
    let mut dropped = put(2, "c", "1");
    dropped.4 = Fate::Drop;
    running.inlet.send(lane.delivery("t", 0, &[put(0, "a", "1"), delete(1, "b"), dropped])).unwrap();
    lane.done();
    assert_eq!(*sink.calls.lock().unwrap(), 3);
    assert_eq!(lane.dead_offsets(), [0, 1, 2], "a delete that a dropped version owes is work too");
    assert_eq!(lane.dead_letters()[0]["attempts"], 3);
    assert_eq!(lane.context.metrics.stale.get(), 3);
    running.inlet.send(lane.delivery("t", 0, &[put(3, "d", "1")])).unwrap();
    lane.done();
    assert_eq!(sink.written(), ["d"]);
    assert!(running.join(Instant::now() + SOON));
}

#[test]
fn partitions_that_are_gone_are_neither_written_nor_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut lane = Lane::new(dir.path(), SinkKind::Discard);
    let sink = Scripted::default();
    let gone = lane.delivery("t", 0, &[put(0, "a", "1"), rejected(1, "x", OnError::DeadLetter)]);
    let ours = lane.delivery("t", 1, &[put(0, "b", "1")]);
    lane.context.assignments.remove(gone.span.assignment);
    let running = start(lane.context.clone(), Box::new(sink.clone())).unwrap();
    let span = ours.span;
    running.inlet.send(gone).unwrap();
    running.inlet.send(ours).unwrap();
    assert_eq!(lane.done(), span);
    assert!(running.join(Instant::now() + SOON));
    assert_eq!(sink.written(), ["b"]);
    assert!(lane.dead_letters().is_empty());
}

#[test]
fn dead_letters_that_cannot_be_written_hold_the_lane() {
    let dir = tempfile::tempdir().unwrap();
    let mut lane = Lane::new(dir.path(), SinkKind::Discard);
    // A directory stands where the file should be.
    std::fs::create_dir(&lane.context.dead_letters).unwrap();
    let running = start(lane.context.clone(), Box::new(Scripted::default())).unwrap();
    running.inlet.send(lane.delivery("t", 0, &[rejected(0, "a", OnError::DeadLetter)])).unwrap();
    crate::sink::testing::eventually("the wait", || !lane.waits.lock().unwrap().is_empty());
    let wait = lane.waits.lock().unwrap()[0].clone().unwrap();
    assert!(wait.starts_with("the dead letters cannot be written to `"), "{wait}");
    assert!(lane.receipts.try_recv().is_err());
    std::fs::remove_dir(&lane.context.dead_letters).unwrap();
    lane.done();
    assert_eq!(lane.dead_offsets(), [0]);
    assert!(running.join(Instant::now() + SOON));
}

#[test]
fn a_panic_halts_the_lane_with_its_words() {
    struct Panics;
    impl Blocking for Panics {
        fn positions(&self) -> Option<crate::sink::Positions> {
            None
        }
        fn write(&mut self, _: &[Delivery]) -> Result<(), WriteError> {
            panic!("out of ideas")
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let mut lane = Lane::new(dir.path(), SinkKind::Discard);
    let running = start(lane.context.clone(), Box::new(Panics)).unwrap();
    running.inlet.send(lane.delivery("t", 0, &[put(0, "a", "1")])).unwrap();
    let Receipt::Halted(halt) = lane.receipt() else { panic!("no halt") };
    assert_eq!(halt.reason, "the sink panicked: out of ideas");
    assert!(running.join(Instant::now() + SOON));
}
