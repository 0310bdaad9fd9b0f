//! Plugins and chains.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;
use sha2::{Digest, Sha256};

use super::Checker;
use crate::config::checked::{ComponentSource, Limits, PluginUse};
use crate::config::path::KeyPath;
use crate::config::suggest::suggest;
use crate::config::units::parse_duration;
use crate::config::{defaults, standard, written};
use crate::delivery::OnError;

/// A plugin that is declared and valid as far as this can be told without running it.
#[derive(Debug)]
pub struct Plugin {
    component: ComponentSource,
    sha256: Option<String>,
    limits: written::Limits,
}

pub type Declared = HashMap<String, Plugin>;

impl Checker<'_> {
    pub(super) fn plugins(&mut self, written: &IndexMap<String, written::Plugin>) -> Declared {
        let mut declared = Declared::new();
        for (name, plugin) in written {
            let path = KeyPath::root().key("plugins").key(name);
            let file = self.outside.resolve(&plugin.file);
            let sha256 = plugin.sha256.as_ref().map(|digest| digest.to_ascii_lowercase());
            match ((self.outside.read)(&file), &sha256) {
                (Err(error), _) => {
                    let help = "the path of a WebAssembly component, relative to the configuration file's directory";
                    self.error(&path.key("file"), format!("`{}` cannot be read: {error}", plugin.file), help);
                }
                (Ok(component), Some(expected)) => {
                    let actual = hexadecimal(&Sha256::digest(&component));
                    if actual != *expected {
                        let help = format!("the file has `{actual}`; if that is the one you mean, write it here");
                        self.error(
                            &path.key("sha256"),
                            format!("`{}` is not the file that was meant", plugin.file),
                            help,
                        );
                    }
                }
                (Ok(_), None) => {}
            }
            let limits = plugin.limits.clone().unwrap_or_default();
            self.limits(&path.key("limits"), &limits, &written::Limits::default());
            declared.insert(name.clone(), Plugin { component: ComponentSource::File(file), sha256, limits });
        }
        declared
    }

    pub(super) fn chain(
        &mut self,
        path: &KeyPath,
        written: &[written::PluginUse],
        declared: &Declared,
    ) -> Vec<PluginUse> {
        let mut chain = Vec::new();
        for (index, step) in written.iter().enumerate() {
            let path = path.index(index);
            let nothing = written::Limits::default();
            let (component, sha256, inherited) = match declared.get(&step.name) {
                Some(plugin) => (Some(plugin.component.clone()), plugin.sha256.clone(), &plugin.limits),
                None => (self.standard(&path.key("use"), &step.name), None, &nothing),
            };
            let own = step.limits.clone().unwrap_or_default();
            let limits = self.limits(&path.key("limits"), &own, inherited);
            let Some(component) = component else { continue };
            let plugin = PluginUse {
                name: Arc::from(step.name.as_str()),
                component,
                sha256,
                // A plugin that is given nothing is given an empty mapping.
                config: step.config.as_ref().map_or_else(|| "{}".to_owned(), ToString::to_string),
                on_error: step.on_error.unwrap_or(OnError::DeadLetter),
                limits,
            };
            let is_whole = !self.pruned.iter().any(|gone| gone.starts_with(&path));
            if is_whole && let Some((of_config, message)) = (self.outside.plugin)(&plugin) {
                let place = path.key(if of_config { "config" } else { "use" });
                self.error(&place, format!("plugin `{}`: {message}", plugin.name), "");
            }
            chain.push(plugin);
        }
        chain
    }

    /// The component of a plugin that is not declared here.
    fn standard(&mut self, path: &KeyPath, name: &str) -> Option<ComponentSource> {
        let mut names = self.names("plugins");
        if names.iter().any(|declared| declared == name) {
            // Declared, and not valid: that was said there.
            return None;
        }
        names.extend(standard::NAMES.iter().map(|standard| format!("std/{standard}")));
        let known = name.strip_prefix("std/").filter(|standard| standard::NAMES.contains(standard));
        if let Some(component) = known.and_then(|standard| (self.outside.standard)(standard)) {
            return Some(ComponentSource::Standard(component));
        }
        if known.is_some() {
            let help = "build it with `make`, which builds the standard plugins first";
            self.error(path, format!("this program was built without `{name}`"), help);
        } else if let Some((plugin, _)) = name.split_once('@') {
            let help =
                format!("declare the file under `plugins` and pin it with `sha256`\n{}", suggest(plugin, &names));
            self.error(path, format!("`{name}` names an uploaded version, and there are no uploads here"), help);
        } else {
            self.error(path, format!("there is no plugin `{name}`"), suggest(name, &names));
        }
        None
    }

    /// `own`, completed from `inherited` and the defaults. Only `own` is complained about.
    fn limits(&mut self, path: &KeyPath, own: &written::Limits, inherited: &written::Limits) -> Limits {
        let inherit_duration = |written: &Option<written::Duration>, default: &str| -> String {
            let text = written.as_ref().map_or(default, |written| &written.0);
            if parse_duration(text).is_some() { text.to_owned() } else { default.to_owned() }
        };
        let time = inherit_duration(&inherited.time, defaults::PLUGIN_TIME);
        let per_record = inherit_duration(&inherited.time_per_record, defaults::PLUGIN_TIME_PER_RECORD);
        let mut size = |key: &str, own: &Option<written::Size>, inherited: &Option<written::Size>, default, range| {
            let bytes = match (own, inherited) {
                (None, Some(inherited)) => inherited.bytes().unwrap_or_default(),
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
