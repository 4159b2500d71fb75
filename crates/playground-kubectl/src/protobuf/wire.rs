//! The wire format of protocol buffers: tags, numbers and pieces of bytes.
//!
//! Invariant: nothing is read beyond the end, and every step moves on. It must not know what messages mean.

/// Why bytes cannot be read, in the words of Go's decoder where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    /// The bytes end in the middle of something.
    #[error("unexpected EOF")]
    Short,
    /// A number that is longer than any can be.
    #[error("proto: integer overflow")]
    Overflow,
    /// A field without a number, or of a form that does not exist.
    #[error("proto: {message}: illegal tag {number} (wire type {form})")]
    Tag {
        /// The message that is read.
        message: String,
        number: u64,
        form: u8,
    },
    /// A field in another form than its type has.
    #[error("proto: wrong wireType = {form} for field {field}")]
    Form { form: u8, field: String },
    /// A value that its type does not have.
    #[error("field {field}: {why}")]
    Value { field: String, why: String },
    /// More than any object needs.
    #[error("the message has more than {max} {what}")]
    TooMuch { what: &'static str, max: usize },
}

/// The forms that a value can have.
pub(super) const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
pub(super) const PIECE: u8 = 2;
const FIXED_32: u8 = 5;

/// The number of a field and the form of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) number: u64,
    pub(super) form: u8,
}

/// Reads bytes from the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The tag of the next field; `message` is what is read, for the error.
    pub(super) fn tag(&mut self, message: &str) -> Result<Tag, Broken> {
        let tag = self.varint()?;
        let (number, form) = (tag >> 3, (tag & 7) as u8);
        if number == 0 || number > u64::from(u32::MAX >> 3) {
            return Err(Broken::Tag { message: message.to_owned(), number, form });
        }
        Ok(Tag { number, form })
    }

    pub(super) fn varint(&mut self) -> Result<u64, Broken> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(Broken::Short)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Broken::Overflow)
    }

    /// Bytes with their length in front.
    pub(super) fn piece(&mut self) -> Result<&'a [u8], Broken> {
        let length = usize::try_from(self.varint()?).map_err(|_| Broken::Short)?;
        self.take(length)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Broken> {
        let (piece, rest) = self.rest.split_at_checked(length).ok_or(Broken::Short)?;
        self.rest = rest;
        Ok(piece)
    }

    /// Passes over the value of a field that nobody knows. Groups, which nobody writes any more, are refused.
    pub(super) fn skip(&mut self, tag: Tag, message: &str) -> Result<(), Broken> {
        match tag.form {
            VARINT => self.varint().map(drop),
            FIXED_64 => self.take(8).map(drop),
            PIECE => self.piece().map(drop),
            FIXED_32 => self.take(4).map(drop),
            form => Err(Broken::Tag { message: message.to_owned(), number: tag.number, form }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_pieces_are_read_to_their_end() {
        let mut reader = Reader::new(&[0xac, 0x02, 0x02, b'h', b'i', 0x00]);
        assert_eq!(reader.varint(), Ok(300));
        assert_eq!(reader.piece(), Ok(&b"hi"[..]));
        assert!(!reader.is_at_end());
        assert_eq!(reader.piece(), Ok(&b""[..]));
        assert!(reader.is_at_end());
    }

    #[test]
    fn what_is_cut_short_or_too_long_is_refused() {
        assert_eq!(Reader::new(&[0x80]).varint(), Err(Broken::Short));
        assert_eq!(Reader::new(&[0xff; 11]).varint(), Err(Broken::Overflow));
        assert_eq!(Reader::new(&[5, 1, 2]).piece(), Err(Broken::Short));
        let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1];
        assert_eq!(Reader::new(&huge).piece(), Err(Broken::Short));
        assert!(matches!(Reader::new(&[0x02]).tag("Pod"), Err(Broken::Tag { number: 0, form: 2, .. })));
    }

    #[test]
    fn unknown_fields_are_passed_over() {
        let mut reader = Reader::new(&[0x08, 0x01, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0x1a, 0x01, b'x', 0x25, 0, 0, 0, 0]);
        while !reader.is_at_end() {
            let tag = reader.tag("Pod").expect("a tag");
            reader.skip(tag, "Pod").expect("a value");
        }
        // The start of a group.
        let mut reader = Reader::new(&[0x0b]);
        let tag = reader.tag("Pod").expect("a tag");
        assert!(matches!(reader.skip(tag, "Pod"), Err(Broken::Tag { number: 1, form: 3, .. })));
    }
}
