//! Readers of many copies with one cache: segments of different sources have the same numbers, and
//! each reader sees its own.

use crate::support::collect;
use headwater_engine::{
    Database, Options, PinnedState, ReadCache, Reader, RemoteCopy, ScanSpec, StreamShare,
};
use headwater_io::Env;
use headwater_types::{Batch, StreamName, StreamRows, Values};
use std::path::Path;

const SECOND: i64 = 1_000_000_000;
const COPIES: usize = 24;

fn stream() -> StreamName {
    StreamName::new("machine", [("sensor", "s1")])
}

/// A value that no other source has.
fn value(source: usize, row: usize) -> f64 {
    f64::from(u32::try_from(source * 10_000 + row).unwrap())
}

struct Pair {
    number: usize,
    db: Database,
    copy: RemoteCopy,
    reader: Reader,
    rows: usize,
}

fn write(db: &Database, number: usize, rows: std::ops::Range<usize>) -> PinnedState {
    let mut of_stream = StreamRows::new(stream());
    of_stream.times = rows
        .clone()
        .map(|row| i64::try_from(row).unwrap() * SECOND)
        .collect();
    let values = rows.map(|row| value(number, row)).collect();
    let mut batch = Batch::new();
    batch.push(of_stream.with_column("v", Values::F64(values)));
    db.commit(batch).unwrap();
    db.flush().unwrap();
    db.hold_state(None).unwrap()
}

fn fetch(copy: &RemoteCopy, source: &PinnedState) {
    loop {
        let missing = copy.missing(u64::MAX);
        for one in &missing {
            let bytes = u32::try_from(one.range.bytes).unwrap();
            let found = source.read(one.segment, one.range.offset, bytes).unwrap();
            copy.put(one.segment, one.range.offset, &found).unwrap();
        }
        copy.commit().unwrap();
        if missing.is_empty() {
            return;
        }
    }
}

impl Pair {
    fn new(number: usize, cache: &ReadCache) -> Pair {
        let options = || Options {
            shards: 1,
            memory_budget_bytes: 1 << 20,
            ..Options::new("/edge")
        };
        let db = Database::open_in(Env::memory(), options()).unwrap();
        let rows = 600;
        let pinned = write(&db, number, 0..rows);
        let dir = Path::new("/copy");
        let copy = RemoteCopy::begin(Env::memory(), dir, pinned.state(), StreamShare::Full);
        let copy = copy.unwrap();
        fetch(&copy, &pinned);
        let reader = copy.reader_sharing(options(), cache).unwrap();
        Pair {
            number,
            db,
            copy,
            reader,
            rows,
        }
    }

    fn grow(&mut self) {
        let rows = self.rows..self.rows + 300;
        self.rows = rows.end;
        let pinned = write(&self.db, self.number, rows);
        self.copy.take_state(pinned.state().clone()).unwrap();
        fetch(&self.copy, &pinned);
        self.reader.refresh().unwrap();
    }

    fn check(&self) {
        let of_copy = self.reader.snapshot();
        let scan = of_copy.scan(&stream(), &ScanSpec::default()).unwrap();
        let (rows, errors) = collect(scan);
        assert!(errors.is_empty(), "{errors:?}");
        let of_source = self.db.snapshot().unwrap();
        let scan = of_source.scan(&stream(), &ScanSpec::default()).unwrap();
        assert_eq!(rows, collect(scan).0, "copy {}", self.number);
        assert_eq!(rows.len(), self.rows);
    }
}

#[test]
fn readers_with_one_cache_see_their_own_rows() {
    // One that everything fits in, and one in which entries leave all the time.
    for bytes in [16 << 20, 64 << 10] {
        let cache = ReadCache::new(bytes, 4);
        let mut pairs: Vec<Pair> = (0..COPIES).map(|n| Pair::new(n, &cache)).collect();
        for round in 0..4 {
            pairs.iter().for_each(Pair::check);
            let grows = |pair: &&mut Pair| pair.number % 3 == round % 3;
            pairs.iter_mut().filter(grows).for_each(Pair::grow);
            pairs.iter().rev().for_each(Pair::check);
        }
    }
}
