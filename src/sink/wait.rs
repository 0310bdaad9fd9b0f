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

    /// Says that the sink goes on, if it was waiting.
    pub fn end(&mut self, context: &Context) {
        if std::mem::take(&mut self.shown) {
            info!(route = context.route, sink = context.sink.name, "goes on");
            (context.waiting)(None);
        }
    }
}
