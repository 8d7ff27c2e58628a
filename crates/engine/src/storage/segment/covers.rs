//! Covers: the stored events of each stream, as several groups record them, looked up by stream.
//!
//! Invariants: sorted by stream; covers of one stream stay in the order of insertion. Concurrency:
//! plain data. One list for all streams: a list for each of many streams would take several times
//! the memory.

use super::format::Cover;
use crate::common::ids::StreamId;
use headwater_types::invariant::part_of;

/// Covers of many streams.
#[derive(Debug, Default)]
pub(crate) struct Covers(Vec<(StreamId, Cover)>);

impl Covers {
    /// Builds the list from covers in any order of streams.
    pub(crate) fn of(mut covers: Vec<(StreamId, Cover)>) -> Covers {
        covers.sort_by_key(|(stream, _)| *stream);
        covers.shrink_to_fit();
        Covers(covers)
    }

    /// The covers of a stream.
    pub(crate) fn of_stream(&self, stream: StreamId) -> impl Iterator<Item = &Cover> {
        let from = self.0.partition_point(|(s, _)| *s < stream);
        let behind = part_of(&self.0, from.., "covers of a stream").iter();
        let own = behind.take_while(move |(s, _)| *s == stream);
        own.map(|(_, cover)| cover)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::ids::Sequence;
    use headwater_types::ClosedRange;

    #[test]
    fn each_stream_has_its_own_in_the_order_they_came() {
        let cover = |sequence| Cover {
            sequence: Sequence(sequence),
            range: ClosedRange::ALL,
        };
        let all = [(7, 1), (2, 9), (7, 5), (3, 4), (7, 2), (u32::MAX, 8)];
        let covers = Covers::of(all.map(|(s, n)| (StreamId(s), cover(n))).to_vec());
        let of = |stream| -> Vec<u64> {
            let found = covers.of_stream(StreamId(stream));
            found.map(|c| c.sequence.0).collect()
        };
        assert_eq!(of(7), [1, 5, 2]);
        assert_eq!((of(2), of(3), of(u32::MAX)), (vec![9], vec![4], vec![8]));
        assert!(of(0).is_empty() && of(5).is_empty());
        assert_eq!(Covers::default().of_stream(StreamId(1)).count(), 0);
    }
}
