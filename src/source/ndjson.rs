//! A file as a topic of one partition: one record per line, in the format of [`crate::line`].
//!
//! A line's topic and partition are not looked at. A line without an offset has the one after the line before, the first
//! one 0; offsets ascend. Empty lines are allowed. The file is read once, from the start offset that the lane gives to its
//! end as it is when it is reached.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use super::{CommitMode, Demand, Event, Health, Progress, Source};
use crate::config::Ndjson;
use crate::line::Line;
use crate::record::{Batch, NextOffset, TopicPartition};

/// The longest line: the biggest record that a broker takes when it is told to take big ones, as base64.
const MAX_LINE_BYTES: usize = 256 << 20;

/// Records of one batch at most, so that a plugin gets no more in one call than from Kafka.
const MAX_BATCH_RECORDS: usize = 1000;

pub struct NdjsonSource {
    path: PathBuf,
    partition: TopicPartition,
    state: State,
    ready: VecDeque<Event>,
    line: Vec<u8>,
    line_number: u64,
    /// Told when the records before it are handed over.
    failed: Option<anyhow::Error>,
    /// The offset of the next line that says none, which no line may lie below.
    next: i64,
    /// Lines below are passed over.
    start: i64,
}

enum State {
    /// The partition was not told yet.
    New,
    /// It was told, and the answer is awaited.
    Told,
    Reading(BufReader<File>),
    Ended,
}

impl NdjsonSource {
    pub fn new(settings: &Ndjson) -> Self {
        Self {
            path: settings.path.clone(),
            partition: TopicPartition::new(settings.topic.as_str(), 0),
            state: State::New,
            ready: VecDeque::new(),
            line: Vec::new(),
            line_number: 0,
            failed: None,
            next: 0,
            start: 0,
        }
    }

    /// Reads until the demand is met or the file ends; tells whether it has ended.
    fn read(&mut self, demand: Demand) -> anyhow::Result<(Batch, bool)> {
        let mut batch = Batch::new(self.partition.clone());
        while batch.len() < demand.records.min(MAX_BATCH_RECORDS) && batch.data_bytes() < demand.bytes {
            if !self.next_line()? {
                return Ok((batch, true));
            }
            if let Err(error) = self.take_line(&mut batch).with_context(|| self.place()) {
                if batch.is_empty() {
                    return Err(error);
                }
                self.failed = Some(error);
                return Ok((batch, false));
            }
        }
        Ok((batch, false))
    }

    /// Reads one line; `false` = there is none.
    fn next_line(&mut self) -> anyhow::Result<bool> {
        let State::Reading(reader) = &mut self.state else { return Ok(false) };
        self.line.clear();
        let read = reader.by_ref().take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut self.line);
        let read = read.with_context(|| format!("failed to read `{}`", self.path.display()))?;
        self.line_number += 1;
        ensure!(read <= MAX_LINE_BYTES, "{}: longer than {MAX_LINE_BYTES} bytes", self.place());
        Ok(read > 0)
    }

    fn take_line(&mut self, batch: &mut Batch) -> anyhow::Result<()> {
        if self.line.trim_ascii().is_empty() {
            return Ok(());
        }
        let line = Line::parse(&self.line)?;
        let offset = line.offset.unwrap_or(self.next);
        ensure!(
            offset >= self.next && offset < i64::MAX,
            "offset {offset} comes too late: the one of the line before is {}",
            self.next - 1
        );
        self.next = offset + 1;
        if offset >= self.start {
            line.push_to(batch, offset);
        }
        Ok(())
    }

    fn place(&self) -> String {
        format!("{}:{}", self.path.display(), self.line_number)
    }

    fn end(&mut self) {
        self.state = State::Ended;
        let end = Some(NextOffset(self.next.max(self.start)));
        let progress = Progress { partition: self.partition.clone(), low: Some(0), end, position: end };
        self.ready.extend([Event::Progress(vec![progress]), Event::Health(Health::Ended)]);
    }
}

impl Source for NdjsonSource {
    fn poll(&mut self, demand: Demand, wait: Duration) -> anyhow::Result<Event> {
        if let Some(event) = self.ready.pop_front() {
            return Ok(event);
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match self.state {
            State::New => {
                self.state = State::Told;
                return Ok(Event::Assign(vec![self.partition.clone()]));
            }
            State::Reading(_) if !demand.is_none() => {
                let (batch, ended) = self.read(demand)?;
                if ended {
                    self.end();
                }
                if !batch.is_empty() {
                    return Ok(Event::Records(vec![batch]));
                }
                // Lines below the start, and empty ones, are no reason to wait.
                return Ok(self.ready.pop_front().unwrap_or(Event::Idle));
            }
            _ => std::thread::sleep(wait),
        }
        Ok(Event::Idle)
    }

    fn assign(&mut self, starts: &[(TopicPartition, Option<NextOffset>)]) -> anyhow::Result<()> {
        let [(partition, start)] = starts else { bail!("a file has one partition") };
        ensure!(*partition == self.partition && matches!(self.state, State::Told), "no assignment waits for an answer");
        let file = File::open(&self.path).with_context(|| format!("failed to open `{}`", self.path.display()))?;
        self.start = start.map_or(0, |start| start.0);
        self.state = State::Reading(BufReader::with_capacity(1 << 16, file));
        self.ready.push_back(Event::Health(Health::Ready));
        Ok(())
    }

    fn release(&mut self, _: &[TopicPartition]) -> anyhow::Result<()> {
        bail!("a file is never revoked")
    }

    /// Nothing: only a sink that keeps its own offsets goes on where it was.
    fn commit(&mut self, _: &[(TopicPartition, NextOffset)], _: CommitMode) -> anyhow::Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>, _: Duration) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const ALL: Demand = Demand { records: usize::MAX, bytes: usize::MAX };

