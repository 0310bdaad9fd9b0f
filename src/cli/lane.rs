//! `tidegate resume`, `skip` and `reset`: what an operator has the lanes of a running gateway do.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::bail;

use super::remote::Remote;
use super::{Output, out};
use crate::admin::Accepted;
use crate::gateway::status::Status;

#[derive(Debug, clap::Args)]
pub struct LaneArgs {
    /// The lane
    #[arg(value_name = "ROUTE/SINK")]
    lane: Lanes,
    #[command(flatten)]
    remote: Remote,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, clap::Args)]
pub struct ResetArgs {
    /// A route, for each of its lanes that can be swept, or one lane
    #[arg(value_name = "ROUTE[/SINK]")]
    lanes: Lanes,
    /// Read the snapshot again, and remove the rows that it does not hold any more
    #[arg(long, required = true)]
    sweep: bool,
    #[command(flatten)]
    remote: Remote,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// A route's lanes, or one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lanes {
    pub route: String,
    pub sink: Option<String>,
}

impl FromStr for Lanes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            None if !text.is_empty() => Ok(Self { route: text.to_owned(), sink: None }),
            Some((route, sink)) if !route.is_empty() && !sink.is_empty() && !sink.contains('/') => {
                Ok(Self { route: route.to_owned(), sink: Some(sink.to_owned()) })
            }
            _ => Err("write it as `ROUTE` or `ROUTE/SINK`, as `tidegate status` shows them".to_owned()),
        }
    }
}

pub fn resume(args: &LaneArgs) -> anyhow::Result<ExitCode> {
    one(args, "resume", "is opened anew, at its checkpoint")
}

pub fn skip(args: &LaneArgs) -> anyhow::Result<ExitCode> {
    one(args, "skip", "goes on; the record that halted it becomes a dead letter")
}

fn one(args: &LaneArgs, command: &str, what: &str) -> anyhow::Result<ExitCode> {
    let Lanes { route, sink: Some(sink) } = &args.lane else {
        bail!("name the lane as `{}/SINK`", args.lane.route);
    };
    let accepted = args.remote.post::<Accepted>(&["routes", route, "lanes", sink, command])?;
    tell(&[accepted], what, args.output)
}

pub fn reset(args: &ResetArgs) -> anyhow::Result<ExitCode> {
    let Lanes { route, sink } = &args.lanes;
    let sinks = match sink {
        Some(sink) => vec![sink.clone()],
        None => sweepable(&args.remote, route)?,
    };
    let sweep = |sink: &String| args.remote.post::<Accepted>(&["routes", route, "lanes", sink, "sweep"]);
    let accepted = sinks.iter().map(sweep).collect::<anyhow::Result<Vec<_>>>()?;
    tell(&accepted, "reads its snapshot again, and then removes the rows that it does not hold any more", args.output)
}

/// The sinks of a route that keep what tells old rows from new ones.
fn sweepable(remote: &Remote, route: &str) -> anyhow::Result<Vec<String>> {
    let status: Status = remote.get(&["routes"])?;
    let Some(found) = status.routes.iter().find(|candidate| candidate.name == route) else {
        let known: Vec<_> = status.routes.iter().map(|route| &*route.name).collect();
        bail!("there is no route `{route}`; the routes are `{}`", known.join("`, `"));
    };
    let sinks: Vec<_> = found.lanes.iter().filter(|lane| lane.kind == "sqlite").map(|lane| lane.sink.clone()).collect();
    if sinks.is_empty() {
        bail!("no sink of route `{route}` can be swept: only a `sqlite` sink keeps what tells old rows from new ones");
    }
    Ok(sinks)
}

fn tell(accepted: &[Accepted], what: &str, output: Output) -> anyhow::Result<ExitCode> {
    match output {
        Output::Text => {
            for Accepted { route, sink, .. } in accepted {
                out::print(format_args!("{route}/{sink} {what}\n"))?;
            }
        }
        Output::Json => out::print(format_args!("{}\n", serde_json::to_string_pretty(accepted)?))?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_named_as_status_shows_them() {
        let lanes =
            |route: &str, sink: Option<&str>| Ok(Lanes { route: route.to_owned(), sink: sink.map(str::to_owned) });
        assert_eq!("profiles".parse(), lanes("profiles", None));
        assert_eq!("profiles/crm".parse(), lanes("profiles", Some("crm")));
        for wrong in ["", "/", "profiles/", "/crm", "a/b/c"] {
            assert!(wrong.parse::<Lanes>().is_err(), "{wrong}");
        }
    }
}
