//! CRC-32C (Castagnoli), the checksum of every Headwater format.

/// CRC-32C of `bytes`.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// CRC-32C of the bytes with the CRC `crc`, followed by `bytes`.
#[inline]
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_values() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(
            super::crc32c_append(super::crc32c(b"1234"), b"56789"),
            0xe306_9283
        );
    }
}
