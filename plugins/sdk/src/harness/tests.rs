//! The flat encoding against a naive model, and the harness against its promises.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::outcome::decode;
use super::*;
use crate::record::Records;
use crate::{Decided, Header, NoConfig, Output, Record, Verdict, Wants};

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..6)
}

fn text() -> impl Strategy<Value = Text> {
    bytes().prop_map(Text)
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let message = (option::of(bytes()), option::of(bytes()), vec((bytes(), option::of(bytes())), 0..4), -1_i64..5);
    let message = message.prop_map(|(key, value, headers, timestamp)| Message { key, value, headers, timestamp });
    vec(message, 0..8)
}

fn changed() -> impl Strategy<Value = Changed> {
    (
        option::of(option::of(text())),
        option::of(option::of(text())),
        option::of(vec((text(), option::of(text())), 0..3)),
    )
        .prop_map(|(key, value, headers)| Changed { key, value, headers })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Keep),
        Just(Outcome::Drop),
        option::of(text()).prop_map(Outcome::SetValue),
        changed().prop_map(Outcome::Replace),
        ".{0,8}".prop_map(Outcome::Reject),
        vec(changed(), 0..4).prop_map(Outcome::Expand),
    ]
}

/// Gives the outcomes that it was told to give, one for each record.
struct Scripted(std::vec::IntoIter<Outcome>);

impl Plugin for Scripted {
    type Config = NoConfig;

    fn new(_: NoConfig) -> Result<Self, ConfigError> {
        Ok(Self(Vec::new().into_iter()))
    }

    fn setup(&self) -> Setup {
        Setup { changes_keys: true, ..Setup::default() }
    }

    fn process(&mut self, _: Record<'_>, verdict: Verdict<'_>) -> Decided {
        match self.0.next().unwrap() {
            Outcome::Keep => verdict.keep(),
            Outcome::Drop => verdict.drop(),
            Outcome::SetValue(Some(value)) => verdict.set_value(value.0),
            Outcome::SetValue(None) => verdict.set_tombstone(),
            Outcome::Replace(changed) => with_output(&changed, |output| verdict.replace(output)),
            Outcome::Reject(reason) => verdict.reject(reason),
            Outcome::Expand(outputs) => {
                let mut expansion = verdict.expand();
                for output in &outputs {
                    with_output(output, |output| {
                        expansion.push(output);
                    });
                }
                expansion.done()
            }
        }
    }
}

