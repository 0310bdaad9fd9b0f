//! The command line: what it prints, its exit codes, and how it is stopped.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::harness::gateway::Gateway;
use super::harness::golden::{assert_golden, in_repository};
use super::harness::process::{Limits, Process, free_port};
use super::harness::receiver::Answer;
use super::harness::{Broker, Producer, Receiver, Record, Site, Topic, group, route};

const LIMIT: Duration = Duration::from_secs(60);

/// From a signal to the exit of a demo, on a busy machine.
const DEMO_STOP_LIMIT: Duration = Duration::from_secs(30);

/// What ending a process and a busy machine add to `shutdown_grace`.
const STOP_RESERVE: Duration = Duration::from_secs(5);

/// A gateway that needs no broker, with two lanes.
const SAMPLE: &str = r#"
version: 1
data_dir: data
admin: { listen: "127.0.0.1:0" }
routes:
  customers:
    source: { type: ndjson, path: sample.ndjson, topic: customers }
    sinks:
      table: { type: sqlite, path: customers.db, table: customers }
      nowhere: { type: discard }
"#;

fn sample(yaml: &str) -> Site {
    let site = Site::with_config(yaml);
    fs::write(site.path("sample.ndjson"), "{\"key\":\"a\",\"value\":1}\n{\"value\":2}\n").unwrap();
    site
}

fn tidegate(arguments: &[&str]) -> Output {
    Site::with_config(SAMPLE).command().args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}{}", stdout(output), stderr(output));
}

#[test]
fn the_help_changes_only_on_purpose() {
    for subcommand in ["", "demo", "run", "check", "schema", "status", "resume", "skip", "dead", "verify", "reset"] {
        let arguments: Vec<_> = [subcommand, "--help"].into_iter().filter(|text| !text.is_empty()).collect();
        let output = tidegate(&arguments);
        assert_code(&output, 0);
        let name = if subcommand.is_empty() { "tidegate" } else { subcommand };
        assert_golden(&format!("cli/{name}.txt"), &stdout(&output));
    }
}

#[test]
fn wrong_usage_is_told_on_standard_error_with_code_2() {
    for arguments in [&[][..], &["fly"], &["run", "--twice"], &["demo", "--records", "7"], &["status", "--url", "here"]]
    {
        let output = tidegate(arguments);
        assert_code(&output, 2);
        assert!(stdout(&output).is_empty(), "{}", stdout(&output));
        assert!(stderr(&output).contains("--help"), "{}", stderr(&output));
    }
    let version = tidegate(&["--version"]);
    assert_eq!(stdout(&version), concat!("tidegate ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn the_schema_is_printed_as_it_is_committed() {
    let output = tidegate(&["schema"]);
    assert_code(&output, 0);
    assert_eq!(stdout(&output), fs::read_to_string(in_repository("tests/golden/config-schema.json")).unwrap());
}

#[test]
fn check_accepts_a_valid_configuration() {
    let site = sample(SAMPLE);
    let check = |more: &[&str]| site.command().args(["check", "-c", "written.yaml"]).args(more).output().unwrap();
    let output = check(&[]);
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "`written.yaml` is valid: 1 route, 2 lanes\n");
    let output = check(&["--output", "json"]);
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "[]\n");
    assert!(!site.path("data").exists(), "it leaves nothing behind");
}

