//! Reading and writing byte layouts: little-endian integers, LEB128 varints, length-prefixed bytes.
//!
//! Invariants: a [`Cursor`] never reads outside its slice and never panics; after the first failure
//! every later call fails with the same error, so a decoder may check once at the end of a fixed
//! group. Lengths read from bytes are checked against the remaining bytes before memory is
//! allocated.

/// Decoding error: the expected content, and the offset in the slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} at byte {offset}")]
pub struct DecodeError {
    /// The element that was expected.
    pub expected: &'static str,
    /// Offset inside the slice passed to the decoder.
    pub offset: usize,
}

/// Bytes of the longest varint: 64 bits, seven in each.
const VARINT_BYTES_MAX: usize = 10;

/// A bounds-checked reader over a slice.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    failed: Option<DecodeError>,
}

impl<'a> Cursor<'a> {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Cursor {
            bytes,
            at: 0,
            failed: None,
        }
    }

    /// Offset of the next byte.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Number of unread bytes.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Error that the next bytes are not as `expected`; from now on every read returns it.
    pub fn expected(&mut self, expected: &'static str) -> DecodeError {
        let offset = self.at;
        *self.failed.get_or_insert(DecodeError { expected, offset })
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn take(&mut self, len: usize, expected: &'static str) -> Result<&'a [u8], DecodeError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        match self
            .at
            .checked_add(len)
            .and_then(|end| self.bytes.get(self.at..end))
        {
            Some(bytes) => {
                self.at += len;
                Ok(bytes)
            }
            None => Err(self.expected(expected)),
        }
    }

    fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], DecodeError> {
        let bytes = self.take(N, expected)?;
        bytes.try_into().map_err(|_| DecodeError {
            expected,
            offset: self.at,
        })
    }

    /// One byte.
    ///
    /// # Errors
    /// At the end of the bytes.
    pub fn u8(&mut self, expected: &'static str) -> Result<u8, DecodeError> {
        Ok(self.array::<1>(expected)?[0])
    }

    /// A little-endian `u16`.
    ///
    /// # Errors
    /// At the end of the bytes.
    pub fn u16(&mut self, expected: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array(expected)?))
    }

    /// A little-endian `u32`.
    ///
    /// # Errors
    /// At the end of the bytes.
    pub fn u32(&mut self, expected: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(expected)?))
    }

    /// A little-endian `u64`.
    ///
    /// # Errors
    /// At the end of the bytes.
    pub fn u64(&mut self, expected: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array(expected)?))
    }

    /// A little-endian `i64`.
    ///
    /// # Errors
    /// At the end of the bytes.
    pub fn i64(&mut self, expected: &'static str) -> Result<i64, DecodeError> {
        Ok(i64::from_le_bytes(self.array(expected)?))
    }

    /// A LEB128 varint.
    ///
    /// # Errors
    /// At the end of the bytes, or when it is longer than 64 bits.
    pub fn varint(&mut self, expected: &'static str) -> Result<u64, DecodeError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let mut value = 0u64;
        for (place, byte) in rest.iter().take(VARINT_BYTES_MAX).enumerate() {
            let part = u64::from(byte & 0x7f);
            if place + 1 == VARINT_BYTES_MAX && part > 1 {
                break;
            }
            value |= part << (7 * place);
            if byte & 0x80 == 0 {
                self.at += place + 1;
                return Ok(value);
            }
        }
        // The number is cut off, or is longer than 64 bits.
        self.at += rest.len().min(VARINT_BYTES_MAX);
        Err(self.expected(expected))
    }

    /// A zigzag varint.
    ///
    /// # Errors
    /// As [`Cursor::varint`].
    pub fn signed(&mut self, expected: &'static str) -> Result<i64, DecodeError> {
        let raw = self.varint(expected)?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// A varint that must be at most `max`.
    ///
    /// # Errors
    /// As [`Cursor::varint`], or if the number is larger than `max`.
    pub fn varint_up_to(&mut self, max: u64, expected: &'static str) -> Result<usize, DecodeError> {
        let value = self.varint(expected)?;
        match usize::try_from(value) {
            Ok(small) if value <= max => Ok(small),
            _ => Err(self.expected(expected)),
        }
    }

    /// Bytes with a varint length before them.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn prefixed(&mut self, expected: &'static str) -> Result<&'a [u8], DecodeError> {
        let left = self.remaining() as u64;
        let len = self.varint_up_to(left, expected)?;
        self.take(len, expected)
    }

    /// UTF-8 text with a varint length before it.
    ///
    /// # Errors
    /// When fewer bytes are left or they are not UTF-8.
    pub fn text(&mut self, expected: &'static str) -> Result<&'a str, DecodeError> {
        let bytes = self.prefixed(expected)?;
        std::str::from_utf8(bytes).map_err(|_| self.expected(expected))
    }

    /// Ends the reading: fails unless all bytes were read.
    ///
    /// # Errors
    /// The first failure, or bytes left over.
    pub fn finish(mut self) -> Result<(), DecodeError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.remaining() > 0 {
            Err(self.expected("the end"))
        } else {
            Ok(())
        }
    }
}

