//! Many partitions in few words.

use std::collections::{BTreeMap, BTreeSet};

/// `orders[0-3,7], users[0]`: by topic, in order, each partition once.
pub fn ranges<'a>(partitions: impl IntoIterator<Item = (&'a str, i32)>) -> String {
    let mut topics: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
    for (topic, partition) in partitions {
        topics.entry(topic).or_default().insert(partition);
    }
    let topics: Vec<String> =
        topics.iter().map(|(topic, numbers)| format!("{topic}[{}]", numbers_in(numbers))).collect();
    topics.join(", ")
}

fn numbers_in(numbers: &BTreeSet<i32>) -> String {
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let shown = |(first, last): (i32, i32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    runs.into_iter().map(shown).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(numbers: &[i32], expected: &str) {
        assert_eq!(ranges(numbers.iter().map(|number| ("t", *number))), expected);
    }

    #[test]
    fn runs_of_three_and_more_are_ranges() {
        check(&[], "");
        check(&[5], "t[5]");
        check(&[1, 0], "t[0,1]");
        check(&[2, 0, 1, 0], "t[0-2]");
        check(&[7, 0, 1, 2, 3, 9, 10], "t[0-3,7,9,10]");
        check(&[i32::MAX, i32::MAX - 1], "t[2147483646,2147483647]");
    }

    #[test]
    fn topics_are_apart_and_in_order() {
        assert_eq!(ranges([("b", 0), ("a", 2), ("b", 1), ("a", 0)]), "a[0,2], b[0,1]");
    }

    proptest! {
        #[test]
        fn it_names_exactly_the_partitions(numbers in proptest::collection::btree_set(0..40, 1..30)) {
            let text = ranges(numbers.iter().map(|number| ("t", *number)));
            let inside = text.strip_prefix("t[").and_then(|text| text.strip_suffix(']')).unwrap();
            let named: Vec<i32> = inside
                .split(',')
                .flat_map(|run| {
                    let (first, last) = run.split_once('-').unwrap_or((run, run));
                    first.parse().unwrap()..=last.parse().unwrap()
                })
                .collect();
            prop_assert_eq!(named, numbers.into_iter().collect::<Vec<_>>());
        }
    }
}
