//! One instance of a plugin: a guest with its memory, used by one thread, thrown away when a call fails.

use std::time::Duration;

use wasmtime::component::{InstancePre, TypedFunc};
use wasmtime::{Store, Trap};
use wasmtime_wasi::I32Exit;

use super::contract::{Input, PROCESSOR, PluginError, Setup, Verdicts};
use super::engine::ticks;
use super::host::{Counters, Host};
use super::output::{Speaker, short};
use super::wasi::DeadlinePassed;
use crate::config::Limits;
use crate::metrics::{ErrorKind, LaneMetrics};

/// For `describe` and `init`: enough for an interpreter to start, short enough to wait for at a console.
pub const STARTUP_TIME: Duration = Duration::from_secs(2);

/// What is kept of a text that a guest gives with an error, in bytes.
pub const MAX_ERROR_BYTES: usize = 1024;

/// What may be copied to the host by one call beyond the output limit: actions, and the lists of WASI calls.
const COPY_SLACK: usize = 1 << 20;

type Process = TypedFunc<(Input<'static>,), (Result<Verdicts, PluginError>,)>;

pub struct Instance {
    store: Store<Host>,
    process: Process,
    pub setup: Setup,
    limits: Limits,
    /// Calls of `process` that succeeded.
    pub calls: u64,
}

/// A call that failed for a reason that is the plugin's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: ErrorKind,
    pub cause: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The plugin asks for the same records again later.
    Retry(String),
    /// The instance is not to be used again.
    Fault(Fault),
}

/// Why an instance cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The component is not of this world.
    World(String),
    /// The plugin refuses its configuration.
    Config(String),
    Failed(Fault),
}

/// A guest that has not been told its configuration.
pub struct Guest {
    store: Store<Host>,
    instance: wasmtime::component::Instance,
    limits: Limits,
}

impl Guest {
    /// # Errors
    /// If the guest cannot be made within its limits.
    pub fn new(
        pre: &InstancePre<Host>,
        speaker: Speaker,
        limits: Limits,
        counters: Counters,
    ) -> Result<Self, OpenError> {
        let host = Host::new(speaker, limits.log, limits.memory, counters);
        let mut store = Store::new(pre.engine(), host);
        store.limiter(|host| &mut host.growth);
        store.set_hostcall_fuel(limits.output.saturating_add(COPY_SLACK));
        begin(&mut store, STARTUP_TIME);
        match pre.instantiate(&mut store) {
            Ok(instance) => Ok(Self { store, instance, limits }),
            Err(error) => Err(OpenError::Failed(end(&mut store, &limits, STARTUP_TIME, "start", &error))),
        }
    }

