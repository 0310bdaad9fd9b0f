//! Listening and serving, with a limit on everything that a stranger can hold.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tracing::{debug, warn};

use super::{App, probes_router, router};
use crate::config;

/// Connections per listener; the kernel's backlog holds the next ones. HTTP/1 has one request under way on each.
const MAX_CONNECTIONS: usize = 128;

/// For a request's head, and for how long a connection may be idle. Short, since whoever sends a head slowly holds a place;
/// a scraper whose connection was closed meanwhile opens another.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a request's head and of what is buffered of its body.
const MAX_BUFFER: usize = 64 * 1024;

/// What requests under way get when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// After an error of `accept` that comes back at once, such as no free file descriptor.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(500);

/// How often the lanes' progress is looked at when nobody asks.
const STALL_LOOK: Duration = Duration::from_secs(5);

/// Bound before anything else starts, so that a taken port ends the start and not the run.
#[derive(Debug)]
pub struct Listeners {
    admin: TcpListener,
    probes: Option<TcpListener>,
}

impl Listeners {
    /// # Errors
    /// When an address cannot be listened on; the error names it, its key in the configuration, and what to do.
    pub async fn bind(config: &config::Admin) -> anyhow::Result<Self> {
        let admin = bind("admin.listen", config.listen).await?;
        let probes = match config.probes {
            Some(address) => Some(bind("admin.probes", address).await?),
            None => None,
        };
        Ok(Self { admin, probes })
    }

    /// The admin listener alone, which somebody has bound. Called within a runtime.
    ///
    /// # Errors
    /// When the runtime cannot take it over.
    pub fn bound(admin: std::net::TcpListener) -> io::Result<Self> {
        admin.set_nonblocking(true)?;
        Ok(Self { admin: TcpListener::from_std(admin)?, probes: None })
    }

    /// Where the admin server listens: the port is the real one when 0 was configured.
    ///
    /// # Errors
    /// When the operating system does not tell.
    pub fn admin_address(&self) -> io::Result<SocketAddr> {
        self.admin.local_addr()
    }
}

async fn bind(key: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| cannot_listen(key, address, error))
}

/// Why nothing can listen on `address`, and what to do: `key` is where it was given.
pub fn cannot_listen(key: &str, address: SocketAddr, error: io::Error) -> anyhow::Error {
    let port = address.port();
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another program does; `ss -ltnp 'sport = :{port}'` shows which, and `{key}` takes another port, or 0 for any free one"
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("this machine has no such address; `{key}` takes one of `ip address`, or `0.0.0.0:{port}` for all")
        }
        io::ErrorKind::PermissionDenied => {
            format!("this user may not listen on port {port}; `{key}` takes another one, such as 8080")
        }
        _ => return anyhow!(error).context(format!("cannot listen on `{address}` (`{key}`)")),
    };
    anyhow!("cannot listen on `{address}`: {advice}")
}

/// Serves until `shutdown` is over and the requests under way then are answered.
pub async fn serve(listeners: Listeners, app: App, config: &config::Admin, shutdown: impl Future<Output = ()>) {
    let (stop, stopped) = watch::channel(());
    let admin = listen(listeners.admin, router(app.clone(), config), stopped.clone());
    let probes = async {
        if let Some(listener) = listeners.probes {
            listen(listener, probes_router(app.clone()), stopped.clone()).await;
        }
    };
    let look = async {
        let mut stopped = stopped.clone();
        while tokio::time::timeout(STALL_LOOK, stopped.changed()).await.is_err() {
            app.status();
        }
    };
    let end = async {
        shutdown.await;
        drop(stop);
    };
    tokio::join!(admin, probes, look, end);
}

async fn listen(listener: TcpListener, router: Router, mut stopped: watch::Receiver<()>) {
    let service = TowerToHyperService::new(router);
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    loop {
        let (stream, permit) = tokio::select! {
            accepted = accept(&listener, &connections) => accepted,
            _ = stopped.changed() => break,
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_BUFFER)
            .serve_connection(TokioIo::new(stream), service.clone());
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "an admin connection ended");
            }
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(STOP_GRACE, graceful.shutdown()).await.is_err() {
        debug!("requests to the admin server were cut off by the stop");
    }
}

/// The next connection, when there is room for one.
async fn accept(listener: &TcpListener, connections: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    let permit = Arc::clone(connections).acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, permit),
            Err(error) => {
                warn!(%error, "failed to accept an admin connection");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}
