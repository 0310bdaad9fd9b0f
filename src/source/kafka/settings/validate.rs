//! What is wrong with librdkafka properties, found without connecting.

use std::collections::BTreeMap;
use std::fs::File;

use rdkafka::ClientConfig;
use rdkafka::config::FromClientConfig;
use rdkafka::consumer::BaseConsumer;
use rdkafka::error::KafkaError;

use super::names::PROPERTIES;
use super::{RESERVED, consumer};
use crate::config::{PropertyError, nearest};
use crate::secret::Secret;

/// Properties that name a file, which a client that speaks TLS opens at once.
const FILES: [&str; 5] =
    ["ssl.ca.location", "ssl.certificate.location", "ssl.crl.location", "ssl.key.location", "ssl.keystore.location"];

const FILE_EXPECTED: &str =
    "accepted: the path of a file in PEM, relative to the directory that the gateway is started in";

/// What librdkafka can do without a library for Kerberos.
const SASL_MECHANISMS: &str = "accepted: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`";

/// Names from here on are taken for misspelt forms of one another (Jaro-Winkler).
const MISSPELT: f64 = 0.95;

/// Asks librdkafka about `properties`, without connecting: names, values, and whether a client can be made of them.
/// Values, which may be secrets, are not repeated.
pub fn validate(properties: &BTreeMap<String, Secret>) -> Vec<PropertyError> {
    let mut sound = properties.clone();
    let mut errors: Vec<_> = properties.iter().filter_map(|(name, value)| validate_property(name, value)).collect();
    let is_reserved = |name: &str| RESERVED.iter().any(|(reserved, _)| *reserved == name);
    let mut doubtful = Vec::new();
    for name in errors.iter().filter_map(|error| error.property.as_deref()) {
        sound.remove(name);
        // What cannot be set anyway has no part in how the others go together.
        if !is_reserved(name) {
            doubtful.push(name.to_owned());
        }
    }
    // What follows from a property that is wrong, or misspelt, was said with it.
    let follows = |error: &PropertyError| {
        let mut named = words(&error.message).chain(error.property.as_deref());
        named.any(|named| doubtful.iter().any(|doubtful| strsim::jaro_winkler(named, doubtful) >= MISSPELT))
    };
    errors.extend(validate_together(sound).into_iter().filter(|error| !follows(error)));
    errors
}

/// How properties go together of which each is good by itself. What librdkafka says badly is looked at first, and left out
/// of what it is asked.
fn validate_together(mut properties: BTreeMap<String, Secret>) -> Vec<PropertyError> {
    let protocol = properties.get("security.protocol").map_or("", |protocol| protocol.reveal()).to_ascii_lowercase();
    let mut errors = Vec::new();
    if protocol.ends_with("ssl") {
        for name in FILES {
            let Some(path) = properties.get(name).map(Secret::reveal).filter(|path| *path != "probe") else { continue };
            if let Err(error) = File::open(path) {
                errors.push(PropertyError {
                    property: Some(name.to_owned()),
                    is_alone: false,
                    message: format!("the file of `{name}` cannot be read: {error}"),
                    help: FILE_EXPECTED.to_owned(),
                });
                properties.remove(name);
            }
        }
    }
    if !protocol.starts_with("sasl")
        && let Some(name) =
            ["sasl.mechanism", "sasl.mechanisms", "sasl.username"].iter().find(|name| properties.contains_key(**name))
    {
        errors.push(PropertyError {
            property: Some((*name).to_owned()),
            is_alone: false,
            message: format!("`{name}` has no effect: `security.protocol` does not ask for SASL"),
            help: "accepted with it: `security.protocol: SASL_SSL`, or `SASL_PLAINTEXT` without encryption".to_owned(),
        });
    }
    if protocol.starts_with("sasl") {
        let missing = validate_sasl(&properties);
        if !missing.is_empty() {
            let without = if protocol.ends_with("ssl") { "ssl" } else { "plaintext" };
            properties.insert("security.protocol".to_owned(), Secret::new(without));
            errors.extend(missing);
        }
    }
    let mut config = consumer(&properties, "check", 0);
    // Without an address librdkafka connects to nothing.
    for name in ["bootstrap.servers", "metadata.broker.list", "group.id"] {
        config.remove(name);
    }
    // A client without an address says so in its log, which is no news here.
    config.set("log_level", "0");
    if let Err(error) = BaseConsumer::from_config(&config) {
        errors.push(in_words(&mask(&describe(error), properties.values()), &properties));
    }
    errors
}

