//! What every request passes before anything answers it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use url::Url;

use super::Problem;
use super::auth::Tokens;
use crate::config::{self, Role};

/// No endpoint takes a body yet; this leaves room for a client that sends a needless one.
const MAX_BODY_BYTES: u64 = 64 * 1024;

/// From a request's head to its answer. Nothing here takes a second unless the machine is in trouble.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Door {
    tokens: Tokens,
    /// The address that the server listens on.
    listen: IpAddr,
    /// Names and addresses that are configured, in lower case.
    hosts: Vec<String>,
}

impl Door {
    pub fn new(config: &config::Admin) -> Self {
        let hosts = config.hosts.iter().map(|host| host.trim_end_matches('.').to_ascii_lowercase()).collect();
        Self { tokens: Tokens::new(config), listen: config.listen.ip().to_canonical(), hosts }
    }

    /// A page of another site can make a browser send requests here: by a name that it has pointed at this address (DNS
    /// rebinding), which shows in `Host`, or straight, which shows in `Origin`.
    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let host = one(headers, header::HOST).unwrap_or_default();
        let refused = |host: &str| Problem::HostNotAllowed { host: host.to_owned() };
        let authority: Authority = host.parse().map_err(|_| refused(host))?;
        // A request line in absolute form overrides the header.
        for authority in [Some(&authority), uri.authority()].into_iter().flatten() {
            if authority.as_str().contains('@') || !self.is_ours(authority.host()) {
                return Err(refused(authority.as_str()));
            }
        }
        if !headers.contains_key(header::ORIGIN) {
            return Ok(());
        }
        let origin = one(headers, header::ORIGIN).unwrap_or_default();
        let refused = || Problem::OriginNotAllowed { origin: origin.to_owned() };
        let url = Url::parse(origin).ok().filter(|url| url.has_host()).ok_or_else(refused)?;
        let name = url.host_str().unwrap_or_default();
        // Another port of this machine is another site, perhaps somebody else's; a configured name is trusted as such,
        // since a proxy in front may have changed `Host`.
        let same_site = authority.host().eq_ignore_ascii_case(name)
            && authority.port_u16().or(default_port(url.scheme())) == url.port_or_known_default();
        if (same_site && self.is_ours(name)) || self.is_configured(name) { Ok(()) } else { Err(refused()) }
    }

    /// An address needs no name server, so that it cannot be rebound: each of this machine's own is fine.
    fn is_ours(&self, host: &str) -> bool {
        if self.is_configured(host) || host.trim_end_matches('.').eq_ignore_ascii_case("localhost") {
            return true;
        }
        let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() else { return false };
        let address = address.to_canonical();
        address.is_loopback() || address == self.listen || self.listen.is_unspecified()
    }

    fn is_configured(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.');
        self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    }
}

/// The header's value, when there is just one and it is text.
fn one(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    value.to_str().ok()
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

pub async fn check_origin(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    match door.check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

pub async fn check_token(State((door, needed)): State<(Arc<Door>, Role)>, request: Request, next: Next) -> Response {
    match door.tokens.check(request.headers(), needed) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    body_bytes: u64,
    time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { body_bytes: MAX_BODY_BYTES, time: REQUEST_TIMEOUT }
    }
}

pub async fn limit(State(limits): State<Limits>, request: Request, next: Next) -> Response {
    // What is announced; a body of unknown length is never read, since nothing here takes one.
    if request.body().size_hint().lower() > limits.body_bytes {
        return Problem::BodyTooLarge { limit: limits.body_bytes }.into_response();
    }
    tokio::time::timeout(limits.time, next.run(request))
        .await
        .unwrap_or_else(|_| Problem::Timeout { limit_seconds: limits.time.as_secs() }.into_response())
}

/// Nothing here is a page, so a browser is told to make as little of it as it can.
pub async fn security_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::body::Body;
    use axum::http::StatusCode;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower::ServiceExt;

    fn door(listen: &str, hosts: &[&str]) -> Door {
        Door::new(&config::Admin {
            listen: listen.parse().unwrap(),
            probes: None,
            tokens: vec![],
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        })
    }

    fn check(door: &Door, host: &str, origin: Option<&str>) -> Result<(), &'static str> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        door.check(&Uri::from_static("/"), &headers).map_err(|problem| problem.code())
    }

    #[test]
    fn the_host_is_this_machine_or_a_configured_name() {
        let loopback = door("127.0.0.1:8080", &["Gate.example.com"]);
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.0.0.1:9000", "[::1]:8080", "127.0.0.2"] {
            assert_eq!(check(&loopback, host, None), Ok(()), "{host}");
        }
        assert_eq!(check(&loopback, "gate.example.com.:8080", None), Ok(()));
        for host in ["evil.example", "localhost.evil.example", "192.0.2.1", "0.0.0.0:8080", "user@localhost", "", "a b"]
        {
            assert_eq!(check(&loopback, host, None), Err("host_not_allowed"), "{host}");
        }
        let all = door("0.0.0.0:8080", &[]);
        assert_eq!(check(&all, "192.0.2.1:8080", None), Ok(()));
        assert_eq!(check(&all, "evil.example", None), Err("host_not_allowed"));
        let one = door("192.0.2.1:8080", &[]);
        assert_eq!(check(&one, "192.0.2.1:8080", None), Ok(()));
        assert_eq!(check(&one, "192.0.2.2:8080", None), Err("host_not_allowed"));
    }

    #[test]
    fn a_missing_or_a_second_host_is_refused() {
        let door = door("127.0.0.1:8080", &[]);
        let uri = Uri::from_static("/");
        assert!(door.check(&uri, &HeaderMap::new()).is_err());
        let mut two = HeaderMap::new();
        two.append(header::HOST, HeaderValue::from_static("localhost"));
        two.append(header::HOST, HeaderValue::from_static("evil.example"));
        assert!(door.check(&uri, &two).is_err());
        let mut fine = HeaderMap::new();
        fine.append(header::HOST, HeaderValue::from_static("localhost"));
        assert!(door.check(&uri, &fine).is_ok());
        assert!(door.check(&Uri::from_static("http://evil.example/"), &fine).is_err());
    }

    #[test]
    fn the_origin_is_the_same_site_or_a_configured_name() {
        let door = door("127.0.0.1:8080", &["gate.example.com"]);
        let host = "localhost:8080";
        assert_eq!(check(&door, host, Some("http://localhost:8080")), Ok(()));
        assert_eq!(check(&door, host, Some("https://gate.example.com")), Ok(()));
        assert_eq!(check(&door, "localhost", Some("http://localhost")), Ok(()));
        for origin in [
            "http://evil.example",
            "http://evil.example:8080",
            "http://localhost:3000",
            "http://127.0.0.1:8080",
            "null",
            "file://",
            "",
        ] {
            assert_eq!(check(&door, host, Some(origin)), Err("origin_not_allowed"), "{origin}");
        }
    }

    #[tokio::test]
    async fn a_request_that_takes_too_long_or_is_too_large_is_ended() {
        let limits = Limits { body_bytes: 4, time: Duration::from_millis(1) };
        let router = Router::new()
            .route("/slow", get(std::future::pending::<()>))
            .route("/fast", get(async || "done"))
            .layer(from_fn_with_state(limits, limit));
        let answer = async |path: &str, body: &'static str| {
            let request = Request::builder().uri(path).body(Body::from(body)).unwrap();
            router.clone().oneshot(request).await.unwrap().status()
        };
        assert_eq!(answer("/fast", "four").await, StatusCode::OK);
        assert_eq!(answer("/slow", "").await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer("/fast", "five5").await, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
