//! WASI with nothing granted: no files, no sockets, no environment, no arguments; clocks and random numbers work.
//!
//! The library's functions that wait do so on a tokio runtime of their own and as long as the guest likes; an epoch does not
//! interrupt a call into the host. Those functions are replaced here: they wait on the calling thread, and never beyond the
//! call's deadline. With nothing granted, timers are all that a guest can wait for.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use wasmtime::Result;
use wasmtime::component::{HasData, Linker, Resource, ResourceTable};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::bindings::clocks::monotonic_clock;
use wasmtime_wasi::p2::bindings::io::{poll as async_poll, streams as async_streams};
use wasmtime_wasi::p2::bindings::sync::io::{poll, streams};
use wasmtime_wasi::p2::{
    self, DynInputStream, DynOutputStream, DynPollable, OutputStream, Pollable, StreamError, StreamResult,
};
use wasmtime_wasi::{WasiCtx, WasiView};

use super::output::{Output, Stream};

/// How often a wait looks whether it is over. A guest's sleep may be late by this much.
const WAIT_STEP: Duration = Duration::from_millis(1);

/// What a write may hold, in bytes: bounds what a guest makes the host allocate at once.
const MAX_WRITE_BYTES: usize = 64 << 10;

/// Open streams, pollables and errors of one instance; a guest that leaks them is trapped.
const MAX_RESOURCES: usize = 1_000;

/// Random bytes that one call may ask for.
const MAX_RANDOM_BYTES: u64 = 64 << 10;

/// The end of a wait in the host.
#[derive(Debug, thiserror::Error)]
#[error("a call into the host waited beyond the deadline")]
pub struct DeadlinePassed;

/// A WASI context that grants nothing. What the guest prints goes to `output`.
pub fn context(output: &Output) -> WasiCtx {
    let mut builder = WasiCtx::builder();
    builder
        .stdout(Print { output: output.clone(), stream: Stream::Stdout })
        .stderr(Print { output: output.clone(), stream: Stream::Stderr })
        .max_random_size(MAX_RANDOM_BYTES)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false);
    builder.build()
}

pub fn table() -> ResourceTable {
    let mut table = ResourceTable::new();
    table.set_max_capacity(MAX_RESOURCES);
    table
}

/// What the replaced functions need of the store's data.
pub trait Timed: WasiView + 'static {
    fn waits(&mut self) -> Waits<'_>;
}

/// Links WASI 0.2, with the functions that wait replaced.
///
/// # Errors
/// Never in practice: the names are defined once.
pub fn link<T: Timed>(linker: &mut Linker<T>) -> Result<()> {
    p2::add_to_linker_sync(linker)?;
    linker.allow_shadowing(true);
    poll::add_to_linker::<T, HasWaits>(linker, T::waits)?;
    streams::add_to_linker::<T, HasWaits>(linker, T::waits)?;
    monotonic_clock::add_to_linker::<T, HasWaits>(linker, T::waits)?;
    linker.allow_shadowing(false);
    Ok(())
}

struct HasWaits;

impl HasData for HasWaits {
    type Data<'a> = Waits<'a>;
}

pub struct Waits<'a> {
    pub table: &'a mut ResourceTable,
    /// When the instance began, for its clock.
    pub began: Instant,
    /// When the call under way must be over.
    pub deadline: Instant,
}

/// Waits on this thread until `future` is ready, at most until `deadline`. Nothing wakes it: what a guest can wait for is
/// ready at a time, or at once.
fn wait<F: Future>(deadline: Instant, future: F) -> Result<F::Output> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(DeadlinePassed.into());
        }
        std::thread::sleep(left.min(WAIT_STEP));
    }
}

/// Ready from a time on; `None` = never.
struct Timer(Option<Instant>);

#[wasmtime_wasi::async_trait]
impl Pollable for Timer {
    async fn ready(&mut self) {
        std::future::poll_fn(|_| match self.0 {
            Some(when) if Instant::now() >= when => Poll::Ready(()),
            _ => Poll::Pending,
        })
        .await;
    }
}

impl Waits<'_> {
    fn timer(&mut self, when: Option<Instant>) -> Result<Resource<DynPollable>> {
        let timer = self.table.push(Timer(when))?;
        p2::subscribe(self.table, timer)
    }
}

impl monotonic_clock::Host for Waits<'_> {
    fn now(&mut self) -> Result<u64> {
        Ok(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn resolution(&mut self) -> Result<u64> {
        Ok(1)
    }

    fn subscribe_instant(&mut self, when: u64) -> Result<Resource<DynPollable>> {
        let when = self.began.checked_add(Duration::from_nanos(when));
        self.timer(when)
    }

    fn subscribe_duration(&mut self, duration: u64) -> Result<Resource<DynPollable>> {
        let when = Instant::now().checked_add(Duration::from_nanos(duration));
        self.timer(when)
    }
}

impl poll::Host for Waits<'_> {
    fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> Result<Vec<u32>> {
        wait(self.deadline, async_poll::Host::poll(self.table, pollables))?
    }
}

