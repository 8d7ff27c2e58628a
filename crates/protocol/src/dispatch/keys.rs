//! Keys of streams and tiles, and the level from which on a stream is present.
//!
//! Invariants: every build computes the same key for a name, since nodes and dispatchers of several
//! versions must agree on it. Two names with the same key cost a query at a node that does not have
//! the stream, and no more: access is decided by names.

use headwater_types::{Level, StreamName};
use sha2::{Digest, Sha256};

/// Key of a stream: the first 8 bytes of the SHA-256 of its name as text, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey(pub u64);

impl StreamKey {
    /// The key of a name.
    ///
    /// ```
    /// use headwater_protocol::dispatch::StreamKey;
    /// use headwater_types::StreamName;
    /// let name = StreamName::new("pump", [("id", "7")]);
    /// assert_eq!(StreamKey::of(&name), StreamKey::of(&name.clone()));
    /// ```
    #[must_use]
    pub fn of(name: &StreamName) -> StreamKey {
        let hash = Sha256::digest(name.to_string().as_bytes());
        let mut first = [0; 8];
        for (to, from) in first.iter_mut().zip(hash) {
            *to = from;
        }
        StreamKey(u64::from_le_bytes(first))
    }

    /// The key of one of its tiles.
    #[must_use]
    pub fn tile(self, level: Level, offset: i64) -> TileKey {
        let level = i64::from(level.get()).cast_unsigned();
        let mixed = mix(self.0 ^ mix(level.wrapping_add(0x51_7cc1)));
        TileKey(mix(mixed ^ offset.cast_unsigned()))
    }
}

/// Most bits by which tiles of a node are divided into parts: two thousand million tiles.
pub(crate) const SHARD_BITS_MAX: u8 = 14;

/// Key of a tile of a stream, for all of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TileKey(pub u64);

/// Spreads differences in a few bits over all bits (the finaliser of splitmix64).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Level from which on all of a stream is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// All rows, and so every level.
    Rows,
    /// Ranges that tiles at this level and above need.
    Level(Level),
    /// No complete levels.
    None,
}

impl Reach {
    /// True when tiles of a level are present.
    ///
    /// ```
    /// use headwater_protocol::dispatch::Reach;
    /// use headwater_types::Level;
    /// assert!(Reach::Level(Level::clamped(6)).has(Level::clamped(6)));
    /// assert!(!Reach::Level(Level::clamped(6)).has(Level::clamped(5)));
    /// ```
    #[must_use]
    pub fn has(self, level: Level) -> bool {
        match self {
            Reach::Rows => true,
            Reach::Level(from) => from <= level,
            Reach::None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_number_that_every_build_gives_it() {
        let name = StreamName::new("pump", [("site", "4"), ("id", "a b")]);
        assert_eq!(name.to_string(), "pump,id=a\\ b,site=4");
        assert_eq!(StreamKey::of(&name), StreamKey(KEY));
        let tile = StreamKey(KEY).tile(Level::clamped(-3), -9);
        assert_eq!(tile, TileKey(TILE));
        assert_ne!(tile, StreamKey(KEY).tile(Level::clamped(-3), 9));
        assert_ne!(tile, StreamKey(KEY).tile(Level::clamped(3), -9));
    }

    // Computed by another program.
    const KEY: u64 = 0x599a_790d_9515_7af4;
    const TILE: u64 = 0xec97_f094_fc3e_19f4;
}
