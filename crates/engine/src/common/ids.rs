//! Numbers that name things. Never mixed with one another or with plain integers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are numbers that clients cannot choose, or are already keyed hashes: the hasher
/// only spreads them.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Spreads a number over all bits, by a multiplication with the golden ratio (Knuth, "The Art of
/// Computer Programming", 6.4).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        let spread = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub(crate) struct $name(pub(crate) $inner);
    };
}

id! {
    /// A table. Dense, from 0, never reused.
    TableId(u32)
}
id! {
    /// A stream. Dense, from 0, never reused.
    StreamId(u32)
}
id! {
    /// A segment file. Ascending, never reused.
    SegmentId(u64)
}
id! {
    /// The global number of a log record; it orders everything that changes the view of a reader.
    /// The first is 1.
    Sequence(u64)
}
id! {
    /// Index of a shard, below the number fixed when the database was made.
    ShardIndex(u16)
}
