//! A file as a topic of one partition: for tests, samples and dry runs. Its lines are those of [`crate::line`].
//!
//! A line's `offset` counts when it is given, and must be above the one before; otherwise it is the one before plus one,
//! from 0. Its `topic` and `partition` do not count, so that what a file sink wrote can be read back. Nothing is committed:
//! a sink that keeps its own offsets goes on behind them, any other gets the file from its beginning at each start.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use super::{CommitMode, Demand, Event, Health, Progress, Source};
use crate::config::Ndjson;
use crate::line::Line;
use crate::record::{Batch, NextOffset, TopicPartition};

/// The longest line, in bytes: beyond what any broker takes as a record.
const MAX_LINE: u64 = 64 << 20;

/// How often a file that is not there is looked for.
const OPEN_INTERVAL: Duration = Duration::from_millis(500);

pub struct NdjsonSource {
    path: PathBuf,
    partition: TopicPartition,
    /// What is to be told before anything else.
    events: VecDeque<Event>,
    state: State,
    /// Where records begin to be handed over.
    start: NextOffset,
    /// Of the next line that does not give its own.
    next: NextOffset,
    /// Lines read.
    lines: u64,
    /// What is wrong with the line behind the records handed over last.
    broken: Option<anyhow::Error>,
}

enum State {
    /// Waiting for the answer to the assignment.
    Offered,
    /// The file could not be opened yet; `told` = that it was said.
    Closed {
        told: bool,
    },
    Reading(BufReader<File>),
    Ended,
}

impl NdjsonSource {
    pub fn new(settings: &Ndjson) -> Self {
        let partition = TopicPartition::new(settings.topic.as_str(), 0);
        let events = VecDeque::from([Event::Assign(vec![partition.clone()])]);
        let (start, next) = (NextOffset(0), NextOffset(0));
        Self {
            path: settings.path.clone(),
            partition,
            events,
            state: State::Offered,
            start,
            next,
            lines: 0,
            broken: None,
        }
    }

    fn open(&mut self, told: bool) -> Event {
        match File::open(&self.path) {
            Ok(file) => {
                self.state = State::Reading(BufReader::new(file));
                Event::Health(Health::Ready)
            }
            Err(error) => {
                self.state = State::Closed { told: true };
                let reason = format!("cannot open `{}`: {error}", self.path.display());
                if told { Event::Idle } else { Event::Health(Health::Connecting { reason }) }
            }
        }
    }

    fn read(&mut self, demand: Demand) -> anyhow::Result<Event> {
        let mut batch = Batch::new(self.partition.clone());
        let mut line = Vec::new();
        while batch.len() < demand.records && batch.data_bytes() < demand.bytes {
            let State::Reading(file) = &mut self.state else { break };
            line.clear();
            let length = file.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line);
            if length.with_context(|| format!("cannot read `{}`", self.path.display()))? == 0 {
                self.end();
                break;
            }
            self.lines += 1;
            if let Err(error) = self.push(&line, &mut batch) {
                let place = format!("`{}`, line {}", self.path.display(), self.lines);
                self.broken = Some(error.context(place));
                self.state = State::Ended;
            }
        }
        if batch.is_empty() {
            Ok(self.events.pop_front().unwrap_or(Event::Idle))
        } else {
            Ok(Event::Records(vec![batch]))
        }
    }

    fn push(&mut self, line: &[u8], batch: &mut Batch) -> anyhow::Result<()> {
        ensure!(line.len() as u64 <= MAX_LINE, "the line is longer than {MAX_LINE} bytes");
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let line = Line::parse(line)?;
        let offset = line.offset.unwrap_or(self.next.0);
        if offset < self.next.0 {
            bail!("`offset` is {offset}, expected at least {}: offsets ascend", self.next);
        }
        self.next = NextOffset(offset + 1);
        if offset >= self.start.0 {
            line.push_to(batch, offset);
        }
        Ok(())
    }

    /// Only now is it known where the file ends.
    fn end(&mut self) {
        self.state = State::Ended;
        let end = Some(self.next.max(self.start));
        let progress = Progress { partition: self.partition.clone(), low: Some(0), end, position: end };
        self.events.push_back(Event::Progress(vec![progress]));
        self.events.push_back(Event::Health(Health::Ended));
    }
}

