//! The file as it was read: which value stands where, and which text must never be shown.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::interpolate::{Placeholder, Problem, interpolate};
use super::outside::Outside;
use super::path::{KeyPath, Segment};
use super::yaml::{Data, Fault, Faults, Key, Node, Scalar, Span};

/// Shorter substituted text is not hidden in messages: it is no secret, and hiding it would garble them.
const SHORTEST_SECRET: usize = 4;
const HIDDEN: &str = "***";

#[derive(Debug, Default)]
pub struct Document {
    file: String,
    /// With secrets that are written in the file itself hidden.
    lines: Vec<String>,
    marks: BTreeMap<KeyPath, Mark>,
    /// What must not be shown, with what is shown instead. Longest first, so that no part of a longer one remains.
    secrets: Vec<(String, String)>,
}

/// Where one value stands.
#[derive(Clone, Debug)]
struct Mark {
    key: Option<Span>,
    value: Span,
    /// The text of a scalar, after substitution.
    text: Option<String>,
    substituted: bool,
}

impl Document {
    /// A file of which nothing is known but its text.
    pub fn new(file: &str, text: &str) -> Self {
        let lines = text.lines().map(|line| hide_in_address(&hide_after_secret_key(line))).collect();
        Self { file: file.to_owned(), lines, ..Self::default() }
    }

    /// Substitutes the placeholders, and returns the tree as JSON. Where a value cannot be had, `faults` says why, and JSON
    /// has the text as it is written.
    pub fn load(file: &str, text: &str, root: Node, outside: &Outside<'_>, faults: &mut Faults) -> (Self, Value) {
        let document = Self { file: file.to_owned(), ..Self::default() };
        let lines = text.lines().map(hide_in_address).collect();
        let mut loading = Loading { document, lines, outside, faults };
        let value = loading.convert(root, None, KeyPath::root());
        let Loading { mut document, lines, .. } = loading;
        document.lines = lines;
        document.secrets.sort_by_key(|(secret, _)| std::cmp::Reverse(secret.len()));
        document.secrets.dedup();
        (document, value)
    }

    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line with this number, as it may be shown.
    pub fn line(&self, number: usize) -> Option<&str> {
        self.lines.get(number.checked_sub(1)?).map(String::as_str)
    }

    /// Where the value stands; for a value that is not there, where it would have to be.
    pub fn value_span(&self, path: &KeyPath) -> Span {
        match self.marks.get(path) {
            Some(mark) if matches!(path.segments().last(), None | Some(Segment::Index(_))) || mark.text.is_some() => {
                mark.value
            }
            // A collection is named by its key.
            Some(mark) => mark.key.unwrap_or(mark.value),
            None => path.parent().map_or_else(Span::default, |parent| self.value_span(&parent)),
        }
    }

    /// Where the key stands.
    pub fn key_span(&self, path: &KeyPath) -> Span {
        self.marks.get(path).and_then(|mark| mark.key).unwrap_or_else(|| self.value_span(path))
    }

    /// The text of a scalar as written, substituted.
    pub fn text(&self, path: &KeyPath) -> Option<&str> {
        self.marks.get(path)?.text.as_deref()
    }

    pub fn is_substituted(&self, path: &KeyPath) -> bool {
        self.marks.get(path).is_some_and(|mark| mark.substituted)
    }

    pub fn has(&self, path: &KeyPath) -> bool {
        self.marks.contains_key(path)
    }

    /// Lets what stands at `written` and below it be found at `meant` too.
    pub(super) fn respell(&mut self, written: &KeyPath, meant: &KeyPath) {
        let below = self.marks.range(written.clone()..).take_while(|(path, _)| path.starts_with(written));
        let copies: Vec<_> =
            below.filter_map(|(path, mark)| Some((path.moved(written, meant)?, mark.clone()))).collect();
        self.marks.extend(copies);
    }

    /// The text without anything secret: what was substituted is shown as it is written in the file.
    pub fn hide_secrets<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut shown = Cow::Borrowed(text);
        for (secret, instead) in &self.secrets {
            if shown.contains(secret) {
                shown = Cow::Owned(shown.replace(secret, instead));
            }
        }
        shown
    }
}

struct Loading<'a> {
    document: Document,
    lines: Vec<String>,
    outside: &'a Outside<'a>,
    faults: &'a mut Faults,
}

