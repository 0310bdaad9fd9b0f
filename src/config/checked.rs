//! The configuration as the program uses it: every reference resolved, every number in range, every default filled in.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::delivery::OnError;
use crate::secret::Secret;

#[derive(Clone, Debug)]
pub struct Config {
    pub data_dir: PathBuf,
    /// Bytes: the budget over librdkafka's queues, records in flight, guests and sinks.
    pub memory: u64,
    pub admin: Admin,
    pub log: Log,
    /// How long a stop may take from the signal to the exit.
    pub shutdown_grace: Duration,
    pub routes: Vec<Arc<Route>>,
    /// How `memory` is shared out.
    pub budget: Budget,
}

/// What each lane may hold, computed from `memory` and from everything that is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of records in hand per lane: from the source's queue to the sink's acknowledgement.
    pub in_hand: usize,
    /// Bytes of librdkafka's fetch queue per lane.
    pub fetch_queue: usize,
    /// Bytes of all guests of all lanes, at their limits.
    pub guests: u64,
    /// Bytes of all sinks' caches.
    pub sinks: u64,
}

#[derive(Clone, Debug)]
pub struct Admin {
    pub listen: SocketAddr,
    /// Where only `/livez`, `/readyz` and `/metrics` answer, without a token.
    pub probes: Option<SocketAddr>,
    pub tokens: Vec<Token>,
    /// `Host` names that are accepted beside the listen address and `localhost`.
    pub hosts: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Token {
    pub name: String,
    pub role: Role,
    pub token: Secret,
}

/// Ascending: each may do what the ones before it may.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look at everything.
    Viewer,
    /// Pause, resume and skip.
    Operator,
    /// Change what runs.
    Admin,
}

#[derive(Clone, Debug)]
pub struct Log {
    pub format: LogFormat,
    /// A `tracing` filter, such as `info` or `tidegate=debug,warn`.
    pub filter: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Debug)]
pub struct Route {
    pub name: String,
    pub source: Source,
    pub keys: Keys,
    pub plugins: Vec<PluginUse>,
    /// At least one; names are unique in the route.
    pub sinks: Vec<Arc<Sink>>,
    pub dead_letter: DeadLetter,
    /// Worker threads of each lane.
    pub workers: NonZeroUsize,
    /// Whether the route's lanes count for `/readyz`.
    pub readiness: bool,
}

#[derive(Clone, Debug)]
pub enum Source {
    Kafka(Kafka),
    Ndjson(Ndjson),
}

#[derive(Clone, Debug)]
pub struct Kafka {
    /// The cluster's name in the configuration.
    pub cluster: String,
    /// librdkafka properties as written, cluster first, then the source's own.
    pub properties: BTreeMap<String, Secret>,
    pub topics: Vec<String>,
    /// The lane's group is `<group>.<sink>`.
    pub group: String,
    pub start: Start,
    /// How long work in hand may take when partitions are revoked.
    pub drain_timeout: Duration,
    /// Whether to ask the broker for the topics' `cleanup.policy`. Off only for the embedded broker of the demo, which
    /// does not answer.
    pub inspect_topics: bool,
}

/// Where a lane begins that has no offsets yet. Partitions that appear later are always read from their beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    Earliest,
    Latest,
}

/// A file as a topic of one partition.
#[derive(Clone, Debug)]
pub struct Ndjson {
    pub path: PathBuf,
    /// The topic's name.
    pub topic: String,
}

/// What is done with keys before the first plugin.
#[derive(Clone, Debug)]
pub struct Keys {
    pub missing: MissingKey,
    pub format: Option<KeyFormat>,
    /// For a key that is not of `format`.
    pub malformed: OnError,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingKey {
    /// Keep it in the lane's dead letters and go on.
    DeadLetter,
    /// Count it and go on.
    Drop,
    /// Let it go on without a key; a sink that needs one rejects it.
    Pass,
    /// Stop the lane before it.
    Halt,
}

#[derive(Clone, Debug)]
pub enum KeyFormat {
    Utf8,
    Uuid,
    /// A decimal integer in text.
    Integer,
    Json,
    /// The whole key is UTF-8 and matches.
    Regex(regex::Regex),
}

#[derive(Clone, Debug)]
pub struct PluginUse {
    /// As the route writes it: `mask`, `std/mask-fields`.
    pub name: Arc<str>,
    pub component: ComponentSource,
    /// Of the component's bytes, lower-case hex, checked on load.
    pub sha256: Option<String>,
    /// JSON text for the plugin's `init`.
    pub config: String,
    pub on_error: OnError,
    pub limits: Limits,
}

#[derive(Clone, Debug)]
pub enum ComponentSource {
    File(PathBuf),
    /// Shipped with the gateway.
    Standard(&'static [u8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Per call of `process`, plus `time_per_record` for each record in it.
    pub time: Duration,
    pub time_per_record: Duration,
    /// Bytes of linear memory of one instance.
    pub memory: usize,
    /// Bytes of output of one call, as a multiple of nothing: lengths, data and reasons together.
    pub output: usize,
    /// Bytes of log and print output of one call.
    pub log: usize,
}

#[derive(Clone, Debug)]
pub struct Sink {
    pub name: String,
    pub kind: SinkKind,
    pub on_drop: OnDrop,
    pub on_reject: OnReject,
    /// For what can never be written, and for what `retry` gave up on.
    pub on_error: OnError,
    pub retry: Retry,
}

#[derive(Clone, Debug)]
pub enum SinkKind {
    /// Takes everything and keeps nothing: for measurements and dry runs.
    Discard,
    File(File),
    Sqlite(Sqlite),
    Http(Http),
}

/// What a newer version that a plugin drops does to what an older one wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDrop {
    /// Remove it.
    Delete,
    /// Leave it.
    Ignore,
}

/// What a newer version that is rejected does to what an older one wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnReject {
    /// Leave it, and count it as stale.
    Keep,
    /// Remove it.
    Delete,
}

