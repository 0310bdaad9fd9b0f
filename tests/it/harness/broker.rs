//! Apache Kafka itself, one node, started by the tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

use super::link::Link;
use super::process::{Limits, Process, free_port};
use super::wait::wait_for;

/// From starting the process to its first answer, on a machine that compiles at the same time.
const START_LIMIT: Duration = Duration::from_secs(90);
/// How often a start is tried with other ports, when somebody took one in between.
const PORT_ATTEMPTS: usize = 5;

/// Who may log in at the secure listener, by SCRAM-SHA-512.
pub const USER: &str = "tidegate";
pub const PASSWORD: &str = "open-sesame";

/// A broker with its data. Dropping it kills it.
#[derive(Debug)]
pub struct Broker {
    dir: PathBuf,
    port: u16,
    /// Of the listener that asks for TLS and a password, which only [`Broker::start_secure`] has.
    secure_port: Option<u16>,
    /// Of the listeners that are reached by a link each.
    links: Vec<Link>,
    process: Mutex<Process>,
}

impl Broker {
    /// The broker of all tests that do not harm it.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Broker> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// A broker of one's own, to stop and kill.
    pub fn start() -> Self {
        Self::start_with(false, 0)
    }

    /// One that also listens with TLS and asks for [`USER`] and [`PASSWORD`] there.
    pub fn start_secure() -> Self {
        Self::start_with(true, 0)
    }

    /// One that is also reached by so many links, each of which can be cut: see [`Broker::link`].
    pub fn start_linked(links: usize) -> Self {
        Self::start_with(false, links)
    }

    fn start_with(secure: bool, links: usize) -> Self {
        for _ in 0..PORT_ATTEMPTS {
            let (port, controller_port) = (free_port(), free_port());
            let secure_port = secure.then(free_port);
            let dir = own_directory(port);
            copy_directory(formatted(), &dir);
            if secure {
                certify(&dir);
            }
            let links: Vec<Link> = (0..links).map(|_| Link::to(free_port())).collect();
            let properties = properties(&dir, port, controller_port, secure_port, &links);
            std::fs::write(dir.join("server.properties"), properties).expect("writable");
            let mut process = launch(&dir);
            if answers(&mut process, port) {
                return Self { dir, port, secure_port, links, process: Mutex::new(process) };
            }
        }
        panic!("no broker came up on {PORT_ATTEMPTS} pairs of ports");
    }

    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn secure_bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.secure_port.expect("started with `start_secure`"))
    }

    /// One way to it, at whose end it tells no other address than the link's.
    pub fn link(&self, index: usize) -> &Link {
        &self.links[index]
    }

    /// The certificate, in PEM, that vouches for the secure listener's: its own.
    pub fn certificate(&self) -> PathBuf {
        self.dir.join(CERTIFICATE)
    }

    /// What every client of the harness starts from.
    pub fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.bootstrap()).set("reconnect.backoff.max.ms", "500");
        config
    }

    /// Freezes it: connections stay open and nothing is answered.
    pub fn suspend(&self) {
        self.process().signal(libc::SIGSTOP);
    }

    pub fn resume(&self) {
        self.process().signal(libc::SIGCONT);
    }

    pub fn kill(&self) {
        self.process().kill();
    }

    /// Ends it in order.
    pub fn stop(&self) {
        let mut process = self.process();
        process.signal(libc::SIGTERM);
        process.wait(START_LIMIT);
    }

    /// Starts it again with the same ports and data.
    pub fn restart(&self) {
        let mut process = self.process();
        process.kill();
        *process = launch(&self.dir);
        assert!(answers(&mut process, self.port), "the broker did not come back\n{}", process.output());
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

/// Where the jars are: see `scripts/kafka-jars.sh`.
pub fn class_path() -> String {
    let lib = std::env::var_os("TIDEGATE_KAFKA_LIB").map(PathBuf::from).unwrap_or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache");
        cache.unwrap_or_else(home).join("tidegate/kafka-4.1.0")
    });
    assert!(lib.join("verified.sha256").is_file(), "no Kafka in `{}`: run `make kafka`", lib.display());
    format!("{}/*", lib.display())
}

fn launch(dir: &Path) -> Process {
    let mut command = java();
    command.args(["-Xmx1g", "-XX:+UseSerialGC", "kafka.Kafka"]).arg(dir.join("server.properties")).current_dir(dir);
    Process::spawn("kafka", command, Limits::default())
}

