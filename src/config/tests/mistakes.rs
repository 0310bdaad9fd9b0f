//! No mistake hides another: whatever two mistakes a configuration has, it is told of both as it is told of each alone.

use std::collections::BTreeSet;

use super::*;

/// One mistake in `tests/configs/valid/everything.yaml`.
struct Mistake {
    /// Text that is there once, and what it becomes.
    from: &'static str,
    to: &'static str,
    /// The place that it is told at.
    at: &'static str,
}

const fn mistake(at: &'static str, from: &'static str, to: &'static str) -> Mistake {
    Mistake { from, to, at }
}

const FROM_THE_CLUSTER: &str = "    client.rack: eu-1a\n";

/// At least one of each kind: keys, shapes, values, references, what goes together, files, plugins, librdkafka; at each
/// level.
const MISTAKES: [Mistake; 68] = [
    mistake("colour", "version: 1\n", "version: 1\ncolour: blue\n"),
    mistake("version", "version: 1\n", "version: 2\n"),
    mistake("data_dir", "data_dir: /var/lib/tidegate", "data_dir: [a]"),
    mistake("memory", "memory: 1GiB", "memory: 64MiB"),
    mistake("memory", "memory: 1GiB", "memory: lots"),
    mistake("log.format", "format: json\n  level", "format: jsno\n  level"),
    mistake("log.level", "level: tidegate=debug,warn", "level: tidegate=loud"),
    mistake("log.leevl", "level: tidegate=debug,warn", "leevl: warn"),
    mistake("shutdown_grace", "shutdown_grace: 20s", "shutdown_grace: 2h"),
    mistake("admin.listen", "listen: 0.0.0.0:8080", "listen: everywhere"),
    mistake("admin.probes", "probes: 0.0.0.0:8081", "probes: 0.0.0.0:8080"),
    mistake("admin.tokens[1].token", "token: 0123456789abcdef0123", "token: \"01234567\""),
    mistake("admin.tokens[1].role", "role: viewer", "role: wiever"),
    mistake("admin.tokens[0].name", "- name: ops\n      role", "- role"),
    mistake("admin.hosts[0]", "hosts: [tidegate.internal", "hosts: [\"tide gate\""),
    mistake("clusters.main[\"bootstrap.servers\"]", "${env:BROKERS}", "${env:NOWHERE}"),
    mistake("clusters.main[\"sasl.username\"]", "sasl.username: tidegate", "sasl.username: [tidegate]"),
    mistake(
        "clusters.main[\"fetch.wait.max.ms\"]",
        FROM_THE_CLUSTER,
        "    fetch.wait.max.ms: soon\n    client.rack: eu-1a\n",
    ),
    mistake("clusters.main[\"group.id\"]", FROM_THE_CLUSTER, "    group.id: mine\n    client.rack: eu-1a\n"),
    mistake("clusters.main", FROM_THE_CLUSTER, "    session.timeout.ms: 60000000\n    client.rack: eu-1a\n"),
    mistake("clusters.main[\"sasl.mechanism\"]", "security.protocol: sasl_ssl", "security.protocol: sasl_plaintext"),
    mistake("plugins.mask.file", "file: plugins/mask_fields.wasm", "file: plugins/not-there.wasm"),
    mistake("plugins.mask.sha256", "sha256: E3B0", "sha256: 0000"),
    mistake("plugins.mask.limits.time", "time: 100ms", "time: 100m"),
    mistake("plugins.mask.limits.memory", "memory: 32MiB", "memory: 1KiB"),
    mistake("plugins.mask.limits.output", "output: 4MiB", "output: 4 megs"),
    mistake("plugins.mask.limits.lgo", "log: 16KiB", "lgo: 16KiB"),
    mistake("routes.profiles.source.cluster", "cluster: main", "cluster: mian"),
    mistake("routes.profiles.source.topics", "      topics: [profiles, profiles-archive]\n", ""),
    mistake("routes.profiles.source.topics[1]", "profiles-archive]", "\"a b\"]"),
    mistake("routes.profiles.source.group", "group: tidegate.profiles.v2", "group: \"\""),
    mistake("routes.profiles.source.start", "start: latest", "start: now"),
    mistake("routes.profiles.source.keys.missing", "missing: halt", "missing: [halt]"),
    mistake("routes.profiles.source.keys.format.regex", "format: uuid", "format: { regex: \"(\" }"),
    mistake("routes.profiles.source.drain_timeout", "drain_timeout: 3s", "drain_timeout: 3h"),
    mistake("routes.profiles.source.properties.colour", "fetch.wait.max.ms: 100", "colour: red"),
    mistake("routes.profiles.plugins[0].use", "- use: std/key-check", "- use: std/key-chekc"),
    mistake("routes.profiles.plugins[0].config.uid", "config: { uuid: true }", "config: { uid: true }"),
    mistake("routes.profiles.plugins[1].on_error", "on_error: halt\n        config", "on_error: pass\n        config"),
    mistake("routes.profiles.plugins[1].config.slat", "salt: \"${env:TIDEGATE_TOKEN}\"", "slat: x"),
    mistake("routes.profiles.plugins[1].limits.memory", "memory: 16MiB", "memory: 64KiB"),
    mistake("routes.profiles.plugins[1].limits.time", "time: 20ms", "time: 20"),
    mistake("routes.profiles.sinks.none.type", "type: discard", "type: discrad"),
    mistake("routes.profiles.sinks.none", "none:\n        type: discard", "none:"),
    mistake("routes.profiles.sinks.audit.path", "audit/{route}/", "audit/{rute}/"),
    mistake("routes.profiles.sinks.audit.rotate.size", "size: 1GB", "size: 1XB"),
    mistake("routes.profiles.sinks.audit.retry.attempts", "attempts: 5", "attempts: 0"),
    mistake("routes.profiles.sinks.table.table", "        table: profiles\n", ""),
    mistake("routes.profiles.sinks.table.columns.email.path", "path: /contact/email", "path: contact.email"),
    mistake("routes.profiles.sinks.table.columns.age.type", "type: integer", "type: 7"),
    mistake("routes.profiles.sinks.table.retry.backoff", "backoff: 50ms", "backoff: 50s"),
    mistake("routes.profiles.sinks.crm.url", "url: \"https://crm.internal:8443/", "url: \"crm.internal/"),
    mistake(
        "routes.profiles.sinks.crm.url",
        "      crm:\n        type: http\n        url: \"https://crm.internal:8443/v1/{key}/profile?tenant=a\"\n",
        "      crm:\n        type: http\n",
    ),
    mistake("routes.profiles.sinks.crm.delete", "delete: DELETE", "delete: TRUNCATE"),
    mistake("routes.profiles.sinks.crm.headers[\"X Api\"]", "Accept: application/json", "X Api: application/json"),
    mistake(
        "routes.profiles.sinks.crm.auth.basic.user",
        "user: tidegate\n            password",
        "user: \"a:b\"\n            password",
    ),
    mistake("routes.profiles.sinks.crm.in_flight", "in_flight: 8", "in_flight: 8000"),
    mistake("routes.profiles.dead_letter.path", "path: dead/profiles.ndjson", "path: dead/"),
    mistake("routes.profiles.workers", "workers: 1", "workers: one"),
    mistake("routes.sample.source.topic", "      topic: profiles\n", ""),
    mistake("routes.sample.sinks.copy.path", "path: copy.ndjson", "path: sample.ndjson"),
    mistake("routes.sample.sinks", "    sinks:\n      copy:\n        type: file\n        path: copy.ndjson\n", ""),
    // A misspelt key hides nothing of what stands below it.
    mistake("cluster", "clusters:\n", "cluster:\n"),
    mistake("plugin", "plugins:\n  mask", "plugin:\n  mask"),
    mistake("plugins.mask.limts", "limits:\n      time: 100ms", "limts:\n      time: 100ms"),
    mistake("routes.profiles.soucre", "source:\n      type: kafka", "soucre:\n      type: kafka"),
    mistake("routes.profiles.snks", "sinks:\n      none", "snks:\n      none"),
    mistake("routes.profiles.sinks.audit.rotat", "rotate:\n", "rotat:\n"),
];

