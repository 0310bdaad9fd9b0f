use proptest::prelude::*;

use super::*;
use crate::record::{Batch, TopicPartition};

pub type Bytes = Option<Vec<u8>>;

/// What a plugin means, in the plainest form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meant {
    Keep,
    Drop,
    SetValue(Bytes),
    Replace(MeantShape),
    Reject(String),
    Expand(Vec<MeantShape>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeantShape {
    /// The outer `None` = as the input has it.
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Option<Vec<(Vec<u8>, Bytes)>>,
}

pub fn encode(meant: &[Meant]) -> Verdicts {
    let mut out = Verdicts { actions: vec![], lengths: vec![], data: vec![] };
    for one in meant {
        let action = match one {
            Meant::Keep => KEEP,
            Meant::Drop => DROP,
            Meant::SetValue(value) => {
                field(&mut out, Some(value));
                SET_VALUE
            }
            Meant::Replace(meant) => {
                shape(&mut out, meant);
                REPLACE
            }
            Meant::Reject(reason) => {
                field(&mut out, Some(&Some(reason.clone().into_bytes())));
                REJECT
            }
            Meant::Expand(shapes) => {
                out.lengths.push(shapes.len() as i32);
                shapes.iter().for_each(|meant| shape(&mut out, meant));
                EXPAND
            }
        };
        out.actions.push(action);
    }
    out
}

fn field(out: &mut Verdicts, meant: Option<&Bytes>) {
    match meant {
        None => out.lengths.push(ABSENT),
        Some(None) => out.lengths.push(NULL),
        Some(Some(bytes)) => {
            out.lengths.push(bytes.len() as i32);
            out.data.extend(bytes);
        }
    }
}

fn shape(out: &mut Verdicts, meant: &MeantShape) {
    field(out, meant.key.as_ref());
    field(out, meant.value.as_ref());
    match &meant.headers {
        None => out.lengths.push(ABSENT),
        Some(pairs) => {
            out.lengths.push(pairs.len() as i32);
            for (name, value) in pairs {
                field(out, Some(&Some(name.clone())));
                field(out, Some(value));
            }
        }
    }
}

fn read(checked: &Checked) -> Vec<Meant> {
    let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    let field = |field: Field<'_>| match field {
        Field::Same => None,
        Field::New(bytes) => Some(owned(bytes)),
    };
    let shape = |shape: Shape<'_>| MeantShape {
        key: field(shape.key),
        value: field(shape.value),
        headers: shape.headers.map(|pairs| pairs.map(|(name, value)| (name.to_vec(), owned(value))).collect()),
    };
    let mut decisions = checked.decisions();
    let mut read = Vec::new();
    while let Some(decision) = decisions.next() {
        read.push(match decision {
            Decision::Keep => Meant::Keep,
            Decision::Drop => Meant::Drop,
            Decision::SetValue(value) => Meant::SetValue(owned(value)),
            Decision::Replace(replaced) => Meant::Replace(shape(replaced)),
            Decision::Reject(reason) => Meant::Reject(reason.to_owned()),
            Decision::Expand(rows) => Meant::Expand((0..rows).map(|_| shape(decisions.shape())).collect()),
        });
    }
    read
}

fn batch(records: usize) -> Batch {
    let mut batch = Batch::new(TopicPartition::new("t", 0));
    for offset in 0..records as i64 {
        batch.push(offset, 0, Some(b"key"), Some(b"value"));
        batch.push_header(b"h", None);
    }
    batch
}

fn verdicts(actions: &[u8], lengths: &[i32], data: &[u8]) -> Verdicts {
    Verdicts { actions: actions.to_vec(), lengths: lengths.to_vec(), data: data.to_vec() }
}

fn check_one(action: u8, lengths: &[i32], data: &[u8]) -> Result<Checked, VerdictError> {
    check(batch(1).iter(), verdicts(&[action], lengths, data), false, 1 << 20)
}

#[track_caller]
fn refused(action: u8, lengths: &[i32], data: &[u8], expected: VerdictError) {
    assert_eq!(check_one(action, lengths, data).expect_err("refused"), expected);
}

#[test]
fn what_does_not_add_up_is_refused() {
    let number = "a number of rows";
    refused(77, &[], b"", VerdictError::Action(77));
    refused(KEEP, &[0], b"", VerdictError::LengthsLeft(1));
    refused(KEEP, &[], b"x", VerdictError::DataLeft(1));
    refused(SET_VALUE, &[], b"x", VerdictError::LengthMissing);
    refused(SET_VALUE, &[ABSENT], b"", VerdictError::Length(ABSENT, "a length of bytes"));
    refused(SET_VALUE, &[-7], b"", VerdictError::Length(-7, "a length of bytes"));
    refused(SET_VALUE, &[100], b"short", VerdictError::Beyond { length: 100, left: 5 });
    refused(REPLACE, &[i32::MAX, i32::MAX, ABSENT], b"s", VerdictError::Beyond { length: i32::MAX, left: 1 });
    refused(REPLACE, &[ABSENT, ABSENT, NULL], b"", VerdictError::Length(NULL, "a number of headers or `-2`"));
    refused(REPLACE, &[ABSENT, ABSENT, 1, NULL, NULL], b"", VerdictError::Length(NULL, "a length of bytes"));
    refused(REPLACE, &[ABSENT, ABSENT, i32::MAX], b"", VerdictError::LengthMissing);
    refused(REPLACE, &[5, ABSENT, ABSENT], b"other", VerdictError::Key);
    refused(REPLACE, &[NULL, ABSENT, ABSENT], b"", VerdictError::Key);
    refused(REJECT, &[3], b"n\xffo", VerdictError::Reason);
    refused(REJECT, &[NULL], b"", VerdictError::Length(NULL, "a length of bytes"));
    refused(EXPAND, &[-1], b"", VerdictError::Length(-1, number));
    refused(EXPAND, &[i32::MAX], b"", VerdictError::LengthMissing);
    let few = check(batch(2).iter(), verdicts(&[KEEP], &[], b""), false, 0).expect_err("too few");
    assert_eq!(few, VerdictError::Count { actions: 1, records: 2 });
}

