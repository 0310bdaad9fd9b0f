//! The comparison, with sinks that were filled by hand: rightly, and with each fault that it exists to find.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use serde_json::json;

use super::*;
use crate::demo::model::{Expected, fold};
use crate::demo::profiles::Record;

/// What a gateway left behind, in the files and at the receiver.
struct Left {
    dir: Directory,
    receiver: Receiver,
    produced: Vec<Produced>,
    _temp: tempfile::TempDir,
}

/// One customer stays, one is deleted, one withdraws consent, and one record has no key.
fn produced() -> Vec<Produced> {
    let record = |offset, key: &str, value: Option<&str>| {
        let value = value.map(|value| value.as_bytes().to_vec());
        Produced { record: Record { partition: 0, key: Some(key.as_bytes().to_vec()), value }, offset }
    };
    let mut records = vec![
        record(0, "user-000001", Some(r#"{"email":"a@b.example","consent":true}"#)),
        record(1, "user-000002", Some(r#"{"consent":true}"#)),
        record(2, "user-000002", None),
        record(3, "user-000003", Some(r#"{"consent":true}"#)),
        record(4, "user-000003", Some(r#"{"consent":false}"#)),
        record(5, "", Some(r#"{"consent":true}"#)),
    ];
    records[5].record.key = None;
    records
}

/// Writes what `expected` says to every sink, as the sinks' documentation has it.
async fn left(expected: &Expected) -> Left {
    let temp = tempfile::tempdir().unwrap();
    let dir = Directory::prepare(&temp.path().join("demo")).unwrap();
    let database = Connection::open(dir.database()).unwrap();
    database.execute_batch("CREATE TABLE profiles (key, value)").unwrap();
    let receiver = Receiver::start().await.unwrap();
    let client = reqwest::Client::new();
    for (key, value) in &expected.state {
        let text = std::str::from_utf8(value).unwrap();
        database.execute("INSERT INTO profiles VALUES (?, ?)", (key, text)).unwrap();
        client.put(format!("{}/{key}", receiver.url())).body(value.clone()).send().await.unwrap();
    }
    let line = |((partition, offset), (key, value)): (&model::Position, &(String, Option<Vec<u8>>))| {
        let value = value.as_deref().map_or("null", |value| std::str::from_utf8(value).unwrap());
        format!("{{\"partition\":{partition},\"offset\":{offset},\"key\":\"{key}\",\"value\":{value}}}\n")
    };
    fs::create_dir(dir.audit()).unwrap();
    fs::write(dir.audit().join("t-0.ndjson"), expected.log.iter().map(line).collect::<String>()).unwrap();
    for sink in directory::SINKS {
        let path = dir.dead_letters(sink);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let letters = expected.dead.iter().map(|((partition, offset), stage)| {
            format!("{}\n", json!({ "stage": stage, "partition": partition, "offset": offset, "value": null }))
        });
        fs::write(path, letters.collect::<String>()).unwrap();
    }
    Left { dir, receiver, produced: produced(), _temp: temp }
}

impl Left {
    /// The places that differ, with missing, extra, different and repeated.
    fn differences(&self) -> Vec<(String, [usize; 4])> {
        let comparisons = compare_all(&self.dir, &self.receiver, &self.produced).unwrap();
        let code = compare_and_tell(&self.dir, &self.receiver, &self.produced, Duration::ZERO).unwrap();
        let unequal: Vec<_> = comparisons.into_iter().filter(|c| !c.is_equal()).collect();
        assert_eq!(code == ExitCode::SUCCESS, unequal.is_empty(), "the exit code tells");
        unequal
            .into_iter()
            .map(|c| (c.place, [c.missing.count, c.extra.count, c.different.count, c.repeated.count]))
            .collect()
    }

    fn sql(&self, statement: &str) {
        assert_eq!(Connection::open(self.dir.database()).unwrap().execute(statement, ()).unwrap(), 1);
    }

    fn edit(&self, path: &Path, edit: impl Fn(&str) -> String) {
        let text = fs::read_to_string(path).unwrap();
        let edited = edit(&text);
        assert_ne!(text, edited);
        fs::write(path, edited).unwrap();
    }
}

async fn right() -> Left {
    left(&fold(&produced())).await
}

#[tokio::test]
async fn sinks_that_hold_what_they_should_are_equal() {
    let left = right().await;
    assert_eq!(left.differences(), []);
    assert_eq!(left.receiver.state()["user-000001"], br#"{"email":"***@b.example","consent":true}"#);
}

/// Everything that follows from one delete that was never delivered.
#[tokio::test]
async fn a_build_that_skips_a_delete_is_caught_at_every_sink() {
    let mut skipping = produced();
    skipping.remove(2);
    let left = left(&fold(&skipping)).await;
    assert_eq!(
        left.differences(),
        [
            ("SQLite table".to_owned(), [0, 1, 0, 0]),
            ("file".to_owned(), [1, 0, 0, 0]),
            ("HTTP receiver".to_owned(), [0, 1, 0, 0]),
        ]
    );
}

#[tokio::test]
async fn a_build_that_forgets_what_the_filter_drops_is_caught_where_state_is_kept() {
    let mut forgetting = produced();
    forgetting.remove(4);
    let left = left(&fold(&forgetting)).await;
    let places: Vec<_> = left.differences().into_iter().map(|(place, _)| place).collect();
    assert_eq!(places, ["SQLite table", "HTTP receiver"]);
}

#[tokio::test]
async fn each_fault_of_one_place_shows_there_and_nowhere_else() {
    let at = |place: &str, counts| [(place.to_owned(), counts)];

    let left = right().await;
    left.sql("DELETE FROM profiles");
    assert_eq!(left.differences(), at("SQLite table", [1, 0, 0, 0]));

    let left = right().await;
    left.sql(r#"UPDATE profiles SET value = '{"email":"a@b.example","consent":true}'"#);
    assert_eq!(left.differences(), at("SQLite table", [0, 0, 1, 0]), "an address that is not masked");

    let left = right().await;
    let file = left.dir.audit().join("t-0.ndjson");
    left.edit(&file, |text| format!("{text}{}\n", text.lines().next().unwrap()));
    assert_eq!(left.differences(), at("file", [0, 0, 0, 1]), "a line that is there twice");

    let left = right().await;
    let file = left.dir.dead_letters("crm");
    left.edit(&file, |_| String::new());
    assert_eq!(left.differences(), at("dead letters of crm", [1, 0, 0, 0]));

    let left = right().await;
    let file = left.dir.dead_letters("audit");
    left.edit(&file, |text| text.replace("key", "plugin"));
    assert_eq!(left.differences(), at("dead letters of audit", [0, 0, 1, 0]));
}

#[test]
fn demos_that_start_together_listen_on_ports_of_their_own() {
    let (first, second) = (listen(None).unwrap(), listen(None).unwrap());
    let address = first.local_addr().unwrap();
    assert_ne!(second.local_addr().unwrap(), address);
    let error = listen(Some(address)).unwrap_err().to_string();
    assert!(error.contains("`--listen` takes another port, or 0 for any free one"), "{error}");
}
