//! Shows what a sink waits for, and that it goes on, each once.

use tracing::info;

use super::Context;

#[derive(Debug, Default)]
pub struct Wait {
    shown: bool,
}

impl Wait {
    pub fn is_shown(&self) -> bool {
        self.shown
    }

    pub fn show(&mut self, context: &Context, reason: String) {
        self.shown = true;
        (context.waiting)(Some(reason));
    }

    /// What was waited for has come. Says so, if the sink was waiting.
    pub fn end(&mut self, context: &Context) {
        if self.shown {
            info!(route = context.route, sink = context.sink.name, "sink goes on");
        }
        self.give_up(context);
    }

    /// Nothing is waited for any more, and nothing has come: what was tried is given up, somebody else's, or halts the lane.
    pub fn give_up(&mut self, context: &Context) {
        if std::mem::take(&mut self.shown) {
            (context.waiting)(None);
        }
    }
}