/// Writing counterparts of [`Cursor`], on `Vec<u8>`.
pub trait PutBytes {
    /// One byte.
    fn put_u8(&mut self, value: u8);
    /// Little-endian `u16`.
    fn put_u16(&mut self, value: u16);
    /// Little-endian `u32`.
    fn put_u32(&mut self, value: u32);
    /// Little-endian `u64`.
    fn put_u64(&mut self, value: u64);
    /// Little-endian `i64`.
    fn put_i64(&mut self, value: i64);
    /// LEB128 varint.
    fn put_varint(&mut self, value: u64);
    /// Zigzag varint.
    fn put_signed(&mut self, value: i64);
    /// Varint length, then the bytes.
    fn put_prefixed(&mut self, bytes: &[u8]);
}

impl PutBytes for Vec<u8> {
    #[inline]
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }
    #[inline]
    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_i64(&mut self, value: i64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push((value as u8 & 0x7f) | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }
    #[inline]
    fn put_signed(&mut self, value: i64) {
        self.put_varint(((value << 1) ^ (value >> 63)) as u64);
    }
    #[inline]
    fn put_prefixed(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_round_trip(a: u64, b: i64, text in ".*") {
            let mut out = Vec::new();
            out.put_varint(a);
            out.put_signed(b);
            out.put_prefixed(text.as_bytes());
            let mut cursor = Cursor::new(&out);
            prop_assert_eq!(cursor.varint("a").unwrap(), a);
            prop_assert_eq!(cursor.signed("b").unwrap(), b);
            prop_assert_eq!(cursor.text("c").unwrap(), text.as_str());
            prop_assert!(cursor.finish().is_ok());
        }
    }

    #[test]
    fn a_failed_cursor_stays_failed() {
        let mut cursor = Cursor::new(&[1, 2]);
        assert!(cursor.u32("four bytes").is_err());
        assert!(cursor.u8("one byte").is_err());
        assert_eq!(cursor.finish().unwrap_err().expected, "four bytes");
    }

    #[test]
    fn a_varint_that_does_not_end_is_refused_where_the_bytes_end() {
        let mut cursor = Cursor::new(&[5, 0x80, 0x80]);
        assert_eq!(cursor.varint("v").unwrap(), 5);
        assert_eq!(cursor.varint("v").unwrap_err().offset, 3);
        assert_eq!(cursor.remaining(), 0);
        assert!(cursor.varint("more").is_err());
        assert!(Cursor::new(&[]).varint("v").is_err());
    }

    #[test]
    fn an_overlong_varint_is_refused() {
        assert!(Cursor::new(&[0xff; 11]).varint("v").is_err());
        let max = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Cursor::new(&max).varint("v").unwrap(), u64::MAX);
    }
}
