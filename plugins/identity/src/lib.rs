//! Keeps every record as it is, and wants all of it: what a plugin costs before it does anything.

use tidegate_plugin::{ConfigError, Decided, NoConfig, Plugin, Record, Verdict};

/// The plugin.
pub struct Identity;

impl Plugin for Identity {
    type Config = NoConfig;

    fn new(_: NoConfig) -> Result<Self, ConfigError> {
        Ok(Self)
    }

    fn process(&mut self, _: Record<'_>, verdict: Verdict<'_>) -> Decided {
        verdict.keep()
    }
}

tidegate_plugin::export!(Identity);

#[cfg(test)]
mod tests {
    use tidegate_plugin::Wants;
    use tidegate_plugin::harness::{Harness, Message, Outcome};

    use super::*;

    #[test]
    fn everything_is_wanted_and_kept() {
        let mut harness = Harness::<Identity>::new("{}").unwrap();
        assert_eq!(harness.setup().wants, Wants::all());
        let messages = [Message::new("a", "1"), Message::tombstone("b"), Message::new("", "").without_key()];
        assert_eq!(harness.process(messages), [Outcome::Keep, Outcome::Keep, Outcome::Keep]);
    }
}
