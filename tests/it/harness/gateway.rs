//! The gateway as a process, as its users run it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate::gateway::status::{LaneState, LaneStatus, Status};

use super::process::{Limits, Process};
use super::receiver::RUN_HEADER;
use super::wait::wait_for;
use super::{Broker, Topic, block_on};

/// From starting the process to its admin server's first answer, compilation of plugins included.
const START_LIMIT: Duration = Duration::from_secs(60);
/// From SIGTERM to the exit: `shutdown_grace` and what a busy machine adds.
const STOP_LIMIT: Duration = Duration::from_secs(45);
/// Of one request to the admin server.
pub const ADMIN_LIMIT: Duration = Duration::from_secs(5);

/// A folder with a configuration, in which gateways run one after the other: what they write there stays.
#[derive(Debug)]
pub struct Site {
    dir: tempfile::TempDir,
    name: String,
    env: Vec<(String, String)>,
}

impl Site {
    /// `routes` is the YAML below `routes:`, indented by two blanks; its cluster is called `main`.
    pub fn new(broker: &Broker, routes: &str) -> Self {
        Self::with_memory(broker, "256MiB", routes)
    }

    pub fn with_memory(broker: &Broker, memory: &str, routes: &str) -> Self {
        Self::with_config(&format!(
            "version: 1
data_dir: data
memory: {memory}
admin: {{ listen: 127.0.0.1:0 }}
clusters:
  main:
    bootstrap.servers: {}
    # A killed member is missed soon, and a restarted broker found soon.
    session.timeout.ms: 6000
    heartbeat.interval.ms: 1000
    reconnect.backoff.max.ms: 1000
{routes}",
            broker.bootstrap()
        ))
    }

    /// The whole configuration. `RUN` in it stands for a name that each start gets anew.
    pub fn with_config(yaml: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let dir = tempfile::Builder::new()
            .prefix("site-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .expect("the target directory is writable");
        let site = Self { dir, name: format!("gateway-{}", COUNT.fetch_add(1, Ordering::Relaxed)), env: Vec::new() };
        site.rewrite(yaml);
        site
    }

    /// Sets an environment variable of the gateways that are started from now on.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// The program with this folder's environment and as its working directory.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let env = self.env.iter().map(|(name, value)| (name, value));
        command.current_dir(self.dir.path()).env_remove("TIDEGATE_TOKEN").envs(env);
        command
    }

    /// Replaces the configuration, for the next start.
    pub fn rewrite(&self, yaml: &str) {
        std::fs::write(self.path("written.yaml"), yaml).expect("writable");
    }

    pub fn yaml(&self) -> String {
        std::fs::read_to_string(self.path("written.yaml")).expect("the configuration is there")
    }

    /// A path that the configuration writes relatively.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(relative)
    }

    /// Starts a gateway and waits for its admin server.
    pub fn start(&self) -> Gateway {
        self.start_within(Limits::default())
    }

    pub fn start_within(&self, limits: Limits) -> Gateway {
        let mut gateway = self.spawn(limits, &[]);
        gateway.wait_for_admin(&self.path("data/admin.addr"));
        gateway
    }

    /// `tidegate run --once`: delivers the snapshot and ends by itself.
    pub fn run_once(&self, limit: Duration) -> (ExitStatus, String) {
        let mut gateway = self.spawn(Limits::default(), &["--once"]);
        let status = gateway.process.wait(limit);
        (status, gateway.process.output())
    }

    fn spawn(&self, limits: Limits, arguments: &[&str]) -> Gateway {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = format!("{}-run-{}", self.name, RUNS.fetch_add(1, Ordering::Relaxed));
        std::fs::write(self.path("tidegate.yaml"), self.yaml().replace("RUN", &run)).expect("writable");
        // What an earlier run left would name a port that is somebody else's now.
        drop(std::fs::remove_file(self.path("data/admin.addr")));
        let mut command = self.command();
        command.args(["run", "-c", "tidegate.yaml"]).args(arguments);
        let process = Process::spawn(&run, command, limits);
        Gateway { process, address: SocketAddr::from(([127, 0, 0, 1], 0)) }
    }
}

/// The YAML of one route, `r`, whose consumer groups are `TOPIC.SINK` and whose dead letters are `dead/r.SINK.ndjson`.
/// `settings` are its other keys, one a line.
pub fn route(topic: &Topic<'_>, settings: &[&str]) -> String {
    route_from(topic, "", settings)
}

