//! Where the demo writes, and the configuration that it runs with: a file to read and to copy from.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};

use super::broker::TOPIC;

pub const TABLE: &str = "profiles";

/// The names of the sinks.
pub const SINKS: [&str; 3] = ["read_model", "audit", "crm"];

/// Marks a directory as the demo's own: no other one is ever emptied.
const MARKER: &str = ".tidegate-demo";

#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// An empty directory at `path`.
    ///
    /// # Errors
    /// When it cannot be made, or holds what no demo has left there.
    pub fn prepare(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let is_empty = match fs::read_dir(path) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
            Err(error) => return Err(error).with_context(|| format!("failed to list `{shown}`")),
        };
        if !is_empty {
            if !path.join(MARKER).exists() {
                bail!(
                    "`{shown}` holds something that is not of the demo; give an empty or a new directory with `--dir`"
                );
            }
            fs::remove_dir_all(path).with_context(|| format!("failed to remove `{shown}`"))?;
        }
        fs::create_dir_all(path).with_context(|| format!("failed to create `{shown}`"))?;
        fs::write(path.join(MARKER), "").with_context(|| format!("failed to write to `{shown}`"))?;
        Ok(Self(path.to_owned()))
    }

    /// # Errors
    /// When it cannot be written.
    pub fn write_config(&self, listen: SocketAddr, brokers: &str, receiver: &str) -> anyhow::Result<PathBuf> {
        let path = self.0.join("tidegate.yaml");
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
        self.0.join("profiles.db")
    }

    pub fn audit(&self) -> PathBuf {
        self.0.join("audit")
    }

    pub fn dead_letters(&self, sink: &str) -> PathBuf {
        self.0.join(format!("dead/profiles.{sink}.ndjson"))
    }

    fn log(&self) -> PathBuf {
        self.0.join("tidegate.log")
    }

    /// What to do with the running demo, each line ready to be pasted.
    pub fn what_to_look_at(&self, program: &str, listen: SocketAddr, receiver: &str, took: Duration) -> String {
        format!(
            "\nThe topic is delivered to three sinks, in {:.1} s, and its profiles go on changing. Look at\n\n  \
             the state    {program} status --url http://{listen}\n               \
             curl http://{listen}/metrics\n  \
             SQLite       sqlite3 {} \"SELECT key, value FROM {TABLE} LIMIT 5\"\n  \
             the file     tail -n 3 {}/*.ndjson\n  \
             the service  curl {receiver}\n  \
             the rejected cat {}\n  \
             how          cat {}/tidegate.yaml\n  \
             the log      tail {}\n\nCtrl-C ends it.\n\n",
            took.as_secs_f64(),
            self.database().display(),
            self.audit().display(),
            self.dead_letters(SINKS[0]).display(),
            self.0.display(),
            self.log().display(),
        )
    }
}

/// Relative paths start at the file's directory, so that what it writes is beside it.
fn configuration(listen: SocketAddr, brokers: &str, receiver: &str) -> String {
    format!(
        r#"# What `tidegate demo` runs. For a topic of your own, change `bootstrap.servers`, `topics` and the sinks.
version: 1
data_dir: data
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
    use crate::config::{self, OnDrop, Outside};

    #[test]
    fn only_what_a_demo_left_is_removed() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/b");
        let dir = Directory::prepare(&path).unwrap();
        fs::write(dir.database(), "old").unwrap();
        Directory::prepare(&path).unwrap();
        assert!(!dir.database().exists());

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
        let dir = Directory(PathBuf::from("/demo"));
        for sink in SINKS {
            assert_eq!(route.dead_letter.for_lane(sink), dir.dead_letters(sink));
        }
    }

    #[test]
    fn what_to_look_at_can_be_pasted() {
        let dir = Directory(PathBuf::from("d"));
        let text = dir.what_to_look_at(
            "target/debug/tidegate",
            "127.0.0.1:8080".parse().unwrap(),
            "http://127.0.0.1:1/profiles",
            Duration::from_millis(4_240),
        );
        let expected = "
The topic is delivered to three sinks, in 4.2 s, and its profiles go on changing. Look at

  the state    target/debug/tidegate status --url http://127.0.0.1:8080
               curl http://127.0.0.1:8080/metrics
  SQLite       sqlite3 d/profiles.db \"SELECT key, value FROM profiles LIMIT 5\"
  the file     tail -n 3 d/audit/*.ndjson
  the service  curl http://127.0.0.1:1/profiles
  the rejected cat d/dead/profiles.read_model.ndjson
  how          cat d/tidegate.yaml
  the log      tail d/tidegate.log

Ctrl-C ends it.

";
        assert_eq!(text, expected);
    }
}
