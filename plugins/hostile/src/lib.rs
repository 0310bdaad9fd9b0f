//! A guest that commits the crimes of `crimes.rs`. It speaks the contract without the SDK, since the SDK cannot be made to
//! give an answer that does not add up.

mod acts;
mod answers;
#[path = "../crimes.rs"]
#[allow(dead_code, reason = "the gateway's tests use the rest of the list")]
mod crimes;

use crimes::{Crime, Place};

/// What `wit-bindgen` makes of the contract.
mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "plugin",
    });
}

use bindings::exports::tidegate::plugin::processor::{Batch, Description, Guest, PluginError, Setup, Verdicts};
use bindings::tidegate::plugin::types::Wants;

/// The length that means "not wanted" on the way in and "as the input has it" on the way out.
const ABSENT: i32 = -2;
const KEEP: u8 = 0;

/// The guest behind `hostile.wasm`.
pub struct Hostile;

impl Guest for Hostile {
    fn describe() -> Description {
        Description {
            name: env!("CARGO_PKG_NAME").into(),
            version: env!("CARGO_PKG_VERSION").into(),
            summary: env!("CARGO_PKG_DESCRIPTION").into(),
            config_schema: String::new(),
        }
    }

    fn init(config: String) -> Result<Setup, PluginError> {
        if let Some(crime) = Crime::of(Place::Init, named_crime(&config).as_bytes()) {
            acts::commit_at_init(crime)?;
        }
        Ok(Setup { wants: Wants::KEYS, changes_keys: false, max_batch: 0 })
    }

    fn process(batch: Batch) -> Result<Verdicts, PluginError> {
        let kept = Verdicts { actions: vec![KEEP; batch.offsets.len()], lengths: Vec::new(), data: Vec::new() };
        match guilty(&batch) {
            Some((index, crime, key)) => {
                acts::commit(crime)?;
                answers::falsify(kept, index, crime, key)
            }
            None => Ok(kept),
        }
    }
}

/// The first guilty record of the batch. Only keys are wanted, so that each record has two fields and no headers.
fn guilty(batch: &Batch) -> Option<(usize, Crime, &[u8])> {
    let mut rest = batch.data.as_slice();
    for (index, lengths) in batch.lengths.chunks_exact(3).enumerate() {
        let (key, after) = rest.split_at(usize::try_from(lengths[0]).unwrap_or(0));
        rest = after;
        if let Some(crime) = Crime::of(Place::Record, key) {
            return Some((index, crime, key));
        }
    }
    None
}

/// What stands behind `"crime":` in the configuration. A guest with one setting needs no JSON parser.
fn named_crime(config: &str) -> &str {
    let after = config.split_once("\"crime\"").map_or("", |(_, after)| after);
    after.split('"').nth(1).unwrap_or("")
}

#[cfg(target_arch = "wasm32")]
bindings::export!(Hostile with_types_in bindings);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_starts_another() {
        for crime in Crime::ALL {
            for other in Crime::ALL.iter().filter(|other| *other != crime) {
                assert!(!other.word().starts_with(crime.word()), "`{}` starts `{}`", crime.word(), other.word());
            }
        }
    }

    #[test]
    fn a_key_commits_the_crime_that_it_starts_with() {
        assert_eq!(Crime::of(Place::Record, b"trap-17"), Some(Crime::Trap));
        assert_eq!(Crime::of(Place::Record, b"a trap"), None);
        assert_eq!(Crime::of(Place::Record, b"init-trap"), None);
        assert_eq!(Crime::of(Place::Init, b"init-trap"), Some(Crime::InitTrap));
        assert_eq!(Crime::DescribeTrap.component(), "hostile_describe_trap.wasm");
    }

    #[test]
    fn the_guilty_record_is_found_among_others() {
        let batch = Batch {
            topic: "t".into(),
            partition: 0,
            offsets: vec![4, 5, 9],
            timestamps: vec![0; 3],
            lengths: vec![4, ABSENT, ABSENT, -1, ABSENT, ABSENT, 7, ABSENT, ABSENT],
            data: b"goodtrap me".to_vec(),
        };
        assert_eq!(guilty(&batch), Some((2, Crime::Trap, &b"trap me"[..])));
    }

    #[test]
    fn the_configuration_names_a_crime() {
        assert_eq!(named_crime(r#"{ "crime": "init-loop" }"#), "init-loop");
        assert_eq!(named_crime("{}"), "");
    }
}
