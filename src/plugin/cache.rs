//! Compiled code on disk: a JavaScript component takes seconds to compile and milliseconds to load.
//!
//! An entry is named after the component's digest and a fingerprint of everything that compiled code depends on: wasmtime's
//! version, the engine's settings and the processor. It begins with a hash of its contents. What does not match is compiled
//! again and replaced; the cache is never a reason to fail.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

/// Entries that are kept; the oldest ones go first.
const MAX_ENTRIES: usize = 64;

const MAGIC: &[u8; 16] = b"tidegate cache 1";
const HEADER_BYTES: usize = MAGIC.len() + 32;
const EXTENSION: &str = "compiled";

#[derive(Clone, Debug)]
pub struct Cache {
    dir: PathBuf,
    fingerprint: u64,
}

impl Cache {
    /// Makes the directory, readable by the owner alone.
    ///
    /// # Errors
    /// If the directory cannot be made.
    pub fn open(dir: &Path, engine: &Engine) -> io::Result<Self> {
        let mut builder = fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(dir)?;
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Ok(Self { dir: dir.to_owned(), fingerprint: hasher.finish() })
    }

    /// The compiled component, if there is a sound one.
    pub fn load(&self, engine: &Engine, digest: &str) -> Option<Component> {
        let path = self.path(digest);
        let bytes = fs::read(&path).ok()?;
        let Some(code) = sound(&bytes) else {
            tracing::warn!(path = %path.display(), "compiled code on disk is damaged and is compiled again");
            return None;
        };
        // SAFETY: `deserialize` requires bytes that `Component::serialize` made. These were: their hash, which was written
        // with them, matches, so they are not damaged; and nobody but this program writes here, since the directory, which
        // is its own, is closed to other users. wasmtime itself refuses code of another version or of other settings. Who can
        // forge an entry can replace the program just as well.
        let component = unsafe { Component::deserialize(engine, code) };
        component
            .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "compiled code on disk does not fit"))
            .ok()
    }

    /// Keeps compiled code. A failure is logged, since the gateway runs without.
    pub fn store(&self, component: &Component, digest: &str) {
        let stored = component.serialize().map_err(io::Error::other).and_then(|code| self.write(digest, &code));
        if let Err(error) = stored {
            tracing::warn!(dir = %self.dir.display(), %error, "compiled code could not be kept");
        }
        self.prune();
    }

    fn path(&self, digest: &str) -> PathBuf {
        self.dir.join(format!("{digest}-{:016x}.{EXTENSION}", self.fingerprint))
    }

    /// Under another name first, so that no reader and no crash ever meets half an entry.
    fn write(&self, digest: &str, code: &[u8]) -> io::Result<()> {
        static UNIQUE: AtomicU64 = AtomicU64::new(0);
        let unique = UNIQUE.fetch_add(1, Ordering::Relaxed);
        let temporary = self.dir.join(format!(".{digest}.{}.{unique}", std::process::id()));
        let written = fs::File::create(&temporary).and_then(|mut file| {
            file.write_all(MAGIC)?;
            file.write_all(&Sha256::digest(code))?;
            file.write_all(code)?;
            file.sync_all()?;
            fs::rename(&temporary, self.path(digest))
        });
        written.or_else(|error| fs::remove_file(&temporary).and(Err(error)))
    }

    /// Removes the oldest entries beyond [`MAX_ENTRIES`].
    fn prune(&self) {
        let Ok(dir) = fs::read_dir(&self.dir) else { return };
        let mut entries: Vec<(SystemTime, PathBuf)> = dir
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let path = entry.path();
                let ours = path.extension().is_some_and(|extension| extension == EXTENSION);
                ours.then_some((entry.metadata().ok()?.modified().ok()?, path))
            })
            .collect();
        entries.sort();
        for (_, path) in entries.iter().rev().skip(MAX_ENTRIES) {
            if let Err(error) = fs::remove_file(path) {
                tracing::debug!(path = %path.display(), %error, "an old entry of the code cache could not be removed");
            }
        }
    }
}

/// The code in an entry whose header is right.
fn sound(entry: &[u8]) -> Option<&[u8]> {
    let (header, code) = entry.split_at_checked(HEADER_BYTES)?;
    let (magic, hash) = header.split_at(MAGIC.len());
    (magic == MAGIC && hash == &Sha256::digest(code)[..]).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(code: &[u8]) -> Vec<u8> {
        [&MAGIC[..], &Sha256::digest(code), code].concat()
    }

    #[test]
    fn only_whole_entries_are_sound() {
        let good = entry(b"code");
        assert_eq!(sound(&good), Some(&b"code"[..]));
        assert_eq!(sound(&good[..good.len() - 1]), None);
        for byte in 0..good.len() {
            let mut damaged = good.clone();
            damaged[byte] ^= 1;
            assert_eq!(sound(&damaged), None, "byte {byte}");
        }
        assert_eq!(sound(b""), None);
    }
}
