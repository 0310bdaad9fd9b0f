//! Who reads and writes which file, and who uses which consumer group: two lanes must not share either.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Checker;
use crate::config::checked::{Kafka, Route, SinkKind, Source};
use crate::config::path::KeyPath;

#[derive(Debug, Default)]
pub struct Claims {
    files: BTreeMap<PathBuf, Vec<Claim>>,
    /// By brokers and the lane's group.
    groups: BTreeMap<(String, String), Vec<KeyPath>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Claim {
    path: KeyPath,
    writes: bool,
    is_database: bool,
}

impl Claims {
    /// Adds what `route`, which stands at `path`, uses.
    pub(super) fn add(&mut self, checker: &Checker<'_>, path: &KeyPath, route: &Route) {
        let topics = match &route.source {
            Source::Kafka(kafka) => {
                let source = path.key("source");
                if !["cluster", "group"].iter().any(|key| checker.is_gone(&source.key(key))) {
                    self.add_groups(path, route, kafka);
                }
                kafka.topics.clone()
            }
            Source::Ndjson(ndjson) => {
                self.add_file(checker, &ndjson.path, path.key("source").key("path"), false, false);
                vec![ndjson.topic.clone()]
            }
        };
        for sink in &route.sinks {
            let place = path.key("sinks").key(&sink.name).key("path");
            match &sink.kind {
                // Of a path that is not valid nobody knows where it leads.
                SinkKind::File(file) if file.path.rest.is_empty() => {}
                SinkKind::File(file) => {
                    // The sink's own notes are kept beside its files, under the name of the template.
                    let rest = file.path.rest.replace("{route}", &route.name);
                    self.add_file(checker, &file.path.root.join(&rest), place.clone(), true, false);
                    for topic in &topics {
                        let of_topic = file.path.root.join(rest.replace("{topic}", topic));
                        self.add_file(checker, &of_topic, place.clone(), true, false);
                    }
                }
                SinkKind::Sqlite(sqlite) => self.add_file(checker, &sqlite.path, place, true, true),
                SinkKind::Discard | SinkKind::Http(_) => {}
            }
            let dead_letter = route.dead_letter.for_lane(&sink.name);
            self.add_file(checker, &dead_letter, path.key("dead_letter").key("path"), true, false);
        }
    }

    /// The files that a gateway keeps for itself.
    pub(super) fn add_data_dir(&mut self, checker: &Checker<'_>, data_dir: &Path) {
        for name in ["lock", "format", "admin.addr", "compiled"] {
            self.add_file(checker, &data_dir.join(name), KeyPath::root().key("data_dir"), true, false);
        }
    }

    pub(super) fn report(self, checker: &mut Checker<'_>) {
        for claims in self.files.into_values() {
            for (index, claim) in claims.iter().enumerate().skip(1) {
                let Some(other) = claims[..index].iter().find(|other| other.writes || claim.writes) else { continue };
                let (message, help) = if claim.is_database && other.is_database {
                    (
                        format!("the database is written by `{}` too", other.path),
                        "give each sink a database of its own; SQLite's `ATTACH` reads several at once",
                    )
                } else if claim.path.segments().contains(&dead_letter())
                    && other.path.segments().contains(&dead_letter())
                {
                    (
                        format!("the dead letters of a lane would go to the same file as those of `{}`", other.path),
                        "give each route a file of its own, whose name is not that of another with a sink's name added",
                    )
                } else {
                    let verb = if other.writes { "written" } else { "read" };
                    let help = "give each a file of its own; in a path, `{route}` and `{topic}` help";
                    (format!("the file is {verb} by `{}` too", other.path), help)
                };
                checker.error(&claim.path, message, help);
            }
        }
        for ((_, group), lanes) in self.groups {
            for (index, lane) in lanes.iter().enumerate().skip(1) {
                let message =
                    format!("the lane would use the consumer group `{group}`, as `{}` does", lanes[index - 1]);
                checker.error(
                    lane,
                    message,
                    "a group's members share the partitions: give one of the routes another `source.group`",
                );
            }
        }
    }

    fn add_groups(&mut self, path: &KeyPath, route: &Route, kafka: &Kafka) {
        // Two names may stand for the same brokers.
        let brokers =
            kafka.properties.get("bootstrap.servers").map_or(kafka.cluster.as_str(), |brokers| brokers.reveal());
        for sink in &route.sinks {
            let group = (brokers.to_owned(), format!("{}.{}", kafka.group, sink.name));
            self.groups.entry(group).or_default().push(path.key("sinks").key(&sink.name));
        }
    }

    fn add_file(&mut self, checker: &Checker<'_>, file: &Path, path: KeyPath, writes: bool, is_database: bool) {
        if checker.is_gone(&path) {
            return;
        }
        let claims = self.files.entry(file.to_owned()).or_default();
        let claim = Claim { path, writes, is_database };
        // Several topics of one sink may go into one file.
        if !claims.contains(&claim) {
            claims.push(claim);
        }
    }
}

fn dead_letter() -> crate::config::path::Segment {
    crate::config::path::Segment::Key("dead_letter".to_owned())
}
