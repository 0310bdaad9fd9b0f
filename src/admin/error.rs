//! What went wrong, as the caller is told: problem details after RFC 9457, with a code that stays the same.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::json::Json;
use crate::gateway::CommandError;

/// An answer that is not the one that was asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error(
        "there is nothing at this address; `/livez`, `/readyz`, `/metrics`, `/api/v1/routes` and \
         `/api/v1/routes/ROUTE/lanes/SINK/` with `dead`, `resume`, `skip` or `sweep` are served"
    )]
    NotFound,
    #[error("what is only shown takes GET and HEAD; a lane's command takes POST")]
    MethodNotAllowed,
    #[error("there is no route `{route}`; the routes are {known}")]
    UnknownRoute { route: String, known: String },
    #[error("route `{route}` has no sink `{sink}`; its sinks are {known}")]
    UnknownSink { route: String, sink: String, known: String },
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    BadRequest(String),
    #[error(
        "`{host}` is not an address of this server; use the address that it listens on, `localhost`, or a name listed in `admin.hosts`"
    )]
    HostNotAllowed { host: String },
    #[error("pages of `{origin}` may not call this server; a name listed in `admin.hosts` may")]
    OriginNotAllowed { origin: String },
    #[error("a token is needed: send `Authorization: Bearer TOKEN` with a token from `admin.tokens`")]
    TokenMissing,
    #[error("the token is not one of `admin.tokens`")]
    TokenUnknown,
    #[error("the token's role is `{has}`, and this needs `{needed}`")]
    RoleTooLow { has: &'static str, needed: &'static str },
    #[error("a request body may have {limit} bytes")]
    BodyTooLarge { limit: u64 },
    #[error("the request took longer than {limit_seconds} s")]
    Timeout { limit_seconds: u64 },
    #[error("the server failed to answer; its log says more")]
    Internal,
}

/// The body of an RFC 9457 answer.
#[derive(Debug, Serialize)]
struct Details {
    r#type: String,
    title: &'static str,
    status: u16,
    detail: String,
    /// What a program matches on.
    code: &'static str,
}

impl Problem {
    /// Stable, for programs: a code is never renamed nor given another meaning.
    pub fn code(&self) -> &'static str {
        self.parts().1
    }

    fn parts(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found", "nothing here"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "method not served"),
            Self::UnknownRoute { .. } => (StatusCode::NOT_FOUND, "unknown_route", "unknown route"),
            Self::UnknownSink { .. } => (StatusCode::NOT_FOUND, "unknown_sink", "unknown sink"),
            Self::Refused(_) => (StatusCode::CONFLICT, "refused", "the lane refuses"),
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad_request", "request not understood"),
            Self::HostNotAllowed { .. } => (StatusCode::MISDIRECTED_REQUEST, "host_not_allowed", "host not allowed"),
            Self::OriginNotAllowed { .. } => (StatusCode::FORBIDDEN, "origin_not_allowed", "origin not allowed"),
            Self::TokenMissing => (StatusCode::UNAUTHORIZED, "token_missing", "token missing"),
            Self::TokenUnknown => (StatusCode::UNAUTHORIZED, "token_unknown", "token unknown"),
            Self::RoleTooLow { .. } => (StatusCode::FORBIDDEN, "role_too_low", "role too low"),
            Self::BodyTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "body too large"),
            Self::Timeout { .. } => (StatusCode::SERVICE_UNAVAILABLE, "timeout", "request took too long"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal", "internal error"),
        }
    }
}

impl From<CommandError> for Problem {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::UnknownRoute { route, known } => Self::UnknownRoute { route, known },
            CommandError::UnknownSink { route, sink, known } => Self::UnknownSink { route, sink, known },
            CommandError::Refused { .. } => Self::Refused(error.to_string()),
            CommandError::Unreadable { .. } => {
                tracing::error!(%error, "failed to answer");
                Self::Internal
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, code, title) = self.parts();
        let r#type = format!("urn:tidegate:problem:{code}");
        let details = Details { r#type, title, status: status.as_u16(), detail: self.to_string(), code };
        let mut response = (status, Json(details)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tidegate\""));
        }
        response
    }
}

pub async fn not_found() -> Problem {
    Problem::NotFound
}

pub async fn method_not_allowed() -> Problem {
    Problem::MethodNotAllowed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_lists_every_code_with_its_status() {
        let text = String::new;
        let page = include_str!("../../docs/reference/admin.md");
        let mut described = 0;
        for problem in [
            Problem::NotFound,
            Problem::UnknownRoute { route: text(), known: text() },
            Problem::UnknownSink { route: text(), sink: text(), known: text() },
            Problem::Refused(text()),
            Problem::MethodNotAllowed,
            Problem::BadRequest(text()),
            Problem::HostNotAllowed { host: text() },
            Problem::OriginNotAllowed { origin: text() },
            Problem::TokenMissing,
            Problem::TokenUnknown,
            Problem::RoleTooLow { has: "viewer", needed: "admin" },
            Problem::BodyTooLarge { limit: 1 },
            Problem::Timeout { limit_seconds: 1 },
            Problem::Internal,
        ] {
            let (status, code, _) = problem.parts();
            let row = format!("| `{code}` | {} |", status.as_u16());
            assert!(page.contains(&row), "`{row}` is not in docs/reference/admin.md");
            described += 1;
        }
        let rows = |start: &str| page.matches(start).count();
        assert_eq!(rows("| `") - rows("| `GET") - rows("| `POST"), described, "no row is left over");
    }
}
