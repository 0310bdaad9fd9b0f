//! Which of the schema's alternatives is meant, so that only its errors are shown.

use jsonschema::ValidationError;
use serde_json::Value;

use super::finding::{Finding, Problem, last_key};
use crate::config::path::KeyPath;
use crate::config::suggest::nearest;

/// The alternative that is meant is the one that fits as a whole in kind: no complaint about the value's own type, nor about
/// its `type` key.
///
/// `schema` is where the schema has the alternatives.
pub fn choose(
    context: &[Vec<ValidationError<'static>>],
    path: KeyPath,
    found: Value,
    schema: &str,
    root: &Value,
) -> Vec<Finding> {
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
        (Some(_), Some(_)) => return of_keyed(alternatives, path, &found, schema),
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
    let is_missing = all().any(|finding| finding.path == kind && matches!(finding.problem, Problem::Missing));
    if !at_kind.is_empty() || is_missing {
        return of_kind(alternatives, &kind, &found, at_kind);
    }
    let options = options_at(&path);
    if found.is_string() && !options.is_empty() {
        let schema = schema.to_owned();
        return vec![Finding { path, problem: Problem::NotOneOf { found, options }, schema }];
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
    let problem = Problem::WrongType { found, expected: expected.join(", "), scalar: false };
    vec![Finding { path, problem, schema: schema.to_owned() }]
}

/// Of alternatives that differ by their `type`, which stands at `kind` and is none of `options`, or is missing. Which one is
/// meant can often be told all the same, and then everything else that is wrong with it is said too.
fn of_kind(alternatives: Vec<Vec<Finding>>, kind: &KeyPath, found: &Value, options: Vec<String>) -> Vec<Finding> {
    let accepts = |findings: &Vec<Finding>, option: &str| {
        let is_option = |finding: &Finding| match &finding.problem {
            Problem::NotOneOf { options, .. } => finding.path == *kind && options.iter().any(|one| one == option),
            _ => false,
        };
        findings.iter().any(is_option)
    };
    let written = found.get("type");
    let near = written.and_then(Value::as_str).and_then(|written| nearest(written, &options));
    let meant = match near {
        Some(near) => alternatives.iter().position(|findings| accepts(findings, near)),
        None => fitting(&alternatives),
    };
    let is_known = meant.is_some();
    let findings = alternatives.into_iter().nth(meant.unwrap_or_default()).unwrap_or_default();
    let (of_kind, others): (Vec<_>, Vec<_>) = findings.into_iter().partition(|finding| finding.path == *kind);
    let problem = match written {
        Some(written) => Problem::NotOneOf { found: written.clone(), options },
        None => Problem::Missing,
    };
    let of_kind = of_kind.into_iter().next().map(|finding| Finding { problem, ..finding });
    of_kind.into_iter().chain(others.into_iter().filter(|_| is_known)).collect()
}

/// The one alternative of which the least is wrong, if there is one.
fn fitting(alternatives: &[Vec<Finding>]) -> Option<usize> {
    let least = alternatives.iter().map(Vec::len).min()?;
    let mut fitting = alternatives.iter().enumerate().filter(|(_, findings)| findings.len() == least);
    match (fitting.next(), fitting.next()) {
        (Some((index, _)), None) => Some(index),
        _ => None,
    }
}

/// Of alternatives that differ by the one key that each has.
fn of_keyed(alternatives: Vec<Vec<Finding>>, path: KeyPath, found: &Value, schema: &str) -> Vec<Finding> {
    let about_keys = |finding: &Finding| {
        finding.path.parent().as_ref() == Some(&path)
            && matches!(finding.problem, Problem::Missing | Problem::UnknownKey { .. })
    };
    if let Some(index) = alternatives.iter().position(|findings| !findings.iter().any(about_keys)) {
        return alternatives.into_iter().nth(index).unwrap_or_default();
    }
    let mut options: Vec<String> = Vec::new();
    for finding in alternatives.iter().flatten() {
        match &finding.problem {
            Problem::UnknownKey { known } => options.extend(known.iter().cloned()),
            Problem::Missing => options.push(last_key(&finding.path)),
            _ => {}
        }
    }
    options.sort();
    options.dedup();
    let keys = found.as_object().into_iter().flat_map(|found| found.keys());
    let unknown: Vec<&String> = keys.filter(|key| !options.contains(key)).collect();
    if unknown.is_empty() {
        return vec![Finding { path, problem: Problem::NotOneKey { options }, schema: schema.to_owned() }];
    }
    let of_key = |key: &&String| Finding {
        path: path.key(key),
        problem: Problem::UnknownKey { known: options.clone() },
        schema: String::new(),
    };
    unknown.iter().map(of_key).collect()
}