impl Loading<'_> {
    fn convert(&mut self, node: Node, key: Option<Span>, path: KeyPath) -> Value {
        let mut mark = Mark { key, value: node.span, text: None, substituted: false };
        let value = match node.data {
            Data::Scalar(scalar) => self.scalar(scalar, &mut mark, &path),
            Data::Sequence(items) => {
                items.into_iter().enumerate().map(|(index, item)| self.convert(item, None, path.index(index))).collect()
            }
            Data::Mapping(entries) => {
                let entries = entries.into_iter().map(|(key, value)| self.entry(key, value, &path));
                Value::Object(entries.collect::<Map<_, _>>())
            }
        };
        self.document.marks.insert(path, mark);
        value
    }

    fn entry(&mut self, key: Key, value: Node, parent: &KeyPath) -> (String, Value) {
        let path = parent.key(&key.text);
        if key.text.contains("${") {
            let message = "placeholders are not replaced in keys".to_owned();
            self.fault(&path, key.span, message, "write the key itself".to_owned());
        }
        let value = self.convert(value, Some(key.span), path);
        (key.text, value)
    }

    fn scalar(&mut self, mut scalar: Scalar, mark: &mut Mark, path: &KeyPath) -> Value {
        let outside = self.outside;
        match interpolate(&scalar.text, |placeholder| look_up(placeholder, outside)) {
            Ok(Cow::Borrowed(_)) => {}
            Ok(Cow::Owned(text)) => {
                self.keep_secret(&text, scalar.text.clone());
                mark.substituted = true;
                scalar = Scalar { text, is_text: true };
            }
            Err(problems) => {
                for problem in problems {
                    self.fault(path, mark.value, problem.message, problem.help);
                }
                scalar.is_text = true;
            }
        }
        let is_written = !mark.substituted && !scalar.text.contains("${");
        if is_secret(path) && is_written && !scalar.text.is_empty() {
            self.keep_secret(&scalar.text, HIDDEN.to_owned());
            self.hide_in_lines(mark.value);
        }
        let value = scalar.value().unwrap_or_else(|message| {
            self.fault(path, mark.value, message, String::new());
            Value::String(scalar.text.clone())
        });
        mark.text = Some(scalar.text);
        value
    }

    fn keep_secret(&mut self, text: &str, instead: String) {
        if text.len() >= SHORTEST_SECRET {
            self.document.secrets.push((text.to_owned(), instead));
        }
    }

    fn hide_in_lines(&mut self, span: Span) {
        for number in span.line..=span.end_line {
            let Some(line) = self.lines.get_mut(number.wrapping_sub(1)) else { continue };
            let from = if number == span.line { span.column - 1 } else { 0 };
            let to = if number == span.end_line { span.end_column - 1 } else { usize::MAX };
            // As wide as it was, so that columns stay what they are.
            let hide = |(index, c): (usize, char)| if (from..to).contains(&index) && c != ' ' { '*' } else { c };
            *line = line.chars().enumerate().map(hide).collect();
        }
    }

    fn fault(&mut self, path: &KeyPath, span: Span, message: String, help: String) {
        self.faults.push((path.clone(), Fault { span, message, help }));
    }
}

fn look_up(placeholder: Placeholder<'_>, outside: &Outside<'_>) -> Result<String, Problem> {
    match placeholder {
        Placeholder::Env(name) => {
            let value = (outside.env)(name).ok_or_else(|| Problem {
                message: format!("the environment variable `{name}` is not set"),
                help: "set it, or write the value".to_owned(),
            })?;
            value.into_string().map_err(|_| Problem {
                message: format!("the environment variable `{name}` is not UTF-8"),
                help: String::new(),
            })
        }
        Placeholder::File(path) => outside.read_text(path).map_err(|error| Problem {
            message: format!("`{path}` cannot be read: {error}"),
            help: "a file of UTF-8 text, its path relative to the configuration file's directory".to_owned(),
        }),
    }
}

/// Whether what stands at `path` is secret wherever it comes from.
fn is_secret(path: &KeyPath) -> bool {
    let keys: Vec<&str> = path
        .segments()
        .iter()
        .filter_map(|segment| match segment {
            Segment::Key(key) => Some(key.as_str()),
            Segment::Index(_) => None,
        })
        .collect();
    match keys.as_slice() {
        ["routes", _, "sinks", _, "headers", ..] => true,
        [.., last] => is_secret_key(last),
        [] => false,
    }
}

fn is_secret_key(key: &str) -> bool {
    const SECRET: [&str; 8] = ["password", "passwd", "secret", "token", "bearer", "salt", "jaas", "oauthbearer.config"];
    // `tokens` is a list, and `ssl.key.pem` the key itself.
    let key = key.to_ascii_lowercase();
    (SECRET.iter().any(|word| key.contains(word)) || key.ends_with("key.pem")) && key != "tokens"
}

/// Hides what stands before the `@` of an address, which no address should have.
fn hide_in_address(line: &str) -> String {
    let Some(start) = line.find("://").map(|at| at + 3) else { return line.to_owned() };
    let end = line[start..].find(['/', '?', '#', '"', '\'', ' ']).map_or(line.len(), |end| start + end);
    match line[start..end].rfind('@') {
        Some(at) => {
            format!("{}{}{}", &line[..start], "*".repeat(line[start..start + at].chars().count()), &line[start + at..])
        }
        None => line.to_owned(),
    }
}

/// For a line of which nothing is known: the file cannot be parsed.
fn hide_after_secret_key(line: &str) -> Cow<'_, str> {
    let Some((before, after)) = line.split_once(':') else { return Cow::Borrowed(line) };
    let lower = line.to_ascii_lowercase();
    let suspicious = is_secret_key(before.trim_matches([' ', '-', '"', '\'', '{'])) || lower.contains("token:");
    if suspicious && !after.trim().is_empty() && !after.contains("${") {
        return Cow::Owned(format!("{before}: {HIDDEN}"));
    }
    Cow::Borrowed(line)
}
