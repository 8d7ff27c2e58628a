//! Bit packing. A full group of 256 values is stored in four lanes, so that one shift serves four
//! neighbours and the compiler can use vector instructions; fewer values are a plain bit stream.
//!
//! Layout: docs/format/light.md, "packed bits". Little-endian throughout, low bits first.

/// Lanes of a full group: value `i` is in lane `i % 4`, at bit `(i / 4) * width` of that lane's bit
/// stream; the four streams are interleaved by 64-bit words.
const LANES: usize = 4;
const GROUP: usize = 256;
const ROWS: usize = GROUP / LANES;

/// Bytes of `count` packed values.
pub(super) fn packed_len(count: usize, width: u8) -> usize {
    (count * usize::from(width)).div_ceil(8)
}

/// Appends the low `width` bits of each value; their other bits are zero. At most 256 values.
#[inline(always)]
pub(super) fn pack(values: impl ExactSizeIterator<Item = u64>, width: u8, out: &mut Vec<u8>) {
    match (width, values.len()) {
        (0, _) => {}
        (64, _) => {
            for v in values {
                out.extend_from_slice(&v.to_le_bytes());
            }
        }
        (_, GROUP) => {
            let mut group = [0u64; GROUP];
            for (slot, v) in group.iter_mut().zip(values) {
                *slot = v;
            }
            pack_group(&group, width, out);
        }
        _ => pack_stream(values, width, out),
    }
}

/// Reads the bytes of [`pack`]; `bytes` has [`packed_len`] bytes.
pub(super) fn unpack(bytes: &[u8], width: u8, out: &mut [i64]) {
    match (width, out.len()) {
        (0, _) => out.fill(0),
        (64, _) => {
            for (v, chunk) in out.iter_mut().zip(bytes.chunks_exact(8)) {
                *v = word(chunk) as i64;
            }
        }
        (_, GROUP) => unpack_group(bytes, width, out),
        _ => unpack_stream(bytes, width, out),
    }
}

/// Up to eight bytes as a little-endian word.
#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(whole) => u64::from_le_bytes(*whole),
        None => bytes
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

fn pack_group(values: &[u64; GROUP], width: u8, out: &mut Vec<u8>) {
    let width = usize::from(width);
    let mut words = [[0u64; LANES]; ROWS + 1];
    let (rows, _) = values.as_chunks::<LANES>();
    for (row, four) in rows.iter().enumerate() {
        let bit = row * width;
        let (at, shift) = (bit / 64, bit % 64);
        if let Some([low, high]) = words.get_mut(at..at + 2) {
            for ((low, high), v) in low.iter_mut().zip(high).zip(four) {
                *low |= v << shift;
                *high |= (v >> 1) >> (63 - shift);
            }
        }
    }
    out.reserve(width * 8 * LANES);
    for lane in words.iter().take(width).flatten() {
        out.extend_from_slice(&lane.to_le_bytes());
    }
}

fn unpack_group(bytes: &[u8], width: u8, out: &mut [i64]) {
    let width = usize::from(width);
    let mut words = [[0u64; LANES]; ROWS + 1];
    for (lane, chunk) in words.iter_mut().flatten().zip(bytes.chunks_exact(8)) {
        *lane = word(chunk);
    }
    let mask = u64::MAX >> (64 - width);
    let (rows, _) = out.as_chunks_mut::<LANES>();
    for (row, four) in rows.iter_mut().enumerate() {
        let bit = row * width;
        let (at, shift) = (bit / 64, bit % 64);
        if let Some([low, high]) = words.get(at..at + 2) {
            for ((low, high), v) in low.iter().zip(high).zip(four) {
                *v = (((low >> shift) | ((high << 1) << (63 - shift))) & mask) as i64;
            }
        }
    }
}

fn pack_stream(values: impl Iterator<Item = u64>, width: u8, out: &mut Vec<u8>) {
    let width = u32::from(width);
    let (mut pending, mut filled) = (0u64, 0u32);
    for v in values {
        pending |= v << filled;
        filled += width;
        if filled >= 64 {
            out.extend_from_slice(&pending.to_le_bytes());
            filled -= 64;
            // The bits of `v` that did not fit; 0 if it ended with the word.
            pending = (v >> 1) >> (width - filled - 1);
        }
    }
    let rest = pending.to_le_bytes();
    out.extend_from_slice(rest.get(..filled.div_ceil(8) as usize).unwrap_or_default());
}

fn unpack_stream(bytes: &[u8], width: u8, out: &mut [i64]) {
    let width = usize::from(width);
    let mask = u64::MAX >> (64 - width);
    // Where eight bytes are left a value is a part of them, unless it is so wide that a ninth may
    // be needed.
    let whole = match bytes.len().checked_sub(8) {
        Some(last) if width <= 57 => (last * 8 / width + 1).min(out.len()),
        _ => 0,
    };
    let (fast, slow) = out.split_at_mut(whole);
    let mut bit = 0;
    for v in fast {
        let eight = bytes.get(bit / 8..).and_then(<[u8]>::first_chunk::<8>);
        *v = (u64::from_le_bytes(*eight.unwrap_or(&[0; 8])) >> (bit % 8) & mask) as i64;
        bit += width;
    }
    for v in slow {
        let (at, shift) = (bit / 8, bit % 8);
        let low = word(bytes.get(at..).unwrap_or_default());
        // Nine bytes contain any width at any shift.
        let high = bytes.get(at + 8).copied().unwrap_or_default();
        *v = (((low >> shift) | ((u64::from(high) << 1) << (63 - shift))) & mask) as i64;
        bit += width;
    }
}