/// Transient failures are tried again after `backoff`, doubled each time up to `max`, with jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Tries in all; `None` = until it works, which is what holds a lane when its sink is down.
    pub attempts: Option<NonZeroU32>,
    pub backoff: Duration,
    pub max: Duration,
}

#[derive(Clone, Debug)]
pub struct File {
    /// Placeholders `{route}`, `{topic}`, `{partition}`; relative to the configuration file's directory, made absolute.
    pub path: PathTemplate,
    /// A segment is closed when it has this many bytes.
    pub rotate_size: u64,
    /// From the first line of a file; `None` = whatever its age.
    pub rotate_age: Option<Duration>,
    /// Of closed files.
    pub compress: Option<Compression>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    Gzip,
    Zstd,
}

/// A path whose fixed leading directories are `root`; what is filled in can never leave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTemplate {
    /// Absolute, without placeholders.
    pub root: PathBuf,
    /// Relative to `root`, as written: its components hold the placeholders.
    pub rest: String,
}

#[derive(Clone, Debug)]
pub struct Sqlite {
    pub path: PathBuf,
    pub table: String,
    /// Empty = the value whole in a column `value`.
    pub columns: Vec<Column>,
    /// Bytes of SQLite's page cache.
    pub cache: u64,
}

/// A column filled from the JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// An RFC 6901 JSON pointer, such as `/address/city`.
    pub pointer: String,
    pub kind: ColumnType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    /// A JSON string.
    Text,
    /// A JSON number that 64 bits hold.
    Integer,
    /// Any JSON number.
    Real,
    /// `true` or `false`, as 1 or 0.
    Boolean,
    /// The JSON text of whatever stands there.
    Json,
}

#[derive(Clone, Debug)]
pub struct Http {
    /// With `{key}` where the percent-encoded key goes, as one path segment. A template without it is allowed for POST.
    pub url: String,
    pub method: Method,
    /// What a tombstone sends; `None` = tombstones are counted and ignored.
    pub delete: Option<Delete>,
    pub headers: Vec<(String, Secret)>,
    pub auth: Option<Auth>,
    pub tls: Tls,
    /// For connecting.
    pub connect_timeout: Duration,
    /// From sending a request to the end of its answer.
    pub timeout: Duration,
    /// Requests under way at once.
    pub in_flight: NonZeroUsize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    Put,
    Post,
    Patch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum DeleteMethod {
    Delete,
    Put,
    Post,
    Patch,
}

/// What is sent for a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    pub method: DeleteMethod,
    /// As [`Http::url`].
    pub url: String,
    /// With `{key}` where the key goes, escaped as in a JSON string.
    pub body: Option<String>,
}

/// In PEM.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Trusted beside the system's authorities.
    pub ca: Option<String>,
    /// The gateway's certificate with its chain, and its key.
    pub identity: Option<(String, Secret)>,
}

#[derive(Clone, Debug)]
pub enum Auth {
    Bearer(Secret),
    Basic { user: String, password: Secret },
}

#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// Of the route; a lane's own file has the sink's name before the extension: `profiles.crm.ndjson`.
    pub path: PathBuf,
}

impl DeadLetter {
    /// The file of the lane that ends in `sink`.
    pub fn for_lane(&self, sink: &str) -> PathBuf {
        let mut name = self.path.file_stem().unwrap_or_default().to_owned();
        name.push(".");
        name.push(sink);
        if let Some(extension) = self.path.extension() {
            name.push(".");
            name.push(extension);
        }
        self.path.with_file_name(name)
    }
}
