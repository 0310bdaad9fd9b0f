//! What a write does to the table, worked out before the transaction begins: only the last row of each key, in key order.

use super::columns::{Cell, cells};
use super::schema::Schema;
use crate::config::{OnDrop, OnReject, Sink};
use crate::delivery::{Delivery, Fate, Output};
use crate::sink::RowError;
use crate::sink::coalesce::{Row, Version, coalesce};

/// The changes of one transaction.
pub struct Plan<'a> {
    pub steps: Vec<Step<'a>>,
    /// Rows left out since a later one has the same key.
    pub coalesced: u64,
    /// Rejected versions that leave an older row in place.
    pub stale: u64,
}

pub enum Step<'a> {
    Change(Row<'a, Change<'a>>),
    /// A version of a source key: its changes, after every other row of that key is removed.
    Source {
        key: &'a [u8],
        version: Version<'a>,
        changes: Vec<Row<'a, Change<'a>>>,
        keep: Vec<&'a [u8]>,
    },
}

/// What happens to one key.
#[derive(Debug)]
pub struct Change<'a> {
    /// The delivery and the row that it comes from.
    pub at: (usize, usize),
    pub source_key: Option<&'a [u8]>,
    pub action: Action<'a>,
}

#[derive(Debug)]
pub enum Action<'a> {
    Delete,
    Whole(&'a [u8]),
    Columns(Vec<Cell<'a>>),
}

/// What a plan holds of each row while it is made: the row, then the step, which it becomes, with its cells.
pub const fn row_bytes(columns: usize) -> usize {
    size_of::<Row<'_, Change<'_>>>() + size_of::<Step<'_>>() + columns * size_of::<Cell<'_>>()
}

/// What a record's outputs do, where the chain may change keys.
struct Outputs<'a> {
    changes: Vec<Row<'a, Change<'a>>>,
    /// Output keys whose older rows stay, since the newer ones are rejected.
    keep: Vec<&'a [u8]>,
    /// Whether the record counts as a version: one that is rejected whole leaves the older one in place.
    counts: bool,
}

impl<'a> Plan<'a> {
    /// # Errors
    /// The rows that can never be written. Rows that a later one would replace are looked at too, so that what is
    /// rejected does not depend on how records fall into batches.
    pub fn new(schema: &Schema, sink: &Sink, deliveries: &'a [Delivery]) -> Result<Self, Vec<RowError>> {
        let mut plan = Self { steps: Vec::new(), coalesced: 0, stale: 0 };
        let mut refused = Vec::new();
        let rows: usize = deliveries.iter().map(|delivery| delivery.rows().len()).sum();
        let mut changes = Vec::with_capacity(if schema.source_keys { 0 } else { rows });
        let mut sources: Vec<Row<'a, Outputs<'a>>> = Vec::new();
        for (index, delivery) in deliveries.iter().enumerate() {
            let mut last_origin = None;
            for (row, output) in delivery.outputs().enumerate() {
                let effect = effect(schema, sink, (index, row), &output);
                let effect = effect.unwrap_or_else(|cause| {
                    refused.push(RowError { delivery: index, row, cause });
                    Effect::Nothing
                });
                if matches!(effect, Effect::Stale) {
                    plan.stale += 1;
                }
                let version = Version::of(delivery.input().partition(), &output.origin);
                match output.origin.key.filter(|_| schema.source_keys) {
                    Some(source) => {
                        if last_origin != Some(output.origin_index) {
                            last_origin = Some(output.origin_index);
                            let outputs = Outputs { changes: Vec::new(), keep: Vec::new(), counts: false };
                            sources.push(Row { key: source, version, row: outputs });
                        }
                        if let Some(of) = sources.last_mut() {
                            of.row.add(output.record.key, version, effect);
                        }
                    }
                    None => {
                        if let (Effect::Change(change), Some(key)) = (effect, output.record.key) {
                            changes.push(Row { key, version, row: change });
                        }
                    }
                }
            }
        }
        if !refused.is_empty() {
            return Err(refused);
        }
        plan.add_sources(sources);
        let before = changes.len();
        coalesce(&mut changes);
        plan.coalesced += (before - changes.len()) as u64;
        plan.steps.extend(changes.into_iter().map(Step::Change));
        Ok(plan)
    }

    fn add_sources(&mut self, mut sources: Vec<Row<'a, Outputs<'a>>>) {
        sources.retain(|source| source.row.counts);
        let count = |sources: &[Row<'_, Outputs<'_>>]| sources.iter().map(|row| row.row.changes.len()).sum::<usize>();
        let before = count(&sources);
        coalesce(&mut sources);
        self.coalesced += (before - count(&sources)) as u64;
        self.steps.extend(sources.into_iter().map(|Row { key, version, row: Outputs { changes, keep, .. } }| {
            Step::Source { key, version, changes, keep }
        }));
    }
}

impl<'a> Outputs<'a> {
    fn add(&mut self, key: Option<&'a [u8]>, version: Version<'a>, effect: Effect<'a>) {
        match effect {
            Effect::Nothing => {}
            Effect::Stale => self.keep.extend(key),
            Effect::Forget => self.counts = true,
            Effect::Change(change) => {
                self.counts = true;
                self.changes.extend(key.map(|key| Row { key, version, row: change }));
            }
        }
    }
}

/// What one row does.
enum Effect<'a> {
    Nothing,
    /// Its older version stays and is out of date.
    Stale,
    /// It has no key, but its source key's older rows go.
    Forget,
    Change(Change<'a>),
}

fn effect<'a>(schema: &Schema, sink: &Sink, at: (usize, usize), output: &Output<'a>) -> Result<Effect<'a>, String> {
    let source_key = output.origin.key.filter(|_| schema.source_keys);
    let action = match output.fate {
        Fate::Write => match output.record.value {
            _ if output.record.key.is_none() => {
                return Err("the record has no key, and a row needs one".to_owned());
            }
            None => Action::Delete,
            Some(value) if schema.columns.is_empty() => Action::Whole(value),
            Some(value) => Action::Columns(cells(&schema.columns, value)?),
        },
        Fate::Drop if sink.on_drop == OnDrop::Ignore => return Ok(Effect::Nothing),
        Fate::Reject(_) if sink.on_reject == OnReject::Keep => {
            return Ok(if output.record.key.is_some() { Effect::Stale } else { Effect::Nothing });
        }
        Fate::Drop | Fate::Reject(_) if output.record.key.is_none() => return Ok(Effect::Forget),
        Fate::Drop | Fate::Reject(_) => Action::Delete,
    };
    Ok(Effect::Change(Change { at, source_key, action }))
}
