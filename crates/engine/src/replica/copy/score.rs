//! Facts about missing leaves from the pyramid, for an order of fetching. The caller chooses the
//! weights.
//!
//! Invariants: facts come from the present blocks; a leaf that these do not describe has no facts.
//! Concurrency: plain data.

use crate::common::ids::{SegmentId, StreamId};
use crate::replication::needed::descent::{below, no_wider};
use crate::storage::segment::{LeafEntry, Partition, Store, StreamState};
use crate::{ErrorKind, Result};
use headwater_types::{Aggregate, FieldId, Level};
use std::collections::BTreeMap;

/// Minimum buckets that a leaf should overlap, so that they describe it and not its neighbours.
const BUCKETS_A_LEAF: i128 = 4;

/// Facts about a missing leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LeafFacts {
    /// Number of its rows.
    pub events: u64,
    /// Standard deviation of its values over the deviation of all known values of the stream: for
    /// the field with the largest ratio.
    pub deviation: f64,
    /// Distance from the smallest to the largest value, over the same distance of the stream,
    /// likewise.
    pub spread: f64,
    /// The number of times that readers missed a range of its segment.
    pub misses: u64,
}

/// Facts of leaves, by segment and offset.
#[derive(Debug, Default)]
pub(super) struct Facts {
    leaves: BTreeMap<SegmentId, BTreeMap<u64, LeafFacts>>,
    misses: BTreeMap<SegmentId, u64>,
    /// Aggregates of each stream, over the examined segments: a segment that was rewritten since
    /// counts more than once, with little effect.
    own: BTreeMap<(StreamId, FieldId), Aggregate>,
}

impl Facts {
    pub(super) fn keep(&mut self, stays: &dyn Fn(SegmentId) -> bool) {
        self.leaves.retain(|id, _| stays(*id));
        self.misses.retain(|id, _| stays(*id));
    }

    pub(super) fn is_known(&self, id: SegmentId) -> bool {
        self.leaves.contains_key(&id)
    }

    /// Records that there are no facts about a segment.
    pub(super) fn put_nothing(&mut self, id: SegmentId) {
        self.leaves.insert(id, BTreeMap::new());
    }

    pub(super) fn missed(&mut self, id: SegmentId) {
        *self.misses.entry(id).or_default() += 1;
    }

    pub(super) fn of(&self, id: SegmentId, offset: u64) -> Option<LeafFacts> {
        // The missing range of a leaf may begin after its start.
        let (_, facts) = self.leaves.get(&id)?.range(..=offset).next_back()?;
        Some(LeafFacts {
            misses: self.misses.get(&id).copied().unwrap_or(0),
            ..*facts
        })
    }

    /// Collects facts about the leaves of a partition from its blocks.
    pub(super) fn look(&mut self, store: &Store, partition: &Partition) -> Result<()> {
        let segment = store.state(partition)?;
        let mut leaves: BTreeMap<u64, LeafFacts> = BTreeMap::new();
        for page in segment.pages() {
            store.each_stream(&segment, page, &mut |stream, held| {
                let buckets = buckets_of(store, partition.id(), held)?;
                for (field, aggregate) in total(&buckets) {
                    let own = self.own.entry((stream, field)).or_insert(Aggregate::EMPTY);
                    own.merge(&aggregate);
                }
                for leaf in &held.main {
                    let facts = self.leaf(stream, leaf, &buckets);
                    let known = leaves.entry(leaf.offset).or_default();
                    known.events += facts.events;
                    known.deviation = known.deviation.max(facts.deviation);
                    known.spread = known.spread.max(facts.spread);
                }
                Ok(())
            })?;
        }
        self.leaves.insert(partition.id(), leaves);
        Ok(())
    }

    fn leaf(&self, stream: StreamId, leaf: &LeafEntry, buckets: &Buckets) -> LeafFacts {
        let mut facts = LeafFacts {
            events: u64::from(leaf.count),
            ..LeafFacts::default()
        };
        let Some(level) = buckets.level else {
            return facts;
        };
        let (first, last) = (level.bucket_of(leaf.first), level.bucket_of(leaf.last));
        let mut fields: BTreeMap<FieldId, Aggregate> = BTreeMap::new();
        for (_, of_fields) in buckets.all.range(first..=last) {
            merge(&mut fields, of_fields);
        }
        for (field, aggregate) in fields {
            let own = self.own.get(&(stream, field));
            let over = |part: Option<f64>, whole: Option<f64>| match (part, whole) {
                (Some(part), Some(whole)) if whole > 0.0 => part / whole,
                _ => 0.0,
            };
            let own_deviation = own.and_then(Aggregate::stddev);
            let deviation = over(aggregate.stddev(), own_deviation);
            let width = |a: &Aggregate| a.extremes.as_f64().map(|(least, most)| most - least);
            let spread = over(width(&aggregate), own.and_then(width));
            facts.deviation = facts.deviation.max(deviation);
            facts.spread = facts.spread.max(spread);
        }
        facts
    }
}

/// Buckets of a stream at one level.
#[derive(Default)]
struct Buckets {
    level: Option<Level>,
    all: BTreeMap<i64, Vec<(FieldId, Aggregate)>>,
}

fn merge(into: &mut BTreeMap<FieldId, Aggregate>, fields: &[(FieldId, Aggregate)]) {
    for (field, aggregate) in fields {
        let known = into.entry(*field).or_insert(Aggregate::EMPTY);
        known.merge(aggregate);
    }
}

/// The aggregate of a whole stream, field by field.
fn total(buckets: &Buckets) -> BTreeMap<FieldId, Aggregate> {
    let mut out = BTreeMap::new();
    for fields in buckets.all.values() {
        merge(&mut out, fields);
    }
    out
}

/// The buckets of the finest useful level that is present.
fn buckets_of(store: &Store, id: SegmentId, held: &StreamState) -> Result<Buckets> {
    let (Some(base), Some(top)) = (held.base, held.blocks.last().map(|b| b.level)) else {
        return Ok(Buckets::default());
    };
    let leaves = i128::try_from(held.main.len().max(1)).unwrap_or(i128::MAX);
    let span = match (held.main.first(), held.main.last()) {
        (Some(first), Some(last)) => {
            i128::from(last.last.as_nanos()) - i128::from(first.first.as_nanos())
        }
        _ => return Ok(Buckets::default()),
    };
    let fitting = no_wider(top, base, span / leaves / BUCKETS_A_LEAF);
    let mut levels = vec![top];
    while let Some(level) = levels.last().filter(|level| **level > fitting) {
        levels.push(below(*level, base));
    }
    // The finest first: levels below the subscribed one may be elsewhere.
    for level in levels.into_iter().rev() {
        match at_level(store, id, held, level) {
            Err(error) if error.kind() == ErrorKind::Elsewhere => {}
            found => return found,
        }
    }
    Ok(Buckets::default())
}

fn at_level(store: &Store, id: SegmentId, held: &StreamState, level: Level) -> Result<Buckets> {
    let mut all: BTreeMap<i64, Vec<(FieldId, Aggregate)>> = BTreeMap::new();
    for entry in held.blocks_of(level) {
        let block = store.block(id, entry)?;
        for (at, bucket) in block.buckets.iter().enumerate() {
            let fields = block.fields.iter();
            let fields = fields.filter_map(|(field, _, all)| Some((*field, *all.get(at)?)));
            all.insert(*bucket, fields.collect());
        }
    }
    Ok(Buckets {
        level: Some(level),
        all,
    })
}