#[test]
fn the_same_key_is_no_change() {
    assert!(check_one(REPLACE, &[3, ABSENT, ABSENT], b"key").is_ok());
    let other = verdicts(&[REPLACE], &[5, ABSENT, ABSENT], b"other");
    assert!(check(batch(1).iter(), other, true, 1 << 20).is_ok(), "it is declared");
}

#[test]
fn what_is_taken_over_from_the_input_counts_as_output() {
    let rows = 1_000;
    let lengths: Vec<i32> = std::iter::once(rows).chain((0..rows).flat_map(|_| [ABSENT; 3])).collect();
    let row = ROW_BYTES + "key".len() + "value".len() + 8 + "h".len();
    let cap = row * rows as usize;
    let flood = || verdicts(&[EXPAND], &lengths, b"");
    assert_eq!(check(batch(1).iter(), flood(), false, cap).expect("fits").bytes(), cap);
    assert_eq!(check(batch(1).iter(), flood(), false, cap - 1).expect_err("flood"), VerdictError::Output(cap - 1));
}

#[test]
fn a_reason_is_cut_at_a_character() {
    let reason = "ä".repeat(600);
    let checked = check_one(REJECT, &[1200], reason.as_bytes()).expect("fits");
    assert_eq!(checked.decisions().next(), Some(Decision::Reject(&reason[..1024])));
    let reason = format!("x{reason}");
    let checked = check_one(REJECT, &[1201], reason.as_bytes()).expect("fits");
    assert_eq!(checked.decisions().next(), Some(Decision::Reject(&reason[..1023])));
}

#[test]
fn an_answer_tells_the_most_that_it_does() {
    let effect = |actions: &[u8], lengths: &[i32]| {
        check(batch(2).iter(), verdicts(actions, lengths, b""), false, 1 << 20).expect("fits").effect()
    };
    assert_eq!(effect(&[KEEP, KEEP], &[]), Effect::None);
    assert_eq!(effect(&[KEEP, DROP], &[]), Effect::Fates);
    assert_eq!(effect(&[EXPAND, KEEP], &[0]), Effect::Fates);
    assert_eq!(effect(&[SET_VALUE, DROP], &[NULL]), Effect::Rows);
}

pub fn bytes() -> impl Strategy<Value = Bytes> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..5))
}

fn meant_shape() -> impl Strategy<Value = MeantShape> {
    let pair = (proptest::collection::vec(any::<u8>(), 0..3), bytes());
    let headers = proptest::option::of(proptest::collection::vec(pair, 0..3));
    (proptest::option::of(bytes()), proptest::option::of(bytes()), headers)
        .prop_map(|(key, value, headers)| MeantShape { key, value, headers })
}

pub fn meant() -> impl Strategy<Value = Meant> {
    prop_oneof![
        Just(Meant::Keep),
        Just(Meant::Drop),
        bytes().prop_map(Meant::SetValue),
        meant_shape().prop_map(Meant::Replace),
        ".{0,5}".prop_map(Meant::Reject),
        proptest::collection::vec(meant_shape(), 0..4).prop_map(Meant::Expand),
    ]
}

proptest! {
    #[test]
    fn what_is_meant_is_understood(meant in proptest::collection::vec(meant(), 0..12)) {
        let checked = check(batch(meant.len()).iter(), encode(&meant), true, 1 << 20).expect("it adds up");
        prop_assert_eq!(read(&checked), meant);
    }

    /// Small numbers, since they are the ones that come close to adding up.
    #[test]
    fn whatever_is_answered_is_read_or_refused(
        actions in proptest::collection::vec(0_u8..7, 0..6),
        lengths in proptest::collection::vec(prop_oneof![-3_i32..6, Just(i32::MAX), Just(i32::MIN)], 0..24),
        data in proptest::collection::vec(any::<u8>(), 0..40),
        changes_keys in any::<bool>(),
        cap in 0_usize..2_000,
    ) {
        let answer = verdicts(&actions, &lengths, &data);
        if let Ok(checked) = check(batch(actions.len()).iter(), answer, changes_keys, cap) {
            prop_assert!(checked.bytes() <= cap);
            // What was accepted is understood completely: it can be written down again, the same.
            let again = encode(&read(&checked));
            prop_assert_eq!(again, verdicts(&actions, &lengths, &data));
        }
    }

    /// A good answer with one thing changed is read or refused, never a panic, and what is read fits its records.
    #[test]
    fn a_damaged_answer_is_read_or_refused(
        meant in proptest::collection::vec(meant(), 1..8),
        place in any::<proptest::sample::Index>(),
        value in prop_oneof![-3_i32..8, any::<i32>()],
    ) {
        let mut damaged = encode(&meant);
        if damaged.lengths.is_empty() {
            let index = place.index(damaged.actions.len());
            damaged.actions[index] = value as u8;
        } else {
            let index = place.index(damaged.lengths.len());
            damaged.lengths[index] = value;
        }
        if let Ok(checked) = check(batch(meant.len()).iter(), damaged, false, 1 << 20) {
            prop_assert_eq!(read(&checked).len(), meant.len());
        }
    }
}
