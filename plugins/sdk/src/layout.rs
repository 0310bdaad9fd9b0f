//! The flat layout of the contract: lengths on one side, the bytes that they measure on the other.

/// The length of a field that is not there: a null key, a tombstone's value, a header without a value.
pub(crate) const NULL: i32 = -1;
/// The length of a field that is left out: not wanted in a batch, as the input has it in an answer.
pub(crate) const ABSENT: i32 = -2;

/// The action bytes of an answer.
pub(crate) mod action {
    pub(crate) const KEEP: u8 = 0;
    pub(crate) const DROP: u8 = 1;
    pub(crate) const SET_VALUE: u8 = 2;
    pub(crate) const REPLACE: u8 = 3;
    pub(crate) const REJECT: u8 = 4;
    pub(crate) const EXPAND: u8 = 5;
}

/// A field as its length describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    Absent,
    Null,
    Bytes(&'a [u8]),
}

/// Lengths and data that do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LayoutError {
    #[error("a length is missing")]
    LengthMissing,
    #[error("`{0}` is no length here")]
    BadLength(i32),
    #[error("a length of {0} bytes goes beyond the data")]
    BeyondData(usize),
    #[error("{lengths} lengths and {bytes} bytes are left over")]
    LeftOver { lengths: usize, bytes: usize },
    #[error("{offsets} offsets, but {timestamps} timestamps")]
    Uneven { offsets: usize, timestamps: usize },
}

/// Takes lengths, and the bytes that they measure, from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) lengths: &'a [i32],
    pub(crate) data: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn length(&mut self) -> Result<i32, LayoutError> {
        let (&length, rest) = self.lengths.split_first().ok_or(LayoutError::LengthMissing)?;
        self.lengths = rest;
        Ok(length)
    }

    pub(crate) fn field(&mut self) -> Result<Field<'a>, LayoutError> {
        match self.length()? {
            ABSENT => Ok(Field::Absent),
            NULL => Ok(Field::Null),
            length => {
                let length = usize::try_from(length).map_err(|_| LayoutError::BadLength(length))?;
                let (bytes, rest) = self.data.split_at_checked(length).ok_or(LayoutError::BeyondData(length))?;
                self.data = rest;
                Ok(Field::Bytes(bytes))
            }
        }
    }

    /// A field that may be null, but not left out.
    pub(crate) fn present(&mut self) -> Result<Option<&'a [u8]>, LayoutError> {
        match self.field()? {
            Field::Absent => Err(LayoutError::BadLength(ABSENT)),
            Field::Null => Ok(None),
            Field::Bytes(bytes) => Ok(Some(bytes)),
        }
    }

    /// A field that may be neither null nor left out.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], LayoutError> {
        self.present()?.ok_or(LayoutError::BadLength(NULL))
    }

    /// A number of things that follow; `None` = they are left out.
    pub(crate) fn count(&mut self) -> Result<Option<usize>, LayoutError> {
        match self.length()? {
            ABSENT => Ok(None),
            count => usize::try_from(count).map(Some).map_err(|_| LayoutError::BadLength(count)),
        }
    }

    /// That nothing is left.
    pub(crate) fn finish(self) -> Result<(), LayoutError> {
        if self.lengths.is_empty() && self.data.is_empty() {
            Ok(())
        } else {
            Err(LayoutError::LeftOver { lengths: self.lengths.len(), bytes: self.data.len() })
        }
    }
}

/// Writes a field's length and bytes at the back.
pub(crate) fn push_field(lengths: &mut Vec<i32>, data: &mut Vec<u8>, field: Field<'_>) {
    match field {
        Field::Absent => lengths.push(ABSENT),
        Field::Null => lengths.push(NULL),
        Field::Bytes(bytes) => {
            lengths.push(length_of(bytes.len()));
            data.extend_from_slice(bytes);
        }
    }
}

/// A length or count as the contract writes it.
pub(crate) fn length_of(length: usize) -> i32 {
    i32::try_from(length).expect("nothing in a guest's 32-bit memory is as long as 2 GiB")
}
