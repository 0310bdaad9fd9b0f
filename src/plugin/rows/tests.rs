use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::checkpoint::Checkpoint;
use crate::delivery::{Hold, Span};
use crate::plugin::verdict;
use crate::plugin::verdict::tests::{Bytes, Meant, MeantShape, bytes, encode, meant};
use crate::record::{NextOffset, TopicPartition};

/// A row of the naive model: everything owned, nothing shared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    origin: u32,
    offset: i64,
    key: Bytes,
    value: Bytes,
    headers: Vec<(Vec<u8>, Bytes)>,
    fate: Fate,
    changed: bool,
}

impl Row {
    fn of(record: &Record<'_>, origin: u32, fate: Fate) -> Self {
        Self {
            origin,
            offset: record.offset,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec))).collect(),
            fate,
            changed: false,
        }
    }

    fn reshaped(&self, shape: &MeantShape) -> Self {
        Self {
            key: shape.key.clone().unwrap_or_else(|| self.key.clone()),
            value: shape.value.clone().unwrap_or_else(|| self.value.clone()),
            headers: shape.headers.clone().unwrap_or_else(|| self.headers.clone()),
            changed: true,
            ..self.clone()
        }
    }

    /// What the model makes of a row that a plugin decided about; `None` = the call failed on it.
    fn decided(&self, meant: Option<&Meant>) -> Vec<Row> {
        let ended = |fate| vec![Row { fate, ..self.clone() }];
        match meant {
            None => ended(Fate::Reject(author().reject("guilty".to_owned(), 1))),
            Some(Meant::Keep) => vec![self.clone()],
            Some(Meant::Drop) => ended(Fate::Drop),
            Some(Meant::SetValue(value)) => {
                vec![self.reshaped(&MeantShape { key: None, value: Some(value.clone()), headers: None })]
            }
            Some(Meant::Replace(shape)) => vec![self.reshaped(shape)],
            Some(Meant::Reject(reason)) => ended(Fate::Reject(author().reject(reason.clone(), 1))),
            Some(Meant::Expand(shapes)) if shapes.is_empty() => ended(Fate::Drop),
            Some(Meant::Expand(shapes)) => shapes.iter().map(|shape| self.reshaped(shape)).collect(),
        }
    }
}

fn author() -> Author {
    let stage = Stage::Plugin { name: "p".into(), version: "1.0.0".into() };
    Author { stage, policy: OnError::DeadLetter }
}

fn delivery(input: Batch) -> Delivery {
    let next = NextOffset(input.len() as i64 + 1);
    let ticket = Checkpoint::new(None).received(0, next);
    let hold = Hold::new(Arc::default(), &input);
    Delivery::new(Span { assignment: 0, ticket, next, whole: true }, input, hold)
}

/// Groups what is meant into calls: runs of good answers, and single guilty records.
fn parts(rows: &Rows<'_>, meant: &[Option<Meant>], most: usize) -> Vec<Part> {
    let records: Vec<Record<'_>> = rows.written().collect();
    let mut parts = Vec::new();
    let mut row = 0;
    while row < meant.len() {
        let good: Vec<Meant> = meant[row..].iter().map_while(Clone::clone).take(most).collect();
        if good.is_empty() {
            parts.push(Part { rows: 1, outcome: Outcome::Rejected(author().reject("guilty".to_owned(), 1)) });
            row += 1;
        } else {
            let given = records[row..row + good.len()].iter().copied();
            let checked = verdict::check(given, encode(&good), true, 1 << 20).expect("it adds up");
            parts.push(Part { rows: good.len(), outcome: Outcome::Answered(checked) });
            row += good.len();
        }
    }
    parts
}

fn guilty_or_meant() -> impl Strategy<Value = Option<Meant>> {
    prop_oneof![1 => Just(None), 4 => meant().prop_map(Some), 4 => Just(Some(Meant::Keep))]
}

proptest! {
    /// Whatever several plugins decide, in whatever calls: the delivery ends as the naive model does.
    #[test]
    fn a_chain_of_decisions_is_as_in_the_model(
        records in proptest::collection::vec((bytes(), bytes(), proptest::option::of(bytes())), 0..12),
        chain in proptest::collection::vec((proptest::collection::vec(guilty_or_meant(), 1..9), 1_usize..6), 0..4),
    ) {
        let mut input = Batch::new(TopicPartition::new("t", 0));
        for (offset, (key, value, header)) in records.iter().enumerate() {
            input.push(offset as i64 * 2, 7, key.as_deref(), value.as_deref());
            if let Some(header) = header {
                input.push_header(b"h", header.as_deref());
            }
        }
        let mut delivery = delivery(input);
        let mut model: Vec<Row> = delivery.input().iter().zip(0..).map(|(r, i)| Row::of(&r, i, Fate::Write)).collect();

        let mut rows = Rows::new(delivery.input());
        for (pattern, most) in &chain {
            let meant: Vec<Option<Meant>> = pattern.iter().cycle().take(rows.writes()).cloned().collect();
            let parts = parts(&rows, &meant, *most);
            rows.apply(&parts, &author());
            let mut decisions = meant.iter();
            model = model
                .iter()
                .flat_map(|row| match row.fate {
                    Fate::Write => row.decided(decisions.next().expect("one for each written row").as_ref()),
                    _ => vec![row.clone()],
                })
                .collect();
            prop_assert_eq!(rows.writes(), model.iter().filter(|row| row.fate == Fate::Write).count());
        }
        let finished = rows.finish();
        let tally = finished.tally();
        finished.store(&mut delivery);

        let seen: Vec<Row> = delivery
            .outputs()
            .zip(&model)
            .map(|(output, row)| Row {
                changed: row.changed,
                ..Row::of(&output.record, output.origin_index, output.fate.clone())
            })
            .collect();
        prop_assert_eq!(&seen, &model);
        let count = |test: fn(&Row) -> bool| model.iter().filter(|row| test(row)).count() as u64;
        prop_assert_eq!(tally, Tally {
            kept: count(|row| row.fate == Fate::Write && !row.changed),
            changed: count(|row| row.fate == Fate::Write && row.changed),
            dropped: count(|row| row.fate == Fate::Drop),
            rejected: count(|row| matches!(row.fate, Fate::Reject(_))),
        });
    }
}

#[test]
fn rows_of_one_origin_are_told_apart() {
    let mut input = Batch::new(TopicPartition::new("t", 0));
    (0..3).for_each(|offset| input.push(offset, 0, None, None));
    let mut rows = Rows::new(&input);
    let same = MeantShape { key: None, value: None, headers: None };
    let meant = [Some(Meant::Drop), Some(Meant::Expand(vec![same; 2])), Some(Meant::Keep)];
    let parts = parts(&rows, &meant, 3);
    rows.apply(&parts, &author());
    assert_eq!(rows.identities().collect::<Vec<_>>(), [(1, 0), (1, 1), (2, 0)]);
}