impl Source for NdjsonSource {
    fn poll(&mut self, demand: Demand, wait: Duration) -> anyhow::Result<Event> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        if let Some(event) = self.events.pop_front() {
            return Ok(event);
        }
        match self.state {
            State::Reading(_) if !demand.is_none() => return self.read(demand),
            State::Closed { told: false } => return Ok(self.open(false)),
            State::Closed { told: true } => {
                thread::sleep(wait.min(OPEN_INTERVAL));
                return Ok(self.open(true));
            }
            State::Offered | State::Reading(_) | State::Ended => thread::sleep(wait),
        }
        Ok(Event::Idle)
    }

    fn assign(&mut self, starts: &[(TopicPartition, Option<NextOffset>)]) -> anyhow::Result<()> {
        self.start = starts.first().and_then(|(_, start)| *start).unwrap_or(NextOffset(0));
        self.state = State::Closed { told: false };
        Ok(())
    }

    fn release(&mut self, _: &[TopicPartition]) -> anyhow::Result<()> {
        self.state = State::Ended;
        Ok(())
    }

    fn commit(&mut self, _: &[(TopicPartition, NextOffset)], _: CommitMode) -> anyhow::Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>, _: Duration) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that a source tells of a file with `text`, read from `start`, until it ended or failed.
    fn told(text: &str, start: Option<i64>) -> Result<(Vec<i64>, Vec<Event>), String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("records.ndjson");
        std::fs::write(&path, text).unwrap();
        let mut source = NdjsonSource::new(&Ndjson { path, topic: "t".to_owned() });
        let demand = Demand { records: 2, bytes: 1 << 20 };
        let (mut offsets, mut events) = (Vec::new(), Vec::new());
        loop {
            match source
                .poll(demand, Duration::ZERO)
                .map_err(|error| format!("{error:#}").replace(&dir.path().display().to_string(), ""))?
            {
                Event::Assign(partitions) => source.assign(&[(partitions[0].clone(), start.map(NextOffset))]).unwrap(),
                Event::Records(batches) => offsets.extend(batches.iter().flat_map(|batch| batch.offsets().to_vec())),
                Event::Health(Health::Ended) => return Ok((offsets, events)),
                other => events.push(other),
            }
        }
    }

    fn end(events: &[Event]) -> Option<i64> {
        events.iter().find_map(|event| match event {
            Event::Progress(progress) => progress[0].position.map(|position| position.0),
            _ => None,
        })
    }

    #[test]
    fn lines_are_numbered_and_given_offsets_count() {
        let (offsets, events) =
            told("{\"value\":1}\n{\"value\":2}\n\n{\"value\":null,\"offset\":7}\n{\"value\":3}", None).unwrap();
        assert_eq!(offsets, [0, 1, 7, 8]);
        assert_eq!(end(&events), Some(9));
    }

    #[test]
    fn what_a_sink_has_is_not_handed_over_again() {
        let (offsets, events) = told("{\"value\":1}\n{\"value\":2}\n{\"value\":3}\n", Some(2)).unwrap();
        assert_eq!((offsets, end(&events)), (vec![2], Some(3)));
    }

    #[test]
    fn an_empty_file_ends_at_once() {
        let (offsets, events) = told("", None).unwrap();
        assert_eq!((offsets, end(&events)), (vec![], Some(0)));
    }

    #[test]
    fn a_broken_line_is_told_with_its_number() {
        let error = told("{\"value\":1}\n{\"vaule\":2}\n", None).unwrap_err();
        assert!(error.starts_with("`/records.ndjson`, line 2: unknown field `vaule`"), "{error}");
        let error = told("{\"value\":1,\"offset\":3}\n{\"value\":2,\"offset\":3}\n", None).unwrap_err();
        assert_eq!(error, "`/records.ndjson`, line 2: `offset` is 3, expected at least 4: offsets ascend");
    }

    #[test]
    fn a_missing_file_is_a_state() {
        let mut source = NdjsonSource::new(&Ndjson { path: "/nowhere/at/all".into(), topic: "t".to_owned() });
        let demand = Demand { records: 1, bytes: 1 };
        assert!(matches!(source.poll(demand, Duration::ZERO), Ok(Event::Assign(_))));
        source.assign(&[]).unwrap();
        assert!(matches!(source.poll(demand, Duration::ZERO), Ok(Event::Health(Health::Connecting { .. }))));
        assert!(matches!(source.poll(demand, Duration::ZERO), Ok(Event::Idle)));
    }
}
