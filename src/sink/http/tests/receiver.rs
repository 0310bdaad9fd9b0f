//! The service that the tests' requests go to.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::http::{HeaderMap, Method as Verb, StatusCode, Uri};
use axum::response::IntoResponse;
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;

use crate::sink::testing::{self, eventually};

/// One request as the receiver saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub verb: Verb,
    pub path: String,
    pub headers: HeaderMap,
    pub body: String,
}

#[derive(Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, &'static str)>,
    pub body: &'static str,
}

impl From<u16> for Answer {
    fn from(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: "" }
    }
}

/// A service that answers 200, or as each path's script says, and keeps what it was sent.
#[derive(Clone, Default)]
pub struct Receiver(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    seen: Vec<Seen>,
    scripts: HashMap<String, VecDeque<Answer>>,
    /// Paths whose requests wait for a permit each before they are answered.
    held: HashMap<String, Arc<Semaphore>>,
    under_way: HashMap<String, usize>,
    most_of_one_path: usize,
    most: usize,
}

impl Receiver {
    pub fn start() -> (Self, SocketAddr) {
        let receiver = Self::default();
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        receiver.serve(socket);
        (receiver, address)
    }

    pub fn serve(&self, socket: TcpSocket) {
        let receiver = self.clone();
        let app = axum::Router::new().fallback(move |verb: Verb, uri: Uri, headers: HeaderMap, body: Bytes| {
            let receiver = receiver.clone();
            async move { receiver.answer(verb, uri, headers, body).await }
        });
        let runtime = testing::runtime();
        let inside = runtime.enter();
        let listener = socket.listen(1024).unwrap();
        drop(inside);
        runtime.spawn(async move { axum::serve(listener, app).await.unwrap() });
    }

    async fn answer(&self, verb: Verb, uri: Uri, headers: HeaderMap, body: Bytes) -> impl IntoResponse + use<> {
        let path = uri.path().to_owned();
        let (answer, held) = {
            let mut state = self.0.lock().unwrap();
            let body = String::from_utf8_lossy(&body).into_owned();
            state.seen.push(Seen { verb, path: path.clone(), headers, body });
            *state.under_way.entry(path.clone()).or_default() += 1;
            state.most_of_one_path = state.most_of_one_path.max(state.under_way[&path]);
            state.most = state.most.max(state.under_way.values().sum());
            let answer = state.scripts.get_mut(&path).and_then(VecDeque::pop_front);
            (answer.unwrap_or_else(|| 200.into()), state.held.get(&path).cloned())
        };
        if let Some(held) = held {
            held.acquire().await.unwrap().forget();
        }
        *self.0.lock().unwrap().under_way.get_mut(&path).unwrap() -= 1;
        let mut headers = HeaderMap::new();
        answer.headers.iter().for_each(|(name, value)| drop(headers.insert(*name, value.parse().unwrap())));
        (StatusCode::from_u16(answer.status).unwrap(), headers, answer.body)
    }

    pub fn script<A: Into<Answer>>(&self, path: &str, answers: impl IntoIterator<Item = A>) {
        let answers = answers.into_iter().map(Into::into).collect();
        self.0.lock().unwrap().scripts.insert(path.to_owned(), answers);
    }

    pub fn hold(&self, path: &str) -> Arc<Semaphore> {
        let permits = Arc::new(Semaphore::new(0));
        self.0.lock().unwrap().held.insert(path.to_owned(), Arc::clone(&permits));
        permits
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.0.lock().unwrap().seen.clone()
    }

    /// `PUT /a 1`
    pub fn lines(&self) -> Vec<String> {
        self.seen().iter().map(|seen| format!("{} {} {}", seen.verb, seen.path, seen.body).trim().to_owned()).collect()
    }

    pub fn wait_for(&self, requests: usize) {
        eventually(&format!("request {requests}"), || self.0.lock().unwrap().seen.len() >= requests);
    }

    /// The most requests at once of one path, and in all.
    pub fn most(&self) -> (usize, usize) {
        let state = self.0.lock().unwrap();
        (state.most_of_one_path, state.most)
    }
}
