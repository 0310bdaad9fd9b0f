//! What the documents say, held against the program and the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

use super::harness::Site;
use super::harness::golden::in_repository;

/// Folders that hold nothing of ours.
const FOREIGN: &[&str] = &["target", ".git", "tidegate-demo", "node_modules"];

#[derive(Debug)]
struct Document {
    /// Relative to the repository.
    path: PathBuf,
    text: String,
}

/// A fenced block.
#[derive(Debug)]
struct Block {
    language: String,
    text: String,
    line: usize,
}

fn documents() -> Vec<Document> {
    let root = in_repository("");
    let (mut found, mut open) = (Vec::new(), vec![root.clone()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name());
            // A link's target is somebody else's.
            if entry.file_type().unwrap().is_dir() {
                if !FOREIGN.contains(&name.to_str().unwrap()) {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).unwrap();
                found.push(Document { path: path.strip_prefix(&root).unwrap().to_owned(), text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.iter().any(|document| document.path == Path::new("README.md")));
    found
}

fn readme() -> Document {
    documents().into_iter().find(|document| document.path == Path::new("README.md")).unwrap()
}

impl Document {
    fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for (index, line) in self.text.lines().enumerate() {
            let fence = line.trim_start().strip_prefix("```");
            match (&mut open, fence) {
                (None, Some(language)) => {
                    open = Some(Block { language: language.trim().to_owned(), text: String::new(), line: index + 1 });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => block.text.push_str(&format!("{line}\n")),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", self.path.display());
        blocks
    }

    /// The text without its fenced blocks.
    fn prose(&self) -> String {
        let mut fenced = false;
        let mut prose = String::new();
        for line in self.text.lines() {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            if !fence && !fenced {
                prose.push_str(line);
                prose.push('\n');
            }
        }
        prose
    }

    /// Every piece of code that a reader may paste: lines of shell blocks, and what stands between backticks.
    fn code(&self) -> Vec<String> {
        let shell = self.blocks().into_iter().filter(|block| block.language == "sh");
        let lines = shell.flat_map(|block| block.text.lines().map(str::to_owned).collect::<Vec<_>>());
        let prose = self.prose();
        let spans = Regex::new("`([^`]+)`").unwrap();
        let spans = spans.captures_iter(&prose).map(|span| span[1].replace('\n', " "));
        lines.chain(spans).map(|code| code.split(" #").next().unwrap_or_default().trim().to_owned()).collect()
    }

    /// What a heading is linked by.
    fn anchors(&self) -> BTreeSet<String> {
        let prose = self.prose();
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        headings.map(|heading| slug(heading.trim_start_matches('#').trim())).collect()
    }

    /// Configurations as a whole: YAML blocks, and what a shell block writes into a `.yaml` file.
    fn configurations(&self) -> Vec<(usize, String)> {
        let here = Regex::new(r"(?s)\.yaml <<'YAML'\n(.*?)YAML\n").unwrap();
        let mut found = Vec::new();
        for block in self.blocks() {
            match block.language.as_str() {
                "yaml" if block.text.lines().any(|line| line == "version: 1") => found.push((block.line, block.text)),
                "sh" => found.extend(here.captures_iter(&block.text).map(|text| (block.line, text[1].to_owned()))),
                _ => {}
            }
        }
        found
    }

    /// A route's plugins, as the standard plugins' own documents show them.
    fn chains(&self) -> Vec<(usize, String)> {
        let blocks = self.blocks().into_iter().filter(|block| block.language == "yaml");
        let chains = blocks.filter(|block| block.text.starts_with("plugins:\n  - use: std/"));
        chains.map(|block| (block.line, block.text)).collect()
    }
}

fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Whether `tidegate check` accepts it; its errors otherwise.
fn check(yaml: &str) -> Result<(), String> {
    let mut site = Site::with_config(yaml);
    site.set_env("KEY", "a-secret-of-the-documents");
    let output = site.command().args(["check", "-c", "written.yaml"]).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn every_configuration_in_the_documents_is_valid() {
    let mut count = 0;
    for document in documents() {
        for (line, yaml) in document.configurations() {
            count += 1;
            check(&yaml).unwrap_or_else(|errors| panic!("{}:{line}\n{errors}", document.path.display()));
        }
    }
    assert!(count >= 2, "{count} configurations, and the README alone has two");
}

#[test]
fn every_chain_in_the_standard_plugins_documents_is_valid() {
    let mut shown = BTreeSet::new();
    for document in documents() {
        for (line, chain) in document.chains() {
            let chain = chain.replace('\n', "\n    ");
            let yaml = format!(
                "version: 1
routes:
  r:
    source: {{ type: ndjson, path: sample.ndjson, topic: t }}
    sinks: {{ none: {{ type: discard }} }}
    {chain}
"
            );
            check(&yaml).unwrap_or_else(|errors| panic!("{}:{line}\n{errors}", document.path.display()));
            shown.insert(document.path.clone());
        }
    }
    for plugin in tidegate::config::standard::NAMES {
        let path = Path::new("plugins").join(plugin).join("README.md");
        assert!(shown.contains(&path), "{} shows no chain", path.display());
    }
}

#[test]
fn every_link_leads_somewhere() {
    let documents = documents();
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let mut broken = Vec::new();
    let mut count = 0;
    for document in &documents {
        let prose = document.prose();
        for target in link.captures_iter(&prose).map(|link| link[1].to_owned()) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            count += 1;
            let (file, anchor) = target.split_once('#').map_or((&*target, None), |(file, anchor)| (file, Some(anchor)));
            let here = in_repository(&document.path);
            let path = if file.is_empty() { here } else { here.parent().unwrap().join(file) };
            let Ok(path) = path.canonicalize() else {
                broken.push(format!("{}: {target}", document.path.display()));
                continue;
            };
            let found = documents.iter().find(|other| in_repository(&other.path).canonicalize().unwrap() == path);
            if let (Some(anchor), Some(found)) = (anchor, found)
                && !found.anchors().contains(anchor)
            {
                broken.push(format!("{}: {target}, which has no such heading", document.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
    assert!(count >= 10, "{count} links");
}

#[test]
fn every_make_target_in_the_documents_exists() {
    let makefile = fs::read_to_string(in_repository("Makefile")).unwrap();
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter(|line| !line.starts_with([' ', '\t', '#', '.']) && !line.contains(":="))
        .filter_map(|line| Some(line.split_once(':')?.0))
        .collect();
    let make = Regex::new(r"^make ([a-z][a-z-]*)\b").unwrap();
    let mut named = BTreeSet::new();
    for document in documents() {
        for code in document.code() {
            let Some(target) = make.captures(&code).map(|code| code[1].to_owned()) else { continue };
            assert!(targets.contains(&*target), "{}: no `make {target}`", document.path.display());
            named.insert(target);
        }
    }
    for target in ["demo", "test", "build"] {
        assert!(named.contains(target), "nobody names `make {target}`");
    }
}

#[test]
fn every_command_and_option_in_the_readme_exists() {
    let site = Site::with_config("");
    let help = |subcommand: &str| {
        let output = site.command().args([subcommand, "--help"]).output().unwrap();
        assert!(output.status.success(), "there is no `tidegate {subcommand}`");
        String::from_utf8(output.stdout).unwrap()
    };
    let command = Regex::new(r"^(?:target/release/)?tidegate ([a-z]+)(.*)$").unwrap();
    let option = Regex::new(r"(?:^|[\s\[])(--?[a-z][a-z-]*)").unwrap();
    let mut named = BTreeSet::new();
    for code in readme().code() {
        let Some(command) = command.captures(&code) else { continue };
        let help = help(&command[1]);
        for option in option.captures_iter(&command[2]) {
            assert!(help.contains(&option[1]), "`{code}`: there is no `{}`", &option[1]);
        }
        named.insert(command[1].to_owned());
    }
    assert_eq!(
        named.iter().map(String::as_str).collect::<Vec<_>>(),
        ["check", "dead", "demo", "reset", "resume", "run", "schema", "skip", "status", "verify"]
    );
}