/// Places of which the second is not looked at while the first is wrong: nobody knows what it would be compared with, or
/// what would be asked about it.
const GROUNDLESS: [(&str, &str); 4] = [
    ("admin.listen", "admin.probes"),
    ("plugins.mask.file", "plugins.mask.sha256"),
    ("plugins.mask.file", "routes.profiles.plugins[1].config.slat"),
    ("plugins.mask.file", "routes.profiles.plugins[1].limits.memory"),
];

/// Mistakes that one text can have.
const FEWEST_AT_ONCE: usize = 50;

/// No more pairs than these cannot be made because both change the same text.
const MOST_OVERLAPS: usize = 30;

impl Mistake {
    /// `None` where `text` has not what it changes.
    fn make(&self, text: &str) -> Option<String> {
        (text.matches(self.from).count() == 1).then(|| text.replace(self.from, self.to))
    }
}

/// What is said, whatever lines it stands in: of `memory` without the list of what is needed, which depends on all the rest.
fn told(text: &str) -> BTreeSet<(String, String, Vec<String>)> {
    let errors = match load_text(text) {
        Ok(_) => return BTreeSet::new(),
        Err(errors) => errors,
    };
    let told: BTreeSet<_> = errors
        .iter()
        .map(|error| {
            let help = if error.path == "memory" { Vec::new() } else { error.help.clone() };
            (error.path.clone(), error.message.clone(), help)
        })
        .collect();
    assert_eq!(told.len(), errors.iter().len(), "something is said twice:\n{errors}");
    told
}

