//! Names of files, filled in so that no topic can lead out of the directory or into another's file.
//!
//! | in a filled-in part                               | becomes                                |
//! |---------------------------------------------------|----------------------------------------|
//! | letters, digits, `.`, `_`, `-`                    | itself                                 |
//! | any other byte                                    | `%` and two hex digits                 |
//! | a name that is `.` or `..`                        | its dots as `%2E`                      |
//! | a name that begins with `.tidegate-`              | its first dot as `%2E`: the gateway's  |
//! | a name that ends like a segment's: `.000001`      | that dot as `%2E`                      |

use std::fmt::Write;

use anyhow::bail;

use crate::record::TopicPartition;

/// Digits of a segment's number at the least.
const SEGMENT_DIGITS: usize = 6;

/// A relative path with `{topic}` and `{partition}` left to fill in.
#[derive(Debug)]
pub struct Template {
    rest: String,
}

impl Template {
    pub fn new(rest: &str, route: &str) -> anyhow::Result<Self> {
        for component in rest.split('/') {
            if matches!(component, "" | "." | "..") {
                bail!("`{rest}` has an empty, `.` or `..` part; a path below its directory is wanted");
            }
            let plain =
                ["{route}", "{topic}", "{partition}"].iter().fold(component.to_owned(), |c, p| c.replace(p, ""));
            if plain.contains(['{', '}', '\0']) {
                bail!(
                    "`{component}` holds an unknown placeholder; `{{route}}`, `{{topic}}` and `{{partition}}` are known"
                );
            }
        }
        Ok(Self { rest: rest.replace("{route}", &encode(route)) })
    }

    /// The manifest's name: one for all files of the template.
    pub fn manifest_name(&self) -> String {
        format!(".tidegate-{}.manifest", self.rest.replace('/', "%2F"))
    }

    /// The relative path of the partition's first segment.
    pub fn fill(&self, partition: &TopicPartition) -> String {
        let (topic, number) = (encode(&partition.topic), partition.partition.to_string());
        let fill = |component: &str| {
            let filled = component.replace("{topic}", &topic).replace("{partition}", &number);
            if filled == component { filled } else { guard(filled) }
        };
        let parts: Vec<String> = self.rest.split('/').map(fill).collect();
        parts.join("/")
    }
}

/// `name.000001.ndjson` for segment 1 of `name.ndjson`; segment 0 is the name itself.
pub fn segment_name(name: &str, segment: u32) -> String {
    if segment == 0 {
        return name.to_owned();
    }
    let (stem, extension) = split(name);
    format!("{stem}.{segment:0SEGMENT_DIGITS$}{extension}")
}

/// The name before its extension, and the extension with its dot.
fn split(name: &str) -> (&str, &str) {
    let file = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[file..].rfind('.') {
        Some(dot) if dot > 0 => name.split_at(file + dot),
        _ => (name, ""),
    }
}

fn encode(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => out.push(byte.into()),
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

fn guard(mut component: String) -> String {
    if component == "." || component == ".." {
        return component.replace('.', "%2E");
    }
    if component.starts_with(".tidegate-") {
        component.replace_range(..1, "%2E");
    }
    let (stem, extension) = split(&component);
    let is_number = |text: &str| text.len() >= SEGMENT_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    let dot = if extension.strip_prefix('.').is_some_and(is_number) {
        Some(stem.len())
    } else {
        stem.rfind('.').filter(|dot| is_number(&stem[dot + 1..]))
    };
    if let Some(dot) = dot {
        component.replace_range(dot..=dot, "%2E");
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::{Component, Path};

    fn check(rest: &str, topic: &str, expected: &str) {
        let template = Template::new(rest, "my route").unwrap();
        assert_eq!(template.fill(&TopicPartition::new(topic, 3)), expected);
    }

    #[test]
    fn topics_stay_within_their_part_of_the_path() {
        check("{topic}-{partition}.ndjson", "user.profiles_v1-x", "user.profiles_v1-x-3.ndjson");
        check("{route}/{topic}", "a", "my%20route/a");
        check("{topic}", "..", "%2E%2E");
        check("{topic}", ".", "%2E");
        check("{topic}{topic}", ".", "%2E%2E");
        check("{topic}/{partition}", "../../etc", "..%2F..%2Fetc/3");
        check("{topic}", "a/b\\c\0%é", "a%2Fb%5Cc%00%25%C3%A9");
        check("{topic}", ".tidegate-x", "%2Etidegate-x");
        check("fixed.ndjson", "a", "fixed.ndjson");
    }

    #[test]
    fn a_topic_named_like_a_segment_is_kept_apart_from_it() {
        check("{topic}.ndjson", "a.000001", "a%2E000001.ndjson");
        check("{topic}", "a.000001", "a%2E000001");
        check("{topic}", "a.00001", "a.00001");
        check("{topic}.ndjson", "a.000001.b", "a.000001.b.ndjson");
    }

    #[test]
    fn segments_are_numbered_before_the_extension() {
        assert_eq!(segment_name("a/b.ndjson", 0), "a/b.ndjson");
        assert_eq!(segment_name("a/b.ndjson", 1), "a/b.000001.ndjson");
        assert_eq!(segment_name("a.b/c", 12), "a.b/c.000012");
        assert_eq!(segment_name(".hidden", 1_234_567), ".hidden.1234567");
    }

    #[test]
    fn a_template_that_could_leave_its_directory_is_refused() {
        for rest in ["../x", "a/../b", "a//b", "", "./x", "{topc}", "a{b"] {
            assert!(Template::new(rest, "r").is_err(), "{rest}");
        }
    }

    proptest! {
        /// No two partitions share a name, no segment of one is a segment of another, and none leaves the directory.
        #[test]
        fn names_are_apart_and_inside(
            a in "[a.0/%]{1,9}|\\PC{1,5}",
            b in "[a.0/%]{1,9}|\\PC{1,5}",
            segments in (0u32..3, 0u32..3),
            rest in proptest::sample::select(vec!["{topic}", "{topic}.ndjson", "{topic}-{partition}.x", "d/{topic}/f"]),
        ) {
            let template = Template::new(rest, "r").unwrap();
            let name = |topic: &str, segment| segment_name(&template.fill(&TopicPartition::new(topic, 0)), segment);
            let (first, second) = (name(&a, segments.0), name(&b, segments.1));
            prop_assert_eq!(first == second, a == b && segments.0 == segments.1);
            prop_assert!(Path::new(&first).components().all(|part| matches!(part, Component::Normal(_))));
            prop_assert_eq!(Path::new(&first).components().count(), rest.split('/').count());
        }
    }
}
