use super::*;
use crate::config::{Compression, PathTemplate, SinkKind};
use crate::delivery::OnError;
use crate::record::Batch;
use crate::sink::testing::{Lane, Row, delete, eventually, put, rejected};
use proptest::prelude::*;

fn settings(dir: &Path, rest: &str, rotate_size: u64) -> Settings {
    let path = PathTemplate { root: dir.join("out"), rest: rest.to_owned() };
    Settings { path, rotate_size, rotate_age: None, compress: None }
}

struct Fixture {
    dir: tempfile::TempDir,
    settings: Settings,
    lane: Lane,
    sink: Option<Files>,
}

impl Fixture {
    fn new(rest: &str) -> Self {
        Self::rotating(rest, u64::MAX)
    }

    fn rotating(rest: &str, size: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path(), rest, size);
        let lane = Lane::new(dir.path(), SinkKind::File(settings.clone()));
        let sink = Some(Files::open(&settings, &lane.context).unwrap());
        Self { dir, settings, lane, sink }
    }

    fn reopen_with(&mut self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings);
        self.reopen().unwrap();
    }

    fn reopen(&mut self) -> anyhow::Result<()> {
        self.sink = None;
        self.sink = Some(Files::open(&self.settings, &self.lane.context)?);
        Ok(())
    }

    fn write(&mut self, partition: i32, rows: &[Row<'_>]) -> Result<(), WriteError> {
        let delivery = self.lane.delivery("t", partition, rows);
        self.sink.as_mut().unwrap().write(&[delivery])
    }

    fn positions(&self) -> Vec<(i32, i64)> {
        let positions = self.sink.as_ref().unwrap().positions().unwrap();
        positions.iter().map(|(partition, next)| (partition.partition, next.0)).collect()
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    /// The offsets in a file; every line must be whole.
    fn offsets(&self, name: &str) -> Vec<i64> {
        offsets(&self.out().join(name))
    }
}

fn offsets(path: &Path) -> Vec<i64> {
    let text = fs::read(path).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with(b"\n"), "a torn line in {}", path.display());
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| line::Line::parse(line).unwrap().offset.unwrap()).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn every_row_is_a_line_and_a_tombstone_is_one_with_null() {
    let mut f = Fixture::new("{topic}-{partition}.ndjson");
    let mut dropped = put(2, "c", "1");
    dropped.4 = Fate::Drop;
    f.write(0, &[put(0, "a", "{\"n\":1}"), delete(1, "a"), dropped, rejected(3, "d", OnError::Drop)]).unwrap();
    f.write(1, &[put(0, "b", "2")]).unwrap();
    let text = fs::read_to_string(f.out().join("t-0.ndjson")).unwrap();
    assert_eq!(
        text,
        "{\"topic\":\"t\",\"partition\":0,\"offset\":0,\"timestamp\":0,\"key\":\"a\",\"value\":{\"n\":1}}\n\
         {\"topic\":\"t\",\"partition\":0,\"offset\":1,\"timestamp\":1,\"key\":\"a\",\"value\":null}\n"
    );
    assert_eq!(f.offsets("t-1.ndjson"), [0]);
    f.reopen().unwrap();
    assert_eq!(f.positions(), [(0, 4), (1, 1)]);
}

#[test]
fn partitions_share_a_file_where_the_template_does_not_tell_them_apart() {
    let mut f = Fixture::new("{topic}/all.ndjson");
    f.write(0, &[put(0, "a", "1")]).unwrap();
    f.write(1, &[put(7, "b", "1")]).unwrap();
    assert_eq!(f.offsets("t/all.ndjson"), [0, 7]);
}

#[test]
fn what_leaves_no_line_moves_the_offsets_and_makes_no_file() {
    let mut f = Fixture::new("{topic}.ndjson");
    f.write(0, &[rejected(3, "a", OnError::Drop)]).unwrap();
    assert!(!f.out().join("t.ndjson").exists());
    f.reopen().unwrap();
    assert_eq!(f.positions(), [(0, 4)]);
}

