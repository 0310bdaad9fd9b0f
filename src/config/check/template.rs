//! Paths with placeholders.

use std::path::PathBuf;

use crate::config::checked::PathTemplate;
use crate::config::suggest::suggest;

const PLACEHOLDERS: [&str; 3] = ["route", "topic", "partition"];

/// Splits a path before the first component that has a placeholder; `resolve` makes the part before it absolute.
///
/// # Errors
/// The message and the help.
pub fn template(text: &str, resolve: impl Fn(&str) -> PathBuf) -> Result<PathTemplate, (String, String)> {
    check_placeholders(text)?;
    if text.split('/').any(|component| component == "..") {
        let help = "write the directory itself, absolute or below the configuration file's".to_owned();
        return Err((format!("`{text}` leaves its directory by `..`"), help));
    }
    if text.contains('\0') {
        return Err(("the path holds a zero byte".to_owned(), "no file can be named so".to_owned()));
    }
    let is_file = !matches!(text.rsplit('/').next(), None | Some("" | "."));
    if !is_file {
        return Err((
            format!("`{text}` is a directory"),
            "accepted: such as `audit/{topic}-{partition}.ndjson`".to_owned(),
        ));
    }
    let fixed = text.find('{').unwrap_or(text.len());
    let (directory, rest) = match text[..fixed].rfind('/') {
        // The slash of the root belongs to the directory.
        Some(slash) => (&text[..slash.max(1)], &text[slash + 1..]),
        None => ("", text),
    };
    let rest: Vec<&str> = rest.split('/').filter(|component| !matches!(*component, "" | ".")).collect();
    Ok(PathTemplate { root: resolve(directory), rest: rest.join("/") })
}

fn check_placeholders(text: &str) -> Result<(), (String, String)> {
    let mut rest = text;
    while let Some(brace) = rest.find(['{', '}']) {
        let name = rest[brace..].strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let Some((name, after)) = name else {
            let help = "accepted: `{route}`, `{topic}`, `{partition}`".to_owned();
            return Err((format!("`{text}` has a brace without its counterpart"), help));
        };
        if !PLACEHOLDERS.contains(&name) {
            let help = suggest(&format!("{{{name}}}"), &PLACEHOLDERS.map(|known| format!("{{{known}}}")));
            return Err((format!("`{{{name}}}` is not a placeholder"), help));
        }
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resolve(directory: &str) -> PathBuf {
        std::path::Path::new("/etc/tidegate").join(directory)
    }

    fn check(text: &str, root: &str, rest: &str) {
        let expected = PathTemplate { root: PathBuf::from(root), rest: rest.to_owned() };
        assert_eq!(template(text, resolve), Ok(expected), "{text}");
    }

    #[test]
    fn a_path_is_split_before_its_first_placeholder() {
        check("audit/{topic}-{partition}.ndjson", "/etc/tidegate/audit", "{topic}-{partition}.ndjson");
        check("audit/x{topic}/{partition}.ndjson", "/etc/tidegate/audit", "x{topic}/{partition}.ndjson");
        check("/var/{route}/./a//b.ndjson", "/var", "{route}/a/b.ndjson");
        check("/{topic}", "/", "{topic}");
        check("all.ndjson", "/etc/tidegate/", "all.ndjson");
        check("a/b/all.ndjson", "/etc/tidegate/a/b", "all.ndjson");
        for wrong in ["a/../b", "{topic}/../b", "a/", "a/.", "{topik}", "{topic", "a}b", "{}"] {
            assert!(template(wrong, resolve).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_path_leaves_its_root(text in "(\\{topic\\}|\\{partition\\}|[a./]){0,12}") {
            if let Ok(template) = template(&text, resolve) {
                prop_assert!(!template.rest.is_empty() && !template.rest.starts_with('/'));
                prop_assert!(template.rest.split('/').all(|component| !matches!(component, "" | "." | "..")));
                prop_assert!(!template.root.to_string_lossy().contains('{'), "{:?}", template.root);
            }
        }
    }
}
