//! One request and what its answer means.
//!
//! | answer | means |
//! |---|---|
//! | 2xx; 404 or 410 to a DELETE | done |
//! | none: refused, cut off, too late | transient |
//! | 408, 425, 429, 5xx | transient, not before what `Retry-After` says |
//! | anything else, redirects too | permanent |

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use base64::Engine;
use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Certificate, Client, ClientBuilder, Identity, Method, Request, Response, StatusCode};
use serde::de::IgnoredAny;

use super::row::{Action, Row};
use super::target::{PLACEHOLDER, Target};
use crate::config::{self, Auth, DeleteMethod, Http as Settings};
use crate::line::NO_TIMESTAMP;

/// Bytes of an answer's body that go into a cause.
const EXCERPT_BYTES: usize = 512;

/// Bytes of an answer's body that are read so that its connection can be used again; a longer one costs the connection.
const DRAIN_BYTES: usize = 64 << 10;

/// The longest that a receiver can make the lane wait with `Retry-After`.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TOPIC: HeaderName = HeaderName::from_static("tidegate-topic");
const PARTITION: HeaderName = HeaderName::from_static("tidegate-partition");
const OFFSET: HeaderName = HeaderName::from_static("tidegate-offset");
const TIMESTAMP: HeaderName = HeaderName::from_static("tidegate-timestamp");

/// What a request came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Transient {
        cause: String,
        /// How long the receiver asks to be left alone.
        retry_after: Option<Duration>,
        /// Whether it never reached the receiver, so that no other request would.
        unreachable: bool,
    },
    Permanent {
        cause: String,
    },
}

/// Makes requests and sends them.
#[derive(Clone)]
pub struct Exchange {
    client: Client,
    target: Arc<Target>,
    method: Method,
    deletes: Option<Arc<Deletes>>,
    headers: HeaderMap,
}

/// What is sent so that a key goes.
struct Deletes {
    method: Method,
    target: Target,
    /// Around the key.
    body: Option<Vec<String>>,
}

impl Exchange {
    /// # Errors
    /// When a setting cannot be used.
    pub fn new(settings: &Settings) -> anyhow::Result<Self> {
        let target = Target::new(&settings.url)?;
        if settings.method == config::Method::Put && !target.holds_key() {
            bail!("the sink's `url` holds no `{{key}}`, and PUT needs one");
        }
        let deletes = settings.delete.as_ref().map(Deletes::new).transpose()?.map(Arc::new);
        let client = Client::builder()
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            // A redirect could take records, and credentials with them, to a host that nobody configured.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(settings.connect_timeout)
            .timeout(settings.timeout)
            .pool_max_idle_per_host(settings.in_flight.get());
        let client = with_tls(client, &settings.tls)?.build().context("failed to set up the HTTP client")?;
        let method = match settings.method {
            config::Method::Put => Method::PUT,
            config::Method::Post => Method::POST,
            config::Method::Patch => Method::PATCH,
        };
        Ok(Self { client, target: Arc::new(target), method, deletes, headers: headers(settings)? })
    }

