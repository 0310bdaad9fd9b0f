//! Dotted paths, and sets of them that are followed at once.

use std::borrow::Cow;
use std::fmt;
use std::ops::BitAnd;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use crate::scan::MAX_DEPTH;

/// The most paths in one set: they are followed as the bits of one word.
pub const MAX_PATHS: usize = 64;

/// Where a field is: the steps from the document's root, joined by dots.
///
/// | written | means |
/// |---|---|
/// | `email` | the member `email` of the root |
/// | `address.city` | the member `city` of the member `address` |
/// | `phones.0` | the member `0` of an object, or the first element of an array |
/// | `phones.*.number` | the member `number` of each element of an array, or of each member of an object |
/// | `a\.b`, `\*`, `\\` | the members `a.b`, `*` and `\` |
///
/// A name reaches no elements of an array by itself: what is in an array needs `*` or an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    written: String,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Any,
    Name { name: String, index: Option<usize> },
}

/// Why a text is no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It is empty, or has two dots in a row, or one at an end.
    #[error("path `{0}` has an empty step; a path is steps joined by dots, such as `address.city`")]
    EmptyStep(String),
    /// A backslash stands before something else than a dot, a star or a backslash.
    #[error("path `{0}` has a `\\` that escapes nothing; `\\.`, `\\*` and `\\\\` stand for `.`, `*` and `\\`")]
    BadEscape(String),
    /// It leads deeper than any document that is accepted.
    #[error("path has {0} steps; at most {MAX_DEPTH} are allowed")]
    TooDeep(usize),
}

impl Path {
    /// The last step, if it is a name.
    pub fn last_name(&self) -> Option<&str> {
        match self.steps.last() {
            Some(Step::Name { name, .. }) => Some(name),
            _ => None,
        }
    }
}

impl FromStr for Path {
    type Err = PathError;

    fn from_str(written: &str) -> Result<Self, PathError> {
        let mut steps = Vec::new();
        let mut name = String::new();
        let mut escaped = false;
        let mut finish = |name: &mut String, escaped: &mut bool| {
            if name.is_empty() {
                return Err(PathError::EmptyStep(written.into()));
            }
            steps.push(Step::new(std::mem::take(name), std::mem::take(escaped)));
            Ok(())
        };
        let mut chars = written.chars();
        while let Some(next) = chars.next() {
            match next {
                '.' => finish(&mut name, &mut escaped)?,
                '\\' => match chars.next() {
                    Some(plain @ ('.' | '*' | '\\')) => {
                        name.push(plain);
                        escaped = true;
                    }
                    _ => return Err(PathError::BadEscape(written.into())),
                },
                _ => name.push(next),
            }
        }
        finish(&mut name, &mut escaped)?;
        if steps.len() > MAX_DEPTH {
            return Err(PathError::TooDeep(steps.len()));
        }
        Ok(Self { written: written.into(), steps })
    }
}

impl Step {
    fn new(name: String, escaped: bool) -> Self {
        if name == "*" && !escaped {
            return Self::Any;
        }
        // `007` is a name, but no index.
        let index = name.parse().ok().filter(|index: &usize| index.to_string() == name);
        Self::Name { name, index }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.written)
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Path {
    fn schema_name() -> Cow<'static, str> {
        "Path".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 1,
            "description": "where a field is: steps joined by dots, `*` for each element or member, `\\.` for a dot in a name",
        })
    }
}

/// Paths that are followed at once.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    paths: Vec<Path>,
}

impl Paths {
    /// A set of paths; `None` = there are more than [`MAX_PATHS`].
    pub fn new(paths: impl IntoIterator<Item = Path>) -> Option<Self> {
        let paths: Vec<Path> = paths.into_iter().collect();
        (paths.len() <= MAX_PATHS).then_some(Self { paths })
    }

    /// The path with this number.
    pub fn get(&self, index: usize) -> Option<&Path> {
        self.paths.get(index)
    }

    pub(crate) fn all(&self) -> Set {
        (0..self.paths.len()).collect()
    }

    /// Takes one more step into a member.
    #[inline]
    pub(crate) fn to_member(&self, active: Set, depth: usize, member: &[u8]) -> Reached {
        self.step(active, depth, |step| match step {
            Step::Any => true,
            Step::Name { name, .. } => name.as_bytes() == member,
        })
    }

