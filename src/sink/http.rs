//! Keeps an HTTP service in step: one request per row, many under way, never two of one output key.
//!
//! A receiver sees, for each key, the rows in the order of their partition, through every retry. It may see a row twice,
//! after a crash or an answer that did not arrive: requests say where their record comes from, and carry a key that is
//! the same for the same record.
//!
//! | header | holds |
//! |---|---|
//! | `Idempotency-Key` | `topic-partition-offset`, with `-n` for the nth further output of one record |
//! | `Tidegate-Topic`, `-Partition`, `-Offset`, `-Timestamp` | where the record comes from |

use std::convert::Infallible;

use tokio::sync::mpsc;

use super::blocking::panic_message;
use super::{Context, Halt, Inlet, Running, Way};
use crate::config::Http as Settings;
use crate::delivery::Stage;

mod exchange;
mod gate;
mod letters;
mod queue;
mod row;
mod target;
#[cfg(test)]
mod tests;
mod writer;

use writer::Writer;

/// # Errors
/// When a setting cannot be used.
pub fn check(settings: &Settings) -> anyhow::Result<()> {
    exchange::Exchange::new(settings).map(drop)
}

/// Starts the task.
pub fn start(context: Context, settings: &Settings) -> anyhow::Result<Running> {
    let (inlet, deliveries) = mpsc::channel(context.max_batches);
    let (ending, ended) = crossbeam_channel::bounded::<Infallible>(0);
    let runtime = context.runtime.clone();
    let writer = Writer::new(context.clone(), settings)?;
    let work = runtime.spawn(Box::pin(writer.run(deliveries)));
    runtime.spawn(async move {
        let _ending = ending;
        if let Err(error) = work.await
            && let Ok(panic) = error.try_into_panic()
        {
            context.tell_halt(Halt::of(Stage::Sink, format!("the sink panicked: {}", panic_message(&*panic))));
        }
    });
    Ok(Running { positions: None, ledger: None, inlet: Inlet(Way::Task(inlet)), row_bytes: writer::ROW_BYTES, ended })
}
