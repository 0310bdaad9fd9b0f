//! The set of running lanes: start, look at, stop.

pub mod copy;
pub mod data_dir;
pub mod lock;
pub mod status;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use self::data_dir::DataDir;
use self::status::{LaneState, Memory, RouteStatus, Status};
use crate::config::{self, Config, SinkKind};
use crate::delivery::Skips;
use crate::metrics::Metrics;
use crate::plugin::Chain;
pub use crate::route::{Act, Refused};
use crate::route::{Commands, Lane, LaneName, Shown};
use crate::sink::browse;
pub use crate::sink::browse::{Page, Query};
use crate::stop::Stop;

/// How much longer than its grace time a lane may take to end before it is left behind.
const JOIN_RESERVE: Duration = Duration::from_secs(2);

/// What a gateway starts from: a valid configuration and each route's plugins, loaded.
pub struct Plan {
    pub config: Config,
    /// One per route, in the same order.
    pub chains: Vec<Arc<Chain>>,
}

/// A running gateway. Dropping it stops nothing: call [`Gateway::stop`].
pub struct Gateway {
    handle: Handle,
    threads: Vec<JoinHandle<()>>,
    stop: Stop,
    grace: Duration,
    _data_dir: DataDir,
}

/// What others may ask of a gateway. Clones share it.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

struct Inner {
    started: Instant,
    memory: u64,
    metrics: Metrics,
    routes: Vec<Route>,
}

struct Route {
    config: Arc<config::Route>,
    plugins: Vec<String>,
    lanes: Vec<RunningLane>,
}

/// A lane as others see it.
struct RunningLane {
    shown: Arc<Shown>,
    commands: Commands,
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("there is no route `{route}`; the routes are {known}")]
    UnknownRoute { route: String, known: String },
    #[error("route `{route}` has no sink `{sink}`; its sinks are {known}")]
    UnknownSink { route: String, sink: String, known: String },
    #[error("{lane}: {reason}")]
    Refused { lane: String, reason: Refused },
    #[error("{lane}: cannot read the dead letters: {reason}")]
    Unreadable { lane: String, reason: String },
}

