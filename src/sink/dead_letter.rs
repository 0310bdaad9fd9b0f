//! The lane's dead letters: rejected records as lines of JSON, with their cause, appended to one file.
//!
//! ```json
//! {"time":"2026-01-02T03:04:05.678Z","stage":"plugin","plugin":"mask","plugin_version":"1.2.0","cause":"no field `email`",
//!  "attempts":1,"topic":"users","partition":0,"offset":7,"timestamp":1700000000000,"key":"a","value":{"n":1}}
//! ```
//!
//! From `topic` on it is the record as it was received, in the format of [`crate::line`]. A letter is durable before its
//! record is acknowledged. A crash between the two brings the record again: its letter is then recognised among the last
//! ones of the file, by position, stage and cause, and not written twice.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;

use super::disk;
use crate::delivery::{Rejection, Stage};
use crate::line;
use crate::record::{Record, TopicPartition};

pub mod browse;

/// Bytes at the end of the file in which repeats are looked for when it is opened: more than a lane rejects between two
/// acknowledgements, short of one that rejects everything.
const RECALL_BYTES: u64 = 4 << 20;

/// Bytes of a cause that are kept. A plugin or a receiver writes it, so that it needs a limit.
const CAUSE_BYTES: usize = 2048;

/// Records are kept as they came, with what a plugin would have masked: for the gateway's own user only.
const MODE: u32 = 0o600;

/// Bytes that are gathered before they are handed to the file.
const WRITE_BYTES: usize = 1 << 20;

/// How often the log is told of letters.
const TELL_INTERVAL: Duration = Duration::from_secs(10);

/// One record to keep.
#[derive(Clone, Copy, Debug)]
pub struct Letter<'a> {
    pub partition: &'a TopicPartition,
    /// As it was received.
    pub record: Record<'a>,
    pub rejection: &'a Rejection,
}

/// The file, opened at the first letter, so that a lane without any leaves no trace.
#[derive(Debug)]
pub struct DeadLetters {
    path: PathBuf,
    open: Option<Open>,
    /// When the log was told last, and the letters since.
    told: Option<Instant>,
    untold: usize,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Everything below is whole lines, durable.
    length: u64,
    /// The letters that stood at the end when the file was opened and have not come again.
    recalled: HashSet<Identity>,
}

/// What makes a letter the same as another.
#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
struct Identity {
    topic: String,
    partition: i32,
    offset: i64,
    #[serde(default = "no_timestamp")]
    timestamp: i64,
    stage: String,
    cause: String,
}

impl DeadLetters {
    pub fn new(path: PathBuf) -> Self {
        Self { path, open: None, told: None, untold: 0 }
    }

    /// Appends `letters` and makes them durable; returns how many were not there already.
    ///
    /// # Errors
    /// When the disk refuses; nothing is left of `letters` then, and the same call may be made again.
    pub fn append(&mut self, letters: &[Letter<'_>]) -> io::Result<usize> {
        if letters.is_empty() {
            return Ok(0);
        }
        let open = match &mut self.open {
            Some(open) => open,
            closed => closed.insert(Open::at(&self.path)?),
        };
        let result = open.append(letters);
        if result.is_err() {
            // Opening anew cuts off what may stand behind the last whole line. What is cut here is known to be ours.
            let Some(open) = self.open.take() else { return result };
            open.file.set_len(open.length)?;
        }
        self.tell(*result.as_ref().unwrap_or(&0));
        result
    }

    /// Each letter has its cause in the file; the log only says that there are some.
    fn tell(&mut self, kept: usize) {
        self.untold += kept;
        if self.untold > 0 && self.told.is_none_or(|at| at.elapsed() >= TELL_INTERVAL) {
            let (letters, file) = (std::mem::take(&mut self.untold), self.path.display());
            self.told = Some(Instant::now());
            tracing::warn!(letters, %file, "records were rejected and are kept as dead letters");
        }
    }
}

impl Open {
    fn at(path: &Path) -> io::Result<Self> {
        let parent = disk::parent(path);
        disk::create_dirs(parent)?;
        let mut file = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(MODE).open(path)?;
        if !disk::try_lock(&file)? {
            return Err(io::Error::other("another lane or gateway writes to it"));
        }
        disk::sync_dir(parent)?;
        let length = whole_lines(&mut file)?;
        file.set_len(length)?;
        let recalled = recall(&mut file, length)?;
        file.seek(SeekFrom::Start(length))?;
        Ok(Self { file, length, recalled })
    }