/// Why no client can be made of `properties`.
fn in_words(text: &str, properties: &BTreeMap<String, Secret>) -> PropertyError {
    let is_named = |name: &&String| words(text).any(|word| word == *name);
    let mut named = properties.keys().filter(is_named);
    let property = named.next().filter(|_| named.next().is_none()).cloned();
    // What OpenSSL says: `ssl.ca.location failed: error:05800088:x509 certificate routines::no certificate found`.
    let failed = property.as_ref().and_then(|name| text.strip_prefix(name.as_str())?.strip_prefix(" failed: "));
    match (&property, failed) {
        (Some(name), Some(failed)) => PropertyError {
            message: format!("`{name}` cannot be used: {}", failed.rsplit("::").next().unwrap_or(failed)),
            help: if FILES.contains(&name.as_str()) { FILE_EXPECTED.to_owned() } else { String::new() },
            property,
            is_alone: false,
        },
        // librdkafka forgets a blank after the name.
        _ => PropertyError { message: text.replace("`must", "` must"), help: String::new(), property, is_alone: false },
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')))
}

/// What SASL needs and librdkafka has no default for that works.
fn validate_sasl(properties: &BTreeMap<String, Secret>) -> Vec<PropertyError> {
    let mechanisms = ["sasl.mechanism", "sasl.mechanisms"];
    let Some((name, mechanism)) = mechanisms.iter().find_map(|name| Some((*name, properties.get(*name)?))) else {
        return vec![PropertyError {
            property: Some("sasl.mechanism".to_owned()),
            is_alone: false,
            message: "`sasl.mechanism` is missing: `security.protocol` asks for SASL".to_owned(),
            help: SASL_MECHANISMS.to_owned(),
        }];
    };
    match mechanism.reveal() {
        "OAUTHBEARER" => Vec::new(),
        "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512" => {
            let missing = |name: &&str| !properties.contains_key(*name);
            let error = |missing: &str| PropertyError {
                property: Some(missing.to_owned()),
                is_alone: false,
                message: format!("`{missing}` is missing: `{name}` asks for it"),
                help: "secrets come from `${env:NAME}` or `${file:PATH}`".to_owned(),
            };
            ["sasl.username", "sasl.password"].iter().filter(|name| missing(name)).map(|name| error(name)).collect()
        }
        _ => vec![PropertyError {
            property: Some(name.to_owned()),
            is_alone: false,
            message: format!("`{name}` names a mechanism that this program does not speak"),
            help: SASL_MECHANISMS.to_owned(),
        }],
    }
}

fn validate_property(name: &str, value: &Secret) -> Option<PropertyError> {
    let error = |message: String, help: String| {
        Some(PropertyError { property: Some(name.to_owned()), is_alone: true, message, help })
    };
    if let Some((_, reason)) = RESERVED.iter().find(|(reserved, _)| *reserved == name) {
        return error(format!("`{name}` cannot be set: {reason}"), String::new());
    }
    if name.contains('\0') || value.reveal().contains('\0') {
        return error(format!("`{}` holds a zero byte", name.replace('\0', "\\0")), String::new());
    }
    let mut config = ClientConfig::new();
    config.set(name, value.reveal());
    let text = describe(config.create_native_config().err()?);
    if text.starts_with("No such configuration property") {
        let near = nearest(name, &PROPERTIES.map(|(known, _)| known)).map(|near| format!("did you mean `{near}`?\n"));
        let help = "accepted: what the `CONFIGURATION.md` of librdkafka lists for consumers";
        return error(format!("librdkafka has no property `{name}`"), near.unwrap_or_default() + help);
    }
    let accepted = PROPERTIES.iter().find(|(known, values)| *known == name && !values.is_empty());
    match accepted {
        Some((_, values)) if !text.contains("not supported in this build") => {
            error(format!("`{name}` cannot be set to this"), format!("accepted: {values}"))
        }
        _ => error(format!("`{name}` cannot be set to this: {}", mask(text.trim_end(), [value])), String::new()),
    }
}

fn describe(error: KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, description, ..) => description,
        KafkaError::ClientCreation(description) => description,
        other => other.to_string(),
    }
}

