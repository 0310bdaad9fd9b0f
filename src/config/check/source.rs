//! Sources and keys.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::Checker;
use crate::config::checked::{Kafka, KeyFormat, Keys, MissingKey, Ndjson, Source, Start};
use crate::config::outside::PropertyError;
use crate::config::path::KeyPath;
use crate::config::suggest::{accepted, nearest, suggest};
use crate::config::{defaults, written};
use crate::delivery::OnError;
use crate::secret::Secret;

/// The clusters, by name.
pub type Clusters<'a> = IndexMap<&'a str, Cluster<'a>>;

/// A cluster, looked at by itself.
#[derive(Debug)]
pub struct Cluster<'a> {
    written: &'a written::Cluster,
    /// What is wrong with its properties together, which those of a source may mend.
    together: Vec<PropertyError>,
    is_used: bool,
}

/// Where each property stands, by its name.
type Places<'a> = BTreeMap<&'a str, KeyPath>;

impl Checker<'_> {
    /// Looks at each cluster, whether a source reads from it or not.
    pub(super) fn clusters<'a>(&mut self, written: &'a IndexMap<String, written::Cluster>) -> Clusters<'a> {
        let mut clusters = Clusters::new();
        for (name, written) in written {
            let path = of_cluster(name);
            let (_, together) = self.properties(&places_of(&path, written), &[&path]);
            clusters.insert(name, Cluster { written, together, is_used: false });
        }
        clusters
    }

    /// Says what is wrong with clusters that no source reads from. Of the others it was said there.
    pub(super) fn unused(&mut self, clusters: &Clusters<'_>) {
        for (name, cluster) in clusters.iter().filter(|(_, cluster)| !cluster.is_used) {
            let path = of_cluster(name);
            let places = places_of(&path, cluster.written);
            for error in &cluster.together {
                self.contradiction(&path, &places, error);
            }
        }
    }

    pub(super) fn source(
        &mut self,
        path: &KeyPath,
        route: &str,
        written: &written::Source,
        clusters: &mut Clusters<'_>,
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

    fn kafka(&mut self, path: &KeyPath, route: &str, written: &written::Kafka, clusters: &mut Clusters<'_>) -> Kafka {
        for (index, topic) in written.topics.iter().enumerate() {
            let place = path.key("topics").index(index);
            self.topic(&place, topic);
            if written.topics[..index].contains(topic) {
                self.error(&place, format!("the topic `{topic}` is listed twice"), "keep one of the two");
            }
        }
        let cluster = self.cluster(path, written.cluster.as_deref(), clusters);
        let properties = self.source_properties(path, written, cluster.as_deref(), clusters);
        Kafka {
            cluster: cluster.unwrap_or_default(),
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

    /// Those of the source go before those of the cluster.
    fn source_properties(
        &mut self,
        path: &KeyPath,
        written: &written::Kafka,
        name: Option<&str>,
        clusters: &mut Clusters<'_>,
    ) -> BTreeMap<String, Secret> {
        let own = path.key("properties");
        let of_source = written.properties.keys().map(|name| (name.as_str(), own.key(name)));
        let Some((name, cluster)) = name.and_then(|name| Some((name, clusters.get_mut(name)?))) else {
            // What a property is worth by itself can be told without the cluster.
            return self.properties(&of_source.collect(), &[]).0;
        };
        let beside = of_cluster(name);
        let mut places = places_of(&beside, cluster.written);
        places.extend(of_source);
        let (properties, together) = self.properties(&places, &[&beside, &own]);
        // A source that is not as it is written says nothing of how the cluster is used.
        cluster.is_used |= !self.is_gone(&own);
        for error in &together {
            let mapping = if cluster.together.contains(error) { &beside } else { &own };
            self.contradiction(mapping, &places, error);
        }
        properties
    }

    /// Takes the properties as they are written: librdkafka reads text, and `1e3` or `0x10` are not what JSON makes of them.
    ///
    /// What is wrong with each is said. What is wrong with them together is returned, unless it is about one that is not as
    /// it is written, or one of `mappings`, which hold them all, is not.
    fn properties(
        &mut self,
        places: &Places<'_>,
        mappings: &[&KeyPath],
    ) -> (BTreeMap<String, Secret>, Vec<PropertyError>) {
        let (unknown, known): (Places<'_>, Places<'_>) =
            places.iter().map(|(name, place)| (*name, place.clone())).partition(|(_, place)| self.is_gone(place));
        let text = |place: &KeyPath| Secret::new(self.document.text(place).unwrap_or_default());
        let properties = known.iter().map(|(name, place)| ((*name).to_owned(), text(place))).collect();
        let mut together = (self.outside.properties)(&properties);
        for error in together.extract_if(.., |error| error.is_alone) {
            if let Some(place) = error.property.as_deref().and_then(|name| known.get(name)) {
                self.error(place, error.message, error.help);
            }
        }
        together.retain(|error| {
            let is_about = |name: &&str| error.property.as_deref() == Some(*name) || error.message.contains(*name);
            !unknown.keys().any(is_about)
        });
        if mappings.is_empty() || mappings.iter().any(|mapping| self.is_gone(mapping)) {
            together.clear();
        }
        (properties, together)
    }

    /// Says what is wrong with properties together: at the one that is meant, at `mapping` where it is missing or where
    /// several are.
    fn contradiction(&mut self, mapping: &KeyPath, places: &Places<'_>, error: &PropertyError) {
        match &error.property {
            Some(property) => {
                let place = places.get(property.as_str()).cloned().unwrap_or_else(|| mapping.key(property));
                self.error(&place, &error.message, &error.help);
            }
            None => {
                let message = format!("the properties contradict one another: {}", error.message);
                self.error(mapping, message, &error.help);
            }
        }
    }

    /// The name of the cluster that is meant.
    fn cluster(&mut self, path: &KeyPath, written: Option<&str>, clusters: &Clusters<'_>) -> Option<String> {
        let place = path.key("cluster");
        let names: Vec<&str> = clusters.keys().copied().collect();
        if self.is_gone(&KeyPath::root().key("clusters")) || self.is_gone(&place) {
            return None;
        }
        match (written, names.as_slice()) {
            (Some(cluster), []) => {
                let help = format!("add it: `clusters: {{ {cluster}: {{ bootstrap.servers: \"localhost:9092\" }} }}`");
                self.error(&place, format!("there is no cluster `{cluster}`"), help);
                None
            }
            (Some(cluster), names) if !names.contains(&cluster) => {
                self.error(&place, format!("there is no cluster `{cluster}`"), suggest(cluster, names));
                nearest(cluster, names).map(str::to_owned)
            }
            (Some(cluster), _) => Some(cluster.to_owned()),
            (None, [only]) => Some((*only).to_owned()),
            (None, []) => {
                let help = "add one: `clusters: { main: { bootstrap.servers: \"localhost:9092\" } }`";
                self.error(&place, "there is no cluster to read from", help);
                None
            }
            (None, several) => {
                self.error(&place, "`cluster` is missing, and there are several", accepted(several));
                None
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
            self.conflict(&path.key("malformed"), &["format"], "`malformed` has no meaning without `format`", help);
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

fn of_cluster(name: &str) -> KeyPath {
    KeyPath::root().key("clusters").key(name)
}

fn places_of<'a>(path: &KeyPath, cluster: &'a written::Cluster) -> Places<'a> {
    let names = ["bootstrap.servers"].into_iter().chain(cluster.properties.keys().map(String::as_str));
    names.map(|name| (name, path.key(name))).collect()
}
