//! Builds the standard plugins, which the gateway carries in itself (`use: std/NAME`).

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-wasip2";

/// The crates of `plugins/` that are shipped.
const STANDARD: &[&str] = &["mask-fields", "filter", "key-check"];

/// Environment variables that steer the build of the gateway alone.
const HOST_ONLY: &[&str] = &[
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOC",
    "RUSTFLAGS",
];

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let plugins = root.join("plugins");
    for watched in ["plugins/Cargo.toml", "plugins/Cargo.lock", "plugins/sdk", "wit"] {
        println!("cargo:rerun-if-changed={watched}");
    }
    for name in STANDARD {
        println!("cargo:rerun-if-changed=plugins/{name}");
    }
    build(&plugins);
    let artifacts = plugins.join("target").join(TARGET).join("release");
    for name in STANDARD {
        let artifact = artifacts.join(format!("{}.wasm", name.replace('-', "_")));
        assert!(artifact.exists(), "building `{name}` left no `{}`", artifact.display());
        println!("cargo:rustc-env=TIDEGATE_STD_{}={}", name.replace('-', "_").to_uppercase(), artifact.display());
    }
}

fn build(plugins: &Path) {
    let mut cargo = Command::new(env::var_os("CARGO").expect("set by cargo"));
    cargo.current_dir(plugins).args(["build", "--release", "--locked", "--target", TARGET]);
    STANDARD.iter().for_each(|name| {
        cargo.args(["--package", name]);
    });
    // What is set for this build is not meant for the other one: the host's flags, a wrapper such as clippy's.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if HOST_ONLY.contains(&&*text) || text.starts_with("CARGO_PROFILE_") {
            cargo.env_remove(&name);
        }
    }
    let status = cargo.status().expect("cargo can be run");
    assert!(
        status.success(),
        "cannot build the standard plugins in `{}`; is the target installed? `rustup target add {TARGET}`",
        plugins.display()
    );
}
