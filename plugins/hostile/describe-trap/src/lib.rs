//! A guest that traps before anyone knows its name.

/// What `wit-bindgen` makes of the contract.
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "plugin" });
}

use bindings::exports::tidegate::plugin::processor::{Batch, Description, Guest, PluginError, Setup, Verdicts};
use bindings::tidegate::plugin::types::Wants;

/// The guest.
pub struct Hostile;

impl Guest for Hostile {
    fn describe() -> Description {
        panic!("boom in describe")
    }

    fn init(_config: String) -> Result<Setup, PluginError> {
        Ok(Setup { wants: Wants::empty(), changes_keys: false, max_batch: 0 })
    }

    fn process(batch: Batch) -> Result<Verdicts, PluginError> {
        Ok(Verdicts { actions: vec![0; batch.offsets.len()], lengths: Vec::new(), data: Vec::new() })
    }
}

#[cfg(target_arch = "wasm32")]
bindings::export!(Hostile with_types_in bindings);
