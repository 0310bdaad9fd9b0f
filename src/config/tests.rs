mod mistakes;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::secret::Secret;

/// The SHA-256 of nothing, which is what the plugins of the tests hold.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const FEWEST_INVALID: usize = 110;
const FEWEST_VALID: usize = 8;

fn env(name: &str) -> Option<OsString> {
    let value = match name {
        "TIDEGATE_TOKEN" => "f0e4c2f76c58916ec258f246851bea09",
        "SHORT" => "abc",
        "WORKERS" => "3",
        "READINESS" => "false",
        "BROKERS" => "kafka-0:9092,kafka-1:9092",
        "BAD_URL" => "https://ops:hunter2hunter2@crm.internal/{key}",
        _ => return None,
    };
    Some(value.into())
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let content: &[u8] = match path.to_str().and_then(|path| path.strip_prefix("/srv/tidegate/")) {
        Some("plugins/mask_fields.wasm" | "plugins/geo.wasm") => b"",
        Some("secrets/kafka") => b"pass: \"word\" # ${env:X}\n",
        Some("secrets/two_lines") => b"first\nsecond\n",
        Some("secrets/binary") => b"\xff\xfe",
        _ => return Err(io::Error::new(io::ErrorKind::NotFound, "no such file")),
    };
    Ok(content.to_owned())
}

/// Speaks as the Kafka source's own check does, about some properties.
fn check_properties(properties: &BTreeMap<String, Secret>) -> Vec<PropertyError> {
    let error = |property: Option<&str>, is_alone: bool, message: String| PropertyError {
        property: property.map(str::to_owned),
        is_alone,
        message,
        help: if property == Some("bootstrap.server") {
            "did you mean `bootstrap.servers`?".to_owned()
        } else {
            String::new()
        },
    };
    let of_one = |(name, value): (&String, &Secret)| {
        let message = match (name.as_str(), value.reveal()) {
            ("group.id" | "enable.auto.commit" | "statistics.interval.ms", _) => format!("`{name}` cannot be set"),
            ("bootstrap.server" | "colour", _) => format!("librdkafka has no property `{name}`"),
            ("fetch.wait.max.ms", "soon") => format!("`{name}`: Invalid value"),
            _ => return None,
        };
        Some(error(Some(name), true, message))
    };
    let mut errors: Vec<_> = properties.iter().filter_map(of_one).collect();
    if properties.get("session.timeout.ms").is_some_and(|timeout| timeout.reveal().len() > 6) {
        errors.push(error(None, false, "`max.poll.interval.ms` must be >= `session.timeout.ms`".to_owned()));
    }
    if properties.get("security.protocol").is_some_and(|protocol| protocol.reveal() == "sasl_plaintext")
        && !properties.contains_key("sasl.mechanism")
    {
        errors.push(error(Some("sasl.mechanism"), false, "`sasl.mechanism` is missing".to_owned()));
    }
    errors
}

/// Speaks as a standard plugin would, about some configurations.
fn check_plugin(plugin: &PluginUse) -> Result<bool, Vec<PluginError>> {
    let error = |path: KeyPath, message: &str| PluginError { path, message: message.to_owned(), help: String::new() };
    let config: Value = serde_json::from_str(&plugin.config).unwrap();
    let unknown = ["colour", "fieds", "slat", "uid"];
    let keys = config.as_object().into_iter().flat_map(|config| config.keys());
    let mut errors: Vec<_> = keys
        .filter(|key| unknown.contains(&key.as_str()))
        .map(|key| error(KeyPath::root().key("config").key(key), &format!("unknown key `{key}`")))
        .collect();
    if plugin.limits.memory < 1 << 20 {
        errors.push(error(KeyPath::root().key("limits").key("memory"), "it cannot start"));
    }
    if errors.is_empty() { Ok(config.get("changes_keys").is_some()) } else { Err(errors) }
}

fn outside() -> Outside<'static> {
    Outside {
        base_dir: PathBuf::from("/srv/tidegate"),
        env: &env,
        read: &read,
        standard: &|name| (name != "filter").then_some(b"component".as_slice()),
        properties: &check_properties,
        plugin: &check_plugin,
    }
}

fn load_text(text: &str) -> Result<Loaded, Errors> {
    parse(text, "tidegate.yaml", &outside())
}

