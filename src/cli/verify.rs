//! `tidegate verify`: whether a table holds what its topic says.
//!
//! The topic is read once more, through the route's chain, into a copy of the table, and the two are compared. The gateway may
//! run meanwhile, and need not.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;

use super::lane::Lanes;
use super::signals::Signals;
use super::table::{self, grouped};
use super::{FAILED, Output, USAGE, check, out};
use crate::config::{Log, LogFormat, Route, Sink, SinkKind, Source, Sqlite, Start};
use crate::gateway::Plan;
use crate::gateway::copy::Copy;
use crate::gateway::status::{LaneState, Snapshot};
use crate::plugin::Chain;
use crate::record::{NextOffset, TopicPartition};
use crate::sink::{Comparison, Difference, Kind, Report};
use crate::stop::Stop;

/// Between two looks at the copy or the table.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Between two lines that tell how far it is.
const TELL_INTERVAL: Duration = Duration::from_secs(5);

/// How long the table of a gateway that runs may be behind the copy before it counts as one that stands.
const CATCH_UP: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// A route, for each of its tables, or one lane
    #[arg(value_name = "ROUTE[/SINK]")]
    lanes: Lanes,
    /// The configuration.
    #[arg(short, long, value_name = "FILE", default_value = "tidegate.yaml")]
    config: PathBuf,
    /// Where the copy is made, which takes as much room as the table; beside the table unless given
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Differences of each kind that are told one by one
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: u64,
    /// Give up when nothing moves for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// What was found of one lane.
#[derive(Debug, Serialize)]
struct Verified<'a> {
    route: &'a str,
    sink: &'a str,
    equal: bool,
    #[serde(flatten)]
    report: Report,
}

/// One lane to be verified.
struct Subject<'a> {
    route: &'a Route,
    sink: &'a Sink,
    settings: &'a Sqlite,
    chain: &'a Arc<Chain>,
}

/// # Errors
/// When the topic or a table cannot be read.
pub fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let plan = match check::load(&args.config) {
        Ok(plan) => plan,
        Err(errors) => {
            out::complain(&errors);
            return Ok(ExitCode::from(USAGE));
        }
    };
    // What goes wrong with the copy is told by its status.
    crate::log::init(&Log { format: LogFormat::Text, filter: "off".to_owned() })?;
    let subjects = subjects(&plan, &args.lanes)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let interrupted = Stop::new();
    let mut signals = runtime.block_on(async { Signals::catch() })?;
    runtime.spawn({
        let interrupted = interrupted.clone();
        async move {
            signals.next().await;
            interrupted.set();
        }
    });
    let mut verified = Vec::new();
    for Subject { route, sink, settings, chain } in subjects {
        let report = verify(&Look { args, route, sink, interrupted: &interrupted }, settings, chain, |directory| {
            Copy::start((route, sink, settings), chain, plan.config.budget, directory, runtime.handle().clone())
        })?;
        verified.push(Verified { route: &route.name, sink: &sink.name, equal: report.is_equal(), report });
    }
    match args.output {
        Output::Json => out::print(format_args!("{}\n", serde_json::to_string_pretty(&verified)?))?,
        Output::Text => verified.iter().try_for_each(|verified| out::print(render(verified)))?,
    }
    Ok(if verified.iter().all(|verified| verified.equal) { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// The tables among the lanes that are named.
fn subjects<'a>(plan: &'a Plan, lanes: &Lanes) -> anyhow::Result<Vec<Subject<'a>>> {
    let named = |names: Vec<&str>| format!("`{}`", names.join("`, `"));
    let routes = &plan.config.routes;
    let Some((route, chain)) = routes.iter().zip(&plan.chains).find(|(route, _)| route.name == lanes.route) else {
        let known = named(routes.iter().map(|route| &*route.name).collect());
        bail!("there is no route `{}`; the routes are {known}", lanes.route);
    };
    if let Some(sink) = &lanes.sink
        && !route.sinks.iter().any(|candidate| candidate.name == *sink)
    {
        let known = named(route.sinks.iter().map(|sink| &*sink.name).collect());
        bail!("route `{}` has no sink `{sink}`; its sinks are {known}", route.name);
    }
    let wanted = |sink: &&Arc<Sink>| lanes.sink.as_ref().is_none_or(|name| sink.name == *name);
    let subjects: Vec<_> = route
        .sinks
        .iter()
        .filter(wanted)
        .filter_map(|sink| match &sink.kind {
            SinkKind::Sqlite(settings) => Some(Subject { route, sink, settings, chain }),
            SinkKind::Discard | SinkKind::File(_) | SinkKind::Http(_) => None,
        })
        .collect();
    if subjects.is_empty() {
        bail!("only a `sqlite` sink can be read back and compared, and no other is meant");
    }
    if matches!(&route.source, Source::Kafka(settings) if settings.start == Start::Latest) {
        bail!(
            "route `{}` begins at the topic's end, so that its tables do not hold what the whole topic says",
            route.name
        );
    }
    Ok(subjects)
}