    /// # Errors
    /// Why the row has no request: it can never be sent.
    pub fn request(&self, row: &Row) -> Result<Request, String> {
        let deletes = self.deletes.as_deref().filter(|_| row.action != Action::Write);
        let (method, target) =
            deletes.map_or((&self.method, &*self.target), |deletes| (&deletes.method, &deletes.target));
        let mut request = Request::new(method.clone(), target.address(row.key())?);
        let mut headers = self.headers.clone();
        let topic =
            percent_encoding::utf8_percent_encode(&row.partition().topic, percent_encoding::CONTROLS).to_string();
        let idempotency_key = format!("{topic}-{}-{}{}", row.partition().partition, row.offset, row.suffix());
        let text =
            |text: String| HeaderValue::try_from(text).map_err(|_| "the topic's name fits in no header".to_owned());
        headers.insert(IDEMPOTENCY_KEY, text(idempotency_key)?);
        headers.insert(TOPIC, text(topic)?);
        headers.insert(PARTITION, row.partition().partition.into());
        headers.insert(OFFSET, row.offset.into());
        if row.timestamp != NO_TIMESTAMP {
            headers.insert(TIMESTAMP, row.timestamp.into());
        }
        if row.action == Action::Write {
            let body = row.value();
            if !headers.contains_key(CONTENT_TYPE) {
                let json = is_json(&body);
                let kind = if json { "application/json" } else { "application/octet-stream" };
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            }
            *request.body_mut() = Some(body.into());
        } else if let Some(body) = deletes.and_then(|deletes| deletes.body.as_ref()) {
            let body = body.join(&escaped(row.key())?);
            if !headers.contains_key(CONTENT_TYPE) {
                let json = is_json(&Bytes::copy_from_slice(body.as_bytes()));
                let kind = if json { "application/json" } else { "text/plain; charset=utf-8" };
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            }
            *request.body_mut() = Some(body.into());
        } else {
            headers.remove(CONTENT_TYPE);
        }
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// `deletes` = what is not there is as good as gone.
    pub async fn send(&self, request: Request, deletes: bool) -> Outcome {
        let response = match self.client.execute(request).await {
            Ok(response) => response,
            Err(error) => return self.failed(error),
        };
        let status = response.status();
        let retry_after = retry_after(response.headers(), SystemTime::now());
        match verdict(status, deletes) {
            Verdict::Done => {
                // The answer has come; what is left of it decides nothing.
                drop(read(response, DRAIN_BYTES).await);
                Outcome::Done
            }
            Verdict::Transient => {
                Outcome::Transient { cause: self.cause(status, response).await, retry_after, unreachable: false }
            }
            Verdict::Permanent => Outcome::Permanent { cause: self.cause(status, response).await },
        }
    }

    async fn cause(&self, status: StatusCode, response: Response) -> String {
        let body = read(response, EXCERPT_BYTES).await;
        let mut cause = format!("http {} from {}", status.as_u16(), self.target.host());
        let excerpt = String::from_utf8_lossy(&body[..body.len().min(EXCERPT_BYTES)]);
        let excerpt: String = excerpt.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if !excerpt.trim().is_empty() {
            cause.push_str(": ");
            cause.push_str(excerpt.trim());
        }
        cause
    }

    fn failed(&self, error: reqwest::Error) -> Outcome {
        let unreachable = error.is_connect();
        let never = error.is_builder();
        let reason = if error.is_timeout() { "no answer in time".to_owned() } else { reason(&error.without_url()) };
        let cause = format!("{}: {reason}", self.target.host());
        if never { Outcome::Permanent { cause } } else { Outcome::Transient { cause, retry_after: None, unreachable } }
    }
}

impl Deletes {
    fn new(settings: &config::Delete) -> anyhow::Result<Self> {
        let target = Target::new(&settings.url)?;
        if settings.method == DeleteMethod::Delete && !target.holds_key() {
            bail!("the sink's `url` holds no `{{key}}`, and DELETE needs one");
        }
        let method = match settings.method {
            DeleteMethod::Delete => Method::DELETE,
            DeleteMethod::Put => Method::PUT,
            DeleteMethod::Post => Method::POST,
            DeleteMethod::Patch => Method::PATCH,
        };
        let body = settings.body.as_ref().map(|body| body.split(PLACEHOLDER).map(str::to_owned).collect());
        Ok(Self { method, target, body })
    }
}

/// A key as it stands in a JSON string.
fn escaped(key: Option<&[u8]>) -> Result<String, String> {
    let key = std::str::from_utf8(key.unwrap_or_default())
        .map_err(|_| "the key is not UTF-8, and the body of a delete needs one that is".to_owned())?;
    let quoted = serde_json::to_string(key).map_err(|error| error.to_string())?;
    Ok(quoted[1..quoted.len() - 1].to_owned())
}

fn with_tls(mut client: ClientBuilder, tls: &config::Tls) -> anyhow::Result<ClientBuilder> {
    if let Some(ca) = &tls.ca {
        let certificates = Certificate::from_pem_bundle(ca.as_bytes()).context("`ca` holds no certificates in PEM")?;
        anyhow::ensure!(!certificates.is_empty(), "`ca` holds no certificates in PEM");
        client = certificates.into_iter().fold(client, ClientBuilder::add_root_certificate);
    }
    if let Some((certificate, key)) = &tls.identity {
        // What OpenSSL says of a key may hold a part of it.
        let identity = Identity::from_pkcs8_pem(certificate.as_bytes(), key.reveal().as_bytes()).map_err(|_| {
            anyhow::anyhow!(
                "`certificate` and `key` are not a certificate in PEM and its key as PKCS #8; \
                 `openssl pkcs8 -topk8 -nocrypt` converts other keys"
            )
        })?;
        client = client.identity(identity);
    }
    Ok(client)
}

/// The innermost reason: the layers above it say only that something failed.
fn reason(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Done,
    Transient,
    Permanent,
}

fn verdict(status: StatusCode, deletes: bool) -> Verdict {
    match status.as_u16() {
        200..=299 => Verdict::Done,
        404 | 410 if deletes => Verdict::Done,
        408 | 425 | 429 | 500..=599 => Verdict::Transient,
        _ => Verdict::Permanent,
    }
}

/// Seconds or a date, at most [`RETRY_AFTER_MAX`].
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// The body, up to a little more than `limit`, or as far as it came.
async fn read(mut response: Response, limit: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < limit
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    body
}

fn is_json(value: &Bytes) -> bool {
    // Skipping over a document leaves the bytes inside its strings unchecked.
    std::str::from_utf8(value).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// The configured headers, which are as secret as credentials are.
fn headers(settings: &Settings) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers {
        let header = HeaderName::try_from(name).map_err(|_| anyhow::anyhow!("`{name}` is no header name"))?;
        headers.append(header, secret(value.reveal()).with_context(|| format!("the value of header `{name}`"))?);
    }
    let authorization = match &settings.auth {
        None => return Ok(headers),
        Some(Auth::Bearer(token)) => format!("Bearer {}", token.reveal()),
        Some(Auth::Basic { user, password }) => {
            let both = format!("{user}:{}", password.reveal());
            format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(both))
        }
    };
    headers.insert(AUTHORIZATION, secret(&authorization).context("the credentials of `auth`")?);
    Ok(headers)
}