#[test]
fn rows_of_one_record_are_lines_of_their_own() {
    let mut f = Fixture::new("{topic}.ndjson");
    let partition = TopicPartition::new("t", 0);
    let (mut input, mut rows) = (Batch::new(partition.clone()), Batch::new(partition));
    input.push(5, 0, Some(b"k"), Some(b"1"));
    rows.push(5, 0, Some(b"x"), Some(b"1"));
    rows.push(5, 0, Some(b"y"), Some(b"1"));
    let delivery = f.lane.changed(input, rows, vec![(0, Fate::Write), (0, Fate::Write)]);
    f.sink.as_mut().unwrap().write(&[delivery]).unwrap();
    assert_eq!(f.offsets("t.ndjson"), [5, 5]);
}

#[test]
fn a_file_is_closed_when_it_has_its_size_and_the_next_begins() {
    let mut f = Fixture::rotating("{topic}.ndjson", 100);
    for offset in 0..5 {
        f.write(0, &[put(offset, "a", "1")]).unwrap();
    }
    assert_eq!(f.offsets("t.ndjson"), [0, 1]);
    assert_eq!(f.offsets("t.000001.ndjson"), [2, 3]);
    assert_eq!(f.offsets("t.000002.ndjson"), [4]);
    // Closed ones are the user's to move.
    fs::remove_file(f.out().join("t.ndjson")).unwrap();
    f.reopen().unwrap();
    f.write(0, &[put(5, "a", "1")]).unwrap();
    assert_eq!(f.offsets("t.000002.ndjson"), [4, 5]);
}

/// Kills a write at each byte of each file that it writes, with and without a torn manifest beside, and starts again.
#[test]
fn wherever_a_write_is_killed_each_record_is_there_once() {
    let mut f = Fixture::rotating("{topic}-{partition}.ndjson", 150);
    f.write(0, &[put(0, "a", "1")]).unwrap();
    f.sink = None;
    let before = f.dir.path().join("before");
    copy(&f.out(), &before);
    // The write continues one file past its size, and begins another.
    let rows: (Vec<Row<'_>>, Vec<Row<'_>>) = (vec![put(1, "b", "2"), put(2, "c", "3")], vec![put(0, "d", "4")]);
    let write = |f: &mut Fixture| {
        let deliveries = [f.lane.delivery("t", 0, &rows.0), f.lane.delivery("t", 1, &rows.1)];
        f.sink.as_mut().unwrap().write(&deliveries).unwrap();
    };
    f.reopen().unwrap();
    write(&mut f);
    f.sink = None;
    let after = f.dir.path().join("after");
    copy(&f.out(), &after);

    let name = f.settings.path.rest.clone();
    let manifest = Template::new(&name, "r").unwrap().manifest_name();
    // What stands on the disk when new files are announced and not yet in being.
    let mut announced = Manifest::read(&before.join(&manifest)).unwrap();
    announced.files.insert("t-1.ndjson".to_owned(), Place::default());
    let (whole_0, whole_1) = (fs::read(after.join("t-0.ndjson")).unwrap(), fs::read(after.join("t-1.ndjson")).unwrap());
    let start_0 = fs::read(before.join("t-0.ndjson")).unwrap().len();
    let mut kills: Vec<(usize, Option<usize>)> = (start_0..=whole_0.len()).map(|cut| (cut, None)).collect();
    kills.extend((0..=whole_1.len()).map(|cut| (whole_0.len(), Some(cut))));
    for (round, (cut_0, cut_1)) in kills.into_iter().enumerate() {
        f.sink = None;
        fs::remove_dir_all(f.out()).unwrap();
        copy(&before, &f.out());
        announced.write(&f.out().join(&manifest)).unwrap();
        fs::write(f.out().join("t-0.ndjson"), &whole_0[..cut_0]).unwrap();
        if let Some(cut) = cut_1 {
            fs::write(f.out().join("t-1.ndjson"), &whole_1[..cut]).unwrap();
        }
        if round % 2 == 0 {
            fs::write(f.out().join(format!("{manifest}.tmp")), b"{\"format\":1,\"fi").unwrap();
        }
        f.reopen().unwrap();
        assert_eq!(f.positions(), [(0, 1)]);
        f.lane = Lane::new(f.dir.path(), f.lane.context.sink.kind.clone());
        write(&mut f);
        assert_eq!(fs::read(f.out().join("t-0.ndjson")).unwrap(), whole_0, "killed at {cut_0} {cut_1:?}");
        assert_eq!(fs::read(f.out().join("t-1.ndjson")).unwrap(), whole_1, "killed at {cut_0} {cut_1:?}");
        assert_eq!(f.positions(), [(0, 3), (1, 1)]);
    }
    // Killed after the manifest was replaced: nothing is lost, and the next line goes into the next segment.
    f.sink = None;
    fs::remove_dir_all(f.out()).unwrap();
    copy(&after, &f.out());
    f.reopen().unwrap();
    assert_eq!(f.positions(), [(0, 3), (1, 1)]);
    f.write(0, &[put(3, "e", "5")]).unwrap();
    assert_eq!(f.offsets("t-0.000001.ndjson"), [3]);
}

