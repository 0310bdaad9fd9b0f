//! A configuration against its JSON Schema: every error in words of the configuration, and the configuration mended, so that
//! the checks which need a whole one can still find every other error.
//!
//! What is not valid is mended where it stands: an unknown key is taken out, and a stand-in takes the place of what is
//! missing or of another shape. Nothing is ever said about a stand-in, nor about what goes together with it; everything
//! beside it is looked at as if nothing had been wrong.

mod alternatives;
mod finding;
mod stand_in;

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

use self::finding::Finding;
use super::document::Document;
use super::errors::Errors;
use super::path::{KeyPath, Segment};
use super::schema::schema;
use super::yaml;

/// One round mends everything that can be seen, and the next one what was behind it: the alternatives of a value whose
/// kind is mended. What is not valid by then is given up.
const MAX_MENDING_ROUNDS: usize = 16;

static VALIDATOR: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::validator_for(schema()).expect("the schema of the configuration is a schema"));

/// A configuration in which everything has the shape that it must have.
#[derive(Debug)]
pub struct Mended {
    pub value: Value,
    /// What is not as it is written, each named by an error: nothing is said about it and what stands below it.
    pub gone: Vec<KeyPath>,
}

/// `broken` are places that have an error already. `None` when the configuration cannot be mended.
pub fn validate(document: &Document, mut value: Value, broken: &[KeyPath], errors: &mut Errors) -> Option<Mended> {
    let mut findings = find(&value);
    if coerce(document, &mut value, &findings) {
        findings = find(&value);
    }
    for finding in &findings {
        if !broken.contains(&finding.path) && !finding.is_misspelt_in(&findings) {
            finding.report(document, errors);
        }
    }
    // Of a list or mapping it is the key that is broken, and what stands below it is as it is written.
    let is_scalar = |path: &&KeyPath| path.find(&value).is_some_and(|value| !value.is_array() && !value.is_object());
    let mut gone: Vec<KeyPath> = broken.iter().filter(is_scalar).cloned().collect();
    for _ in 0..MAX_MENDING_ROUNDS {
        let mut changed = false;
        for finding in find(&value) {
            changed |= mend(&mut value, &finding, &mut gone);
        }
        if !changed {
            return Some(Mended { value, gone });
        }
    }
    None
}

fn find(value: &Value) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        VALIDATOR.iter_errors(value).flat_map(|error| Finding::of(&error, value)).collect();
    let of_wrong_type: Vec<KeyPath> =
        findings.iter().filter(|finding| finding.is_about_type()).map(|finding| finding.path.clone()).collect();
    findings.retain(|finding| finding.is_about_type() || !of_wrong_type.contains(&finding.path));
    findings
}

/// Turns substituted text into a number or boolean where one is wanted: an environment variable has no types.
fn coerce(document: &Document, value: &mut Value, findings: &[Finding]) -> bool {
    let mut changed = false;
    for finding in findings {
        if !finding.wants_scalar() || !document.is_substituted(&finding.path) {
            continue;
        }
        if let Some(Value::String(text)) = finding.path.find(value)
            && let Ok(typed @ (Value::Number(_) | Value::Bool(_))) = yaml::resolve(text)
            && let Some(slot) = finding.path.find_mut(value)
        {
            *slot = typed;
            changed = true;
        }
    }
    changed
}

/// Mends what `finding` is about, and says whether that changed anything.
fn mend(value: &mut Value, finding: &Finding, gone: &mut Vec<KeyPath>) -> bool {
    let path = &finding.path;
    if finding.is_about_a_part() {
        // The parts of a list or mapping are what they are, however many there are, whatever they are called.
        if path.find(value).is_some_and(Value::is_string) {
            mark(gone, path.clone());
        }
        return false;
    }
    mark(gone, path.clone());
    let (Some(beside), Some(last)) = (path.parent(), path.segments().last()) else {
        return put(value, finding.stand_in());
    };
    match (beside.find_mut(value), last) {
        (Some(Value::Object(object)), Segment::Key(key)) if finding.is_unknown_key() => {
            if let Some(meant) = finding.meant().filter(|meant| !object.contains_key(meant.as_str())) {
                mark(gone, beside.key(&meant));
            }
            object.shift_remove(key).is_some()
        }
        (Some(Value::Object(object)), Segment::Key(key)) => {
            put(object.entry(key).or_insert(Value::Null), finding.stand_in())
        }
        (Some(Value::Array(items)), Segment::Index(index)) => {
            items.get_mut(*index).is_some_and(|item| put(item, finding.stand_in()))
        }
        // It went with what it stood in.
        _ => false,
    }
}

/// Whether that changes anything: a stand-in has the shape that it must have, though it may be out of range.
fn put(slot: &mut Value, stand_in: Value) -> bool {
    let changes = *slot != stand_in;
    *slot = stand_in;
    changes
}

fn mark(gone: &mut Vec<KeyPath>, path: KeyPath) {
    if !gone.contains(&path) {
        gone.push(path);
    }
}
