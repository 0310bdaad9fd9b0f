//! `tidegate status`: how far a running gateway is.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::{StatusCode, Url};

use super::table::{self, Align, grouped};
use super::{Output, out};
use crate::gateway::status::{LaneState, LaneStatus, Snapshot, Status};

/// For the whole request: the answer is made from memory.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A status of thousands of partitions is a fraction of this.
const MAX_ANSWER_BYTES: usize = 64 << 20;

#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// The gateway's admin address
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", value_parser = address)]
    url: Url,
    /// The environment variable that holds the token, if the gateway needs one
    #[arg(long, value_name = "NAME", default_value = "TIDEGATE_TOKEN")]
    token_env: String,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// An address without a scheme is the common slip: `localhost:8080` reads as one of the scheme `localhost`.
fn address(text: &str) -> Result<Url, String> {
    match text.parse::<Url>() {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(url),
        _ => Err("write it as `http://127.0.0.1:8080`".to_owned()),
    }
}

/// Prints the status of the gateway at the given address.
///
/// # Errors
/// When nobody answers there, or something else than a gateway does.
pub fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let token = std::env::var(&args.token_env).ok().filter(|token| !token.is_empty());
    let status = runtime.block_on(fetch(&args.url, token.as_deref(), &args.token_env))?;
    match args.output {
        Output::Text => out::print(render(&status))?,
        Output::Json => out::print(format_args!("{}\n", serde_json::to_string_pretty(&status)?))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn fetch(base: &Url, token: Option<&str>, token_env: &str) -> anyhow::Result<Status> {
    let url = base.join("/api/v1/routes")?;
    // A proxy of the environment knows nothing of this machine's loopback, and has no business with the token.
    let client =
        reqwest::Client::builder().timeout(TIMEOUT).no_proxy().redirect(reqwest::redirect::Policy::none()).build()?;
    let mut request = client.get(url);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let mut answer = request.send().await.with_context(|| {
        format!("no gateway answers at `{base}`; start one with `tidegate run`, or name its `admin.listen` address with `--url`")
    })?;
    let code = answer.status();
    if code == StatusCode::UNAUTHORIZED {
        bail!("the gateway at `{base}` wants a token of its `admin.tokens` in the environment variable `{token_env}`");
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

/// The table, and below it everything that wants to be read.
pub fn render(status: &Status) -> String {
    let header = [
        ("ROUTE", Align::Left),
        ("LANE", Align::Left),
        ("STATE", Align::Left),
        ("SNAPSHOT", Align::Right),
        ("LAG", Align::Right),
        ("IN", Align::Right),
        ("OUT", Align::Right),
        ("DROPPED", Align::Right),
        ("REJECTED", Align::Right),
        ("DEAD", Align::Right),
    ];
    let lanes = || status.routes.iter().flat_map(|route| route.lanes.iter().map(move |lane| (&*route.name, lane)));
    let rows: Vec<_> = lanes().map(|(route, lane)| row(route, lane)).collect();
    let memory = &status.memory;
    let mut text = format!(
        "tidegate {} · up {} · memory {} of {}\n\n",
        status.version,
        table::duration(status.uptime_seconds),
        table::mebibytes(memory.resident),
        table::mebibytes(memory.budget),
    );
    text.push_str(&table::render(&header, &rows));
    let notes: String = lanes().flat_map(|(route, lane)| notes(route, lane)).collect();
    if !notes.is_empty() {
        text.push('\n');
        text.push_str(&notes);
    }
    text
}

fn row(route: &str, lane: &LaneStatus) -> Vec<String> {
    let counts = &lane.counts;
    vec![
        route.to_owned(),
        format!("{} ({})", lane.sink, lane.kind),
        state(lane.state).to_owned(),
        snapshot(lane),
        lane.lag().map_or_else(|| "?".to_owned(), |lag| grouped(lag.max(0) as u64)),
        grouped(counts.records_in),
        grouped(counts.records_out),
        grouped(counts.dropped),
        grouped(counts.rejected),
        grouped(counts.dead_letters),
    ]
}

/// What needs words, most urgent first.
fn notes(route: &str, lane: &LaneStatus) -> Vec<String> {
    let line = |kind: &str, text: &str| format!("{route}/{} {kind}: {}\n", lane.sink, table::fit(text, 1000));
    let mut notes = Vec::new();
    if let Some(halt) = &lane.halt {
        notes.push(line("halted", &halt.to_string()));
    }
    if let Some(waiting) = lane.waits_for() {
        notes.push(line("waits", &waiting));
    }
    if lane.stalled_seconds >= STALLED_SECONDS {
        notes.push(line("stalls", &format!("nothing was finished for {}", table::duration(lane.stalled_seconds))));
    }
    notes.extend(lane.warnings.iter().map(|warning| line("warning", warning)));
    if let Some(unverified) = lane.unverified() {
        notes.push(line("unverified", &unverified));
    }
    if lane.counts.dead_letters > 0 {
        notes.push(line("dead letters", &lane.dead_letter_path));
    }
    notes
}

/// A large transaction or a slow request takes seconds, and is no stall.
const STALLED_SECONDS: u64 = 30;

pub fn state(state: LaneState) -> &'static str {
    match state {
        LaneState::Starting => "starting",
        LaneState::Bootstrapping => "bootstrapping",
        LaneState::Live => "live",
        LaneState::Halted => "halted",
        LaneState::Stopped => "stopped",
    }
}

fn snapshot(lane: &LaneStatus) -> String {
    match lane.snapshot() {
        Snapshot::Delivered => "delivered".to_owned(),
        Snapshot::Unknown => "?".to_owned(),
        Snapshot::Percent(percent) => format!("{percent} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{App, Listeners, serve};
    use crate::config::{Admin, Role, Token};
    use crate::gateway::status::{Counts, samples};
    use crate::metrics::Metrics;
    use crate::secret::Secret;

    fn sample() -> Status {
        let mut busy = samples::lane("read_model", LaneState::Bootstrapping, 7, 1_234_567);
        busy.counts = Counts {
            records_in: 12_345,
            records_out: 12_000,
            dropped: 300,
            rejected: 45,
            dead_letters: 45,
            retries: 2,
        };
        busy.warnings = vec!["`user-profiles` is not compacted".to_owned()];
        let mut halted = samples::lane("crm", LaneState::Halted, 19, 20);
        halted.kind = "http".to_owned();
        halted.halt = Some(samples::halt());
        let mut waiting = samples::lane("audit", LaneState::Starting, 0, 0);
        waiting.partitions.clear();
        waiting.waiting = Some("no broker answers at localhost:9092".to_owned());
        let mut stalled = samples::lane("copy", LaneState::Live, 20, 30);
        stalled.stalled_seconds = 300;
        samples::status(vec![busy, halted, waiting, stalled])
    }

    #[test]
    fn the_table_with_what_needs_words_below() {
        let expected = "\
tidegate 1.2.3 · up 75 s · memory 84 MiB of 256 MiB

ROUTE     LANE                 STATE           SNAPSHOT        LAG      IN     OUT  DROPPED  REJECTED  DEAD
profiles  read_model (sqlite)  bootstrapping       35 %  1,234,560  12,345  12,000      300        45    45
profiles  crm (http)           halted              95 %          1       0       0        0         0     0
profiles  audit (sqlite)       starting               ?          ?       0       0        0         0     0
profiles  copy (sqlite)        live           delivered         10       0       0        0         0     0

profiles/read_model warning: `user-profiles` is not compacted
profiles/read_model dead letters: dead/profiles.read_model.ndjson
profiles/crm halted: user-profiles[0] at offset 5, stage sink: the disk is full
profiles/audit waits: no broker answers at localhost:9092
profiles/copy stalls: nothing was finished for 5 min
";
        assert_eq!(render(&sample()), expected);
    }

    #[test]
    fn an_address_has_a_scheme() {
        assert!(address("http://127.0.0.1:8080").is_ok());
        assert!(address("https://gate.example.com").is_ok());
        for slip in ["localhost:8080", "127.0.0.1:8080", "ftp://x", ""] {
            assert_eq!(address(slip), Err("write it as `http://127.0.0.1:8080`".to_owned()), "{slip}");
        }
    }

    async fn serving(tokens: Vec<Token>) -> (Url, tokio::sync::oneshot::Sender<()>) {
        let config = Admin { listen: "127.0.0.1:0".parse().unwrap(), probes: None, tokens, hosts: vec![] };
        let listeners = Listeners::bind(&config).await.unwrap();
        let url = format!("http://{}", listeners.admin_address().unwrap()).parse().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            serve(listeners, App::new(sample, Metrics::new()), &config, async { drop(stopped.await) }).await;
        });
        (url, stop)
    }

    #[tokio::test]
    async fn it_shows_what_the_server_tells() {
        let (url, _stop) = serving(vec![]).await;
        let status = fetch(&url, None, "X").await.unwrap();
        let mut expected = sample();
        // Which the server finds out by looking twice.
        expected.routes[0].lanes[3].stalled_seconds = 0;
        assert_eq!(serde_json::to_value(status).unwrap(), serde_json::to_value(expected).unwrap());
    }

    #[tokio::test]
    async fn a_server_with_tokens_wants_one() {
        let token = Token { name: "ops".to_owned(), role: Role::Viewer, token: Secret::new("view-secret") };
        let (url, _stop) = serving(vec![token]).await;
        assert!(fetch(&url, Some("view-secret"), "X").await.is_ok());
        let base = url.as_str();
        let error = fetch(&url, None, "MY_TOKEN").await.unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "the gateway at `{base}` wants a token of its `admin.tokens` in the environment variable `MY_TOKEN`"
            )
        );
    }

    #[tokio::test]
    async fn nobody_there_says_which_address_and_how_to_give_another() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        drop(listener);
        let error = fetch(&url, None, "X").await.unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "no gateway answers at `{url}`; start one with `tidegate run`, \
                 or name its `admin.listen` address with `--url`"
            )
        );
    }
}
