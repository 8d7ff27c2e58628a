//! The binary form of COPY: the same rows, or the same mistake, however the bytes are cut; what is
//! read is written and read back as the same.
//!
//! The first three bytes say how many columns there are and where the bytes are cut.
#![no_main]

use headwater_fuzz as _;
use headwater_postgres::messages::{
    BinaryError, BinaryRows, put_binary_end, put_binary_header, put_binary_row,
};
use libfuzzer_sys::fuzz_target;

const ROW_MAX: usize = 4096;

type Row = Vec<Option<Vec<u8>>>;

/// The rows up to the first mistake.
fn read(columns: usize, parts: &[&[u8]]) -> (Vec<Row>, Option<BinaryError>) {
    let mut reader = BinaryRows::new(columns, ROW_MAX);
    let mut rows = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        reader.feed(part);
        loop {
            match reader.next_row(at + 1 == parts.len()) {
                Ok(Some(row)) => rows.push(row.fields().map(|f| f.map(<[u8]>::to_vec)).collect()),
                Ok(None) => break,
                Err(error) => return (rows, Some(error)),
            }
        }
    }
    (rows, None)
}

fuzz_target!(|data: &[u8]| {
    let [columns, first, second, bytes @ ..] = data else {
        return;
    };
    let columns = usize::from(*columns % 8);
    let whole = read(columns, &[bytes]);
    let (first, second) = (usize::from(*first).min(bytes.len()), usize::from(*second));
    let (front, rest) = bytes.split_at(first);
    let (middle, back) = rest.split_at(second.min(rest.len()));
    assert_eq!(read(columns, &[front, middle, back]), whole);

    let mut written = Vec::new();
    put_binary_header(&mut written);
    for row in &whole.0 {
        let put = put_binary_row(row.len(), &mut written, |column, out| {
            if let Some(field) = &row[column] {
                out.extend(field);
            }
            Ok::<bool, ()>(row[column].is_some())
        });
        assert_eq!(put, Ok(()));
    }
    put_binary_end(&mut written);
    assert_eq!(read(columns, &[&written]), (whole.0, None));
});
