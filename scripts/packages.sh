#!/usr/bin/env bash
# Makes sure that what the build and the tests need is there: Debian's packages, which are installed as root, else the command
# is printed; and the parts of the Rust toolchain.
#
# usage: scripts/packages.sh build|test
set -euo pipefail

need=()
# A tool may come from anywhere; a header only counts as Debian's package, whose .pc file the build looks for.
tool() { command -v "$1" >/dev/null 2>&1 || need+=("$2"); }
headers() { pkg-config --exists "$1" 2>/dev/null || need+=("$2"); }

# librdkafka is compiled from source, its C++ half included; TLS and zlib are linked from the system.
tool cc gcc
tool g++ g++
tool make make
tool pkg-config pkg-config
headers openssl libssl-dev
headers zlib zlib1g-dev

if [ "${1:-test}" = test ]; then
  # The broker, the reference client that reads topics back, and the script that folds them.
  tool javac default-jdk-headless
  tool mvn maven
  tool python3 python3
  # For certificates of the tests' own.
  tool openssl openssl
fi

if [ ${#need[@]} -gt 0 ]; then
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing ${need[*]}"
    DEBIAN_FRONTEND=noninteractive apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "${need[@]}" >/dev/null
  else
    echo "missing packages; install them with:" >&2
    echo "    sudo apt-get install --no-install-recommends ${need[*]}" >&2
    exit 1
  fi
fi

if [ "${1:-test}" = test ]; then
  java=$(javac -version 2>&1 | sed 's/^javac \([0-9]*\).*/\1/')
  if [ "$java" -lt 17 ]; then
    echo "\`javac\` is version $java; the tests' broker needs 17 or later" >&2
    exit 1
  fi
fi
command -v cargo >/dev/null 2>&1 || { echo "\`cargo\` is missing; install rustup from https://rustup.rs" >&2; exit 1; }

# What rust-toolchain.toml names. Rustup fetches it by itself, unless it is told not to by `RUSTUP_AUTO_INSTALL=0`.
complete() {
  [ -d "$(rustc --print target-libdir --target wasm32-wasip2)" ] && cargo clippy --version && cargo fmt --version
}
complete >/dev/null 2>&1 || rustup toolchain install
