//! The configuration as it is written. The doc comments are what `tidegate schema` and the reference page show.
//!
//! Nothing is checked here that JSON Schema cannot say: [`super::check`] does the rest, on values that still have their
//! place in the file.

mod plugin;
mod sink;
mod source;
mod units;

pub use plugin::{Limits, Plugin, PluginUse};
pub use sink::{Auth, Basic, Column, Delete, DeleteRequest, DeleteWord, Discard, File, Http, Retry, Sink, Sqlite, Tls};
pub use source::{Kafka, KeyFormat, Keys, Source};
pub use units::{Duration, Property, Size};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::checked::{LogFormat, Role};
use super::defaults;

/// Names of routes, sinks, plugins and clusters: they appear in consumer groups, metrics, paths and addresses.
pub const NAME_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$";

fn names() -> Value {
    json!({ "pattern": NAME_PATTERN })
}

/// A gateway: the clusters that it reads, the plugins that it runs, and its routes.
///
/// In every text, `${env:NAME}` and `${file:PATH}` are replaced by the environment variable or by the file's content
/// without its last line break; `$${` stands for a plain `${`. Relative paths start at the configuration file's directory.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Tidegate configuration")]
pub struct Config {
    /// The version of this format.
    #[schemars(extend("const" = 1))]
    #[expect(dead_code, reason = "there is one version, and the schema says which")]
    pub version: u32,
    /// The directory for what the gateway keeps for itself: compiled plugins, dead letters, its address and its lock.
    #[schemars(extend("default" = defaults::DATA_DIR), length(min = 1))]
    pub data_dir: Option<String>,
    /// The budget of the whole process for records and plugins: librdkafka's queues, records in hand, plugin instances and
    /// the caches of sinks. `check` refuses one that cannot hold what is configured. The program itself comes on top: up to
    /// 64MiB.
    #[schemars(extend("default" = defaults::MEMORY))]
    pub memory: Option<Size>,
    pub log: Option<Log>,
    /// How long a stop may take from the signal to the exit. What is in hand by then is abandoned and read again at the next
    /// start.
    #[schemars(extend("default" = defaults::SHUTDOWN_GRACE))]
    pub shutdown_grace: Option<Duration>,
    pub admin: Option<Admin>,
    /// Kafka clusters by name. Each is a mapping of librdkafka properties, of which `bootstrap.servers` must be there.
    #[serde(default)]
    #[schemars(extend("propertyNames" = names()))]
    pub clusters: IndexMap<String, Cluster>,
    /// Plugins by name.
    #[serde(default)]
    #[schemars(extend("propertyNames" = names()))]
    pub plugins: IndexMap<String, Plugin>,
    /// Routes by name.
    #[schemars(extend("propertyNames" = names(), "minProperties" = 1))]
    pub routes: IndexMap<String, Route>,
}

/// The log, on standard error.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// How lines look.
    #[schemars(extend("default" = "text"))]
    pub format: Option<LogFormat>,
    /// What is logged: a level (`error`, `warn`, `info`, `debug`, `trace`), or levels by module as in `tidegate=debug,warn`.
    #[schemars(extend("default" = defaults::LOG_LEVEL))]
    pub level: Option<String>,
}

/// The admin API.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// The address of the API. Any address beyond this machine needs a token.
    #[schemars(extend("default" = defaults::ADMIN_LISTEN))]
    pub listen: Option<String>,
    /// A second address that answers `/livez`, `/readyz` and `/metrics` only, without a token.
    #[schemars(extend("examples" = ["0.0.0.0:8081"]))]
    pub probes: Option<String>,
    /// Who may use the API. With no token, whoever can reach the address may do everything.
    #[serde(default)]
    #[schemars(length(max = defaults::MAX_TOKENS))]
    pub tokens: Vec<Token>,
    /// Names under which clients reach the API, as in their `Host` header, beside the listen address and `localhost`.
    #[serde(default)]
    #[schemars(extend("examples" = [["tidegate.internal"]]))]
    pub hosts: Vec<String>,
}

/// A bearer token and what it allows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Who holds it, for the log.
    #[schemars(regex(pattern = NAME_PATTERN))]
    pub name: String,
    /// What it allows; each role may do what the one before it may.
    pub role: Role,
    /// The secret, at least 16 characters.
    #[schemars(extend("examples" = ["${env:TIDEGATE_TOKEN}"]))]
    pub token: String,
}

/// The librdkafka properties of one cluster.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Cluster {
    /// Where to find the brokers: `host:port`, several separated by commas.
    #[serde(rename = "bootstrap.servers")]
    #[schemars(length(min = 1))]
    #[expect(dead_code, reason = "it has to be there; the text as written is read from the document")]
    pub bootstrap_servers: String,
    /// Any other property of librdkafka.
    #[serde(flatten)]
    pub properties: IndexMap<String, Property>,
}

/// A flow from topics through plugins to sinks. Each sink is a lane of its own, with its own consumer, progress and dead
/// letters: a route with three sinks reads and transforms three times.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Where records come from.
    pub source: Source,
    /// What is done to them, in order.
    #[serde(default)]
    #[schemars(length(max = defaults::MAX_CHAIN))]
    pub plugins: Vec<PluginUse>,
    /// Where they go, by name.
    #[schemars(extend("propertyNames" = names(), "minProperties" = 1))]
    pub sinks: IndexMap<String, Sink>,
    /// Where records go that cannot be processed. Without it: `<data_dir>/dead/<route>.ndjson`.
    pub dead_letter: Option<DeadLetter>,
    /// Threads of each lane that run plugins; a partition stays on one of them. Each has its own plugin instances.
    #[schemars(extend("default" = defaults::WORKERS), range(min = 1, max = 64))]
    pub workers: Option<usize>,
    /// Whether `/readyz` waits for this route.
    #[schemars(extend("default" = true))]
    pub readiness: Option<bool>,
}

/// The dead letters of a route: records with the cause why they could not be processed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadLetter {
    /// What kind of place it is.
    #[serde(rename = "type", default)]
    #[schemars(extend("default" = "file"))]
    pub kind: DeadLetterKind,
    /// The NDJSON file. Each lane has its own, with the sink's name before the extension: `dead/profiles.crm.ndjson`.
    #[schemars(length(min = 1))]
    pub path: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterKind {
    #[default]
    File,
}
