//! Which of the schema's alternatives is meant, so that only its errors are shown.

use jsonschema::ValidationError;
use serde_json::Value;

use super::finding::{Finding, Problem, last_key};
use crate::config::path::KeyPath;

/// The alternative that is meant is the one that fits as a whole in kind: no complaint about the value's own type, nor about
/// its `type` key.
pub fn choose(context: &[Vec<ValidationError<'static>>], path: KeyPath, found: Value, root: &Value) -> Vec<Finding> {
    let alternatives: Vec<Vec<Finding>> =
        context.iter().map(|errors| errors.iter().flat_map(|error| Finding::of(error, root)).collect()).collect();
    let kind = path.key("type");
    let misses = |finding: &Finding| {
        (finding.path == path && !matches!(finding.problem, Problem::TooFew { .. } | Problem::OutOfRange { .. }))
            || finding.path == kind
    };
    let mut meant = alternatives.iter().filter(|findings| !findings.iter().any(misses));
    match (meant.next(), meant.next()) {
        (Some(_), None) => {
            let index = alternatives.iter().position(|findings| !findings.iter().any(misses));
            return index.and_then(|index| alternatives.into_iter().nth(index)).unwrap_or_default();
        }
        (Some(_), Some(_)) => return of_keyed(alternatives, path, &found),
        _ => {}
    }
    let all = || alternatives.iter().flatten();
    let options_at = |place: &KeyPath| -> Vec<String> {
        let of = |finding: &Finding| match &finding.problem {
            Problem::NotOneOf { options, .. } if finding.path == *place => options.clone(),
            _ => Vec::new(),
        };
        all().flat_map(of).collect()
    };
    let at_kind = options_at(&kind);
    if !at_kind.is_empty() {
        let found = found.get("type").cloned().unwrap_or_default();
        return vec![Finding { path: kind, problem: Problem::NotOneOf { found, options: at_kind } }];
    }
    if let Some(missing) = all().position(|finding| finding.path == kind) {
        return alternatives.into_iter().flatten().nth(missing).into_iter().collect();
    }
    let options = options_at(&path);
    if found.is_string() && !options.is_empty() {
        return vec![Finding { path, problem: Problem::NotOneOf { found, options } }];
    }
    let mut expected: Vec<String> = options.iter().map(|option| format!("`{option}`")).collect();
    for finding in all().filter(|finding| finding.path == path) {
        if let Problem::WrongType { expected: one, .. } = &finding.problem
            && (one != "text" || options.is_empty())
            && !expected.contains(one)
        {
            expected.push(one.clone());
        }
    }
    vec![Finding { path, problem: Problem::WrongType { found, expected: expected.join(", "), scalar: false } }]
}

/// Of alternatives that differ by the one key that each has.
fn of_keyed(alternatives: Vec<Vec<Finding>>, path: KeyPath, found: &Value) -> Vec<Finding> {
    let about_keys = |finding: &Finding| {
        finding.path.parent().as_ref() == Some(&path)
            && matches!(finding.problem, Problem::Missing { .. } | Problem::UnknownKey { .. })
    };
    if let Some(index) = alternatives.iter().position(|findings| !findings.iter().any(about_keys)) {
        return alternatives.into_iter().nth(index).unwrap_or_default();
    }
    let mut options: Vec<String> = Vec::new();
    for finding in alternatives.iter().flatten() {
        match &finding.problem {
            Problem::UnknownKey { known } => options.extend(known.iter().cloned()),
            Problem::Missing { .. } => options.push(last_key(&finding.path)),
            _ => {}
        }
    }
    options.sort();
    options.dedup();
    let keys = found.as_object().into_iter().flat_map(|found| found.keys());
    let unknown: Vec<&String> = keys.filter(|key| !options.contains(key)).collect();
    if unknown.is_empty() {
        return vec![Finding { path, problem: Problem::NotOneKey { options } }];
    }
    let of_key =
        |key: &&String| Finding { path: path.key(key), problem: Problem::UnknownKey { known: options.clone() } };
    unknown.iter().map(of_key).collect()
}
