//! A configuration against its JSON Schema: every error in words of the configuration, and the configuration mended, so that
//! the checks which need a whole one can still find every other error.
//!
//! What is not valid is mended where it stands. A misspelt key is read as the one that is meant, any other unknown key is
//! taken out, and a stand-in takes the place of what is missing or of another shape. Nothing is ever said about a stand-in,
//! nor about what goes together with it; everything beside it is looked at as if nothing had been wrong.

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
use super::yaml::{self, Faults};

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

/// A configuration with its misspelt keys as they are meant.
#[derive(Debug)]
pub struct Respelt {
    value: Value,
    /// Places that have an error already.
    broken: Vec<KeyPath>,
    /// The misspelt keys, where they are written.
    misspelt: Vec<Finding>,
}

/// Reads misspelt keys as what is meant, if that is not there and what is written has the kind of value that belongs there:
/// so what stands below them is looked at too, and told under the name that is meant. `broken` is what is wrong already.
pub fn respell(mut value: Value, document: &mut Document, broken: &mut Faults) -> Respelt {
    let (mut misspelt, mut refused): (Vec<Finding>, Vec<KeyPath>) = (Vec::new(), Vec::new());
    for _ in 0..MAX_MENDING_ROUNDS {
        let mut renamed = Vec::new();
        for finding in find(&value) {
            if let Some((written, meant)) = finding.respelling()
                && !broken.iter().any(|(path, _)| *path == written)
                && !refused.contains(&written)
                && rename(&mut value, &written, &meant)
            {
                renamed.push((finding, written, meant));
            }
        }
        if renamed.is_empty() {
            break;
        }
        let of_another_kind: Vec<KeyPath> =
            find(&value).into_iter().filter(Finding::is_about_kind).map(|finding| finding.path).collect();
        for (finding, written, meant) in renamed {
            if of_another_kind.contains(&meant) {
                rename(&mut value, &meant, &written);
                refused.push(written);
                continue;
            }
            document.respell(&written, &meant);
            for (path, _) in broken.iter_mut() {
                *path = path.moved(&written, &meant).unwrap_or_else(|| path.clone());
            }
            misspelt.push(finding);
        }
    }
    Respelt { value, broken: broken.iter().map(|(path, _)| path.clone()).collect(), misspelt }
}

/// Whether there is something to rename, and nothing in its way. It keeps its place among the keys beside it.
fn rename(value: &mut Value, from: &KeyPath, to: &KeyPath) -> bool {
    let (Some(Segment::Key(from)), Some(Segment::Key(new))) = (from.segments().last(), to.segments().last()) else {
        return false;
    };
    let parent = to.parent().and_then(|parent| parent.find_mut(value));
    let Some(object) = parent.and_then(Value::as_object_mut) else { return false };
    if object.contains_key(new) || !object.contains_key(from) {
        return false;
    }
    // With `shift_remove` and `insert` it would come last, and so would what is said about it of two that clash.
    *object = std::mem::take(object)
        .into_iter()
        .map(|(key, value)| (if key == *from { new.clone() } else { key }, value))
        .collect();
    true
}

/// `None` when the configuration cannot be mended.
pub fn validate(respelt: Respelt, document: &Document, errors: &mut Errors) -> Option<Mended> {
    let Respelt { mut value, broken, misspelt } = respelt;
    let mut findings = find(&value);
    if coerce(document, &mut value, &findings) {
        findings = find(&value);
    }
    for finding in misspelt.iter().chain(&findings) {
        let is_misspelt = finding.is_misspelt_in(&findings) || finding.is_misspelt_property(&value);
        if !broken.contains(&finding.path) && !is_misspelt {
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