fn valid(text: &str) -> Config {
    load_text(text).unwrap_or_else(|errors| panic!("{errors}")).config
}

fn configs(directory: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs").join(directory);
    let entries = fs::read_dir(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Compares with the file, or renews it when `UPDATE_GOLDEN` is set.
fn check_golden(path: &Path, actual: &str) -> Result<(), String> {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, actual).unwrap();
        return Ok(());
    }
    match fs::read_to_string(path) {
        Ok(expected) if expected == actual => Ok(()),
        Ok(expected) => Err(format!("{}:\nexpected:\n{expected}\nactual:\n{actual}", path.display())),
        Err(error) => Err(format!("{}: {error}; set UPDATE_GOLDEN=1 to write it", path.display())),
    }
}

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn every_invalid_configuration_is_refused_with_its_text() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in configs("invalid") {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("yaml") => {
                count += 1;
                let text = fs::read_to_string(&path).unwrap();
                match parse(&text, &name, &outside()) {
                    Ok(_) => wrong.push(format!("{name} is accepted")),
                    Err(errors) => wrong.extend(check_golden(&path.with_extension("err"), &errors.to_string()).err()),
                }
            }
            Some("err") if !path.with_extension("yaml").exists() => wrong.push(format!("{name} has no configuration")),
            Some("err") => {}
            _ => wrong.push(format!("{name} is neither a configuration nor an expectation")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(count >= FEWEST_INVALID, "only {count} invalid configurations");
}

#[test]
fn every_valid_configuration_is_accepted() {
    let paths = configs("valid");
    for path in &paths {
        let text = fs::read_to_string(path).unwrap();
        if let Err(errors) = parse(&text, &path.file_name().unwrap().to_string_lossy(), &outside()) {
            panic!("{errors}");
        }
    }
    assert!(paths.len() >= FEWEST_VALID);
}

#[test]
fn the_schema_and_its_reference_change_only_on_purpose() {
    let text = format!("{}\n", serde_json::to_string_pretty(schema()).unwrap());
    check_golden(&in_repository("tests/golden/config-schema.json"), &text).unwrap();
    check_golden(&in_repository("docs/reference/configuration.md"), &reference_markdown()).unwrap();
}

#[test]
fn the_examples_and_defaults_of_the_schema_are_valid() {
    fn walk(validator_root: &Value, schema: &Value, count: &mut usize) {
        let samples = schema.get("examples").and_then(Value::as_array).into_iter().flatten();
        for sample in samples.chain(schema.get("default")) {
            let mut single = schema.clone();
            single.as_object_mut().unwrap().insert("$defs".to_owned(), validator_root["$defs"].clone());
            let validator = jsonschema::validator_for(&single).unwrap();
            assert!(validator.is_valid(sample), "{sample} for {schema}");
            *count += 1;
        }
        let children: Vec<&Value> = match schema {
            Value::Object(object) => object.values().collect(),
            Value::Array(items) => items.iter().collect(),
            _ => Vec::new(),
        };
        children.into_iter().for_each(|child| walk(validator_root, child, count));
    }
    let mut count = 0;
    walk(schema(), schema(), &mut count);
    assert!(count > 30, "{count}");
}

const MINIMAL: &str = r#"
version: 1
clusters: { main: { bootstrap.servers: "localhost:9092" } }
routes: { r: { source: { topics: [t] }, sinks: { s: { type: discard } } } }
"#;

#[test]
fn what_is_left_out_has_its_default() {
    let config = valid(MINIMAL);
    assert_eq!(config.memory, 512 << 20);
    assert_eq!(config.data_dir, Path::new("/srv/tidegate/data"));
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:8080");
    let route = &config.routes[0];
    assert_eq!(route.workers.get(), 2);
    assert!(route.readiness);
    assert_eq!(route.dead_letter.for_lane("s"), Path::new("/srv/tidegate/data/dead/r.s.ndjson"));
    let Source::Kafka(kafka) = &route.source else { panic!("{:?}", route.source) };
    assert_eq!((kafka.cluster.as_str(), kafka.group.as_str()), ("main", "tidegate.r"));
    assert_eq!(kafka.start, Start::Earliest);
    assert_eq!(route.keys.missing, MissingKey::DeadLetter);
}

#[test]
fn a_secret_may_hold_any_character() {
    let text = MINIMAL.replace("localhost:9092\"", "localhost:9092\", sasl.password: \"${file:secrets/kafka}\"");
    let config = valid(&text);
    let Source::Kafka(kafka) = &config.routes[0].source else { panic!() };
    assert_eq!(kafka.properties["sasl.password"].reveal(), "pass: \"word\" # ${env:X}");
}

#[test]
fn properties_are_passed_on_as_they_are_written() {
    let properties = "a: 010, b: 1e3, c: 0x10, d: yes, e: True, f: 1.50, g: \"007\"";
    let config = valid(&MINIMAL.replace("localhost:9092\"", &format!("localhost:9092\", {properties}")));
    let Source::Kafka(kafka) = &config.routes[0].source else { panic!() };
    let texts: Vec<&str> = "abcdefg".chars().map(|name| kafka.properties[&name.to_string()].reveal()).collect();
    assert_eq!(texts, ["010", "1e3", "0x10", "yes", "True", "1.50", "007"]);
}

#[test]
fn substituted_text_becomes_a_number_only_where_one_is_wanted() {
    let text = MINIMAL.replace("sinks:", "workers: \"${env:WORKERS}\", readiness: \"${env:READINESS}\", sinks:");
    let config = valid(&text.replace("topics: [t]", "topics: [\"${env:WORKERS}\"]"));
    assert_eq!(config.routes[0].workers.get(), 3);
    assert!(!config.routes[0].readiness);
    let Source::Kafka(kafka) = &config.routes[0].source else { panic!() };
    assert_eq!(kafka.topics, ["3"]);
}

#[test]
fn the_errors_that_others_find_have_their_place_too() {
    let loaded = load_text(MINIMAL).unwrap();
    let mut errors = Errors::new(loaded.document);
    let path = KeyPath::root().key("routes").key("r").key("sinks").key("s").key("nowhere");
    errors.push(&path, "no such thing as `localhost:9092`", "help");
    let error = errors.iter().next().unwrap();
    assert_eq!((error.line, error.path.as_str()), (Some(4), "routes.r.sinks.s.nowhere"));
    assert_eq!(
        serde_json::to_value(&errors).unwrap(),
        json!([{
            "file": "tidegate.yaml", "line": 4, "column": 50, "path": "routes.r.sinks.s.nowhere",
            "message": "no such thing as `localhost:9092`", "help": ["help"],
        }])
    );
}

/// Puts a secret wherever the largest valid configuration has a text, one place at a time: whatever is said about it, the
/// secret is not shown.
#[test]
fn no_error_shows_what_was_substituted() {
    const SECRET: &str = "S3cr3t:/{x}\u{1}";
    let text = fs::read_to_string(in_repository("tests/configs/valid/everything.yaml")).unwrap();
    let outside = Outside { env: &|name| if name == "HIDDEN" { Some(SECRET.into()) } else { env(name) }, ..outside() };
    let (mut places, mut refused) = (0, 0);
    for (start, line) in text.lines().scan(0, |at, line| {
        let start = *at;
        *at += line.len() + 1;
        Some((start, line))
    }) {
        let Some((key, value)) = line.split_once(": ") else { continue };
        if value.starts_with(['{', '[', '&', '*', '|', '#']) {
            continue;
        }
        places += 1;
        let (before, after) = (&text[..start], &text[start + line.len()..]);
        let changed = format!("{before}{key}: \"${{env:HIDDEN}}\"{after}");
        if let Err(errors) = parse(&changed, "tidegate.yaml", &outside) {
            refused += 1;
            let shown = format!("{errors}{}", serde_json::to_string(&errors).unwrap());
            assert!(!shown.contains("S3cr3t"), "{shown}");
        }
    }
    assert!(places > 60 && refused > 30, "{places} places, {refused} refused");
}

#[test]
fn no_error_shows_a_secret_that_is_written_in_the_file() {
    let text = MINIMAL
        .replace("localhost:9092\"", "localhost:9092\", sasl.password: hunter2hunter2, group.id: x")
        .replace("type: discard", "type: http, url: \"ftp://x/{key}\", headers: { X-Key: hunter2hunter2 }");
    let errors = load_text(&text).unwrap_err().to_string();
    assert!(errors.contains("***") && !errors.contains("hunter2"), "{errors}");
    let broken = "version: 1\nsasl.password: \"hunter2\n";
    let errors = load_text(broken).unwrap_err().to_string();
    assert!(!errors.contains("hunter2"), "{errors}");
}

#[test]
fn hostile_text_is_refused_within_its_limits() {
    fn check(text: &str, expected: &str) {
        let errors = load_text(text).unwrap_err().to_string();
        assert!(errors.contains(expected), "{errors}");
    }
    check(&"[".repeat(100_000), "recursion limit exceeded");
    check(&"- ".repeat(1_000), "lists and mappings stand inside each other");
    check(&" ".repeat(yaml::MAX_BYTES + 1), "bytes");
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", [alias.as_str(); 10].join(", ")));
    }
    check(&bomb, "values");
    let mut deep = "a0: &a0 [x]\n".to_owned();
    (1..100).for_each(|level| deep.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1)));
    check(&deep, "lists and mappings stand inside each other");
    check("a: &a [*a]\n", "stands inside of what it repeats");
}

