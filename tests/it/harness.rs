//! What the tests stand on: a real Kafka broker, the gateway as a process, an HTTP receiver, and an oracle that shares no
//! code with the gateway.
//!
//! Nothing is skipped when it is missing and nothing is tried twice: a test waits for a condition with a deadline.

pub mod alive;
pub mod broker;
pub mod gateway;
pub mod golden;
pub mod group;
pub mod link;
pub mod oracle;
pub mod process;
pub mod producer;
pub mod profiles;
pub mod random;
pub mod read;
pub mod receiver;
pub mod topic;
pub mod trio;
pub mod wait;

pub use broker::Broker;
pub use gateway::{Gateway, Site, route, route_from};
pub use producer::{Producer, Record};
pub use receiver::Receiver;
pub use topic::Topic;
pub use wait::{eventually, wait_for};

use std::future::Future;
use std::sync::OnceLock;

/// The runtime of everything in the harness that waits. It lives as long as the test process.
pub fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    })
}

pub fn block_on<F: Future>(future: F) -> F::Output {
    runtime().block_on(future)
}

/// `full` for the sizes of `make verify-…`, else the sizes of every run.
pub fn full_size() -> bool {
    std::env::var("TIDEGATE_SCALE").is_ok_and(|scale| scale == "full")
}

/// `everyday` in every run, `full` under `make verify-…`; the environment variable `name` overrides both.
pub fn sized(name: &str, everyday: u64, full: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("`{name}` is `{text}`, expected a number")),
        Err(_) if full_size() => full,
        Err(_) => everyday,
    }
}
