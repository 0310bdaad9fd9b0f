//! Compresses files that are closed, beside the writing.
//!
//! The compressed file is made under another name, made durable, and put in place before the plain one goes: whatever
//! happens, there is a whole one, and a stop in between is made good at the next start.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context as _;
use crossbeam_channel::{Receiver, Sender};
use flate2::write::GzEncoder;

use crate::config::Compression;
use crate::sink::disk;

/// Files that wait; one more is compressed at the next start.
const MAX_WAITING: usize = 1 << 16;

/// Ends, after the file under way, when it is dropped.
pub struct Compressor(Sender<PathBuf>);

impl Compressor {
    /// # Errors
    /// When there is no thread for it.
    pub fn start(kind: Compression) -> anyhow::Result<Self> {
        let (sender, paths) = crossbeam_channel::bounded(MAX_WAITING);
        thread::Builder::new()
            .name("compress".to_owned())
            .spawn(move || run(kind, &paths))
            .context("cannot start the compressing thread")?;
        Ok(Self(sender))
    }

    pub fn compress(&self, path: PathBuf) {
        drop(self.0.try_send(path));
    }
}

fn run(kind: Compression, paths: &Receiver<PathBuf>) {
    for path in paths {
        match compress(kind, &path) {
            Ok(()) => {}
            // It was moved away, as it may be.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let file = path.display();
                tracing::warn!(%error, %file, "failed to compress a closed file; it is tried again at the next start");
            }
        }
    }
}

fn compress(kind: Compression, path: &Path) -> io::Result<()> {
    let mut plain = BufReader::new(File::open(path)?);
    let suffix = match kind {
        Compression::Gzip => ".gz",
        Compression::Zstd => ".zst",
    };
    let (whole, part) = (disk::with_suffix(path, suffix), disk::with_suffix(path, &format!("{suffix}.part")));
    let mut file = File::create(&part)?;
    match kind {
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(&mut file, flate2::Compression::default());
            io::copy(&mut plain, &mut encoder)?;
            encoder.finish()?;
        }
        Compression::Zstd => zstd::stream::copy_encode(&mut plain, &mut file, zstd::DEFAULT_COMPRESSION_LEVEL)?,
    }
    file.sync_all()?;
    fs::rename(&part, &whole)?;
    disk::sync_dir(disk::parent(path))?;
    fs::remove_file(path)
}