#[test]
fn an_error_in_a_long_line_is_shown_in_short() {
    let list = vec!["profiles"; 900].join(", ");
    let errors = load_text(&MINIMAL.replace("[t]", &format!("[{list}, \"{}\"]", "?".repeat(100_000)))).unwrap_err();
    let longest = errors.to_string().lines().map(|line| line.chars().count()).max();
    assert!(longest.is_some_and(|longest| longest < 1_000), "{longest:?}");
    assert_eq!(errors.iter().len(), 900);
}

#[test]
fn no_more_errors_are_shown_than_anybody_reads() {
    let keys: String = (0..5_000).map(|number| format!("unknown{number}: 1\n")).collect();
    let errors = load_text(&format!("{keys}{MINIMAL}")).unwrap_err();
    assert_eq!(errors.iter().len(), 1_000);
    assert!(errors.to_string().ends_with("\nand 4000 more errors\n"));
}

#[test]
fn a_configuration_is_read_beside_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tidegate.yaml");
    let load = || super::load(&path, &|_| Vec::new(), &|_| Ok(false));
    let error = load().unwrap_err().to_string();
    assert!(error.contains("cannot be read") && error.contains("--config"), "{error}");

    fs::write(&path, MINIMAL.replace("localhost:9092\"", "localhost:9092\", client.id: \"${file:id}\"")).unwrap();
    let error = load().unwrap_err().to_string();
    assert!(error.contains("`id` cannot be read"), "{error}");

    fs::write(directory.path().join("id"), "gateway-7\r\n").unwrap();
    let config = load().unwrap().config;
    let Source::Kafka(kafka) = &config.routes[0].source else { panic!() };
    assert_eq!(kafka.properties["client.id"].reveal(), "gateway-7");
    assert_eq!(config.data_dir, directory.path().join("data"));

    fs::write(&path, b"\xff").unwrap();
    let error = load().unwrap_err().to_string();
    assert!(error.contains("is not UTF-8"), "{error}");
}

