//! The data of `COPY` in PostgreSQL's binary form, in both directions.
//!
//! A header (a signature, flags, an extension that is skipped), rows (a number of fields, and for
//! each its length and bytes, or -1 for a null), and -1 as the end. The server knows the meaning of
//! a field's bytes.
//!
//! Invariants: a row is read only when it is complete; bytes beyond the longest allowed row are
//! never buffered. The time for reading is proportional to the bytes, regardless of their division
//! into messages. Failure: [`BinaryError`] names the row; the reader is unusable after an error.
//!
//! Source: the page of `COPY` of PostgreSQL's documentation, "File Formats", "Binary Format".

/// Signature at the beginning of the data.
const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// Flags that a reader must understand.
const CRITICAL: u32 = 0xffff_0000;
/// Bytes of the signature, the flags and the length of the extension.
const HEADER_BYTES: usize = 19;

/// Appends the header.
pub fn put_binary_header(out: &mut Vec<u8>) {
    out.extend(SIGNATURE);
    out.extend([0; 8]);
}

/// Appends a row of `columns` fields; `put` appends the bytes of a field, or reports a null.
///
/// # Errors
/// Errors of `put`. The bytes that were appended for the row must be dropped then.
pub fn put_binary_row<E>(
    columns: usize,
    out: &mut Vec<u8>,
    mut put: impl FnMut(usize, &mut Vec<u8>) -> Result<bool, E>,
) -> Result<(), E> {
    // Tables and queries never have more columns than fit the number.
    out.extend((columns as i16).to_be_bytes());
    for column in 0..columns {
        let at = out.len();
        out.extend((-1i32).to_be_bytes());
        if put(column, out)? {
            // A value is far smaller than 2 GiB.
            let length = (out.len() - at - 4) as i32;
            if let Some(head) = out.get_mut(at..at + 4) {
                head.copy_from_slice(&length.to_be_bytes());
            }
        } else {
            out.truncate(at + 4);
        }
    }
    Ok(())
}

/// Appends the end.
pub fn put_binary_end(out: &mut Vec<u8>) {
    out.extend((-1i16).to_be_bytes());
}

/// Reason why the data of a binary copy cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("row {row}: {fault}")]
pub struct BinaryError {
    /// The row, from 1; faults before the first row belong to row 1.
    pub row: u64,
    /// The fault.
    pub fault: BinaryFault,
}

/// Faults of the data of a binary copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BinaryFault {
    /// The data do not begin with the signature.
    #[error("the data does not begin with the signature of the binary format")]
    Signature,
    /// Unsupported flags, such as the flag of object ids.
    #[error("the header has unknown flags: {0:#x}")]
    Flags(u32),
    /// A number of fields that differs from the number of columns.
    #[error("expected {wanted} fields, found {found}")]
    Fields {
        /// Number of fields in the row.
        found: i16,
        /// The number of columns.
        wanted: usize,
    },
    /// A length that cannot be.
    #[error("field {field} has the invalid length {length}")]
    Length {
        /// The field, from 1.
        field: usize,
        /// The length.
        length: i32,
    },
    /// A row, or the header, is longer than is allowed.
    #[error("the row has more than {0} bytes")]
    Long(usize),
    /// The data end within it.
    #[error("the data ends inside the row")]
    Truncated,
    /// Bytes after the end.
    #[error("there is data after the trailer of the copy")]
    After,
}

/// The next part of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Header,
    Row,
    End,
}

/// Reads rows from bytes that arrive in parts.
#[derive(Debug)]
pub struct BinaryRows {
    /// The number of fields that a row must have.
    columns: usize,
    /// Maximum bytes of a row.
    row_max: usize,
    bytes: Vec<u8>,
    /// Offset of the next row in `bytes`.
    at: usize,
    /// Number of bytes after `at` that were scanned.
    scanned: usize,
    /// Locations of the fields of the current row, relative to its beginning.
    fields: Vec<Option<(usize, usize)>>,
    next: Next,
    rows: u64,
}

/// A row: its fields, as bytes.
#[derive(Debug, Clone, Copy)]
pub struct BinaryRow<'a> {
    bytes: &'a [u8],
    fields: &'a [Option<(usize, usize)>],
}

impl<'a> BinaryRow<'a> {
    /// Fields of the row; `None` = null.
    pub fn fields(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let bytes = self.bytes;
        self.fields
            .iter()
            .map(move |field| field.and_then(|(from, to)| bytes.get(from..to)))
    }
}

impl BinaryRows {
    /// A reader of rows of `columns` fields and at most `row_max` bytes.
    #[must_use]
    pub fn new(columns: usize, row_max: usize) -> BinaryRows {
        BinaryRows {
            columns,
            row_max,
            bytes: Vec::new(),
            at: 0,
            scanned: 0,
            fields: Vec::new(),
            next: Next::Header,
            rows: 0,
        }
    }

