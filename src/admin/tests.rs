use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use serde_json::Value;
use tower::ServiceExt;

use super::*;
use crate::config::{Admin, Token};
use crate::gateway::status::{LaneState, samples};
use crate::secret::Secret;

/// One lane, which is not halted and has one dead letter.
struct OneLane;

impl OneLane {
    fn find(route: &str, sink: &str) -> Result<(), CommandError> {
        match (route, sink) {
            ("profiles", "read_model") => Ok(()),
            ("profiles", _) => {
                let (route, sink, known) = (route.to_owned(), sink.to_owned(), "`read_model`".to_owned());
                Err(CommandError::UnknownSink { route, sink, known })
            }
            _ => Err(CommandError::UnknownRoute { route: route.to_owned(), known: "`profiles`".to_owned() }),
        }
    }
}

impl Lanes for OneLane {
    fn command(&self, route: &str, sink: &str, act: Act) -> Result<(), CommandError> {
        Self::find(route, sink)?;
        if act == Act::Sweep {
            return Ok(());
        }
        let reason = crate::gateway::Refused("the lane is not halted".to_owned());
        Err(CommandError::Refused { lane: "profiles.read_model".to_owned(), reason })
    }

    fn dead_letters(&self, route: &str, sink: &str, query: &Query) -> Result<Page, CommandError> {
        Self::find(route, sink)?;
        let letter = serde_json::json!({ "offset": 5, "key": query.key });
        Ok(Page { letters: vec![letter], more: false })
    }
}

fn app(lanes: Vec<crate::gateway::status::LaneStatus>) -> App {
    let status = samples::status(lanes);
    let metrics = Metrics::new();
    metrics.lane("profiles", "read_model");
    App::new(move || status.clone(), OneLane, metrics)
}

fn live() -> App {
    app(vec![samples::lane("read_model", LaneState::Live, 20, 25)])
}

fn bootstrapping() -> App {
    let mut lane = samples::lane("read_model", LaneState::Bootstrapping, 5, 20);
    lane.waiting = Some("http://crm.internal answers 503".to_owned());
    app(vec![lane])
}

fn config(listen: &str, tokens: &[(&str, Role)]) -> Admin {
    let token =
        |(token, role): &(&str, Role)| Token { name: "ops".to_owned(), role: *role, token: Secret::new(*token) };
    Admin {
        listen: listen.parse().unwrap(),
        probes: None,
        tokens: tokens.iter().map(token).collect(),
        hosts: vec!["gate.example.com".to_owned()],
    }
}

struct Answer {
    status: StatusCode,
    headers: axum::http::HeaderMap,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        assert!(self.text.ends_with("}\n"), "no end of line: {:?}", self.text);
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

async fn send(router: Router, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(body.to_vec()).unwrap() }
}

/// From this machine, to a server on loopback without tokens.
async fn get(app: App, path: &str) -> Answer {
    send(router(app, &config("127.0.0.1:8080", &[])), "GET", path, &[("host", "localhost:8080")]).await
}

