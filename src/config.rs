//! The configuration: from text to what the program uses, with every error at once.
//!
//! ```text
//! text ─▶ tree with positions ─▶ placeholders replaced ─▶ JSON Schema ─▶ written ─▶ checked
//!  yaml        document              interpolate            validate                 check
//! ```
//!
//! No step stops at its first error, and a step that finds errors does not keep the next ones from looking at the rest:
//! [`validate`] puts a stand-in where something has not the shape that it must have, and [`check`] is silent about those.

mod budget;
mod check;
pub mod checked;
mod defaults;
mod document;
mod errors;
mod interpolate;
mod outside;
mod path;
mod reference;
mod schema;
pub mod standard;
mod suggest;
mod units;
mod validate;
mod written;
mod yaml;

use std::path::Path;
use std::sync::Arc;

pub use checked::*;
pub use document::Document;
pub use errors::{Error, Errors};
pub use outside::{CheckPlugin, CheckProperties, Outside, PluginError, PropertyError};
pub use path::{KeyPath, Segment};
pub use reference::reference_markdown;
pub use schema::schema;
pub use suggest::{nearest, suggest};
pub use units::format_size;

use check::Checker;
use yaml::{Fault, Span};

/// A valid configuration, and where everything stands in its file: for errors that only those can find who use it.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    pub document: Arc<Document>,
}

/// Reads and checks a configuration with this process's environment and files.
///
/// `properties` looks at librdkafka's, which only its own room knows.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(path: &Path, properties: &CheckProperties, plugin: &CheckPlugin<'_>) -> Result<Loaded, Errors> {
    let file = path.display().to_string();
    let unreadable = |why: String| {
        let mut errors = Errors::new(Arc::new(Document::new(&file, "")));
        let help = "name a configuration with `--config`".to_owned();
        errors.push_fault(&KeyPath::root(), &Fault { span: Span::default(), message: format!("`{file}` {why}"), help });
        errors
    };
    let bytes = std::fs::read(path).map_err(|error| unreadable(format!("cannot be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable("is not UTF-8".to_owned()))?;
    let absolute = std::path::absolute(path).map_err(|error| unreadable(format!("cannot be found: {error}")))?;
    let outside = Outside {
        base_dir: absolute.parent().unwrap_or(Path::new("/")).to_owned(),
        env: &|name| std::env::var_os(name),
        read: &outside::read,
        standard: &standard::standard,
        properties,
        plugin,
    };
    parse(&text, &file, &outside)
}

/// Checks a configuration: a function of its arguments. `file` is only for errors.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(text: &str, file: &str, outside: &Outside<'_>) -> Result<Loaded, Errors> {
    let (root, faults) = yaml::parse(text);
    let Some(root) = root else {
        let mut errors = Errors::new(Arc::new(Document::new(file, text)));
        faults.iter().for_each(|(path, fault)| errors.push_fault(path, fault));
        return Err(errors);
    };
    let mut broken = Vec::new();
    let (mut document, whole) = Document::load(file, text, root, outside, &mut broken);
    let respelt = validate::respell(whole, &mut document, &mut broken);
    let document = Arc::new(document);
    let mut errors = Errors::new(Arc::clone(&document));
    faults.iter().chain(&broken).for_each(|(path, fault)| errors.push_fault(path, fault));

    let Some(mended) = validate::validate(respelt, &document, &mut errors) else {
        return Err(errors);
    };
    let written: written::Config = match serde_path_to_error::deserialize(&mended.value) {
        Ok(written) => written,
        Err(error) => {
            // The schema says what the types say; what only a type knows is told by it.
            errors.push(&KeyPath::root(), format!("`{}`: {}", error.path(), error.inner()), "");
            return Err(errors);
        }
    };
    let config = Checker { document: &document, outside, errors: &mut errors, gone: &mended.gone }.check(&written);
    // Whoever is left without a word would run with a stand-in.
    if let Some(path) = mended.gone.first().filter(|_| errors.is_empty()) {
        errors.push(path, "this is not valid", "");
    }
    errors.into_result(Loaded { config, document })
}

#[cfg(test)]
mod tests;
