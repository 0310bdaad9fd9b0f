//! How far a partition is finished: a pure value.
//!
//! Spans of received records go in, in order; they are finished in any order; only the head moves. Contiguity is judged
//! over what was *received*, never over integers, since compaction and transaction markers leave holes.
//!
//! | pending spans            | head (what may be committed)                      |
//! |--------------------------|---------------------------------------------------|
//! | none                     | the fetch position: past markers and holes        |
//! | the oldest is unfinished | the first offset of that span that is             |
//! | the oldest is finished   | moves to the next unfinished one, or as for none  |
//!
//! The head never moves backwards.

use std::collections::VecDeque;

use crate::record::NextOffset;

/// Identifies one received span within its [`Checkpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

#[derive(Debug)]
struct Span {
    first: i64,
    finished: bool,
}

/// The progress of one assigned partition.
#[derive(Debug)]
pub struct Checkpoint {
    /// Received and not yet behind the head, oldest first.
    pending: VecDeque<Span>,
    /// The ticket number of `pending[0]`.
    base: u64,
    /// Everything visible below was received.
    position: Option<NextOffset>,
    head: Option<NextOffset>,
}

impl Checkpoint {
    /// `start` is the offset that reading begins at, when it is known; `None` = wherever the first record stands.
    pub fn new(start: Option<NextOffset>) -> Self {
        Self { pending: VecDeque::new(), base: 0, position: start, head: start }
    }

    /// Records from offset `first` up to but excluding `next` were received. Spans come in ascending order; one that
    /// begins below what was already received is a fault of the caller: a source that goes back is an error of the source.
    pub fn received(&mut self, first: i64, next: NextOffset) -> Ticket {
        debug_assert!(first < next.0 && self.position.is_none_or(|position| first >= position.0));
        self.pending.push_back(Span { first, finished: false });
        self.position = self.position.max(Some(next));
        self.settle();
        Ticket(self.base + self.pending.len() as u64 - 1)
    }

    /// The span of `ticket` is finished: each output acknowledged, dropped, or safe as a dead letter. Finishing twice is
    /// harmless.
    pub fn finished(&mut self, ticket: Ticket) {
        let index = ticket.0.checked_sub(self.base).and_then(|index| usize::try_from(index).ok());
        if let Some(span) = index.and_then(|index| self.pending.get_mut(index)) {
            span.finished = true;
        }
        self.settle();
    }

    /// Of the span of `ticket`, only what is below `next` is finished, and the rest is given up for now.
    pub fn finished_up_to(&mut self, ticket: Ticket, next: NextOffset) {
        let index = ticket.0.checked_sub(self.base).and_then(|index| usize::try_from(index).ok());
        if let Some(span) = index.and_then(|index| self.pending.get_mut(index)) {
            span.first = span.first.max(next.0);
        }
        self.settle();
    }

    /// Everything visible below `position` was received: what the consumer knows when its queue is empty, and the only
    /// knowledge of trailing markers and holes.
    pub fn fetched(&mut self, position: NextOffset) {
        self.position = self.position.max(Some(position));
        self.settle();
    }

    /// Everything below is finished: what may be committed. `None` = nothing is known yet.
    pub fn head(&self) -> Option<NextOffset> {
        self.head
    }

    /// Whether any span is received and not finished.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    fn settle(&mut self) {
        while self.pending.front().is_some_and(|span| span.finished) {
            self.pending.pop_front();
            self.base += 1;
        }
        let head = self.pending.front().map(|span| NextOffset(span.first)).or(self.position);
        self.head = self.head.max(head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_head_moves() {
        let mut checkpoint = Checkpoint::new(Some(NextOffset(0)));
        let first = checkpoint.received(0, NextOffset(5));
        let second = checkpoint.received(9, NextOffset(12));
        checkpoint.finished(second);
        assert_eq!(checkpoint.head(), Some(NextOffset(0)));
        checkpoint.finished(first);
        assert_eq!(checkpoint.head(), Some(NextOffset(12)));
    }

    #[test]
    fn what_is_finished_of_a_span_that_was_cut_counts() {
        let mut checkpoint = Checkpoint::new(Some(NextOffset(0)));
        let first = checkpoint.received(0, NextOffset(5));
        let second = checkpoint.received(5, NextOffset(12));
        checkpoint.finished_up_to(second, NextOffset(8));
        assert_eq!(checkpoint.head(), Some(NextOffset(0)));
        checkpoint.finished(first);
        assert_eq!(checkpoint.head(), Some(NextOffset(8)));
        assert!(!checkpoint.is_idle());
    }

    #[test]
    fn trailing_markers_are_covered_by_the_fetch_position_only_when_nothing_is_pending() {
        let mut checkpoint = Checkpoint::new(Some(NextOffset(0)));
        let ticket = checkpoint.received(0, NextOffset(5));
        checkpoint.fetched(NextOffset(6));
        assert_eq!(checkpoint.head(), Some(NextOffset(0)));
        checkpoint.finished(ticket);
        assert_eq!(checkpoint.head(), Some(NextOffset(6)));
    }

    #[test]
    fn a_log_that_begins_above_zero_has_its_head_there() {
        let mut checkpoint = Checkpoint::new(None);
        assert_eq!(checkpoint.head(), None);
        let ticket = checkpoint.received(3, NextOffset(4));
        assert_eq!(checkpoint.head(), Some(NextOffset(3)));
        checkpoint.finished(ticket);
        assert_eq!(checkpoint.head(), Some(NextOffset(4)));
    }

    proptest! {
        /// Against a model that keeps every received record in a list and looks for the first unfinished one.
        #[test]
        fn the_head_is_the_first_unfinished_record(
            spans in proptest::collection::vec((0i64..3, 1i64..4), 1..30),
            steps in proptest::collection::vec((any::<bool>(), any::<proptest::sample::Index>(), 0i64..3), 0..90),
        ) {
            let mut checkpoint = Checkpoint::new(Some(NextOffset(0)));
            let mut model: Vec<(i64, bool)> = Vec::new();
            let mut tickets = Vec::new();
            let (mut position, mut head) = (0i64, 0i64);
            let mut spans = spans.into_iter();
            for (receive, which, tail) in steps {
                if receive {
                    let Some((hole, length)) = spans.next() else { continue };
                    let first = position + hole;
                    position = first + length;
                    tickets.push(checkpoint.received(first, NextOffset(position)));
                    model.push((first, false));
                } else if !tickets.is_empty() && tail > 0 {
                    let index = which.index(tickets.len());
                    checkpoint.finished(tickets[index]);
                    model[index].1 = true;
                } else {
                    position += tail;
                    checkpoint.fetched(NextOffset(position));
                }
                let expected = model.iter().find(|(_, done)| !done).map_or(position, |(first, _)| *first);
                prop_assert!(expected >= head, "the model itself never moves backwards");
                head = expected;
                prop_assert_eq!(checkpoint.head(), Some(NextOffset(head)));
                prop_assert_eq!(checkpoint.is_idle(), model.iter().all(|(_, done)| *done));
            }
        }
    }
}