#[test]
fn check_and_run_tell_every_error_at_once() {
    let yaml = fs::read_to_string(in_repository("tests/configs/invalid/every_phase_at_once.yaml")).unwrap();
    let expected = fs::read_to_string(in_repository("tests/configs/invalid/every_phase_at_once.err")).unwrap();
    let expected = expected.replace("every_phase_at_once.yaml", "written.yaml");
    let site = Site::with_config(&yaml);
    let tidegate = |arguments: &[&str]| site.command().args(arguments).env_remove("NOWHERE").output().unwrap();
    for subcommand in ["check", "run"] {
        let output = tidegate(&[subcommand, "-c", "written.yaml"]);
        assert_code(&output, 2);
        assert_eq!(stderr(&output), expected);
        assert!(stdout(&output).is_empty());
    }
    let output = tidegate(&["check", "-c", "written.yaml", "--output", "json"]);
    assert_code(&output, 2);
    let errors: Vec<Value> = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(errors.len(), expected.matches("error: ").count());
    let first = &errors[0];
    assert_eq!((first["line"].as_u64(), first["column"].as_u64()), (Some(4), Some(24)));
    assert_eq!(first["path"], r#"clusters.main["bootstrap.servers"]"#);
    assert_eq!(first["message"], "the environment variable `NOWHERE` is not set");
}

/// Librdkafka and the plugins are asked whatever else is wrong, and what they say is told at the very key.
#[test]
fn check_asks_the_plugins_and_librdkafka() {
    let site = Site::with_config(
        r#"version: 1
clusters:
  main:
    bootstrap.severs: "localhost:9092"
    fetch.wait.max.ms: soon
    statistics.interval.ms: 5000
    session.timeout.ms: 60000
    max.poll.interval.ms: 1000
  secure:
    bootstrap.servers: "localhost:9093"
    security.protocol: SASL_SSL
    ssl.ca.location: not-there.pem
plugins: { mine: { file: not-there.wasm } }
routes:
  a:
    source: { cluster: main }
    plugins:
      - { use: std/mask-fields, config: { fieds: [email] } }
      - { use: std/mask-fields, config: { fields: [{ path: email, mask: rename }] } }
      - { use: std/key-check, config: { max_length: -1, pattern: "(" } }
      - { use: std/key-check, config: { pattern: "(" } }
      - { use: std/key-check, limits: { memory: 64KiB } }
      - { use: mine }
    sinks: { none: { type: discard } }
  b:
    source: { cluster: secure, topics: [a] }
    sinks: { none: }
"#,
    );
    let output = site.command().args(["check", "-c", "written.yaml"]).output().unwrap();
    assert_code(&output, 2);
    assert_golden("cli/check-of-plugins-and-librdkafka.txt", &stderr(&output));
}

/// What only the plugins find is told too where nothing else is wrong.
#[test]
fn check_asks_the_plugins_of_a_configuration_that_is_good_by_itself() {
    let site = sample(&SAMPLE.replace(
        "    sinks:\n",
        "    plugins: [{ use: std/key-check, limits: { memory: 64KiB } }, { use: std/filter, config: { keep: {} } }]\n    sinks:\n",
    ));
    let output = site.command().args(["check", "-c", "written.yaml"]).output().unwrap();
    assert_code(&output, 2);
    let errors = stderr(&output);
    assert_eq!(errors.matches("error: ").count(), 2, "{errors}");
    for place in ["at: routes.customers.plugins[0].limits.memory", "at: routes.customers.plugins[1].config.keep"] {
        assert!(errors.contains(place), "nothing of {place} in\n{errors}");
    }
    let least = errors.split_once("accepted: at least `").and_then(|(_, rest)| rest.split('`').next()).unwrap();
    let with = |memory: &str| {
        let yaml = fs::read_to_string(site.path("written.yaml")).unwrap();
        fs::write(site.path("with.yaml"), yaml.replace("64KiB", memory)).unwrap();
        stderr(&site.command().args(["check", "-c", "with.yaml"]).output().unwrap())
    };
    assert!(!with(least).contains("limits.memory"), "{least} is not enough");
    let kib: usize = least.strip_suffix("KiB").and_then(|kib| kib.parse().ok()).unwrap_or_else(|| panic!("{least}"));
    assert!(with(&format!("{}KiB", kib - 64)).contains("limits.memory"), "{least} is not the least");
}

#[test]
fn status_shows_the_lanes_of_a_running_gateway() {
    let site = sample(SAMPLE);
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    let output = status(&site, gateway.address(), &[]);
    assert_code(&output, 0);
    let text = stdout(&output);
    let line = |lane: &str| {
        let line = text.lines().find(|line| line.contains(lane)).unwrap_or_else(|| panic!("no {lane} in\n{text}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // Of the two records one has no key, and is a dead letter of each lane.
    let counts = ["live", "delivered", "0", "2", "1", "0", "1", "1"];
    assert_eq!(line("table (sqlite)"), [&["customers", "table", "(sqlite)"][..], &counts].concat());
    assert_eq!(line("nowhere (discard)"), [&["customers", "nowhere", "(discard)"][..], &counts].concat());
    assert!(text.contains("customers/table dead letters: "), "{text}");

    let output = status(&site, gateway.address(), &["--output", "json"]);
    assert_code(&output, 0);
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(json["routes"][0]["name"], "customers");
    assert_eq!(json["routes"][0]["lanes"][0]["sink"], "table");
    assert_eq!(json["routes"][0]["lanes"][0]["state"], "live");
    gateway.stop();
}

fn status(site: &Site, address: SocketAddr, more: &[&str]) -> Output {
    site.command().args(["status", "--url", &format!("http://{address}")]).args(more).output().unwrap()
}

#[test]
fn status_needs_the_token_that_the_gateway_wants() {
    let token = "{ name: me, role: viewer, token: the-token-of-the-viewer }";
    let site = sample(&SAMPLE.replace("127.0.0.1:0\" }", &format!("127.0.0.1:0\", tokens: [{token}] }}")));
    let mut command = site.command();
    command.args(["run", "-c", "written.yaml"]);
    let gateway = Process::spawn("gateway", command, Limits::default());
    let address = super::harness::wait_for("the admin server's address", LIMIT, || {
        fs::read_to_string(site.path("data/admin.addr")).ok()?.parse().ok()
    });
    let output = status(&site, address, &[]);
    assert_code(&output, 1);
    assert!(stderr(&output).contains("TIDEGATE_TOKEN"), "{}", stderr(&output));
    let url = format!("http://{address}");
    let with = |name: &str, value: &str, more: &[&str]| {
        site.command().args(["status", "--url", &url]).args(more).env(name, value).output().unwrap()
    };
    assert_code(&with("TIDEGATE_TOKEN", "the-token-of-the-viewer", &[]), 0);
    assert_code(&with("MINE", "the-token-of-the-viewer", &["--token-env", "MINE"]), 0);
    assert_code(&with("TIDEGATE_TOKEN", "another-token-altogether", &[]), 1);
    drop(gateway);
}

#[test]
fn status_names_the_address_where_nobody_answers() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let output = tidegate(&["status", "--url", &url]);
    assert_code(&output, 1);
    assert!(stderr(&output).starts_with(&format!("error: no gateway answers at `{url}/`")), "{}", stderr(&output));
    assert!(stdout(&output).is_empty());
}

#[test]
fn a_second_gateway_is_refused_the_data_directory_of_the_first() {
    let site = sample(SAMPLE);
    let mut first = site.start();
    first.wait_ready(LIMIT);
    // Its port is taken as well, which is only the consequence.
    site.rewrite(&SAMPLE.replace("127.0.0.1:0", &first.address().to_string()));
    let second = site.command().args(["run", "-c", "written.yaml"]).output().unwrap();
    assert_code(&second, 1);
    let expected = format!(
        "is in use by another gateway (pid {}); stop that one, or give each its own `data_dir`",
        first.process.pid()
    );
    assert!(stderr(&second).contains(&expected), "{}", stderr(&second));
    let address = fs::read_to_string(site.path("data/admin.addr")).unwrap();
    assert_eq!(address, first.address().to_string(), "the address is still the first one's");
    assert!(first.is_ready());
    first.stop();
}

#[test]
fn a_taken_port_is_an_error_at_once() {
    let first = sample(SAMPLE);
    let gateway = first.start();
    let taken = gateway.address().to_string();
    let second = sample(&SAMPLE.replace("127.0.0.1:0", &taken));
    let output = second.command().args(["run", "-c", "written.yaml"]).output().unwrap();
    assert_code(&output, 1);
    let port = gateway.address().port();
    let expected = format!(
        "cannot listen on `{taken}`: another program does; `ss -ltnp 'sport = :{port}'` shows which, \
         and `admin.listen` takes another port"
    );
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
    gateway.stop();
}

#[test]
fn sigterm_under_load_ends_within_the_grace_and_the_rest_comes_later() {
    const RECORDS: u64 = 1000;
    let topic = Topic::compacted(Broker::shared(), 2);
    let records = (0..RECORDS).map(|number| Record::put(format!("key-{number}"), number.to_string()));
    Producer::new(topic.broker).write(&topic, records);
    // Four at once, each after 50 ms: all of them would take 12 s.
    let receiver = Receiver::scripted(|_| Answer::ok().after(Duration::from_millis(50)));
    let http = format!("sinks: {{ crm: {{ type: http, url: \"{}\", in_flight: 4 }} }}", receiver.url());
    let grace = Duration::from_secs(3);
    let site = Site::new(topic.broker, &route(&topic, &[&http]));
    site.rewrite(&site.yaml().replace("data_dir: data", "data_dir: data\nshutdown_grace: 3s"));
    let mut gateway = site.start();
    gateway.wait_until("some requests", LIMIT, |_| receiver.accepted_count() > 20);
    assert_stops_within(gateway, grace);
    let accepted = receiver.accepted_count();
    assert!(accepted < RECORDS, "the load was over before the signal");
    let committed = group::committed(&format!("{}.crm", topic.name), &topic);
    let committed: i64 = committed.into_iter().flatten().sum();
    assert!(committed > 0, "what was finished before the stop is committed, {accepted} were accepted");
    assert!(committed as u64 <= accepted, "{committed} are committed, {accepted} were accepted");

    receiver.answer(|_| Answer::ok());
    let mut again = site.start();
    again.wait_ready(LIMIT);
    again.stop();
    assert_eq!(receiver.state().len() as u64, RECORDS);
    assert!(receiver.accepted_count() - accepted <= RECORDS - committed as u64, "what was committed came again");
}

#[test]
fn sigterm_does_not_wait_for_a_service_that_hangs() {
    let topic = Topic::compacted(Broker::shared(), 1);
    Producer::new(topic.broker).write(&topic, [Record::put("a", "1"), Record::put("b", "2")]);
    let receiver = Receiver::scripted(|_| Answer::ok().after(Duration::from_secs(600)));
    let http = format!("sinks: {{ crm: {{ type: http, url: \"{}\", timeout: 10m }} }}", receiver.url());
    let site = Site::new(topic.broker, &route(&topic, &[&http]));
    site.rewrite(&site.yaml().replace("data_dir: data", "data_dir: data\nshutdown_grace: 2s"));
    let mut gateway = site.start();
    gateway.wait_until("both requests", LIMIT, |_| receiver.request_count() == 2);
    assert_stops_within(gateway, Duration::from_secs(2));
    assert!(group::committed(&format!("{}.crm", topic.name), &topic)[0] <= Some(0), "nothing was answered");
}

#[test]
fn a_second_signal_ends_the_wait_at_once_and_commits_nothing_unfinished() {
    let topic = Topic::compacted(Broker::shared(), 1);
    Producer::new(topic.broker).write(&topic, [Record::put("a", "1"), Record::put("b", "2")]);
    let receiver = Receiver::scripted(|_| Answer::ok().after(Duration::from_secs(600)));
    let http = format!("sinks: {{ crm: {{ type: http, url: \"{}\", timeout: 10m }} }}", receiver.url());
    let site = Site::new(topic.broker, &route(&topic, &[&http]));
    site.rewrite(&site.yaml().replace("data_dir: data", "data_dir: data\nshutdown_grace: 10m"));
    let mut gateway = site.start();
    gateway.wait_until("both requests", LIMIT, |_| receiver.request_count() == 2);
    gateway.process.signal(libc::SIGTERM);
    gateway.wait_until("what the first signal says", LIMIT, |gateway| {
        gateway.process.has_printed("draining, up to 600 s; press Ctrl-C again to stop at once")
    });
    assert!(gateway.try_get("/livez").is_ok(), "health is answered while it drains");
    // What comes together with the first is taken for it.
    let status = super::harness::wait_for("the end by the second signal", LIMIT, || {
        let ended = gateway.process.exit_status();
        if ended.is_none() {
            gateway.process.signal(libc::SIGINT);
        }
        ended
    });
    let output = gateway.process.output();
    assert_eq!(status.code(), Some(1), "{status}\n{output}");
    assert!(output.contains("stopped at once; unfinished work is done again at the next start"), "{output}");
    assert!(group::committed(&format!("{}.crm", topic.name), &topic)[0] <= Some(0), "nothing was answered");

    receiver.answer(|_| Answer::ok());
    let mut again = site.start();
    again.wait_ready(LIMIT);
    again.stop();
    assert_eq!(receiver.state().len(), 2, "what was unfinished came again");
}

#[test]
fn one_signal_that_comes_twice_is_one() {
    let site = sample(SAMPLE);
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    gateway.process.signal(libc::SIGTERM);
    gateway.process.signal(libc::SIGINT);
    let status = gateway.process.wait(LIMIT);
    assert!(status.success(), "{status}\n{}", gateway.process.output());
}

#[track_caller]
fn assert_stops_within(mut gateway: Gateway, grace: Duration) {
    let start = Instant::now();
    gateway.process.signal(libc::SIGTERM);
    let status = gateway.process.wait(LIMIT);
    let took = start.elapsed();
    assert!(status.success(), "the gateway ended with {status}\n{}", gateway.process.output());
    assert!(took < grace + STOP_RESERVE, "it took {took:?}\n{}", gateway.process.output());
}

fn demo(arguments: &[&str]) -> (Process, tempfile::TempDir) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["demo", "--records", "1000", "--listen", "127.0.0.1:0", "--dir"]).arg(dir.path()).args(arguments);
    (Process::spawn("demo", command, Limits::default()), dir)
}

#[test]
fn the_demo_compares_every_sink_and_ends() {
    let (mut demo, _dir) = demo(&["--once"]);
    let status = demo.wait(LIMIT);
    let output = demo.output();
    assert!(status.success(), "{status}\n{output}");
    assert!(output.lines().any(|line| line == "demo| equal"), "{output}");
    for place in ["SQLite table", "file", "HTTP receiver", "dead letters of crm"] {
        assert!(output.contains(place), "nothing of {place} in\n{output}");
    }
}

#[test]
fn a_second_demo_leaves_the_directory_of_the_first_alone() {
    let (mut first, dir) = demo(&[]);
    super::harness::wait_for("the live demo", LIMIT, || first.has_printed("Ctrl-C ends it.").then_some(()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["demo", "--once", "--dir"]).arg(dir.path());
    let second = command.output().unwrap();
    assert_code(&second, 1);
    let (shown, pid) = (dir.path().display(), first.pid());
    assert_eq!(
        stderr(&second),
        format!(
            "error: `{shown}` is in use by a running demo (pid {pid}); end that one, or give another directory with `--dir`\n"
        )
    );
    assert!(dir.path().join("profiles.db").exists());
    first.signal(libc::SIGINT);
    let status = first.wait(DEMO_STOP_LIMIT);
    assert!(status.success(), "{status}\n{}", first.output());
}

#[test]
fn the_live_demo_ends_by_ctrl_c() {
    let (mut demo, dir) = demo(&[]);
    super::harness::wait_for("the live demo", LIMIT, || {
        assert!(demo.exit_status().is_none(), "it ended\n{}", demo.output());
        demo.has_printed("Ctrl-C ends it.").then_some(())
    });
    demo.signal(libc::SIGINT);
    let status = demo.wait(DEMO_STOP_LIMIT);
    assert!(status.success(), "{status}\n{}", demo.output());
    assert!(dir.path().join("profiles.db").exists(), "what was written is left");
}
