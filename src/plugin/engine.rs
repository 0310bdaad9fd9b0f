//! The engine: settings that were measured, the room for instances, and the clock of deadlines.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use wasmtime::component::Linker;
use wasmtime::{Config, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::cache::Cache;
use super::component::Compiled;
use super::host::{self, Host, MAX_TABLE_ELEMENTS};

/// How often the epoch moves: deadlines are met to within one tick, at 200 wake-ups a second in the whole process.
pub const EPOCH_TICK: Duration = Duration::from_millis(5);

/// Stack of a guest. A thread that runs plugins needs as much again for the host's own calls, which the default of 2 MiB
/// covers.
const STACK_BYTES: usize = 1 << 20;

/// Bounds on one component. They cost address space only: componentised Python has about 20 core modules, and a composed
/// component a memory for each of its parts.
const MAX_CORE_INSTANCES: u32 = 64;
pub(super) const MAX_MEMORIES: u32 = 4;
pub(super) const MAX_TABLES: u32 = 32;

/// Bytes of host memory that an instance's bookkeeping may take.
const MAX_INSTANCE_BYTES: usize = 1 << 20;

/// One instance beyond the lanes' own, for `describe` and for trying a configuration: one at a time.
const SPARE_INSTANCES: usize = 1;

/// What guests' memories are counted in, and so the least that a pool can give.
const WASM_PAGE: usize = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// Where compiled code is kept; `None` = nowhere.
    pub cache_dir: Option<PathBuf>,
    /// Instances of all runners at once.
    pub max_instances: usize,
    /// Bytes of memory of one instance.
    pub max_memory: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("cannot set up the WebAssembly engine for `{instances}` instances of `{memory}` bytes: {reason}")]
    Setup { instances: usize, memory: usize, reason: String },
    #[error("cannot make the directory `{}` for compiled code: {error}", .dir.display())]
    CacheDir { dir: PathBuf, error: io::Error },
}

/// There are fewer free instances than a runner needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{needed}` plugin instances are needed (one for each plugin, sink and worker of a route), `{used}` of `{max}` are in use"
)]
pub struct NoRoom {
    pub needed: usize,
    pub used: usize,
    pub max: usize,
}

/// Compiles and holds components. Clones share it; it ends with the last of them and of what was loaded by it.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    engine: wasmtime::Engine,
    linker: Linker<Host>,
    cache: Option<Cache>,
    settings: EngineSettings,
    used: AtomicUsize,
    /// What is loaded now, by digest: routes that use the same component share its code.
    compiled: Mutex<HashMap<String, Weak<Compiled>>>,
    spare: Mutex<()>,
}

impl Engine {
    /// # Errors
    /// If the machine cannot give the room, or the cache's directory cannot be made.
    pub fn try_new(settings: EngineSettings) -> Result<Self, EngineError> {
        let setup = |error: wasmtime::Error| EngineError::Setup {
            instances: settings.max_instances,
            memory: settings.max_memory,
            reason: format!("{error:#}"),
        };
        let engine = wasmtime::Engine::new(&engine_config(&settings).map_err(setup)?).map_err(setup)?;
        let linker = host::linker(&engine).map_err(setup)?;
        let open = |dir: &PathBuf| {
            Cache::open(dir, &engine).map_err(|error| EngineError::CacheDir { dir: dir.clone(), error })
        };
        let cache = settings.cache_dir.as_ref().map(open).transpose()?;
        start_clock(&engine).map_err(|error| setup(error.into()))?;
        let used = AtomicUsize::new(0);
        let (compiled, spare) = (Mutex::default(), Mutex::default());
        Ok(Self(Arc::new(Inner { engine, linker, cache, settings, used, compiled, spare })))
    }

    /// Takes room for `needed` instances until the answer is dropped.
    ///
    /// # Errors
    /// If there is not as much.
    pub(super) fn reserve(&self, needed: usize) -> Result<Slots, NoRoom> {
        let max = self.0.settings.max_instances;
        let take = |used: usize| used.checked_add(needed).filter(|sum| *sum <= max);
        self.0
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .map(|_| Slots { engine: self.clone(), count: needed })
            .map_err(|used| NoRoom { needed, used, max })
    }

