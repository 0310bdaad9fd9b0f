//! `${env:NAME}` and `${file:PATH}` in the text of one value.
//!
//! This happens after parsing, so that a secret may hold any character: nothing that is put in is looked at again.

use std::borrow::Cow;

/// What a secret from a file may have.
pub const MAX_FILE_BYTES: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeholder<'a> {
    Env(&'a str),
    File(&'a str),
}

/// What is wrong with one placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub message: String,
    pub help: String,
}

/// Puts in what `look_up` returns for each placeholder; `$${` stands for `${`. Text without `${` comes back as it is.
///
/// # Errors
/// Everything that is wrong with the text, not only the first.
pub fn interpolate<'a>(
    text: &'a str,
    mut look_up: impl FnMut(Placeholder<'a>) -> Result<String, Problem>,
) -> Result<Cow<'a, str>, Vec<Problem>> {
    if !text.contains("${") {
        return Ok(Cow::Borrowed(text));
    }
    let (mut out, mut problems, mut rest) = (String::with_capacity(text.len()), Vec::new(), text);
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$${") {
            out.push_str("${");
            rest = after;
        } else if let Some(after) = rest.strip_prefix("${") {
            let Some(end) = after.find('}') else {
                let message = "a placeholder begins with `${` and has no `}`".to_owned();
                problems.push(Problem { message, help: SYNTAX.to_owned() });
                break;
            };
            match read(&after[..end]).and_then(&mut look_up) {
                Ok(value) => out.push_str(&value),
                Err(problem) => problems.push(problem),
            }
            rest = &after[end + 1..];
        } else {
            out.push('$');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    if problems.is_empty() { Ok(Cow::Owned(out)) } else { Err(problems) }
}

const SYNTAX: &str = "accepted: `${env:NAME}`, `${file:PATH}`; write `$${` for a plain `${`";

fn read(inner: &str) -> Result<Placeholder<'_>, Problem> {
    match inner.split_once(':') {
        Some(("env", name)) if is_variable(name) => Ok(Placeholder::Env(name)),
        Some(("env", name)) => Err(Problem {
            message: format!("`{name}` is not the name of an environment variable"),
            help: "letters, digits and `_`; there is no syntax for a default".to_owned(),
        }),
        Some(("file", path)) if !path.is_empty() => Ok(Placeholder::File(path)),
        _ => Err(Problem { message: format!("`${{{inner}}}` is not a placeholder"), help: SYNTAX.to_owned() }),
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn look_up(placeholder: Placeholder<'_>) -> Result<String, Problem> {
        match placeholder {
            Placeholder::Env("NASTY") => Ok("a\"b: ${env:X}\n#".to_owned()),
            Placeholder::Env(name) => Ok(format!("<{name}>")),
            Placeholder::File(path) => Ok(format!("[{path}]")),
        }
    }

    fn check(text: &str, expected: &str) {
        assert_eq!(interpolate(text, look_up).as_deref(), Ok(expected));
    }

    fn check_error(text: &str, expected: &[&str]) {
        let problems = interpolate(text, look_up).unwrap_err();
        assert_eq!(problems.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn placeholders_are_replaced_once() {
        check("${env:A}", "<A>");
        check("x${env:A}y${file:/run/secrets/k}z", "x<A>y[/run/secrets/k]z");
        check("${env:NASTY}", "a\"b: ${env:X}\n#");
    }

    #[test]
    fn dollars_are_kept() {
        check("$", "$");
        check("a$b {x} $$", "a$b {x} $$");
        check("$${env:A}", "${env:A}");
        check("$$${env:A}${env:A}", "$${env:A}<A>");
    }

    #[test]
    fn every_problem_is_reported() {
        check_error(
            "${HOME} ${env:1} ${file:}",
            &[
                "`${HOME}` is not a placeholder",
                "`1` is not the name of an environment variable",
                "`${file:}` is not a placeholder",
            ],
        );
        check_error("${env:A", &["a placeholder begins with `${` and has no `}`"]);
    }

    proptest! {
        #[test]
        fn text_without_placeholders_never_changes(text in "[^{]*|\\PC*") {
            prop_assume!(!text.contains("${"));
            prop_assert_eq!(interpolate(&text, look_up).unwrap(), text.as_str());
        }

        #[test]
        fn what_is_escaped_comes_back(text in "[${}a:env ]*") {
            let escaped = text.replace("${", "$${");
            // A dollar before an escape would join it: `$` + `$${`.
            prop_assume!(!escaped.contains("$$${"));
            prop_assert_eq!(interpolate(&escaped, look_up).unwrap(), text.as_str());
        }
    }
}
