//! One stream of a pump, a row at each number of nanoseconds: for tests of what is found again.

use headwater_engine::{Database, Error, ErrorKind, ScanSpec};
use headwater_types::{Batch, StreamName};
use std::ops::Range;

pub(crate) fn stream() -> StreamName {
    StreamName::new("pumps", [("id", "1")])
}

/// Writes a row at each of these times, all as one batch.
pub(crate) fn write(db: &Database, times: Range<i64>) -> Result<(), Error> {
    let mut batch = Batch::new();
    for time in times {
        let row = [("pressure", (time as f64 / 3.0).into())];
        batch.stream(&stream()).row(time, row).unwrap();
    }
    db.commit(batch).map(drop)
}

/// The times of all rows.
pub(crate) fn times(db: &Database) -> Vec<i64> {
    let snapshot = db.snapshot().unwrap();
    match snapshot.scan(&stream(), &ScanSpec::default()) {
        Ok(scan) => scan.flat_map(|chunk| chunk.unwrap().times).collect(),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            Vec::new()
        }
    }
}
