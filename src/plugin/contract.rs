//! The contract's types (`wit/tidegate-plugin.wit`) as they cross the boundary. They are written by hand, since what goes in
//! is borrowed from a batch: each list enters the guest as one memory copy. The loader compares them with each component.

use wasmtime::component::{ComponentType, Lift, Lower, flags};

pub const PROCESSOR: &str = "tidegate:plugin/processor@1.0.0";
pub const HOST: &str = "tidegate:plugin/host@1.0.0";

/// The length of a field that is not wanted (on the way in) or is as the input has it (on the way out).
pub const ABSENT: i32 = -2;

#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(record)]
pub struct Description {
    pub name: String,
    pub version: String,
    pub summary: String,
    #[component(name = "config-schema")]
    pub config_schema: String,
}

flags! {
    Wants {
        #[component(name = "keys")]
        const KEYS;
        #[component(name = "values")]
        const VALUES;
        #[component(name = "headers")]
        const HEADERS;
    }
}

/// What a configured plugin needs.
#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(record)]
pub struct Setup {
    pub wants: Wants,
    #[component(name = "changes-keys")]
    pub changes_keys: bool,
    /// Records in one call; 0 = the host's choice.
    #[component(name = "max-batch")]
    pub max_batch: u32,
}

#[derive(Clone, Copy, Debug, ComponentType, Lower)]
#[component(record)]
pub struct Input<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offsets: &'a [i64],
    pub timestamps: &'a [i64],
    pub lengths: &'a [i32],
    pub data: &'a [u8],
}

/// What a plugin answered: hostile until `verdict::check` has seen it. The lists are copied out before the guest's
/// `post-return` frees them; a plugin that keeps everything answers with one byte a record.
#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(record)]
pub struct Verdicts {
    pub actions: Vec<u8>,
    pub lengths: Vec<i32>,
    pub data: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(variant)]
pub enum PluginError {
    #[component(name = "config")]
    Config(String),
    #[component(name = "retry")]
    Retry(String),
    #[component(name = "fatal")]
    Fatal(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[allow(dead_code, reason = "guests make the levels that the host does not")]
pub enum Level {
    #[component(name = "trace")]
    Trace,
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}
