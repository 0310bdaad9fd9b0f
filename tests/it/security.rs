//! Clusters and services that ask for TLS, passwords and certificates: let in as told, and otherwise told why not, without an
//! exit.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::harness::broker::{PASSWORD, USER};
use super::harness::process::{Limits, Process};
use super::harness::read::sqlite;
use super::harness::{Broker, Gateway, Producer, Record, Site, Topic, route, wait_for};

const LIMIT: Duration = Duration::from_secs(60);

/// A gateway whose cluster is reached with `password`, trusting `certificate`.
fn site(topic: &Topic<'_>, certificate: &str, password: &str) -> Site {
    let mut site = Site::with_config(&format!(
        "version: 1
data_dir: data
admin: {{ listen: 127.0.0.1:0 }}
clusters:
  main:
    bootstrap.servers: {}
    security.protocol: SASL_SSL
    ssl.ca.location: {certificate}
    sasl.mechanism: SCRAM-SHA-512
    sasl.username: {USER}
    sasl.password: ${{env:KAFKA_PASSWORD}}
    reconnect.backoff.max.ms: 1000
routes:
  r:
    source: {{ cluster: main, topics: [{}] }}
    sinks: {{ db: {{ type: sqlite, path: profiles.db, table: profiles }} }}
",
        topic.broker.secure_bootstrap(),
        topic.name,
    ));
    site.set_env("KAFKA_PASSWORD", password);
    site
}

fn profiles(broker: &Broker) -> Topic<'_> {
    let topic = Topic::compacted(broker, 2);
    Producer::new(broker).write(&topic, ["1", "2", "3"].map(|key| Record::put(key, key)));
    topic
}

/// Waits until the lane says why it is not connected.
fn refusal(gateway: &mut Gateway, word: &str) -> String {
    let shows = |waiting: &Option<String>| waiting.as_ref().is_some_and(|reason| reason.contains(word));
    let lane = gateway.wait_lane("db", LIMIT, |lane| shows(&lane.waiting));
    assert!(!gateway.is_ready());
    lane.waiting.expect("it was looked at")
}

#[test]
fn tls_and_scram_let_the_gateway_in_and_nothing_else_does() {
    let broker = Broker::start_secure();
    let topic = profiles(&broker);
    let certificate = broker.certificate().display().to_string();

    let trusted = site(&topic, &certificate, PASSWORD);
    let mut gateway = trusted.start();
    gateway.wait_ready(LIMIT);
    let log = gateway.process.output();
    gateway.stop();
    assert_eq!(sqlite(&trusted.path("profiles.db"), "profiles").len(), 3);
    assert!(!log.contains(PASSWORD), "{log}");

    let mut gateway = site(&topic, &certificate, "wrong").start();
    let reason = refusal(&mut gateway, "Authentication failed");
    assert!(!reason.contains("wrong"), "{reason}");
    gateway.stop();

    // The machine's own authorities know nothing of this broker.
    let mut gateway = site(&topic, "probe", PASSWORD).start();
    refusal(&mut gateway, "certificate");
    gateway.stop();
}

/// A service that only takes requests of who shows a certificate of the same authority, and writes down what it took.
const SERVICE: &str = r#"
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def take(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        print("took", self.command, self.path, body, self.connection.getpeercert()["subject"][0][0][1], flush=True)
        self.send_response(204)
        self.end_headers()
    do_PUT = do_DELETE = take
    protocol_version = "HTTP/1.1"
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("service.pem", "service.key")
context.load_verify_locations("ca.pem")
context.verify_mode = ssl.CERT_REQUIRED
server.socket = context.wrap_socket(server.socket, server_side=True)
print("port", server.server_address[1], flush=True)
server.serve_forever()
"#;

/// An authority, and a certificate of it for the service and the gateway each, as `NAME.pem` and `NAME.key`.
fn certify(directory: &Path) {
    let openssl = |arguments: &str| {
        let output =
            Command::new("openssl").args(arguments.split(' ')).current_dir(directory).output().expect("openssl runs");
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    };
    openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem");
    std::fs::write(directory.join("names"), "subjectAltName=IP:127.0.0.1").expect("writable");
    for name in ["service", "gateway"] {
        openssl(&format!("req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out {name}.pem"
        ));
    }
}

#[test]
fn a_service_of_an_own_authority_that_asks_for_a_certificate_is_shown_one() {
    let topic = Topic::compacted(Broker::shared(), 1);
    Producer::new(topic.broker).write(&topic, [Record::put("a", "1"), Record::delete("a")]);
    let certificates = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("writable");
    certify(certificates.path());
    let mut command = Command::new("python3");
    command.args(["-c", SERVICE]).current_dir(certificates.path());
    let service = Process::spawn("service", command, Limits::default());
    let port = wait_for("the service's port", LIMIT, || {
        let output = service.output();
        let line = output.lines().find_map(|line| line.strip_prefix("service| port "))?.to_owned();
        line.parse::<u16>().ok()
    });
    let path = |name: &str| certificates.path().join(name).display().to_string();
    let site = |tls: &str| {
        let sink = format!(
            r#"sinks: {{ crm: {{ type: http, url: "https://127.0.0.1:{port}/{{key}}", in_flight: 1, retry: {{ max: 500ms }}{tls} }} }}"#
        );
        Site::new(topic.broker, &route(&topic, &[&sink]))
    };
    let file = |name: &str| format!("\"${{file:{}}}\"", path(name));
    let ca = file("ca.pem");
    let (certificate, key) = (file("gateway.pem"), file("gateway.key"));

    // Neither trusted nor trusting.
    let stranger = site("");
    let mut gateway = stranger.start();
    let lane = gateway.wait_lane("crm", LIMIT, |lane| lane.waiting.is_some());
    assert!(lane.waiting.as_ref().is_some_and(|reason| reason.contains("certificate")), "{lane:?}");
    gateway.stop();
    assert!(!service.has_printed("took"));

    let known = site(&format!(", tls: {{ ca: {ca}, certificate: {certificate}, key: {key} }}"));
    let mut gateway = known.start();
    gateway.wait_ready(LIMIT);
    gateway.stop();
    assert!(service.has_printed("took DELETE /a  gateway"), "{}", service.output());

    let check = |tls: &str| {
        let output = site(tls).command().args(["check", "-c", "written.yaml"]).output().expect("it starts");
        (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
    };
    let (code, error) = check(&format!(", tls: {{ ca: {ca}, certificate: {certificate}, key: {certificate} }}"));
    assert!(code == Some(2) && error.contains("and its key as PKCS #8"), "{code:?}: {error}");
    assert!(error.contains("routes.r.sinks.crm.tls") && !error.contains("BEGIN"), "{error}");
    let (code, error) = check(&format!(", tls: {{ ca: {key} }}"));
    assert!(code == Some(2) && error.contains("`ca` holds no certificates in PEM"), "{code:?}: {error}");
}
