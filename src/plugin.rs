//! The WebAssembly host.
