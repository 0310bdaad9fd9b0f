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

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::config::SinkKind;
    use crate::sink::testing::Lane;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged and shown while a sink does `this`.
    fn check(this: impl Fn(&mut Wait, &Context), logged: usize, shown: &[Option<&str>]) {
        let dir = tempfile::tempdir().unwrap();
        let lane = Lane::new(dir.path(), SinkKind::Discard);
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || this(&mut Wait::default(), &lane.context));
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(log.matches("sink goes on").count(), logged, "{log}");
        let waits = lane.waits.lock().unwrap();
        assert_eq!(waits.iter().map(Option::as_deref).collect::<Vec<_>>(), shown);
    }

    #[test]
    fn a_sink_goes_on_once_and_only_when_what_it_waited_for_came() {
        let reason = || "the disk is full".to_owned();
        let waited = [Some("the disk is full"), None];
        check(
            |wait, context| {
                wait.show(context, reason());
                wait.end(context);
                wait.end(context);
            },
            1,
            &waited,
        );
        check(
            |wait, context| {
                wait.show(context, reason());
                wait.give_up(context);
                wait.end(context);
            },
            0,
            &waited,
        );
        check(|wait, context| wait.end(context), 0, &[]);
    }
}