    fn append(&mut self, letters: &[Letter<'_>]) -> io::Result<usize> {
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let mut lines = Vec::new();
        let mut repeats = Vec::new();
        let mut length = self.length;
        for letter in letters {
            let identity = Identity::of(letter);
            if self.recalled.contains(&identity) {
                repeats.push(identity);
                continue;
            }
            write_letter(&mut lines, letter, &time);
            if lines.len() >= WRITE_BYTES {
                self.file.write_all(&lines)?;
                length += lines.len() as u64;
                lines.clear();
            }
        }
        self.file.write_all(&lines)?;
        length += lines.len() as u64;
        self.file.sync_data()?;
        self.length = length;
        for repeat in &repeats {
            self.recalled.remove(repeat);
        }
        Ok(letters.len() - repeats.len())
    }
}

impl Identity {
    fn of(letter: &Letter<'_>) -> Self {
        Self {
            topic: letter.partition.topic.to_string(),
            partition: letter.partition.partition,
            offset: letter.record.offset,
            timestamp: letter.record.timestamp,
            stage: stage_name(&letter.rejection.stage).to_owned(),
            cause: shorten(&letter.rejection.cause).to_owned(),
        }
    }
}

fn no_timestamp() -> i64 {
    line::NO_TIMESTAMP
}

fn stage_name(stage: &Stage) -> &'static str {
    match stage {
        Stage::Key => "key",
        Stage::Plugin { .. } => "plugin",
        Stage::Sink => "sink",
    }
}

fn shorten(cause: &str) -> &str {
    &cause[..cause.floor_char_boundary(CAUSE_BYTES)]
}

fn write_letter(out: &mut Vec<u8>, letter: &Letter<'_>, time: &str) {
    let Rejection { stage, cause, attempts, .. } = letter.rejection;
    let (plugin, version) = match stage {
        Stage::Plugin { name, version } => (Some(&**name), Some(&**version)),
        Stage::Key | Stage::Sink => (None, None),
    };
    let head = Head {
        time,
        stage: stage_name(stage),
        plugin,
        plugin_version: version,
        cause: shorten(cause),
        attempts: *attempts,
    };
    serde_json::to_writer(&mut *out, &head).expect("a letter's head is always written to a vector");
    *out.last_mut().expect("the head ends with a brace") = b',';
    line::write_fields(out, letter.partition, &letter.record);
    out.extend_from_slice(b"}\n");
}

#[derive(serde::Serialize)]
struct Head<'a> {
    time: &'a str,
    stage: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin_version: Option<&'a str>,
    cause: &'a str,
    attempts: u32,
}

