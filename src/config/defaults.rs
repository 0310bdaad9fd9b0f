//! Every default and every bound of the configuration, as it would be written.

use std::ops::RangeInclusive;
use std::time::Duration;

pub const DATA_DIR: &str = "./data";
pub const MEMORY: &str = "512MiB";
pub const LOG_LEVEL: &str = "info";
/// Below the 30 s after which Kubernetes and systemd-like supervisors kill.
pub const SHUTDOWN_GRACE: &str = "25s";
pub const ADMIN_LISTEN: &str = "127.0.0.1:8080";

/// The same on every machine, so that a configuration that passes `check` on one passes on all. Two keep both cores of
/// a small machine busy; a lane without plugins has no use for more.
pub const WORKERS: usize = 2;
pub const DRAIN_TIMEOUT: &str = "5s";

pub const PLUGIN_TIME: &str = "50ms";
/// A hundred times what parsing and writing a JSON value takes in a guest.
pub const PLUGIN_TIME_PER_RECORD: &str = "1ms";
/// Twice what a Rust guest uses on a full batch; guests that bring an interpreter need more.
pub const PLUGIN_MEMORY: &str = "16MiB";
pub const PLUGIN_OUTPUT: &str = "8MiB";
pub const PLUGIN_LOG: &str = "64KiB";

pub const ROTATE_SIZE: &str = "256MiB";
/// Taken where the one that is written cannot be.
pub const ROTATE_AGE: &str = "1h";
pub const SQLITE_CACHE: &str = "16MiB";
pub const HTTP_TIMEOUT: &str = "30s";
pub const HTTP_CONNECT_TIMEOUT: &str = "5s";
pub const HTTP_IN_FLIGHT: usize = 32;
pub const RETRY_BACKOFF: &str = "200ms";
pub const RETRY_MAX: &str = "30s";

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

pub const MEMORY_RANGE: RangeInclusive<u64> = 16 << 20..=16 << 40;
pub const SHUTDOWN_GRACE_RANGE: RangeInclusive<Duration> = SECOND..=Duration::from_secs(600);
/// librdkafka gives a member up that does not poll for five minutes, and the drain is part of one poll.
pub const DRAIN_TIMEOUT_RANGE: RangeInclusive<Duration> = MILLISECOND..=Duration::from_secs(120);
pub const PLUGIN_TIME_RANGE: RangeInclusive<Duration> = MILLISECOND..=MINUTE;
pub const PLUGIN_TIME_PER_RECORD_RANGE: RangeInclusive<Duration> = Duration::ZERO..=SECOND;
/// One page is 64 KiB, and a 32-bit guest can address 4 GiB.
pub const PLUGIN_MEMORY_RANGE: RangeInclusive<u64> = 64 << 10..=4 << 30;
pub const PLUGIN_OUTPUT_RANGE: RangeInclusive<u64> = 4 << 10..=1 << 30;
pub const PLUGIN_LOG_RANGE: RangeInclusive<u64> = 0..=16 << 20;
pub const ROTATE_AGE_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(365 * 86_400);
pub const ROTATE_SIZE_RANGE: RangeInclusive<u64> = 1 << 10..=1 << 40;
pub const SQLITE_CACHE_RANGE: RangeInclusive<u64> = 256 << 10..=64 << 30;
pub const HTTP_TIMEOUT_RANGE: RangeInclusive<Duration> = MILLISECOND..=Duration::from_secs(600);
pub const RETRY_BACKOFF_RANGE: RangeInclusive<Duration> = MILLISECOND..=Duration::from_secs(3600);

/// Guessing one of 16 random characters takes longer than the token lives.
pub const TOKEN_MIN_CHARACTERS: usize = 16;
/// SQLite's own limit is 2,000.
pub const MAX_COLUMNS: usize = 500;
/// What most servers take.
pub const MAX_HEADERS: usize = 100;
/// A subscription is sent whole to the group's coordinator.
pub const MAX_TOPICS: usize = 1000;
/// Steps of a route.
pub const MAX_CHAIN: usize = 32;
/// Every request is compared with all of them.
pub const MAX_TOKENS: usize = 100;
/// What Kafka takes as a topic's name.
pub const TOPIC_MAX_CHARACTERS: usize = 249;
/// What a regular expression for keys may take when it is compiled.
pub const REGEX_SIZE_LIMIT: usize = 1 << 20;
