//! `tidegate status`: how far a running gateway is.

use std::process::ExitCode;

use super::remote::Remote;
use super::table::{self, Align, grouped};
use super::{Output, out};
use crate::gateway::status::{LaneState, LaneStatus, Snapshot, Status};

#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    remote: Remote,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Prints the status of the gateway at the given address.
///
/// # Errors
/// When nobody answers there, or something else than a gateway does.
pub fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let status: Status = args.remote.get(&["routes"])?;
    match args.output {
        Output::Text => out::print(render(&status))?,
        Output::Json => out::print(format_args!("{}\n", serde_json::to_string_pretty(&status)?))?,
    }
    Ok(ExitCode::SUCCESS)
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
        let lane = format!("{route}/{}", lane.sink);
        let skip = format!(", `tidegate skip {lane}` makes a dead letter of the record");
        let skip = if halt.skippable { &*skip } else { "" };
        notes.push(line("goes on", &format!("`tidegate resume {lane}` tries again{skip}")));
    }
    if let Some(waiting) = lane.waits_for() {
        notes.push(line("waits", &waiting));
    }
    if let Some(share) = lane.share() {
        notes.push(line("has", &share));
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
    use crate::gateway::status::{Counts, samples};

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
profiles/crm goes on: `tidegate resume profiles/crm` tries again
profiles/audit waits: no broker answers at localhost:9092
profiles/copy stalls: nothing was finished for 5 min
";
        assert_eq!(render(&sample()), expected);
    }
}