fn everything() -> String {
    fs::read_to_string(in_repository("tests/configs/valid/everything.yaml")).unwrap()
}

#[test]
fn each_mistake_is_told_once_at_its_place() {
    for Mistake { from, to, at } in &MISTAKES {
        let text = Mistake { from, to, at }.make(&everything()).unwrap_or_else(|| panic!("`{from}` is not there once"));
        let places: Vec<String> = told(&text).into_iter().map(|(path, ..)| path).collect();
        assert_eq!(places, [*at], "{from} -> {to}\n{}", load_text(&text).unwrap_err());
    }
}

fn is_groundless(first: &Mistake, second: &Mistake) -> bool {
    GROUNDLESS.contains(&(first.at, second.at)) || GROUNDLESS.contains(&(second.at, first.at))
}

#[test]
fn no_mistake_hides_another() {
    let base = everything();
    let texts: Vec<String> = MISTAKES.iter().map(|mistake| mistake.make(&base).unwrap()).collect();
    let alone: Vec<_> = texts.iter().map(|text| told(text)).collect();
    let (mut wrong, mut overlaps) = (Vec::new(), 0);
    for (first, text) in texts.iter().enumerate() {
        for (second, mistake) in MISTAKES.iter().enumerate().skip(first + 1) {
            if is_groundless(&MISTAKES[first], mistake) {
                continue;
            }
            let Some(both) = mistake.make(text) else {
                overlaps += 1;
                continue;
            };
            let (both, expected) = (told(&both), &alone[first] | &alone[second]);
            if both != expected {
                let (hidden, added) = (&expected - &both, &both - &expected);
                let places = (MISTAKES[first].at, mistake.at);
                wrong.push(format!("{places:?}\n    hidden: {hidden:?}\n    added: {added:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} pairs:\n{}", wrong.len(), wrong.join("\n"));
    assert!(overlaps <= MOST_OVERLAPS, "{overlaps} pairs could not be made");
}

/// As many as one configuration can have.
#[test]
fn all_mistakes_are_told_in_one_run() {
    let base = everything();
    let (mut text, mut expected) = (base.clone(), BTreeSet::new());
    let mut made: Vec<&Mistake> = Vec::new();
    for mistake in &MISTAKES {
        if made.iter().any(|other| is_groundless(other, mistake)) {
            continue;
        }
        if let Some(more) = mistake.make(&text) {
            text = more;
            expected.append(&mut told(&mistake.make(&base).unwrap()));
            made.push(mistake);
        }
    }
    assert!(made.len() >= FEWEST_AT_ONCE, "only {} mistakes in\n{text}", made.len());
    let told = told(&text);
    assert_eq!((&expected - &told, &told - &expected), Default::default(), "hidden, and added");
}
