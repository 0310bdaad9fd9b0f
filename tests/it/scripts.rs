//! `make test`: what fails early hides nothing that comes later.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::harness::golden::in_repository;

/// Everything that the script calls, each told what to do by the environment: `FAIL` is a list of words, and who is called
/// with one of them in its name or arguments fails.
const STAND_IN: &str = r#"#!/usr/bin/env bash
for word in $FAIL; do
  case " $(basename "$0") $* " in *" $word "*) exit 7 ;; esac
done
"#;

fn write_stand_in(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, STAND_IN).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The script's exit code, and its lines without the times.
fn run(fail: &str) -> (Option<i32>, Vec<String>) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for name in ["bin/cargo", "scripts/packages.sh", "scripts/kafka-jars.sh", "scripts/lint.sh"] {
        write_stand_in(&dir.path().join(name));
    }
    fs::create_dir(dir.path().join("plugins")).unwrap();
    let script = dir.path().join("scripts/test.sh");
    fs::copy(in_repository("scripts/test.sh"), &script).unwrap();
    let path = format!("{}:{}", dir.path().join("bin").display(), std::env::var("PATH").unwrap());
    let output = Command::new(&script).env("PATH", path).env("FAIL", fail).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let time = regex::Regex::new(r": \d+ s$").unwrap();
    (output.status.code(), lines.lines().map(|line| time.replace(line, ": N s").into_owned()).collect())
}

/// The phases that came to an end, as `.ci/run` reads them.
fn timed(lines: &[String]) -> Vec<&str> {
    lines.iter().filter_map(|line| line.strip_prefix("== ")?.strip_suffix(": N s")).collect()
}

const ALL: [&str; 9] =
    ["packages", "kafka", "plugins", "build", "plugin tests", "unit tests", "doc tests", "integration tests", "lint"];

#[test]
fn every_phase_runs_when_nothing_fails() {
    let (code, lines) = run("");
    assert_eq!((code, timed(&lines)), (Some(0), ALL.to_vec()));
}

#[test]
fn tests_that_fail_hide_no_others_and_are_named_at_the_end() {
    for (fail, names) in [
        ("--workspace", &["plugin tests"][..]),
        ("--lib --doc", &["unit tests", "doc tests"]),
        ("it lint.sh", &["integration tests", "lint"]),
    ] {
        let (code, lines) = run(fail);
        assert_eq!((code, timed(&lines)), (Some(1), ALL.to_vec()), "{fail}");
        let named: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("== failed: ")).collect();
        assert_eq!(named, names, "{fail}");
        assert!(lines.last().unwrap().starts_with("== failed: "), "{fail}");
    }
}

#[test]
fn what_the_tests_need_stops_them_at_once() {
    for (fail, last) in [("packages.sh", 1), ("kafka-jars.sh", 2), ("wasm32-wasip2", 3), ("--all-targets", 4)] {
        let (code, lines) = run(fail);
        assert_eq!((code, timed(&lines)), (Some(7), ALL[..last].to_vec()), "{fail}");
    }
}

#[test]
fn a_toolchain_that_lacks_its_parts_is_completed_once() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bin = dir.path().join("bin");
    ["cargo", "rustc", "rustup"].iter().for_each(|name| write_stand_in(&bin.join(name)));
    let calls = |target_libdir: &Path| {
        let log = dir.path().join("calls");
        fs::write(&log, "").unwrap();
        fs::write(bin.join("rustc"), format!("#!/bin/sh\necho '{}'\n", target_libdir.display())).unwrap();
        fs::write(bin.join("rustup"), format!("#!/bin/sh\necho \"$@\" >> '{}'\n", log.display())).unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let script = in_repository("scripts/packages.sh");
        let status = Command::new(script).arg("build").env("PATH", path).status().unwrap();
        assert!(status.success());
        fs::read_to_string(log).unwrap()
    };
    assert_eq!(calls(&dir.path().join("not there")), "toolchain install\n");
    assert_eq!(calls(dir.path()), "");
}