    /// Asks the guest who it is.
    ///
    /// # Errors
    /// If the component is of another world or fails to answer.
    pub fn describe(mut self) -> Result<super::contract::Description, OpenError> {
        let describe = self.function::<(), (super::contract::Description,)>("describe")?;
        self.function::<(&str,), (Result<Setup, PluginError>,)>("init")?;
        self.function::<(Input<'static>,), (Result<Verdicts, PluginError>,)>("process")?;
        begin(&mut self.store, STARTUP_TIME);
        match describe.call(&mut self.store, ()) {
            Ok((description,)) => Ok(description),
            Err(error) => Err(OpenError::Failed(end(&mut self.store, &self.limits, STARTUP_TIME, "describe", &error))),
        }
    }

    /// Tells the guest its configuration, as JSON.
    ///
    /// # Errors
    /// If the guest refuses it or fails to answer.
    pub fn init(mut self, config: &str) -> Result<Instance, OpenError> {
        let init = self.function::<(&str,), (Result<Setup, PluginError>,)>("init")?;
        let process = self.function("process")?;
        begin(&mut self.store, STARTUP_TIME);
        let setup = match init.call(&mut self.store, (config,)) {
            Ok((Ok(setup),)) => setup,
            Ok((Err(PluginError::Config(text)),)) => return Err(OpenError::Config(short(&text, MAX_ERROR_BYTES))),
            Ok((Err(PluginError::Retry(text) | PluginError::Fatal(text)),)) => {
                let cause = format!("`init` failed: {}", short(&text, MAX_ERROR_BYTES));
                return Err(OpenError::Failed(Fault { kind: ErrorKind::PluginOther, cause }));
            }
            Err(error) => {
                return Err(OpenError::Failed(end(&mut self.store, &self.limits, STARTUP_TIME, "init", &error)));
            }
        };
        self.store.data_mut().end_call(false, "", None);
        Ok(Instance { store: self.store, process, setup, limits: self.limits, calls: 0 })
    }

    fn function<P, R>(&mut self, name: &str) -> Result<TypedFunc<P, R>, OpenError>
    where
        P: wasmtime::component::ComponentNamedList + wasmtime::component::Lower,
        R: wasmtime::component::ComponentNamedList + wasmtime::component::Lift,
    {
        let processor = self.instance.get_export_index(&mut self.store, None, PROCESSOR);
        let index = self.instance.get_export_index(&mut self.store, processor.as_ref(), name);
        let Some(index) = index.filter(|_| processor.is_some()) else {
            return Err(OpenError::World(format!("`{PROCESSOR}` has no function `{name}`")));
        };
        self.instance.get_typed_func(&mut self.store, index).map_err(|error| {
            OpenError::World(format!("the function `{name}` of `{PROCESSOR}` is another: {}", error.root_cause()))
        })
    }
}

impl Instance {
    /// Gives the plugin records; the answer is not checked yet.
    ///
    /// # Errors
    /// After a [`Failure::Fault`] the instance is of no use any more.
    pub fn process(&mut self, input: Input<'_>, plugin: &str, metrics: &LaneMetrics) -> Result<Verdicts, Failure> {
        let records = input.offsets.len();
        let time = deadline(&self.limits, records);
        begin(&mut self.store, time);
        // A function of the contract takes its input for the length of the call only.
        let process: TypedFunc<(Input<'_>,), _> = self.process;
        let result = match process.call(&mut self.store, (input,)) {
            Ok((Ok(verdicts),)) => Ok(verdicts),
            Ok((Err(PluginError::Retry(text)),)) => Err(Failure::Retry(short(&text, MAX_ERROR_BYTES))),
            Ok((Err(PluginError::Fatal(text)),)) => {
                let cause = format!("the plugin gave up: {}", short(&text, MAX_ERROR_BYTES));
                Err(Failure::Fault(Fault { kind: ErrorKind::PluginOther, cause }))
            }
            Ok((Err(PluginError::Config(text)),)) => {
                let cause = format!("`process` refused the configuration: {}", short(&text, MAX_ERROR_BYTES));
                Err(Failure::Fault(Fault { kind: ErrorKind::PluginOther, cause }))
            }
            Err(error) => Err(Failure::Fault(end(&mut self.store, &self.limits, time, "process", &error))),
        };
        self.store.data_mut().end_call(result.is_ok(), plugin, Some(metrics));
        self.calls += u64::from(result.is_ok());
        result
    }
}

/// How long a call with `records` may take.
fn deadline(limits: &Limits, records: usize) -> Duration {
    let each = limits.time_per_record.saturating_mul(u32::try_from(records).unwrap_or(u32::MAX));
    limits.time.saturating_add(each)
}

/// The deadline counts from now, however long the instance was idle.
fn begin(store: &mut Store<Host>, time: Duration) {
    store.set_epoch_deadline(ticks(time));
    store.data_mut().begin_call(time);
}

/// What a failed call comes down to, for people.
fn end(store: &mut Store<Host>, limits: &Limits, time: Duration, call: &str, error: &wasmtime::Error) -> Fault {
    store.data_mut().end_call(false, "", None);
    let host = store.data();
    let trap = error.downcast_ref::<Trap>();
    if trap == Some(&Trap::Interrupt) || error.is::<DeadlinePassed>() {
        let cause = format!("`{call}` took longer than its limit of `{time:.0?}`");
        return Fault { kind: ErrorKind::PluginTimeout, cause };
    }
    if host.growth.refused {
        let cause = format!("`{call}` needed more memory than its limit of `{}` bytes", limits.memory);
        return Fault { kind: ErrorKind::PluginMemory, cause };
    }
    let root = error.root_cause().to_string();
    if root.contains("fuel allocated for hostcalls") {
        let cause = format!("`{call}` gave the host more than its output limit of `{}` bytes", limits.output);
        return Fault { kind: ErrorKind::PluginVerdict, cause };
    }
    let what = match trap {
        Some(Trap::StackOverflow) => "used up its stack".to_owned(),
        Some(trap) => format!("trapped: {}", trap.to_string().trim_start_matches("wasm trap: ")),
        None if error.is::<I32Exit>() => "ended itself with `exit`".to_owned(),
        None => format!("broke the rules of its world: {}", short(&root, MAX_ERROR_BYTES)),
    };
    let words = host.output.last_words();
    let said = if words.is_empty() { String::new() } else { format!(", saying `{words}`") };
    let kind = if trap.is_some() { ErrorKind::PluginTrap } else { ErrorKind::PluginOther };
    Fault { kind, cause: format!("`{call}` {what}{said}") }
}
