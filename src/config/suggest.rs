//! What the writer may have meant.

use std::fmt::Display;

/// Jaro-Winkler similarity from which on a name is offered: swapped, missing and doubled letters are well above it,
/// words that only share some letters below.
const SIMILAR: f64 = 0.84;
/// Options beyond these are not listed.
const MAX_LISTED: usize = 24;

/// The option that is most probably meant, if one is near.
pub fn nearest<'a, T: AsRef<str>>(found: &str, options: &'a [T]) -> Option<&'a str> {
    let found = found.to_lowercase();
    let near = options
        .iter()
        .map(|option| (strsim::jaro_winkler(&found, &option.as_ref().to_lowercase()), option.as_ref()))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    near.map(|(_, option)| option)
}

/// The nearest option, if one is near, and all of them.
pub fn suggest<T: AsRef<str>>(found: &str, options: &[T]) -> String {
    match nearest(found, options) {
        Some(option) => format!("did you mean `{option}`?\n{}", accepted(options)),
        None => accepted(options),
    }
}

pub fn accepted<T: AsRef<str>>(options: &[T]) -> String {
    if options.is_empty() {
        return "nothing is accepted here".to_owned();
    }
    let more = if options.len() > MAX_LISTED { ", …" } else { "" };
    format!("accepted: {}{more}", quoted(options.iter().take(MAX_LISTED).map(AsRef::as_ref)))
}

fn quoted(options: impl Iterator<Item = impl Display>) -> String {
    options.map(|option| format!("`{option}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(found: &str, options: &[&str], expected: Option<&str>) {
        assert_eq!(nearest(found, options), expected, "{found}");
        assert_eq!(suggest(found, options).starts_with("did you mean"), expected.is_some(), "{found}");
    }

    #[test]
    fn only_what_is_near_is_offered() {
        let keys = ["cluster", "topics", "group", "start", "keys", "drain_timeout", "properties"];
        check("tpoics", &keys, Some("topics"));
        check("topic", &keys, Some("topics"));
        check("drain-timeout", &keys, Some("drain_timeout"));
        check("Topics", &keys, Some("topics"));
        check("colour", &keys, None);
    }
}