    fn source(text: &str) -> (NdjsonSource, tempfile::NamedTempFile) {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        let settings = Ndjson { path: file.path().to_owned(), topic: "t".to_owned() };
        (NdjsonSource::new(&settings), file)
    }

    /// Offsets in the order in which they come, per batch, and the end.
    fn read(text: &str, demand: Demand, start: Option<i64>) -> anyhow::Result<(Vec<Vec<i64>>, i64)> {
        let (mut source, _file) = source(text);
        let (mut batches, mut end) = (Vec::new(), None);
        loop {
            match source.poll(demand, Duration::ZERO)? {
                Event::Assign(partitions) => {
                    source.assign(&[(partitions[0].clone(), start.map(NextOffset))])?;
                }
                Event::Records(records) => batches.extend(records.iter().map(|batch| batch.offsets().to_vec())),
                Event::Progress(progress) => end = progress[0].position,
                Event::Health(Health::Ended) => return Ok((batches, end.expect("the end is told first").0)),
                Event::Idle | Event::Health(Health::Ready) => {}
                event => panic!("{event:?}"),
            }
        }
    }

    #[test]
    fn lines_get_the_offsets_that_they_say_or_the_next_one() {
        let text = "{\"value\":1}\n\n{\"value\":2,\"offset\":7}\r\n{\"value\":null}";
        assert_eq!(read(text, ALL, None).expect("valid"), (vec![vec![0, 7, 8]], 9));
        assert_eq!(read(text, ALL, Some(8)).expect("valid"), (vec![vec![8]], 9));
        assert_eq!(read(text, ALL, Some(20)).expect("valid"), (vec![], 20));
        assert_eq!(read("", ALL, None).expect("valid"), (vec![], 0));
    }

    #[test]
    fn the_demand_bounds_a_batch() {
        let text = "{\"value\":1}\n".repeat(5);
        let two = Demand { records: 2, bytes: usize::MAX };
        assert_eq!(read(&text, two, None).expect("valid").0, [vec![0, 1], vec![2, 3], vec![4]]);
        let bytes = Demand { records: usize::MAX, bytes: 3 };
        assert_eq!(read(&text, bytes, None).expect("valid").0, [vec![0, 1, 2], vec![3, 4]]);
    }

    fn check_error(text: &str, expected: &str) {
        let error = format!("{:#}", read(text, ALL, None).expect_err("not valid"));
        assert!(error.ends_with(expected), "{error}");
    }

    #[test]
    fn a_line_that_is_no_record_is_an_error_with_its_place() {
        check_error(
            "{\"value\":1}\n\n{\"key\":\"k\"}\n",
            ":3: neither `value` nor `value_base64` is given; a tombstone is `\"value\":null`",
        );
        check_error(
            "{\"value\":1,\"offset\":4}\n{\"value\":1,\"offset\":4}\n",
            ":2: offset 4 comes too late: the one of the line before is 4",
        );
    }

    #[test]
    fn the_records_before_an_error_are_handed_over() {
        let (mut source, _file) = source("{\"value\":1}\n{\n");
        let partition = TopicPartition::new("t", 0);
        source.poll(ALL, Duration::ZERO).expect("the partition");
        source.assign(&[(partition, None)]).expect("it is answered");
        source.poll(ALL, Duration::ZERO).expect("it is open");
        assert!(matches!(source.poll(ALL, Duration::ZERO), Ok(Event::Records(_))));
        source.poll(ALL, Duration::ZERO).expect_err("the second line");
    }

    #[test]
    fn nothing_is_read_without_demand() {
        let (mut source, _file) = source("{\"value\":1}\n");
        let Event::Assign(partitions) = source.poll(Demand::NONE, Duration::ZERO).expect("an event") else {
            panic!("the partition comes first")
        };
        source.assign(&[(partitions[0].clone(), None)]).expect("it is answered");
        assert!(matches!(source.poll(Demand::NONE, Duration::ZERO), Ok(Event::Health(Health::Ready))));
        assert!(matches!(source.poll(Demand::NONE, Duration::ZERO), Ok(Event::Idle)));
        assert!(matches!(source.poll(ALL, Duration::ZERO), Ok(Event::Records(_))));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let mut source = NdjsonSource::new(&Ndjson { path: "/nowhere/x.ndjson".into(), topic: "t".to_owned() });
        source.poll(ALL, Duration::ZERO).expect("the partition");
        let error = source.assign(&[(TopicPartition::new("t", 0), None)]).expect_err("there is no file");
        assert_eq!(error.to_string(), "failed to open `/nowhere/x.ndjson`");
    }
}
