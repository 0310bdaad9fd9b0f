//! An HTTP service as the http sink meets it: it remembers what came, answers by script, and finds every breach of order.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::{block_on, runtime};

/// Names the gateway's run, so that order is judged within it: the configuration sends it with each request.
pub const RUN_HEADER: &str = "x-run";
/// Breaches that are kept word for word.
const KEPT_BREACHES: usize = 20;

/// One request, as it came.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    /// Not decoded.
    pub path: String,
    /// The path's last segment, decoded.
    pub key: Vec<u8>,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub partition: i32,
    pub offset: i64,
    pub at: Instant,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a header in ASCII"))
    }

    pub fn key_text(&self) -> &str {
        std::str::from_utf8(&self.key).expect("a key in UTF-8")
    }
}

/// What it answers, and when.
#[derive(Clone, Debug)]
pub struct Answer {
    status: StatusCode,
    delay: Duration,
    retry_after: Option<u64>,
    lies: bool,
    breaks_off: bool,
}

impl Answer {
    pub fn ok() -> Self {
        Self::status(204)
    }

    pub fn status(code: u16) -> Self {
        let status = StatusCode::from_u16(code).expect("a status code");
        Self { status, delay: Duration::ZERO, retry_after: None, lies: false, breaks_off: false }
    }

    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The request is carried out when it arrives, whatever is answered.
    pub fn lying(mut self) -> Self {
        self.lies = true;
        self
    }

    /// The connection ends in the middle of the answer.
    pub fn breaking_off(mut self) -> Self {
        self.breaks_off = true;
        self
    }

    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

type Script = Box<dyn FnMut(&Request) -> Answer + Send>;

/// A running service. It forgets nothing until it is dropped.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    memory: Arc<Mutex<Memory>>,
    server: tokio::task::JoinHandle<()>,
}

struct Memory {
    script: Script,
    /// Every request; empty when only the state is kept.
    log: Vec<Request>,
    keeps_log: bool,
    requests: u64,
    accepted: u64,
    refused: u64,
    /// What was accepted last, by arrival.
    by_arrival: HashMap<Vec<u8>, Held>,
    /// What was accepted from the highest position, as a receiver that compares the position header keeps it.
    by_position: HashMap<Vec<u8>, Held>,
    /// Of each run and key: the last offset that arrived, and whether its answer is still to come.
    arrivals: HashMap<(String, Vec<u8>), (i32, i64, bool)>,
    breaches: Vec<String>,
    breach_count: u64,
    /// Those breaches that are two requests of a key at once.
    overlaps: u64,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("requests", &self.requests).field("accepted", &self.accepted).finish()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    partition: i32,
    offset: i64,
    /// `None` = deleted.
    value: Option<Bytes>,
}

impl Receiver {
    /// Accepts everything and keeps every request.
    pub fn start() -> Self {
        Self::with(true, |_| Answer::ok())
    }

    /// Accepts everything and keeps only the state, for large runs.
    pub fn keeping_state() -> Self {
        Self::with(false, |_| Answer::ok())
    }

    /// Keeps every request, and answers by script.
    pub fn scripted(script: impl FnMut(&Request) -> Answer + Send + 'static) -> Self {
        Self::with(true, script)
    }

    fn with(keeps_log: bool, script: impl FnMut(&Request) -> Answer + Send + 'static) -> Self {
        let memory = Arc::new(Mutex::new(Memory {
            script: Box::new(script),
            log: Vec::new(),
            keeps_log,
            requests: 0,
            accepted: 0,
            refused: 0,
            by_arrival: HashMap::new(),
            by_position: HashMap::new(),
            arrivals: HashMap::new(),
            breaches: Vec::new(),
            breach_count: 0,
            overlaps: 0,
        }));
        let app =
            axum::Router::new().fallback(receive).layer(DefaultBodyLimit::disable()).with_state(Arc::clone(&memory));
        let listener = block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = runtime().spawn(async move { axum::serve(listener, app).await.expect("the receiver serves") });
        Self { address, memory, server }
    }

    /// The address that a route writes: `http://…/profiles/{key}`.
    pub fn url(&self) -> String {
        format!("http://{}/profiles/{{key}}", self.address)
    }

    /// Answers by another script from now on.
    pub fn answer(&self, script: impl FnMut(&Request) -> Answer + Send + 'static) {
        self.lock().script = Box::new(script);
    }

