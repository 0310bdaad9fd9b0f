//! What a configuration may look at outside its own text. Everything comes through here, so that [`super::parse`] is a
//! function of its arguments.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::checked::PluginUse;
use super::interpolate::MAX_FILE_BYTES;
use super::path::KeyPath;
use crate::secret::Secret;

/// Looks at librdkafka properties and says what is wrong with them.
pub type CheckProperties = dyn Fn(&BTreeMap<String, Secret>) -> Vec<PropertyError>;

/// Looks at one use of a plugin, and says whether it may change keys, or what is wrong.
pub type CheckPlugin<'a> = dyn Fn(&PluginUse) -> Result<bool, Vec<PluginError>> + 'a;

/// What is wrong with librdkafka properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertyError {
    /// The one that is meant, which may be missing; `None` = several contradict one another.
    pub property: Option<String>,
    /// Whether it is wrong whatever the others are.
    pub is_alone: bool,
    pub message: String,
    pub help: String,
}

/// What is wrong with one use of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginError {
    /// In the use: `use`, `limits.memory`, `config.fields[0].path`.
    pub path: KeyPath,
    pub message: String,
    pub help: String,
}

pub struct Outside<'a> {
    /// Where relative paths start. Absolute.
    pub base_dir: PathBuf,
    pub env: &'a dyn Fn(&str) -> Option<OsString>,
    pub read: &'a dyn Fn(&Path) -> io::Result<Vec<u8>>,
    /// The component of a plugin that comes with the gateway, by its name without `std/`.
    pub standard: &'a dyn Fn(&str) -> Option<&'static [u8]>,
    /// What is wrong with the librdkafka properties of a cluster, or of one source.
    pub properties: &'a CheckProperties,
    /// What a plugin itself says of its use.
    pub plugin: &'a CheckPlugin<'a>,
}

/// The largest file that is read: beyond what a plugin may have.
const MAX_READ_BYTES: u64 = 256 << 20;

/// Reads a file; nothing that is none, such as a device, which may have no end.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if metadata.len() > MAX_READ_BYTES {
        return Err(io::Error::other(format!("it has {} bytes, at most {MAX_READ_BYTES} are read", metadata.len())));
    }
    std::fs::read(path)
}

impl Outside<'_> {
    /// `path` as the configuration means it.
    pub fn resolve(&self, path: &str) -> PathBuf {
        let mut resolved = self.base_dir.clone();
        for component in Path::new(path).components() {
            match component {
                std::path::Component::CurDir => {}
                std::path::Component::ParentDir => {
                    resolved.pop();
                }
                other => resolved.push(other),
            }
        }
        resolved
    }

    /// The text of a file without its last line break.
    pub(super) fn read_text(&self, path: &str) -> io::Result<String> {
        let bytes = (self.read)(&self.resolve(path))?;
        if bytes.len() > MAX_FILE_BYTES {
            return Err(io::Error::other(format!("it has {} bytes, at most {MAX_FILE_BYTES} are read", bytes.len())));
        }
        let mut text = String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))?;
        if text.ends_with('\n') {
            text.pop();
            if text.ends_with('\r') {
                text.pop();
            }
        }
        Ok(text)
    }
}
