//! Two accounts of one thing, held against each other.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Debug;

use crate::cli::table::{self, Align, grouped};

/// Differences of each kind that are shown; all are counted.
const EXAMPLES: usize = 3;

/// What a comparison of one place found.
#[derive(Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The place, for people.
    pub place: String,
    pub expected: usize,
    pub found: usize,
    pub missing: Kind,
    pub extra: Kind,
    pub different: Kind,
    /// Found more than once where once is right.
    pub repeated: Kind,
}

/// Differences of one kind: how many, and the first ones.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Kind {
    pub count: usize,
    pub examples: Vec<String>,
}

impl Kind {
    fn add(&mut self, example: impl FnOnce() -> String) {
        self.count += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
    }
}

impl Comparison {
    pub fn is_equal(&self) -> bool {
        [&self.missing, &self.extra, &self.different, &self.repeated].iter().all(|kind| kind.count == 0)
    }
}

/// Holds what was found at `place` against what is expected there. `show` writes a key or a value for people.
pub fn compare<K: Ord + Clone + Debug, V: PartialEq>(
    place: impl Into<String>,
    expected: &BTreeMap<K, V>,
    found: impl IntoIterator<Item = (K, V)>,
    show: impl Fn(&V) -> String,
) -> Comparison {
    let mut comparison = Comparison {
        place: place.into(),
        expected: expected.len(),
        found: 0,
        missing: Kind::default(),
        extra: Kind::default(),
        different: Kind::default(),
        repeated: Kind::default(),
    };
    let mut seen = BTreeMap::new();
    for (key, value) in found {
        comparison.found += 1;
        match seen.entry(key) {
            Entry::Vacant(entry) => drop(entry.insert(value)),
            Entry::Occupied(entry) => comparison.repeated.add(|| format!("{:?}", entry.key())),
        }
    }
    for (key, value) in &seen {
        match expected.get(key) {
            None => comparison.extra.add(|| format!("{key:?}: {}", show(value))),
            Some(right) if right != value => {
                comparison.different.add(|| format!("{key:?}: {} instead of {}", show(value), show(right)));
            }
            Some(_) => {}
        }
    }
    for (key, value) in expected.iter().filter(|(key, _)| !seen.contains_key(key)) {
        comparison.missing.add(|| format!("{key:?}: {}", show(value)));
    }
    comparison
}

