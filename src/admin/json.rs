//! JSON answers.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::Problem;

/// A body of one line with its end, so that a terminal's prompt does not stand behind it.
#[derive(Debug)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(mut body) => {
                body.push(b'\n');
                ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
            }
            Err(error) => {
                tracing::error!(%error, "failed to encode an answer");
                Problem::Internal.into_response()
            }
        }
    }
}
