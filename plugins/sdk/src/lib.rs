//! Write plugins for the Tidegate gateway in Rust.
//!
//! A plugin is a type that implements [`Plugin`] and is given to [`export!`]. It sees one [`Record`] at a time and answers
//! with one [`Verdict`] for each; the crate turns that into the flat batches of the contract (`wit/`) without allocating
//! for records that are kept or dropped.
//!
//! ```
//! use tidegate_plugin::{ConfigError, Decided, Plugin, Record, Setup, Verdict, Wants};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! pub struct Config {
//!     /// Values longer than this many bytes are rejected.
//!     max_bytes: usize,
//! }
//!
//! pub struct SizeLimit {
//!     max_bytes: usize,
//! }
//!
//! impl Plugin for SizeLimit {
//!     type Config = Config;
//!
//!     fn new(config: Config) -> Result<Self, ConfigError> {
//!         if config.max_bytes == 0 {
//!             return Err(ConfigError::at("max_bytes", "must be at least 1"));
//!         }
//!         Ok(Self { max_bytes: config.max_bytes })
//!     }
//!
//!     fn setup(&self) -> Setup {
//!         Setup { wants: Wants::VALUES, ..Setup::default() }
//!     }
//!
//!     fn process(&mut self, record: Record<'_>, verdict: Verdict<'_>) -> Decided {
//!         match record.value() {
//!             Some(value) if value.len() > self.max_bytes => {
//!                 verdict.reject(format_args!("value has {} bytes", value.len()))
//!             }
//!             _ => verdict.keep(),
//!         }
//!     }
//! }
//!
//! tidegate_plugin::export!(SizeLimit);
//!
//! // A plugin is tested natively, through the same encoding as in the gateway.
//! use tidegate_plugin::harness::{Harness, Message, Outcome};
//! let mut harness = Harness::<SizeLimit>::new(r#"{"max_bytes": 3}"#)?;
//! assert_eq!(
//!     harness.process([Message::new("a", "abc"), Message::new("b", "abcd"), Message::tombstone("c")]),
//!     [Outcome::Keep, Outcome::Reject("value has 4 bytes".into()), Outcome::Keep],
//! );
//! # Ok::<(), ConfigError>(())
//! ```

mod config;
mod export;
#[cfg(not(target_arch = "wasm32"))]
pub mod harness;
mod host;
mod instance;
mod layout;
mod record;
mod schema;
mod verdict;

/// What `wit-bindgen` makes of the contract; [`export!`] needs it in sight.
#[doc(hidden)]
#[allow(missing_docs, reason = "generated from the documented WIT package")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "plugin",
        pub_export_macro: true,
        default_bindings_module: "tidegate_plugin::bindings",
    });
}

pub use bindings::tidegate::plugin::host::Level;
pub use bindings::tidegate::plugin::types::{Setup, Wants};
pub use config::{ConfigError, NoConfig, config_schema};
pub use host::{count, enabled, log};
#[doc(hidden)]
pub use instance::{Instance, Package, describe};
pub use record::{Header, Headers, Record};
pub use verdict::{Decided, Expansion, MAX_REASON_BYTES, Output, Verdict};

/// A plugin. The gateway makes several instances of it and gives each record to one of them.
pub trait Plugin: Sized + 'static {
    /// The plugin's name, lower-case words joined by hyphens; `None` = the package's name.
    const NAME: Option<&'static str> = None;
    /// The plugin's semantic version; `None` = the package's version.
    const VERSION: Option<&'static str> = None;
    /// One sentence for people; `None` = the package's description.
    const SUMMARY: Option<&'static str> = None;

    /// The configuration: what stands under `config:` in the route. Derive `Deserialize` and `JsonSchema`, and put
    /// `#[serde(deny_unknown_fields)]` on it, so that a typo is an error. [`NoConfig`] is for plugins without options.
    type Config: serde::de::DeserializeOwned + schemars::JsonSchema;

    /// Makes an instance, or says what is wrong with the configuration. Whatever is costly belongs here.
    fn new(config: Self::Config) -> Result<Self, ConfigError>;

    /// What the plugin needs of each record; by default everything. The less it wants, the cheaper the call.
    fn setup(&self) -> Setup {
        Setup::default()
    }

    /// Decides about one record. There is no other way to get a [`Decided`] than to use up the verdict, so that each record
    /// gets exactly one.
    fn process(&mut self, record: Record<'_>, verdict: Verdict<'_>) -> Decided;
}

/// Wants everything, changes no keys, and leaves the size of a batch to the host.
impl Default for Setup {
    fn default() -> Self {
        Self { wants: Wants::all(), changes_keys: false, max_batch: 0 }
    }
}

/// The example of the guide is compiled with the SDK's own.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Guide;
