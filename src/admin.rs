//! The admin server: health, metrics and the state of the routes. It lives on the tokio runtime and never touches a record.
//!
//! This is the only room that knows HTTP status codes. Every answer passes the same doors, outermost first: security
//! headers, the limits on a request, the `Host` and `Origin` check, the token. The probes' listener has only the first two
//! and serves nothing but health and metrics.

mod auth;
mod door;
mod error;
mod json;
mod lanes;
mod probes;
mod routes;
mod serve;
mod stall;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};

use crate::config::{self, Role};
use crate::gateway::status::Status;
use crate::gateway::{Act, CommandError, Handle, Page, Query};
use crate::metrics::Metrics;

pub use error::Problem;
pub use lanes::Accepted;
pub use serve::{Listeners, cannot_listen, serve};

/// What the server answers from.
#[derive(Clone)]
pub struct App {
    status: Arc<dyn Fn() -> Status + Send + Sync>,
    lanes: Arc<dyn Lanes>,
    metrics: Metrics,
    stalls: Arc<Mutex<stall::Stalls>>,
    /// One scrape at a time: the gauges are refreshed before they are written out.
    scrape: Arc<Mutex<()>>,
}

/// What may be asked of the lane of a route and a sink, and may take seconds.
pub trait Lanes: Send + Sync {
    /// # Errors
    /// When there is no such lane, or it refuses.
    fn command(&self, route: &str, sink: &str, act: Act) -> Result<(), CommandError>;

    /// # Errors
    /// When there is no such lane, or they cannot be read.
    fn dead_letters(&self, route: &str, sink: &str, query: &Query) -> Result<Page, CommandError>;
}

impl Lanes for Handle {
    fn command(&self, route: &str, sink: &str, act: Act) -> Result<(), CommandError> {
        Self::command(self, route, sink, act)
    }

    fn dead_letters(&self, route: &str, sink: &str, query: &Query) -> Result<Page, CommandError> {
        Self::dead_letters(self, route, sink, query)
    }
}

impl App {
    /// A running gateway's.
    pub fn of(gateway: &Handle) -> Self {
        let status = gateway.clone();
        Self::new(move || status.status(), gateway.clone(), gateway.metrics().clone())
    }

    /// `status` is called for each request that shows state. It names every configured lane from the first moment, before
    /// any of them is connected, and returns within milliseconds.
    pub fn new(
        status: impl Fn() -> Status + Send + Sync + 'static,
        lanes: impl Lanes + 'static,
        metrics: Metrics,
    ) -> Self {
        let (stalls, scrape) = Default::default();
        Self { status: Arc::new(status), lanes: Arc::new(lanes), metrics, stalls, scrape }
    }

    /// The gateway's status, with what only a look at successive ones can tell.
    fn status(&self) -> Status {
        let mut status = (self.status)();
        self.stalls.lock().unwrap_or_else(PoisonError::into_inner).observe(&mut status, Instant::now());
        status
    }

    /// The exposition, with its gauges as of now.
    fn exposition(&self) -> Result<String, std::fmt::Error> {
        let status = self.status();
        let _one_at_a_time = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        self.metrics.refresh(&status);
        self.metrics.encode()
    }
}

/// Everything the admin listener serves.
pub fn router(app: App, config: &config::Admin) -> Router {
    let door = Arc::new(door::Door::new(config));
    // What changes something or shows records stands apart, behind the role that it needs.
    let operator = Router::new()
        .route("/api/v1/routes/{route}/lanes/{sink}/dead", get(lanes::dead_letters))
        .route("/api/v1/routes/{route}/lanes/{sink}/{command}", post(lanes::command))
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(from_fn_with_state((Arc::clone(&door), Role::Operator), door::check_token));
    let viewer = Router::new()
        .merge(probes::router(probes::Detail::Words))
        .route("/api/v1/routes", get(routes::list))
        .route("/api/v1/routes/{route}", get(routes::show))
        .fallback(error::not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(from_fn_with_state((Arc::clone(&door), Role::Viewer), door::check_token));
    finish(viewer.merge(operator).layer(from_fn_with_state(door, door::check_origin)), app)
}

/// What the probes' listener serves, to anyone: `/livez`, `/readyz` and `/metrics`.
pub fn probes_router(app: App) -> Router {
    let router = probes::router(probes::Detail::Numbers)
        .fallback(error::not_found)
        .method_not_allowed_fallback(error::method_not_allowed);
    finish(router, app)
}

fn finish(router: Router<App>, app: App) -> Router {
    router
        .layer(from_fn_with_state(door::Limits::default(), door::limit))
        .layer(from_fn(door::security_headers))
        .with_state(app)
}

#[cfg(test)]
mod tests;
