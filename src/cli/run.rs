//! `tidegate run`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;

use super::signals::{self, Drained, Signals};
use super::{FAILED, USAGE, check, exit, out};
use crate::admin::{self, App, Listeners};
use crate::gateway::data_dir::DataDir;
use crate::gateway::{Gateway, Handle, Plan};

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// The configuration.
    #[arg(short, long, value_name = "FILE", default_value = "tidegate.yaml")]
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
    let plan = match check::load(&args.config) {
        Ok(plan) => plan,
        Err(errors) => {
            out::complain(&errors);
            return Ok(ExitCode::from(USAGE));
        }
    };
    crate::log::init(&plan.config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .thread_name("http")
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(plan, args.once))
}

async fn serve(plan: Plan, once: bool) -> anyhow::Result<ExitCode> {
    // Before the lanes start, so that no signal is lost, and a taken port is an error at once.
    let mut signals = Signals::catch()?;
    let admin = plan.config.admin.clone();
    let data_path = plan.config.data_dir.clone();
    // Before the port: whoever starts a gateway twice learns that it runs already.
    let data_dir = DataDir::open(&data_path)?;
    let listeners = Listeners::bind(&admin).await?;
    let address = listeners.admin_address()?;
    let gateway = Gateway::start(plan, data_dir, &tokio::runtime::Handle::current())?;
    let handle = gateway.handle().clone();
    tracing::info!(%address, "admin server listens");
    tell_address(&data_path, address);
    let app = App::of(&handle);
    let server = tokio::spawn(async move { admin::serve(listeners, app, &admin, std::future::pending()).await });
    tokio::select! {
        signal = signals.next() => tracing::info!(%signal, "{}", signals::draining(&gateway)),
        () = settled(&handle, once) => tracing::info!("stopping: every lane has delivered its snapshot"),
    }
    let halted = if once { handle.halted() } else { Vec::new() };
    // Health is answered until the lanes have ended.
    let late = match signals::drain(gateway, &mut signals).await? {
        Drained::Late(late) => late,
        Drained::Cut(signal) => {
            tracing::warn!(%signal, "{}", signals::CUT);
            exit::at_once(FAILED)
        }
    };
    server.abort();
    for lane in &late {
        tracing::error!(
            lane,
            "lane did not end within `shutdown_grace`; its unfinished work is done again at the next start"
        );
    }
    for (lane, reason) in &halted {
        tracing::error!(lane, reason, "lane halted");
    }
    tracing::info!("stopped");
    Ok(if late.is_empty() && halted.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// For tools on this machine, since the port may be any.
fn tell_address(data_dir: &Path, address: SocketAddr) {
    let file = data_dir.join("admin.addr");
    if let Err(error) = std::fs::write(&file, address.to_string()) {
        tracing::warn!(%error, file = %file.display(), "failed to write the admin server's address");
    }
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