fn with_output<T>(changed: &Changed, use_it: impl FnOnce(Output<'_>) -> T) -> T {
    let mut output = Output::unchanged();
    if let Some(key) = &changed.key {
        output = output.with_key(key.as_ref().map(|key| key.0.as_slice()));
    }
    if let Some(value) = &changed.value {
        output = output.with_value(value.as_ref().map(|value| value.0.as_slice()));
    }
    let headers: Option<Vec<_>> = changed.headers.as_ref().map(|headers| {
        headers
            .iter()
            .map(|(name, value)| Header { name: &name.0, value: value.as_ref().map(|value| value.0.as_slice()) })
            .collect()
    });
    match &headers {
        Some(headers) => use_it(output.with_headers(headers)),
        None => use_it(output),
    }
}

proptest! {
    #[test]
    fn a_batch_reads_back_as_its_messages(messages in messages(), wants in 0_u8..8) {
        let wants = Wants::from_bits_truncate(wants);
        let batch = message::encode(&messages, wants);
        let mut records = Records::of(&batch).unwrap();
        for (index, message) in messages.iter().enumerate() {
            let record = records.next().unwrap().unwrap();
            prop_assert_eq!(record.offset(), i64::try_from(index).unwrap());
            prop_assert_eq!(record.timestamp_ms(), (message.timestamp >= 0).then_some(message.timestamp));
            if wants.contains(Wants::KEYS) {
                prop_assert_eq!(record.key(), message.key.as_deref());
            }
            if wants.contains(Wants::VALUES) {
                prop_assert_eq!(record.value(), message.value.as_deref());
            }
            if wants.contains(Wants::HEADERS) {
                prop_assert_eq!(record.headers().len(), message.headers.len());
                let headers: Vec<_> = record
                    .headers()
                    .map(|header| (header.name.to_vec(), header.value.map(<[u8]>::to_vec)))
                    .collect();
                prop_assert_eq!(&headers, &message.headers);
                for (name, _) in &message.headers {
                    let last = message.headers.iter().rev().find(|(other, _)| other == name).unwrap();
                    prop_assert_eq!(record.header(name), Some(last.1.as_deref()));
                }
            }
        }
        prop_assert!(records.next().unwrap().is_none());
    }

    #[test]
    fn an_answer_reads_back_as_its_outcomes(outcomes in vec(outcome(), 0..8)) {
        let mut harness = Harness::<Scripted>::new("{}").unwrap();
        harness.instance = Instance::of(Scripted(outcomes.clone().into_iter()));
        let messages = outcomes.iter().map(|_| Message::new("k", "v"));
        prop_assert_eq!(harness.process(messages), outcomes);
    }

    #[test]
    fn a_batch_that_does_not_add_up_is_an_error(
        lengths in vec(-4_i32..5, 0..12),
        data in bytes(),
        records in 0_usize..4,
    ) {
        let batch = Batch {
            topic: String::new(),
            partition: 0,
            offsets: vec![0; records],
            timestamps: vec![0; records],
            lengths,
            data,
        };
        let mut read = Records::of(&batch).unwrap();
        let read_all = std::iter::from_fn(|| match read.next() {
            Ok(None) => None,
            Ok(Some(record)) => Some(Ok(record.offset())),
            Err(error) => Some(Err(error)),
        });
        // Reading ends at the first error; the model below says whether there must be one.
        let read_well = read_all.take(records + 1).all(|record| record.is_ok());
        prop_assert_eq!(read_well, adds_up(&batch));
    }

    #[test]
    fn an_answer_that_does_not_add_up_is_an_error(
        actions in vec(0_u8..8, 0..4),
        lengths in vec(-4_i32..5, 0..8),
        data in bytes(),
    ) {
        let records = actions.len();
        let verdicts = Verdicts { actions, lengths, data };
        if let Ok(outcomes) = decode(&verdicts, records) {
            let mut harness = Harness::<Scripted>::new("{}").unwrap();
            harness.instance = Instance::of(Scripted(outcomes.into_iter()));
            let again = harness.instance.process(&message::encode(
                &vec![Message::new("", ""); records],
                Wants::all(),
            ));
            let again = again.unwrap();
            prop_assert_eq!(again.actions, verdicts.actions);
            prop_assert_eq!(again.lengths, verdicts.lengths);
            prop_assert_eq!(again.data, verdicts.data);
        }
    }
}

/// Whether a batch's lengths describe exactly its records and its data, by adding up.
fn adds_up(batch: &Batch) -> bool {
    let mut lengths = batch.lengths.iter().copied();
    let mut sum = 0;
    for _ in 0..batch.offsets.len() {
        for _ in 0..2 {
            match lengths.next() {
                Some(length @ -2..) => sum += length.max(0),
                _ => return false,
            }
        }
        let count = match lengths.next() {
            Some(-2) => 0,
            Some(count @ 0..) => count,
            _ => return false,
        };
        for _ in 0..count {
            match (lengths.next(), lengths.next()) {
                (Some(name @ 0..), Some(value @ -1..)) => sum += name + value.max(0),
                _ => return false,
            }
        }
    }
    lengths.next().is_none() && usize::try_from(sum) == Ok(batch.data.len())
}

/// Wants keys only, and does what the key says.
struct Obedient;

impl Plugin for Obedient {
    type Config = NoConfig;

    fn new(_: NoConfig) -> Result<Self, ConfigError> {
        Ok(Self)
    }

    fn setup(&self) -> Setup {
        Setup { wants: Wants::KEYS, ..Setup::default() }
    }

    fn process(&mut self, record: Record<'_>, verdict: Verdict<'_>) -> Decided {
        crate::count("seen", 1);
        match record.key() {
            Some(b"rekey") => verdict.replace(Output::unchanged().with_key(Some(b"other"))),
            Some(b"value") => verdict.set_value(record.value().unwrap_or_default()),
            Some(b"retry") => verdict.retry_batch("not now"),
            Some(b"fail") => verdict.fail_batch("never"),
            Some(b"long") => verdict.reject("ä".repeat(600)),
            Some(b"log") => {
                crate::debug!("seen {}", record.offset());
                crate::warn!("seen {}", record.offset());
                verdict.keep()
            }
            _ => verdict.keep(),
        }
    }
}

fn obedient() -> Harness<Obedient> {
    Harness::new("{}").unwrap()
}

#[test]
#[should_panic(expected = "the setup says that keys stay")]
fn an_unannounced_key_is_found() {
    obedient().decide(Message::new("rekey", ""));
}

#[test]
#[should_panic(expected = "add `Wants::VALUES` to the plugin's setup")]
fn a_field_that_is_not_wanted_is_not_there() {
    obedient().decide(Message::new("value", "v"));
}

#[test]
fn a_batch_can_fail_as_a_whole() {
    let batch = |key| [Message::new("a", ""), Message::new(key, ""), Message::new("b", "")];
    let retry = obedient().try_process(batch("retry")).unwrap_err();
    assert!(matches!(retry, PluginError::Retry(reason) if reason == "not now"));
    let fatal = obedient().try_process(batch("fail")).unwrap_err();
    assert!(matches!(fatal, PluginError::Fatal(reason) if reason == "never"));
}

#[test]
fn a_long_reason_is_cut_at_a_character() {
    let outcome = obedient().decide(Message::new("long", ""));
    assert_eq!(outcome, Outcome::Reject("ä".repeat(512)));
}

#[test]
fn logs_and_counts_are_recorded() {
    let mut harness = obedient();
    harness.log_from(Level::Info);
    harness.process([Message::new("a", ""), Message::new("log", "")]);
    assert_eq!(harness.logs(), [(Level::Warn, "seen 1".into())]);
    assert_eq!(harness.counter("seen"), 2);
    assert_eq!(harness.counter("unseen"), 0);
}

#[test]
fn a_description_comes_from_the_package_unless_the_plugin_says_otherwise() {
    struct Named;
    impl Plugin for Named {
        const NAME: Option<&'static str> = Some("named");
        type Config = NoConfig;
        fn new(_: NoConfig) -> Result<Self, ConfigError> {
            Ok(Self)
        }
        fn process(&mut self, _: Record<'_>, verdict: Verdict<'_>) -> Decided {
            verdict.keep()
        }
    }
    let package = crate::Package { name: "package", version: "1.2.3", description: "Does nothing." };
    let description = crate::describe::<Named>(&package);
    assert_eq!(description.name, "named");
    assert_eq!(description.version, "1.2.3");
    assert_eq!(description.summary, "Does nothing.");
    assert_eq!(crate::describe::<Obedient>(&package).name, "package");
}
