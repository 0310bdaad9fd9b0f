//! The topic folded by a script that shares no code with the gateway, compared with what the sinks hold.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::broker::java;
use super::{Receiver, Topic};

/// What is compared with the topic's fold.
#[derive(Clone, Debug, Default)]
pub struct Sinks<'a> {
    /// The database and its table.
    pub sqlite: Option<(&'a Path, &'a str)>,
    pub http: Option<&'a Receiver>,
    /// The directory of the file sink's segments.
    pub files: Option<&'a Path>,
    /// The top-level fields that the route masks.
    pub masked: &'a [&'a str],
    /// Records whose key begins so are rejected by the route.
    pub rejected: Option<&'a str>,
}

/// Every visible record of a topic, as Kafka's own client reads it.
#[derive(Debug)]
pub struct Dump {
    path: PathBuf,
    /// Keeps `path`.
    dir: tempfile::TempDir,
}

impl Dump {
    pub fn of(topic: &Topic<'_>) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the target directory is writable");
        let path = dir.path().join("topic.tsv");
        let output = java()
            .arg("-Xmx512m")
            .arg(script("DumpTopic.java"))
            .args([&topic.broker.bootstrap(), &topic.name])
            .stdout(File::create(&path).expect("writable"))
            .output()
            .expect("java runs");
        assert!(output.status.success(), "DumpTopic: {}", String::from_utf8_lossy(&output.stderr));
        Self { path, dir }
    }

    /// How many records are visible.
    pub fn records(&self) -> u64 {
        let bytes = std::fs::read(&self.path).expect("the dump is there");
        bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
    }

    /// Whether a record of `key` is visible, a tombstone or not.
    pub fn mentions(&self, key: &str) -> bool {
        let text = std::fs::read_to_string(&self.path).expect("the dump is there");
        let key = BASE64_STANDARD.encode(key);
        text.lines().any(|line| line.split('\t').any(|field| field == key))
    }

    /// Partition and offset of each visible record whose key begins with `prefix`, in ascending order.
    pub fn positions_of(&self, prefix: &str) -> Vec<(i64, i64)> {
        let text = std::fs::read_to_string(&self.path).expect("the dump is there");
        let position = |line: &str| {
            let mut fields = line.split('\t');
            let mut number = || fields.next().expect("a field").parse::<i64>().expect("a number");
            let (partition, offset, _timestamp) = (number(), number(), number());
            let key = BASE64_STANDARD.decode(fields.next().expect("a key")).ok()?;
            key.starts_with(prefix.as_bytes()).then_some((partition, offset))
        };
        let mut positions: Vec<_> = text.lines().filter_map(position).collect();
        positions.sort_unstable();
        positions
    }

    /// Returns what the comparison prints.
    ///
    /// # Panics
    /// When a sink differs.
    #[track_caller]
    pub fn assert_equal(&self, sinks: &Sinks<'_>) -> String {
        let (equal, report) = self.compare(sinks);
        assert!(equal, "the sinks differ from the topic's fold\n{report}");
        report
    }

    /// Whether all sinks are equal to the fold, and the report.
    pub fn compare(&self, sinks: &Sinks<'_>) -> (bool, String) {
        let mut command = Command::new("python3");
        command.arg(script("fold.py")).arg(&self.path);
        for field in sinks.masked {
            command.args(["--mask", field]);
        }
        if let Some(prefix) = sinks.rejected {
            command.args(["--reject", prefix]);
        }
        if let Some((path, table)) = sinks.sqlite {
            command.arg("--sqlite").arg(path).args(["--table", table]);
        }
        if let Some(receiver) = sinks.http {
            let path = self.dir.path().join("http.tsv");
            receiver.dump(&path);
            command.arg("--http").arg(path);
        }
        if let Some(files) = sinks.files {
            command.arg("--files").arg(files);
        }
        let output = command.output().expect("python3 runs");
        let report = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), report)
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name)
}
