//! The WebAssembly host: from a component's file to records that went through it.
//!
//! An [`Engine`] loads components. A [`Chain`] is a route's key policy and plugins; each worker of each lane opens a
//! [`Runner`] on it, which takes deliveries one by one. Whatever a plugin does (trap, hang, hoard, lie) costs its guilty
//! record: the runner finds it, gives it to the route's policy, and goes on with a fresh instance.
//!
//! Nothing outside this module says "wasmtime". A thread that runs plugins needs a stack of 2 MiB.

mod cache;
mod chain;
mod circuit;
mod component;
mod contract;
mod encoded;
mod engine;
mod guilt;
mod host;
mod instance;
mod keys;
mod output;
mod problem;
mod rows;
mod runner;
mod verdict;
mod wasi;

pub use chain::{Chain, ChainError, PluginDescription, RunnerContext};
pub use component::{LoadError, MAX_COMPONENT_BYTES, Plugin};
pub use contract::{Setup, Wants};
pub use engine::{Engine, EngineError, EngineSettings, NoRoom};
pub use problem::ConfigProblem;
pub use runner::{Runner, Stall};
