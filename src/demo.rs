//! `tidegate demo`: the whole thing in one process, on an embedded broker.
//!
//! With `--once` it ends when the snapshot is delivered, and holds what each sink has against its own account of the
//! records that it produced.

mod broker;
mod compare;
mod directory;
mod found;
mod model;
mod profiles;
mod receiver;
mod watch;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;

use self::broker::{Broker, Produced};
use self::compare::Comparison;
use self::directory::Directory;
use self::profiles::Crowd;
use self::receiver::Receiver;
use self::watch::{Ended, Watch};
use crate::admin::{self, App, Listeners};
use crate::cli::signals::{self, Drained, Signals};
use crate::cli::table::grouped;
use crate::cli::{FAILED, check, exit, out};
use crate::config::Source;
use crate::gateway::data_dir::DataDir;
use crate::gateway::{Gateway, Plan};
use crate::stop::Stop;

/// What the scenes need, and some of a crowd.
pub const MIN_RECORDS: usize = 100;

/// What fits into the embedded broker.
pub const MAX_RECORDS: usize = 50_000;

/// Threads for HTTP: the admin server, the receiver, and the sink that sends to it.
const RUNTIME_THREADS: usize = 2;

#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// Stop when all is delivered, compare each sink with the records that were produced, and exit 0 or 1
    #[arg(long)]
    once: bool,
    /// Where the demo writes; what an earlier demo left there is removed
    #[arg(long, value_name = "DIR", default_value = "tidegate-demo")]
    dir: PathBuf,
    /// How many records the topic holds at the start
    #[arg(long, value_name = "N", default_value_t = MAX_RECORDS, value_parser = records)]
    records: usize,
    /// The address of the admin server [default: 127.0.0.1:8080, or a free port if that is taken]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// How long `--once` may take until all is delivered
    #[arg(long, value_name = "TIME", default_value = "2min", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

fn records(text: &str) -> Result<usize, String> {
    let range = MIN_RECORDS..=MAX_RECORDS;
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("a number from {MIN_RECORDS} to {MAX_RECORDS} is accepted"))
}

/// Runs the demo, by the configuration that it writes into its directory.
///
/// # Errors
/// When something does not start, or the snapshot is not delivered.
pub fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let dir = Directory::prepare(&args.dir)?;
    let broker = Broker::start()?;
    let produced = broker.fill(profiles::seed(args.records))?;
    let records = grouped(produced.len() as u64);
    out::print(format_args!("{records} records of customer profiles are in the topic `{}`\n", broker::TOPIC))?;

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(RUNTIME_THREADS).enable_all().build()?;
    let receiver = runtime.block_on(Receiver::start())?;
    let listener = listen(args.listen)?;
    let listen = listener.local_addr()?;
    let config = dir.write_config(listen, &broker.bootstrap_servers(), &receiver.url())?;
    let plan = without_admin_requests(check::load(&config)?);
    crate::log::init_to_file(&plan.config.log, dir.create_log()?)?;

    let begin = Instant::now();
    let admin = plan.config.admin.clone();
    let data_dir = DataDir::open(&plan.config.data_dir)?;
    let listeners = runtime.block_on(async { Listeners::bound(listener) })?;
    let mut watch = runtime.block_on(async { Watch::new() })?;
    let gateway = Gateway::start(plan, data_dir, runtime.handle())?;
    let handle = gateway.handle().clone();
    let status = move || handle.status();
    let app = App::of(gateway.handle());
    runtime.spawn(async move { admin::serve(listeners, app, &admin, std::future::pending()).await });

    if args.once {
        let ended = runtime.block_on(watch.until_delivered(&status, Some(args.timeout)));
        let took = begin.elapsed();
        let interrupted = matches!(ended, Ok(Ended::Interrupted));
        runtime.block_on(stop(gateway, watch.signals(), interrupted))?;
        return match ended? {
            Ended::Delivered => compare_and_tell(&dir, &receiver, &produced, took),
            Ended::Interrupted => Ok(ExitCode::from(FAILED)),
        };
    }
    let stop_producer = Stop::new();
    let producer = broker.go_on(Crowd::later(args.records), stop_producer.clone())?;
    let ended = runtime.block_on(async {
        if watch.until_delivered(&status, None).await? == Ended::Delivered {
            out::print(dir.what_to_look_at(&program(), listen, &receiver.url(), begin.elapsed()))?;
            watch.until_interrupted(&status).await?;
        }
        anyhow::Ok(())
    });
    stop_producer.set();
    if producer.join().is_err() {
        bail!("the demo's producer panicked");
    }
    runtime.block_on(stop(gateway, watch.signals(), true))?;
    ended?;
    out::print(format_args!("stopped; what was written is left in `{}`\n", args.dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// As the user called it, so that what is shown can be pasted.
fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "tidegate".to_owned())
}

