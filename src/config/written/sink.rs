//! Sinks.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Duration, Size};
use crate::config::checked::{ColumnType, Compression, DeleteMethod, Method, OnDrop, OnReject};
use crate::config::defaults;
use crate::delivery::OnError;

/// Where records go.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Sink {
    Discard(Discard),
    File(File),
    Sqlite(Sqlite),
    Http(Http),
}

/// Takes every record and keeps none: for measurements and dry runs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Discard {}

/// Appends every record to files, one JSON text per line.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// The file, with the placeholders `{route}`, `{topic}` and `{partition}`.
    #[schemars(length(min = 1), extend("examples" = ["audit/{topic}-{partition}.ndjson"]))]
    pub path: String,
    pub rotate: Option<Rotate>,
    /// For a record that can never be written.
    #[schemars(extend("default" = "dead_letter"))]
    pub on_error: Option<OnError>,
    pub retry: Option<Retry>,
}

/// When a file is closed and the next one begun.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotate {
    /// At this many bytes.
    #[schemars(extend("default" = defaults::ROTATE_SIZE))]
    pub size: Option<Size>,
    /// So long after its first line. Without it: whatever its age.
    #[schemars(extend("examples" = ["1h"]))]
    pub age: Option<Duration>,
    /// What is done with a file that is closed: `audit.000001.ndjson` becomes `audit.000001.ndjson.gz` or `….zst`. Without it:
    /// nothing.
    pub compress: Option<Compression>,
}

/// Keeps the latest value per key in a table of an SQLite database, which any SQLite client can read meanwhile.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sqlite {
    /// The database. No other sink may use it.
    #[schemars(length(min = 1))]
    pub path: String,
    /// The table. It is created if it is not there.
    pub table: String,
    /// Columns that are filled from the JSON value, by name. Without them the value is kept whole, in a column `value`.
    #[serde(default)]
    #[schemars(extend("maxProperties" = defaults::MAX_COLUMNS))]
    pub columns: IndexMap<String, Column>,
    /// SQLite's page cache.
    #[schemars(extend("default" = defaults::SQLITE_CACHE))]
    pub cache: Option<Size>,
    /// Whether a newer version that a plugin drops deletes the row of an older one.
    #[schemars(extend("default" = "delete"))]
    pub on_drop: Option<OnDrop>,
    /// Whether a newer version that is rejected deletes the row of an older one.
    #[schemars(extend("default" = "keep"))]
    pub on_reject: Option<OnReject>,
    /// For a record that can never be written, and for one that `retry` gave up on.
    #[schemars(extend("default" = "dead_letter"))]
    pub on_error: Option<OnError>,
    pub retry: Option<Retry>,
}

/// A column of the table.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Where it stands in the JSON value: a JSON pointer (RFC 6901).
    #[schemars(extend("examples" = ["/address/city"]))]
    pub path: String,
    /// What is kept of it.
    #[serde(rename = "type")]
    #[schemars(extend("default" = "text"))]
    pub kind: Option<ColumnType>,
}

/// Sends each record to an HTTP service. Requests for one key are sent one after the other.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// The address. `{key}` stands for the record's key, percent-encoded as one path segment.
    #[schemars(extend("examples" = ["https://crm.internal/profiles/{key}"]))]
    pub url: String,
    /// With `PUT` the service holds the latest value per key; with `POST` and `PATCH` it is given every record.
    #[schemars(extend("default" = "PUT"))]
    pub method: Option<Method>,
    /// What a tombstone does: `DELETE`, `ignore`, or a request of one's own. Default: `DELETE` when `url` has `{key}`, else
    /// `ignore`.
    pub delete: Option<Delete>,
    /// Headers of every request, by name.
    #[serde(default)]
    #[schemars(extend("maxProperties" = defaults::MAX_HEADERS))]
    pub headers: IndexMap<String, String>,
    /// How the gateway identifies itself.
    pub auth: Option<Auth>,
    /// For services with a certificate of an authority of one's own, or that want one from the gateway.
    pub tls: Option<Tls>,
    /// From sending a request to the end of its answer.
    #[schemars(extend("default" = defaults::HTTP_TIMEOUT))]
    pub timeout: Option<Duration>,
    /// For connecting.
    #[schemars(extend("default" = defaults::HTTP_CONNECT_TIMEOUT))]
    pub connect_timeout: Option<Duration>,
    /// Requests under way at once.
    #[schemars(extend("default" = defaults::HTTP_IN_FLIGHT), range(min = 1, max = 1024))]
    pub in_flight: Option<usize>,
    /// Whether a newer version that a plugin drops sends a `DELETE`. The service may never have had the key: so the default
    /// is not to.
    #[schemars(extend("default" = "ignore"))]
    pub on_drop: Option<OnDrop>,
    /// Whether a newer version that is rejected sends a `DELETE`.
    #[schemars(extend("default" = "keep"))]
    pub on_reject: Option<OnReject>,
    /// For a record that the service refuses for good, and for one that `retry` gave up on.
    #[schemars(extend("default" = "dead_letter"))]
    pub on_error: Option<OnError>,
    pub retry: Option<Retry>,
}

/// What a tombstone does at an HTTP service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Delete {
    Word(DeleteWord),
    Request(DeleteRequest),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum DeleteWord {
    /// A `DELETE` to the same address.
    #[serde(rename = "DELETE")]
    Delete,
    /// Nothing is sent; it is counted.
    #[serde(rename = "ignore")]
    Ignore,
}

/// What is sent for a tombstone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteRequest {
    pub method: DeleteMethod,
    /// The address, with `{key}` as in the sink's own, which is the default.
    #[schemars(extend("examples" = ["https://crm.internal/profiles/{key}/deactivate"]))]
    pub url: Option<String>,
    /// The body. `{key}` stands for the record's key as text, escaped as in a JSON string.
    #[schemars(extend("examples" = ["{\"id\":\"{key}\",\"active\":false}"]))]
    pub body: Option<String>,
}

/// Certificates and keys in PEM, most easily as `${file:ca.pem}`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Authorities that are trusted beside the system's.
    pub ca: Option<String>,
    /// The gateway's certificate, and those between it and an authority that the service trusts.
    pub certificate: Option<String>,
    /// The key of `certificate`, as PKCS #8 (`BEGIN PRIVATE KEY`).
    pub key: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Auth {
    /// `Authorization: Bearer …`
    Bearer(String),
    /// `Authorization: Basic …`
    Basic(Basic),
}

/// A user and a password.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Basic {
    /// Without a colon.
    pub user: String,
    pub password: String,
}

/// How failures that may pass (network, 408, 425, 429, 5xx, a busy or full disk) are tried again: after `backoff`, doubled
/// each time up to `max`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Tries in all, after which `on_error` decides. Without it: until it works, while the lane waits.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub attempts: Option<u32>,
    /// The first wait.
    #[schemars(extend("default" = defaults::RETRY_BACKOFF))]
    pub backoff: Option<Duration>,
    /// The longest wait.
    #[schemars(extend("default" = defaults::RETRY_MAX))]
    pub max: Option<Duration>,
}
