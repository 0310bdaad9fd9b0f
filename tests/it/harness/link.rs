//! The network between a gateway and the broker: a forwarder that can be cut.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{block_on, runtime};

/// A forwarder. Dropping it breaks its connections.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    target: u16,
    state: watch::Sender<State>,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    cut: bool,
    /// Connections of an earlier age are broken.
    age: u64,
}

impl Link {
    /// To a port of 127.0.0.1 that may be listened on later.
    pub fn to(target: u16) -> Self {
        let listener = block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (state, seen) = watch::channel(State::default());
        let server = runtime().spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("connections are accepted");
                tokio::spawn(connection(stream, target, seen.clone()));
            }
        });
        Self { address, target, state, server }
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    pub fn target(&self) -> u16 {
        self.target
    }

    /// Nothing passes any more, and nobody is told.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cut = true);
    }

    /// What was held up passes, or, when `breaking`, every connection is reset.
    pub fn mend(&self, breaking: bool) {
        self.state.send_modify(|state| *state = State { cut: false, age: state.age + u64::from(breaking) });
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.server.abort();
        self.mend(true);
    }
}

async fn connection(near: TcpStream, target: u16, mut state: watch::Receiver<State>) {
    let age = state.borrow().age;
    if !is_open(&mut state, age).await {
        return;
    }
    let Ok(far) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    // A gateway is not to wait for more than it sends.
    drop((near.set_nodelay(true), far.set_nodelay(true)));
    let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
    tokio::select! {
        () = forward(from_near, to_far, state.clone(), age) => {}
        () = forward(from_far, to_near, state.clone(), age) => {}
        () = ages(state, age) => {}
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut state: watch::Receiver<State>, age: u64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if !is_open(&mut state, age).await || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Waits until something may pass; `false` = the connection is broken.
async fn is_open(state: &mut watch::Receiver<State>, age: u64) -> bool {
    state.wait_for(|state| !state.cut || state.age != age).await.is_ok_and(|state| state.age == age)
}

/// Resolves when connections of this age are broken.
async fn ages(mut state: watch::Receiver<State>, age: u64) {
    drop(state.wait_for(|state| state.age != age).await);
}
