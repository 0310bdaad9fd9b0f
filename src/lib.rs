//! Tidegate keeps systems in step with compacted Kafka topics. This is the map; the modules stand in reading order.

pub mod route;

pub mod checkpoint;
pub mod delivery;
pub mod line;
pub mod record;

pub mod plugin;
pub mod sink;
pub mod source;

pub mod gateway;

pub mod config;

pub mod metrics;
pub mod secret;
pub mod stop;

pub mod admin;
pub mod cli;
