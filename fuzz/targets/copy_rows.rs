//! Rows of COPY: the same rows, or the same mistake, however the bytes are cut; what is read is
//! written and read back as the same.
//!
//! The first four bytes say how the rows are written and where the bytes are cut.
#![no_main]

use headwater_fuzz as _;
use headwater_postgres::messages::{CopyError, CopyFormat, CopyRow, CopyRows};
use libfuzzer_sys::fuzz_target;

const ROW_MAX: usize = 4096;

/// The rows up to the first mistake, with the line each begins on.
fn read(format: &CopyFormat, parts: &[&[u8]]) -> (Vec<(u64, CopyRow)>, Option<CopyError>) {
    let mut reader = CopyRows::new(format.clone(), ROW_MAX);
    let mut rows = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        reader.feed(part);
        loop {
            match reader.next_row(at + 1 == parts.len()) {
                Ok(Some(row)) => rows.push((reader.line(), row)),
                Ok(None) => break,
                Err(error) => return (rows, Some(error)),
            }
        }
    }
    (rows, None)
}

fuzz_target!(|data: &[u8]| {
    let [form, delimiter, first, second, bytes @ ..] = data else {
        return;
    };
    let mut format = if form & 1 == 0 {
        CopyFormat::text()
    } else {
        CopyFormat::csv()
    };
    format.header = form & 2 != 0;
    if form & 4 != 0 {
        format.delimiter = *delimiter;
    }
    if form & 8 != 0 {
        format.escape = b'\\';
    }
    if form & 16 != 0 {
        format.null = "nil".to_owned();
    }
    if format.fault().is_some() {
        return;
    }
    let whole = read(&format, &[bytes]);
    let (first, second) = (usize::from(*first).min(bytes.len()), usize::from(*second));
    let (front, rest) = bytes.split_at(first);
    let (middle, back) = rest.split_at(second.min(rest.len()));
    assert_eq!(read(&format, &[front, middle, back]), whole);

    format.header = false;
    let mut written = Vec::new();
    for (_, row) in &whole.0 {
        format.put_row(
            row.iter().map(|field| field.as_deref().map(str::as_bytes)),
            &mut written,
        );
    }
    let rows: Vec<_> = whole.0.into_iter().map(|(_, row)| row).collect();
    // A field may be longer when it is written than it was, and a row then too long.
    let (again, fault) = read(&format, &[&written]);
    if fault.is_none() {
        assert_eq!(
            again.into_iter().map(|(_, row)| row).collect::<Vec<_>>(),
            rows
        );
    }
});
