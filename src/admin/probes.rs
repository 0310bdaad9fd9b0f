//! Is it alive, is it ready, and its numbers.

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::{Deserialize, Serialize};

use super::json::Json;
use super::{App, Problem, routes};
use crate::gateway::status::{LaneState, LaneStatus, PartitionStatus, Status};

/// How much a probe tells. Words may name hosts and hold what a sink answered, which is not for everyone who can connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    Numbers,
    Words,
}

pub fn router(detail: Detail) -> Router<App> {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(move |app, query| readyz(app, query, detail)))
        .route("/metrics", get(metrics))
}

/// Answers as long as the process can answer: a lane that bootstraps for hours is alive.
async fn livez() -> &'static str {
    "alive\n"
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadyQuery {
    /// Only this route's lanes, even when they do not count otherwise.
    route: Option<String>,
}

async fn readyz(
    State(app): State<App>,
    query: Result<Query<ReadyQuery>, QueryRejection>,
    detail: Detail,
) -> Result<Response, Problem> {
    let Query(query) = query.map_err(|_| Problem::BadRequest("`/readyz` takes only `?route=NAME`".to_owned()))?;
    let status = app.status();
    if let Some(route) = &query.route {
        routes::find(&status, route)?;
    }
    let readiness = readiness(&status, query.route.as_deref(), detail);
    let code = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((code, Json(readiness)).into_response())
}

async fn metrics(State(app): State<App>) -> Result<Response, Problem> {
    let text = app.exposition().map_err(|error| {
        tracing::error!(%error, "failed to encode the metrics");
        Problem::Internal
    })?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    pub ready: bool,
    pub lanes: Vec<LaneReadiness>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneReadiness {
    pub route: String,
    pub sink: String,
    pub state: LaneState,
    /// Whether it keeps `ready` false.
    pub blocks: bool,
    /// Offsets of the snapshot that are passed, and offsets in all, over the partitions whose end is known. There is no
    /// forecast: what compaction removed is passed in no time.
    pub passed: i64,
    pub total: i64,
    /// Seconds without progress although there is work.
    pub stalled_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halt: Option<String>,
    pub partitions: Vec<PartitionReadiness>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionReadiness {
    pub topic: String,
    pub partition: i32,
    /// Everything below is finished.
    pub position: Option<i64>,
    /// The end of the snapshot.
    pub target: Option<i64>,
    pub live: bool,
}

/// | lane | blocks |
/// |---|---|
/// | starting, bootstrapping, stopped | yes |
/// | live, whatever its lag | no |
/// | halted | no: it shows, and taking the instance out of service would not help |
/// | of a route with `readiness: false`, unless asked for by name | no |
pub fn readiness(status: &Status, only: Option<&str>, detail: Detail) -> Readiness {
    let lanes: Vec<_> = status
        .routes
        .iter()
        .filter(|route| only.is_none_or(|name| name == route.name))
        .flat_map(|route| {
            let counts = route.readiness || only.is_some();
            route.lanes.iter().map(move |lane| lane_readiness(&route.name, lane, counts, detail))
        })
        .collect();
    Readiness { ready: !lanes.iter().any(|lane| lane.blocks), lanes }
}

fn lane_readiness(route: &str, lane: &LaneStatus, counts: bool, detail: Detail) -> LaneReadiness {
    let behind = matches!(lane.state, LaneState::Starting | LaneState::Bootstrapping | LaneState::Stopped);
    let (passed, total) = lane.snapshot_progress();
    let words = |text: Option<String>| text.filter(|_| detail == Detail::Words);
    LaneReadiness {
        route: route.to_owned(),
        sink: lane.sink.clone(),
        state: lane.state,
        blocks: counts && behind,
        passed,
        total,
        stalled_seconds: lane.stalled_seconds,
        waiting: words(lane.waits_for()),
        halt: words(lane.halt.as_ref().map(ToString::to_string)),
        partitions: lane.partitions.iter().map(partition_readiness).collect(),
    }
}

fn partition_readiness(p: &PartitionStatus) -> PartitionReadiness {
    let PartitionStatus { topic, partition, finished, target, live, .. } = p.clone();
    PartitionReadiness { topic, partition, position: finished, target, live }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::status::samples;

    #[test]
    fn a_lane_blocks_until_it_was_live_once() {
        let blocks = |state| {
            let status = samples::status(vec![samples::lane("a", state, 5, 20)]);
            readiness(&status, None, Detail::Words).lanes[0].blocks
        };
        assert!(blocks(LaneState::Starting));
        assert!(blocks(LaneState::Bootstrapping));
        assert!(blocks(LaneState::Stopped));
        assert!(!blocks(LaneState::Live));
        assert!(!blocks(LaneState::Halted));
    }

    #[test]
    fn one_lane_that_blocks_is_enough() {
        let lanes = vec![samples::lane("a", LaneState::Live, 5, 20), samples::lane("b", LaneState::Starting, 0, 0)];
        let ready = readiness(&samples::status(lanes), None, Detail::Words);
        assert!(!ready.ready);
        assert_eq!(ready.lanes.iter().map(|lane| lane.blocks).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn a_route_that_opted_out_counts_only_when_it_is_asked_for() {
        let mut status = samples::status(vec![samples::lane("a", LaneState::Bootstrapping, 5, 20)]);
        status.routes[0].readiness = false;
        let other = samples::status(vec![samples::lane("b", LaneState::Live, 5, 5)]).routes.remove(0);
        status.routes.push(crate::gateway::status::RouteStatus { name: "other".to_owned(), ..other });
        assert!(readiness(&status, None, Detail::Words).ready);
        assert!(!readiness(&status, Some("profiles"), Detail::Words).ready);
        assert!(readiness(&status, Some("other"), Detail::Words).ready);
        assert_eq!(readiness(&status, Some("other"), Detail::Words).lanes.len(), 1);
    }
}
