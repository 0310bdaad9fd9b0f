//! Everything that is wrong with a configuration, at once, as a compiler says it.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::document::Document;
use super::path::KeyPath;
use super::yaml::{Fault, Span};

/// Characters of a line of the file that are shown.
const LINE_SHOWN: usize = 160;
/// Characters of a message, and of each line of its help, that are shown.
const MESSAGE_SHOWN: usize = 600;

/// More errors than anybody reads; those beyond are counted.
const MAX_ERRORS: usize = 1000;

#[derive(Debug)]
pub struct Errors {
    document: Arc<Document>,
    /// In the order of the file.
    list: Vec<Error>,
    /// Errors beyond the most that are kept.
    more: usize,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Error {
    pub file: String,
    /// From 1; absent where the file as a whole is meant.
    pub line: Option<usize>,
    /// From 1, in characters.
    pub column: Option<usize>,
    /// Such as `routes.profiles.sinks.crm.url`; empty for the file as a whole.
    pub path: String,
    pub message: String,
    /// What would be accepted, and what else helps; one line each.
    pub help: Vec<String>,
    /// How many characters to underline.
    #[serde(skip)]
    width: usize,
}

impl Errors {
    pub fn new(document: Arc<Document>) -> Self {
        Self { document, list: Vec::new(), more: 0 }
    }

    /// Adds an error about the value at `path`.
    pub fn push(&mut self, path: &KeyPath, message: impl AsRef<str>, help: impl AsRef<str>) {
        let span = self.document.value_span(path);
        self.add(path, span, message.as_ref(), help.as_ref());
    }

    /// Adds an error about the key at `path`, whatever its value.
    pub(super) fn push_key(&mut self, path: &KeyPath, message: impl AsRef<str>, help: impl AsRef<str>) {
        let span = self.document.key_span(path);
        self.add(path, span, message.as_ref(), help.as_ref());
    }

    pub(super) fn push_fault(&mut self, path: &KeyPath, fault: &Fault) {
        self.add(path, fault.span, &fault.message, &fault.help);
    }

    /// Whether there is an error about the value at `path` itself.
    pub(super) fn has(&self, path: &KeyPath) -> bool {
        let path = path.to_string();
        self.list.iter().any(|error| error.path == path)
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Error> {
        self.list.iter()
    }

    /// `ok`, unless there are errors.
    ///
    /// # Errors
    /// Itself, unless empty.
    pub fn into_result<T>(self, ok: T) -> Result<T, Self> {
        if self.is_empty() { Ok(ok) } else { Err(self) }
    }

    fn add(&mut self, path: &KeyPath, span: Span, message: &str, help: &str) {
        if self.list.len() >= MAX_ERRORS {
            self.more += 1;
            return;
        }
        let known = span.line > 0;
        let width = if span.end_line == span.line { span.end_column.saturating_sub(span.column) } else { 1 };
        let error = Error {
            file: self.document.file().to_owned(),
            line: known.then_some(span.line),
            column: known.then_some(span.column),
            path: path.to_string(),
            message: shorten(&self.document.hide_secrets(message)),
            help: self.document.hide_secrets(help).lines().map(shorten).collect(),
            width: width.max(1),
        };
        // What an alias repeats is wrong once.
        if !self
            .list
            .iter()
            .any(|other| (other.line, other.column, &other.message) == (error.line, error.column, &error.message))
        {
            let at = self.list.partition_point(|other| (other.line, other.column) <= (error.line, error.column));
            self.list.insert(at, error);
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, error: &Error) -> fmt::Result {
        writeln!(f, "error: {}", error.message)?;
        let line = error.line.and_then(|number| Some((number, self.document.line(number)?)));
        let margin = error.line.map_or(1, |number| number.to_string().len());
        match (error.line, error.column) {
            (Some(line), Some(column)) => writeln!(f, "{:margin$}--> {}:{line}:{column}", "", error.file)?,
            _ => writeln!(f, "{:margin$}--> {}", "", error.file)?,
        }
        if let (Some((number, text)), Some(column)) = (line, error.column) {
            let (text, column) = clip(text.trim_end(), column);
            let width = error.width.min((text.chars().count() + 1).saturating_sub(column)).max(1);
            // Tabs stay tabs, so that the caret stands below what it means.
            let indent: String = text.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            writeln!(f, "{:margin$} |", "")?;
            writeln!(f, "{number} | {text}")?;
            writeln!(f, "{:margin$} | {indent}{}", "", "^".repeat(width))?;
        }
        if !error.path.is_empty() {
            writeln!(f, "{:margin$} = at: {}", "", error.path)?;
        }
        for help in &error.help {
            // What is indented belongs to the line before it.
            let label = if help.starts_with(' ') { "        " } else { "= help: " };
            writeln!(f, "{:margin$} {label}{help}", "")?;
        }
        Ok(())
    }
}

/// The part of a line around `column`, and where that is in it.
fn clip(line: &str, column: usize) -> (String, usize) {
    let length = line.chars().count();
    let column = column.clamp(1, length + 1);
    if length <= LINE_SHOWN {
        return (line.to_owned(), column);
    }
    let start = column.saturating_sub(LINE_SHOWN / 2);
    let part: String = line.chars().skip(start).take(LINE_SHOWN).collect();
    let (before, after) = (if start > 0 { "…" } else { "" }, if start + LINE_SHOWN < length { "…" } else { "" });
    (format!("{before}{part}{after}"), column - start + before.chars().count())
}

/// Text that repeats what is written, which may be of any length.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(MESSAGE_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// One block for each error, in the order of the file.
impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            self.write(f, error)?;
        }
        if self.more > 0 {
            writeln!(f, "\nand {} more errors", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

impl Serialize for Errors {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.list.serialize(serializer)
    }
}
