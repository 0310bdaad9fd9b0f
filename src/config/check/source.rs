//! Sources and keys.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::Checker;
use crate::config::checked::{Kafka, KeyFormat, Keys, MissingKey, Ndjson, Source, Start};
use crate::config::path::KeyPath;
use crate::config::suggest::{accepted, suggest};
use crate::config::{defaults, written};
use crate::delivery::OnError;
use crate::secret::Secret;

impl Checker<'_> {
    pub(super) fn source(
        &mut self,
        path: &KeyPath,
        route: &str,
        written: &written::Source,
        clusters: &IndexMap<String, written::Cluster>,
    ) -> (Source, Keys) {
        match written {
            written::Source::Kafka(kafka) => {
                let keys = self.keys(&path.key("keys"), kafka.keys.as_ref());
                (Source::Kafka(self.kafka(path, route, kafka, clusters)), keys)
            }
            written::Source::Ndjson(ndjson) => {
                self.topic(&path.key("topic"), &ndjson.topic);
                let file = self.file(&path.key("path"), &ndjson.path);
                let keys = self.keys(&path.key("keys"), ndjson.keys.as_ref());
                (Source::Ndjson(Ndjson { path: file, topic: ndjson.topic.clone() }), keys)
            }
        }
    }

    fn kafka(
        &mut self,
        path: &KeyPath,
        route: &str,
        written: &written::Kafka,
        clusters: &IndexMap<String, written::Cluster>,
    ) -> Kafka {
        for (index, topic) in written.topics.iter().enumerate() {
            let place = path.key("topics").index(index);
            self.topic(&place, topic);
            if written.topics[..index].contains(topic) {
                self.error(&place, format!("the topic `{topic}` is listed twice"), "keep one of the two");
            }
        }
        let cluster = self.cluster(path, written.cluster.as_deref());
        let properties = self.properties(path, &cluster, written, clusters.get(&cluster));
        Kafka {
            cluster,
            properties,
            topics: written.topics.clone(),
            group: written.group.clone().unwrap_or_else(|| format!("tidegate.{route}")),
            start: written.start.unwrap_or(Start::Earliest),
            drain_timeout: self.duration(
                &path.key("drain_timeout"),
                written.drain_timeout.as_ref(),
                defaults::DRAIN_TIMEOUT,
                &defaults::DRAIN_TIMEOUT_RANGE,
            ),
            inspect_topics: true,
        }
    }

    /// Takes the properties as they are written: librdkafka reads text, and `1e3` or `0x10` are not what JSON makes of them.
    /// Those of the source go before those of the cluster.
    fn properties(
        &mut self,
        path: &KeyPath,
        cluster: &str,
        written: &written::Kafka,
        of_cluster: Option<&written::Cluster>,
    ) -> BTreeMap<String, Secret> {
        let Some(of_cluster) = of_cluster else { return BTreeMap::new() };
        let cluster = KeyPath::root().key("clusters").key(cluster);
        let own = path.key("properties");
        let names = ["bootstrap.servers"].into_iter().chain(of_cluster.properties.keys().map(String::as_str));
        let places = names
            .map(|name| (name, cluster.key(name)))
            .chain(written.properties.keys().map(|name| (name.as_str(), own.key(name))));
        let places: BTreeMap<&str, KeyPath> = places.collect();
        let text = |place: &KeyPath| Secret::new(self.document.text(place).unwrap_or_default());
        let properties = places.iter().map(|(name, place)| ((*name).to_owned(), text(place))).collect();
        let whole = !self.pruned.iter().any(|gone| gone.starts_with(&cluster) || gone.starts_with(&own));
        for (property, message) in (self.outside.properties)(&properties) {
            match property.as_deref().map(|name| (name, places.get(name))) {
                Some((name, place)) => self.error(place.unwrap_or(&own), format!("`{name}`: {message}"), ""),
                None if whole => self.error(&own, format!("the properties contradict one another: {message}"), ""),
                None => {}
            }
        }
        properties
    }

    /// The name of the cluster that is meant; empty where there is none.
    fn cluster(&mut self, path: &KeyPath, written: Option<&str>) -> String {
        let names = self.names("clusters");
        match (written, names.as_slice()) {
            (Some(cluster), []) => {
                let help = format!("add it: `clusters: {{ {cluster}: {{ bootstrap.servers: \"localhost:9092\" }} }}`");
                self.error(&path.key("cluster"), format!("there is no cluster `{cluster}`"), help);
                String::new()
            }
            (Some(cluster), names) if !names.iter().any(|name| name == cluster) => {
                self.error(&path.key("cluster"), format!("there is no cluster `{cluster}`"), suggest(cluster, names));
                String::new()
            }
            (Some(cluster), _) => cluster.to_owned(),
            (None, [only]) => only.clone(),
            (None, []) => {
                let help = "add one: `clusters: { main: { bootstrap.servers: \"localhost:9092\" } }`";
                self.conflict(&path.key("cluster"), "there is no cluster to read from", help);
                String::new()
            }
            (None, several) => {
                self.conflict(&path.key("cluster"), "`cluster` is missing, and there are several", accepted(several));
                String::new()
            }
        }
    }

    fn topic(&mut self, path: &KeyPath, topic: &str) {
        let is_topic = !topic.is_empty()
            && topic.len() <= defaults::TOPIC_MAX_CHARACTERS
            && !matches!(topic, "." | "..")
            && topic.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        if !is_topic {
            let mut help =
                format!("accepted: letters, digits, `.`, `_` and `-`, at most {}", defaults::TOPIC_MAX_CHARACTERS);
            if topic.starts_with('^') {
                help.push_str("\npatterns are not supported; list the topics");
            }
            self.error(path, format!("`{topic}` is not the name of a topic"), help);
        }
    }

    fn keys(&mut self, path: &KeyPath, written: Option<&written::Keys>) -> Keys {
        let nothing = written::Keys::default();
        let written = written.unwrap_or(&nothing);
        if written.format.is_none() && written.malformed.is_some() {
            let help = "say what keys must be: `format: utf8 | uuid | integer | json | { regex: … }`";
            self.conflict(&path.key("malformed"), "`malformed` has no meaning without `format`", help);
        }
        Keys {
            missing: written.missing.unwrap_or(MissingKey::DeadLetter),
            format: written.format.as_ref().and_then(|format| self.key_format(&path.key("format"), format)),
            malformed: written.malformed.unwrap_or(OnError::DeadLetter),
        }
    }

    fn key_format(&mut self, path: &KeyPath, written: &written::KeyFormat) -> Option<KeyFormat> {
        let pattern = match written {
            written::KeyFormat::Utf8 => return Some(KeyFormat::Utf8),
            written::KeyFormat::Uuid => return Some(KeyFormat::Uuid),
            written::KeyFormat::Integer => return Some(KeyFormat::Integer),
            written::KeyFormat::Json => return Some(KeyFormat::Json),
            written::KeyFormat::Regex(pattern) => pattern,
        };
        // Compiled by itself first: a stray parenthesis must not close the group that anchors it.
        let compile = |pattern: &str| regex::RegexBuilder::new(pattern).size_limit(defaults::REGEX_SIZE_LIMIT).build();
        match compile(pattern).and_then(|_| compile(&format!(r"\A(?:{pattern})\z"))) {
            Ok(regex) => Some(KeyFormat::Regex(regex)),
            Err(error) => {
                let error = error.to_string();
                let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
                let help = "accepted: the syntax of Rust's `regex` crate, without look-around and back-references";
                self.error(&path.key("regex"), format!("the regular expression cannot be used: {reason}"), help);
                None
            }
        }
    }
}