fn assert_problem(answer: &Answer, status: StatusCode, code: &str) {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert_eq!(answer.header(header::CONTENT_TYPE), "application/problem+json");
    let body = answer.json();
    assert_eq!(body["code"], code);
    assert_eq!(body["status"], status.as_u16());
    assert_eq!(body["type"], format!("urn:tidegate:problem:{code}"));
    assert!(body["title"].as_str().is_some_and(|title| !title.is_empty()));
    assert!(body["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
}

#[tokio::test]
async fn it_is_alive_before_it_is_ready() {
    assert_eq!(get(bootstrapping(), "/livez").await.status, StatusCode::OK);
    assert_eq!(get(bootstrapping(), "/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(get(live(), "/readyz").await.status, StatusCode::OK);
}

#[tokio::test]
async fn what_is_not_ready_tells_how_far_it_is() {
    let body = get(bootstrapping(), "/readyz").await.json();
    assert_eq!(body["ready"], false);
    let lane = &body["lanes"][0];
    assert_eq!((&lane["route"], &lane["sink"]), (&"profiles".into(), &"read_model".into()));
    assert_eq!((&lane["state"], &lane["blocks"]), (&"bootstrapping".into(), &true.into()));
    assert_eq!((&lane["passed"], &lane["total"]), (&5.into(), &20.into()));
    assert_eq!(lane["waiting"], "http://crm.internal answers 503");
    let partition = &lane["partitions"][0];
    assert_eq!((&partition["position"], &partition["target"]), (&5.into(), &20.into()));
}

#[tokio::test]
async fn a_halted_lane_shows_and_does_not_block() {
    let mut lane = samples::lane("read_model", LaneState::Halted, 5, 20);
    lane.halt = Some(samples::halt());
    let answer = get(app(vec![lane]), "/readyz").await;
    assert_eq!(answer.status, StatusCode::OK);
    let lane = &answer.json()["lanes"][0];
    assert_eq!(lane["state"], "halted");
    assert_eq!(lane["halt"], "user-profiles[0] at offset 5, stage sink: the disk is full");
}

#[tokio::test]
async fn readiness_of_one_route() {
    assert_eq!(get(live(), "/readyz?route=profiles").await.status, StatusCode::OK);
    assert_eq!(get(bootstrapping(), "/readyz?route=profiles").await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_problem(&get(live(), "/readyz?route=orders").await, StatusCode::NOT_FOUND, "unknown_route");
    assert_problem(&get(live(), "/readyz?ruote=profiles").await, StatusCode::BAD_REQUEST, "bad_request");
}

#[tokio::test]
async fn metrics_are_as_of_now() {
    let answer = get(live(), "/metrics").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header(header::CONTENT_TYPE), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(answer.text.ends_with("# EOF\n"));
    assert!(answer.text.contains("tidegate_memory_resident_bytes 88080384"), "{}", answer.text);
    assert!(
        answer.text.contains(
            r#"tidegate_lag_records{route="profiles",sink="read_model",topic="user-profiles",partition="0"} 5"#
        ),
        "{}",
        answer.text
    );
}

#[tokio::test]
async fn routes_are_listed_and_shown() {
    let list: Status = serde_json::from_value(get(live(), "/api/v1/routes").await.json()).unwrap();
    assert_eq!(list.version, "1.2.3");
    assert_eq!(list.routes[0].lanes[0].lag(), Some(5));
    let one = get(live(), "/api/v1/routes/profiles").await;
    assert_eq!(one.status, StatusCode::OK);
    assert_eq!(one.json()["lanes"][0]["sink"], "read_model");
    let missing = get(live(), "/api/v1/routes/orders").await;
    assert_problem(&missing, StatusCode::NOT_FOUND, "unknown_route");
    assert_eq!(missing.json()["detail"], "there is no route `orders`; the routes are `profiles`");
    assert_problem(&get(live(), "/api/v1/routes/%ff").await, StatusCode::BAD_REQUEST, "bad_request");
}

#[tokio::test]
async fn what_is_not_served_is_a_problem_too() {
    assert_problem(&get(live(), "/api/v2").await, StatusCode::NOT_FOUND, "not_found");
    let router = router(live(), &config("127.0.0.1:8080", &[]));
    let post = send(router, "POST", "/api/v1/routes", &[("host", "localhost")]).await;
    assert_problem(&post, StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed");
    assert_eq!(post.header(header::ALLOW), "GET,HEAD");
}

#[tokio::test]
async fn every_answer_has_the_security_headers() {
    for path in ["/livez", "/metrics", "/api/v1/routes", "/nothing"] {
        let answer = get(live(), path).await;
        assert_eq!(answer.header(header::X_CONTENT_TYPE_OPTIONS), "nosniff", "{path}");
        assert_eq!(answer.header(header::CACHE_CONTROL), "no-store", "{path}");
        assert_eq!(answer.header(header::X_FRAME_OPTIONS), "DENY", "{path}");
        assert!(answer.header(header::CONTENT_SECURITY_POLICY).contains("default-src 'none'"), "{path}");
    }
}

#[tokio::test]
async fn a_rebound_name_and_a_foreign_page_are_turned_away_everywhere() {
    let config = config("127.0.0.1:8080", &[]);
    for path in ["/livez", "/readyz", "/metrics", "/api/v1/routes", "/nothing"] {
        let send = async |headers: &[(&str, &str)]| send(router(live(), &config), "GET", path, headers).await;
        let rebound = send(&[("host", "evil.example:8080")]).await;
        assert_problem(&rebound, StatusCode::MISDIRECTED_REQUEST, "host_not_allowed");
        let foreign = send(&[("host", "localhost:8080"), ("origin", "http://evil.example")]).await;
        assert_problem(&foreign, StatusCode::FORBIDDEN, "origin_not_allowed");
    }
    let fine = [("host", "gate.example.com"), ("origin", "https://gate.example.com")];
    assert_eq!(send(router(live(), &config), "GET", "/api/v1/routes", &fine).await.status, StatusCode::OK);
}

#[tokio::test]
async fn beyond_loopback_everything_needs_a_token() {
    let config = config("0.0.0.0:8080", &[("view-secret", Role::Viewer)]);
    for path in ["/livez", "/readyz", "/metrics", "/api/v1/routes", "/api/v1/routes/profiles", "/nothing"] {
        let send = async |headers: &[(&str, &str)]| send(router(live(), &config), "GET", path, headers).await;
        let none = send(&[("host", "192.0.2.1:8080")]).await;
        assert_problem(&none, StatusCode::UNAUTHORIZED, "token_missing");
        assert_eq!(none.header(header::WWW_AUTHENTICATE), "Bearer realm=\"tidegate\"");
        let wrong = send(&[("host", "192.0.2.1:8080"), ("authorization", "Bearer guess-secret")]).await;
        assert_problem(&wrong, StatusCode::UNAUTHORIZED, "token_unknown");
        assert!(!wrong.text.contains("secret"), "{}", wrong.text);
        let right = send(&[("host", "192.0.2.1:8080"), ("authorization", "Bearer view-secret")]).await;
        assert_eq!(right.status == StatusCode::OK, path != "/nothing", "{path}: {}", right.text);
    }
}

#[tokio::test]
async fn without_a_configured_token_nobody_comes_in_from_outside() {
    let config = config("0.0.0.0:8080", &[]);
    let headers = [("host", "127.0.0.1:8080"), ("authorization", "Bearer ")];
    let answer = send(router(live(), &config), "GET", "/api/v1/routes", &headers).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn the_probes_listener_asks_for_nothing_and_serves_only_the_probes() {
    let probe = async |path: &str| send(probes_router(bootstrapping()), "GET", path, &[("host", "pod.cluster")]).await;
    assert_eq!(probe("/livez").await.status, StatusCode::OK);
    assert_eq!(probe("/metrics").await.status, StatusCode::OK);
    let ready = probe("/readyz").await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ready.json()["lanes"][0]["passed"], 5);
    assert!(!ready.text.contains("crm.internal"), "words stay inside: {}", ready.text);
    for path in ["/api/v1/routes", "/api/v1/routes/profiles", "/", "/config"] {
        assert_problem(&probe(path).await, StatusCode::NOT_FOUND, "not_found");
    }
    assert_eq!(probe("/livez").await.header(header::X_CONTENT_TYPE_OPTIONS), "nosniff");
}

#[tokio::test]
async fn it_serves_on_a_socket_and_stops_when_it_is_told() {
    let mut config = config("127.0.0.1:0", &[]);
    config.probes = Some("127.0.0.1:0".parse().unwrap());
    let listeners = Listeners::bind(&config).await.unwrap();
    let address = listeners.admin_address().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(async move {
        serve(listeners, live(), &config, async { stopped.await.unwrap() }).await;
    });
    // A connection that is left open does not hold the stop up.
    let idle = std::net::TcpStream::connect(address).unwrap();
    let answer = tokio::task::spawn_blocking(move || ask(address).unwrap()).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nalive\n"), "{answer}");
    stop.send(()).unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(10), server).await.expect("it stops").unwrap();
    assert!(ask(address).is_err(), "nobody listens any more");
    drop(idle);
}

fn ask(address: std::net::SocketAddr) -> std::io::Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address)?;
    write!(stream, "GET /livez HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[tokio::test]
async fn a_taken_port_is_named_with_its_key() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = Listeners::bind(&config(&address.to_string(), &[])).await.unwrap_err();
    let port = address.port();
    assert_eq!(
        error.to_string(),
        format!(
            "cannot listen on `{address}`: another program does; `ss -ltnp 'sport = :{port}'` shows which, \
             and `admin.listen` takes another port, or 0 for any free one"
        )
    );
}

#[test]
fn each_reason_not_to_listen_has_its_advice() {
    let says = |kind: std::io::ErrorKind| {
        format!("{:#}", cannot_listen("admin.probes", "192.0.2.1:80".parse().unwrap(), kind.into()))
    };
    use std::io::ErrorKind::{AddrNotAvailable, OutOfMemory, PermissionDenied};
    assert_eq!(
        says(AddrNotAvailable),
        "cannot listen on `192.0.2.1:80`: this machine has no such address; \
         `admin.probes` takes one of `ip address`, or `0.0.0.0:80` for all"
    );
    assert_eq!(
        says(PermissionDenied),
        "cannot listen on `192.0.2.1:80`: this user may not listen on port 80; \
         `admin.probes` takes another one, such as 8080"
    );
    assert_eq!(says(OutOfMemory), "cannot listen on `192.0.2.1:80` (`admin.probes`): out of memory");
}

#[tokio::test]
async fn a_lane_is_commanded_by_operators_of_the_same_site_only() {
    let post = async |config: &Admin, path: &str, headers: &[(&str, &str)]| {
        let path = format!("/api/v1/routes/{path}");
        send(router(live(), config), "POST", &path, &[&[("host", "localhost:8080")], headers].concat()).await
    };
    let open = config("127.0.0.1:8080", &[]);
    let accepted = post(&open, "profiles/lanes/read_model/sweep", &[]).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED);
    assert_eq!(accepted.json()["command"], "sweep");
    for (path, status, code) in [
        ("profiles/lanes/read_model/resume", StatusCode::CONFLICT, "refused"),
        ("profiles/lanes/read_model/skip", StatusCode::CONFLICT, "refused"),
        ("profiles/lanes/read_model/drop", StatusCode::NOT_FOUND, "not_found"),
        ("profiles/lanes/crm/resume", StatusCode::NOT_FOUND, "unknown_sink"),
        ("orders/lanes/crm/resume", StatusCode::NOT_FOUND, "unknown_route"),
        ("%ff/lanes/crm/resume", StatusCode::BAD_REQUEST, "bad_request"),
    ] {
        assert_problem(&post(&open, path, &[]).await, status, code);
    }
    let sweep = "profiles/lanes/read_model/sweep";
    let foreign = post(&open, sweep, &[("origin", "http://evil.example")]).await;
    assert_problem(&foreign, StatusCode::FORBIDDEN, "origin_not_allowed");
    let roles = config("127.0.0.1:8080", &[("view", Role::Viewer), ("operate", Role::Operator)]);
    assert_problem(&post(&roles, sweep, &[]).await, StatusCode::UNAUTHORIZED, "token_missing");
    let viewer = post(&roles, sweep, &[("authorization", "Bearer view")]).await;
    assert_problem(&viewer, StatusCode::FORBIDDEN, "role_too_low");
    assert_eq!(post(&roles, sweep, &[("authorization", "Bearer operate")]).await.status, StatusCode::ACCEPTED);
    let shown = get(live(), "/api/v1/routes/profiles/lanes/read_model/sweep").await;
    assert_problem(&shown, StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed");
}

#[tokio::test]
async fn dead_letters_are_shown_to_operators() {
    let path = "/api/v1/routes/profiles/lanes/read_model/dead";
    let answer = get(live(), &format!("{path}?key=a%20b&limit=3")).await;
    assert_eq!((answer.status, &answer.json()["letters"][0]["key"]), (StatusCode::OK, &"a b".into()));
    assert_problem(&get(live(), &format!("{path}?kee=a")).await, StatusCode::BAD_REQUEST, "bad_request");
    let unknown = get(live(), "/api/v1/routes/profiles/lanes/crm/dead").await;
    assert_problem(&unknown, StatusCode::NOT_FOUND, "unknown_sink");
    let roles = config("127.0.0.1:8080", &[("view", Role::Viewer), ("operate", Role::Operator)]);
    let with = async |token: &str| {
        let headers = [("host", "localhost:8080"), ("authorization", token)];
        send(router(live(), &roles), "GET", path, &headers).await
    };
    assert_problem(&with("Bearer view").await, StatusCode::FORBIDDEN, "role_too_low");
    assert_eq!(with("Bearer operate").await.status, StatusCode::OK);
}
