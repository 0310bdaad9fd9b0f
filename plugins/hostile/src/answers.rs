//! The crimes that are lies: answers that do not add up.

use crate::bindings::tidegate::plugin::types::{PluginError, Verdicts};
use crate::crimes::Crime;
use crate::{ABSENT, KEEP};

const SET_VALUE: u8 = 2;
const REPLACE: u8 = 3;
const REJECT: u8 = 4;
const EXPAND: u8 = 5;

const NULL: i32 = -1;
const EXPAND_FLOOD_RECORDS: i32 = 1_000_000;
const HUGE_OUTPUT_BYTES: usize = 32 << 20;

/// Turns the faultless answer `kept` into the crime's, for the record at `index`.
pub fn falsify(mut kept: Verdicts, index: usize, crime: Crime, key: &[u8]) -> Result<Verdicts, PluginError> {
    match crime {
        Crime::TooFew => {
            kept.actions.pop();
        }
        Crime::TooMany => kept.actions.push(KEEP),
        Crime::UnknownAction => kept.actions[index] = 77,
        Crime::LengthLeftOver => kept.lengths.push(0),
        Crime::DataLeftOver => kept.data.push(b'x'),
        _ => {
            if let Some((action, lengths, data)) = lie(crime, key) {
                kept.actions[index] = action;
                kept.lengths = lengths;
                kept.data = data;
            }
        }
    }
    Ok(kept)
}

/// The action, lengths and data of a lie about one record.
fn lie(crime: Crime, key: &[u8]) -> Option<(u8, Vec<i32>, Vec<u8>)> {
    Some(match crime {
        Crime::NegativeLength => (SET_VALUE, vec![-7], vec![]),
        Crime::SameValue => (SET_VALUE, vec![ABSENT], vec![]),
        Crime::NullHeaders => (REPLACE, vec![ABSENT, ABSENT, NULL], vec![]),
        Crime::NullName => (REPLACE, vec![ABSENT, ABSENT, 1, NULL, NULL], vec![]),
        Crime::LengthBeyond => (SET_VALUE, vec![100], b"short".to_vec()),
        Crime::LengthOverflow => (REPLACE, vec![i32::MAX, i32::MAX, ABSENT], b"short".to_vec()),
        Crime::LengthMissing => (SET_VALUE, vec![], b"value".to_vec()),
        Crime::BadReason => (REJECT, vec![3], vec![b'n', 0xff, b'o']),
        Crime::NullReason => (REJECT, vec![NULL], vec![]),
        Crime::ManyHeaders => (REPLACE, vec![ABSENT, ABSENT, i32::MAX], vec![]),
        Crime::ExpandBomb => (EXPAND, vec![i32::MAX], vec![]),
        Crime::ExpandFlood => {
            let mut lengths = vec![EXPAND_FLOOD_RECORDS];
            lengths.extend((0..EXPAND_FLOOD_RECORDS).flat_map(|_| [ABSENT; 3]));
            (EXPAND, lengths, vec![])
        }
        Crime::ExpandNegative => (EXPAND, vec![-1], vec![]),
        Crime::HugeOutput => {
            let bytes = number_after_word(crime, key).unwrap_or(HUGE_OUTPUT_BYTES);
            let length = i32::try_from(bytes).unwrap_or(i32::MAX);
            (SET_VALUE, vec![length], vec![b'h'; bytes])
        }
        Crime::Rekey => (REPLACE, vec![5, ABSENT, ABSENT], b"other".to_vec()),
        _ => return None,
    })
}

fn number_after_word(crime: Crime, key: &[u8]) -> Option<usize> {
    let number = key.get(crime.word().len() + 1..)?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(crime: Crime, key: &str) -> Verdicts {
        let kept = Verdicts { actions: vec![KEEP; 3], lengths: vec![], data: vec![] };
        falsify(kept, 1, crime, key.as_bytes()).unwrap()
    }

    #[test]
    fn a_lie_is_told_about_the_guilty_record() {
        let verdicts = answer(Crime::Rekey, "rekey");
        assert_eq!(verdicts.actions, [KEEP, REPLACE, KEEP]);
        assert_eq!(verdicts.lengths, [5, ABSENT, ABSENT]);
        assert_eq!(verdicts.data, b"other");
    }

    #[test]
    fn the_key_says_how_huge() {
        assert_eq!(answer(Crime::HugeOutput, "huge-output-12").data.len(), 12);
        assert_eq!(answer(Crime::HugeOutput, "huge-output").data.len(), HUGE_OUTPUT_BYTES);
    }

    #[test]
    fn a_deed_ends_in_an_honest_answer() {
        assert_eq!(answer(Crime::Leak, "leak").actions, [KEEP; 3]);
    }
}
