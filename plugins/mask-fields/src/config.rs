//! What the operator writes, and how it becomes [`Rules`].

use std::borrow::Cow;
use std::num::NonZeroUsize;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tidegate_json::{MAX_PATHS, Path, Paths};
use tidegate_plugin::ConfigError;

use crate::rule::{Keep, Rule, Rules, hash_state};

/// What a mask writes for what it hides.
const DEFAULT_MASK: &str = "***";

/// The configuration of `mask-fields`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What to do with which field. A path alone masks the field.
    #[schemars(length(min = 1, max = 64))]
    fields: Vec<Field>,
}

/// A path alone, or a path with what to do.
#[derive(Debug)]
enum Field {
    Path(Path),
    Options(Options),
}

/// What to do with a field.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Where the field is.
    path: Path,
    /// What to do with it.
    #[serde(default)]
    action: Action,
    /// With `mask`: what stands for the hidden part; `***` by default.
    with: Option<String>,
    /// With `mask`: how many characters at the start stay readable.
    keep_first: Option<NonZeroUsize>,
    /// With `mask`: how many characters at the end stay readable.
    keep_last: Option<NonZeroUsize>,
    /// With `mask`: keep what follows the last `@`, for e-mail addresses.
    keep_domain: Option<bool>,
    /// With `hash`: a secret that makes the hash an HMAC, so that nobody without it can try out values.
    #[schemars(length(min = 1))]
    hmac_key: Option<String>,
    /// With `rename`: the new name.
    to: Option<String>,
}

/// What to do with a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Action {
    /// Replace the value, or the hidden part of it.
    #[default]
    Mask,
    /// Replace the value by its SHA-256, as 64 hexadecimal digits.
    Hash,
    /// Remove the member or element.
    Drop,
    /// Give the member another name.
    Rename,
}

impl Config {
    /// The rules that the configuration describes.
    pub(crate) fn check(self) -> Result<Rules, ConfigError> {
        if self.fields.is_empty() {
            return Err(ConfigError::at("fields", "must name at least one field"));
        }
        let number = self.fields.len();
        let mut paths = Vec::with_capacity(number);
        let mut rules = Vec::with_capacity(number);
        for (index, field) in self.fields.into_iter().enumerate() {
            let options = match field {
                Field::Path(path) => Options::mask(path),
                Field::Options(options) => options,
            };
            let (path, rule) = options.check(&format!("fields[{index}]"))?;
            paths.push(path);
            rules.push(rule);
        }
        let paths = Paths::new(paths).ok_or_else(|| {
            ConfigError::at("fields", format_args!("has {number} fields; at most {MAX_PATHS} are allowed"))
        })?;
        Ok(Rules::new(paths, rules))
    }
}

impl Options {
    fn mask(path: Path) -> Self {
        Self {
            path,
            action: Action::Mask,
            with: None,
            keep_first: None,
            keep_last: None,
            keep_domain: None,
            hmac_key: None,
            to: None,
        }
    }

    fn check(self, place: &str) -> Result<(Path, Rule), ConfigError> {
        let options = [
            ("with", self.with.is_some(), Action::Mask),
            ("keep_first", self.keep_first.is_some(), Action::Mask),
            ("keep_last", self.keep_last.is_some(), Action::Mask),
            ("keep_domain", self.keep_domain.is_some(), Action::Mask),
            ("hmac_key", self.hmac_key.is_some(), Action::Hash),
            ("to", self.to.is_some(), Action::Rename),
        ];
        for (option, given, action) in options {
            if given && self.action != action {
                let message = format!("goes with action `{action:?}` only").to_lowercase();
                return Err(ConfigError::at(format_args!("{place}.{option}"), message));
            }
        }
        let rule = match self.action {
            Action::Mask => Rule::Mask { keep: self.keep(place)?, with: self.with.unwrap_or(DEFAULT_MASK.into()) },
            Action::Hash => Rule::Hash(match self.hmac_key.as_deref() {
                Some("") => return Err(ConfigError::at(format_args!("{place}.hmac_key"), "must not be empty")),
                key => hash_state(key.map(str::as_bytes)),
            }),
            Action::Drop => Rule::Drop,
            Action::Rename => self.rename(place)?,
        };
        Ok((self.path, rule))
    }

    fn keep(&self, place: &str) -> Result<Keep, ConfigError> {
        let first = self.keep_first.map_or(0, NonZeroUsize::get);
        let last = self.keep_last.map_or(0, NonZeroUsize::get);
        match (self.keep_domain.unwrap_or(false), first.saturating_add(last)) {
            (true, 0) => Ok(Keep::Domain),
            (true, _) => Err(ConfigError::at(
                format_args!("{place}.keep_domain"),
                "does not go together with `keep_first` and `keep_last`",
            )),
            (false, 0) => Ok(Keep::Nothing),
            (false, _) => Ok(Keep::Ends { first, last }),
        }
    }

    fn rename(&self, place: &str) -> Result<Rule, ConfigError> {
        let Some(to) = &self.to else {
            return Err(ConfigError::at(place, "missing field `to`: the new name"));
        };
        match self.path.last_name() {
            None => Err(ConfigError::at(
                format_args!("{place}.path"),
                "ends in `*`; only a member with a name can be renamed",
            )),
            Some(name) if name == to => {
                Err(ConfigError::at(format_args!("{place}.to"), format_args!("is `{to}` already")))
            }
            Some(_) => Ok(Rule::Rename { to: to.clone() }),
        }
    }
}

/// By hand, since a validator cannot say which branch of an `anyOf` was meant.
impl JsonSchema for Field {
    fn schema_name() -> Cow<'static, str> {
        "Field".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a path alone, which is masked, or a path with what to do",
            "type": ["string", "object"],
            "if": { "type": "string" },
            "then": generator.subschema_for::<Path>(),
            "else": { "if": { "type": "object" }, "then": generator.subschema_for::<Options>() },
        })
    }
}

/// By hand, since a derived untagged enum forgets where in the configuration an error is.
impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Field;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("a path such as `address.city`, or a map with `path` and `action`")
            }

            fn visit_str<E: serde::de::Error>(self, path: &str) -> Result<Field, E> {
                Path::deserialize(StrDeserializer::new(path)).map(Field::Path)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Field, A::Error> {
                Options::deserialize(MapAccessDeserializer::new(map)).map(Field::Options)
            }
        }

        from.deserialize_any(Either)
    }
}
