//! What is known of the connection, from several sides, and the one thing to tell of it.

use crate::source::Health;

/// Pure: what was told last, and what would be told now.
#[derive(Debug, Default)]
pub struct Watch {
    /// Whether the broker ever answered.
    heard: bool,
    /// No broker answers; the reason.
    down: Option<String>,
    missing: Vec<String>,
    /// The broker refuses a topic.
    topic: Option<String>,
    /// The broker refuses the group.
    group: Option<String>,
    /// The client's last own word on a failure, which says more than a request's "timed out".
    word: Option<String>,
    told: Option<Health>,
}

impl Watch {
    /// A failure that librdkafka tells of; by itself it proves nothing, since it may be one broker of several.
    pub fn failed(&mut self, reason: &str) {
        // The time that it took differs each time.
        self.word = Some(reason.split(" (after ").next().unwrap_or(reason).to_owned());
    }

    pub fn unreachable(&mut self, reason: String) {
        self.down = Some(self.word.clone().unwrap_or(reason));
    }

    pub fn answered(&mut self, missing: &[String], refused: Option<String>) {
        (self.heard, self.down, self.word) = (true, None, None);
        self.missing = missing.to_vec();
        self.topic = refused;
    }

    pub fn group_refused(&mut self, reason: Option<String>) {
        self.group = reason;
    }

    /// What to tell, when it is something else than before. `partition` is why one of ours cannot be read.
    pub fn news(&mut self, partition: Option<&str>) -> Option<Health> {
        let trouble = [self.down.as_deref(), self.topic.as_deref(), self.group.as_deref(), partition];
        let health = match trouble.into_iter().flatten().next() {
            Some(reason) => Health::Connecting { reason: reason.to_owned() },
            None if !self.missing.is_empty() => Health::MissingTopic { topics: self.missing.clone() },
            None if self.heard => Health::Ready,
            None => return None,
        };
        if self.told.as_ref() == Some(&health) {
            return None;
        }
        self.told = Some(health.clone());
        Some(health)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connecting(reason: &str) -> Option<Health> {
        Some(Health::Connecting { reason: reason.to_owned() })
    }

    #[test]
    fn nothing_is_told_before_the_broker_answered_or_failed() {
        assert_eq!(Watch::default().news(None), None);
    }

    #[test]
    fn a_change_is_told_once() {
        let mut watch = Watch::default();
        watch.answered(&[], None);
        assert_eq!(watch.news(None), Some(Health::Ready));
        assert_eq!(watch.news(None), None);
        watch.failed("b:1/1: connect failed: refused (after 3ms in state CONNECT)");
        assert_eq!(watch.news(None), None);
        watch.unreachable("timed out".to_owned());
        assert_eq!(watch.news(None), connecting("b:1/1: connect failed: refused"));
        watch.failed("b:1/1: connect failed: refused (after 9ms in state CONNECT)");
        watch.unreachable("timed out".to_owned());
        assert_eq!(watch.news(None), None);
        watch.answered(&["t".to_owned()], None);
        assert_eq!(watch.news(None), Some(Health::MissingTopic { topics: vec!["t".to_owned()] }));
        watch.answered(&[], None);
        assert_eq!(watch.news(None), Some(Health::Ready));
    }

    #[test]
    fn what_the_broker_refuses_is_told_until_it_is_allowed() {
        let mut watch = Watch::default();
        watch.answered(&[], Some("topic `t`: not authorised".to_owned()));
        assert_eq!(watch.news(None), connecting("topic `t`: not authorised"));
        watch.answered(&[], None);
        watch.group_refused(Some("group".to_owned()));
        assert_eq!(watch.news(Some("t[0]")), connecting("group"));
        watch.group_refused(None);
        assert_eq!(watch.news(Some("t[0]")), connecting("t[0]"));
        assert_eq!(watch.news(None), Some(Health::Ready));
    }
}