    /// The right to use the spare instance; waits for whoever has it, who is bounded by the time of a start-up call.
    pub(super) fn spare(&self) -> MutexGuard<'_, ()> {
        self.0.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.0.engine
    }

    pub(super) fn linker(&self) -> &Linker<Host> {
        &self.0.linker
    }

    pub(super) fn cache(&self) -> Option<&Cache> {
        self.0.cache.as_ref()
    }

    pub(super) fn max_memory(&self) -> usize {
        self.0.settings.max_memory
    }

    /// What is loaded under `digest`, or what `load` makes.
    pub(super) fn shared<E>(
        &self,
        digest: &str,
        load: impl FnOnce() -> Result<Compiled, E>,
    ) -> Result<Arc<Compiled>, E> {
        let loaded = || self.0.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = loaded().get(digest).and_then(Weak::upgrade) {
            return Ok(compiled);
        }
        // Not under the lock: a large component takes seconds to compile. Two who compile the same one do it twice.
        let compiled = Arc::new(load()?);
        let mut loaded = loaded();
        loaded.retain(|_, compiled| compiled.strong_count() > 0);
        loaded.insert(digest.to_owned(), Arc::downgrade(&compiled));
        Ok(compiled)
    }
}

/// Room for instances, given back when it is dropped.
pub struct Slots {
    engine: Engine,
    count: usize,
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.engine.0.used.fetch_sub(self.count, Ordering::AcqRel);
    }
}

/// How many ticks make sure that `time` has passed.
pub(super) fn ticks(time: Duration) -> u64 {
    let ticks = time.as_nanos().div_ceil(EPOCH_TICK.as_nanos());
    // The tick under way may end at once.
    u64::try_from(ticks).unwrap_or(u64::MAX / 2).saturating_add(1)
}

fn engine_config(settings: &EngineSettings) -> wasmtime::Result<Config> {
    let instances = settings.max_instances.saturating_add(SPARE_INSTANCES);
    let instances = u32::try_from(instances)?;
    let each = |count: u32| instances.saturating_mul(count);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_core_instances(each(MAX_CORE_INSTANCES))
        .total_memories(each(MAX_MEMORIES))
        .total_tables(each(MAX_TABLES))
        .total_stacks(0)
        .max_component_instance_size(MAX_INSTANCE_BYTES)
        .max_core_instance_size(MAX_INSTANCE_BYTES)
        .max_core_instances_per_component(MAX_CORE_INSTANCES)
        .max_memories_per_component(MAX_MEMORIES)
        .max_tables_per_component(MAX_TABLES)
        .table_elements(MAX_TABLE_ELEMENTS)
        .max_memory_size(settings.max_memory.max(WASM_PAGE));
    let mut config = Config::new();
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .epoch_interruption(true)
        .max_wasm_stack(STACK_BYTES)
        // Nothing here is asynchronous; the default costs 470 ns a call.
        .concurrency_support(false)
        // A trap is told by its kind and by what the guest printed; frames of stripped release builds say nothing.
        .wasm_backtrace_max_frames(None);
    Ok(config)
}

/// Moves the epoch as long as the engine is there.
fn start_clock(engine: &wasmtime::Engine) -> io::Result<()> {
    let engine = engine.weak();
    let clock = move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            std::thread::sleep(EPOCH_TICK);
        }
    };
    std::thread::Builder::new().name("plugin-clock".into()).stack_size(128 << 10).spawn(clock).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(max_instances: usize) -> Engine {
        let settings = EngineSettings { cache_dir: None, max_instances, max_memory: 64 << 20 };
        Engine::try_new(settings).expect("an engine")
    }

    #[test]
    fn a_deadline_is_never_short_of_its_time() {
        assert_eq!(ticks(Duration::ZERO), 1);
        assert_eq!(ticks(EPOCH_TICK), 2);
        assert_eq!(ticks(EPOCH_TICK + Duration::from_nanos(1)), 3);
        assert!(ticks(Duration::MAX) > u64::MAX / 4);
    }

    #[test]
    fn room_is_refused_with_the_number_that_is_needed() {
        let engine = engine(5);
        let three = engine.reserve(3).expect("room");
        assert_eq!(engine.reserve(3).err(), Some(NoRoom { needed: 3, used: 3, max: 5 }));
        drop(three);
        assert!(engine.reserve(5).is_ok());
    }

    /// A configuration without plugins needs no room.
    #[test]
    fn an_engine_without_room_is_one() {
        let settings = EngineSettings { cache_dir: None, max_instances: 0, max_memory: 0 };
        let engine = Engine::try_new(settings).expect("an engine");
        assert!(engine.reserve(0).is_ok());
    }

    /// Hundreds of lanes with several plugins and workers are normal: it is address space, not memory.
    #[test]
    fn a_thousand_instances_fit() {
        assert!(engine(1_000).reserve(1_000).is_ok());
    }
}