#[test]
fn an_alias_repeats_a_value() {
    let text = format!(
        "{MINIMAL}plugins:\n  mask: {{ file: plugins/mask_fields.wasm, sha256: {EMPTY}, limits: &limits {{ memory: 1MiB }} }}\n  geo: {{ file: plugins/geo.wasm, limits: *limits }}\n"
    );
    valid(&text);
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e300..1e300).prop_map(Value::from),
        "\\PC{0,20}|[ \\t\\n:#'\"{}\\[\\],&*!|>%@`~-]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec(("\\PC{1,12}", inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn json_means_the_same_as_yaml(value in json_value(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        prop_assume!(!text.contains("${"));
        let (root, faults) = yaml::parse(&text);
        prop_assert_eq!(&faults, &[], "{}", text);
        let mut faults = Vec::new();
        let (_, parsed) = Document::load("x", &text, root.unwrap(), &outside(), &mut faults);
        let expected: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(parsed, expected, "{}", text);
    }

    #[test]
    fn no_text_makes_it_panic(text in "(version: 1\n|routes:|  a:\n|[ -]{1,4}|[a-z]{1,3}: |\\$\\{env:[A-Z]\\}|\\PC|\n|[\\[\\]{}&*!|>'\"%@#?,:-]){0,40}") {
        if let Err(errors) = load_text(&text) {
            prop_assert!(!errors.to_string().is_empty());
        }
    }
}
