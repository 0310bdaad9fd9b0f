//! Appends every record that leaves the chain to NDJSON files, each exactly once.
//!
//! A write appends lines, makes them durable, and then replaces the manifest, which says how long each file is and which
//! offsets that covers. What stands behind the manifest's lengths was never acknowledged: it is cut off when the lane
//! starts, and after a failed write. A file gets its place in the manifest before it is created, so that nothing is ever
//! cut that the gateway did not write.
//!
//! A file is closed when it has reached its size, after a write, or its age, and the next one is `name.000001.ndjson`. Closed
//! ones are never written to again, but for being compressed if they are to be: they can be moved away.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, bail};

use super::{Blocking, Context, Positions, WriteError, disk};
use crate::config::File as Settings;
use crate::delivery::{Delivery, Fate};
use crate::line;
use crate::record::TopicPartition;

mod compress;
mod manifest;
mod template;
#[cfg(test)]
mod tests;

use compress::Compressor;
use manifest::{Manifest, Place};
use template::Template;

/// Files kept open between writes, of one lane: every partition of most topics, and far below what a process may open.
const OPEN_FILES: usize = 64;

/// Bytes of lines gathered before they are handed to the file.
const WRITE_BYTES: usize = 256 << 10;

/// Closed files of each name that are looked at when the lane starts, for they may still have to be compressed.
const COMPRESS_LOOK: u32 = 1000;

/// Between two tries to close a file that is old enough.
const CLOSE_AGAIN: Duration = Duration::from_secs(1);

pub struct Files {
    root: PathBuf,
    template: Template,
    rotate_size: u64,
    rotate_age: Option<Duration>,
    /// Of closed files, if they are to be compressed.
    compressor: Option<Compressor>,
    manifest_path: PathBuf,
    /// As it stands on the disk, unless `doubtful`.
    manifest: Manifest,
    names: HashMap<TopicPartition, Arc<str>>,
    open: HashMap<Arc<str>, Open>,
    /// Counts the uses of open files, to close the one used longest ago.
    uses: u64,
    /// A write began and did not end: files may be longer than the manifest says.
    torn: bool,
    /// Replacing the manifest failed: the disk may hold the old one or the new one.
    doubtful: bool,
    /// Held so that no other lane or gateway writes to the same files.
    _lock: File,
}

struct Open {
    file: File,
    used: u64,
}

impl Files {
    /// Reads the manifest and cuts the files back to it.
    ///
    /// # Errors
    /// When the files are in use by another lane or gateway, or are not as the manifest says.
    pub fn open(settings: &Settings, context: &Context) -> anyhow::Result<Self> {
        let root = settings.path.root.clone();
        let template = Template::new(&settings.path.rest, &context.route)?;
        disk::create_dirs(&root).with_context(|| format!("failed to create `{}`", root.display()))?;
        let manifest_path = root.join(template.manifest_name());
        let shown = manifest_path.display().to_string();
        let Some(lock) = disk::lock_beside(&manifest_path).with_context(|| format!("failed to lock `{shown}`"))? else {
            bail!("the files of `{shown}` are in use by another lane or gateway; give each its own `path`");
        };
        let manifest = Manifest::read(&manifest_path)?;
        let files = Self {
            root,
            template,
            rotate_size: settings.rotate_size,
            rotate_age: settings.rotate_age,
            compressor: settings.compress.map(Compressor::start).transpose()?,
            manifest_path,
            manifest,
            names: HashMap::new(),
            open: HashMap::new(),
            uses: 0,
            torn: false,
            doubtful: false,
            _lock: lock,
        };
        for (name, place) in &files.manifest.files {
            files.cut(name, *place)?;
            // What a stop left uncompressed.
            let last = place.segment.saturating_sub(COMPRESS_LOOK)..place.segment;
            last.for_each(|segment| files.compress(name, segment));
        }
        Ok(files)
    }

    fn compress(&self, name: &str, segment: u32) {
        if let Some(compressor) = &self.compressor {
            compressor.compress(self.path(name, segment));
        }
    }

