#!/usr/bin/env bash
# Every test there is. Each phase is named and timed. What has to be there for the others ends the script when it fails; of the
# tests, all are run, and the ones that failed are named at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

# How many integration tests run at once: they wait for a broker and for time-outs more than they compute.
export TEST_THREADS=${TEST_THREADS:-4}

phase() {
  local name=$1 start=$SECONDS status=0
  shift
  echo "== $name"
  # Behind `||`, `set -e` counts for nothing in a function: a phase is one command, or commands joined by `&&`.
  "$@" || status=$?
  echo "== $name: $((SECONDS - start)) s"
  return "$status"
}

failed=()
# A phase whose failure is told at the end.
tests() { phase "$@" || failed+=("$1"); }

plugins() { (cd plugins && cargo build --locked --release --target wasm32-wasip2); }
plugin_tests() { (cd plugins && cargo test --quiet --locked --no-fail-fast --workspace); }
# Without the integration tests, whose number of threads is their own.
unit_tests() { cargo test --quiet --locked --no-fail-fast --lib --bins; }
doc_tests() { cargo test --quiet --locked --no-fail-fast --doc; }
integration_tests() { cargo test --locked --no-fail-fast --test it -- --test-threads="$TEST_THREADS"; }

phase "packages" scripts/packages.sh test
phase "kafka" scripts/kafka-jars.sh
phase "plugins" plugins
phase "build" cargo build --locked --all-targets
tests "plugin tests" plugin_tests
tests "unit tests" unit_tests
tests "doc tests" doc_tests
tests "integration tests" integration_tests
tests "lint" scripts/lint.sh

if [ "${#failed[@]}" -gt 0 ]; then
  printf '== failed: %s\n' "${failed[@]}"
  exit 1
fi
