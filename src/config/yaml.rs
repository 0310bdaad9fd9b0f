//! YAML text to a tree in which every node knows where it stands.
//!
//! Only what a configuration needs: one document, text keys, no merge keys, no tags beyond the core schema. Everything
//! that a hostile file could make grow has a limit.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Number, Value};

use super::path::KeyPath;

/// Far beyond any configuration that people write.
pub const MAX_BYTES: usize = 2 << 20;
/// Collections inside collections. The recursive walks over the tree rely on it.
pub const MAX_DEPTH: usize = 64;
/// Nodes in all, those that aliases repeat included, so that a few nested anchors cannot fill the memory.
pub const MAX_NODES: usize = 100_000;

/// Lines and columns count from 1, columns in characters; the end is exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub line: usize,
    pub column: usize,
    pub end_line: usize,
    pub end_column: usize,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub span: Span,
    pub data: Data,
}

#[derive(Clone, Debug)]
pub enum Data {
    Scalar(Scalar),
    Sequence(Vec<Node>),
    Mapping(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
pub struct Key {
    pub text: String,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct Scalar {
    pub text: String,
    /// Whether it is text whatever it looks like: quoted, a block, tagged `!!str`, or made by a substitution.
    pub is_text: bool,
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub span: Span,
    pub message: String,
    pub help: String,
}

/// What is wrong with the text, and at which place.
pub type Faults = Vec<(KeyPath, Fault)>;

/// Returns as much of the tree as can be relied on, and everything that is wrong with the text as YAML.
pub fn parse(text: &str) -> (Option<Node>, Faults) {
    let mut loader = Loader::default();
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes", text.len());
        let fault = fault(Span::default(), message, format!("at most {MAX_BYTES} bytes are read"));
        return (None, vec![(KeyPath::root(), fault)]);
    }
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let step = match event {
            Ok((event, span)) => loader.take(event, convert(span)),
            Err(error) => {
                let at = *error.marker();
                let message = format!("this is not YAML: {}", error.info().to_lowercase());
                let line = text.lines().nth(at.line().saturating_sub(1)).unwrap_or_default();
                let help = if line.contains("${") { "put placeholders into quotes: `\"${env:NAME}\"`" } else { "" };
                Err(fault(convert(saphyr_parser::Span::empty(at)), message, help.to_owned()))
            }
        };
        if let Err(fault) = step {
            loader.faults.push((loader.here(), fault));
            return (None, loader.faults);
        }
    }
    if loader.root.is_none() {
        let help = "write at least `version: 1` and one route under `routes`".to_owned();
        loader.faults.push((KeyPath::root(), fault(Span::default(), "the file is empty".to_owned(), help)));
    }
    (loader.root, loader.faults)
}

impl Scalar {
    /// By the core schema of YAML 1.2, in which `no`, `off` and `1:30` are text.
    ///
    /// # Errors
    /// For a number that JSON cannot hold.
    pub fn value(&self) -> Result<Value, String> {
        if self.is_text { Ok(Value::String(self.text.clone())) } else { resolve(&self.text) }
    }
}

/// The value of plain text by the core schema of YAML 1.2.
///
/// # Errors
/// For a number that JSON cannot hold.
pub fn resolve(text: &str) -> Result<Value, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        _ => {}
    }
    if let Some(integer) = integer(text) {
        return Ok(Value::Number(integer));
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(format!("`{text}` is not a number that can be used here"));
    }
    let looks_like_float = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.chars().any(|c| c.is_ascii_digit())
        && unsigned.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'));
    match text.parse::<f64>() {
        Ok(float) if looks_like_float => {
            Number::from_f64(float).map(Value::Number).ok_or_else(|| format!("`{text}` is too large for a number"))
        }
        _ => Ok(Value::String(text.to_owned())),
    }
}

fn integer(text: &str) -> Option<Number> {
    let digits = |radix, digits: &str| {
        let plain = digits.starts_with(|c: char| c.is_ascii_hexdigit());
        plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten().map(Number::from)
    };
    if let Some(hexadecimal) = text.strip_prefix("0x") {
        return digits(16, hexadecimal);
    }
    if let Some(octal) = text.strip_prefix("0o") {
        return digits(8, octal);
    }
    match text.strip_prefix('-') {
        // JSON keeps the sign of a zero, which only a float can hold.
        Some(magnitude) if magnitude.bytes().all(|b| b == b'0') => None,
        Some(_) => text.parse::<i64>().ok().map(Number::from),
        None => digits(10, text.strip_prefix('+').unwrap_or(text)),
    }
}

#[derive(Default)]
struct Loader {
    root: Option<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Anchor>,
    nodes: usize,
    documents: usize,
    faults: Faults,
}

/// A collection whose end has not come yet.
struct Open {
    span: Span,
    anchor: usize,
    /// Nodes before this one, to know how many it has.
    nodes_before: usize,
    /// Of the deepest collection in it, counted from here.
    depth: usize,
    data: OpenData,
}

enum OpenData {
    Sequence(Vec<Node>),
    Mapping {
        entries: Vec<(Key, Node)>,
        /// The line of each key.
        lines: HashMap<String, usize>,
        /// What the next value belongs to.
        key: Option<Pending>,
    },
}

/// A key whose value has not come yet.
enum Pending {
    Key(Key),
    /// It cannot be one, which is told; its value is left out.
    Refused,
}

struct Anchor {
    node: Node,
    nodes: usize,
    depth: usize,
}

