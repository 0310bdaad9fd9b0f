//! The list of crimes, shared by the hostile guests, which commit them, and by the gateway's integration tests, which
//! include this file with `#[path]` and match on [`Crime`] without a wildcard: a crime without a test does not compile.

/// Declares the crimes once, so that the enum, the list and the words cannot drift apart.
macro_rules! crimes {
    ($( $(#[$doc:meta])* $name:ident = $word:literal @ $place:ident, )*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Crime {
            $( $(#[$doc])* $name, )*
        }

        impl Crime {
            /// Every crime there is.
            pub const ALL: &[Crime] = &[ $( Crime::$name, )* ];

            /// What triggers the crime; see [`Place`].
            pub const fn word(self) -> &'static str {
                match self { $( Crime::$name => $word, )* }
            }

            /// Where the crime is committed.
            pub const fn place(self) -> Place {
                match self { $( Crime::$name => Place::$place, )* }
            }
        }
    };
}

/// Where a crime is committed, and so how a test triggers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In `process` of `hostile.wasm`, when a batch holds a record whose key starts with the crime's word. Every other
    /// record is kept.
    Record,
    /// In `init` of `hostile.wasm`, when its configuration is `{"crime": "WORD"}`.
    Init,
    /// In `describe` of the component `hostile_WORD.wasm` (with `_` for `-`), which keeps all records.
    Describe,
}

crimes! {
    /// Panics, which is an `unreachable` trap.
    Trap = "trap" @ Record,
    /// Computes without end.
    Loop = "loop" @ Record,
    /// Sleeps for a minute through WASI's clocks: a call into the host that epochs do not interrupt.
    Sleep = "sleep" @ Record,
    /// Takes memory until it is refused.
    Bomb = "bomb" @ Record,
    /// Calls itself without end.
    Recurse = "recurse" @ Record,
    /// Calls itself deeply and then calls the host from the bottom of the stack, again and again without end.
    DeepCall = "deep-call" @ Record,
    /// Prints to standard output without end.
    PrintStdout = "stdout-flood" @ Record,
    /// Prints to standard error without end.
    PrintStderr = "stderr-flood" @ Record,
    /// Logs 10,000 messages of 1 KiB through the host and keeps the record: no error, but most must be left out.
    LogFlood = "log-flood" @ Record,
    /// Logs one message of 16 MiB and keeps the record.
    LogHuge = "log-huge" @ Record,
    /// Counts under 10,000 different names and keeps the record: no error, but the names must stay bounded.
    CountFlood = "count-flood" @ Record,
    /// Counts under a name with line breaks and quotes and keeps the record.
    CountName = "count-name" @ Record,
    /// Loses 64 KiB at each such record and keeps it: after about a thousand the memory limit is met.
    Leak = "leak" @ Record,
    /// Answers `fatal`.
    Fatal = "fatal" @ Record,
    /// Answers `fatal` with a message of 4 MiB.
    FatalHuge = "long-fatal" @ Record,
    /// Answers `retry` for ever.
    Retry = "retry" @ Record,
    /// Answers `config`, which only `init` may.
    ConfigLate = "config-late" @ Record,
    /// One action too few.
    TooFew = "too-few" @ Record,
    /// One action too many.
    TooMany = "too-many" @ Record,
    /// An action byte that means nothing.
    UnknownAction = "unknown-action" @ Record,
    /// A value's length of -7.
    NegativeLength = "negative-length" @ Record,
    /// A value's length of -2 with `set-value`, where there is nothing to leave as it is.
    SameValue = "same-value" @ Record,
    /// A header-count of -1.
    NullHeaders = "null-headers" @ Record,
    /// A header whose name is null.
    NullName = "null-name" @ Record,
    /// A length beyond the data's end.
    LengthBeyond = "length-beyond" @ Record,
    /// Two lengths whose sum overflows 32 bits.
    LengthOverflow = "length-overflow" @ Record,
    /// An action without its length.
    LengthMissing = "length-missing" @ Record,
    /// A length that no action asks for.
    LengthLeftOver = "length-left-over" @ Record,
    /// A byte that no length asks for.
    DataLeftOver = "data-left-over" @ Record,
    /// A reason that is not UTF-8.
    BadReason = "bad-reason" @ Record,
    /// A reason that is null.
    NullReason = "null-reason" @ Record,
    /// A header-count of 2,147,483,647 without the headers.
    ManyHeaders = "many-headers" @ Record,
    /// An expansion into 2,147,483,647 records without the records.
    ExpandBomb = "expand-bomb" @ Record,
    /// An expansion into 1,000,000 copies of the input: three lengths each and no data, but a large output in the host.
    ExpandFlood = "expand-flood" @ Record,
    /// An expansion into -1 records.
    ExpandNegative = "expand-negative" @ Record,
    /// A value of 32 MiB, or of as many bytes as the number that follows the word and a hyphen (`huge-output-1048576`).
    HugeOutput = "huge-output" @ Record,
    /// Changes the key without having declared it.
    Rekey = "rekey" @ Record,
    /// Panics in `init`.
    InitTrap = "init-trap" @ Init,
    /// Never returns from `init`.
    InitLoop = "init-loop" @ Init,
    /// Sleeps for a minute in `init`.
    InitSleep = "init-sleep" @ Init,
    /// Takes memory in `init` until it is refused.
    InitBomb = "init-bomb" @ Init,
    /// Answers `retry` from `init`.
    InitRetry = "init-retry" @ Init,
    /// Refuses its configuration with a message of 4 MiB with control characters.
    InitLongError = "init-long-error" @ Init,
    /// Panics in `describe`.
    DescribeTrap = "describe-trap" @ Describe,
    /// Never returns from `describe`.
    DescribeLoop = "describe-loop" @ Describe,
    /// Describes itself with a name, a version and a schema that are none.
    DescribeGarbage = "describe-garbage" @ Describe,
}

impl Crime {
    /// The crime that a key, or a configuration's `crime`, asks for.
    pub fn of(place: Place, text: &[u8]) -> Option<Crime> {
        Crime::ALL.iter().copied().find(|crime| crime.place() == place && text.starts_with(crime.word().as_bytes()))
    }

    /// The file name of the guest that commits the crime.
    pub fn component(self) -> String {
        match self.place() {
            Place::Record | Place::Init => "hostile.wasm".into(),
            Place::Describe => format!("hostile_{}.wasm", self.word().replace('-', "_")),
        }
    }
}