fn verify(
    look: &Look<'_>,
    settings: &Sqlite,
    chain: &Chain,
    start: impl FnOnce(&Path) -> anyhow::Result<Copy>,
) -> anyhow::Result<Report> {
    let beside = settings.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let scratch = look.args.scratch.as_deref().unwrap_or(beside);
    let directory = tempfile::Builder::new().prefix(".tidegate-verify-").tempdir_in(scratch).with_context(|| {
        format!("cannot make the copy in `{}`; `--scratch` names another directory", scratch.display())
    })?;
    // Before anything is read: what is wrong with the table is told at once.
    if !settings.path.exists() {
        bail!("there is no `{}` yet: nothing was delivered to it", settings.path.display());
    }
    let copy = start(directory.path())?;
    look.until(&copy, |copy| copy.status().state == LaneState::Live)?;
    let comparison = Comparison::open(settings, chain.changes_keys(), &copy.settings.path)?;
    let delivered = comparison.hold()?;
    look.until(&copy, |copy| copy.has_passed(&delivered))?;
    let rejected = copy.dead_letters.clone();
    if !copy.stop() {
        bail!("the copying lane failed; the table was not compared");
    }
    comparison.compare(&rejected, look.args.limit, |table, reached| look.catch_up(table, reached))
}

/// How one lane's copy and table are watched.
struct Look<'a> {
    args: &'a VerifyArgs,
    route: &'a Route,
    sink: &'a Sink,
    interrupted: &'a Stop,
}

impl Look<'_> {
    /// Waits for the copy, and tells how far it is.
    fn until(&self, copy: &Copy, is_done: impl Fn(&Copy) -> bool) -> anyhow::Result<()> {
        let limit = Duration::from_secs(self.args.timeout);
        let mut told = Instant::now();
        let (mut moved, mut passed) = (Instant::now(), None);
        loop {
            let status = copy.status();
            if let Some(halt) = &status.halt {
                bail!("the copy cannot be made: {halt}");
            }
            if is_done(copy) {
                return Ok(());
            }
            let now = (status.snapshot_progress(), status.counts.records_in, status.in_hand_bytes);
            if passed != Some(now) {
                (moved, passed) = (Instant::now(), Some(now));
            }
            if moved.elapsed() > limit {
                let why = status.waits_for().unwrap_or_else(|| {
                    "the table says that it has more of the topic than there is, as after the topic was made anew"
                        .to_owned()
                });
                bail!("nothing moved for {} s: {why}", limit.as_secs());
            }
            if told.elapsed() > TELL_INTERVAL {
                told = Instant::now();
                let (route, sink) = (&self.route.name, &self.sink.name);
                let far = match status.snapshot() {
                    Snapshot::Percent(percent) => format!("{percent} % of the topic"),
                    Snapshot::Delivered => "all of the topic, and what came since".to_owned(),
                    Snapshot::Unknown => "the topic".to_owned(),
                };
                let records = grouped(status.counts.records_in);
                out::complain(format_args!("{route}/{sink}: reading {far}, {records} records so far\n"));
            }
            self.pause()?;
        }
    }

    /// Waits until the table has passed the copy, as it soon does when a gateway runs.
    fn catch_up(&self, table: &Comparison, reached: &[(TopicPartition, NextOffset)]) -> anyhow::Result<()> {
        let deadline = Instant::now() + CATCH_UP;
        while Instant::now() < deadline {
            let delivered = table.delivered()?;
            let has = |(partition, next): &(TopicPartition, NextOffset)| {
                delivered.iter().any(|(candidate, has)| candidate == partition && has >= next)
            };
            if reached.iter().all(has) {
                break;
            }
            self.pause()?;
        }
        Ok(())
    }

    fn pause(&self) -> anyhow::Result<()> {
        if self.interrupted.wait(LOOK_INTERVAL) {
            bail!("interrupted; nothing was compared");
        }
        Ok(())
    }
}

