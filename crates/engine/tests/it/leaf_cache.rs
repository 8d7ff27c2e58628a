//! What is decoded of leaves, and what is kept of that, as the counters tell.

use headwater_engine::{Bins, Database, Options, ScanSpec, SummarySpec};
use headwater_types::{Batch, ClosedRange, StreamName};

const SECOND: i64 = 1_000_000_000;
const ROWS: i64 = 16_384;

/// A channel of a row a second, all of it in leaves of the usual size.
fn channel() -> (tempfile::TempDir, Database, StreamName) {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(Options::new(dir.path().join("db"))).unwrap();
    let name = StreamName::new("channel", [("id", "0")]);
    let mut batch = Batch::new();
    let rows = batch.stream(&name);
    for second in 0..ROWS {
        let value = (second * 37 % 1_000) as f64 / 8.0;
        rows.row(second * SECOND, [("value", value.into())])
            .unwrap();
    }
    db.commit(batch).unwrap();
    db.flush().unwrap();
    (dir, db, name)
}

/// The pages that `read` decodes.
fn decoded(db: &Database, read: impl FnOnce()) -> u64 {
    let before = db.stats().unwrap().pages_read;
    read();
    db.stats().unwrap().pages_read - before
}

#[test]
fn a_leaf_is_decoded_as_far_as_asked_for_and_kept_when_it_is_read_again() {
    let (_dir, db, name) = channel();
    let spec = ScanSpec {
        range: ClosedRange::nanos(5_000 * SECOND, 5_024 * SECOND),
        ..ScanSpec::default()
    };
    let scan = || {
        let chunks = db.snapshot().unwrap().scan(&name, &spec).unwrap();
        let rows: usize = chunks.map(|chunk| chunk.unwrap().times.len()).sum();
        assert_eq!(rows, 25);
    };
    let first = decoded(&db, scan);
    assert!((1..=2).contains(&first), "{first} pages");
    assert_eq!(decoded(&db, scan), 8);
    assert_eq!(decoded(&db, scan), 0);
    // Handed out where they lie it is the same leaf.
    let visit = || {
        let snapshot = db.snapshot().unwrap();
        let mut rows = 0;
        snapshot
            .visit(&name, &spec, |block| rows += block.len())
            .unwrap();
        assert_eq!(rows, 25);
    };
    assert_eq!(decoded(&db, visit), 0);
}

#[test]
fn bins_that_cut_buckets_decode_the_pages_of_their_ends_only() {
    let (_dir, db, name) = channel();
    let spec = SummarySpec {
        range: ClosedRange::ALL,
        bins: Bins::Every {
            width_ns: 1_000 * SECOND,
            origin_ns: 0,
        },
        fields: vec!["value".into()],
    };
    let summary = || {
        let bins = db.snapshot().unwrap().summary(&name, &spec).unwrap();
        let rows: Vec<u64> = bins.iter().map(|bin| bin.rows).collect();
        assert_eq!(rows, [[1_000; 16].as_slice(), &[384]].concat());
    };
    // Each of 16 ends lies in a page or between two, and the page before is looked into where a
    // page begins with the bucket; however often it is asked. Of the last bucket, which is open,
    // the rows are read.
    for _ in 0..4 {
        let pages = decoded(&db, summary);
        assert!((16..=56).contains(&pages), "{pages} pages of 64");
    }
}
