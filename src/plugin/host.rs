//! What an instance has on the host's side: its limits, and the functions of the contract's `host` interface.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use wasmtime::component::{Linker, ResourceTable, WasmStr};
use wasmtime::{ResourceLimiter, Result, StoreContextMut};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::contract::{self, Level};
use super::output::{self, Output, Speaker};
use super::wasi::{self, Timed, Waits};
use crate::metrics::LaneMetrics;

/// Names that a plugin may count under in one route: each is a series in `/metrics` for every lane of the route.
pub const MAX_COUNTERS: usize = 50;

/// What a name of a counter may hold beyond its first letter.
const MAX_COUNTER_NAME_BYTES: usize = 63;

/// What a plugin may add to one counter in one call: a counter that wraps is worse than one that is too low.
const MAX_COUNT_PER_CALL: u64 = 1 << 32;

/// The counter of messages that were left out since they were over the limit, beside a plugin's own.
pub const LEFT_OUT: &str = "log_messages_left_out";

/// Elements of all tables of one instance: a JavaScript engine has about 15,000 functions in its table.
pub const MAX_TABLE_ELEMENTS: usize = 64 << 10;

/// The data of a store.
pub struct Host {
    wasi: WasiCtx,
    table: ResourceTable,
    began: Instant,
    deadline: Instant,
    pub output: Output,
    pub growth: Growth,
    counters: Counters,
    counted: BTreeMap<String, u64>,
}

/// The names that a plugin counts under, shared by all its instances in a route.
#[derive(Clone, Debug, Default)]
pub struct Counters(Arc<Mutex<BTreeSet<String>>>);

/// The bounds on what an instance may grow to.
pub struct Growth {
    memory_limit: usize,
    memory: usize,
    table_elements: usize,
    /// Whether more memory was asked for than there is: most guests trap then, and this is why.
    pub refused: bool,
}

impl Host {
    pub fn new(speaker: Speaker, log_limit: usize, memory_limit: usize, counters: Counters) -> Self {
        let output = Output::new(speaker, log_limit);
        let now = Instant::now();
        Self {
            wasi: wasi::context(&output),
            table: wasi::table(),
            began: now,
            deadline: now,
            output,
            growth: Growth { memory_limit, memory: 0, table_elements: 0, refused: false },
            counters,
            counted: BTreeMap::new(),
        }
    }

    pub fn begin_call(&mut self, time: Duration) {
        self.deadline = Instant::now() + time;
        self.growth.refused = false;
        self.output.begin_call();
    }

    /// Writes what the call said and counted. What a call counted that failed is forgotten, since its records are given to
    /// the plugin again.
    pub fn end_call(&mut self, succeeded: bool, plugin: &str, metrics: Option<&LaneMetrics>) {
        let left_out = self.output.end_call();
        let counted = std::mem::take(&mut self.counted);
        let Some(metrics) = metrics else { return };
        if left_out > 0 {
            metrics.plugin_count(plugin, LEFT_OUT, left_out);
        }
        if succeeded {
            counted.into_iter().for_each(|(name, by)| metrics.plugin_count(plugin, &name, by));
        }
    }

    fn count(&mut self, name: &str, by: u64) {
        let sum = match self.counted.get_mut(name) {
            Some(sum) => sum,
            None if self.counters.admit(name) => self.counted.entry(name.to_owned()).or_default(),
            None => return,
        };
        *sum = sum.saturating_add(by).min(MAX_COUNT_PER_CALL);
    }
}

impl Counters {
    /// Whether `name` is among the names of this plugin, which it becomes while there is room.
    fn admit(&self, name: &str) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.contains(name) || (names.len() < MAX_COUNTERS && names.insert(name.to_owned()))
    }
}

/// `[a-z][a-z0-9_]{0,62}`
fn is_counter_name(name: &str) -> bool {
    let tail = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.len() <= MAX_COUNTER_NAME_BYTES
        && name.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
        && name.bytes().all(tail)
}

/// Links everything that a plugin may call.
///
/// # Errors
/// Never in practice: the names are defined once.
pub fn linker(engine: &wasmtime::Engine) -> Result<Linker<Host>> {
    let mut linker = Linker::new(engine);
    wasi::link(&mut linker)?;
    let mut host = linker.instance(contract::HOST)?;
    host.func_wrap("enabled", |_: StoreContextMut<'_, Host>, (level,): (Level,)| Ok((output::enabled(level),)))?;
    host.func_wrap("log", |store: StoreContextMut<'_, Host>, (level, message): (Level, WasmStr)| {
        let output = &store.data().output;
        output.log(level, &message.to_str(&store)?);
        Ok(())
    })?;
    host.func_wrap("count", |mut store: StoreContextMut<'_, Host>, (name, by): (WasmStr, u64)| {
        let name = name.to_str(&store)?;
        if is_counter_name(&name) {
            let name = name.into_owned();
            store.data_mut().count(&name, by);
        }
        Ok(())
    })?;
    Ok(linker)
}

impl ResourceLimiter for Growth {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        let grown = self.memory - current.min(self.memory) + desired;
        if grown > self.memory_limit {
            self.refused = true;
            return Ok(false);
        }
        self.memory = grown;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> Result<()> {
        self.refused = true;
        tracing::debug!(%error, "a guest's memory could not grow");
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        let grown = self.table_elements - current.min(self.table_elements) + desired;
        if grown > MAX_TABLE_ELEMENTS {
            return Ok(false);
        }
        self.table_elements = grown;
        Ok(true)
    }
}

impl WasiView for Host {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl Timed for Host {
    fn waits(&mut self) -> Waits<'_> {
        Waits { table: &mut self.table, began: self.began, deadline: self.deadline }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_names() {
        let long = "a".repeat(63);
        for good in ["a", "a_1", "masked_fields", &long] {
            assert!(is_counter_name(good), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", "A", "1a", "_a", "a-b", "a b", "ä", "evil\"} 1\n", &long] {
            assert!(!is_counter_name(bad), "{bad}");
        }
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let counters = Counters::default();
        let admitted = (0..1_000).filter(|number| counters.admit(&format!("n{number}"))).count();
        assert_eq!(admitted, MAX_COUNTERS);
        assert!(counters.admit("n0"), "a name that is in stays in");
    }

    #[test]
    fn memories_are_added_up() {
        let mut growth = Growth { memory_limit: 100, memory: 0, table_elements: 0, refused: false };
        assert!(growth.memory_growing(0, 60, None).expect("answers"));
        assert!(growth.memory_growing(0, 30, None).expect("answers"), "a second memory");
        assert!(!growth.memory_growing(30, 50, None).expect("answers"));
        assert!(growth.refused);
        assert!(growth.memory_growing(30, 40, None).expect("answers"));
    }
}