    /// Closes the files that are old enough, of those that `may` be.
    fn close_old(&mut self, may: impl Fn(&str) -> bool) -> Result<(), WriteError> {
        let (now, age) = (now(), self.rotate_age);
        let is_due = |place: &Place| place.closes_in(now, age).is_some_and(|left| left.is_zero());
        let due: Vec<String> = self
            .manifest
            .files
            .iter()
            .filter(|(name, place)| is_due(place) && may(name))
            .map(|(name, _)| name.clone())
            .collect();
        if due.is_empty() {
            return Ok(());
        }
        let mut manifest = self.manifest.clone();
        for name in &due {
            self.open.remove(&**name);
            let place = manifest.files.entry(name.clone()).or_default();
            *place = place.next();
            self.check_unused(&self.path(name, place.segment))?;
        }
        let closed: Vec<_> = due.iter().map(|name| (name, self.manifest.files[name].segment)).collect();
        self.replace_manifest(manifest)?;
        closed.into_iter().for_each(|(name, segment)| self.compress(name, segment));
        Ok(())
    }

    fn path(&self, name: &str, segment: u32) -> PathBuf {
        self.root.join(template::segment_name(name, segment))
    }

    /// Cuts off what a write that did not end has left.
    fn cut(&self, name: &str, Place { segment, length, .. }: Place) -> anyhow::Result<()> {
        let path = self.path(name, segment);
        let there = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error).with_context(|| format!("failed to read `{}`", path.display())),
        };
        if there < length {
            let (path, manifest) = (path.display(), self.manifest_path.display());
            bail!(
                "`{path}` has {there} bytes, and `{manifest}` says that {length} were written: put the file back, or move \
                 the lane's files and `{manifest}` away to have the topic written again from its beginning"
            );
        }
        if there > length {
            let cut = || {
                let file = OpenOptions::new().write(true).open(&path)?;
                file.set_len(length)?;
                file.sync_all()
            };
            cut().with_context(|| format!("failed to cut `{}` back", path.display()))?;
        }
        Ok(())
    }

    /// Goes back to what the manifest says, after a write that failed.
    fn cut_back(&mut self) -> anyhow::Result<()> {
        self.open.clear();
        if self.doubtful {
            // First what says less, then what is less: a crash in between must not find a manifest that promises more.
            self.manifest.write(&self.manifest_path)?;
            self.doubtful = false;
        }
        for (name, place) in &self.manifest.files {
            self.cut(name, *place)?;
        }
        self.torn = false;
        Ok(())
    }

    fn append(&mut self, deliveries: &[Delivery]) -> Result<(), WriteError> {
        let mut by_name: BTreeMap<Arc<str>, Vec<&Delivery>> = BTreeMap::new();
        for delivery in deliveries {
            if delivery.fates().any(|fate| *fate == Fate::Write) {
                let name = self.name(delivery.input().partition())?;
                by_name.entry(name).or_default().push(delivery);
            }
        }
        self.close_old(|name| by_name.contains_key(name))?;
        self.announce(by_name.keys())?;
        let mut manifest = self.manifest.clone();
        let mut closed = Vec::new();
        for (name, deliveries) in &by_name {
            let place = manifest.files.entry(name.to_string()).or_default();
            place.begun = place.begun.or(Some(now()));
            place.length = self.append_to(name, *place, deliveries)?;
            if place.length >= self.rotate_size {
                self.open.remove(name);
                closed.push((name, place.segment));
                *place = place.next();
                self.check_unused(&self.path(name, place.segment))?;
            }
        }
        for delivery in deliveries {
            manifest.positions.insert(delivery.input().partition().clone(), delivery.span.next);
        }
        self.replace_manifest(manifest)?;
        closed.into_iter().for_each(|(name, segment)| self.compress(name, segment));
        Ok(())
    }

    /// Puts files that are new into the manifest, before they are created.
    fn announce<'a>(&mut self, names: impl Iterator<Item = &'a Arc<str>>) -> Result<(), WriteError> {
        let new: Vec<&Arc<str>> = names.filter(|name| !self.manifest.files.contains_key(&***name)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let mut manifest = self.manifest.clone();
        for name in new {
            self.check_unused(&self.path(name, 0))?;
            manifest.files.insert(name.to_string(), Place::default());
        }
        self.replace_manifest(manifest)
    }

    fn check_unused(&self, path: &Path) -> Result<(), WriteError> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(transient(error, "failed to look for", path)),
            Ok(_) => {
                let (path, manifest) = (path.display(), self.manifest_path.display());
                Err(WriteError::Halt(anyhow!("`{path}` is there and not in `{manifest}`; move it away")))
            }
        }
    }

    fn replace_manifest(&mut self, manifest: Manifest) -> Result<(), WriteError> {
        self.doubtful = true;
        manifest.write(&self.manifest_path).map_err(WriteError::Transient)?;
        self.doubtful = false;
        self.manifest = manifest;
        Ok(())
    }

    /// Appends the rows of `deliveries` and makes them durable; returns the file's length.
    fn append_to(&mut self, name: &Arc<str>, place: Place, deliveries: &[&Delivery]) -> Result<u64, WriteError> {
        let path = self.path(name, place.segment);
        let io = |error| transient(error, "failed to write to", &path);
        self.make_room(name);
        self.uses += 1;
        let open = match self.open.entry(Arc::clone(name)) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(Open { file: open_at(&path, place.length).map_err(io)?, used: 0 })
            }
        };
        open.used = self.uses;
        let (ours, there) = (open.file.metadata().map_err(io)?, fs::metadata(&path).ok());
        let is_ours =
            |there: &fs::Metadata| (there.dev(), there.ino(), there.len()) == (ours.dev(), ours.ino(), place.length);
        if !there.as_ref().is_some_and(is_ours) {
            return Err(WriteError::Halt(anyhow!(
                "`{}` was moved, removed or changed while the lane wrote to it; put it back as it was, with {} bytes",
                path.display(),
                place.length
            )));
        }
        let mut length = place.length;
        let mut lines = Vec::new();
        for delivery in deliveries {
            let partition = delivery.input().partition();
            for output in delivery.outputs().filter(|output| *output.fate == Fate::Write) {
                line::write_record(&mut lines, partition, &output.record);
                if lines.len() >= WRITE_BYTES {
                    open.file.write_all(&lines).map_err(io)?;
                    length += lines.len() as u64;
                    lines.clear();
                }
            }
        }
        open.file.write_all(&lines).map_err(io)?;
        length += lines.len() as u64;
        open.file.sync_data().map_err(io)?;
        Ok(length)
    }

    /// Closes the file that was used longest ago, when another is to be opened and there are enough.
    fn make_room(&mut self, name: &Arc<str>) {
        if self.open.len() < OPEN_FILES || self.open.contains_key(name) {
            return;
        }
        let oldest = self.open.iter().min_by_key(|(_, open)| open.used).map(|(name, _)| Arc::clone(name));
        oldest.and_then(|name| self.open.remove(&name));
    }

    fn name(&mut self, partition: &TopicPartition) -> Result<Arc<str>, WriteError> {
        if let Some(name) = self.names.get(partition) {
            return Ok(Arc::clone(name));
        }
        let name: Arc<str> = self.template.fill(partition).into();
        self.names.insert(partition.clone(), Arc::clone(&name));
        Ok(name)
    }
}

