//! A configuration against its JSON Schema: every error in words of the configuration, and what remains without what is
//! wrong, so that the checks which need a whole configuration can still find the other errors.

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
    let mut remove: Vec<KeyPath> = broken.iter().chain(findings.iter().map(Finding::culprit)).cloned().collect();
    for _ in 0..MAX_PRUNING_ROUNDS {
        if remove.is_empty() {
            return Some(Valid { value, pruned });
        }
        for path in remove {
            prune(&mut value, path, &mut pruned)?;
        }
        remove = find(&value).iter().map(|finding| finding.culprit().clone()).collect();
    }
    None
}

fn find(value: &Value) -> Vec<Finding> {
    VALIDATOR.iter_errors(value).flat_map(|error| Finding::of(&error, value)).collect()
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