/// A JVM that leaves no files behind in the temporary directory.
pub fn java() -> Command {
    let mut command = Command::new("java");
    command.args(["-XX:-UsePerfData", "-cp", &class_path()]);
    command
}

/// Waits for the first answer; `false` = it ended, or the port is somebody else's.
fn answers(process: &mut Process, port: u16) -> bool {
    let listens = wait_for("the broker's listener", START_LIMIT, || {
        if process.exit_status().is_some() {
            eprintln!("the broker ended:\n{}", process.output());
            return Some(false);
        }
        process.listens_on(port).then_some(true)
    });
    if !listens {
        return false;
    }
    let client: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", format!("127.0.0.1:{port}"))
        .set("reconnect.backoff.max.ms", "200")
        .create()
        .expect("a client");
    wait_for("the broker's first answer", START_LIMIT, || {
        let metadata = client.fetch_metadata(None, Duration::from_secs(2)).ok()?;
        (metadata.brokers().len() == 1).then_some(())
    });
    true
}

fn properties(dir: &Path, port: u16, controller_port: u16, secure_port: Option<u16>, links: &[Link]) -> String {
    let data = dir.join("data");
    let linked = |address: fn(&Link) -> String| -> String {
        links.iter().enumerate().map(|(index, link)| format!(",LINK{index}://{}", address(link))).collect()
    };
    let (link_listeners, link_addresses) =
        (linked(|link| format!("127.0.0.1:{}", link.target())), linked(Link::address));
    let link_protocols: String = (0..links.len()).map(|index| format!(",LINK{index}:PLAINTEXT")).collect();
    let secure = secure_port.map(|port| format!(",SECURE://127.0.0.1:{port}")).unwrap_or_default();
    let key_store = dir.join(KEY_STORE);
    format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{secure}{link_listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{secure}{link_addresses}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL{link_protocols}
listener.name.secure.ssl.keystore.location={}
listener.name.secure.ssl.keystore.password={KEY_STORE_PASSWORD}
listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secure.scram-sha-512.sasl.jaas.config=\
  org.apache.kafka.common.security.scram.ScramLoginModule required;
log.dirs={}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.cleaner.backoff.ms=300
log.segment.delete.delay.ms=100
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=4
",
        key_store.display(),
        data.display()
    )
}

const KEY_STORE: &str = "broker.p12";
const KEY_STORE_PASSWORD: &str = "changeit";
const CERTIFICATE: &str = "broker.pem";

/// A key for the secure listener, with a certificate that it signs itself.
fn certify(dir: &Path) {
    let store = ["-keystore", KEY_STORE, "-storetype", "PKCS12", "-storepass", KEY_STORE_PASSWORD, "-alias", "broker"];
    let pair = ["-genkeypair", "-keyalg", "EC", "-dname", "CN=127.0.0.1", "-ext", "SAN=ip:127.0.0.1"];
    for step in [&pair[..], &["-exportcert", "-rfc", "-file", CERTIFICATE]] {
        let output = Command::new("keytool").args(step).args(store).current_dir(dir).output().expect("keytool runs");
        assert!(output.status.success(), "keytool: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// A formatted data directory, made once for each test process, since it takes a JVM of its own.
fn formatted() -> &'static Path {
    static FORMATTED: OnceLock<PathBuf> = OnceLock::new();
    FORMATTED.get_or_init(|| {
        remove_leftovers();
        let dir = own_directory(0);
        let file = dir.join("server.properties");
        std::fs::create_dir_all(&dir).expect("the target directory is writable");
        std::fs::write(&file, properties(&dir, 1, 2, None, &[])).expect("writable");
        let output = java()
            .args(["kafka.tools.StorageTool", "format", "-t", "VGlkZWdhdGVUZXN0czAwMQ", "-c"])
            .arg(&file)
            .args(["--add-scram", &format!("SCRAM-SHA-512=[name={USER},password={PASSWORD}]")])
            .output()
            .expect("java runs");
        assert!(output.status.success(), "StorageTool: {}", String::from_utf8_lossy(&output.stderr));
        dir
    })
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the target directory is writable");
    for entry in std::fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

const PREFIX: &str = "kafka-";

/// Named by this process, so that a later one can tell what nobody uses any more.
fn own_directory(port: u16) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{PREFIX}{}-{port}", std::process::id()))
}

/// The shared broker's data stays behind when the test process ends, since nothing is dropped then.
fn remove_leftovers() {
    for entry in std::fs::read_dir(env!("CARGO_TARGET_TMPDIR")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()) else { continue };
        if !Path::new("/proc").join(pid).exists() {
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}