/// In milliseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn open_at(path: &Path, length: u64) -> io::Result<File> {
    let parent = disk::parent(path);
    disk::create_dirs(parent)?;
    let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    if length == 0 {
        disk::sync_dir(parent)?;
    }
    file.seek(SeekFrom::Start(length))?;
    Ok(file)
}

fn transient(error: io::Error, doing: &str, path: &Path) -> WriteError {
    WriteError::Transient(anyhow::Error::new(error).context(format!("{doing} `{}`", path.display())))
}

impl Blocking for Files {
    fn positions(&self) -> Option<Positions> {
        Some(self.manifest.positions.clone())
    }

    fn write(&mut self, deliveries: &[Delivery]) -> Result<(), WriteError> {
        if self.torn {
            self.cut_back().map_err(WriteError::Transient)?;
        }
        self.torn = true;
        let result = self.append(deliveries);
        match &result {
            Ok(()) => self.torn = false,
            // What cannot be cut now is cut before the next try, or at the next start.
            Err(_) => drop(self.cut_back()),
        }
        result
    }

    fn idle(&mut self) {
        // What cannot be closed now is closed before the next line.
        if !self.torn
            && let Err(error) = self.close_old(|_| true)
        {
            tracing::warn!(error = format!("{error:#}"), "failed to close a file that is old enough");
            drop(self.cut_back());
        }
    }

    fn wakes_after(&self) -> Option<Duration> {
        let (now, age) = (now(), self.rotate_age);
        let left = self.manifest.files.values().filter_map(|place| place.closes_in(now, age)).min()?;
        Some(left.max(CLOSE_AGAIN))
    }
}