impl poll::HostPollable for Waits<'_> {
    fn ready(&mut self, pollable: Resource<DynPollable>) -> Result<bool> {
        wait(self.deadline, async_poll::HostPollable::ready(self.table, pollable))?
    }

    fn block(&mut self, pollable: Resource<DynPollable>) -> Result<()> {
        wait(self.deadline, async_poll::HostPollable::block(self.table, pollable))?
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> Result<()> {
        async_poll::HostPollable::drop(self.table, pollable)
    }
}

/// [`wait`] for functions whose own errors are those of streams.
fn wait_stream<T>(deadline: Instant, future: impl Future<Output = StreamResult<T>>) -> StreamResult<T> {
    wait(deadline, future).map_err(StreamError::Trap)?
}

impl streams::Host for Waits<'_> {
    fn convert_stream_error(&mut self, error: StreamError) -> Result<streams::StreamError> {
        streams::Host::convert_stream_error(self.table, error)
    }
}

impl streams::HostInputStream for Waits<'_> {
    fn read(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<Vec<u8>> {
        async_streams::HostInputStream::read(self.table, stream, len)
    }

    fn blocking_read(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<Vec<u8>> {
        wait_stream(self.deadline, async_streams::HostInputStream::blocking_read(self.table, stream, len))
    }

    fn skip(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<u64> {
        async_streams::HostInputStream::skip(self.table, stream, len)
    }

    fn blocking_skip(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<u64> {
        wait_stream(self.deadline, async_streams::HostInputStream::blocking_skip(self.table, stream, len))
    }

    fn subscribe(&mut self, stream: Resource<DynInputStream>) -> Result<Resource<DynPollable>> {
        async_streams::HostInputStream::subscribe(self.table, stream)
    }

    fn drop(&mut self, stream: Resource<DynInputStream>) -> Result<()> {
        wait(self.deadline, async_streams::HostInputStream::drop(self.table, stream))?
    }
}

impl streams::HostOutputStream for Waits<'_> {
    fn check_write(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<u64> {
        async_streams::HostOutputStream::check_write(self.table, stream)
    }

    fn write(&mut self, stream: Resource<DynOutputStream>, bytes: Vec<u8>) -> StreamResult<()> {
        async_streams::HostOutputStream::write(self.table, stream, bytes)
    }

    fn blocking_write_and_flush(&mut self, stream: Resource<DynOutputStream>, bytes: Vec<u8>) -> StreamResult<()> {
        let write = async_streams::HostOutputStream::blocking_write_and_flush(self.table, stream, bytes);
        wait_stream(self.deadline, write)
    }

    fn flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        async_streams::HostOutputStream::flush(self.table, stream)
    }

    fn blocking_flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        wait_stream(self.deadline, async_streams::HostOutputStream::blocking_flush(self.table, stream))
    }

    fn subscribe(&mut self, stream: Resource<DynOutputStream>) -> Result<Resource<DynPollable>> {
        async_streams::HostOutputStream::subscribe(self.table, stream)
    }

    fn write_zeroes(&mut self, stream: Resource<DynOutputStream>, len: u64) -> StreamResult<()> {
        async_streams::HostOutputStream::write_zeroes(self.table, stream, len)
    }

    fn blocking_write_zeroes_and_flush(&mut self, stream: Resource<DynOutputStream>, len: u64) -> StreamResult<()> {
        let write = async_streams::HostOutputStream::blocking_write_zeroes_and_flush(self.table, stream, len);
        wait_stream(self.deadline, write)
    }

    fn splice(&mut self, to: Resource<DynOutputStream>, from: Resource<DynInputStream>, len: u64) -> StreamResult<u64> {
        async_streams::HostOutputStream::splice(self.table, to, from, len)
    }

    fn blocking_splice(
        &mut self,
        to: Resource<DynOutputStream>,
        from: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        wait_stream(self.deadline, async_streams::HostOutputStream::blocking_splice(self.table, to, from, len))
    }

    fn drop(&mut self, stream: Resource<DynOutputStream>) -> Result<()> {
        wait(self.deadline, async_streams::HostOutputStream::drop(self.table, stream))?
    }
}

/// One of the guest's standard streams.
#[derive(Clone)]
struct Print {
    output: Output,
    stream: Stream,
}

impl IsTerminal for Print {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Print {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    /// WASI 0.3, which is not linked, would take this one.
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Print {
    async fn ready(&mut self) {}
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Print {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        self.output.print(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(MAX_WRITE_BYTES)
    }
}
