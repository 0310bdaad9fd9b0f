//! Plugins, and their use in a route.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{Duration, Size};
use crate::config::defaults;
use crate::delivery::OnError;

/// A plugin that is read from a file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plugin {
    /// The WebAssembly component.
    #[schemars(length(min = 1), extend("examples" = ["plugins/mask_fields.wasm"]))]
    pub file: String,
    /// The SHA-256 of the file in hexadecimal. With it, a file that differs is refused.
    #[schemars(regex(pattern = "^[0-9a-fA-F]{64}$"))]
    pub sha256: Option<String>,
    /// What it may use, wherever it is used.
    pub limits: Option<Limits>,
}

/// What a plugin may use. Whatever goes beyond costs the record that did it, never the gateway.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Time for one call, which takes a batch of records.
    #[schemars(extend("default" = defaults::PLUGIN_TIME))]
    pub time: Option<Duration>,
    /// Time that each record of the batch adds to it.
    #[schemars(extend("default" = defaults::PLUGIN_TIME_PER_RECORD))]
    pub time_per_record: Option<Duration>,
    /// Memory of one instance. There is one instance for each lane and worker.
    #[schemars(extend("default" = defaults::PLUGIN_MEMORY))]
    pub memory: Option<Size>,
    /// What one call may return.
    #[schemars(extend("default" = defaults::PLUGIN_OUTPUT))]
    pub output: Option<Size>,
    /// What one call may log and print; the rest is cut off.
    #[schemars(extend("default" = defaults::PLUGIN_LOG))]
    pub log: Option<Size>,
}

/// One step of a route's chain.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginUse {
    /// A name under `plugins`, or one that comes with the gateway: `std/filter`, `std/key-check`, `std/mask-fields`.
    #[serde(rename = "use")]
    pub name: String,
    /// The plugin's own configuration. What it may hold is the plugin's to say.
    pub config: Option<Value>,
    /// What happens to a record that the plugin rejects or fails on. It is never passed on: that would leak what a mask
    /// should hide.
    #[schemars(extend("default" = "dead_letter"))]
    pub on_error: Option<OnError>,
    /// What it may use here, instead of what `plugins` says.
    pub limits: Option<Limits>,
}
