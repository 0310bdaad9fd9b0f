//! `tidegate run`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use super::{USAGE, check};
use crate::admin::{self, App};
use crate::config::Config;
use crate::gateway::{Gateway, Handle};

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// The configuration.
    #[arg(short, long, default_value = "tidegate.yaml")]
    config: PathBuf,
    /// Stop when every lane has delivered its snapshot; exit 1 when one has halted.
    #[arg(long)]
    once: bool,
}

/// How often `--once` looks whether all is delivered.
const SETTLED_INTERVAL: Duration = Duration::from_millis(100);

/// The threads that wait for HTTP, in and out. Records are never processed on them.
const RUNTIME_THREADS: usize = 2;

pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let config = match check::load(&args.config) {
        Ok(config) => config,
        Err(errors) => {
            eprint!("{errors}");
            return Ok(ExitCode::from(USAGE));
        }
    };
    crate::log::init(&config.log)?;
    runtime()?.block_on(serve(&config, args.once))
}

pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .thread_name("http")
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

async fn serve(config: &Config, once: bool) -> anyhow::Result<ExitCode> {
    // Before the lanes start, so that no signal is lost, and a taken port is an error at once.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let listeners = Listeners::bind(config).await?;
    let gateway = Gateway::start(config, &tokio::runtime::Handle::current())?;
    let server = listeners.serve(config, gateway.handle().clone());
    tokio::select! {
        _ = terminate.recv() => tracing::info!("stopping: SIGTERM"),
        _ = interrupt.recv() => tracing::info!("stopping: SIGINT"),
        () = settled(gateway.handle(), once) => tracing::info!("stopping: every lane has delivered its snapshot"),
    }
    let handle = gateway.handle().clone();
    let late = tokio::task::spawn_blocking(move || gateway.stop()).await?;
    server.abort();
    for lane in &late {
        tracing::error!(lane, "lane did not end within `shutdown_grace`; its unfinished work is done again at the next start");
    }
    let halted = if once { handle.halted() } else { Vec::new() };
    for (lane, reason) in &halted {
        tracing::error!(lane, reason, "lane halted");
    }
    tracing::info!("stopped");
    Ok(if late.is_empty() && halted.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits for the snapshots; for ever unless `once`.
async fn settled(handle: &Handle, once: bool) {
    if !once {
        return std::future::pending().await;
    }
    while !handle.is_settled() {
        tokio::time::sleep(SETTLED_INTERVAL).await;
    }
}

/// The sockets of the admin server, bound before anything runs.
pub struct Listeners {
    admin: TcpListener,
    probes: Option<TcpListener>,
}

impl Listeners {
    pub async fn bind(config: &Config) -> anyhow::Result<Self> {
        let admin = bind(config.admin.listen, "admin.listen").await?;
        let probes = match config.admin.probes {
            Some(address) => Some(bind(address, "admin.probes").await?),
            None => None,
        };
        Ok(Self { admin, probes })
    }

    /// Serves until the task is aborted. Tells where: in the log, and in `<data_dir>/admin.addr` for tools.
    pub fn serve(self, config: &Config, handle: Handle) -> JoinHandle<()> {
        if let Ok(address) = self.admin.local_addr() {
            tracing::info!(%address, "admin server listens");
            let file = config.data_dir.join("admin.addr");
            if let Err(error) = std::fs::write(&file, address.to_string()) {
                tracing::warn!(%error, file = %file.display(), "failed to write the admin server's address");
            }
        }
        let metrics = handle.metrics().clone();
        let app = App::new(Arc::new(move || handle.status()), metrics);
        let admin = config.admin.clone();
        tokio::spawn(async move {
            if let Err(error) = admin::serve(self.admin, self.probes, app, &admin).await {
                tracing::error!(error = format!("{error:#}"), "admin server ended");
            }
        })
    }
}

async fn bind(address: std::net::SocketAddr, key: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on `{address}`; set `{key}` to a free address"))
}
