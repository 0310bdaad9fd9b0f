//! From what is written to what the program uses: everything that JSON Schema cannot say.
//!
//! A check that fails adds its error and goes on with a value that is only there to go on with, so that one pass finds
//! everything. The result counts only when there were no errors.

mod admin;
mod claims;
mod http;
mod plugin;
mod sink;
mod source;
mod template;

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use self::claims::Claims;
use super::budget::{self, Needs};
use super::checked::{Budget, Config, DeadLetter, Log, LogFormat, Route};
use super::document::Document;
use super::errors::Errors;
use super::outside::Outside;
use super::path::KeyPath;
use super::suggest::suggest;
use super::units::{DURATION_EXPECTED, SIZE_EXPECTED, format_duration, format_size, parse_duration, parse_size};
use super::{defaults, written};

pub struct Checker<'a> {
    pub document: &'a Document,
    pub outside: &'a Outside<'a>,
    pub errors: &'a mut Errors,
    /// As written, before anything was taken out: what a name may refer to.
    pub whole: &'a Value,
    /// What was taken out, since it is not valid. Nothing is said about what stands beside it.
    pub pruned: &'a [KeyPath],
}

impl Checker<'_> {
    pub fn check(&mut self, config: &written::Config) -> Config {
        let root = KeyPath::root();
        let data_dir = self.outside.resolve(config.data_dir.as_deref().unwrap_or(defaults::DATA_DIR));
        let memory = self.size(&root.key("memory"), config.memory.as_ref(), defaults::MEMORY, &defaults::MEMORY_RANGE);
        let plugins = self.plugins(&config.plugins);
        let mut claims = Claims::default();
        claims.add_data_dir(&data_dir);
        let mut routes = Vec::new();
        for (name, route) in &config.routes {
            routes.push(Arc::new(self.route(name, route, config, &plugins, &data_dir, &mut claims)));
        }
        claims.report(self);
        let budget = self.budget(memory, &routes);
        Config {
            memory,
            admin: self.admin(config.admin.as_ref()),
            log: self.log(config.log.as_ref()),
            shutdown_grace: self.duration(
                &root.key("shutdown_grace"),
                config.shutdown_grace.as_ref(),
                defaults::SHUTDOWN_GRACE,
                &defaults::SHUTDOWN_GRACE_RANGE,
            ),
            data_dir,
            routes,
            budget,
        }
    }

    fn route(
        &mut self,
        name: &str,
        written: &written::Route,
        config: &written::Config,
        plugins: &plugin::Declared,
        data_dir: &std::path::Path,
        claims: &mut Claims,
    ) -> Route {
        let path = KeyPath::root().key("routes").key(name);
        let (source, keys) = self.source(&path.key("source"), name, &written.source, &config.clusters);
        let chain = self.chain(&path.key("plugins"), &written.plugins, plugins);
        let mut sinks = Vec::new();
        for (sink, written) in &written.sinks {
            sinks.push(Arc::new(self.sink(&path.key("sinks").key(sink), sink, written)));
        }
        let dead_letter = self.dead_letter(&path.key("dead_letter"), name, written.dead_letter.as_ref(), data_dir);
        let route = Route {
            name: name.to_owned(),
            source,
            keys,
            plugins: chain,
            sinks,
            dead_letter,
            workers: std::num::NonZeroUsize::new(written.workers.unwrap_or(defaults::WORKERS))
                .unwrap_or(std::num::NonZeroUsize::MIN),
            readiness: written.readiness.unwrap_or(true),
        };
        claims.add(&path, &route);
        route
    }

    fn dead_letter(
        &mut self,
        path: &KeyPath,
        route: &str,
        written: Option<&written::DeadLetter>,
        data_dir: &std::path::Path,
    ) -> DeadLetter {
        let Some(written::DeadLetter { kind: written::DeadLetterKind::File, path: file }) = written else {
            return DeadLetter { path: data_dir.join("dead").join(format!("{route}.ndjson")) };
        };
        DeadLetter { path: self.file(&path.key("path"), file) }
    }

    /// A file, which has to have a name.
    fn file(&mut self, path: &KeyPath, text: &str) -> PathBuf {
        let name = text.rsplit('/').next().unwrap_or_default();
        if matches!(name, "" | "." | "..") {
            self.error(path, format!("`{text}` is a directory"), "accepted: the path of a file");
        } else if text.contains('\0') {
            self.error(path, "the path holds a zero byte", "no file can be named so");
        }
        self.outside.resolve(text)
    }

    fn log(&mut self, written: Option<&written::Log>) -> Log {
        const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
        let level = written.and_then(|log| log.level.as_deref()).unwrap_or(defaults::LOG_LEVEL);
        let path = KeyPath::root().key("log").key("level");
        // A word without `=` that is no level would name a module and be taken for a level of `trace`.
        let unknown = level.split(',').map(str::trim).find(|part| {
            let level = part.rsplit_once('=').map_or(*part, |(_, level)| level);
            !LEVELS.contains(&level.to_ascii_lowercase().as_str())
        });
        if let Some(part) = unknown {
            let word = part.rsplit_once('=').map_or(part, |(_, level)| level);
            self.error(&path, format!("`{word}` is not a log level"), suggest(word, &LEVELS));
        } else if let Err(error) = tracing_subscriber::EnvFilter::builder().parse(level) {
            self.error(
                &path,
                format!("`{level}` is not a log filter: {error}"),
                "accepted: such as `info` or `tidegate=debug,warn`",
            );
        }
        let format = written.and_then(|log| log.format).unwrap_or(LogFormat::Text);
        Log { format, filter: level.to_owned() }
    }

    fn budget(&mut self, memory: u64, routes: &[Arc<Route>]) -> Budget {
        let needs: Vec<Needs> = routes.iter().map(|route| needs(route)).collect();
        let none = Budget { in_hand: 0, fetch_queue: 0, guests: 0, sinks: 0 };
        // What is not valid has no size.
        if !self.pruned.is_empty() || !defaults::MEMORY_RANGE.contains(&memory) {
            return none;
        }
        budget::share(memory, &needs).unwrap_or_else(|shortage| {
            let mut help = String::from("this is needed:");
            let sizes: Vec<String> = shortage.lines.iter().map(|(_, bytes)| format_size(*bytes)).collect();
            let width = sizes.iter().map(String::len).max().unwrap_or_default();
            for ((what, _), size) in shortage.lines.iter().zip(&sizes) {
                help.push_str(&format!("\n    {size:>width$}  {what}"));
            }
            let least = format_size(shortage.least);
            help.push_str(&format!("\nthe smallest that would do is `memory: {least}`"));
            for saving in &shortage.savings {
                help.push_str(&format!("\n{saving}"));
            }
            let path = KeyPath::root().key("memory");
            let default = if self.document.has(&path) { "" } else { ", the default," };
            let memory = format_size(memory);
            self.error(&path, format!("`memory` of {memory}{default} cannot hold what is configured"), help);
            none
        })
    }

    fn size(
        &mut self,
        path: &KeyPath,
        written: Option<&written::Size>,
        default: &str,
        range: &RangeInclusive<u64>,
    ) -> u64 {
        let Some(size) = written.map_or_else(|| parse_size(default), written::Size::bytes) else {
            self.error(path, "this is not a size that can be used", format!("accepted: {SIZE_EXPECTED}"));
            return 0;
        };
        if written.is_some() {
            self.within(path, &size, range, |size| format_size(*size));
        }
        size
    }

    fn duration(
        &mut self,
        path: &KeyPath,
        written: Option<&written::Duration>,
        default: &str,
        range: &RangeInclusive<Duration>,
    ) -> Duration {
        let Some(duration) = parse_duration(written.map_or(default, |written| &written.0)) else {
            self.error(path, "this is not a duration that can be used", format!("accepted: {DURATION_EXPECTED}"));
            return Duration::ZERO;
        };
        if written.is_some() {
            self.within(path, &duration, range, |duration| format_duration(*duration));
        }
        duration
    }

    fn within<T: PartialOrd>(
        &mut self,
        path: &KeyPath,
        value: &T,
        range: &RangeInclusive<T>,
        format: impl Fn(&T) -> String,
    ) {
        if !range.contains(value) {
            let written = self.document.text(path).map_or_else(|| format(value), str::to_owned);
            let help = format!("accepted: {} to {}", format(range.start()), format(range.end()));
            self.error(path, format!("`{written}` is out of range"), help);
        }
    }

    /// An error about one value by itself.
    fn error(&mut self, path: &KeyPath, message: impl Display, help: impl Display) {
        if !self.pruned.iter().any(|gone| path.starts_with(gone)) {
            self.errors.push(path, message.to_string(), help.to_string());
        }
    }

    /// An error about how values go together. When something beside it is not valid, nobody knows how they would.
    fn conflict(&mut self, path: &KeyPath, message: impl Display, help: impl Display) {
        if !self.pruned.iter().any(|gone| gone.parent() == path.parent()) {
            self.error(path, message, help);
        }
    }

    /// The names under a key of the root, whether what they name is valid or not.
    fn names(&self, key: &str) -> Vec<String> {
        let names = self.whole.get(key).and_then(Value::as_object);
        names.map(|names| names.keys().cloned().collect()).unwrap_or_default()
    }
}

fn needs(route: &Route) -> Needs {
    let chain = route.plugins.iter().map(|plugin| plugin.limits.memory as u64 + plugin.limits.output as u64);
    let caches = route.sinks.iter().filter_map(|sink| Some((sink.name.clone(), sink.cache()?)));
    Needs {
        route: route.name.clone(),
        lanes: route.sinks.len() as u64,
        workers: route.workers.get() as u64,
        chain: chain.sum(),
        caches: caches.collect(),
    }
}