    /// Takes one more step into an element.
    #[inline]
    pub(crate) fn to_element(&self, active: Set, depth: usize, element: usize) -> Reached {
        self.step(active, depth, |step| match step {
            Step::Any => true,
            Step::Name { index, .. } => *index == Some(element),
        })
    }

    #[inline]
    fn step(&self, active: Set, depth: usize, takes: impl Fn(&Step) -> bool) -> Reached {
        let mut reached = Reached::default();
        for index in active {
            let steps = &self.paths[index].steps;
            if takes(&steps[depth]) {
                if steps.len() == depth + 1 {
                    reached.ends.insert(index);
                } else {
                    reached.inside.insert(index);
                }
            }
        }
        reached
    }
}

/// Where a step leads.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reached {
    /// The paths that end here.
    pub(crate) ends: Set,
    /// The paths that lead further.
    pub(crate) inside: Set,
}

/// A set of paths by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set(u64);

impl Set {
    /// Adds a number below [`MAX_PATHS`].
    #[inline]
    pub fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    /// Whether it holds this number.
    #[inline]
    pub fn contains(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    /// Whether it holds nothing.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The lowest number.
    #[inline]
    pub fn first(self) -> Option<usize> {
        (!self.is_empty()).then(|| self.0.trailing_zeros() as usize)
    }
}

impl BitAnd for Set {
    type Output = Set;

    #[inline]
    fn bitand(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }
}

impl Iterator for Set {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let first = self.first()?;
        self.0 &= self.0 - 1;
        Some(first)
    }
}

impl FromIterator<usize> for Set {
    fn from_iter<I: IntoIterator<Item = usize>>(indexes: I) -> Self {
        let mut set = Set::default();
        indexes.into_iter().for_each(|index| set.insert(index));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Step {
        Step::Name { name: name.into(), index: None }
    }

    fn steps(written: &str) -> Result<Vec<Step>, PathError> {
        written.parse().map(|path: Path| path.steps)
    }

    #[test]
    fn dots_join_steps() {
        assert_eq!(steps("a.b-c.d e"), Ok(vec![name("a"), name("b-c"), name("d e")]));
        assert_eq!(steps("a.*.b"), Ok(vec![name("a"), Step::Any, name("b")]));
        assert_eq!(steps("a*"), Ok(vec![name("a*")]));
    }

    #[test]
    fn a_backslash_makes_plain() {
        assert_eq!(steps(r"a\.b.c"), Ok(vec![name("a.b"), name("c")]));
        assert_eq!(steps(r"\*"), Ok(vec![name("*")]));
        assert_eq!(steps(r"\\"), Ok(vec![name(r"\")]));
        assert_eq!(steps(r"a\b"), Err(PathError::BadEscape(r"a\b".into())));
        assert_eq!(steps(r"a\"), Err(PathError::BadEscape(r"a\".into())));
    }

    #[test]
    fn digits_are_an_index_too() {
        assert_eq!(steps("0"), Ok(vec![Step::Name { name: "0".into(), index: Some(0) }]));
        assert_eq!(steps("01"), Ok(vec![name("01")]));
        assert_eq!(steps("+1"), Ok(vec![name("+1")]));
    }

    #[test]
    fn a_step_is_not_empty() {
        for written in ["", ".", "a.", ".a", "a..b"] {
            assert_eq!(steps(written), Err(PathError::EmptyStep(written.into())));
        }
    }

    #[test]
    fn depth_and_number_are_limited() {
        let deep = |steps| vec!["a"; steps].join(".").parse::<Path>();
        assert!(deep(MAX_DEPTH).is_ok());
        assert_eq!(deep(MAX_DEPTH + 1), Err(PathError::TooDeep(MAX_DEPTH + 1)));
        let path: Path = "a".parse().unwrap();
        assert!(Paths::new(vec![path.clone(); MAX_PATHS]).is_some());
        assert!(Paths::new(vec![path; MAX_PATHS + 1]).is_none());
    }

    #[test]
    fn a_set_counts_its_numbers_up() {
        let set: Set = [63, 0, 5].into_iter().collect();
        assert_eq!(set.collect::<Vec<_>>(), [0, 5, 63]);
        assert!(set.contains(63) && !set.contains(1));
        assert_eq!(Set::default().first(), None);
    }
}
