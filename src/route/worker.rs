//! The threads that run a lane's plugin chain. A partition stays on one of them while it is owned, which keeps its records
//! in order; each has instances of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, TrySendError};

use super::{Lane, MAX_BATCHES, Shown};
use crate::delivery::{Assignments, Delivery};
use crate::plugin::{Chain, RunnerContext};
use crate::sink::{Halt, Inlet, Receipt};
use crate::stop::Stop;

pub struct Workers {
    /// One per worker; `None` = not started, since no partition was given to it.
    started: Vec<Option<Sender<Delivery>>>,
    /// What a full worker could not take, oldest first. While there is any, the source is not drained.
    backlog: VecDeque<(usize, Delivery)>,
    worker: Worker,
}

impl Workers {
    pub fn new(lane: &Lane, inlet: Inlet, receipts: Sender<Receipt>, assignments: Assignments, abandon: Stop) -> Self {
        let context = RunnerContext {
            route: lane.route.name.as_str().into(),
            sink: lane.sink.name.as_str().into(),
            metrics: lane.metrics.clone(),
            stop: abandon.clone(),
        };
        let worker = Worker {
            chain: Arc::clone(&lane.chain),
            context,
            shown: Arc::clone(&lane.shown),
            inlet,
            receipts,
            assignments,
            abandon,
        };
        Self { started: vec![None; lane.route.workers.get()], backlog: VecDeque::new(), worker }
    }

    pub fn count(&self) -> usize {
        self.started.len()
    }

    /// Hands over without waiting.
    pub fn send(&mut self, worker: usize, delivery: Delivery) {
        self.backlog.push_back((worker, delivery));
        self.flush();
    }

    /// Whether something waits for a full worker.
    pub fn is_backed_up(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Hands over what waits, as far as there is room.
    pub fn flush(&mut self) {
        while let Some((index, delivery)) = self.backlog.pop_front() {
            let sender = self.started[index].get_or_insert_with(|| self.worker.clone().start(index));
            match sender.try_send(delivery) {
                Ok(()) => {}
                Err(TrySendError::Full(delivery)) => {
                    self.backlog.push_front((index, delivery));
                    return;
                }
                // The worker has ended, and has said why by a receipt.
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
    }

    /// Nothing more comes; each worker ends after the batch that it has in hand, and the sink's inlet closes behind them.
    pub fn close(self) {
        drop(self);
    }
}

#[derive(Clone)]
struct Worker {
    chain: Arc<Chain>,
    context: RunnerContext,
    shown: Arc<Shown>,
    inlet: Inlet,
    receipts: Sender<Receipt>,
    assignments: Assignments,
    abandon: Stop,
}

impl Worker {
    fn start(self, index: usize) -> Sender<Delivery> {
        let (sender, deliveries) = crossbeam_channel::bounded(MAX_BATCHES);
        let receipts = self.receipts.clone();
        // The kernel shows 15 bytes of a thread's name.
        let name = format!("work{index}:{}", self.shown.name());
        let spawned = thread::Builder::new().name(name).spawn(move || {
            let _guard = HaltOnPanic(self.receipts.clone());
            self.run(&deliveries);
        });
        if let Err(error) = spawned {
            halt(&receipts, format!("cannot start a worker thread: {error}"));
        }
        sender
    }

    fn run(self, deliveries: &Receiver<Delivery>) {
        let mut runner = match self.chain.open(self.context.clone()) {
            Ok(runner) => runner,
            Err(error) => return halt(&self.receipts, format!("cannot open the plugins: {error:#}")),
        };
        for mut delivery in deliveries {
            while let Err(stall) = runner.run(&mut delivery) {
                tracing::warn!(lane = %self.shown.name(), reason = stall.reason, retry_after = ?stall.retry_after, "plugins wait");
                self.shown.plugin_waits(Some(stall.reason));
                let stopped = self.abandon.wait(stall.retry_after);
                if stopped || !self.assignments.contains(delivery.span.assignment) {
                    break;
                }
            }
            self.shown.plugin_waits(None);
            if self.abandon.is_set() {
                return;
            }
            if self.assignments.contains(delivery.span.assignment) && self.inlet.send(delivery).is_err() {
                return;
            }
        }
    }
}

/// A worker that dies takes its lane with it, visibly.
struct HaltOnPanic(Sender<Receipt>);

impl Drop for HaltOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            halt(&self.0, "a worker thread panicked; the log has the message".to_owned());
        }
    }
}

fn halt(receipts: &Sender<Receipt>, reason: String) {
    let halt = Halt::of("plugins", reason);
    // The lane reads receipts until it ends; when it has ended there is nobody to tell.
    receipts.send(Receipt::Halted(halt)).ok();
}
