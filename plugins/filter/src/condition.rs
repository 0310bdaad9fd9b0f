//! The checked conditions, and whether they hold for a record.

use std::ops::Range;

use tidegate_json::{Item, Malformed, Paths, Set, Visitor, Walk, scan};
use tidegate_plugin::Record;

use crate::config::{NotJson, Tombstones};
use crate::test::{FieldTest, TextTest};

/// The plugin.
pub struct Filter {
    pub(crate) condition: Condition,
    /// Whether records that meet the condition are those that go on.
    pub(crate) keeps: bool,
    /// The paths of all conditions on fields, followed in one walk.
    pub(crate) paths: Paths,
    /// What is tested at each path.
    pub(crate) fields: Vec<FieldTest>,
    pub(crate) tombstones: Tombstones,
    pub(crate) not_json: NotJson,
}

/// A condition.
pub(crate) enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    Key(TextTest),
    Header {
        name: String,
        test: TextTest,
    },
    /// The test of this number on the field of its path.
    Field(usize),
}

impl Condition {
    /// Whether it holds, decided from left to right and no further than needed. An error means that a field was needed of
    /// a value that is not JSON.
    pub(crate) fn holds(&self, facts: &mut Facts<'_>) -> Result<bool, Malformed> {
        match self {
            Self::All(conditions) => {
                for condition in conditions {
                    if !condition.holds(facts)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Any(conditions) => {
                for condition in conditions {
                    if condition.holds(facts)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Not(condition) => Ok(!condition.holds(facts)?),
            Self::Key(test) => Ok(test.passes(facts.record.key().map(Some))),
            Self::Header { name, test } => Ok(test.passes(facts.record.header(name))),
            Self::Field(index) => facts.field_passes(*index),
        }
    }

    pub(crate) fn needs_key(&self) -> bool {
        self.needs(&|condition| matches!(condition, Self::Key(_)))
    }

    pub(crate) fn needs_headers(&self) -> bool {
        self.needs(&|condition| matches!(condition, Self::Header { .. }))
    }

    fn needs(&self, is: &dyn Fn(&Self) -> bool) -> bool {
        match self {
            Self::All(conditions) | Self::Any(conditions) => conditions.iter().any(|condition| condition.needs(is)),
            Self::Not(condition) => condition.needs(is),
            leaf => is(leaf),
        }
    }
}

/// What is known of a record. Its value is walked over once, when the first field is asked for.
pub(crate) struct Facts<'a> {
    record: &'a Record<'a>,
    paths: &'a Paths,
    fields: &'a [FieldTest],
    found: Option<Found>,
}

/// What a walk has found, by the numbers of the paths.
#[derive(Clone, Copy, Default)]
struct Found {
    /// The fields that are there.
    there: Set,
    /// Those of them that pass their test.
    passed: Set,
}

impl<'a> Facts<'a> {
    pub(crate) fn of(record: &'a Record<'a>, paths: &'a Paths, fields: &'a [FieldTest]) -> Self {
        Self { record, paths, fields, found: None }
    }

    fn field_passes(&mut self, index: usize) -> Result<bool, Malformed> {
        let found = match self.found {
            Some(found) => found,
            None => *self.found.insert(self.walk()?),
        };
        Ok(if self.fields[index].exists { found.passed.contains(index) } else { !found.there.contains(index) })
    }

    fn walk(&self) -> Result<Found, Malformed> {
        let mut found = Found::default();
        if let Some(value) = self.record.value() {
            scan(value, self.paths, &mut Tester { value, fields: self.fields, found: &mut found })?;
        }
        Ok(found)
    }
}

/// Tests fields on a walk.
struct Tester<'a> {
    value: &'a [u8],
    fields: &'a [FieldTest],
    found: &'a mut Found,
}

impl Visitor for Tester<'_> {
    type Frame = ();

    fn item(&mut self, (): &mut (), _: &Item<'_>) -> Walk {
        Walk::Into
    }

    fn value(&mut self, item: &Item<'_>, value: Range<usize>) {
        let json = std::str::from_utf8(&self.value[value]).expect("`scan` has checked that the text is UTF-8");
        for index in item.ends {
            self.found.there.insert(index);
            if self.fields[index].passes(json) {
                self.found.passed.insert(index);
            }
        }
    }
}
