//! Booleans as bits, eight to a byte, low bit first.

/// Appends `values` as `ceil(len / 8)` bytes; unused bits are zero.
pub(crate) fn pack_bools(values: &[bool], out: &mut Vec<u8>) {
    out.reserve(values.len().div_ceil(8));
    for eight in values.chunks(8) {
        let byte = eight
            .iter()
            .enumerate()
            .fold(0u8, |byte, (i, v)| byte | u8::from(*v) << i);
        out.push(byte);
    }
}

/// Appends the first `count` bits of `bytes`.
pub(crate) fn unpack_bools(bytes: &[u8], count: usize, out: &mut Vec<bool>) {
    out.reserve(count);
    let end = out.len() + count;
    for byte in bytes.iter().take(count.div_ceil(8)) {
        let bits: [bool; 8] = std::array::from_fn(|i| byte >> i & 1 == 1);
        out.extend_from_slice(&bits);
    }
    out.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_round_trip_at_every_length() {
        for count in 0..40usize {
            let values: Vec<bool> = (0..count).map(|i| i % 3 == 0 || i == 7).collect();
            let mut bytes = Vec::new();
            pack_bools(&values, &mut bytes);
            assert_eq!(bytes.len(), count.div_ceil(8));
            let mut back = vec![true];
            unpack_bools(&bytes, count, &mut back);
            assert_eq!(back[1..], values);
        }
    }
}