/// The same with more settings of the source, in a flow mapping's syntax: `keys: { missing: drop }`.
pub fn route_from(topic: &Topic<'_>, source: &str, settings: &[&str]) -> String {
    let name = &topic.name;
    let settings = settings.join("\n    ");
    let source = if source.is_empty() { String::new() } else { format!(", {source}") };
    format!(
        "routes:
  r:
    source: {{ cluster: main, topics: [{name}], group: {name}{source} }}
    dead_letter: {{ path: dead/r.ndjson }}
    {settings}
"
    )
}

/// The `headers` of an http sink, which tell the receiver of the gateway's run.
pub fn run_header() -> String {
    format!("headers: {{ {RUN_HEADER}: RUN }}")
}

/// A running gateway. Dropping it kills it.
#[derive(Debug)]
pub struct Gateway {
    pub process: Process,
    address: SocketAddr,
}

impl Gateway {
    /// Status and body of a GET of the admin server.
    pub fn get(&self, path: &str) -> (u16, String) {
        self.try_get(path).unwrap_or_else(|error| panic!("GET {path}: {error}\n{}", self.process.output()))
    }

    pub fn try_get(&self, path: &str) -> Result<(u16, String), reqwest::Error> {
        let url = format!("http://{}{path}", self.address);
        block_on(async {
            let response = reqwest::Client::new().get(url).timeout(ADMIN_LIMIT).send().await?;
            Ok((response.status().as_u16(), response.text().await?))
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn status(&self) -> Status {
        let (code, body) = self.get("/api/v1/routes");
        assert_eq!(code, 200, "{body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error} in {body}"))
    }

    /// The lane of a sink; sinks have a name of their own in each test.
    pub fn lane(&self, sink: &str) -> LaneStatus {
        let routes = self.status().routes;
        let lane = routes.into_iter().flat_map(|route| route.lanes).find(|lane| lane.sink == sink);
        lane.unwrap_or_else(|| panic!("no lane for sink `{sink}`"))
    }

    pub fn is_ready(&self) -> bool {
        self.get("/readyz").0 == 200
    }

    #[track_caller]
    pub fn wait_ready(&mut self, limit: Duration) {
        self.wait_until("readiness", limit, Self::is_ready);
    }

    /// Waits until a lane shows what is asked for, and returns it.
    #[track_caller]
    pub fn wait_lane(&mut self, sink: &str, limit: Duration, shows: impl Fn(&LaneStatus) -> bool) -> LaneStatus {
        let what = format!("lane `{sink}`");
        let mut lane = None;
        self.wait_until(&what, limit, |gateway| shows(lane.insert(gateway.lane(sink))));
        lane.expect("it was looked at")
    }

    #[track_caller]
    pub fn wait_halted(&mut self, sink: &str, limit: Duration) -> LaneStatus {
        self.wait_lane(sink, limit, |lane| lane.state == LaneState::Halted)
    }

    /// Waits for a condition of the running gateway, and fails at once when it ends.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, limit: Duration, mut condition: impl FnMut(&Self) -> bool) {
        wait_for(what, limit, || {
            if let Some(status) = self.process.exit_status() {
                panic!("the gateway ended with {status}\n{}", self.process.output());
            }
            condition(self).then_some(())
        });
    }

    /// The value of a metric, summed over the series whose labels contain all of `labels`, such as `route="profiles"`.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let (code, body) = self.get("/metrics");
        assert_eq!(code, 200, "{body}");
        let series = body.lines().filter(|line| !line.starts_with('#')).filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && labels.iter().all(|label| line.contains(label))
        });
        let values = series.map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number"));
        values
            .reduce(|sum, value| sum + value)
            .unwrap_or_else(|| panic!("no metric `{name}` with {labels:?} in\n{body}"))
    }

    /// SIGTERM, as an orchestrator does it.
    ///
    /// # Panics
    /// When it does not exit with success in time.
    #[track_caller]
    pub fn stop(mut self) {
        self.process.signal(libc::SIGTERM);
        let status = self.process.wait(STOP_LIMIT);
        assert!(status.success(), "the gateway ended with {status}\n{}", self.process.output());
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.process.kill();
    }

    fn wait_for_admin(&mut self, file: &Path) {
        self.address = wait_for("the admin server's address", START_LIMIT, || {
            if let Some(status) = self.process.exit_status() {
                panic!("the gateway ended with {status}\n{}", self.process.output());
            }
            std::fs::read_to_string(file).ok()?.trim().parse().ok()
        });
        self.wait_until("the admin server", START_LIMIT, |gateway| {
            gateway.try_get("/livez").is_ok_and(|(code, _)| code == 200)
        });
    }
}
