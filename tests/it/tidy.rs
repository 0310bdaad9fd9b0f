//! The walls between the rooms: they rot first.

use std::fs;
use std::path::{Path, PathBuf};

/// A word, and the only places under `src/` that may say it.
const WALLS: &[(&str, &[&str])] = &[
    ("wasmtime::", &["plugin.rs", "plugin/"]),
    ("rdkafka::", &["source/kafka.rs", "source/kafka/", "demo.rs", "demo/", "log.rs"]),
    ("axum::", &["admin.rs", "admin/", "demo.rs", "demo/", "sink/http"]),
    ("rusqlite::", &["sink/sqlite.rs", "sink/sqlite/", "demo.rs", "demo/"]),
    ("reqwest::", &["sink/http.rs", "sink/http/", "cli/remote.rs", "demo.rs", "demo/"]),
    ("clap::", &["cli.rs", "cli/", "demo.rs", "demo/"]),
    ("unsafe {", &["source/kafka/queue.rs", "source/kafka/topic_id.rs", "plugin/cache.rs", "cli/exit.rs"]),
    ("crate::source", &["source.rs", "source/", "route.rs", "route/", "config", "cli/check.rs"]),
    ("crate::sink", &["sink.rs", "sink/", "route.rs", "route/", "gateway.rs", "gateway/", "cli/"]),
    (
        "crate::plugin",
        &[
            "plugin.rs",
            "plugin/",
            "route.rs",
            "route/",
            "gateway.rs",
            "gateway/copy.rs",
            "cli/check.rs",
            "cli/verify.rs",
        ],
    ),
    ("crate::admin", &["admin.rs", "admin/", "cli.rs", "cli/", "demo.rs", "demo/"]),
    ("crate::route", &["route.rs", "route/", "gateway.rs", "gateway/copy.rs"]),
];

#[test]
fn each_room_keeps_its_foreign_words_to_itself() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut trespasses = Vec::new();
    for file in sources(&root) {
        let place = file.strip_prefix(&root).expect("below src").to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).expect("sources are UTF-8");
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for (word, rooms) in WALLS {
                if code.contains(word) && !rooms.iter().any(|room| place.starts_with(room)) {
                    trespasses.push(format!("src/{place}:{}: `{word}` belongs to {rooms:?}", number + 1));
                }
            }
        }
    }
    assert!(trespasses.is_empty(), "\n{}", trespasses.join("\n"));
}

#[test]
fn no_wall_stands_around_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let all: String = sources(&root).iter().map(|file| fs::read_to_string(file).expect("readable")).collect();
    for (word, _) in WALLS {
        assert!(all.contains(word), "nobody says `{word}` any more");
    }
}

#[test]
fn every_unsafe_block_says_why() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in sources(&root) {
        let text = fs::read_to_string(&file).expect("readable");
        let blocks = text.matches("unsafe {").count();
        let reasons = text.matches("SAFETY:").count();
        assert!(reasons >= blocks, "{}: {blocks} unsafe blocks, {reasons} reasons", file.display());
    }
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
