//! The rows of a delivery on their way through the chain. What is decided is kept here until the whole chain is done, so
//! that a delivery whose processing has to wait is as it was before.

use super::verdict::{Checked, Decision, Decisions, Effect, Field, Shape};
use crate::delivery::{Delivery, Fate, OnError, Rejection, Stage};
use crate::record::{Batch, Record};

pub struct Rows<'a> {
    input: &'a Batch,
    /// `None` = the rows are those of `input`.
    made: Option<Batch>,
    /// One per row; empty = every row is written and as it came.
    marks: Vec<Mark>,
    /// How many rows are to be written.
    writes: usize,
    /// How many rows plugins rejected of their own accord.
    rejects: u64,
}

/// A plugin of the chain, and what happens to what it rejects.
#[derive(Clone, Debug)]
pub struct Author {
    pub stage: Stage,
    pub policy: OnError,
}

impl Author {
    pub fn reject(&self, cause: String, attempts: u32) -> Rejection {
        Rejection { stage: self.stage.clone(), cause, policy: self.policy, attempts }
    }
}

#[derive(Clone, Debug)]
struct Mark {
    origin: u32,
    fate: Fate,
    changed: bool,
}

/// What became of a run of rows that were given to a plugin together.
pub struct Part {
    pub rows: usize,
    pub outcome: Outcome,
}

pub enum Outcome {
    Answered(Checked),
    Rejected(Rejection),
}

/// The end of the chain, without the borrow of the delivery.
pub struct Finished {
    made: Option<Batch>,
    marks: Vec<Mark>,
    rows: usize,
    /// How many rows plugins rejected of their own accord.
    pub rejects: u64,
}

/// How many rows ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub kept: u64,
    pub changed: u64,
    pub dropped: u64,
    pub rejected: u64,
}

impl<'a> Rows<'a> {
    /// Every record of `input` is to be written as it is.
    pub fn new(input: &'a Batch) -> Self {
        Self { input, made: None, marks: Vec::new(), writes: input.len(), rejects: 0 }
    }

    /// All rows, whatever becomes of them.
    pub fn batch(&self) -> &Batch {
        self.made.as_ref().unwrap_or(self.input)
    }

    /// How many rows are to be written: those that the next plugin is given.
    pub fn writes(&self) -> usize {
        self.writes
    }

    /// The rows that are to be written.
    pub fn written(&self) -> impl Iterator<Item = Record<'_>> {
        self.batch().iter().enumerate().filter(|(row, _)| self.is_written(*row)).map(|(_, record)| record)
    }

    /// For each row that is to be written: the origin's offset, and the how-manieth row of that origin it is.
    pub fn identities(&self) -> impl Iterator<Item = (i64, u32)> {
        let mut last = (u32::MAX, 0);
        self.batch().iter().enumerate().filter_map(move |(row, record)| {
            let origin = self.marks.get(row).map_or(row as u32, |mark| mark.origin);
            last = if last.0 == origin { (origin, last.1 + 1) } else { (origin, 0) };
            self.is_written(row).then_some((record.offset, last.1))
        })
    }

    /// Decides about each row by itself.
    pub fn judge(&mut self, judge: impl Fn(&Record<'_>) -> Option<Fate>) {
        let mut fates = Vec::new();
        for (row, record) in self.batch().iter().enumerate() {
            if let Some(fate) = judge(&record) {
                fates.push((row, fate));
            }
        }
        fates.into_iter().for_each(|(row, fate)| self.set_fate(row, fate));
    }

    /// Applies what became of the rows that were to be written, in their order.
    ///
    /// # Panics
    /// If `parts` do not cover exactly those rows.
    pub fn apply(&mut self, parts: &[Part], author: &Author) {
        let covered: usize = parts.iter().map(|part| part.rows).sum();
        assert_eq!(covered, self.writes, "each written row is in one part");
        match parts.iter().map(Part::effect).max() {
            None | Some(Effect::None) => {}
            Some(Effect::Fates) => self.end(parts, author),
            Some(Effect::Rows) => self.rebuild(parts, author),
        }
    }

    pub fn finish(self) -> Finished {
        let rows = self.batch().len();
        Finished { made: self.made, marks: self.marks, rows, rejects: self.rejects }
    }

    fn is_written(&self, row: usize) -> bool {
        self.marks.get(row).is_none_or(|mark| mark.fate == Fate::Write)
    }

    fn set_fate(&mut self, row: usize, fate: Fate) {
        if self.marks.is_empty() {
            let fresh = |origin| Mark { origin, fate: Fate::Write, changed: false };
            self.marks = (0..self.batch().len() as u32).map(fresh).collect();
        }
        self.marks[row].fate = fate;
        self.writes -= 1;
    }

    /// Only fates change.
    fn end(&mut self, parts: &[Part], author: &Author) {
        let written: Vec<usize> = (0..self.batch().len()).filter(|row| self.is_written(*row)).collect();
        let mut steps = Steps::new(parts);
        for row in written {
            match steps.next() {
                Step::Decided(Decision::Drop | Decision::Expand(0)) => self.set_fate(row, Fate::Drop),
                Step::Decided(Decision::Reject(reason)) => {
                    self.rejects += 1;
                    self.set_fate(row, Fate::Reject(author.reject(reason.to_owned(), 1)));
                }
                Step::Rejected(rejection) => self.set_fate(row, Fate::Reject(rejection.clone())),
                Step::Decided(_) => {}
            }
        }
    }

    fn rebuild(&mut self, parts: &[Part], author: &Author) {
        let old = self.batch();
        let grown: usize = parts.iter().map(Part::bytes).sum();
        let mut builder = Builder {
            batch: Batch::with_capacity(old.partition().clone(), old.len(), old.data_bytes().max(grown)),
            marks: Vec::with_capacity(old.len()),
        };
        let mut rejects = 0;
        let mut steps = Steps::new(parts);
        for (row, record) in old.iter().enumerate() {
            let mark = self.marks.get(row);
            let (origin, changed) = mark.map_or((row as u32, false), |mark| (mark.origin, mark.changed));
            if let Some(mark) = mark.filter(|mark| mark.fate != Fate::Write) {
                builder.copy(&record, mark.clone());
                continue;
            }
            let ended = |fate| Mark { origin, fate, changed };
            match steps.next() {
                Step::Rejected(rejection) => builder.copy(&record, ended(Fate::Reject(rejection.clone()))),
                Step::Decided(decision) => match decision {
                    Decision::Keep => builder.copy(&record, ended(Fate::Write)),
                    Decision::Drop | Decision::Expand(0) => builder.copy(&record, ended(Fate::Drop)),
                    Decision::Reject(reason) => {
                        rejects += 1;
                        builder.copy(&record, ended(Fate::Reject(author.reject(reason.to_owned(), 1))));
                    }
                    Decision::SetValue(value) => {
                        let shape = Shape { key: Field::Same, value: Field::New(value), headers: None };
                        builder.make(&record, origin, shape);
                    }
                    Decision::Replace(shape) => builder.make(&record, origin, shape),
                    Decision::Expand(rows) => {
                        for _ in 0..rows {
                            builder.make(&record, origin, steps.shape());
                        }
                    }
                },
            }
        }
        self.writes = builder.marks.iter().filter(|mark| mark.fate == Fate::Write).count();
        self.rejects += rejects;
        self.made = Some(builder.batch);
        self.marks = builder.marks;
    }
}

