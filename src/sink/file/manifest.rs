//! How much of each file counts, and which offsets that covers: replaced as a whole.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::record::{NextOffset, TopicPartition};
use crate::sink::{Positions, disk};

const FORMAT: u32 = 1;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// By the relative path of a file's first segment.
    pub files: BTreeMap<String, Place>,
    pub positions: Positions,
}

/// The segment that is written to, and the length up to which it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub segment: u32,
    pub length: u64,
    /// When its first line was written, in milliseconds since 1970. `None` = it has none yet, or an earlier version wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<i64>,
}

impl Place {
    /// The file that comes after it.
    pub fn next(self) -> Self {
        Self { segment: self.segment + 1, length: 0, begun: None }
    }

    /// How long after `now` it is to be closed; `None` = it is empty, or has no limit.
    pub fn closes_in(self, now: i64, age: Option<Duration>) -> Option<Duration> {
        // What an earlier version wrote is as old as need be.
        let begun = if self.length == 0 { return None } else { self.begun.unwrap_or(i64::MIN) };
        let passed = u64::try_from(now.saturating_sub(begun)).unwrap_or(0);
        Some(age?.saturating_sub(Duration::from_millis(passed)))
    }
}

#[derive(Serialize, Deserialize)]
struct Written {
    format: u32,
    files: BTreeMap<String, Place>,
    positions: Vec<Position>,
}

#[derive(Serialize, Deserialize)]
struct Position {
    topic: String,
    partition: i32,
    next_offset: i64,
}

impl Manifest {
    /// The manifest at `path`; an empty one when there is none.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("failed to read `{shown}`")),
        };
        let written: Written = serde_json::from_slice(&text).with_context(|| {
            format!("`{shown}` is no manifest; move it and the lane's files away to have the topic written again")
        })?;
        if written.format != FORMAT {
            bail!("`{shown}` has format {}, and this version reads format {FORMAT}", written.format);
        }
        let positions = written.positions.into_iter();
        let positions =
            positions.map(|p| (TopicPartition::new(p.topic, p.partition), NextOffset(p.next_offset))).collect();
        Ok(Self { files: written.files, positions })
    }

    /// Makes this the manifest at `path`, durably.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let positions = self.positions.iter().map(|(TopicPartition { topic, partition }, next)| Position {
            topic: topic.to_string(),
            partition: *partition,
            next_offset: next.0,
        });
        let written = Written { format: FORMAT, files: self.files.clone(), positions: positions.collect() };
        let text = serde_json::to_vec(&written).expect("a manifest is always written to a vector");
        disk::replace(path, &text).with_context(|| format!("failed to write `{}`", path.display()))
    }
}