fn secret(value: &str) -> anyhow::Result<HeaderValue> {
    let Ok(mut value) = HeaderValue::try_from(value) else {
        bail!("cannot be sent in a header: it holds line breaks or the like")
    };
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_mean_what_the_table_says() {
        for (status, deletes, expected) in [
            (200, false, Verdict::Done),
            (204, true, Verdict::Done),
            (404, true, Verdict::Done),
            (410, true, Verdict::Done),
            (404, false, Verdict::Permanent),
            (410, false, Verdict::Permanent),
            (301, false, Verdict::Permanent),
            (400, true, Verdict::Permanent),
            (401, false, Verdict::Permanent),
            (409, false, Verdict::Permanent),
            (408, false, Verdict::Transient),
            (425, false, Verdict::Transient),
            (429, true, Verdict::Transient),
            (500, false, Verdict::Transient),
            (503, false, Verdict::Transient),
            (599, false, Verdict::Transient),
        ] {
            assert_eq!(verdict(StatusCode::from_u16(status).unwrap(), deletes), expected, "{status}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_has_a_limit() {
        let now = httpdate::parse_http_date("Wed, 21 Oct 2015 07:28:00 GMT").unwrap();
        for (text, expected) in [
            ("0", Some(0)),
            (" 7 ", Some(7)),
            ("86400", Some(300)),
            ("Wed, 21 Oct 2015 07:28:05 GMT", Some(5)),
            ("Wed, 21 Oct 2015 07:27:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(text).unwrap())]);
            assert_eq!(retry_after(&headers, now), expected.map(Duration::from_secs), "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