impl Gateway {
    /// Starts every lane, in the plan's data directory. A lane's trouble is its own: what it needs and cannot have is shown
    /// in the status.
    ///
    /// # Errors
    /// When there are no threads for the lanes.
    pub fn start(plan: Plan, data_dir: DataDir, runtime: &tokio::runtime::Handle) -> anyhow::Result<Self> {
        let Plan { config, chains } = plan;
        let metrics = Metrics::new();
        let stop = Stop::new();
        let mut threads = Vec::new();
        let mut routes = Vec::new();
        for (route, chain) in config.routes.iter().zip(chains) {
            let mut lanes = Vec::new();
            for sink in &route.sinks {
                let lane_metrics = metrics.lane(&route.name, &sink.name);
                let name = LaneName { route: route.name.clone(), sink: sink.name.clone() };
                let dead_letters = route.dead_letter.for_lane(&sink.name).display().to_string();
                let shown = Arc::new(Shown::new(name, kind(&sink.kind), dead_letters, lane_metrics.clone()));
                let (commands, taken) = Commands::new();
                let lane = Lane {
                    route: Arc::clone(route),
                    sink: Arc::clone(sink),
                    chain: Arc::clone(&chain),
                    budget: config.budget,
                    metrics: lane_metrics,
                    shown: Arc::clone(&shown),
                    runtime: runtime.clone(),
                    commands: taken,
                    skips: Skips::default(),
                    commits: true,
                    stop: stop.clone(),
                    grace: config.shutdown_grace,
                };
                let thread = thread::Builder::new()
                    .name(format!("poll:{}", shown.name()))
                    .spawn(move || lane.run())
                    .context("cannot start a lane's thread")?;
                threads.push(thread);
                lanes.push(RunningLane { shown, commands });
            }
            routes.push(Route { config: Arc::clone(route), plugins: names(&chain), lanes });
        }
        let inner = Inner { started: Instant::now(), memory: config.memory, metrics, routes };
        let handle = Handle(Arc::new(inner));
        Ok(Self { handle, threads, stop, grace: config.shutdown_grace, _data_dir: data_dir })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// How long [`Gateway::stop`] may take, but for a reserve.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// Stops feeding, finishes or gives up what is in hand, commits, and ends every lane within the grace time. Returns
    /// the lanes that did not end in time.
    pub fn stop(self) -> Vec<String> {
        self.stop.set();
        let deadline = Instant::now() + self.grace + JOIN_RESERVE;
        let mut late = Vec::new();
        for thread in self.threads {
            while !thread.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
            let name = thread.thread().name().unwrap_or("?").to_owned();
            if !thread.is_finished() || thread.join().is_err() {
                late.push(name);
            }
        }
        late
    }
}

impl Handle {
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub fn status(&self) -> Status {
        let routes = self.0.routes.iter().map(|route| RouteStatus {
            name: route.config.name.clone(),
            readiness: route.config.readiness,
            plugins: route.plugins.clone(),
            lanes: route.lanes.iter().map(|lane| lane.shown.status()).collect(),
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.0.started.elapsed().as_secs(),
            memory: Memory { budget: self.0.memory, resident: resident_bytes() },
            routes: routes.collect(),
        }
    }

    /// Whether every lane has delivered its snapshot, or has halted and never will.
    pub fn is_settled(&self) -> bool {
        self.lanes().all(|lane| matches!(lane.state(), LaneState::Live | LaneState::Halted))
    }

    /// The lanes that halted, with the reason.
    pub fn halted(&self) -> Vec<(String, String)> {
        self.lanes().filter_map(|lane| Some((lane.name().to_string(), lane.status().halt?.reason))).collect()
    }

    fn lanes(&self) -> impl Iterator<Item = &Shown> {
        self.0.routes.iter().flat_map(|route| &route.lanes).map(|lane| &*lane.shown)
    }

    /// Has a lane do something, and waits until it has begun.
    ///
    /// # Errors
    /// When there is no such lane, or it refuses.
    pub fn command(&self, route: &str, sink: &str, act: Act) -> Result<(), CommandError> {
        let lane = self.lane(route, sink)?;
        let refused = |reason| CommandError::Refused { lane: lane.shown.name().to_string(), reason };
        lane.commands.ask(act).map_err(refused)
    }

    /// A lane's dead letters, read from their file.
    ///
    /// # Errors
    /// When there is no such lane, or the file cannot be read.
    pub fn dead_letters(&self, route: &str, sink: &str, query: &browse::Query) -> Result<browse::Page, CommandError> {
        let lane = self.lane(route, sink)?;
        browse::browse(lane.shown.dead_letter_path().as_ref(), query).map_err(|error| {
            let (lane, reason) = (lane.shown.name().to_string(), error.to_string());
            CommandError::Unreadable { lane, reason }
        })
    }

    fn lane(&self, route: &str, sink: &str) -> Result<&RunningLane, CommandError> {
        let listed = |names: Vec<&str>| format!("`{}`", names.join("`, `"));
        let Some(found) = self.0.routes.iter().find(|candidate| candidate.config.name == route) else {
            let known = listed(self.0.routes.iter().map(|route| &*route.config.name).collect());
            return Err(CommandError::UnknownRoute { route: route.to_owned(), known });
        };
        found.lanes.iter().find(|lane| lane.shown.name().sink == sink).ok_or_else(|| {
            let known = listed(found.lanes.iter().map(|lane| &*lane.shown.name().sink).collect());
            CommandError::UnknownSink { route: route.to_owned(), sink: sink.to_owned(), known }
        })
    }
}

/// `name version`, in the order of the chain.
fn names(chain: &Chain) -> Vec<String> {
    chain.descriptions().into_iter().map(|plugin| format!("{} {}", plugin.used_as, plugin.version)).collect()
}

fn kind(kind: &SinkKind) -> &'static str {
    match kind {
        SinkKind::Discard => "discard",
        SinkKind::File(_) => "file",
        SinkKind::Sqlite(_) => "sqlite",
        SinkKind::Http(_) => "http",
    }
}

/// Of this process, from the kernel; 0 where it does not tell.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|statm| statm.split_whitespace().nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    pages * 4096
}
