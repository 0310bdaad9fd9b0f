//! The process's log: text for people or JSON for machines, one line per event.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::anyhow;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::config::{self, LogFormat};

/// Overrides the configured filter, as everywhere in the Rust world.
const OVERRIDE: &str = "RUST_LOG";

/// Libraries that say more than their level promises: what they repeat is shown as a lane's state, and compilers and HTTP
/// stacks drown everything at `debug`. A filter that names one of them has its way.
const TAMED: &[(&str, LevelFilter)] = &[
    ("librdkafka", LevelFilter::ERROR),
    ("rdkafka", LevelFilter::ERROR),
    // It complains whenever a consumer is dropped that was closed before, which is how the source closes them.
    ("rdkafka::consumer::base_consumer", LevelFilter::OFF),
    ("cranelift_codegen", LevelFilter::WARN),
    ("cranelift_frontend", LevelFilter::WARN),
    ("regalloc2", LevelFilter::WARN),
    ("wasmtime", LevelFilter::WARN),
    ("wasmtime_internal_cranelift", LevelFilter::WARN),
    ("hyper", LevelFilter::INFO),
    ("hyper_util", LevelFilter::INFO),
    ("reqwest", LevelFilter::INFO),
];

/// A text that is no filter.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{filter}` is no log filter: {reason}; a level (off, error, warn, info, debug, trace) is accepted, or levels by module as in `tidegate=debug,warn`"
)]
pub struct BadFilter {
    filter: String,
    reason: String,
}

/// Installs the log for the process, on standard error.
///
/// # Errors
/// When the filter is none, or when a log is installed already.
pub fn init(log: &config::Log) -> anyhow::Result<()> {
    let colour = io::stderr().is_terminal() && !no_colour();
    install(log, BoxMakeWriter::new(io::stderr), colour)
}

/// Installs the log for a command that draws on the terminal: its lines go to `file`.
///
/// # Errors
/// As [`init`].
pub fn init_to_file(log: &config::Log, file: File) -> anyhow::Result<()> {
    install(log, BoxMakeWriter::new(Mutex::new(file)), false)
}

fn install(log: &config::Log, writer: BoxMakeWriter, colour: bool) -> anyhow::Result<()> {
    let filter = match std::env::var(OVERRIDE) {
        Ok(text) if !text.trim().is_empty() => {
            parse(&text).map_err(|error| anyhow!(error).context(format!("the environment variable `{OVERRIDE}`")))?
        }
        _ => parse(&log.filter)?,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(colour)
        .with_span_events(FmtSpan::NONE)
        // It would tell of a failure on the standard error, where nobody reads any more, and panic of that: a gateway
        // outlives whoever reads its log.
        .log_internal_errors(false);
    match log.format {
        LogFormat::Text => builder.compact().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    }
    .map_err(|error| anyhow!("failed to install the log: {error}"))
}

/// Whether the user asked for no colour anywhere (<https://no-color.org>).
pub fn no_colour() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// A duration as it is logged, in seconds and whole milliseconds: a log is read, and not computed with.
pub fn seconds(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1000.0
}

/// The filter that `text` describes, with the libraries tamed that it does not name.
///
/// # Errors
/// When it is no filter. A bare word is taken for a level only: `inof` would otherwise be a module, and nothing be logged.
pub fn parse(text: &str) -> Result<EnvFilter, BadFilter> {
    let bad = |reason: String| BadFilter { filter: text.to_owned(), reason };
    let mut default = LevelFilter::ERROR;
    let directives: Vec<_> = text.split(',').map(str::trim).filter(|directive| !directive.is_empty()).collect();
    if directives.is_empty() {
        return Err(bad("it is empty".to_owned()));
    }
    for directive in directives.iter().filter(|directive| !directive.contains(['=', '['])) {
        default = directive.parse().map_err(|_| bad(format!("`{directive}` is no level")))?;
    }
    let mut filter = EnvFilter::builder().parse(text).map_err(|error| bad(error.to_string()))?;
    for (target, most) in TAMED {
        if default > *most && !directives.iter().any(|directive| names(directive, target)) {
            let tame = format!("{target}={most}").parse().map_err(|error| bad(format!("{error}")))?;
            filter = filter.add_directive(tame);
        }
    }
    Ok(filter)
}

fn names(directive: &str, target: &str) -> bool {
    let library = |module: &str| module.split("::").next().map(str::to_owned);
    directive.split(['=', '[']).next().is_some_and(|module| library(module) == library(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> Vec<String> {
        let shown = parse(text).unwrap().to_string();
        let mut directives: Vec<_> = shown.split(',').map(str::to_owned).collect();
        directives.sort();
        directives
    }

    fn has(text: &str, directive: &str) -> bool {
        filter(text).iter().any(|seen| seen == directive)
    }

    #[test]
    fn libraries_are_tamed_unless_they_are_named() {
        assert!(has("info", "librdkafka=error"));
        assert!(has("info", "info"));
        assert!(has("debug", "wasmtime=warn"));
        assert!(has("debug", "hyper=info"));
        assert!(has("info", "rdkafka::consumer::base_consumer=off"));
        assert!(!has("info,rdkafka=info", "rdkafka::consumer::base_consumer=off"));
        assert!(!has("debug,librdkafka=debug", "librdkafka=error"));
        assert!(has("debug,librdkafka=debug", "librdkafka=debug"));
        assert!(has("debug,librdkafka=debug", "rdkafka=error"));
    }

    #[test]
    fn taming_never_makes_a_library_louder() {
        assert_eq!(filter("off"), ["off"]);
        assert_eq!(filter("error"), ["error", "rdkafka::consumer::base_consumer=off"]);
        assert!(!has("warn", "wasmtime=warn"));
        assert!(!has("info", "hyper=info"));
        assert_eq!(filter("tidegate=trace"), ["rdkafka::consumer::base_consumer=off", "tidegate=trace"]);
    }

    #[test]
    fn what_is_no_filter_says_what_would_be_accepted() {
        let accepted = "a level (off, error, warn, info, debug, trace) is accepted, \
                        or levels by module as in `tidegate=debug,warn`";
        assert_eq!(
            parse("inof").unwrap_err().to_string(),
            format!("`inof` is no log filter: `inof` is no level; {accepted}")
        );
        assert_eq!(parse(" ").unwrap_err().to_string(), format!("` ` is no log filter: it is empty; {accepted}"));
        let error = parse("info,tidegate=loud").unwrap_err().to_string();
        assert!(error.starts_with("`info,tidegate=loud` is no log filter: ") && error.ends_with(accepted), "{error}");
    }

    #[test]
    fn seconds_are_as_short_as_they_can_be() {
        let shown = |duration| format!("{:?}", seconds(duration));
        assert_eq!(shown(Duration::from_millis(100)), "0.1");
        assert_eq!(shown(Duration::from_nanos(133_391_201)), "0.133");
        assert_eq!(shown(Duration::from_secs(25)), "25.0");
    }

    #[test]
    fn levels_are_read_in_any_case() {
        assert!(has("INFO", "info"));
        assert!(parse("Tidegate::sink=DEBUG, warn").is_ok());
    }
}
