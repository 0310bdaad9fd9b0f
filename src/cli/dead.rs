//! `tidegate dead`: the dead letters of a lane of a running gateway.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::Value;

use super::lane::Lanes;
use super::remote::Remote;
use super::table::{self, Align};
use super::{Output, out};
use crate::gateway::{Page, Query};

#[derive(Debug, clap::Subcommand)]
pub enum DeadCommand {
    /// The newest dead letters, one a line.
    List(ListArgs),
    /// Dead letters whole, with the record's bytes.
    Show(ShowArgs),
}

#[derive(Debug, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    wanted: Wanted,
    /// Letters at the most
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    #[command(flatten)]
    remote: Remote,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    wanted: Wanted,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, clap::Args)]
struct Wanted {
    /// The lane
    #[arg(value_name = "ROUTE/SINK")]
    lane: Lanes,
    /// Only of records with this key
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// Only those whose cause holds this text
    #[arg(long, value_name = "TEXT")]
    cause: Option<String>,
    /// Only of this partition
    #[arg(long, value_name = "N")]
    partition: Option<i32>,
    /// Only of the record at this offset
    #[arg(long, value_name = "N")]
    offset: Option<i64>,
}

/// Letters of `show`, which are printed whole.
const SHOWN: usize = 20;

/// # Errors
/// When nobody answers, or refuses.
pub fn run(command: &DeadCommand) -> anyhow::Result<ExitCode> {
    match command {
        DeadCommand::List(args) => {
            let page = args.wanted.fetch(&args.remote, args.limit)?;
            match args.output {
                Output::Text => out::print(render(&page))?,
                Output::Json => out::print(format_args!("{}\n", serde_json::to_string_pretty(&page)?))?,
            }
        }
        DeadCommand::Show(args) => {
            let page = args.wanted.fetch(&args.remote, SHOWN)?;
            for letter in &page.letters {
                out::print(format_args!("{}\n", serde_json::to_string_pretty(letter)?))?;
            }
            if page.more {
                out::complain("there are more; --key, --cause, --partition and --offset choose\n");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Wanted {
    fn fetch(&self, remote: &Remote, limit: usize) -> anyhow::Result<Page> {
        let Lanes { route, sink: Some(sink) } = &self.lane else {
            bail!("name the lane as `{}/SINK`", self.lane.route);
        };
        let Self { key, cause, partition, offset, .. } = self;
        let query = Query {
            key: key.clone(),
            cause: cause.clone(),
            partition: *partition,
            offset: *offset,
            limit: Some(limit),
        };
        remote.query(&["routes", route, "lanes", sink, "dead"], &query)
    }
}

fn render(page: &Page) -> String {
    if page.letters.is_empty() {
        return "no dead letters\n".to_owned();
    }
    let header = [
        ("TIME", Align::Left),
        ("RECORD", Align::Left),
        ("KEY", Align::Left),
        ("STAGE", Align::Left),
        ("CAUSE", Align::Left),
    ];
    let rows: Vec<_> = page.letters.iter().map(row).collect();
    let more = if page.more { "\nthere are more; --limit shows them, --key and --cause choose\n" } else { "" };
    table::render(&header, &rows) + more
}

fn row(letter: &Value) -> Vec<String> {
    let text = |field: &str| letter[field].as_str().unwrap_or_default();
    let record = format!("{}[{}]@{}", text("topic"), letter["partition"], letter["offset"]);
    let key = match (letter["key"].as_str(), letter["key_base64"].as_str()) {
        (Some(key), _) => table::fit(key, 30),
        (None, Some(encoded)) => format!("base64 {}", table::fit(encoded, 23)),
        (None, None) => "none".to_owned(),
    };
    let stage = match text("plugin") {
        "" => text("stage").to_owned(),
        plugin => format!("{plugin} {}", text("plugin_version")),
    };
    vec![text("time").to_owned(), record, key, stage, table::fit(text("cause"), 100)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_letter_is_a_line() {
        let letter = json!({
            "time": "2026-01-02T03:04:05.678Z", "stage": "plugin", "plugin": "mask", "plugin_version": "1.2.0",
            "cause": "no field `email`", "attempts": 1, "topic": "users", "partition": 0, "offset": 7, "key": "a"
        });
        let other = json!({
            "time": "2026-01-02T03:04:05.678Z", "stage": "key", "cause": "the key is missing",
            "topic": "users", "partition": 1, "offset": 12
        });
        let page = Page { letters: vec![letter, other], more: true };
        let expected = "\
TIME                      RECORD       KEY   STAGE       CAUSE
2026-01-02T03:04:05.678Z  users[0]@7   a     mask 1.2.0  no field `email`
2026-01-02T03:04:05.678Z  users[1]@12  none  key         the key is missing

there are more; --limit shows them, --key and --cause choose
";
        assert_eq!(render(&page), expected);
        assert_eq!(render(&Page::default()), "no dead letters\n");
    }
}
