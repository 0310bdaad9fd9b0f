#!/usr/bin/env bash
# Formatting and clippy, of the gateway and of the plugins: natively, as their tests run, and as components.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --check
(cd plugins && cargo fmt --check)
(cd plugins && cargo clippy --quiet --locked --workspace --all-targets -- -D warnings)
(cd plugins && cargo clippy --quiet --locked --workspace --release --target wasm32-wasip2 -- -D warnings)
cargo clippy --quiet --locked --all-targets -- -D warnings
