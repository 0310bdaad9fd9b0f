#!/usr/bin/env bash
# Every test there is. Each phase is named and timed; the first that fails ends it.
set -euo pipefail
cd "$(dirname "$0")/.."

# How many integration tests run at once: they wait for a broker and for time-outs more than they compute.
export TEST_THREADS=${TEST_THREADS:-4}

phase() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  "$@"
  echo "== $name: $((SECONDS - start)) s"
}

plugins() { (cd plugins && cargo build --locked --release --target wasm32-wasip2); }
plugin_tests() { (cd plugins && cargo test --quiet --locked --workspace); }
# Without the integration tests, whose number of threads is their own.
unit_tests() { cargo test --quiet --locked --lib --bins; }
doc_tests() { cargo test --quiet --locked --doc; }
integration_tests() { cargo test --locked --test it -- --test-threads="$TEST_THREADS"; }

phase "packages" scripts/packages.sh test
phase "kafka" scripts/kafka-jars.sh
phase "plugins" plugins
phase "build" cargo build --locked --all-targets
phase "plugin tests" plugin_tests
phase "unit tests" unit_tests
phase "doc tests" doc_tests
phase "integration tests" integration_tests
phase "lint" scripts/lint.sh