#[test]
fn a_write_that_fails_leaves_no_line_and_is_made_again() {
    let mut f = Fixture::new("{topic}.ndjson");
    f.write(0, &[put(0, "a", "1")]).unwrap();
    // The manifest cannot be replaced, since a directory stands where it is prepared.
    let blocker = f.out().join(".tidegate-{topic}.ndjson.manifest.tmp");
    fs::create_dir(&blocker).unwrap();
    let delivery = f.lane.delivery("t", 0, &[put(1, "b", "1")]);
    let deliveries = [delivery];
    let sink = f.sink.as_mut().unwrap();
    for _ in 0..2 {
        assert!(matches!(sink.write(&deliveries), Err(WriteError::Transient(_))));
    }
    fs::remove_dir(&blocker).unwrap();
    sink.write(&deliveries).unwrap();
    assert_eq!(f.offsets("t.ndjson"), [0, 1]);
    f.reopen().unwrap();
    assert_eq!(f.positions(), [(0, 2)]);
}

#[test]
fn a_full_disk_is_waited_for() {
    let mut f = Fixture::rotating("{topic}.ndjson", 1);
    f.write(0, &[put(0, "a", "1")]).unwrap();
    // The next segment is announced, so that this is taken for it.
    let next = f.out().join("t.000001.ndjson");
    std::os::unix::fs::symlink("/dev/full", &next).unwrap();
    let deliveries = [f.lane.delivery("t", 0, &[put(1, "b", "1")])];
    let sink = f.sink.as_mut().unwrap();
    let Err(WriteError::Transient(error)) = sink.write(&deliveries) else { panic!("no room was found") };
    assert!(format!("{error:#}").contains("No space left on device"), "{error:#}");
    fs::remove_file(&next).unwrap();
    sink.write(&deliveries).unwrap();
    assert_eq!(f.offsets("t.000001.ndjson"), [1]);
}

#[test]
fn files_that_the_gateway_did_not_write_are_never_touched() {
    let mut f = Fixture::new("{topic}.ndjson");
    fs::write(f.out().join("t.ndjson"), "mine").unwrap();
    let Err(WriteError::Halt(error)) = f.write(0, &[put(0, "a", "1")]) else { panic!("it was taken") };
    assert!(error.to_string().contains("t.ndjson` is there and not in `"), "{error}");
    assert_eq!(fs::read(f.out().join("t.ndjson")).unwrap(), b"mine");
}

#[test]
fn a_file_that_is_changed_under_the_lane_halts_it() {
    let mut f = Fixture::new("{topic}.ndjson");
    let path = f.out().join("t.ndjson");
    f.write(0, &[put(0, "a", "1")]).unwrap();
    fs::rename(&path, f.out().join("moved")).unwrap();
    assert!(matches!(f.write(0, &[put(1, "a", "1")]), Err(WriteError::Halt(_))));
    let error = f.reopen().expect_err("the file is gone").to_string();
    assert!(error.contains("t.ndjson` has 0 bytes") && error.contains("put the file back"), "{error}");
    fs::rename(f.out().join("moved"), &path).unwrap();
    f.reopen().unwrap();
    f.write(0, &[put(2, "a", "1")]).unwrap();
    assert_eq!(f.offsets("t.ndjson"), [0, 2]);
}

