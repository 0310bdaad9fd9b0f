//! What of librdkafka's statistics is used: where each partition begins and ends, and whether the group has given us none.

use std::collections::HashMap;

use serde::Deserialize;

/// The ends of one partition, as the last fetch answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    pub topic: String,
    pub partition: i32,
    pub low: Option<i64>,
    /// One past the last offset that is visible at the consumer's isolation level.
    pub end: Option<i64>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub ends: Vec<Ends>,
    /// We are a settled member of the group, and no partition is ours.
    pub without_share: bool,
}

#[derive(Deserialize)]
struct Statistics {
    #[serde(default)]
    topics: HashMap<String, Topic>,
    cgrp: Option<Group>,
}

#[derive(Deserialize)]
struct Group {
    state: String,
    join_state: String,
    assignment_size: u64,
}

impl Group {
    fn has_given_nothing(&self) -> bool {
        self.state == "up" && self.join_state == "steady" && self.assignment_size == 0
    }
}

#[derive(Deserialize)]
struct Topic {
    #[serde(default)]
    partitions: HashMap<i32, Partition>,
}

#[derive(Deserialize)]
struct Partition {
    lo_offset: i64,
    hi_offset: i64,
    ls_offset: i64,
}

/// Reads the statistics' JSON. Partitions of which nothing is known yet are left out.
///
/// # Errors
/// When it is not what librdkafka documents.
pub fn parse(json: &[u8], read_committed: bool) -> serde_json::Result<Told> {
    let statistics: Statistics = serde_json::from_slice(json)?;
    // Negative offsets are librdkafka's words for "not known"; partition -1 is its drawer for what has none.
    let known = |offset: i64| (offset >= 0).then_some(offset);
    let ends = statistics
        .topics
        .into_iter()
        .flat_map(|(topic, Topic { partitions })| {
            partitions.into_iter().map(move |(partition, offsets)| Ends {
                topic: topic.clone(),
                partition,
                low: known(offsets.lo_offset),
                end: known(if read_committed { offsets.ls_offset } else { offsets.hi_offset }),
            })
        })
        .filter(|ends| ends.partition >= 0 && ends.end.is_some())
        .collect();
    Ok(Told { ends, without_share: statistics.cgrp.is_some_and(|group| group.has_given_nothing()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &[u8] = br#"{"name":"x","topics":{"t":{"topic":"t","partitions":{
        "0":{"partition":0,"lo_offset":3,"hi_offset":9,"ls_offset":5,"next_offset":5},
        "1":{"partition":1,"lo_offset":-1001,"hi_offset":-1001,"ls_offset":-1001},
        "-1":{"partition":-1,"lo_offset":0,"hi_offset":0,"ls_offset":0}}}},"tx":1}"#;

    fn check(read_committed: bool, end: i64) {
        let expected = Ends { topic: "t".to_owned(), partition: 0, low: Some(3), end: Some(end) };
        assert_eq!(parse(JSON, read_committed).expect("valid"), Told { ends: vec![expected], without_share: false });
    }

    #[test]
    fn the_end_is_that_of_the_isolation_level_and_unknown_ones_are_left_out() {
        check(true, 5);
        check(false, 9);
    }

    #[test]
    fn only_a_settled_member_without_partitions_has_no_share() {
        let told = |state: &str, join_state: &str, size: u32| {
            let group = format!(
                r#"{{"cgrp":{{"state":"{state}","stateage":1,"join_state":"{join_state}","assignment_size":{size}}}}}"#
            );
            parse(group.as_bytes(), true).expect("valid").without_share
        };
        assert!(told("up", "steady", 0));
        assert!(!told("up", "steady", 1));
        assert!(!told("up", "wait-sync", 0));
        assert!(!told("wait-coord", "steady", 0));
    }

    #[test]
    fn statistics_without_topics_say_nothing() {
        assert_eq!(parse(b"{\"brokers\":{}}", true).expect("valid"), Told::default());
        assert!(parse(b"{\"topics\":{\"t\":{\"partitions\":{\"0\":{}}}}}", true).is_err());
    }
}
