//! Where something stands in the configuration: `routes.profiles.sinks.crm.url`.

use std::fmt;

use serde_json::Value;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyPath(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    Key(String),
    Index(usize),
}

impl KeyPath {
    pub fn root() -> Self {
        Self::default()
    }

    /// The place of `key` in the mapping that stands here.
    pub fn key(&self, key: &str) -> Self {
        self.join(Segment::Key(key.to_owned()))
    }

    /// The place of an item of the list that stands here.
    pub fn index(&self, index: usize) -> Self {
        self.join(Segment::Index(index))
    }

    /// `None` at the root.
    pub fn parent(&self) -> Option<Self> {
        let (_, parents) = self.0.split_last()?;
        Some(Self(parents.to_vec()))
    }

    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    pub fn starts_with(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// The same place below `to` instead of `from`. `None` for what does not stand there.
    pub(super) fn moved(&self, from: &Self, to: &Self) -> Option<Self> {
        let below = self.0.strip_prefix(from.0.as_slice())?;
        Some(Self(to.0.iter().chain(below).cloned().collect()))
    }

    /// The place of `below`, which starts here.
    pub fn below(&self, below: &Self) -> Self {
        Self(self.0.iter().chain(&below.0).cloned().collect())
    }

    /// Reads what `Display` writes, and what people write for it (`a.b[0].c`), in `root`: a key that is there may hold
    /// anything, also full stops. `None` for what is no place in `root`, nor that of one more key there.
    pub fn parse(text: &str, root: &Value) -> Option<Self> {
        let (mut path, mut here, mut rest) = (Self::root(), Some(root), text);
        while !rest.is_empty() {
            let value = here?;
            if let Some((index, after)) = rest.strip_prefix('[').and_then(|inner| inner.split_once(']'))
                && let (Value::Array(items), Ok(index)) = (value, index.parse::<usize>())
            {
                (path, here, rest) = (path.index(index), Some(items.get(index)?), after);
                continue;
            }
            let Value::Object(object) = value else { return None };
            let text = rest.strip_prefix('.').filter(|_| !path.0.is_empty()).unwrap_or(rest);
            let follows = |key: &str| {
                text.strip_prefix(key).filter(|after| matches!(after.chars().next(), None | Some('.' | '[')))
            };
            let known =
                object.keys().filter_map(|key| Some((key.as_str(), follows(key)?))).max_by_key(|(key, _)| key.len());
            let (key, after) = known.unwrap_or((text, ""));
            (path, here, rest) = (path.key(key), object.get(key), after);
        }
        Some(path)
    }

    /// Reads a JSON pointer into `root`, which tells the keys that look like numbers from the indexes of lists.
    pub fn from_pointer(pointer: &str, root: &Value) -> Self {
        let mut path = Self::root();
        let mut here = Some(root);
        for token in pointer.split('/').skip(1) {
            let token = token.replace("~1", "/").replace("~0", "~");
            match (here, token.parse()) {
                (Some(Value::Array(items)), Ok(index)) => {
                    here = items.get(index);
                    path = path.index(index);
                }
                _ => {
                    here = here.and_then(|value| value.get(&token));
                    path = path.key(&token);
                }
            }
        }
        path
    }

    /// What stands here in `root`.
    pub fn find<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(root, |value, segment| match segment {
            Segment::Key(key) => value.get(key),
            Segment::Index(index) => value.get(index),
        })
    }

    pub fn find_mut<'a>(&self, root: &'a mut Value) -> Option<&'a mut Value> {
        self.0.iter().try_fold(root, |value, segment| match segment {
            Segment::Key(key) => value.get_mut(key),
            Segment::Index(index) => value.get_mut(index),
        })
    }

    fn join(&self, segment: Segment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Self(segments)
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) if is_plain(key) && position == 0 => f.write_str(key)?,
                Segment::Key(key) if is_plain(key) => write!(f, ".{key}")?,
                Segment::Key(key) => write!(f, "[{key:?}]")?,
            }
        }
        Ok(())
    }
}

/// Whether the key can be written after a full stop without being mistaken for two keys.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(path: &KeyPath, expected: &str) {
        assert_eq!(path.to_string(), expected);
    }

    #[test]
    fn a_path_reads_like_the_file() {
        let routes = KeyPath::root().key("routes");
        check(&routes.key("a-b").key("plugins").index(0).key("use"), "routes.a-b.plugins[0].use");
        check(
            &KeyPath::root().key("clusters").key("main").key("bootstrap.servers"),
            "clusters.main[\"bootstrap.servers\"]",
        );
        check(&KeyPath::root(), "");
    }

    #[test]
    fn a_place_is_read_in_what_it_is_a_place_of() {
        let root = json!({ "fields": [{ "path": "a" }], "a.b": { "a": 1 } });
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(KeyPath::parse(text, &root).map(|path| path.to_string()).as_deref(), expected, "{text}");
        };
        check("", Some(""));
        check("fields[0].path", Some("fields[0].path"));
        check("fields[0].paht", Some("fields[0].paht"));
        check("a.b.a", Some("[\"a.b\"].a"));
        check("a.b", Some("[\"a.b\"]"));
        check("fields[1]", None);
        check("fields.path", None);
        check("fields[0].path.more", None);
    }

    #[test]
    fn a_pointer_tells_keys_from_indexes() {
        let root = json!({ "0": [{ "a/b": 1 }] });
        check(&KeyPath::from_pointer("/0/0/a~1b", &root), "0[0][\"a/b\"]");
        assert_eq!(KeyPath::from_pointer("/0/0/a~1b", &root).find(&root), Some(&json!(1)));
    }
}