/// The comparisons as a table, with examples of what differs below.
pub fn render(comparisons: &[Comparison]) -> String {
    let header = [
        ("PLACE", Align::Left),
        ("EXPECTED", Align::Right),
        ("FOUND", Align::Right),
        ("MISSING", Align::Right),
        ("EXTRA", Align::Right),
        ("DIFFERENT", Align::Right),
        ("REPEATED", Align::Right),
        ("", Align::Left),
    ];
    let row = |c: &Comparison| {
        let numbers = [c.expected, c.found, c.missing.count, c.extra.count, c.different.count, c.repeated.count];
        let mut row = vec![c.place.clone()];
        row.extend(numbers.map(|number| grouped(number as u64)));
        row.push(if c.is_equal() { "equal" } else { "NOT EQUAL" }.to_owned());
        row
    };
    let mut text = table::render(&header, &comparisons.iter().map(row).collect::<Vec<_>>());
    for c in comparisons {
        let kinds =
            [("missing", &c.missing), ("extra", &c.extra), ("different", &c.different), ("repeated", &c.repeated)];
        for (name, kind) in kinds {
            for example in &kind.examples {
                text.push_str(&format!("{} {name}: {}\n", c.place, table::fit(example, 300)));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::broker::Produced;
    use crate::demo::model::{Expected, fold};
    use crate::demo::profiles;

    fn counts(c: &Comparison) -> [usize; 4] {
        [c.missing.count, c.extra.count, c.different.count, c.repeated.count]
    }

    fn check(found: &[(i64, &'static str)]) -> [usize; 4] {
        let expected = BTreeMap::from([(1, "a"), (2, "b")]);
        let comparison = compare("here", &expected, found.iter().copied(), |value| (*value).to_owned());
        assert_eq!(comparison.is_equal(), counts(&comparison) == [0; 4]);
        counts(&comparison)
    }

    #[test]
    fn each_kind_of_difference_is_found() {
        assert_eq!(check(&[(1, "a"), (2, "b")]), [0, 0, 0, 0]);
        assert_eq!(check(&[(2, "b"), (1, "a")]), [0, 0, 0, 0]);
        assert_eq!(check(&[(1, "a")]), [1, 0, 0, 0]);
        assert_eq!(check(&[(1, "a"), (2, "b"), (3, "c")]), [0, 1, 0, 0]);
        assert_eq!(check(&[(1, "a"), (2, "x")]), [0, 0, 1, 0]);
        assert_eq!(check(&[(1, "a"), (2, "b"), (2, "b")]), [0, 0, 0, 1]);
        assert_eq!(check(&[]), [2, 0, 0, 0]);
        assert_eq!(check(&[(3, "a"), (1, "b")]), [1, 1, 1, 0]);
    }

    /// The seed as a broker would number it.
    fn seed() -> Vec<Produced> {
        let mut next = [0; profiles::PARTITIONS as usize];
        let number = |record: profiles::Record| {
            let offset = &mut next[record.partition as usize];
            *offset += 1;
            Produced { offset: *offset - 1, record }
        };
        profiles::seed(2_000).into_iter().map(number).collect()
    }

    fn state(expected: &Expected, found: &Expected) -> [usize; 4] {
        counts(&compare("state", &expected.state, found.state.clone(), |value| format!("{value:?}")))
    }

    fn log(expected: &Expected, found: &Expected) -> [usize; 4] {
        counts(&compare("log", &expected.log, found.log.clone(), |value| format!("{value:?}")))
    }

    /// A build that skips any one delete that matters, or any one version that is the last of its key, is caught.
    #[test]
    fn no_last_record_of_a_key_can_be_skipped() {
        let records = seed();
        let expected = fold(&records);
        let mut caught = 0;
        for skipped in 0..records.len() {
            let key = &records[skipped].record.key;
            if records[skipped + 1..].iter().any(|later| &later.record.key == key) {
                continue;
            }
            let without: Vec<_> = [&records[..skipped], &records[skipped + 1..]].concat();
            let found = fold(&without);
            let differs = found != expected;
            let position = (records[skipped].record.partition, records[skipped].offset);
            if expected.log.contains_key(&position) {
                assert_eq!(log(&expected, &found), [1, 0, 0, 0], "{:?}", records[skipped]);
                assert!(differs);
                caught += 1;
            }
        }
        assert!(caught > 100, "{caught}");
    }

    #[test]
    fn a_skipped_delete_shows_as_a_row_too_many() {
        let records = seed();
        let expected = fold(&records);
        let delete =
            records.iter().position(|p| p.record.value.is_none() && p.record.key.as_deref() == Some(b"user-900001"));
        let mut without = records.clone();
        without.remove(delete.expect("the first scene ends with a delete"));
        assert_eq!(state(&expected, &fold(&without)), [0, 1, 0, 0]);
    }

    #[test]
    fn the_table_names_what_differs() {
        let expected = BTreeMap::from([("user-1", "new"), ("user-2", "x")]);
        let found = [("user-1", "old"), ("user-3", "y")];
        let unequal = compare("crm", &expected, found, |value| (*value).to_owned());
        let equal = compare("audit", &expected, expected.clone(), |value| (*value).to_owned());
        assert_eq!(
            render(&[equal, unequal]),
            "\
PLACE  EXPECTED  FOUND  MISSING  EXTRA  DIFFERENT  REPEATED
audit         2      2        0      0          0         0  equal
crm           2      2        1      1          1         0  NOT EQUAL
crm missing: \"user-2\": x
crm extra: \"user-3\": y
crm different: \"user-1\": old instead of new
"
        );
    }
}
