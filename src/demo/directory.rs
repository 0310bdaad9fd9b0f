//! Where the demo writes, and the configuration that it runs with: a file to read and to copy from.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};

use super::broker::TOPIC;
use crate::gateway::data_dir;
use crate::gateway::lock::{self, Lock, LockError};

pub const TABLE: &str = "profiles";

/// The names of the sinks.
pub const SINKS: [&str; 3] = ["read_model", "audit", "crm"];

/// Marks a directory as the demo's own: no other one is ever emptied. A running demo holds it.
const MARKER: &str = ".tidegate-demo";

/// In the demo's directory, as its configuration says.
const DATA_DIR: &str = "data";

/// A running demo's: no other one gets it meanwhile.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    _lock: Lock,
}

impl Directory {
    /// The directory at `path`, with nothing in it that an earlier demo left there.
    ///
    /// # Errors
    /// When it cannot be made, holds what no demo has left there, or is in use.
    pub fn prepare(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let is_empty = match fs::read_dir(path) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
            Err(error) => return Err(error).with_context(|| format!("failed to list `{shown}`")),
        };
        if !is_empty && !path.join(MARKER).exists() {
            bail!("`{shown}` holds something that is not of the demo; give an empty or a new directory with `--dir`");
        }
        fs::create_dir_all(path).with_context(|| format!("failed to create `{shown}`"))?;
        let lock = take(&path.join(MARKER), path, "demo")?;
        let data_dir = path.join(DATA_DIR);
        if data_dir.exists() {
            // A gateway that somebody runs with what a demo wrote.
            drop(take(&data_dir.join(data_dir::LOCK), path, "gateway")?);
        }
        empty(path).with_context(|| format!("failed to empty `{shown}`"))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// # Errors
    /// When it cannot be written.
    pub fn write_config(&self, listen: SocketAddr, brokers: &str, receiver: &str) -> anyhow::Result<PathBuf> {
        let path = self.path.join("tidegate.yaml");
        fs::write(&path, configuration(listen, brokers, receiver))
            .with_context(|| format!("failed to write `{}`", path.display()))?;
        Ok(path)
    }

    /// # Errors
    /// When it cannot be created.
    pub fn create_log(&self) -> anyhow::Result<File> {
        File::create(self.log()).with_context(|| format!("failed to create `{}`", self.log().display()))
    }

    pub fn database(&self) -> PathBuf {
        self.path.join("profiles.db")
    }

    pub fn audit(&self) -> PathBuf {
        self.path.join("audit")
    }

    pub fn dead_letters(&self, sink: &str) -> PathBuf {
        self.path.join(dead_letters(sink))
    }

    fn log(&self) -> PathBuf {
        self.path.join("tidegate.log")
    }

    /// What to do with the running demo, each line ready to be pasted.
    pub fn what_to_look_at(&self, program: &str, listen: SocketAddr, receiver: &str, took: Duration) -> String {
        let dir = self.path.display();
        let took = took.as_secs_f64();
        let rejected = self.dead_letters(SINKS[0]);
        let look = [
            ("state", format!("{program} status --url http://{listen}")),
            ("metrics", format!("curl http://{listen}/metrics")),
            ("SQLite", format!("sqlite3 {} \"SELECT * FROM {TABLE} LIMIT 3\"", self.database().display())),
            ("file", format!("tail -n 3 {}/*.ndjson", self.audit().display())),
            ("service", format!("curl {receiver}")),
            ("rejected", format!("tail -n 3 {}", rejected.display())),
            ("how", format!("cat {dir}/tidegate.yaml")),
            ("log", format!("tail {}", self.log().display())),
        ];
        let look: String = look.iter().map(|(what, command)| format!("  {what:<8}  {command}\n")).collect();
        format!(
            "\nDelivered to three sinks in {took:.1} s; the topic's profiles go on changing. Look at\n\n\
             {look}\nCtrl-C ends it.\n\n"
        )
    }
}

fn dead_letters(sink: &str) -> String {
    format!("dead/profiles.{sink}.ndjson")
}

/// The lock `file` of the `user` of the directory `path`.
fn take(file: &Path, path: &Path, user: &str) -> anyhow::Result<Lock> {
    let shown = path.display();
    match Lock::take(file) {
        Ok(lock) => Ok(lock),
        Err(LockError::Held { pid }) => bail!(
            "`{shown}` is in use by a running {user}{}; end that one, or give another directory with `--dir`",
            lock::shown(pid)
        ),
        Err(LockError::Io(error)) => Err(error).with_context(|| format!("failed to write to `{shown}`")),
    }
}