/// The length of `file` up to its last line break: a crash may have torn the line behind it.
fn whole_lines(file: &mut File) -> io::Result<u64> {
    const CHUNK: u64 = 64 << 10;
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut chunk = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(CHUNK);
        read_range(file, start, end, &mut chunk)?;
        if let Some(index) = chunk.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + index as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// The letters that stand whole in the last [`RECALL_BYTES`]. What is no letter is somebody's remark and left alone.
fn recall(file: &mut File, length: u64) -> io::Result<HashSet<Identity>> {
    let start = length.saturating_sub(RECALL_BYTES);
    let mut tail = Vec::new();
    read_range(file, start, length, &mut tail)?;
    let skip = usize::from(start > 0);
    Ok(tail.split(|byte| *byte == b'\n').skip(skip).filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

fn read_range(file: &mut File, start: u64, end: u64, into: &mut Vec<u8>) -> io::Result<()> {
    into.clear();
    file.seek(SeekFrom::Start(start))?;
    Read::take(file, end - start).read_to_end(into)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::OnError;
    use crate::record::Batch;
    use std::fs;

    fn rejection(stage: Stage, cause: &str) -> Rejection {
        Rejection { stage, cause: cause.to_owned(), policy: OnError::DeadLetter, attempts: 2 }
    }

    fn append(letters: &mut DeadLetters, offsets: &[i64], rejection: &Rejection) -> usize {
        let mut batch = Batch::new(TopicPartition::new("t", 1));
        for offset in offsets {
            batch.push(*offset, 5, Some(b"k"), Some(b"{\"a\": 1}"));
            batch.push_header(b"h", None);
        }
        let letters_of: Vec<_> =
            batch.iter().map(|record| Letter { partition: batch.partition(), record, rejection }).collect();
        letters.append(&letters_of).unwrap()
    }

    fn offsets(path: &Path) -> Vec<i64> {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().map(|line| serde_json::from_str::<Identity>(line).unwrap().offset).collect()
    }

    #[test]
    fn a_letter_says_why_and_where_and_holds_the_record() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dead/x.ndjson");
        let plugin = Stage::Plugin { name: "mask".into(), version: "1.2.0".into() };
        append(&mut DeadLetters::new(path.clone()), &[7], &rejection(plugin, "no \"x\""));
        let text = fs::read_to_string(&path).unwrap();
        let (head, rest) = text.split_once(",\"stage\"").unwrap();
        assert!(head.starts_with("{\"time\":\"20"), "{head}");
        assert_eq!(
            rest,
            ":\"plugin\",\"plugin\":\"mask\",\"plugin_version\":\"1.2.0\",\"cause\":\"no \\\"x\\\"\",\"attempts\":2,\
             \"topic\":\"t\",\"partition\":1,\"offset\":7,\"timestamp\":5,\"key\":\"k\",\"value\":{\"a\": 1},\
             \"headers\":[[\"h\",null]]}\n"
        );
    }

    #[test]
    fn only_the_gateways_user_may_read_them() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        append(&mut DeadLetters::new(path.clone()), &[1], &rejection(Stage::Key, "c"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn nothing_to_keep_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        DeadLetters::new(path.clone()).append(&[]).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_repeat_after_a_crash_is_recognised_and_another_cause_is_not_a_repeat() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let cause = rejection(Stage::Sink, "one");
        assert_eq!(append(&mut DeadLetters::new(path.clone()), &[1, 2, 3], &cause), 3);
        let mut again = DeadLetters::new(path.clone());
        assert_eq!(append(&mut again, &[2, 3, 4], &cause), 1);
        assert_eq!(append(&mut again, &[3], &rejection(Stage::Sink, "two")), 1);
        assert_eq!(append(&mut again, &[3], &rejection(Stage::Key, "one")), 1);
        assert_eq!(offsets(&path), [1, 2, 3, 4, 3, 3]);
    }

    #[test]
    fn wherever_a_crash_tears_the_last_lines_only_whole_ones_remain() {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join("whole");
        let cause = rejection(Stage::Sink, "é");
        append(&mut DeadLetters::new(whole.clone()), &[1, 2, 3], &cause);
        let bytes = fs::read(&whole).unwrap();
        for cut in 0..=bytes.len() {
            let torn = dir.path().join(format!("torn{cut}"));
            fs::write(&torn, &bytes[..cut]).unwrap();
            append(&mut DeadLetters::new(torn.clone()), &[1, 2, 3, 4], &cause);
            assert_eq!(offsets(&torn), [1, 2, 3, 4], "cut at {cut}");
        }
    }

    #[test]
    fn a_torn_line_longer_than_what_follows_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let cause = rejection(Stage::Sink, "c");
        append(&mut DeadLetters::new(path.clone()), &[1], &cause);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], &b"x".repeat(200_000)].concat()).unwrap();
        append(&mut DeadLetters::new(path.clone()), &[2], &cause);
        assert_eq!(offsets(&path), [1, 2]);
    }

    #[test]
    fn a_file_of_another_writer_is_refused_until_it_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let cause = rejection(Stage::Sink, "c");
        let mut first = DeadLetters::new(path.clone());
        append(&mut first, &[1], &cause);
        let mut second = DeadLetters::new(path.clone());
        let batch = {
            let mut batch = Batch::new(TopicPartition::new("t", 1));
            batch.push(2, 0, None, None);
            batch
        };
        let record = batch.iter().next().unwrap();
        let letter = Letter { partition: batch.partition(), record, rejection: &cause };
        let error = second.append(&[letter]).unwrap_err();
        assert_eq!(error.to_string(), "another lane or gateway writes to it");
        drop(first);
        assert_eq!(second.append(&[letter]).unwrap(), 1);
    }

    #[test]
    fn a_long_cause_is_cut_between_characters() {
        assert_eq!(shorten(&"é".repeat(CAUSE_BYTES)).len(), CAUSE_BYTES);
        assert_eq!(shorten(&format!("x{}", "é".repeat(CAUSE_BYTES))).len(), CAUSE_BYTES - 1);
    }
}