/// librdkafka repeats values in its messages.
fn mask<'a>(message: &str, values: impl IntoIterator<Item = &'a Secret>) -> String {
    values.into_iter().map(Secret::reveal).filter(|value| !value.is_empty()).fold(message.to_owned(), |text, value| {
        text.replace(&format!("\"{value}\""), "\"***\"").replace(&format!("'{value}'"), "'***'")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> BTreeMap<String, Secret> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect()
    }

    fn check(pairs: &[(&str, &str)], expected: &[(Option<&str>, &str)]) {
        let errors = validate(&properties(pairs));
        let errors: Vec<_> = errors.iter().map(|e| (e.property.as_deref(), e.message.as_str())).collect();
        assert_eq!(errors, expected);
    }

    #[test]
    fn good_properties_are_accepted_without_connecting() {
        check(
            &[
                ("bootstrap.servers", "localhost:1"),
                ("security.protocol", "sasl_plaintext"),
                ("sasl.mechanism", "PLAIN"),
                ("sasl.username", "u"),
                ("sasl.password", "p"),
            ],
            &[],
        );
        check(&[("group.protocol", "consumer"), ("group.instance.id", "a")], &[]);
        check(&[("partition.assignment.strategy", "range")], &[]);
    }

    #[test]
    fn unknown_and_invalid_properties_are_named_without_their_values() {
        check(
            &[("bootstrap.severs", "x"), ("fetch.wait.max.ms", "s3cret")],
            &[
                (Some("bootstrap.severs"), "librdkafka has no property `bootstrap.severs`"),
                (Some("fetch.wait.max.ms"), "`fetch.wait.max.ms` cannot be set to this"),
            ],
        );
    }

    #[test]
    fn reserved_properties_say_why() {
        check(
            &[("enable.auto.commit", "true")],
            &[(
                Some("enable.auto.commit"),
                "`enable.auto.commit` cannot be set: the gateway commits what its sinks have finished",
            )],
        );
    }

    #[test]
    fn properties_that_contradict_one_another_are_found() {
        let errors = validate(&properties(&[("session.timeout.ms", "60000"), ("max.poll.interval.ms", "1000")]));
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].property, None);
        assert!(errors[0].message.contains("max.poll.interval.ms"), "{}", errors[0].message);
    }

    /// What cannot be set anyway hides nothing.

    #[test]
    fn a_reserved_property_hides_no_contradiction() {
        let pairs =
            [("statistics.interval.ms", "5"), ("session.timeout.ms", "60000"), ("max.poll.interval.ms", "1000")];
        check(
            &pairs,
            &[
                (
                    Some("statistics.interval.ms"),
                    "`statistics.interval.ms` cannot be set: lag and progress are known from it",
                ),
                (None, "`max.poll.interval.ms` must be >= `session.timeout.ms`"),
            ],
        );
    }

    /// A property that is misspelt or has a wrong value is what is wrong, not what goes with it.

    #[test]
    fn what_follows_from_a_wrong_property_is_not_said() {
        let misspelt = "librdkafka has no property `sasl.mechansim`";
        check(&[("security.protocol", "sasl_ssl"), ("sasl.mechansim", "PLAIN")], &[(Some("sasl.mechansim"), misspelt)]);
        check(
            &[("session.timeout.ms", "400000"), ("max.poll.interval.ms", "long")],
            &[(Some("max.poll.interval.ms"), "`max.poll.interval.ms` cannot be set to this")],
        );
    }

    #[test]
    fn what_sasl_needs_is_told_by_name() {
        check(
            &[("security.protocol", "SASL_SSL")],
            &[(Some("sasl.mechanism"), "`sasl.mechanism` is missing: `security.protocol` asks for SASL")],
        );
        check(
            &[("security.protocol", "sasl_plaintext"), ("sasl.mechanisms", "SCRAM-SHA-512"), ("sasl.username", "u")],
            &[(Some("sasl.password"), "`sasl.password` is missing: `sasl.mechanisms` asks for it")],
        );
        check(
            &[("security.protocol", "sasl_ssl"), ("sasl.mechanism", "GSSAPI")],
            &[(Some("sasl.mechanism"), "`sasl.mechanism` names a mechanism that this program does not speak")],
        );
        check(&[("security.protocol", "sasl_ssl"), ("sasl.mechanism", "OAUTHBEARER")], &[]);
        // Without SASL nobody asks for it.
        check(&[("security.protocol", "ssl")], &[]);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_told_at_its_property() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let path = path.to_str().unwrap();
        let pairs = [("security.protocol", "ssl"), ("ssl.ca.location", path)];
        let missing = "the file of `ssl.ca.location` cannot be read: No such file or directory (os error 2)";
        check(&pairs, &[(Some("ssl.ca.location"), missing)]);
        std::fs::write(path, "no certificate").unwrap();
        let wrong = "`ssl.ca.location` cannot be used: no certificate or crl found";
        check(&pairs, &[(Some("ssl.ca.location"), wrong)]);
        // Nothing opens it.
        check(&[("ssl.ca.location", path)], &[]);
        check(&[("security.protocol", "ssl"), ("ssl.ca.location", "probe")], &[]);
    }

    #[test]
    fn help_says_what_is_accepted() {
        fn check(name: &str, value: &str, expected: &str) {
            let errors = validate(&properties(&[(name, value)]));
            assert_eq!(errors.iter().map(|error| error.help.as_str()).collect::<Vec<_>>(), [expected]);
        }
        check("security.protocol", "tls", "accepted: `plaintext`, `ssl`, `sasl_plaintext`, `sasl_ssl`");
        check("session.timeout.ms", "6000000", "accepted: 1 to 3600000");
        check("check.crcs", "maybe", "accepted: `true`, `false`");
        check(
            "bootstrap.severs",
            "x",
            "did you mean `bootstrap.servers`?\naccepted: what the `CONFIGURATION.md` of librdkafka lists for consumers",
        );
    }

    #[test]
    fn every_listed_property_is_one_of_librdkafka() {
        for (name, _) in PROPERTIES {
            let error = ClientConfig::new().set(name, "\u{1}").create_native_config().err();
            let text = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(!text.contains("No such configuration property"), "{name}");
        }
    }
}
