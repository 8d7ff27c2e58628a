//! What the fuzz targets share: comparing rows bit by bit, putting right checksums into bytes that
//! have none, and no chance.

use headwater_codec::{Cursor, PutBytes, checksum};
use headwater_types::{Batch, FieldId, Rows, ValueRef};

/// Larger results are not worth the time of comparing them: bytes of a few dozen can stand for
/// millions of rows.
pub const CELLS_MAX: usize = 1 << 20;

/// Splits off the first byte: true when the rest is to get a right checksum.
#[must_use]
pub fn split_mode(data: &[u8]) -> Option<(bool, &[u8])> {
    let (mode, rest) = data.split_first()?;
    Some((mode & 1 == 1, rest))
}

/// Panics unless both hold the same rows, bit for bit.
pub fn assert_same_rows(a: &Rows, b: &Rows) {
    assert_eq!(a.times, b.times, "times");
    let fields = |rows: &Rows| {
        rows.columns
            .iter()
            .map(|(f, c)| (*f, c.field_type()))
            .collect::<Vec<_>>()
    };
    assert_eq!(fields(a), fields(b), "fields and their types");
    for ((field, x), (_, y)) in a.columns.iter().zip(&b.columns) {
        assert_eq!(x.len(), y.len(), "rows of field {field:?}");
        for row in 0..x.len() {
            assert!(
                same(x.get(row), y.get(row)),
                "field {field:?}, row {row}: {:?}, {:?}",
                x.get(row),
                y.get(row)
            );
        }
    }
}

/// Panics unless both batches hold the same rows of the same streams in the same order, bit for
/// bit.
pub fn assert_same_batches(a: &Batch, b: &Batch) {
    assert_eq!(a.entries().len(), b.entries().len(), "streams");
    for (x, y) in a.entries().iter().zip(b.entries()) {
        assert_eq!((&x.name, &x.times), (&y.name, &y.times));
        assert_eq!(x.fields.len(), y.fields.len(), "fields of {}", x.name);
        for (field, column) in &x.fields {
            let other = y
                .fields
                .iter()
                .find(|(name, _)| name == field)
                .map(|(_, c)| c);
            let other = other.unwrap_or_else(|| panic!("field {field} of {} is missing", x.name));
            assert_eq!(
                column.field_type(),
                other.field_type(),
                "field {field} of {}",
                x.name
            );
            for row in 0..column.len() {
                assert!(
                    same(column.get(row), other.get(row)),
                    "field {field} of {}, row {row}",
                    x.name
                );
            }
        }
    }
}

fn same(a: Option<ValueRef<'_>>, b: Option<ValueRef<'_>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.same_bits(&b),
        (None, None) => true,
        _ => false,
    }
}

/// The rows without columns of which no row is present: encoders leave those out.
#[must_use]
pub fn without_empty_columns(rows: &Rows) -> Rows {
    let columns: Vec<(FieldId, _)> = rows
        .columns
        .iter()
        .filter(|(_, c)| c.present_count() > 0)
        .cloned()
        .collect();
    Rows {
        times: rows.times.clone(),
        columns,
    }
}

/// A leaf with magic, version and a header checksum that fits; see docs/format/leaf.md.
#[must_use]
pub fn with_leaf_checksum(data: &[u8]) -> Vec<u8> {
    let mut leaf = b"HL\x01\x01\0\0\0\0".to_vec();
    leaf.extend_from_slice(data);
    let crc = checksum::crc32c_append(checksum::crc32c(&leaf[..4]), &leaf[8..]);
    leaf[4..8].copy_from_slice(&crc.to_le_bytes());
    leaf
}

/// A footer with the trailer that fits; see docs/format/segment.md.
#[must_use]
pub fn with_footer_trailer(body: &[u8]) -> Vec<u8> {
    let mut out = body.to_vec();
    out.put_u32(body.len() as u32 + 16);
    out.put_u32(checksum::crc32c(body));
    out.extend_from_slice(b"HWFOOT\x00\x01");
    out
}

/// A segment header with magic and checksum; see docs/format/segment.md.
#[must_use]
pub fn with_segment_checksum(data: &[u8]) -> Vec<u8> {
    let mut out = b"HWSEG\x00\x00\x01".to_vec();
    out.extend_from_slice(&data[..data.len().min(52)]);
    out.resize(60, 0);
    let crc = checksum::crc32c(&out);
    out.put_u32(crc);
    out
}

/// A log file made by a little program; see docs/format/log.md.
///
/// Each step is a byte: the low four bits are the kind of the record, bit 4 leaves a number out,
/// bit 5 claims that the record was synced already, bit 6 cuts a byte out of the payload after its
/// checksum was taken, bit 7 skips eight bytes. A varint length and the payload follow.
#[must_use]
pub fn log_file(program: &[u8]) -> Vec<u8> {
    const GENERATION: u64 = 1;
    let mut out = vec![0; 64];
    let mut cursor = Cursor::new(program);
    let mut sequence = 0u64;
    while let Ok(step) = cursor.u8("a step") {
        let Ok(payload) = cursor.prefixed("a payload") else {
            break;
        };
        sequence += 1 + u64::from(step >> 4 & 1);
        if step & 0x80 != 0 {
            out.put_u64(0);
        }
        let start = out.len();
        out.put_u32(payload.len() as u32);
        out.put_u32(checksum::crc32c(payload));
        out.put_u64(sequence);
        out.put_u64(if step & 0x20 != 0 { sequence } else { 0 });
        out.put_u8(step & 15);
        out.extend_from_slice(&[0; 3]);
        let crc =
            checksum::crc32c_append(checksum::crc32c(&GENERATION.to_le_bytes()), &out[start..]);
        out.put_u32(crc);
        let cut = usize::from(step & 0x40 != 0);
        out.extend_from_slice(&payload[..payload.len().saturating_sub(cut)]);
        out.resize(start + (32 + payload.len()).next_multiple_of(8), 0);
    }
    let mut header = b"HWLOG\x00\x00\x01".to_vec();
    header.put_u64(GENERATION);
    header.put_u64(0);
    header.put_u64(out.len() as u64);
    header.resize(60, 0);
    let crc = checksum::crc32c(&header);
    header.put_u32(crc);
    out[..64].copy_from_slice(&header);
    out
}

/// A block with the checksum that fits; see docs/format/block.md.
#[must_use]
pub fn with_block_checksum(body: &[u8]) -> Vec<u8> {
    let mut out = vec![0xb5, 1];
    out.extend_from_slice(body);
    let crc = checksum::crc32c(&out);
    out.put_u32(crc);
    out
}

/// Takes the system's place for who asks it for chance, which is the standard library for the keys
/// of its hash maps. With other keys a map is filled in another order, which the fuzzer takes for
/// something new: the same inputs would be found in one run and not in the next.
///
/// # Safety
/// `buffer` is valid for writing `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    // SAFETY: as the caller says.
    unsafe { buffer.write_bytes(0x5a, length) };
    isize::try_from(length).unwrap_or(isize::MAX)
}