impl Part {
    fn effect(&self) -> Effect {
        match &self.outcome {
            Outcome::Answered(checked) => checked.effect(),
            Outcome::Rejected(_) => Effect::Fates,
        }
    }

    /// What the part takes of the output limit.
    pub fn bytes(&self) -> usize {
        match &self.outcome {
            Outcome::Answered(checked) => checked.bytes(),
            Outcome::Rejected(_) => 0,
        }
    }
}

impl Finished {
    pub fn tally(&self) -> Tally {
        if self.marks.is_empty() {
            return Tally { kept: self.rows as u64, ..Tally::default() };
        }
        let mut tally = Tally::default();
        for mark in &self.marks {
            let count = match (&mark.fate, mark.changed) {
                (Fate::Write, false) => &mut tally.kept,
                (Fate::Write, true) => &mut tally.changed,
                (Fate::Drop, _) => &mut tally.dropped,
                (Fate::Reject(_), _) => &mut tally.rejected,
            };
            *count += 1;
        }
        tally
    }

    /// The rejections, one for each row that was rejected.
    pub fn rejections(&self) -> impl Iterator<Item = &Rejection> {
        self.marks.iter().filter_map(|mark| match &mark.fate {
            Fate::Reject(rejection) => Some(rejection),
            _ => None,
        })
    }

    /// Writes what was decided into the delivery whose input the rows came from.
    pub fn store(self, delivery: &mut Delivery) {
        match self.made {
            Some(rows) => delivery.set_rows(rows, self.marks.into_iter().map(|mark| (mark.origin, mark.fate))),
            None => {
                for (row, mark) in self.marks.into_iter().enumerate() {
                    if mark.fate != Fate::Write {
                        delivery.set_fate(row, mark.fate);
                    }
                }
            }
        }
    }
}

struct Builder {
    batch: Batch,
    marks: Vec<Mark>,
}

impl Builder {
    fn copy(&mut self, record: &Record<'_>, mark: Mark) {
        self.batch.push_record(record);
        self.marks.push(mark);
    }

    fn make(&mut self, record: &Record<'_>, origin: u32, shape: Shape<'_>) {
        let key = shape.key.or(record.key);
        let value = shape.value.or(record.value);
        self.batch.push(record.offset, record.timestamp, key, value);
        match shape.headers {
            None => self.batch.push_headers(record.headers),
            Some(pairs) => pairs.for_each(|(name, value)| self.batch.push_header(name, value)),
        }
        self.marks.push(Mark { origin, fate: Fate::Write, changed: true });
    }
}

impl<'a> Field<'a> {
    fn or(self, same: Option<&'a [u8]>) -> Option<&'a [u8]> {
        match self {
            Self::Same => same,
            Self::New(field) => field,
        }
    }
}

/// The decisions of all parts, one for each row that was to be written.
struct Steps<'a> {
    parts: std::slice::Iter<'a, Part>,
    decisions: Option<Decisions<'a>>,
}

enum Step<'a> {
    Decided(Decision<'a>),
    Rejected(&'a Rejection),
}

impl<'a> Steps<'a> {
    fn new(parts: &'a [Part]) -> Self {
        Self { parts: parts.iter(), decisions: None }
    }

    fn next(&mut self) -> Step<'a> {
        loop {
            if let Some(decision) = self.decisions.as_mut().and_then(Iterator::next) {
                return Step::Decided(decision);
            }
            let part = self.parts.next().expect("the parts cover each written row");
            match &part.outcome {
                Outcome::Answered(checked) => self.decisions = Some(checked.decisions()),
                Outcome::Rejected(rejection) => return Step::Rejected(rejection),
            }
        }
    }

    fn shape(&mut self) -> Shape<'a> {
        self.decisions.as_mut().expect("an expansion is under way").shape()
    }
}

#[cfg(test)]
mod tests;