/// Removes everything but the marker, which is held.
fn empty(path: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name() == MARKER {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Relative paths start at the file's directory, so that what it writes is beside it.
fn configuration(listen: SocketAddr, brokers: &str, receiver: &str) -> String {
    format!(
        r#"# What `tidegate demo` runs. For a topic of your own, change `bootstrap.servers`, `topics` and the sinks.
version: 1
data_dir: {DATA_DIR}
memory: 512MiB

admin:
  listen: {listen}

clusters:
  embedded:
    # The broker inside of the demo. Any property of librdkafka may follow.
    bootstrap.servers: {brokers}
    # It keeps a consumer that joins its group twice waiting for nearly this long, and one does now and then.
    session.timeout.ms: 6000

routes:
  profiles:
    source:
      cluster: embedded
      topics: [{TOPIC}]
      # A record without a key, or with one that is no text, goes to the dead letters.
      keys: {{ missing: dead_letter, format: utf8 }}
    # Each lane of the demo is content with one thread for its plugins.
    workers: 1
    plugins:
      # A key that is not agreed upon goes to the dead letters.
      - use: std/key-check
        config: {{ pattern: "user-[0-9]{{6}}" }}
      # Who withdraws consent disappears from the sinks, just as who is deleted.
      - use: std/filter
        config: {{ keep: {{ field: {{ path: consent, equals: true }} }} }}
      # ada@example.com becomes ***@example.com; all other bytes stay as they are.
      - use: std/mask-fields
        config: {{ fields: [{{ path: email, keep_domain: true }}] }}
    sinks:
      # The latest version of each profile, for SQL.
      read_model: {{ type: sqlite, path: profiles.db, table: {TABLE} }}
      # Every version, in order.
      audit: {{ type: file, path: "audit/{{topic}}-{{partition}}.ndjson" }}
      # The latest version of each profile, at a service. Nobody else writes there, so that what the filter drops may be
      # deleted there too.
      crm:
        type: http
        url: "{receiver}/{{key}}"
        method: PUT
        delete: DELETE
        on_drop: delete
    dead_letter: {{ type: file, path: dead/profiles.ndjson }}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::screen::WIDTH;
    use crate::config::{self, OnDrop, Outside};

    #[test]
    fn only_what_a_demo_left_is_removed() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/b");
        let dir = Directory::prepare(&path).unwrap();
        let (database, audit) = (dir.database(), dir.audit());
        fs::write(&database, "old").unwrap();
        fs::create_dir(&audit).unwrap();
        fs::write(audit.join("old"), "old").unwrap();
        drop(dir);
        Directory::prepare(&path).unwrap();
        assert!(!database.exists() && !audit.exists());

        let foreign = temp.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        Directory::prepare(&foreign).expect("an empty directory is anybody's");
        fs::remove_file(foreign.join(MARKER)).unwrap();
        fs::write(foreign.join("letter"), "dear").unwrap();
        let error = Directory::prepare(&foreign).unwrap_err().to_string();
        assert!(error.contains("holds something that is not of the demo"), "{error}");
        assert!(foreign.join("letter").exists());
    }

    #[test]
    fn what_somebody_uses_is_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("demo");
        let refused = || Directory::prepare(&path).unwrap_err().to_string();
        let (shown, pid) = (path.display(), std::process::id());
        let in_use_by = |user: &str| {
            format!(
                "`{shown}` is in use by a running {user} (pid {pid}); end that one, or give another directory with `--dir`"
            )
        };

        let demo = Directory::prepare(&path).unwrap();
        fs::write(demo.database(), "of the first").unwrap();
        assert_eq!(refused(), in_use_by("demo"));
        drop(demo);

        let gateway = data_dir::DataDir::open(&path.join(DATA_DIR)).unwrap();
        assert_eq!(refused(), in_use_by("gateway"));
        assert_eq!(fs::read_to_string(path.join("profiles.db")).unwrap(), "of the first");
        drop(gateway);
        assert!(!Directory::prepare(&path).unwrap().database().exists());
    }

    #[test]
    fn the_configuration_is_valid() {
        let text = configuration("127.0.0.1:8080".parse().unwrap(), "127.0.0.1:9092", "http://127.0.0.1:1/profiles");
        let outside = Outside {
            base_dir: "/demo".into(),
            env: &|_| None,
            read: &|_| Err(std::io::ErrorKind::NotFound.into()),
            // Whether the plugins take their configurations is for them to say.
            standard: &|_| Some(b""),
            properties: &|_| Vec::new(),
            plugin: &|_| Ok(false),
        };
        let loaded = config::parse(&text, "tidegate.yaml", &outside).unwrap_or_else(|errors| panic!("{errors}"));
        let route = &loaded.config.routes[0];
        let sinks: Vec<_> = route.sinks.iter().map(|sink| (&*sink.name, sink.on_drop)).collect();
        let expected = SINKS.iter().zip([OnDrop::Delete, OnDrop::Ignore, OnDrop::Delete]);
        assert_eq!(sinks, expected.map(|(name, on_drop)| (*name, on_drop)).collect::<Vec<_>>());
        for sink in SINKS {
            assert_eq!(route.dead_letter.for_lane(sink), Path::new("/demo").join(dead_letters(sink)));
        }
    }

    #[test]
    fn what_to_look_at_can_be_pasted() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Directory::prepare(temp.path()).unwrap();
        let text = dir.what_to_look_at(
            "target/debug/tidegate",
            "127.0.0.1:8080".parse().unwrap(),
            "http://127.0.0.1:12345/profiles",
            Duration::from_millis(4_240),
        );
        let text = text.replace(temp.path().to_str().unwrap(), "tidegate-demo");
        let expected = "
Delivered to three sinks in 4.2 s; the topic's profiles go on changing. Look at

  state     target/debug/tidegate status --url http://127.0.0.1:8080
  metrics   curl http://127.0.0.1:8080/metrics
  SQLite    sqlite3 tidegate-demo/profiles.db \"SELECT * FROM profiles LIMIT 3\"
  file      tail -n 3 tidegate-demo/audit/*.ndjson
  service   curl http://127.0.0.1:12345/profiles
  rejected  tail -n 3 tidegate-demo/dead/profiles.read_model.ndjson
  how       cat tidegate-demo/tidegate.yaml
  log       tail tidegate-demo/tidegate.log

Ctrl-C ends it.

";
        assert_eq!(text, expected);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "it fits a terminal");
    }
}
