//! Readers that leave: `tidegate status | head -1` is no fault, and neither is a log whose reader died.

use std::fs::{self, File};
use std::io::pipe;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::harness::process::{Limits, Process};
use super::harness::{Site, wait_for};

const LIMIT: Duration = Duration::from_secs(60);

/// A gateway that needs no broker.
const SAMPLE: &str = r#"
version: 1
data_dir: data
admin: { listen: "127.0.0.1:0" }
routes:
  customers:
    source: { type: ndjson, path: sample.ndjson, topic: customers }
    sinks: { nowhere: { type: discard } }
"#;

fn sample(yaml: &str) -> Site {
    let site = Site::with_config(yaml);
    fs::write(site.path("sample.ndjson"), "{\"key\":\"a\",\"value\":1}\n").unwrap();
    site
}

/// A pipe that nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Standard output and error to a pipe that nobody reads, one after the other: the exit code, and what the other one got.
fn run_unread(site: &Site, arguments: &[&str]) -> [(Option<i32>, String); 2] {
    let command = || {
        let mut command = site.command();
        command.args(arguments).stdin(Stdio::null());
        command
    };
    let out = command().stdout(closed()).stderr(Stdio::piped()).output().unwrap();
    let err = command().stderr(closed()).stdout(Stdio::piped()).output().unwrap();
    [
        (out.status.code(), String::from_utf8(out.stderr).unwrap()),
        (err.status.code(), String::from_utf8(err.stdout).unwrap()),
    ]
}

#[test]
fn every_command_ends_as_it_would_have_when_nobody_reads() {
    let mut site = sample(SAMPLE);
    site.set_env("RUST_BACKTRACE", "0");
    fs::write(site.path("broken.yaml"), "version: 2\n").unwrap();
    let gateway = site.start();
    let url = format!("http://{}", gateway.address());
    let demo = ["demo", "--once", "--records", "200", "--listen", "127.0.0.1:0", "--dir", "demo"];
    for (arguments, code) in [
        (&["--help"][..], 0),
        (&["run", "--help"], 0),
        (&["--version"], 0),
        (&["fly"], 2),
        (&["schema"], 0),
        (&["check", "-c", "written.yaml"], 0),
        (&["check", "-c", "written.yaml", "--output", "json"], 0),
        (&["check", "-c", "broken.yaml"], 2),
        (&["check", "-c", "broken.yaml", "--output", "json"], 2),
        (&["run", "-c", "broken.yaml"], 2),
        (&["status", "--url", &url], 0),
        (&["status", "--url", &url, "--output", "json"], 0),
        (&["status", "--url", "http://127.0.0.1:1"], 1),
    ] {
        let [unread_out, unread_err] = run_unread(&site, arguments);
        for (got, said) in [&unread_out, &unread_err] {
            assert_eq!(*got, Some(code), "{arguments:?}: {said}");
            assert!(!said.contains("panicked"), "{arguments:?}: {said}");
        }
        assert!(code != 0 || unread_out.1.is_empty(), "{arguments:?} says nothing of it: {}", unread_out.1);
    }
    gateway.stop();
    // A demo without anybody to show it to is not gone on with.
    let [unread_out, unread_err] = run_unread(&site, &demo);
    assert_eq!((unread_out.0, unread_out.1.as_str()), (Some(1), ""));
    assert_eq!(unread_err.0, Some(0), "{}", unread_err.1);
}

#[test]
fn a_full_disk_under_the_output_is_told() {
    let site = sample(SAMPLE);
    for arguments in [&["schema"][..], &["check", "-c", "written.yaml"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = site.command().args(arguments).stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("error: failed to write to the standard output: No space left on device"), "{said}");
    }
}

/// The first line of the log is read, and then its reader is gone while the gateway has more to say.
#[test]
fn a_gateway_outlives_the_reader_of_its_log() {
    let site = sample(&SAMPLE.replace("data_dir", "log: { level: debug }\ndata_dir"));
    fs::copy(site.path("written.yaml"), site.path("tidegate.yaml")).unwrap();
    let mut command = Command::new("bash");
    command
        .args(["-c", r#"exec "$0" run -c tidegate.yaml > >(head -c 1) 2>&1"#, env!("CARGO_BIN_EXE_tidegate")])
        .current_dir(site.path(""));
    let mut gateway = Process::spawn("gateway", command, Limits::default());
    let address = wait_for("the admin server's address", LIMIT, || {
        assert_eq!(gateway.exit_status(), None, "it ended\n{}", gateway.output());
        fs::read_to_string(site.path("data/admin.addr")).ok()?.parse::<SocketAddr>().ok()
    });
    wait_for("a live lane", LIMIT, || {
        let output = site.command().args(["status", "--url", &format!("http://{address}")]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().contains(" live ").then_some(())
    });
    gateway.signal(libc::SIGTERM);
    assert_eq!(gateway.wait(LIMIT).code(), Some(0));
}