impl Loader {
    /// The place of what comes next.
    fn here(&self) -> KeyPath {
        self.open.iter().fold(KeyPath::root(), |path, open| match &open.data {
            OpenData::Sequence(items) => path.index(items.len()),
            OpenData::Mapping { key: Some(Pending::Key(key)), .. } => path.key(&key.text),
            OpenData::Mapping { key: Some(Pending::Refused) | None, .. } => path,
        })
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Fault> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    let help = "one file holds one configuration".to_owned();
                    return Err(fault(span, "a second YAML document begins here".to_owned(), help));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let tagged = self.known_tag(tag.as_deref(), span);
                let is_text = style != ScalarStyle::Plain || tagged == Some("str");
                let data = Data::Scalar(Scalar { text: text.into_owned(), is_text });
                self.count(1, span)?;
                self.finish(Node { span, data }, anchor, 1, 0)?;
            }
            Event::SequenceStart(anchor, tag) => {
                self.begin(OpenData::Sequence(Vec::new()), anchor, tag.as_deref(), span)?;
            }
            Event::MappingStart(anchor, tag) => {
                self.begin(
                    OpenData::Mapping { entries: Vec::new(), lines: HashMap::new(), key: None },
                    anchor,
                    tag.as_deref(),
                    span,
                )?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let data = match open.data {
                    OpenData::Sequence(items) => Data::Sequence(items),
                    OpenData::Mapping { entries, .. } => Data::Mapping(entries),
                };
                let span = Span { end_line: span.line, end_column: span.column, ..open.span };
                self.finish(Node { span, data }, open.anchor, self.nodes - open.nodes_before, open.depth)?;
            }
            Event::Alias(id) => {
                let Some(anchor) = self.anchors.get(&id) else {
                    let help = "an alias can only repeat what is complete before it".to_owned();
                    return Err(fault(span, "this alias stands inside of what it repeats".to_owned(), help));
                };
                let (node, nodes, depth) = (Node { span, ..anchor.node.clone() }, anchor.nodes, anchor.depth);
                self.count(nodes, span)?;
                if self.open.len() + depth > MAX_DEPTH {
                    return Err(too_deep(span));
                }
                self.finish(node, 0, nodes, depth)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, data: OpenData, anchor: usize, tag: Option<&Tag>, span: Span) -> Result<(), Fault> {
        self.known_tag(tag, span);
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(span));
        }
        let nodes_before = self.nodes;
        self.count(1, span)?;
        self.open.push(Open { span, anchor, nodes_before, depth: 1, data });
        Ok(())
    }

    fn finish(&mut self, node: Node, anchor: usize, nodes: usize, depth: usize) -> Result<(), Fault> {
        if anchor != 0 {
            self.anchors.insert(anchor, Anchor { node: node.clone(), nodes, depth });
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        parent.depth = parent.depth.max(depth + 1);
        match &mut parent.data {
            OpenData::Sequence(items) => items.push(node),
            OpenData::Mapping { entries, lines, key } => match key.take() {
                None => match as_key(node) {
                    Ok(text) => *key = Some(Pending::Key(text)),
                    Err(fault) => {
                        *key = Some(Pending::Refused);
                        let path = self.here();
                        self.faults.push((path, fault));
                    }
                },
                Some(Pending::Refused) => {}
                Some(Pending::Key(key)) => match lines.get(&key.text) {
                    None => {
                        lines.insert(key.text.clone(), key.span.line);
                        entries.push((key, node));
                    }
                    Some(first) => {
                        let message = format!("the key `{}` appears twice", key.text);
                        let help = format!("it first appears in line {first}; keep one of the two");
                        let path = self.here().key(&key.text);
                        self.faults.push((path, fault(key.span, message, help)));
                    }
                },
            },
        }
        Ok(())
    }

    /// One that is not known is told, and the value taken without it.
    fn known_tag<'t>(&mut self, tag: Option<&'t Tag>, span: Span) -> Option<&'t str> {
        const KNOWN: [&str; 7] = ["str", "int", "float", "bool", "null", "map", "seq"];
        let tag = tag?;
        if tag.is_yaml_core_schema() && KNOWN.contains(&tag.suffix.as_str()) {
            return Some(&tag.suffix);
        }
        let help = "write the plain value; secrets come from `${env:NAME}` or `${file:PATH}`".to_owned();
        let path = self.here();
        self.faults.push((path, fault(span, format!("the tag `{tag}` is not supported"), help)));
        None
    }

    fn count(&mut self, nodes: usize, span: Span) -> Result<(), Fault> {
        self.nodes += nodes;
        if self.nodes <= MAX_NODES {
            return Ok(());
        }
        let help = "what an alias repeats counts each time".to_owned();
        Err(fault(span, format!("the file has more than {MAX_NODES} values"), help))
    }
}

fn as_key(node: Node) -> Result<Key, Fault> {
    let Data::Scalar(Scalar { text, is_text }) = node.data else {
        return Err(fault(node.span, "a key must be text".to_owned(), String::new()));
    };
    if text == "<<" && !is_text {
        let help = "repeat the keys, or use an alias for a whole value: `limits: *limits`".to_owned();
        return Err(fault(node.span, "merge keys (`<<`) are not supported".to_owned(), help));
    }
    if text.is_empty() {
        let help = "accepted: a name, such as `profiles`".to_owned();
        return Err(fault(node.span, "a key must not be empty".to_owned(), help));
    }
    Ok(Key { text, span: node.span })
}

fn too_deep(span: Span) -> Fault {
    fault(span, format!("more than {MAX_DEPTH} lists and mappings stand inside each other"), String::new())
}

fn fault(span: Span, message: String, help: String) -> Fault {
    Fault { span, message, help }
}

fn convert(span: saphyr_parser::Span) -> Span {
    Span {
        line: span.start.line(),
        column: span.start.col() + 1,
        end_line: span.end.line(),
        end_column: span.end.col() + 1,
    }
}
