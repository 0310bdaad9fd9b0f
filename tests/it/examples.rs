//! The configurations of `examples/`, as they are: they are the first thing that users copy.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use regex::Regex;
use rusqlite::Connection;
use rusqlite::types::Value as Cell;
use sha2::{Digest, Sha256};
use tidegate::config::{self, Config, Outside, SinkKind, Source};

use super::harness::golden::{assert_golden, in_repository};
use super::harness::read::{lines, positions, sqlite};
use super::harness::{Broker, Producer, Receiver, Record, Site, Topic};

const LIMIT: Duration = Duration::from_secs(60);

/// Two customers, one of whom was deleted, and a record that no column can take.
fn customers() -> Vec<Record> {
    let ada = |city: &str, orders: u32| {
        let value = format!(
            r#"{{"name":"Ada","email":"ada@example.com","address":{{"city":"{city}"}},"orders":{orders},"consent":true,"tags":["a"]}}"#
        );
        Record::put("customer-1", value)
    };
    vec![
        ada("London", 1),
        Record::put("customer-2", r#"{"name":"Blaise"}"#),
        Record::put("customer-3", r#"{"name":3}"#),
        ada("Ockham", 2),
        Record::delete("customer-2"),
    ]
}

/// The topics that the examples name, filled once for all of them.
fn broker() -> &'static Broker {
    static FILLED: OnceLock<()> = OnceLock::new();
    let broker = Broker::shared();
    FILLED.get_or_init(|| {
        let topic = |name: &str, policy: &str| {
            let topic = Topic { broker, name: name.to_owned(), partitions: 1 };
            topic.create(&[("cleanup.policy", policy)]);
            topic
        };
        Producer::new(broker).write(&topic("customers", "compact"), customers());
        let orders = [Record::put("o-1", r#"{"status":"paid"}"#), Record::without_key("{}")];
        Producer::new(broker).write(&topic("orders", "delete"), orders);
    });
    broker
}

/// An example in a folder of its own, with everything that its README asks for.
fn site(name: &str, kafka: &str, crm: &str) -> Site {
    let yaml = fs::read_to_string(in_repository("examples").join(name)).unwrap();
    // Other tests' gateways run at the same time, and whatever else this machine runs.
    let mut yaml = Regex::new("127.0.0.1:[0-9]+").unwrap().replace_all(&yaml, "127.0.0.1:0").into_owned();
    if !yaml.contains("\nadmin:") {
        yaml.push_str("\nadmin: { listen: 127.0.0.1:0 }\n");
    }
    let mut site = Site::with_config(&yaml);
    fs::write(site.path(name), &yaml).unwrap();
    fs::copy(in_repository("examples/customers.ndjson"), site.path("customers.ndjson")).unwrap();
    let plugin = in_repository("plugins/target/wasm32-wasip2/release/identity.wasm");
    let plugin = fs::read(&plugin).unwrap_or_else(|error| panic!("{}: {error}; `make plugins`", plugin.display()));
    fs::write(site.path("my_plugin.wasm"), &plugin).unwrap();
    fs::create_dir(site.path("secrets")).unwrap();
    for secret in ["operator-token", "kafka-password", "ledger-password"] {
        fs::write(site.path("secrets").join(secret), format!("the-secret-of-{secret}\n")).unwrap();
    }
    let digest: String = Sha256::digest(&plugin).iter().map(|byte| format!("{byte:02x}")).collect();
    let env = [
        ("KAFKA", kafka),
        ("CRM_URL", crm),
        ("CRM_TOKEN", "the-token-of-the-crm"),
        ("TIDEGATE_VIEWER_TOKEN", "the-token-of-the-viewer"),
        ("MY_PLUGIN_SHA256", &digest),
    ];
    env.iter().for_each(|(name, value)| site.set_env(name, value));
    site
}

/// Runs an example on the broker until its snapshot is delivered.
fn run(name: &str, crm: &str) -> Site {
    let site = site(name, &broker().bootstrap(), crm);
    run_once(&site);
    site
}

fn run_once(site: &Site) {
    let (status, output) = site.run_once(LIMIT);
    assert!(status.success(), "{status}\n{output}");
}

fn examples() -> Vec<String> {
    let files = fs::read_dir(in_repository("examples")).unwrap().map(|entry| entry.unwrap().path());
    let yaml = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let mut names: Vec<String> = yaml.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn every_example_is_valid_and_in_the_table() {
    let table = fs::read_to_string(in_repository("examples/README.md")).unwrap();
    let examples = examples();
    assert!(examples.len() >= 6, "{examples:?}");
    for name in examples {
        assert!(table.contains(&format!("[`{name}`]({name})")), "examples/README.md says nothing of {name}");
        let output = site(&name, "localhost:9092", "http://localhost:9000/customers")
            .command()
            .args(["check", "-c", &name])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// An example as it is, with nothing of what it needs.
fn config(name: &str) -> Config {
    let env = |name: &str| match name {
        "KAFKA" => Some("localhost:9092".into()),
        "CRM_URL" => Some("http://localhost:9000/customers".into()),
        "MY_PLUGIN_SHA256" => Some(format!("{:x}", Sha256::digest(b"")).into()),
        name => Some(format!("the-secret-of-{name}").into()),
    };
    let outside = Outside {
        base_dir: "/examples".into(),
        env: &env,
        read: &|path| Ok(if path.extension().is_some() { Vec::new() } else { b"a-secret-of-the-example".to_vec() }),
        standard: &|_| Some(b""),
        properties: &|_| Vec::new(),
        plugin: &|_| Ok(false),
    };
    let text = fs::read_to_string(in_repository("examples").join(name)).unwrap();
    config::parse(&text, name, &outside).unwrap_or_else(|errors| panic!("{errors}")).config
}

/// What one gateway has to have for itself.
fn claims(config: &Config) -> Vec<String> {
    let mut claims = vec![format!("data directory {}", config.data_dir.display())];
    let ports = [Some(config.admin.listen), config.admin.probes].into_iter().flatten().map(|address| address.port());
    claims.extend(ports.filter(|port| *port != 0).map(|port| format!("port {port}")));
    for route in &config.routes {
        for sink in &route.sinks {
            claims.push(format!("dead letters {}", route.dead_letter.for_lane(&sink.name).display()));
            if let Source::Kafka(kafka) = &route.source {
                claims.push(format!("group {}.{}", kafka.group, sink.name));
            }
            match &sink.kind {
                SinkKind::Sqlite(sqlite) => claims.push(format!("database {}", sqlite.path.display())),
                SinkKind::File(file) => claims.push(format!("files {}/{}", file.path.root.display(), file.path.rest)),
                SinkKind::Http(_) | SinkKind::Discard => {}
            }
        }
    }
    claims
}

#[test]
fn all_examples_can_run_side_by_side_on_the_ports_of_the_table() {
    let table = fs::read_to_string(in_repository("examples/README.md")).unwrap();
    let mut claimed = BTreeSet::new();
    for name in examples() {
        let config = config(&name);
        for claim in claims(&config) {
            assert!(claimed.insert(claim.clone()), "{name}: {claim} is another example's already");
        }
        let port = match config.admin.listen.port() {
            0 => "any".to_owned(),
            port => port.to_string(),
        };
        let row = table.lines().find(|line| line.contains(&format!("({name})"))).unwrap();
        assert!(row.ends_with(&format!("| {port} |")), "{name} has port {port}: {row}");
    }
}

#[test]
fn no_example_works_without_its_secrets() {
    let output = Site::with_config(&fs::read_to_string(in_repository("examples/secure-cluster.yaml")).unwrap())
        .command()
        .args(["check", "-c", "written.yaml"])
        .env_remove("KAFKA")
        .env_remove("TIDEGATE_VIEWER_TOKEN")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    for missing in ["`KAFKA`", "`TIDEGATE_VIEWER_TOKEN`", "operator-token", "kafka-password", "ledger-password"] {
        assert!(errors.contains(missing), "nothing of {missing} in\n{errors}");
    }
}

#[test]
fn the_dry_run_shows_what_becomes_of_the_sample() {
    let site = site("dry-run.yaml", "", "");
    run_once(&site);
    let out = |name: &str| site.path("out/dry-run").join(name);
    let mut text = String::from("== changes.ndjson\n");
    text.push_str(&fs::read_to_string(out("changes.ndjson")).unwrap());
    text.push_str("== customers\n");
    for row in table(&out("customers.db"), "SELECT key, name, email, city, orders FROM customers ORDER BY key") {
        text.push_str(&format!("{row:?}\n"));
    }
    for sink in ["table", "changes", "nowhere"] {
        text.push_str(&format!("== dead letters of {sink}\n"));
        for letter in lines(&out(&format!("dead.{sink}.ndjson"))) {
            text.push_str(&format!("{} {} {}\n", letter["offset"], letter["stage"], letter["cause"]));
        }
    }
    assert_golden("examples/dry-run.txt", &text);

    let changes = fs::read(out("changes.ndjson")).unwrap();
    run_once(&site);
    assert_eq!(fs::read(out("changes.ndjson")).unwrap(), changes, "a second run finds nothing new");
}

fn table(path: &Path, select: &str) -> Vec<Vec<Cell>> {
    let db = Connection::open(path).unwrap();
    let mut select = db.prepare(select).unwrap();
    let columns = select.column_count();
    let rows = select.query_map([], |row| (0..columns).map(|column| row.get(column)).collect()).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn the_read_model_has_a_row_with_columns_for_each_customer() {
    let site = run("read-model.yaml", "");
    let rows =
        table(&site.path("out/customers.db"), "SELECT key, name, email, city, orders, consent, tags FROM customers");
    let text = |text: &str| Cell::Text(text.to_owned());
    let ada = vec![
        text("customer-1"),
        text("Ada"),
        text("ada@example.com"),
        text("Ockham"),
        Cell::Integer(2),
        Cell::Integer(1),
        text(r#"["a"]"#),
    ];
    assert_eq!(rows, [ada]);
    assert_eq!(positions(&lines(&site.path("data/read-model/dead/customers.read_model.ndjson"))), [(0, 2)]);
}

#[test]
fn the_http_service_is_kept_in_step() {
    let receiver = Receiver::scripted(|request| {
        use super::harness::receiver::Answer;
        if request.key == b"customer-3" { Answer::status(422) } else { Answer::ok() }
    });
    let site = run("http-service.yaml", receiver.url().strip_suffix("/{key}").unwrap());
    let requests = receiver.requests();
    assert!(requests.iter().all(|request| request.header("authorization") == Some("Bearer the-token-of-the-crm")));
    let state = receiver.state();
    assert_eq!(state.keys().collect::<Vec<_>>(), ["customer-1"]);
    assert!(state["customer-1"].contains(r#""email":"***@example.com","address":{"city":"Ockham"}"#), "{state:?}");
    receiver.assert_order();
    assert_eq!(positions(&lines(&site.path("out/dead/crm.crm.ndjson"))), [(0, 2)]);
}

#[test]
fn the_audit_leaves_nothing_out() {
    let site = run("audit-files.yaml", "");
    let audit = |topic: &str| lines(&site.path("out/audit").join(topic).join("0.ndjson"));
    let customers = audit("customers");
    assert_eq!(positions(&customers), (0..5).map(|offset| (0, offset)).collect::<Vec<_>>());
    assert!(customers[4]["value"].is_null() && customers[4]["key"] == "customer-2");
    let orders = audit("orders");
    assert_eq!(orders.len(), 2);
    assert!(orders[1].get("key").is_none(), "{}", orders[1]);
}

#[test]
fn a_plugin_of_ones_own_runs_after_a_standard_one() {
    let site = run("own-plugin.yaml", "");
    let expected: BTreeMap<String, String> = [&customers()[2], &customers()[3]]
        .map(|record| {
            let text = |bytes: &Option<Vec<u8>>| String::from_utf8(bytes.clone().unwrap()).unwrap();
            (text(&record.key), text(&record.value))
        })
        .into();
    assert_eq!(sqlite(&site.path("out/customers-own.db"), "customers"), expected);
    let dead: PathBuf = site.path("data/own-plugin/dead/own.read_model.ndjson");
    assert!(!dead.exists(), "nothing was rejected");
}