    /// Every request, in the order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        let memory = self.lock();
        assert!(memory.keeps_log, "this receiver keeps no log");
        memory.log.clone()
    }

    pub fn request_count(&self) -> u64 {
        self.lock().requests
    }

    pub fn accepted_count(&self) -> u64 {
        self.lock().accepted
    }

    pub fn refused_count(&self) -> u64 {
        self.lock().refused
    }

    /// What it holds, with keys and values as text.
    pub fn state(&self) -> BTreeMap<String, String> {
        let memory = self.lock();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let held = memory.by_arrival.iter().filter_map(|(key, held)| Some((text(key), text(held.value.as_ref()?))));
        held.collect()
    }

    /// # Panics
    /// When a run sent an older offset of a key after a newer one, or two requests of a key at once.
    #[track_caller]
    pub fn assert_order(&self) {
        let memory = self.lock();
        assert_eq!(memory.breach_count, 0, "order per key was broken, first:\n{}", memory.breaches.join("\n"));
    }

    /// What holds even where a run reads again what it had read, since its partition was away meanwhile.
    ///
    /// # Panics
    /// When a run sent two requests of a key at once.
    #[track_caller]
    pub fn assert_one_at_a_time(&self) {
        let memory = self.lock();
        assert_eq!(memory.overlaps, 0, "two requests of a key were under way, among\n{}", memory.breaches.join("\n"));
    }

    /// How many keys would be wrong at a receiver that does not compare positions.
    pub fn stale_by_arrival(&self) -> usize {
        let memory = self.lock();
        memory.by_position.iter().filter(|(key, held)| memory.by_arrival.get(*key) != Some(held)).count()
    }

    /// Writes what a receiver that compares positions holds, for `fold.py`.
    pub fn dump(&self, path: &Path) {
        let memory = self.lock();
        let mut out = BufWriter::new(std::fs::File::create(path).expect("writable"));
        for (key, held) in &memory.by_position {
            if let Some(value) = &held.value {
                let (key, value) = (BASE64_STANDARD.encode(key), BASE64_STANDARD.encode(value));
                writeln!(out, "{key}\t{}\t{}\t{value}", held.partition, held.offset).expect("writable");
            }
        }
        out.flush().expect("writable");
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn receive(
    State(memory): State<Arc<Mutex<Memory>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    let last = path.rsplit('/').next().unwrap_or_default();
    let key = percent_encoding::percent_decode_str(last).collect::<Vec<u8>>();
    let number = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()?.parse().ok());
    let (Some(partition), Some(offset)) = (number("tidegate-partition"), number("tidegate-offset")) else {
        let complaint = format!("no position in the headers of {method} {path}: {headers:?}");
        lock(&memory).breach(complaint);
        return StatusCode::BAD_REQUEST.into_response();
    };
    let request = Request { method, path, key, headers, body, partition: partition as i32, offset, at: Instant::now() };
    let run = request.header(RUN_HEADER).unwrap_or_default().to_owned();

    let answer = lock(&memory).arrive(&run, &request);
    let mut under_way = UnderWay { memory: Arc::clone(&memory), run, request, is_done: false };
    if answer.lies {
        lock(&memory).carry_out(&under_way.request);
    }
    if !answer.delay.is_zero() {
        // A client that leaves meanwhile ends this here.
        tokio::time::sleep(answer.delay).await;
    }
    under_way.is_done = answer.status.is_success() && !answer.lies;
    drop(under_way);

    let mut response = answer.status.into_response();
    if let Some(seconds) = answer.retry_after {
        response.headers_mut().insert("retry-after", seconds.into());
    }
    if answer.breaks_off {
        let parts = [Ok("half an "), Err(std::io::Error::other("the connection breaks off"))];
        response = (StatusCode::OK, Body::from_stream(futures_util::stream::iter(parts))).into_response();
        response.headers_mut().insert("content-length", 100.into());
    }
    response
}

/// A request that is not answered yet. It is carried out when it is dropped, if it is to be.
struct UnderWay {
    memory: Arc<Mutex<Memory>>,
    run: String,
    request: Request,
    is_done: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut memory = lock(&self.memory);
        memory.finish(&self.run, &self.request);
        if self.is_done {
            memory.carry_out(&self.request);
        } else {
            memory.refused += 1;
        }
    }
}

fn lock(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    fn arrive(&mut self, run: &str, request: &Request) -> Answer {
        self.requests += 1;
        if self.keeps_log {
            self.log.push(request.clone());
        }
        let slot = (run.to_owned(), request.key.clone());
        if let Some(&(partition, offset, under_way)) = self.arrivals.get(&slot) {
            let name = || String::from_utf8_lossy(&request.key).into_owned();
            if under_way {
                self.overlaps += 1;
                self.breach(format!("`{}` at {} arrived while {offset} was under way", name(), request.offset));
            }
            if partition == request.partition && request.offset < offset {
                self.breach(format!("`{}` at {} arrived after {offset}", name(), request.offset));
            }
        }
        self.arrivals.insert(slot, (request.partition, request.offset, true));
        (self.script)(request)
    }

    fn finish(&mut self, run: &str, request: &Request) {
        if let Some(arrival) = self.arrivals.get_mut(&(run.to_owned(), request.key.clone())) {
            arrival.2 = false;
        }
    }

    fn carry_out(&mut self, request: &Request) {
        self.accepted += 1;
        let value = (request.method != Method::DELETE).then(|| request.body.clone());
        let held = Held { partition: request.partition, offset: request.offset, value };
        let newest = self.by_position.entry(request.key.clone()).or_insert_with(|| held.clone());
        if newest.offset <= held.offset {
            newest.clone_from(&held);
        }
        self.by_arrival.insert(request.key.clone(), held);
    }

    fn breach(&mut self, complaint: String) {
        self.breach_count += 1;
        if self.breaches.len() < KEPT_BREACHES {
            self.breaches.push(complaint);
        }
    }
}
