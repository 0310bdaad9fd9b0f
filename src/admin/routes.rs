//! What runs, and how far it is.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};

use super::json::Json;
use super::{App, Problem};
use crate::gateway::status::{RouteStatus, Status};

pub async fn list(State(app): State<App>) -> Json<Status> {
    Json(app.status())
}

pub async fn show(
    State(app): State<App>,
    route: Result<Path<String>, PathRejection>,
) -> Result<Json<RouteStatus>, Problem> {
    let Path(route) = route.map_err(|_| Problem::BadRequest("a route's name is percent-encoded UTF-8".to_owned()))?;
    find(&app.status(), &route).cloned().map(Json)
}

pub fn find<'a>(status: &'a Status, name: &str) -> Result<&'a RouteStatus, Problem> {
    status.routes.iter().find(|route| route.name == name).ok_or_else(|| {
        let names: Vec<_> = status.routes.iter().map(|route| format!("`{}`", route.name)).collect();
        Problem::UnknownRoute { route: name.to_owned(), known: names.join(", ") }
    })
}
