//! Applies the rules to a value by cutting and pasting spans of its text.

use std::fmt;
use std::ops::Range;

use tidegate_json::{Item, Malformed, Set, Visitor, Walk, encode, scan};

use crate::rule::Rules;

/// Why a value cannot go on. It quotes nothing of the value, whose secrets it may hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    NotJson(Malformed),
    /// A member would get a name that another one of its object has.
    NameTaken(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(malformed) => write!(out, "value is {malformed}"),
            Self::NameTaken(path) => write!(out, "renaming `{path}` would give an object two members of one name"),
        }
    }
}

/// Puts the changed `value` into `changed` and returns true, or returns false if nothing is to be changed.
pub(crate) fn apply(rules: &Rules, value: &[u8], changed: &mut Vec<u8>) -> Result<bool, Refused> {
    changed.clear();
    let mut editor = Editor { rules, value, changed, copied: 0, clash: None };
    scan(value, &rules.paths, &mut editor).map_err(Refused::NotJson)?;
    if let Some(rule) = editor.clash {
        let path = rules.paths.get(rule).map(ToString::to_string).unwrap_or_default();
        return Err(Refused::NameTaken(path));
    }
    if editor.copied == 0 {
        return Ok(false);
    }
    editor.copy_to(value.len());
    Ok(true)
}

/// Edits from the front to the back.
struct Editor<'a> {
    rules: &'a Rules,
    value: &'a [u8],
    changed: &'a mut Vec<u8>,
    /// Up to here `value` is in `changed`, edited. No edit is at byte 0, since each is inside an object or array.
    copied: usize,
    /// The first rename that made two members of one name.
    clash: Option<usize>,
}

/// What is known of an object or array on the way.
#[derive(Default)]
struct Frame {
    /// Where items begin to be missing that were dropped since the last kept one.
    cut: Option<usize>,
    /// Whether an item was kept.
    kept: bool,
    /// The rules that have renamed a member.
    renamed: Set,
    /// The rules whose new name another member has.
    taken: Set,
}

impl Visitor for Editor<'_> {
    type Frame = Frame;

    fn item(&mut self, frame: &mut Frame, item: &Item<'_>) -> Walk {
        if !(item.ends & self.rules.drops).is_empty() {
            frame.cut.get_or_insert(item.gap);
            return Walk::Over;
        }
        if let (Some(from), Some(comma)) = (frame.cut.take(), item.comma) {
            // The comma before this item now parts it from the last kept one; without one it has nothing to part.
            self.cut(from..if frame.kept { comma } else { comma + 1 });
        }
        frame.kept = true;
        if let Some((name, span)) = &item.member
            && !self.rules.renames.is_empty()
        {
            self.rename(frame, item.ends & self.rules.renames, name, span.clone());
        }
        if (item.ends & self.rules.values).is_empty() { Walk::Into } else { Walk::Over }
    }

    fn value(&mut self, item: &Item<'_>, value: Range<usize>) {
        if !(item.ends & self.rules.drops).is_empty() {
            return;
        }
        if let Some(rule) = (item.ends & self.rules.values).first() {
            self.copy_to(value.start);
            self.copied = value.end;
            let json = std::str::from_utf8(&self.value[value]).expect("`scan` has checked that the text is UTF-8");
            self.rules.rules[rule].write(json, self.changed);
        }
    }

    fn close(&mut self, frame: &mut Frame, end: usize) {
        if let Some(from) = frame.cut.take() {
            self.cut(from..end);
        }
        self.clash = self.clash.or((frame.renamed & frame.taken).first());
    }
}

impl Editor<'_> {
    fn rename(&mut self, frame: &mut Frame, renames: Set, name: &[u8], span: Range<usize>) {
        let rule = renames.first();
        let new_name = rule.map_or(name, |rule| self.rules.new_name(rule).as_bytes());
        for other in self.rules.renames {
            if Some(other) != rule && self.rules.new_name(other).as_bytes() == new_name {
                frame.taken.insert(other);
            }
        }
        if let Some(rule) = rule {
            frame.renamed.insert(rule);
            self.copy_to(span.start + 1);
            encode(self.changed, self.rules.new_name(rule));
            self.copied = span.end - 1;
        }
    }

    fn cut(&mut self, span: Range<usize>) {
        self.copy_to(span.start);
        self.copied = span.end;
    }

    fn copy_to(&mut self, end: usize) {
        self.changed.extend_from_slice(&self.value[self.copied..end]);
        self.copied = end;
    }
}
