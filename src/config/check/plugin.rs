//! Plugins and chains.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;
use sha2::{Digest, Sha256};

use super::Checker;
use crate::config::checked::{ComponentSource, Limits, PluginUse};
use crate::config::path::KeyPath;
use crate::config::suggest::{nearest, suggest};
use crate::config::units::parse_duration;
use crate::config::{defaults, standard, written};
use crate::delivery::OnError;

/// A plugin that is declared.
#[derive(Debug)]
pub struct Plugin {
    /// `None` where it cannot be read.
    component: Option<ComponentSource>,
    sha256: Option<String>,
    limits: written::Limits,
}

pub type Declared = IndexMap<String, Plugin>;

/// What a route does to records.
#[derive(Debug)]
pub struct Chain {
    pub plugins: Vec<PluginUse>,
    /// Whether a plugin said that it may change keys.
    pub changes_keys: bool,
}

impl Checker<'_> {
    pub(super) fn plugins(&mut self, written: &IndexMap<String, written::Plugin>) -> Declared {
        let mut declared = Declared::new();
        for (name, plugin) in written {
            let path = KeyPath::root().key("plugins").key(name);
            let file = self.outside.resolve(&plugin.file);
            let sha256 = plugin.sha256.as_ref().map(|digest| digest.to_ascii_lowercase());
            let component = self.component(&path, plugin, &file, sha256.as_deref());
            let limits = plugin.limits.clone().unwrap_or_default();
            self.limits(&path.key("limits"), &limits, &written::Limits::default());
            let component = component.then_some(ComponentSource::File(file));
            declared.insert(name.clone(), Plugin { component, sha256, limits });
        }
        declared
    }

    /// Whether the plugin's file can be read. Its SHA-256 is compared.
    fn component(&mut self, path: &KeyPath, plugin: &written::Plugin, file: &Path, sha256: Option<&str>) -> bool {
        if self.is_gone(&path.key("file")) {
            return false;
        }
        let component = match (self.outside.read)(file) {
            Ok(component) => component,
            Err(error) => {
                let help = "the path of a WebAssembly component, relative to the configuration file's directory";
                self.error(&path.key("file"), format!("`{}` cannot be read: {error}", plugin.file), help);
                return false;
            }
        };
        if let Some(expected) = sha256 {
            let actual = hexadecimal(&Sha256::digest(&component));
            if actual != *expected {
                let help = format!("the file has `{actual}`; if that is the one you mean, write it here");
                self.error(&path.key("sha256"), format!("`{}` is not the file that was meant", plugin.file), help);
            }
        }
        true
    }

    pub(super) fn chain(&mut self, path: &KeyPath, written: &[written::PluginUse], declared: &Declared) -> Chain {
        let mut chain = Chain { plugins: Vec::new(), changes_keys: false };
        let nothing = written::Limits::default();
        for (index, step) in written.iter().enumerate() {
            let path = path.index(index);
            let name = self.name(&path.key("use"), &step.name, declared);
            let plugin = declared.get(&name);
            let (component, sha256, inherited) = match plugin {
                Some(plugin) => (plugin.component.clone(), plugin.sha256.clone(), &plugin.limits),
                None => (self.standard(&path.key("use"), &name), None, &nothing),
            };
            let own = step.limits.clone().unwrap_or_default();
            let limits = self.limits(&path.key("limits"), &own, inherited);
            let Some(component) = component else { continue };
            let plugin = PluginUse {
                name: Arc::from(name.as_str()),
                component,
                sha256,
                // A plugin that is given nothing is given an empty mapping.
                config: step.config.as_ref().map_or_else(|| "{}".to_owned(), ToString::to_string),
                on_error: step.on_error.unwrap_or(OnError::DeadLetter),
                limits,
            };
            chain.changes_keys |= self.ask(&path, &plugin, &KeyPath::root().key("plugins").key(&name));
            chain.plugins.push(plugin);
        }
        chain
    }

    /// Asks the plugin what it thinks of its use at `path`, and whether it may change keys.
    fn ask(&mut self, path: &KeyPath, plugin: &PluginUse, declared: &KeyPath) -> bool {
        let mut plugin = plugin.clone();
        // Of a file that was not meant it was said; what it makes of its use is worth knowing if it is meant after all.
        plugin.sha256 = None;
        let (own, inherited) = (path.key("limits").key("memory"), declared.key("limits").key("memory"));
        let is_own = self.document.has(&own);
        let memory = if is_own || !self.document.has(&inherited) { own } else { inherited };
        if self.is_gone(&memory) || self.errors.has(&memory) {
            plugin.limits.memory = usize::try_from(*defaults::PLUGIN_MEMORY_RANGE.end()).unwrap_or(usize::MAX);
        }
        let errors = match (self.outside.plugin)(&plugin) {
            Ok(changes_keys) => return changes_keys,
            Err(errors) => errors,
        };
        for error in errors {
            let own = path.below(&error.path);
            let place = if error.path == KeyPath::root().key("limits").key("memory") { &memory } else { &own };
            self.error(place, format!("plugin `{}`: {}", plugin.name, error.message), error.help);
        }
        false
    }

    /// The name of the plugin that is meant.
    fn name(&mut self, path: &KeyPath, name: &str, declared: &Declared) -> String {
        let mut names: Vec<String> = declared.keys().cloned().collect();
        names.extend(standard::NAMES.iter().map(|standard| format!("std/{standard}")));
        // Those of which nothing is known have a name too, and any may be meant.
        let is_unknown = self.is_gone(&KeyPath::root().key("plugins")) && !name.starts_with("std/");
        if is_unknown || names.iter().any(|known| known == name) {
            return name.to_owned();
        }
        if let Some((plugin, _)) = name.split_once('@') {
            let help =
                format!("declare the file under `plugins` and pin it with `sha256`\n{}", suggest(plugin, &names));
            self.error(path, format!("`{name}` names an uploaded version, and there are no uploads here"), help);
        } else {
            self.error(path, format!("there is no plugin `{name}`"), suggest(name, &names));
        }
        nearest(name, &names).unwrap_or(name).to_owned()
    }

    /// The component of a plugin that comes with the gateway.
    fn standard(&mut self, path: &KeyPath, name: &str) -> Option<ComponentSource> {
        let standard = name.strip_prefix("std/").filter(|standard| standard::NAMES.contains(standard))?;
        let component = (self.outside.standard)(standard).map(ComponentSource::Standard);
        if component.is_none() {
            let help = "build it with `make`, which builds the standard plugins first";
            self.error(path, format!("this program was built without `{name}`"), help);
        }
        component
    }

    /// `own`, completed from `inherited` and the defaults. Only `own` is complained about.
    fn limits(&mut self, path: &KeyPath, own: &written::Limits, inherited: &written::Limits) -> Limits {
        let inherit_duration = |written: &Option<written::Duration>, default: &str| -> String {
            let text = written.as_ref().map_or(default, |written| &written.0);
            if parse_duration(text).is_some() { text.to_owned() } else { default.to_owned() }
        };
        let time = inherit_duration(&inherited.time, defaults::PLUGIN_TIME);
        let per_record = inherit_duration(&inherited.time_per_record, defaults::PLUGIN_TIME_PER_RECORD);
        let mut size = |key: &str,
                        own: &Option<written::Size>,
                        inherited: &Option<written::Size>,
                        default,
                        range: &RangeInclusive<u64>| {
            let bytes = match (own, inherited) {
                (None, Some(inherited)) => {
                    inherited.bytes().filter(|bytes| range.contains(bytes)).unwrap_or(*range.start())
                }
                (own, _) => self.size(&path.key(key), own.as_ref(), default, range),
            };
            usize::try_from(bytes).unwrap_or(usize::MAX)
        };
        Limits {
            memory: size(
                "memory",
                &own.memory,
                &inherited.memory,
                defaults::PLUGIN_MEMORY,
                &defaults::PLUGIN_MEMORY_RANGE,
            ),
            output: size(
                "output",
                &own.output,
                &inherited.output,
                defaults::PLUGIN_OUTPUT,
                &defaults::PLUGIN_OUTPUT_RANGE,
            ),
            log: size("log", &own.log, &inherited.log, defaults::PLUGIN_LOG, &defaults::PLUGIN_LOG_RANGE),
            time: self.duration(&path.key("time"), own.time.as_ref(), &time, &defaults::PLUGIN_TIME_RANGE),
            time_per_record: self.duration(
                &path.key("time_per_record"),
                own.time_per_record.as_ref(),
                &per_record,
                &defaults::PLUGIN_TIME_PER_RECORD_RANGE,
            ),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
