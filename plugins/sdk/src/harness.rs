//! Test a plugin natively with `cargo test`: records in, outcomes out, through the same flat encoding as in the gateway.
//!
//! ```no_run
//! # use tidegate_plugin::{harness::{Harness, Message, Outcome}, Plugin};
//! # fn test<MyPlugin: Plugin>() {
//! let mut harness = Harness::<MyPlugin>::new(r#"{"fields": ["email"]}"#).unwrap();
//! let outcome = harness.decide(Message::new("key", r#"{"email": "a@b.example"}"#));
//! assert_eq!(outcome, Outcome::value(r#"{"email": "***"}"#));
//! # }
//! ```

mod message;
mod outcome;
#[cfg(test)]
mod tests;

use crate::bindings::tidegate::plugin::types::{Batch, Verdicts};
use crate::host::outside::RECORDED;
use crate::instance::Instance;
use crate::{ConfigError, Level, Plugin, Setup};

pub use crate::bindings::tidegate::plugin::types::PluginError;
pub use message::Message;
pub use outcome::{Changed, Outcome, Text};

/// A plugin under test.
pub struct Harness<P> {
    instance: Instance<P>,
    setup: Setup,
    next_offset: i64,
}

impl<P: Plugin> Harness<P> {
    /// Configures a plugin as the gateway does. What an earlier harness of this thread recorded is forgotten.
    pub fn new(config: &str) -> Result<Self, ConfigError> {
        RECORDED.take();
        let (instance, setup) = Instance::try_start(config)?;
        crate::host::flush_counts();
        Ok(Self { instance, setup, next_offset: 0 })
    }

    /// What the plugin asked for.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The outcome for one record.
    ///
    /// # Panics
    ///
    /// As [`process`](Self::process).
    #[track_caller]
    pub fn decide(&mut self, message: Message) -> Outcome {
        self.process([message]).remove(0)
    }

    /// The outcomes for a batch of records, one for each.
    ///
    /// # Panics
    ///
    /// If the plugin fails the batch, or changes a key without having announced it: the gateway would refuse that.
    #[track_caller]
    pub fn process(&mut self, messages: impl IntoIterator<Item = Message>) -> Vec<Outcome> {
        match self.try_process(messages) {
            Ok(outcomes) => outcomes,
            Err(error) => panic!("the plugin failed the batch: {error:?}"),
        }
    }

    /// The outcomes for a batch of records, or the error for all of it.
    ///
    /// # Panics
    ///
    /// If the plugin changes a key without having announced it.
    #[track_caller]
    pub fn try_process(&mut self, messages: impl IntoIterator<Item = Message>) -> Result<Vec<Outcome>, PluginError> {
        let messages: Vec<Message> = messages.into_iter().collect();
        let batch = self.encode(&messages);
        let verdicts = self.instance.process(&batch)?;
        let outcomes =
            outcome::decode(&verdicts, messages.len()).expect("`Verdict` writes nothing that does not add up");
        if !self.setup.changes_keys {
            for (message, outcome) in messages.iter().zip(&outcomes) {
                assert!(
                    !outcome.changes_key(message.key.as_deref()),
                    "the key of {message:?} was changed by {outcome:?}, but the setup says that keys stay"
                );
            }
        }
        Ok(outcomes)
    }

    /// Leaves out messages below this level, as a gateway with such a log level does.
    pub fn log_from(&mut self, level: Level) {
        RECORDED.with_borrow_mut(|recorded| recorded.quietest = Some(level));
    }

    /// What the plugin has logged on this thread.
    pub fn logs(&self) -> Vec<(Level, String)> {
        RECORDED.with_borrow(|recorded| recorded.logs.clone())
    }

    /// What the plugin has counted under this name on this thread.
    pub fn counter(&self, name: &str) -> u64 {
        RECORDED.with_borrow(|recorded| recorded.counts.get(name).copied().unwrap_or(0))
    }

    fn encode(&mut self, messages: &[Message]) -> Batch {
        let mut batch = message::encode(messages, self.setup.wants);
        batch.offsets = (self.next_offset..).take(messages.len()).collect();
        self.next_offset += i64::try_from(messages.len()).expect("fewer than 2^63 messages");
        batch
    }
}

/// A batch in the contract's layout, for measuring a plugin without the harness's own work.
#[doc(hidden)]
pub fn encode_batch(messages: &[Message], setup: &Setup) -> Batch {
    message::encode(messages, setup.wants)
}

/// The outcomes in the contract's layout.
#[doc(hidden)]
pub fn decode_verdicts(verdicts: &Verdicts, records: usize) -> Result<Vec<Outcome>, String> {
    outcome::decode(verdicts, records)
}
