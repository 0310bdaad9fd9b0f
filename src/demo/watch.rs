//! Waiting for the gateway while its progress is shown.

use std::io::{self, Stdout};
use std::time::{Duration, Instant};

use anyhow::anyhow;

use crate::cli::screen::Screen;
use crate::cli::signals::Signals;
use crate::gateway::status::{LaneState, Status};

/// Between two looks at the gateway.
const LOOK: Duration = Duration::from_millis(50);

/// Between two drawings on a terminal: rates are readable, and it still looks alive.
const DRAW: Duration = Duration::from_millis(500);

/// Between two lines elsewhere, while the snapshot is delivered and after that.
const LINE_LOADING: Duration = Duration::from_secs(1);
const LINE_LIVE: Duration = Duration::from_secs(10);

/// Why waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Delivered,
    /// By SIGINT or SIGTERM, or since nobody reads the output any more.
    Interrupted,
}

pub struct Watch {
    screen: Screen<Stdout>,
    shown: Option<Instant>,
    signals: Signals,
}

impl Watch {
    /// From now on the signals that end a program are caught. Called within a runtime.
    ///
    /// # Errors
    /// When the operating system refuses to tell of signals.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self { screen: Screen::stdout(), shown: None, signals: Signals::catch()? })
    }

    pub fn signals(&mut self) -> &mut Signals {
        &mut self.signals
    }

    /// Waits until every lane has delivered its snapshot.
    ///
    /// # Errors
    /// When a lane halts, which it does for good, or `timeout` is over.
    pub async fn until_delivered(
        &mut self,
        status: &(dyn Fn() -> Status + Send + Sync),
        timeout: Option<Duration>,
    ) -> anyhow::Result<Ended> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let now = status();
            let state = settled(&now);
            let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let show = self.show(now, LINE_LOADING, state.is_some() || late);
            let ended = match state {
                Some(Ok(())) => Ok(Ended::Delivered),
                Some(Err(halt)) => Err(anyhow!(halt)),
                None if late => Err(anyhow!("the snapshot was not delivered in time; `--timeout` gives more")),
                None if show.is_err() || self.interrupted_within(LOOK).await => Ok(Ended::Interrupted),
                None => continue,
            };
            self.screen.leave()?;
            return ended;
        }
    }

    /// Shows the gateway until somebody ends it.
    ///
    /// # Errors
    /// When a lane halts, which it does for good.
    pub async fn until_interrupted(&mut self, status: &(dyn Fn() -> Status + Send + Sync)) -> anyhow::Result<()> {
        loop {
            let now = status();
            let halt = settled(&now).and_then(Result::err);
            let show = self.show(now, LINE_LIVE, halt.is_some());
            let ended = match halt {
                Some(halt) => Err(anyhow!(halt)),
                None if show.is_err() || self.interrupted_within(LOOK).await => Ok(()),
                None => continue,
            };
            self.screen.leave()?;
            return ended;
        }
    }

    /// Shows the status when it is time to, or `at_once`.
    fn show(&mut self, status: Status, line: Duration, at_once: bool) -> io::Result<()> {
        let interval = if self.screen.is_terminal() { DRAW } else { line };
        if at_once || self.shown.is_none_or(|shown| shown.elapsed() >= interval) {
            self.shown = Some(Instant::now());
            self.screen.show(status)?;
        }
        Ok(())
    }

    async fn interrupted_within(&mut self, time: Duration) -> bool {
        tokio::select! {
            _ = self.signals.next() => true,
            () = tokio::time::sleep(time) => false,
        }
    }
}

/// Whether every lane is live, or why one will never be. `None` = not yet.
fn settled(status: &Status) -> Option<Result<(), String>> {
    let lanes = || status.routes.iter().flat_map(|route| route.lanes.iter().map(move |lane| (&route.name, lane)));
    for (route, lane) in lanes() {
        if lane.state == LaneState::Halted {
            let halt = lane.halt.as_ref().map(ToString::to_string).unwrap_or_default();
            return Some(Err(format!("lane `{route}/{}` halted: {halt}", lane.sink)));
        }
    }
    let live = lanes().count() > 0 && lanes().all(|(_, lane)| lane.state == LaneState::Live);
    live.then_some(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::status::samples;

    #[test]
    fn all_lanes_have_to_be_live_and_one_that_halted_is_enough() {
        let check = |states: &[LaneState]| {
            settled(&samples::status(states.iter().map(|state| samples::lane("a", *state, 20, 20)).collect()))
        };
        use LaneState::{Bootstrapping, Halted, Live, Starting};
        assert_eq!(check(&[Live, Live]), Some(Ok(())));
        assert_eq!(check(&[Live, Bootstrapping]), None);
        assert_eq!(check(&[Starting]), None);
        assert_eq!(check(&[]), None);
        assert!(
            matches!(check(&[Live, Halted, Starting]), Some(Err(halt)) if halt.starts_with("lane `profiles/a` halted"))
        );
    }
}
