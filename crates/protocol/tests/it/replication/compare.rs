//! Compares what a copy answers with what its source does.

use headwater_engine::{ErrorKind, ScanSpec, Snapshot};
use headwater_io::Env;
use headwater_types::{Aggregate, Level, TILE_BUCKETS};

/// Of which level on tiles are compared.
pub(crate) const LEVEL: i32 = 5;

/// Tiles from the level on are all here; of rows, those that are here are the same.
pub(crate) fn compare(source: &Snapshot, copy: &Snapshot) -> u64 {
    compare_by(source, copy, &|tile| format!("{tile:?}"))
}

/// The newest values are the same, but for those of which the row is elsewhere: where the newest
/// row was deleted, or lacks a field, an older one has to be read.
pub(crate) fn compare_newest(source: &Snapshot, copy: &Snapshot) -> u64 {
    let streams = source.streams("m", &[]).unwrap();
    assert_eq!(copy.streams("m", &[]).unwrap(), streams);
    let mut elsewhere = 0;
    for stream in &streams {
        match copy.last(stream) {
            Ok(found) => assert_eq!(found, source.last(stream).unwrap(), "{stream}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Elsewhere, "{error}");
                elsewhere += 1;
            }
        }
    }
    elsewhere
}

/// A tile but for the last digits of what is summed.
pub(crate) fn nearly(tile: &Tile) -> String {
    let bucket = |(number, a): &(i64, Aggregate)| {
        let mean = a.mean().map(|mean| format!("{mean:.9e}"));
        format!("{number} {} {:?} {mean:?}", a.count, a.extremes)
    };
    tile.iter().map(bucket).collect::<Vec<_>>().join("; ")
}

pub(crate) type Tile = [(i64, Aggregate)];

pub(crate) fn compare_by(
    source: &Snapshot,
    copy: &Snapshot,
    said: &dyn Fn(&Tile) -> String,
) -> u64 {
    let mut elsewhere = 0;
    let streams = source.streams("m", &[]).unwrap();
    assert_eq!(copy.streams("m", &[]).unwrap(), streams);
    for stream in &streams {
        for level in [LEVEL, LEVEL + 3] {
            let level = Level::clamped(level);
            let start = level.bucket_of(Env::MEMORY_START).div_euclid(TILE_BUCKETS);
            for tile in start - 2..start + 3 {
                let found = source.tile(stream, "v", level, tile).unwrap();
                let copied = copy.tile(stream, "v", level, tile).unwrap();
                assert_eq!(said(&copied), said(&found));
            }
        }
        let rows = |snapshot: &Snapshot| {
            let scan = snapshot.scan(stream, &ScanSpec::default())?;
            scan.map(|chunk| chunk.map(|c| c.times))
                .collect::<Result<Vec<_>, _>>()
        };
        match rows(copy) {
            Ok(found) => assert_eq!(found.concat(), rows(source).unwrap().concat()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Elsewhere, "{error}");
                elsewhere += 1;
            }
        }
    }
    elsewhere
}
