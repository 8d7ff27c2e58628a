//! Several tiles as bytes: the compact form, exact below level −20 where seconds as doubles are
//! not.
//!
//! Little endian. `HWT1`, number of tiles u32; then for each tile status u32, level i32, offset
//! i64, first instant of the tile i64 (ns since 1970, the nearest representable instant), rows u32,
//! 0 u32, then with status 0 the columns of `rows` f64 each: mean time in ns after the tile's first
//! instant, mean, min, max, count, stddev. NaN stands for an absent value.
//!
//! Invariants: rows are sorted by time, one for each bucket with events; a tile with a status other
//! than 0 has no rows. Format: docs/format/tile.md.

use headwater_types::{Aggregate, Level, TILE_BUCKETS};

/// The first bytes.
pub const TILES_MAGIC: [u8; 4] = *b"HWT1";
/// The media type of the form.
pub const TILES_MEDIA_TYPE: &str = "application/vnd.headwater.tiles";

/// Tells whether the tile exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum TileStatus {
    /// The tile exists, possibly without rows.
    Tile = 0,
    /// The stream does not exist, or does not have the field.
    Unknown = 1,
    /// The field does not contain numbers.
    NotNumeric = 2,
}

/// Writes the head of `count` tiles.
pub fn push_tiles_head(out: &mut Vec<u8>, count: u32) {
    out.extend_from_slice(&TILES_MAGIC);
    out.extend_from_slice(&count.to_le_bytes());
}

/// Writes one tile.
///
/// ```
/// use headwater_types::{Aggregate, Level};
/// use headwater_wire::tiles::{TileStatus, push_tile, push_tiles_head};
/// let mut out = Vec::new();
/// push_tiles_head(&mut out, 1);
/// push_tile(&mut out, TileStatus::Unknown, Level::clamped(0), 3, &[]);
/// assert_eq!(out.len(), 8 + 32);
/// ```
pub fn push_tile(
    out: &mut Vec<u8>,
    status: TileStatus,
    level: Level,
    offset: i64,
    buckets: &[(i64, Aggregate)],
) {
    let start = tile_start(level, offset);
    let rows: Vec<&Aggregate> = match status {
        TileStatus::Tile => buckets
            .iter()
            .map(|(_, a)| a)
            .filter(|a| a.count > 0)
            .collect(),
        TileStatus::Unknown | TileStatus::NotNumeric => Vec::new(),
    };
    out.extend_from_slice(&(status as u32).to_le_bytes());
    out.extend_from_slice(&level.get().to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&start.to_le_bytes());
    out.extend_from_slice(&(rows.len() as u32).to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
    out.reserve(rows.len() * 48);
    let columns: [fn(&Aggregate, i64) -> f64; 6] = [
        time_after,
        |a, _| a.mean().unwrap_or(f64::NAN),
        |a, _| extreme(a, false),
        |a, _| extreme(a, true),
        |a, _| a.count as f64,
        |a, _| a.stddev().unwrap_or(f64::NAN),
    ];
    for column in columns {
        for aggregate in &rows {
            out.extend_from_slice(&column(aggregate, start).to_le_bytes());
        }
    }
}

/// First instant of a tile, ns since 1970; the nearest representable one, if the tile begins before
/// or after all of them.
#[must_use]
pub fn tile_start(level: Level, offset: i64) -> i64 {
    let Some(bucket) = offset.checked_mul(TILE_BUCKETS) else {
        return if offset < 0 { i64::MIN } else { i64::MAX };
    };
    let start = level.bucket_start_wide(bucket);
    start.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// Mean time of the events, ns after an instant.
fn time_after(aggregate: &Aggregate, start: i64) -> f64 {
    let count = i128::from(aggregate.count);
    let after = aggregate.time_sum - i128::from(start) * count;
    let (whole, rest) = (after.div_euclid(count), after.rem_euclid(count));
    whole as f64 + rest as f64 / count as f64
}

fn extreme(aggregate: &Aggregate, is_max: bool) -> f64 {
    let extremes = aggregate.extremes.as_f64();
    extremes.map_or(f64::NAN, |(min, max)| if is_max { max } else { min })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::Extremes;

    fn f64_at(bytes: &[u8], at: usize) -> f64 {
        let mut raw = [0; 8];
        raw.copy_from_slice(bytes.get(at..at + 8).unwrap_or(&[0; 8]));
        f64::from_le_bytes(raw)
    }

    #[test]
    fn columns_follow_the_head() {
        let aggregate = Aggregate {
            count: 2,
            // 10 and 11 ns after the start of tile 3 of level 0.
            time_sum: 2 * 3 * 512 * 1_000_000_000 + 21,
            extremes: Extremes::I64(-4, 8),
            sum: 4,
            ..Aggregate::EMPTY
        };
        let infinite = Aggregate {
            count: 1,
            positive_infinite: 1,
            time_sum: 3 * 512 * 1_000_000_000 + 999,
            ..Aggregate::EMPTY
        };
        let mut out = Vec::new();
        push_tiles_head(&mut out, 1);
        let buckets = [
            (1536, aggregate),
            (1537, Aggregate::EMPTY),
            (1538, infinite),
        ];
        push_tile(&mut out, TileStatus::Tile, Level::clamped(0), 3, &buckets);
        assert_eq!(out.len(), 8 + 32 + 2 * 48);
        assert_eq!(out.get(32..36), Some(&2u32.to_le_bytes()[..]));
        let values: Vec<f64> = (0..12).map(|i| f64_at(&out, 40 + 8 * i)).collect();
        assert_eq!((values[0], values[1], values[2]), (10.5, 999.0, 2.0));
        assert!(values[3].is_nan() && values[5].is_nan() && values[11].is_nan());
        assert_eq!(
            (values[4], values[6], values[8], values[9]),
            (-4.0, 8.0, 2.0, 1.0)
        );
    }

    #[test]
    fn the_start_of_a_tile_is_an_instant() {
        assert_eq!(tile_start(Level::clamped(0), -1), -512_000_000_000);
        assert_eq!(tile_start(Level::clamped(40), 5), i64::MAX);
        assert_eq!(tile_start(Level::clamped(-20), i64::MIN), i64::MIN);
    }
}