fn render(verified: &Verified<'_>) -> String {
    let Verified { route, sink, equal, report } = verified;
    let rows = grouped(report.rows);
    let verdict = match (*equal, report.not_delivered + report.undecided) {
        (true, 0) => "equal to what the topic says",
        (true, _) => "equal to what the topic says, as far as it is delivered",
        (false, _) => "DIFFERS from what the topic says",
    };
    let mut text = format!("{route}/{sink}: {rows} rows, {verdict}\n");
    for (count, what) in [
        (report.missing, "missing: the topic has them, and they were delivered"),
        (report.different, "different: the topic has other contents"),
        (report.stale, "stale: the topic does not have them any more; `tidegate reset --sweep` removes them"),
        (report.kept, "kept by `on_reject: keep`: their newer version was rejected"),
        (report.not_delivered, "not compared: what is in the topic is not delivered yet"),
        (report.undecided, "not decided: the table has not read as far as the copy; verify again once it has"),
    ] {
        if count > 0 {
            text.push_str(&format!("{:>12} {what}\n", grouped(count)));
        }
    }
    for Difference { kind, key, topic, partition, offset } in &report.differences {
        let kind = match kind {
            Kind::Missing => "missing",
            Kind::Different => "different",
            Kind::Stale => "stale",
            Kind::Kept => "kept",
        };
        text.push_str(&format!("  {kind:<10} {} ({topic}[{partition}] at offset {offset})\n", table::fit(key, 60)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_counted_and_told() {
        let difference = |kind, key: &str, offset| {
            let (key, topic) = (key.to_owned(), "users".to_owned());
            Difference { kind, key, topic, partition: 1, offset }
        };
        let report = Report {
            rows: 1_234_567,
            missing: 1,
            stale: 20_000,
            not_delivered: 3,
            differences: vec![difference(Kind::Missing, "a", 7), difference(Kind::Stale, "x'00ff'", 12)],
            ..Report::default()
        };
        let verified = Verified { route: "profiles", sink: "db", equal: report.is_equal(), report };
        let expected = "\
profiles/db: 1,234,567 rows, DIFFERS from what the topic says
           1 missing: the topic has them, and they were delivered
      20,000 stale: the topic does not have them any more; `tidegate reset --sweep` removes them
           3 not compared: what is in the topic is not delivered yet
  missing    a (users[1] at offset 7)
  stale      x'00ff' (users[1] at offset 12)
";
        assert_eq!(render(&verified), expected);
        let equal = Verified { equal: true, report: Report { rows: 2, ..Report::default() }, ..verified };
        assert_eq!(render(&equal), "profiles/db: 2 rows, equal to what the topic says\n");
    }
}
