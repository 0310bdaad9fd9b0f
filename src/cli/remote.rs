//! A running gateway, as a command asks it.

use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::{Method, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// For the whole request: an answer is made from memory, or once a lane has said what it does.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A status of thousands of partitions is a fraction of this.
const MAX_ANSWER_BYTES: usize = 64 << 20;

#[derive(Clone, Debug, clap::Args)]
pub struct Remote {
    /// The gateway's admin address
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", value_parser = address)]
    url: Url,
    /// The environment variable that holds the token, if the gateway needs one
    #[arg(long, value_name = "NAME", default_value = "TIDEGATE_TOKEN")]
    token_env: String,
}

/// An address without a scheme is the common slip: `localhost:8080` reads as one of the scheme `localhost`.
fn address(text: &str) -> Result<Url, String> {
    match text.parse::<Url>() {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(url),
        _ => Err("write it as `http://127.0.0.1:8080`".to_owned()),
    }
}

impl Remote {
    /// # Errors
    /// When nobody answers there, something else than a gateway does, or it refuses.
    pub fn get<T: DeserializeOwned>(&self, path: &[&str]) -> anyhow::Result<T> {
        self.ask(Method::GET, path, &())
    }

    /// With `query` in the address.
    ///
    /// # Errors
    /// As [`Remote::get`].
    pub fn query<T: DeserializeOwned>(&self, path: &[&str], query: &impl Serialize) -> anyhow::Result<T> {
        self.ask(Method::GET, path, query)
    }

    /// # Errors
    /// As [`Remote::get`].
    pub fn post<T: DeserializeOwned>(&self, path: &[&str]) -> anyhow::Result<T> {
        self.ask(Method::POST, path, &())
    }

    fn ask<T: DeserializeOwned>(&self, method: Method, path: &[&str], query: &impl Serialize) -> anyhow::Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let token = std::env::var(&self.token_env).ok().filter(|token| !token.is_empty());
        runtime.block_on(self.send(method, path, query, token.as_deref()))
    }

    /// `path` is one segment each, of the admin API.
    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        query: &impl Serialize,
        token: Option<&str>,
    ) -> anyhow::Result<T> {
        let Self { url: base, token_env } = self;
        let mut url = base.join("/api/v1")?;
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(path);
        }
        let query = serde_json::to_value(query)?;
        for (name, value) in query.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            url.query_pairs_mut().append_pair(name, &text);
        }
        // A proxy of the environment knows nothing of this machine's loopback, and has no business with the token.
        let redirect = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().timeout(TIMEOUT).no_proxy().redirect(redirect).build()?;
        let mut request = client.request(method, url);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let mut answer = request.send().await.with_context(|| {
            format!("no gateway answers at `{base}`; start one with `tidegate run`, or name its `admin.listen` address with `--url`")
        })?;
        let code = answer.status();
        if code == StatusCode::UNAUTHORIZED {
            bail!(
                "the gateway at `{base}` wants a token of its `admin.tokens` in the environment variable `{token_env}`"
            );
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.with_context(|| format!("the answer of `{base}` broke off"))? {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                bail!("the answer of `{base}` is larger than {} MiB", MAX_ANSWER_BYTES >> 20);
            }
            body.extend_from_slice(&chunk);
        }
        if code.is_success() {
            return serde_json::from_slice(&body)
                .with_context(|| format!("what answers at `{base}` is no gateway, or one of another version"));
        }
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        match problem["detail"].as_str() {
            Some(detail) => bail!("the gateway at `{base}` answers {}: {detail}", code.as_u16()),
            None => bail!(
                "what answers at `{base}` with {} is no gateway; name the `admin.listen` address with `--url`",
                code.as_u16()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{App, Lanes, Listeners, serve};
    use crate::config::{Admin, Role, Token};
    use crate::gateway::status::{LaneState, Status, samples};
    use crate::gateway::{Act, CommandError, Page, Query, Refused};
    use crate::metrics::Metrics;
    use crate::secret::Secret;

    #[test]
    fn an_address_has_a_scheme() {
        assert!(address("http://127.0.0.1:8080").is_ok());
        assert!(address("https://gate.example.com").is_ok());
        for slip in ["localhost:8080", "127.0.0.1:8080", "ftp://x", ""] {
            assert_eq!(address(slip), Err("write it as `http://127.0.0.1:8080`".to_owned()), "{slip}");
        }
    }

    /// Lanes that do nothing.
    struct Unwilling;

    impl Lanes for Unwilling {
        fn command(&self, route: &str, sink: &str, _: Act) -> Result<(), CommandError> {
            let lane = format!("{route}.{sink}");
            Err(CommandError::Refused { lane, reason: Refused("the lane is not halted".to_owned()) })
        }

        fn dead_letters(&self, _: &str, _: &str, query: &Query) -> Result<Page, CommandError> {
            Ok(Page { letters: vec![serde_json::json!({ "key": query.key, "limit": query.limit })], more: false })
        }
    }

    fn sample() -> Status {
        samples::status(vec![samples::lane("a", LaneState::Live, 20, 20)])
    }

    fn remote(url: Url) -> Remote {
        Remote { url, token_env: "MY_TOKEN".to_owned() }
    }

    async fn serving(tokens: Vec<Token>) -> (Remote, tokio::sync::oneshot::Sender<()>) {
        let config = Admin { listen: "127.0.0.1:0".parse().unwrap(), probes: None, tokens, hosts: vec![] };
        let listeners = Listeners::bind(&config).await.unwrap();
        let url = format!("http://{}", listeners.admin_address().unwrap()).parse().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let app = App::new(sample, Unwilling, Metrics::new());
        tokio::spawn(async move { serve(listeners, app, &config, async { drop(stopped.await) }).await });
        (remote(url), stop)
    }

    async fn status(remote: &Remote, token: Option<&str>) -> anyhow::Result<serde_json::Value> {
        remote.send(Method::GET, &["routes"], &(), token).await
    }

    #[tokio::test]
    async fn it_gets_what_the_server_tells() {
        let (remote, _stop) = serving(vec![]).await;
        assert_eq!(status(&remote, None).await.unwrap(), serde_json::to_value(sample()).unwrap());
    }

    #[tokio::test]
    async fn a_server_with_tokens_wants_one() {
        let token = Token { name: "ops".to_owned(), role: Role::Viewer, token: Secret::new("view-secret") };
        let (remote, _stop) = serving(vec![token]).await;
        assert!(status(&remote, Some("view-secret")).await.is_ok());
        let base = &remote.url;
        let wants = format!(
            "the gateway at `{base}` wants a token of its `admin.tokens` in the environment variable `MY_TOKEN`"
        );
        assert_eq!(status(&remote, None).await.unwrap_err().to_string(), wants);
        let path = ["routes", "r", "lanes", "s", "skip"];
        let refused =
            remote.send::<Status>(Method::POST, &path, &(), Some("view-secret")).await.unwrap_err().to_string();
        let role =
            format!("the gateway at `{base}` answers 403: the token's role is `viewer`, and this needs `operator`");
        assert_eq!(refused, role);
    }

    #[tokio::test]
    async fn a_refusal_is_told_in_words_and_names_are_encoded() {
        let (remote, _stop) = serving(vec![]).await;
        let path = ["routes", "a/b", "lanes", "s s", "resume"];
        let error = remote.send::<Status>(Method::POST, &path, &(), None).await.unwrap_err().to_string();
        let base = &remote.url;
        assert_eq!(error, format!("the gateway at `{base}` answers 409: a/b.s s: the lane is not halted"));
    }

    #[tokio::test]
    async fn a_query_is_encoded_and_what_is_not_asked_for_is_left_out() {
        let (remote, _stop) = serving(vec![]).await;
        let query = Query { key: Some("a&b=ü".to_owned()), limit: Some(7), ..Query::default() };
        let page: Page = remote.send(Method::GET, &["routes", "r", "lanes", "s", "dead"], &query, None).await.unwrap();
        assert_eq!(page.letters, [serde_json::json!({ "key": "a&b=ü", "limit": 7 })]);
    }

    #[tokio::test]
    async fn nobody_there_says_which_address_and_how_to_give_another() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        drop(listener);
        let error = status(&remote(url.clone()), None).await.unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "no gateway answers at `{url}`; start one with `tidegate run`, \
                 or name its `admin.listen` address with `--url`"
            )
        );
    }
}
