//! What a sink has asked for and not been answered: a service that takes requests and says nothing, a disk that takes
//! minutes over a write. Only the clock tells that from work that goes on, so a lane shows it by itself.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A write or request that takes longer than this is shown.
const SHOWN_AFTER: Duration = Duration::from_secs(2);

/// Since when the sink has heard nothing of what it asked for.
#[derive(Debug, Default)]
pub struct UnderWay(Mutex<Option<Instant>>);

impl UnderWay {
    /// Something is asked for, or was answered while more is under way: the clock starts.
    pub fn begin(&self) {
        self.set(Some(Instant::now()));
    }

    /// Nothing is under way any more.
    pub fn end(&self) {
        self.set(None);
    }

    /// What to show, once it has taken too long.
    pub fn silence(&self) -> Option<String> {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        words(since?.elapsed())
    }

    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

fn words(silence: Duration) -> Option<String> {
    (silence >= SHOWN_AFTER).then(|| format!("the sink has not answered for {} s", silence.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_silence_is_shown() {
        assert_eq!(words(SHOWN_AFTER - Duration::from_millis(1)), None);
        assert_eq!(words(Duration::from_millis(12_900)).as_deref(), Some("the sink has not answered for 12 s"));
        let under_way = UnderWay::default();
        assert_eq!(under_way.silence(), None);
        let long_ago = Instant::now().checked_sub(Duration::from_secs(60));
        under_way.set(long_ago);
        assert_eq!(under_way.silence().is_some(), long_ago.is_some());
        under_way.begin();
        assert_eq!(under_way.silence(), None, "an answer starts the clock anew");
        under_way.set(long_ago);
        under_way.end();
        assert_eq!(under_way.silence(), None);
    }
}
