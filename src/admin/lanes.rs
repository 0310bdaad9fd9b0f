//! What an operator has a lane do, and what is shown of records to operators only.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::json::Json;
use super::{App, Problem};
use crate::gateway::{self, Act};

/// The lane has begun to do it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    pub route: String,
    pub sink: String,
    /// `resume`, `skip` or `sweep`.
    pub command: String,
}

pub async fn command(
    State(app): State<App>,
    path: Result<Path<(String, String, String)>, PathRejection>,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    let Path((route, sink, command)) =
        path.map_err(|_| Problem::BadRequest("names are percent-encoded UTF-8".to_owned()))?;
    let act = match &*command {
        "resume" => Act::Resume,
        "skip" => Act::Skip,
        "sweep" => Act::Sweep,
        _ => return Err(Problem::NotFound),
    };
    let ask = {
        let (route, sink) = (route.clone(), sink.clone());
        move || app.lanes.command(&route, &sink, act)
    };
    tokio::task::spawn_blocking(ask).await.map_err(|_| Problem::Internal)??;
    Ok((StatusCode::ACCEPTED, Json(Accepted { route, sink, command })))
}

pub async fn dead_letters(
    State(app): State<App>,
    path: Result<Path<(String, String)>, PathRejection>,
    query: Result<Query<gateway::Query>, QueryRejection>,
) -> Result<Json<gateway::Page>, Problem> {
    let Path((route, sink)) = path.map_err(|_| Problem::BadRequest("names are percent-encoded UTF-8".to_owned()))?;
    let Query(query) = query.map_err(|error| {
        let takes = "`key`, `cause`, `partition`, `offset` and `limit` are taken";
        Problem::BadRequest(format!("{takes}: {}", error.body_text()))
    })?;
    let read = move || app.lanes.dead_letters(&route, &sink, &query);
    Ok(Json(tokio::task::spawn_blocking(read).await.map_err(|_| Problem::Internal)??))
}
