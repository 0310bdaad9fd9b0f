//! What an operator may ask of a lane that runs.

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

/// How long the asker waits for the lane, which looks between two looks at its source. Less than a request to the admin server
/// may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(8);

/// Commands that wait for a lane; more are refused.
const MAX_OPEN: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Opens a lane that halted anew, at its checkpoint.
    Resume,
    /// The same, and the record that halted it becomes a dead letter.
    Skip,
    /// Reads the snapshot again, and removes the rows that it does not hold any more.
    Sweep,
}

/// Why a lane does not do it, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// One command on its way.
#[derive(Debug)]
pub struct Command {
    pub act: Act,
    answer: Sender<Result<(), Refused>>,
}

impl Command {
    pub fn answer(self, answer: Result<(), Refused>) {
        // One place, one answer; an asker that is gone needs none.
        drop(self.answer.try_send(answer));
    }
}

/// The way to a lane.
#[derive(Clone, Debug)]
pub struct Commands(Sender<Command>);

impl Commands {
    pub fn new() -> (Self, Receiver<Command>) {
        let (sender, receiver) = bounded(MAX_OPEN);
        (Self(sender), receiver)
    }

    /// Asks the lane, and waits for its answer.
    ///
    /// # Errors
    /// When the lane refuses, or is too busy to answer.
    pub fn ask(&self, act: Act) -> Result<(), Refused> {
        let (answer, answered) = bounded(1);
        self.0
            .try_send(Command { act, answer })
            .map_err(|_| Refused("the lane has ended, or too many commands wait for it".to_owned()))?;
        let late = || {
            let seconds = ANSWER_LIMIT.as_secs();
            Refused(format!("the lane did not answer within {seconds} s, and may do it yet; `tidegate status` tells"))
        };
        answered.recv_timeout(ANSWER_LIMIT).unwrap_or_else(|_| Err(late()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_answers_and_one_that_is_gone_refuses() {
        let (commands, taken) = Commands::new();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| commands.ask(Act::Resume));
            let command = taken.recv().unwrap();
            assert_eq!(command.act, Act::Resume);
            command.answer(Err(Refused("no".to_owned())));
            assert_eq!(asked.join().unwrap(), Err(Refused("no".to_owned())));
        });
        drop(taken);
        assert!(commands.ask(Act::Resume).unwrap_err().0.contains("has ended"));
    }
}
