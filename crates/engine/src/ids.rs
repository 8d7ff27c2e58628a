//! Numbers that name things. Never mixed with one another or with plain integers.

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
    /// A segment file. Rising, never reused.
    SegmentId(u64)
}
id! {
    /// The global number of a log record; it orders everything that changes what a reader sees. The first is 1.
    Sequence(u64)
}
id! {
    /// Which shard, below the number fixed when the database was made.
    ShardIndex(u16)
}