/// Ends the lanes, and says so unless it is what the demo came to by itself.
async fn stop(gateway: Gateway, signals: &mut Signals, say: bool) -> anyhow::Result<()> {
    let said = if say { out::print(format_args!("{}\n", signals::draining(&gateway))) } else { Ok(()) };
    match signals::drain(gateway, signals).await? {
        Drained::Late(late) if late.is_empty() => said,
        Drained::Late(late) => bail!("these lanes did not end in time: {}", late.join(", ")),
        Drained::Cut(_) => {
            out::complain(format_args!("{}\n", signals::CUT));
            exit::at_once(FAILED)
        }
    }
}

/// Compares every place that the gateway wrote to, and says what differs.
fn compare_and_tell(
    dir: &Directory,
    receiver: &Receiver,
    produced: &[Produced],
    took: Duration,
) -> anyhow::Result<ExitCode> {
    let comparisons = compare_all(dir, receiver, produced)?;
    let equal = comparisons.iter().all(Comparison::is_equal);
    out::print(format_args!(
        "\ndelivered in {:.1} s; each sink next to a fold of the records that were produced:\n\n{}\n{}\n",
        took.as_secs_f64(),
        compare::render(&comparisons),
        if equal { "equal" } else { "NOT EQUAL" }
    ))?;
    Ok(if equal { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn compare_all(dir: &Directory, receiver: &Receiver, produced: &[Produced]) -> anyhow::Result<Vec<Comparison>> {
    let expected = model::fold(produced);
    let value = |value: &Vec<u8>| String::from_utf8_lossy(value).into_owned();
    let line = |(key, bytes): &(String, Option<Vec<u8>>)| match bytes {
        Some(bytes) => format!("{key} = {}", value(bytes)),
        None => format!("delete of {key}"),
    };
    let rows = found::sqlite(&dir.database(), directory::TABLE)?;
    let mut comparisons = vec![
        compare::compare("SQLite table", &expected.state, rows, value),
        compare::compare("file", &expected.log, found::lines(&dir.audit())?, line),
        compare::compare("HTTP receiver", &expected.state, receiver.state(), value),
    ];
    let dead = expected.dead.into_iter().map(|(position, stage)| (position, stage.to_owned())).collect();
    for sink in directory::SINKS {
        let letters = found::dead_letters(&dir.dead_letters(sink))?;
        comparisons.push(compare::compare(format!("dead letters of {sink}"), &dead, letters, String::clone));
    }
    Ok(comparisons)
}

/// The embedded broker does not answer admin requests, and a client that waits for one cannot be closed.
fn without_admin_requests(mut plan: Plan) -> Plan {
    for route in &mut plan.config.routes {
        if let Source::Kafka(kafka) = &mut Arc::make_mut(route).source {
            kafka.inspect_topics = false;
        }
    }
    plan
}

/// Listens on the wanted address; or on the usual one, or on a free one of this machine. It is kept until the admin server
/// takes it over: whoever else looks for a free one meanwhile finds another.
fn listen(wanted: Option<SocketAddr>) -> anyhow::Result<TcpListener> {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match wanted {
        Some(address) => TcpListener::bind(address).map_err(|error| admin::cannot_listen("--listen", address, error)),
        None => Ok(TcpListener::bind(local(8080)).or_else(|_| TcpListener::bind(local(0)))?),
    }
}

#[cfg(test)]
mod tests;