#[test]
fn files_have_one_writer() {
    let mut f = Fixture::new("{topic}.ndjson");
    let error = Files::open(&f.settings, &f.lane.context).err().expect("they are taken").to_string();
    assert!(error.contains("in use by another lane or gateway"), "{error}");
    f.reopen().unwrap();
}

#[test]
fn more_partitions_than_open_files_are_written_all_the_same() {
    let mut f = Fixture::new("{partition}.ndjson");
    for round in 0..2 {
        let partitions = 0..OPEN_FILES as i32 + 3;
        let deliveries: Vec<_> = partitions.map(|p| f.lane.delivery("t", p, &[put(round, "a", "1")])).collect();
        f.sink.as_mut().unwrap().write(&deliveries).unwrap();
        assert_eq!(f.sink.as_ref().unwrap().open.len(), OPEN_FILES);
    }
    assert_eq!(f.offsets("0.ndjson"), [0, 1]);
    assert_eq!(f.offsets(&format!("{}.ndjson", OPEN_FILES + 2)), [0, 1]);
}

#[test]
fn a_lane_writes_and_goes_on_from_its_own_offsets() {
    let mut f = Fixture::new("{topic}.ndjson");
    f.sink = None;
    let running = crate::sink::start(f.lane.context.clone()).unwrap();
    running.inlet.send(f.lane.delivery("t", 0, &[put(0, "a", "1"), rejected(1, "b", OnError::DeadLetter)])).unwrap();
    assert_eq!(f.lane.done().next.0, 2);
    assert!(running.join(std::time::Instant::now() + crate::sink::testing::SOON));
    assert_eq!(f.offsets("t.ndjson"), [0]);
    assert_eq!(f.lane.dead_offsets(), [1]);
    f.reopen().unwrap();
    assert_eq!(f.positions(), [(0, 2)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Against a list: writes over partitions, some of them killed with part of their lines on the disk, then read again
    /// from the offsets that the sink gives. Each record is there once, in the order of its partition.
    #[test]
    fn each_record_is_written_once_whatever_is_killed(
        steps in proptest::collection::vec((0i32..2, 1usize..4, proptest::option::of(0usize..200)), 1..12),
    ) {
        let mut f = Fixture::rotating("{topic}-{partition}.ndjson", 260);
        let mut next = [0i64; 2];
        for (partition, count, killed) in steps {
            let first = next[partition as usize];
            let keys: Vec<String> = (0..count).map(|n| n.to_string()).collect();
            let rows: Vec<Row<'_>> = keys.iter().enumerate().map(|(n, key)| put(first + n as i64, key, "1")).collect();
            if let Some(bytes) = killed {
                // The lines reach the file in part; the manifest is not replaced.
                let name = format!("t-{partition}.ndjson");
                let place = f.sink.as_ref().unwrap().manifest.files.get(&name).copied();
                if let Some(Place { segment, length, .. }) = place {
                    let path = f.out().join(template::segment_name(&name, segment));
                    let mut torn = fs::read(&path).unwrap_or_default();
                    prop_assert_eq!(torn.len() as u64, length);
                    torn.extend((0..bytes).map(|n| b'x' + (n % 2) as u8));
                    fs::write(&path, torn).unwrap();
                    f.reopen().unwrap();
                }
                let expected = f.positions().iter().find(|(p, _)| *p == partition).map_or(0, |(_, next)| *next);
                prop_assert_eq!(expected, first);
            }
            f.write(partition, &rows).unwrap();
            next[partition as usize] += count as i64;
        }
        for partition in 0..2 {
            let name = format!("t-{partition}.ndjson");
            let segments = f.sink.as_ref().unwrap().manifest.files.get(&name).map_or(0, |place| place.segment + 1);
            let all: Vec<i64> =
                (0..segments).flat_map(|segment| f.offsets(&template::segment_name(&name, segment))).collect();
            prop_assert_eq!(all, (0..next[partition as usize]).collect::<Vec<_>>());
        }
    }
}

/// Makes every file that has a line look as if it was begun so long ago.
fn age(f: &Fixture, age: Duration) {
    let path = f.out().join(".tidegate-{topic}.ndjson.manifest");
    let mut manifest = Manifest::read(&path).unwrap();
    let begun = now() - i64::try_from(age.as_millis()).unwrap();
    manifest.files.values_mut().for_each(|place| place.begun = place.begun.and(Some(begun)));
    manifest.write(&path).unwrap();
}

#[test]
fn a_file_is_closed_at_its_age_before_the_next_line_and_when_nothing_comes() {
    const HOUR: Duration = Duration::from_secs(3600);
    let mut f = Fixture::new("{topic}.ndjson");
    f.reopen_with(|settings| settings.rotate_age = Some(HOUR));
    assert_eq!(f.sink.as_ref().unwrap().wakes_after(), None, "there is nothing to close");
    f.write(0, &[put(0, "a", "1")]).unwrap();
    let left = f.sink.as_ref().unwrap().wakes_after().unwrap();
    assert!(left <= HOUR && left > HOUR / 2, "{left:?}");
    f.sink.as_mut().unwrap().idle();
    f.write(0, &[put(1, "a", "1")]).unwrap();
    assert_eq!(f.offsets("t.ndjson"), [0, 1], "it is young");

    age(&f, HOUR);
    f.reopen().unwrap();
    f.write(0, &[put(2, "a", "1")]).unwrap();
    assert_eq!((f.offsets("t.ndjson"), f.offsets("t.000001.ndjson")), (vec![0, 1], vec![2]));

    age(&f, HOUR);
    f.reopen().unwrap();
    assert_eq!(f.sink.as_ref().unwrap().wakes_after(), Some(CLOSE_AGAIN), "it is due");
    f.sink.as_mut().unwrap().idle();
    assert_eq!(f.sink.as_ref().unwrap().wakes_after(), None);
    f.sink.as_mut().unwrap().idle();
    f.write(0, &[put(3, "a", "1")]).unwrap();
    assert_eq!((f.offsets("t.000001.ndjson"), f.offsets("t.000002.ndjson")), (vec![2], vec![3]), "an empty one stays");
}

#[test]
fn closed_files_are_compressed_also_those_that_a_stop_left() {
    for (kind, suffix) in [(Compression::Gzip, "gz"), (Compression::Zstd, "zst")] {
        let mut f = Fixture::rotating("{topic}.ndjson", 1);
        f.write(0, &[put(0, "a", "1")]).unwrap();
        let first = fs::read(f.out().join("t.ndjson")).unwrap();
        // As a compression that was killed leaves it.
        fs::write(f.out().join(format!("t.ndjson.{suffix}.part")), "half").unwrap();
        f.reopen_with(|settings| settings.compress = Some(kind));
        f.write(0, &[put(1, "b", "2")]).unwrap();
        let plain = ["t.ndjson", "t.000001.ndjson"].map(|name| f.out().join(name));
        eventually("both are compressed", || plain.iter().all(|path| !path.exists()));
        let packed = File::open(f.out().join(format!("t.ndjson.{suffix}"))).unwrap();
        let mut unpacked = Vec::new();
        match kind {
            Compression::Gzip => drop(io::copy(&mut flate2::read::GzDecoder::new(packed), &mut unpacked).unwrap()),
            Compression::Zstd => zstd::stream::copy_decode(packed, &mut unpacked).unwrap(),
        }
        assert_eq!(unpacked, first);
        assert!(!f.out().join(format!("t.ndjson.{suffix}.part")).exists());
        f.reopen().unwrap();
        f.write(0, &[put(2, "c", "3")]).unwrap();
        assert_eq!(f.positions(), [(0, 3)]);
    }
}
