//! A configuration against its JSON Schema: every error in words of the configuration, and what remains without what is
//! wrong, so that the checks which need a whole configuration can still find the other errors.

mod alternatives;
mod finding;

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

use self::finding::Finding;
use super::document::Document;
use super::errors::Errors;
use super::path::{KeyPath, Segment};
use super::schema::schema;
use super::yaml;

/// Each round removes at least one value; what is not valid by then is given up.
const MAX_PRUNING_ROUNDS: usize = 16;

static VALIDATOR: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::validator_for(schema()).expect("the schema of the configuration is a schema"));

/// What is left of a configuration.
#[derive(Debug)]
pub struct Valid {
    pub value: Value,
    /// What was taken out of it, each named by an error.
    pub pruned: Vec<KeyPath>,
}

/// `broken` are places that have an error already. `None` when nothing is left to look at.
pub fn validate(document: &Document, mut value: Value, broken: &[KeyPath], errors: &mut Errors) -> Option<Valid> {
    let mut findings = find(&value);
    if coerce(document, &mut value, &findings) {
        findings = find(&value);
    }
    for finding in &findings {
        if !broken.contains(&finding.path) {
            finding.report(document, errors);
        }
    }
    let mut pruned: Vec<KeyPath> = Vec::new();
    for path in broken {
        prune(&mut value, path.clone(), &mut pruned)?;
    }
    for _ in 0..MAX_PRUNING_ROUNDS {
        let findings = find(&value);
        if findings.is_empty() {
            return Some(Valid { value, pruned });
        }
        for finding in findings {
            if !replace(&mut value, &finding, &mut pruned) {
                prune(&mut value, finding.culprit().clone(), &mut pruned)?;
            }
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

/// Puts something valid there, where that is possible. Never twice.
fn replace(value: &mut Value, finding: &Finding, pruned: &mut Vec<KeyPath>) -> bool {
    let Some(replacement) = finding.replacement().filter(|_| !pruned.contains(&finding.path)) else { return false };
    let parent = finding.path.parent().and_then(|parent| parent.find_mut(value));
    match (parent, finding.path.segments().last()) {
        (Some(Value::Object(object)), Some(Segment::Key(key))) => object.insert(key.clone(), replacement),
        _ => return false,
    };
    pruned.push(finding.path.clone());
    true
}

/// Removes what is at `path`: of a list all, since the places of the others would no longer be theirs. What is gone
/// already counts as its parent, which cannot be without it. `None` at the root.
fn prune(value: &mut Value, mut path: KeyPath, pruned: &mut Vec<KeyPath>) -> Option<()> {
    loop {
        let parent = path.parent()?;
        if let Some(Segment::Key(key)) = path.segments().last()
            && let Some(Value::Object(object)) = parent.find_mut(value)
            && object.shift_remove(key).is_some()
        {
            pruned.push(path);
            return Some(());
        }
        if pruned.iter().any(|gone| path.starts_with(gone)) {
            return Some(());
        }
        path = parent;
    }
}
