use super::*;
use crate::config::{Column, ColumnType, OnDrop, OnReject, SinkKind};
use crate::delivery::{Fate, OnError};
use crate::record::{Batch, NextOffset, TopicPartition};
use crate::sink::RowError;
use crate::sink::testing::{Lane, Row, delete, put, rejected};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

fn settings(dir: &Path, columns: &[(&str, &str, ColumnType)]) -> Settings {
    let columns = columns.iter().map(|(name, pointer, kind)| Column {
        name: (*name).to_owned(),
        pointer: (*pointer).to_owned(),
        kind: *kind,
    });
    Settings { path: dir.join("x.db"), table: "people".to_owned(), columns: columns.collect(), cache: 1 << 20 }
}

struct Fixture {
    dir: tempfile::TempDir,
    settings: Settings,
    lane: Lane,
    sink: Option<Sqlite>,
}

impl Fixture {
    fn new() -> Self {
        Self::with(&[], |_| {}, false)
    }

    fn with(columns: &[(&str, &str, ColumnType)], change: impl FnOnce(&mut Sink), changes_keys: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path(), columns);
        let mut lane = Lane::with(dir.path(), SinkKind::Sqlite(settings.clone()), change);
        lane.context.changes_keys = changes_keys;
        let sink = Some(Sqlite::open(&settings, &lane.context).unwrap());
        Self { dir, settings, lane, sink }
    }

    fn reopen(&mut self) -> anyhow::Result<()> {
        self.sink = None;
        self.sink = Some(Sqlite::open(&self.settings, &self.lane.context)?);
        Ok(())
    }

    fn reopening_fails(&mut self) -> String {
        format!("{:#}", self.reopen().expect_err("the database does not fit"))
    }

    fn sink(&mut self) -> &mut Sqlite {
        self.sink.as_mut().unwrap()
    }

    fn write(&mut self, rows: &[Row<'_>]) -> Result<(), WriteError> {
        let delivery = self.lane.delivery("t", 0, rows);
        self.sink().write(&[delivery])
    }

    fn refused(&mut self, rows: &[Row<'_>]) -> Vec<RowError> {
        match self.write(rows) {
            Err(WriteError::Rows(rows)) => rows,
            other => panic!("{other:?}"),
        }
    }

    /// Reads as any client would, beside the running sink.
    fn query(&self, sql: &str) -> Vec<String> {
        let connection = Connection::open(&self.settings.path).unwrap();
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            let cells: Result<Vec<String>, _> = (0..columns)
                .map(|index| {
                    row.get::<_, rusqlite::types::Value>(index).map(|value| match value {
                        rusqlite::types::Value::Null => "NULL".to_owned(),
                        rusqlite::types::Value::Integer(number) => number.to_string(),
                        rusqlite::types::Value::Real(number) => format!("{number:?}"),
                        rusqlite::types::Value::Text(text) => format!("{text:?}"),
                        rusqlite::types::Value::Blob(blob) => format!("{blob:02x?}"),
                    })
                })
                .collect();
            cells.map(|cells| cells.join(" "))
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    fn rows(&self) -> Vec<String> {
        self.query("SELECT key, value FROM people ORDER BY key")
    }
}

#[test]
fn the_last_version_of_a_key_in_a_batch_decides() {
    let mut f = Fixture::new();
    f.write(&[put(0, "a", "1"), delete(1, "a"), put(2, "b", "1"), put(3, "a", "2"), delete(4, "b")]).unwrap();
    assert_eq!(f.rows(), ["\"a\" \"2\""]);
    assert_eq!(f.lane.context.metrics.coalesced.get(), 3);
    f.write(&[delete(5, "a"), delete(6, "never")]).unwrap();
    assert!(f.rows().is_empty());
}

#[test]
fn rows_say_where_they_come_from_and_offsets_move_with_them() {
    let mut f = Fixture::new();
    f.write(&[(7, 1234, Some(b"a"), Some(b"x"), Fate::Write), (9, -1, Some(b"b"), Some(b""), Fate::Write)]).unwrap();
    assert_eq!(
        f.query("SELECT key, value, _topic, _partition, _offset, _timestamp, _generation FROM people ORDER BY key"),
        ["\"a\" \"x\" \"t\" 0 7 1234 1", "\"b\" \"\" \"t\" 0 9 -1 1"]
    );
    f.reopen().unwrap();
    assert_eq!(f.sink().positions(), Some(BTreeMap::from([(TopicPartition::new("t", 0), NextOffset(10))])));
}

#[test]
fn bytes_that_are_no_text_are_blobs() {
    let mut f = Fixture::new();
    f.write(&[
        (0, 0, Some(b"\xff"), Some(b"\xfe"), Fate::Write),
        (1, 0, Some(b"a\0"), Some(b"\0"), Fate::Write),
        (2, 0, Some(b""), Some("é".as_bytes()), Fate::Write),
    ])
    .unwrap();
    assert_eq!(f.rows(), ["\"\" \"é\"", "[61, 00] [00]", "[ff] [fe]"]);
    f.write(&[(3, 0, Some(b"\xff"), None, Fate::Write), (4, 0, Some(b"a\0"), None, Fate::Write)]).unwrap();
    assert_eq!(f.rows(), ["\"\" \"é\""]);
}

#[test]
fn a_dropped_version_removes_the_row_unless_it_is_told_not_to() {
    for (on_drop, left) in [(OnDrop::Delete, 0), (OnDrop::Ignore, 1)] {
        let mut f = Fixture::with(&[], |sink| sink.on_drop = on_drop, false);
        f.write(&[put(0, "a", "1")]).unwrap();
        let mut dropped = put(1, "a", "2");
        dropped.4 = Fate::Drop;
        f.write(&[dropped]).unwrap();
        assert_eq!(f.rows().len(), left);
        f.reopen().unwrap();
        assert_eq!(f.sink().positions().unwrap().values().next(), Some(&NextOffset(2)));
    }
}

#[test]
fn a_rejected_version_leaves_the_row_and_counts_or_removes_it() {
    for (on_reject, left, stale) in [(OnReject::Keep, 1, 1), (OnReject::Delete, 0, 0)] {
        let mut f = Fixture::with(&[], |sink| sink.on_reject = on_reject, false);
        f.write(&[put(0, "a", "1")]).unwrap();
        f.write(&[rejected(1, "a", OnError::DeadLetter)]).unwrap();
        assert_eq!(f.rows().len(), left);
        assert_eq!(f.lane.context.metrics.stale.get(), stale);
    }
}

#[test]
fn a_rejected_version_lets_the_one_before_it_in_the_same_batch_through() {
    let mut f = Fixture::new();
    f.write(&[put(0, "a", "1"), rejected(1, "a", OnError::Drop)]).unwrap();
    assert_eq!(f.rows(), ["\"a\" \"1\""]);
}

#[test]
fn a_record_without_a_key_is_refused_and_nothing_moves() {
    let mut f = Fixture::new();
    let refused = f.refused(&[put(0, "a", "1"), (1, 0, None, Some(b"v"), Fate::Write)]);
    assert_eq!(refused.len(), 1);
    assert_eq!((refused[0].delivery, refused[0].row), (0, 1));
    assert!(refused[0].cause.contains("has no key"));
    assert!(f.rows().is_empty());
    assert!(f.query("SELECT * FROM _tidegate_offsets").is_empty());
}

#[test]
fn older_versions_change_nothing_whichever_partition_they_come_from() {
    let mut f = Fixture::new();
    let at =
        |offset, timestamp, value: Option<&'static [u8]>| [(offset, timestamp, Some(&b"k"[..]), value, Fate::Write)];
    let write = |f: &mut Fixture, partition, row: [Row<'_>; 1]| {
        let delivery = f.lane.delivery("t", partition, &row);
        f.sink().write(&[delivery]).unwrap();
        f.rows().pop().unwrap_or_default()
    };
    assert_eq!(write(&mut f, 0, at(5, 100, Some(b"a"))), "\"k\" \"a\"");
    assert_eq!(write(&mut f, 1, at(1, 99, Some(b"b"))), "\"k\" \"a\"");
    assert_eq!(write(&mut f, 1, at(2, 99, None)), "\"k\" \"a\"");
    assert_eq!(write(&mut f, 1, at(3, 101, Some(b"c"))), "\"k\" \"c\"");
    assert_eq!(write(&mut f, 0, at(6, 100, None)), "\"k\" \"c\"");
    assert_eq!(write(&mut f, 1, at(4, 50, Some(b"d"))), "\"k\" \"d\"");
    assert_eq!(write(&mut f, 1, at(5, 40, None)), "");
}

#[test]
fn what_is_read_again_takes_nothing_back() {
    let mut f = Fixture::new();
    let [older, newer] = [put(0, "a", "1"), put(1, "a", "2")].map(|row| f.lane.delivery("t", 0, &[row]));
    let gone = f.lane.delivery("t", 0, &[delete(2, "b")]);
    let put_b = f.lane.delivery("t", 0, &[put(3, "b", "1")]);
    for delivery in [newer, older, put_b, gone] {
        f.sink().write(&[delivery]).unwrap();
    }
    assert_eq!(f.rows(), ["\"a\" \"2\"", "\"b\" \"1\""]);
}

#[test]
fn columns_hold_what_pointers_find() {
    let columns = [
        ("name", "/name", ColumnType::Text),
        ("age", "/age", ColumnType::Integer),
        ("raw \"x\"", "", ColumnType::Json),
    ];
    let mut f = Fixture::with(&columns, |_| {}, false);
    f.write(&[put(0, "a", "{\"name\":\"é\",\"age\":3}"), put(1, "b", "{}")]).unwrap();
    assert_eq!(
        f.query("SELECT key, name, age, \"raw \"\"x\"\"\" FROM people ORDER BY key"),
        ["\"a\" \"é\" 3 \"{\\\"name\\\":\\\"é\\\",\\\"age\\\":3}\"", "\"b\" NULL NULL \"{}\""]
    );
    f.write(&[put(2, "a", "{\"age\":4}"), delete(3, "b")]).unwrap();
    assert_eq!(f.query("SELECT key, name, age FROM people"), ["\"a\" NULL 4"]);
    let refused = f.refused(&[put(4, "a", "{\"age\":\"4\"}"), put(5, "c", "{"), put(6, "a", "{}")]);
    assert_eq!(refused.iter().map(|row| row.row).collect::<Vec<_>>(), [0, 1], "a later version hides no error");
    assert_eq!(refused[0].cause, "column `age` takes integer, and `/age` is a string");
}

#[test]
fn a_rule_that_somebody_gave_the_table_refuses_rows_one_by_one() {
    let mut f = Fixture::new();
    let other = Connection::open(&f.settings.path).unwrap();
    other
        .execute_batch(
            "CREATE TRIGGER no_x BEFORE INSERT ON people WHEN NEW.value = 'x' BEGIN SELECT RAISE(ABORT, 'no x here'); END;
             CREATE TRIGGER no_y BEFORE INSERT ON people WHEN NEW.value = 'y' BEGIN SELECT RAISE(ROLLBACK, 'no y'); END",
        )
        .unwrap();
    let refused = f.refused(&[put(0, "a", "x"), put(1, "b", "1"), put(2, "c", "x")]);
    assert_eq!(refused.iter().map(|row| row.row).collect::<Vec<_>>(), [0, 2]);
    assert!(refused[0].cause.contains("no x here"), "{}", refused[0].cause);
    let refused = f.refused(&[put(3, "a", "y"), put(4, "b", "1")]);
    assert_eq!(refused.len(), 1);
    assert!(f.rows().is_empty(), "nothing is written on its own after a trigger has rolled back");
}

#[test]
fn another_writer_makes_it_wait_and_a_reader_does_not() {
    let mut f = Fixture::new();
    f.write(&[put(0, "a", "1")]).unwrap();
    let other = Connection::open(&f.settings.path).unwrap();
    other.execute_batch("BEGIN; SELECT * FROM people").unwrap();
    f.write(&[put(1, "a", "2")]).unwrap();
    other.execute_batch("COMMIT; BEGIN IMMEDIATE").unwrap();
    assert!(matches!(f.write(&[put(2, "a", "3")]), Err(WriteError::Transient(_))));
    other.execute_batch("COMMIT").unwrap();
    f.write(&[put(3, "a", "3")]).unwrap();
    assert_eq!(f.rows(), ["\"a\" \"3\""]);
}

#[test]
fn a_lost_table_halts() {
    let mut f = Fixture::new();
    Connection::open(&f.settings.path).unwrap().execute_batch("DROP TABLE people").unwrap();
    assert!(matches!(f.write(&[put(2, "a", "3")]), Err(WriteError::Halt(_))));
    let error = f.reopening_fails();
    assert!(error.starts_with("table `people` of ") && error.contains("is gone, and the offsets"), "{error}");
}

#[test]
fn a_database_that_is_gone_is_made_anew_without_positions() {
    let mut f = Fixture::new();
    f.write(&[put(0, "a", "1")]).unwrap();
    f.sink = None;
    std::fs::remove_file(&f.settings.path).unwrap();
    f.reopen().unwrap();
    assert_eq!(f.sink().positions(), Some(Positions::new()));
    assert!(f.rows().is_empty());
}

#[test]
fn a_database_has_one_writer() {
    let mut f = Fixture::new();
    let error = Sqlite::open(&f.settings, &f.lane.context).err().expect("it is taken").to_string();
    assert!(error.contains("is in use by another lane or gateway"), "{error}");
    f.reopen().unwrap();
}

#[test]
fn a_schema_that_no_longer_fits_says_what_differs_and_what_to_do() {
    let mut f = Fixture::with(&[("a", "/a", ColumnType::Text), ("b", "/b", ColumnType::Text)], |_| {}, false);
    let columns = f.settings.columns.clone();
    f.settings.columns[0].kind = ColumnType::Integer;
    f.settings.columns[1].name = "c".to_owned();
    let error = f.reopening_fails();
    for part in [
        "column `a` was `/a` as text, and is `/a` as integer",
        "column `c` is new",
        "column `b` is no longer configured",
        "x.db-wal` and",
        "to have the topic read again from its beginning",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    f.settings.columns = Vec::new();
    assert!(f.reopening_fails().contains("it holds columns, and none are configured"));
    f.settings.columns = columns;
    f.settings.table = "others".to_owned();
    assert!(f.reopening_fails().contains("its table is `people`, and `others` is configured"));
    f.settings.table = "people".to_owned();
    f.lane.context.changes_keys = true;
    assert!(f.reopening_fails().contains("does not keep source keys"));
    f.lane.context.changes_keys = false;
    f.reopen().unwrap();
    Connection::open(&f.settings.path).unwrap().execute_batch("ALTER TABLE people DROP COLUMN a").unwrap();
    assert!(f.reopening_fails().contains("column `a` of table `people` is gone"));
    Connection::open(&f.settings.path)
        .unwrap()
        .execute_batch("ALTER TABLE people ADD COLUMN a TEXT; ALTER TABLE people ADD COLUMN mine TEXT; CREATE INDEX i ON people (a)")
        .unwrap();
    f.reopen().unwrap();
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path(), &[]);
    let lane = Lane::new(dir.path(), SinkKind::Sqlite(settings.clone()));
    Connection::open(&settings.path).unwrap().execute_batch("CREATE TABLE People (x)").unwrap();
    let error = Sqlite::open(&settings, &lane.context).err().expect("a foreign table").to_string();
    assert!(error.contains("that this gateway did not make"), "{error}");
    std::fs::write(&settings.path, "not a database, and long enough to have a header of one hundred bytes".repeat(4))
        .unwrap();
    let error = format!("{:#}", Sqlite::open(&settings, &lane.context).err().expect("no database"));
    assert!(error.contains("as a SQLite database"), "{error}");
}

/// A record's offset, key, and the keys and values of its outputs; `None` = a tombstone.
type Made<'a> = (i64, &'a str, &'a [(&'a str, Option<&'a str>)]);

fn write_outputs(f: &mut Fixture, records: &[Made<'_>]) {
    let partition = TopicPartition::new("t", 0);
    let (mut input, mut rows, mut marks) = (Batch::new(partition.clone()), Batch::new(partition), Vec::new());
    for (index, (offset, key, outputs)) in records.iter().enumerate() {
        input.push(*offset, *offset, Some(key.as_bytes()), Some(b"in"));
        if outputs.is_empty() {
            rows.push(*offset, *offset, Some(key.as_bytes()), Some(b"in"));
            marks.push((index as u32, Fate::Drop));
        }
        for (key, value) in *outputs {
            rows.push(*offset, *offset, Some(key.as_bytes()), value.map(str::as_bytes));
            marks.push((index as u32, Fate::Write));
        }
    }
    let delivery = f.lane.changed(input, rows, marks);
    f.sink().write(&[delivery]).unwrap();
}

#[test]
fn a_new_version_of_a_source_key_replaces_every_row_that_the_old_one_made() {
    let mut f = Fixture::with(&[], |_| {}, true);
    write_outputs(&mut f, &[(0, "s", &[("a", Some("1")), ("b", Some("1"))]), (1, "other", &[("z", Some("1"))])]);
    assert_eq!(
        f.query("SELECT key, _source_key FROM people ORDER BY 1"),
        ["\"a\" \"s\"", "\"b\" \"s\"", "\"z\" \"other\""]
    );
    write_outputs(&mut f, &[(2, "s", &[("b", Some("2")), ("c", Some("2"))])]);
    assert_eq!(f.rows(), ["\"b\" \"2\"", "\"c\" \"2\"", "\"z\" \"1\""]);
    write_outputs(&mut f, &[(3, "s", &[("d", Some("3"))]), (4, "s", &[("e", Some("4"))])]);
    assert_eq!(f.rows(), ["\"e\" \"4\"", "\"z\" \"1\""]);
    // A chain that leaves the key of a tombstone alone: the source key's rows go all the same.
    write_outputs(&mut f, &[(5, "s", &[("s", None)])]);
    assert_eq!(f.rows(), ["\"z\" \"1\""]);
    write_outputs(&mut f, &[(6, "other", &[])]);
    assert!(f.rows().is_empty());
}

#[test]
fn a_row_that_moves_to_another_source_key_within_a_batch_stays() {
    let mut f = Fixture::with(&[], |_| {}, true);
    write_outputs(&mut f, &[(0, "s", &[("a", Some("1"))])]);
    write_outputs(&mut f, &[(1, "t", &[("a", Some("2"))]), (2, "s", &[("b", Some("2"))])]);
    assert_eq!(f.query("SELECT key, _source_key FROM people ORDER BY 1"), ["\"a\" \"t\"", "\"b\" \"s\""]);
    write_outputs(&mut f, &[(3, "u", &[("b", Some("3"))]), (4, "s", &[("c", Some("3"))])]);
    assert_eq!(
        f.query("SELECT key, _source_key FROM people ORDER BY 1"),
        ["\"a\" \"t\"", "\"b\" \"u\"", "\"c\" \"s\""]
    );
}

#[test]
fn with_source_keys_a_rejected_version_leaves_all_rows() {
    let mut f = Fixture::with(&[], |_| {}, true);
    write_outputs(&mut f, &[(0, "s", &[("a", Some("1"))])]);
    f.write(&[rejected(1, "s", OnError::Drop)]).unwrap();
    assert_eq!(f.rows(), ["\"a\" \"1\""]);
    assert_eq!(f.lane.context.metrics.stale.get(), 1);
}

#[test]
fn a_lane_writes_keeps_what_is_refused_and_goes_on_from_its_own_offsets() {
    let mut f = Fixture::new();
    f.sink = None;
    let running = crate::sink::start(f.lane.context.clone()).unwrap();
    assert_eq!(running.positions, Some(Positions::new()));
    let rows = [put(0, "a", "1"), (1, 0, None, Some(b"v"), Fate::Write), delete(2, "a"), put(3, "b", "2")];
    running.inlet.send(f.lane.delivery("t", 0, &rows)).unwrap();
    assert_eq!(f.lane.done().next.0, 4);
    assert!(running.join(std::time::Instant::now() + crate::sink::testing::SOON));
    assert_eq!(f.rows(), ["\"b\" \"2\""]);
    assert_eq!(f.lane.dead_offsets(), [1]);
    let running = crate::sink::start(f.lane.context.clone()).unwrap();
    assert_eq!(running.positions, Some(BTreeMap::from([(TopicPartition::new("t", 0), NextOffset(4))])));
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Put,
    Delete,
    Drop,
    Reject,
}

/// Offset, time, key, value, and what becomes of them.
type Step = (i64, i64, String, String, Op);

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Against a map: whatever the order of puts, deletes, drops and rejections over three partitions, however they fall
    /// into writes, with restarts and repeats between them, the table is the fold of the records by time.
    #[test]
    fn the_table_is_the_fold_of_the_records(
        writes in proptest::collection::vec(
            (
                proptest::collection::vec(
                    (0i32..3, 0u8..5, proptest::sample::select(vec![Op::Put, Op::Put, Op::Delete, Op::Drop, Op::Reject])),
                    1..12,
                ),
                any::<bool>(),
                any::<bool>(),
            ),
            1..8,
        ),
    ) {
        let mut f = Fixture::new();
        let mut model: BTreeMap<String, String> = BTreeMap::new();
        let mut time = 0i64;
        let mut next: BTreeMap<i32, i64> = BTreeMap::new();
        for (ops, restart, repeat) in writes {
            let mut per_partition: BTreeMap<i32, Vec<Step>> = BTreeMap::new();
            for (partition, key, op) in ops {
                time += 1;
                let offset = next.entry(partition).or_default();
                *offset += 2;
                let (key, value) = (format!("k{key}"), time.to_string());
                match op {
                    Op::Put => { model.insert(key.clone(), value.clone()); }
                    Op::Delete | Op::Drop => { model.remove(&key); }
                    Op::Reject => {}
                }
                per_partition.entry(partition).or_default().push((*offset, time, key, value, op));
            }
            let mut deliveries = Vec::new();
            for (partition, rows) in &per_partition {
                let rows: Vec<Row<'_>> = rows
                    .iter()
                    .map(|(offset, time, key, value, op)| {
                        let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
                        match op {
                            Op::Put => (*offset, *time, key, value, Fate::Write),
                            Op::Delete => (*offset, *time, key, None, Fate::Write),
                            Op::Drop => (*offset, *time, key, value, Fate::Drop),
                            Op::Reject => (*offset, *time, key, value, rejected(0, "", OnError::Drop).4),
                        }
                    })
                    .collect();
                deliveries.push(f.lane.delivery("t", *partition, &rows));
            }
            f.sink().write(&deliveries).unwrap();
            if restart {
                f.reopen().unwrap();
                let expected = next.iter().map(|(p, offset)| (TopicPartition::new("t", *p), NextOffset(offset + 1)));
                prop_assert_eq!(f.sink().positions(), Some(expected.collect()));
            }
            if repeat {
                f.sink().write(&deliveries).unwrap();
            }
            let expected: Vec<String> = model.iter().map(|(key, value)| format!("{key:?} {value:?}")).collect();
            prop_assert_eq!(f.rows(), expected);
        }
        drop(f.dir);
    }
}

#[test]
fn a_database_that_is_taken_away_halts_the_lane_before_anything_is_acknowledged() {
    for (suffix, replaced) in ["", "-wal", "-shm"].into_iter().flat_map(|suffix| [(suffix, false), (suffix, true)]) {
        let mut f = Fixture::new();
        f.write(&[put(0, "a", "1")]).unwrap();
        let path = disk::with_suffix(&f.settings.path, suffix);
        let copy = f.dir.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        std::fs::remove_file(&path).unwrap();
        if replaced {
            std::fs::rename(&copy, &path).unwrap();
        }
        let Err(WriteError::Halt(error)) = f.write(&[put(1, "b", "2")]) else { panic!("`{suffix}` is missed") };
        let error = error.to_string();
        assert!(error.starts_with(&format!("`{}` was removed or replaced", path.display())), "{error}");
    }
}

#[test]
fn a_database_that_was_taken_away_is_made_anew_at_the_next_start() {
    let mut f = Fixture::new();
    f.write(&[put(0, "a", "1")]).unwrap();
    std::fs::remove_file(&f.settings.path).unwrap();
    assert!(f.write(&[put(1, "b", "2")]).is_err());
    f.reopen().unwrap();
    assert_eq!(f.sink().positions(), Some(Positions::new()), "the topic is read from its beginning");
    assert_eq!(f.rows(), <[&str; 0]>::default());
}

fn kept(next: i64, generation: i64, incarnation: i64) -> Kept {
    let topic_id = Some("id".to_owned());
    Kept { next: NextOffset(next), topic_id, generation, incarnation, as_of: Some(7), unswept: generation > 1 }
}

fn begin(f: &mut Fixture, kept: &Kept) {
    f.lane.read_again();
    f.sink().begin(&[(TopicPartition::new("t", 0), kept.clone())]).unwrap();
}

fn sweep(f: &mut Fixture) -> u64 {
    let (mut rows, partition) = (0, TopicPartition::new("t", 0));
    loop {
        let swept = f.sink().sweep(&partition).unwrap();
        rows += swept.rows;
        if !swept.more {
            return rows;
        }
    }
}

#[test]
fn a_sweep_removes_what_a_new_pass_did_not_find_and_nothing_of_other_partitions() {
    let mut f = Fixture::new();
    begin(&mut f, &kept(0, 1, 1));
    f.write(&[put(0, "a", "1"), put(1, "b", "1"), put(2, "c", "1")]).unwrap();
    let other = f.lane.delivery("t", 1, &[put(0, "other", "1")]);
    f.sink().write(&[other]).unwrap();
    begin(&mut f, &kept(0, 2, 1));
    // The same version as before, and one that is older than the row.
    f.write(&[put(0, "a", "1"), put(1, "c", "0"), put(2, "c", "1")]).unwrap();
    assert_eq!(sweep(&mut f), 1);
    assert_eq!(f.query("SELECT key, value FROM people ORDER BY key"), [r#""a" "1""#, r#""c" "1""#, r#""other" "1""#]);
    f.reopen().unwrap();
    let expected = Kept { unswept: false, ..kept(3, 2, 1) };
    assert_eq!(f.sink().kept().get(&TopicPartition::new("t", 0)), Some(&expected));
}

#[test]
fn a_new_life_of_the_topic_overrides_rows_of_the_old_one_whatever_their_offset() {
    let mut f = Fixture::new();
    begin(&mut f, &kept(0, 1, 1));
    f.write(&[put(8, "a", "old"), put(9, "b", "old")]).unwrap();
    begin(&mut f, &kept(0, 2, 2));
    f.write(&[put(0, "a", "new"), delete(1, "b")]).unwrap();
    assert_eq!(f.query("SELECT key, value FROM people ORDER BY key"), [r#""a" "new""#]);
    // Within a life the offset decides.
    begin(&mut f, &kept(0, 3, 2));
    f.write(&[put(5, "a", "newer")]).unwrap();
    begin(&mut f, &kept(0, 4, 2));
    f.write(&[put(0, "a", "new")]).unwrap();
    assert_eq!(f.query("SELECT key, value FROM people ORDER BY key"), [r#""a" "newer""#]);
}

#[test]
fn a_sweep_looks_at_a_table_of_many_steps() {
    let mut f = Fixture::new();
    begin(&mut f, &kept(0, 1, 1));
    let keys: Vec<String> = (0..25_000).map(|key| key.to_string()).collect();
    let rows: Vec<Row<'_>> = keys.iter().zip(0..).map(|(key, offset)| put(offset, key, "1")).collect();
    f.write(&rows).unwrap();
    begin(&mut f, &kept(0, 2, 1));
    f.write(&rows[12_000..12_001]).unwrap();
    assert_eq!(sweep(&mut f), 24_999);
    assert_eq!(f.query("SELECT key FROM people"), [r#""12000""#]);
}

#[test]
fn a_database_of_an_earlier_version_goes_on_and_does_not_know_when_it_was_complete() {
    let mut f = Fixture::new();
    f.write(&[put(0, "a", "1")]).unwrap();
    f.sink = None;
    let connection = Connection::open(&f.settings.path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE old (topic TEXT NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,
                PRIMARY KEY (topic, partition)) WITHOUT ROWID;
             INSERT INTO old SELECT topic, partition, next_offset FROM _tidegate_offsets;
             DROP TABLE _tidegate_offsets; ALTER TABLE old RENAME TO _tidegate_offsets;",
        )
        .unwrap();
    drop(connection);
    f.reopen().unwrap();
    let expected =
        Kept { next: NextOffset(1), topic_id: None, generation: 1, incarnation: 1, as_of: None, unswept: false };
    assert_eq!(f.sink().kept().get(&TopicPartition::new("t", 0)), Some(&expected));
    f.write(&[put(1, "b", "1")]).unwrap();
    assert_eq!(f.query("SELECT key FROM people ORDER BY key"), [r#""a""#, r#""b""#]);
}
