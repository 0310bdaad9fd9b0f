//! From what is written to what the program uses: everything that JSON Schema cannot say.
//!
//! A check that fails adds its error and goes on with a value that is only there to go on with, so that one pass finds
//! everything. The result counts only when there were no errors.
//!
//! What has not its shape was mended before: a check may meet a stand-in. [`Checker::error`] is silent about those by
//! itself, and [`Checker::conflict`] about what is said to go together with one.

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
    /// What is not as it is written, since it is not valid.
    pub gone: &'a [KeyPath],
}

impl Checker<'_> {
    pub fn check(&mut self, config: &written::Config) -> Config {
        let root = KeyPath::root();
        let data_dir = self.outside.resolve(config.data_dir.as_deref().unwrap_or(defaults::DATA_DIR));
        let memory = self.size(&root.key("memory"), config.memory.as_ref(), defaults::MEMORY, &defaults::MEMORY_RANGE);
        let plugins = self.plugins(&config.plugins);
        let mut clusters = self.clusters(&config.clusters);
        let mut claims = Claims::default();
        claims.add_data_dir(self, &data_dir);
        let mut routes = Vec::new();
        for (name, route) in &config.routes {
            let route = self.route(name, route, &mut clusters, &plugins, &data_dir);
            claims.add(self, &KeyPath::root().key("routes").key(name), &route);
            routes.push(Arc::new(route));
        }
        self.unused(&clusters);
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
        clusters: &mut source::Clusters<'_>,
        plugins: &plugin::Declared,
        data_dir: &std::path::Path,
    ) -> Route {
        let path = KeyPath::root().key("routes").key(name);
        let (source, keys) = self.source(&path.key("source"), name, &written.source, clusters);
        let chain = self.chain(&path.key("plugins"), &written.plugins, plugins);
        let mut sinks = Vec::new();
        for (name, written) in &written.sinks {
            let place = path.key("sinks").key(name);
            let sink = self.sink(&place, name, written);
            if chain.changes_keys {
                self.former_key(&place, &sink);
            }
            sinks.push(Arc::new(sink));
        }
        let dead_letter = self.dead_letter(&path.key("dead_letter"), name, written.dead_letter.as_ref(), data_dir);
        // What is not told counts as little as it can, here as for sizes: what is too much by then is too much.
        let workers = if self.is_gone(&path.key("workers")) { 1 } else { written.workers.unwrap_or(defaults::WORKERS) };
        Route {
            name: name.to_owned(),
            source,
            keys,
            plugins: chain.plugins,
            sinks,
            dead_letter,
            workers: std::num::NonZeroUsize::new(workers).unwrap_or(std::num::NonZeroUsize::MIN),
            readiness: written.readiness.unwrap_or(true),
        }
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
        let path = KeyPath::root().key("memory");
        if self.is_gone(&path) || self.errors.has(&path) {
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
            help.push_str(&format!("\naccepted: at least `memory: {least}`"));
            for saving in &shortage.savings {
                help.push_str(&format!("\n{saving}"));
            }
            let default = if self.document.has(&path) { "" } else { ", the default," };
            let memory = format_size(memory);
            self.error(&path, format!("`memory` of {memory}{default} cannot hold what is configured"), help);
            none
        })
    }

    /// A size in bytes: the least that is accepted, where what is written is not.
    fn size(
        &mut self,
        path: &KeyPath,
        written: Option<&written::Size>,
        default: &str,
        range: &RangeInclusive<u64>,
    ) -> u64 {
        if self.is_gone(path) {
            return *range.start();
        }
        let Some(size) = written.map_or_else(|| parse_size(default), written::Size::bytes) else {
            self.error(path, "this is not a size that can be used", format!("accepted: {SIZE_EXPECTED}"));
            return *range.start();
        };
        if written.is_some() && !self.within(path, &size, range, |size| format_size(*size)) {
            return *range.start();
        }
        size
    }

    /// A duration: the default, where what is written is not accepted.
    fn duration(
        &mut self,
        path: &KeyPath,
        written: Option<&written::Duration>,
        default: &str,
        range: &RangeInclusive<Duration>,
    ) -> Duration {
        let parsed = written.filter(|_| !self.is_gone(path)).map(|written| parse_duration(&written.0));
        match parsed {
            Some(Some(duration)) if self.within(path, &duration, range, |duration| format_duration(*duration)) => {
                return duration;
            }
            Some(None) => {
                self.error(path, "this is not a duration that can be used", format!("accepted: {DURATION_EXPECTED}"));
            }
            Some(Some(_)) | None => {}
        }
        parse_duration(default).unwrap_or_default()
    }

    /// Whether the value is in range; an error says if not.
    fn within<T: PartialOrd>(
        &mut self,
        path: &KeyPath,
        value: &T,
        range: &RangeInclusive<T>,
        format: impl Fn(&T) -> String,
    ) -> bool {
        let is_within = range.contains(value);
        if !is_within {
            let written = self.document.text(path).map_or_else(|| format(value), str::to_owned);
            let help = format!("accepted: {} to {}", format(range.start()), format(range.end()));
            self.error(path, format!("`{written}` is out of range"), help);
        }
        is_within
    }

    /// An error about one value by itself.
    fn error(&mut self, path: &KeyPath, message: impl Display, help: impl Display) {
        if !self.is_gone(path) {
            self.errors.push(path, message.to_string(), help.to_string());
        }
    }

    /// An error about how the value goes together with what stands beside it under the keys `with`. When one of these is not
    /// as it is written, nobody knows how they would.
    fn conflict(&mut self, path: &KeyPath, with: &[&str], message: impl Display, help: impl Display) {
        let beside = path.parent().unwrap_or_default();
        if !with.iter().any(|key| self.is_gone(&beside.key(key))) {
            self.error(path, message, help);
        }
    }

    /// Whether the value is not as it is written: that was said already.
    fn is_gone(&self, path: &KeyPath) -> bool {
        self.gone.iter().any(|gone| path.starts_with(gone))
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
