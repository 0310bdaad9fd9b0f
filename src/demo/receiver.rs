//! The HTTP service of the demo: it keeps the latest value per key, as a CRM or a search index would.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::model;

/// Keys that the overview shows.
const SHOWN: usize = 5;

/// It serves until its runtime ends. Clones share what is kept.
#[derive(Clone, Debug)]
pub struct Receiver {
    address: SocketAddr,
    kept: Arc<Mutex<model::State>>,
}

impl Receiver {
    /// Starts to serve on a free port of this machine.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen for the demo's HTTP receiver")?;
        let receiver = Self { address: listener.local_addr()?, kept: Arc::default() };
        let router = Router::new()
            .route("/profiles", get(overview))
            .route("/profiles/{key}", get(show).put(put).delete(delete))
            .with_state(receiver.clone());
        tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "the demo's HTTP receiver ended");
            }
        });
        Ok(receiver)
    }

    /// The address of all profiles; a key follows behind a slash.
    pub fn url(&self) -> String {
        format!("http://{}/profiles", self.address)
    }

    /// What is kept now.
    pub fn state(&self) -> model::State {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, model::State> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn overview(State(receiver): State<Receiver>) -> Json<Value> {
    let kept = receiver.lock();
    let first: Vec<_> = kept.keys().take(SHOWN).map(|key| format!("{}/{key}", receiver.url())).collect();
    Json(json!({ "profiles": kept.len(), "first": first }))
}

async fn show(State(receiver): State<Receiver>, Path(key): Path<String>) -> impl IntoResponse {
    match receiver.lock().get(&key) {
        Some(value) => Ok(([(header::CONTENT_TYPE, "application/json")], value.clone())),
        None => Err(StatusCode::NOT_FOUND),
    }
}

async fn put(State(receiver): State<Receiver>, Path(key): Path<String>, value: Bytes) -> StatusCode {
    match receiver.lock().insert(key, value.to_vec()) {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::CREATED,
    }
}

/// What is not there is deleted as well as what was.
async fn delete(State(receiver): State<Receiver>, Path(key): Path<String>) -> StatusCode {
    receiver.lock().remove(&key);
    StatusCode::NO_CONTENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_keeps_the_latest_value_byte_for_byte() {
        let receiver = Receiver::start().await.unwrap();
        let client = reqwest::Client::new();
        let url = format!("{}/user-000001", receiver.url());
        let put = async |value: &'static str| client.put(&url).body(value).send().await.unwrap().status().as_u16();
        assert_eq!(put("{\"a\": 1}").await, 201);
        assert_eq!(put("{\"a\":  2.50}").await, 204);
        assert_eq!(receiver.state()["user-000001"], b"{\"a\":  2.50}");
        assert_eq!(client.get(&url).send().await.unwrap().text().await.unwrap(), "{\"a\":  2.50}");
        for _ in 0..2 {
            assert_eq!(client.delete(&url).send().await.unwrap().status().as_u16(), 204);
        }
        assert!(receiver.state().is_empty());
        assert_eq!(client.get(&url).send().await.unwrap().status().as_u16(), 404);
    }
}
