//! The protobuf wire format: tags, varints and length-delimited values.
//!
//! Invariant: nothing is read beyond the end, and every step advances. Must not depend on the meaning of messages.

/// A decoding error, with the message of Go's decoder where it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// The input is truncated.
    #[error("unexpected EOF")]
    Short,
    /// A varint is too long.
    #[error("proto: integer overflow")]
    Overflow,
    /// A field without a number, or with an invalid wire type.
    #[error("proto: {message}: illegal tag {number} (wire type {wire_type})")]
    Tag {
        /// The message that is decoded.
        message: String,
        number: u64,
        wire_type: u8,
    },
    /// A wire type that does not match the field's type.
    #[error("proto: wrong wireType = {wire_type} for field {field}")]
    WireType { wire_type: u8, field: String },
    /// A value that is invalid for its type.
    #[error("field {field}: {why}")]
    Value { field: String, why: String },
    /// A limit is exceeded.
    #[error("the message has more than {max} {what}")]
    TooMuch { what: &'static str, max: usize },
}

/// The wire types.
pub(super) const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
pub(super) const LENGTH_DELIMITED: u8 = 2;
const FIXED_32: u8 = 5;

/// The number of a field and its wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) number: u64,
    pub(super) wire_type: u8,
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

    /// The tag of the next field; `message` is used for the error.
    pub(super) fn tag(&mut self, message: &str) -> Result<Tag, DecodeError> {
        let tag = self.varint()?;
        let (number, wire_type) = (tag >> 3, (tag & 7) as u8);
        if number == 0 || number > u64::from(u32::MAX >> 3) {
            return Err(DecodeError::Tag { message: message.to_owned(), number, wire_type });
        }
        Ok(Tag { number, wire_type })
    }

    pub(super) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(DecodeError::Short)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Overflow)
    }

    /// Length-delimited bytes.
    pub(super) fn length_delimited(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(self.varint()?).map_err(|_| DecodeError::Short)?;
        self.take(length)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (piece, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(piece)
    }

    /// Skips the value of an unknown field. Groups, which are obsolete, are rejected.
    pub(super) fn skip(&mut self, tag: Tag, message: &str) -> Result<(), DecodeError> {
        match tag.wire_type {
            VARINT => self.varint().map(drop),
            FIXED_64 => self.take(8).map(drop),
            LENGTH_DELIMITED => self.length_delimited().map(drop),
            FIXED_32 => self.take(4).map(drop),
            wire_type => Err(DecodeError::Tag { message: message.to_owned(), number: tag.number, wire_type }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_and_byte_strings_are_read_to_their_end() {
        let mut reader = Reader::new(&[0xac, 0x02, 0x02, b'h', b'i', 0x00]);
        assert_eq!(reader.varint(), Ok(300));
        assert_eq!(reader.length_delimited(), Ok(&b"hi"[..]));
        assert!(!reader.is_at_end());
        assert_eq!(reader.length_delimited(), Ok(&b""[..]));
        assert!(reader.is_at_end());
    }

    #[test]
    fn truncated_and_oversized_input_is_rejected() {
        assert_eq!(Reader::new(&[0x80]).varint(), Err(DecodeError::Short));
        assert_eq!(Reader::new(&[0xff; 11]).varint(), Err(DecodeError::Overflow));
        assert_eq!(Reader::new(&[5, 1, 2]).length_delimited(), Err(DecodeError::Short));
        let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1];
        assert_eq!(Reader::new(&huge).length_delimited(), Err(DecodeError::Short));
        assert!(matches!(Reader::new(&[0x02]).tag("Pod"), Err(DecodeError::Tag { number: 0, wire_type: 2, .. })));
    }

    #[test]
    fn unknown_fields_are_skipped() {
        let mut reader = Reader::new(&[0x08, 0x01, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0x1a, 0x01, b'x', 0x25, 0, 0, 0, 0]);
        while !reader.is_at_end() {
            let tag = reader.tag("Pod").expect("a tag");
            reader.skip(tag, "Pod").expect("a value");
        }
        // The start of a group.
        let mut reader = Reader::new(&[0x0b]);
        let tag = reader.tag("Pod").expect("a tag");
        assert!(matches!(reader.skip(tag, "Pod"), Err(DecodeError::Tag { number: 1, wire_type: 3, .. })));
    }
}