    /// Takes more bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The number of the row that was read last, from 1.
    #[must_use]
    pub fn row(&self) -> u64 {
        self.rows
    }

    fn error(&self, fault: BinaryFault) -> BinaryError {
        BinaryError {
            row: self.rows + 1,
            fault,
        }
    }

    /// `N` bytes at an offset from the beginning of the next part.
    fn part<const N: usize>(&self, from: usize) -> Option<[u8; N]> {
        let bytes = self.bytes.get(self.at + from..)?;
        bytes.first_chunk::<N>().copied()
    }

    /// The next row; `None` = the row is incomplete, or, with `is_all`, no rows remain.
    ///
    /// # Errors
    /// When the row is malformed.
    pub fn next_row(&mut self, is_all: bool) -> Result<Option<BinaryRow<'_>>, BinaryError> {
        if self.next == Next::Header && !self.header(is_all)? {
            return Ok(None);
        }
        if self.next == Next::Row && self.scan(is_all)? {
            let begin = self.at;
            self.at += self.scanned;
            self.scanned = 0;
            self.rows += 1;
            return Ok(Some(BinaryRow {
                bytes: self.bytes.get(begin..self.at).unwrap_or_default(),
                fields: &self.fields,
            }));
        }
        if self.next == Next::End && self.bytes.len() > self.at {
            return Err(self.error(BinaryFault::After));
        }
        Ok(None)
    }

    /// Reads the header; false = the header is incomplete.
    fn header(&mut self, is_all: bool) -> Result<bool, BinaryError> {
        let known = self.bytes.len().min(SIGNATURE.len());
        if self.bytes.get(..known) != SIGNATURE.get(..known) || (is_all && known < SIGNATURE.len())
        {
            return Err(self.error(BinaryFault::Signature));
        }
        let (flags, extension) = (self.part::<4>(11), self.part::<4>(15));
        let (Some(flags), Some(extension)) = (flags, extension) else {
            return self.wait(is_all);
        };
        let flags = u32::from_be_bytes(flags) & CRITICAL;
        if flags != 0 {
            return Err(self.error(BinaryFault::Flags(flags)));
        }
        let extension = usize::try_from(u32::from_be_bytes(extension)).unwrap_or(usize::MAX);
        if extension > self.row_max {
            return Err(self.error(BinaryFault::Long(self.row_max)));
        }
        if self.bytes.len() < HEADER_BYTES + extension {
            return self.wait(is_all);
        }
        self.at = HEADER_BYTES + extension;
        self.next = Next::Row;
        Ok(true)
    }

    /// Reports that more bytes are needed; an error if the input has ended.
    fn wait(&self, is_all: bool) -> Result<bool, BinaryError> {
        match is_all {
            true => Err(self.error(BinaryFault::Truncated)),
            false => Ok(false),
        }
    }

    /// Scans the next row; true when it is complete.
    fn scan(&mut self, is_all: bool) -> Result<bool, BinaryError> {
        if self.scanned == 0 {
            if is_all && self.bytes.len() == self.at {
                // As in PostgreSQL the end marker is optional.
                return Ok(false);
            }
            let Some(count) = self.part::<2>(0) else {
                return self.wait(is_all);
            };
            let found = i16::from_be_bytes(count);
            if found == -1 {
                self.at += 2;
                self.next = Next::End;
                return Ok(false);
            }
            if usize::try_from(found) != Ok(self.columns) {
                let wanted = self.columns;
                return Err(self.error(BinaryFault::Fields { found, wanted }));
            }
            self.scanned = 2;
            self.fields.clear();
        }
        while self.fields.len() < self.columns {
            let Some(length) = self.part::<4>(self.scanned) else {
                return self.wait(is_all);
            };
            let length = i32::from_be_bytes(length);
            let from = self.scanned + 4;
            let to = match (length, usize::try_from(length)) {
                (-1, _) => from,
                (_, Ok(bytes)) => from.saturating_add(bytes),
                (_, Err(_)) => {
                    let field = self.fields.len() + 1;
                    return Err(self.error(BinaryFault::Length { field, length }));
                }
            };
            if to > self.row_max {
                return Err(self.error(BinaryFault::Long(self.row_max)));
            }
            if self.bytes.len() - self.at < to {
                return self.wait(is_all);
            }
            self.scanned = to;
            self.fields.push((length >= 0).then_some((from, to)));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use proptest::prelude::*;

    type Row = Vec<Option<Vec<u8>>>;

    /// A copy of two rows: `(1, "ab")` and `(null, "")`.
    const GOLDEN: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\
        \0\x02\0\0\0\x04\0\0\0\x01\0\0\0\x02ab\
        \0\x02\xff\xff\xff\xff\0\0\0\0\
        \xff\xff";

    fn written(rows: &[Row]) -> Vec<u8> {
        let mut out = Vec::new();
        put_binary_header(&mut out);
        for row in rows {
            put_binary_row(row.len(), &mut out, |column, out| {
                if let Some(field) = &row[column] {
                    out.extend(field);
                }
                Ok::<bool, ()>(row[column].is_some())
            })
            .unwrap();
        }
        put_binary_end(&mut out);
        out
    }

    fn read(columns: usize, bytes: &[u8], step: usize) -> Result<Vec<Row>, BinaryError> {
        let mut reader = BinaryRows::new(columns, 100);
        let mut rows: Vec<Row> = Vec::new();
        let mut take = |reader: &mut BinaryRows, is_all| -> Result<(), BinaryError> {
            while let Some(row) = reader.next_row(is_all)? {
                rows.push(row.fields().map(|f| f.map(<[u8]>::to_vec)).collect());
                assert_eq!(reader.row(), rows.len() as u64);
            }
            Ok(())
        };
        for part in bytes.chunks(step.max(1)) {
            reader.feed(part);
            take(&mut reader, false)?;
        }
        take(&mut reader, true)?;
        Ok(rows)
    }

    #[test]
    fn the_bytes_are_those_of_postgresql() {
        let rows: Vec<Row> = vec![
            vec![Some(vec![0, 0, 0, 1]), Some(b"ab".to_vec())],
            vec![None, Some(Vec::new())],
        ];
        assert_eq!(written(&rows), GOLDEN);
        for step in [1, 3, 7, 100] {
            assert_eq!(read(2, GOLDEN, step).as_ref(), Ok(&rows));
        }
        // The end marker is optional, and an extension of the header is skipped.
        let (rest, _) = GOLDEN.split_at(GOLDEN.len() - 2);
        assert_eq!(read(2, rest, 4).as_ref(), Ok(&rows));
        let mut extended = GOLDEN.to_vec();
        extended[18] = 3;
        extended.splice(19..19, *b"xyz");
        assert_eq!(read(2, &extended, 2).as_ref(), Ok(&rows));
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_row() {
        let changed = |at: usize, byte: u8| {
            let mut bytes = GOLDEN.to_vec();
            bytes[at] = byte;
            bytes
        };
        let mut after = GOLDEN.to_vec();
        after.push(0);
        let second = 19 + 2 + 8 + 6;
        for (bytes, row, fault) in [
            (b"time,id\n1,a\n".to_vec(), 1, BinaryFault::Signature),
            (Vec::new(), 1, BinaryFault::Signature),
            (changed(12, 1), 1, BinaryFault::Flags(0x1_0000)),
            (changed(16, 1), 1, BinaryFault::Long(100)),
            (
                changed(20, 3),
                1,
                BinaryFault::Fields {
                    found: 3,
                    wanted: 2,
                },
            ),
            (
                changed(second, 0x80),
                2,
                BinaryFault::Fields {
                    found: -32_766,
                    wanted: 2,
                },
            ),
            (
                changed(second + 2, 0xfe),
                2,
                BinaryFault::Length {
                    field: 1,
                    length: -16_777_217,
                },
            ),
            (changed(second + 6, 0x7f), 2, BinaryFault::Long(100)),
            (GOLDEN[..10].to_vec(), 1, BinaryFault::Signature),
            (GOLDEN[..15].to_vec(), 1, BinaryFault::Truncated),
            (GOLDEN[..20].to_vec(), 1, BinaryFault::Truncated),
            (GOLDEN[..second + 5].to_vec(), 2, BinaryFault::Truncated),
            (after, 3, BinaryFault::After),
        ] {
            for step in [1, 100] {
                assert_eq!(
                    read(2, &bytes, step),
                    Err(BinaryError { row, fault }),
                    "{bytes:?}"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read_back(
            columns in 1..4usize,
            fields in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..12)), 0..24),
            step in 1..40usize,
        ) {
            let rows: Vec<Row> = fields.chunks_exact(columns).map(<[_]>::to_vec).collect();
            prop_assert_eq!(read(columns, &written(&rows), step), Ok(rows));
        }

        #[test]
        fn bytes_are_read_alike_however_they_are_cut(
            columns in 0..4usize,
            mut bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()], 0..200),
            has_header in any::<bool>(),
            step in 1..50usize,
        ) {
            if has_header {
                let mut header = Vec::new();
                put_binary_header(&mut header);
                header.append(&mut bytes);
                bytes = header;
            }
            prop_assert_eq!(read(columns, &bytes, step), read(columns, &bytes, usize::MAX));
        }
    }
}
