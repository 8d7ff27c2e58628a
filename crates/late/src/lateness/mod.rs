//! Lateness of events: the analyzer's statistics of each shard.
//!
//! The lateness of an event is the number of events of its stream that arrived since the stream's
//! newest timestamp passed it; 0 for an event that is the newest. Unlike a delay it needs no
//! arrival time, no clock and no fixed interval, and it does not change when all delays grow alike.
//! While events arrive as fast as they are generated it is the delay in generation intervals, less
//! that of the newest event: so the model can use it in place of a delay. Two histograms with 8
//! buckets per octave: one of all events, one of the deepest event in each block of arrivals. The
//! two determine the extremal index: 1 when late events arrive independently, near 0 when they
//! arrive in batches.
//!
//! Invariants: a histogram's weight is at most `events`. Concurrency: values; the shard's lock
//! guards the ones in use. Failure: none. Memory is bounded: a [`Tracker`] per stream,
//! [`STREAMS_TRACKED_MAX`] streams per shard.

mod law;
mod tracker;

pub use law::LatenessLaw;
pub use tracker::Tracker;

use headwater_codec::{Cursor, DecodeError, PutBytes};

/// Buckets per octave; smaller values have one bucket each.
const PER_OCTAVE: usize = 8;
/// Number of octaves: deeper lateness counts as 2^40.
const OCTAVES: usize = 40;
const BUCKETS: usize = PER_OCTAVE + (OCTAVES - 3) * PER_OCTAVE;
/// Maximum streams tracked in a shard. Others are assumed to be similar.
pub const STREAMS_TRACKED_MAX: usize = 64;

/// Log-spaced counts of lateness.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    counts: Vec<f64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: vec![0.0; BUCKETS],
        }
    }
}

/// Branch-free, since the next of a few small values of lateness cannot be predicted.
#[inline]
fn bucket_of(lateness: u64) -> usize {
    let lateness = lateness.min((1 << OCTAVES) - 1);
    // Octaves above the first eight, and the bucket within one with the leading bit.
    let shift = 60 - (lateness | PER_OCTAVE as u64).leading_zeros() as usize;
    shift * PER_OCTAVE + (lateness >> shift) as usize
}

/// The smallest lateness of a bucket.
fn bucket_start(bucket: usize) -> u64 {
    if bucket < PER_OCTAVE {
        return bucket as u64;
    }
    let octave = (bucket - PER_OCTAVE) / PER_OCTAVE;
    let within = (bucket - PER_OCTAVE) % PER_OCTAVE;
    ((PER_OCTAVE + within) as u64) << octave
}

impl Histogram {
    #[inline]
    fn add(&mut self, lateness: u64, events: usize) {
        if let Some(count) = self.counts.get_mut(bucket_of(lateness)) {
            *count += events as f64;
        }
    }

    fn decay(&mut self, factor: f64) {
        for count in &mut self.counts {
            *count *= factor;
        }
    }

    /// Weight of each non-empty bucket, with its smallest lateness.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, f64)> {
        let all = self.counts.iter().enumerate();
        all.filter(|(_, count)| **count > 0.0)
            .map(|(bucket, count)| (bucket_start(bucket), *count))
    }
}

/// Decaying histograms of the observed lateness.
#[derive(Clone, Debug, PartialEq)]
pub struct Lateness {
    /// Weight of all events.
    events: f64,
    late: Histogram,
    /// Weight of finished blocks.
    blocks: f64,
    deepest: Histogram,
    block_events: u64,
}

impl Lateness {
    /// Empty histograms; the deepest event is recorded for each block of `block_events` arrivals,
    /// at least 16.
    #[must_use]
    pub fn new(block_events: u64) -> Lateness {
        Lateness {
            events: 0.0,
            late: Histogram::default(),
            blocks: 0.0,
            deepest: Histogram::default(),
            block_events: block_events.max(16),
        }
    }

    /// Weight of the observed events.
    #[must_use]
    pub fn events(&self) -> f64 {
        self.events
    }

    /// Weight of the events that were not the newest of their stream.
    #[must_use]
    pub fn late_events(&self) -> f64 {
        self.late.counts.iter().sum()
    }

    /// Arrivals of a block.
    #[must_use]
    pub fn block_events(&self) -> u64 {
        self.block_events
    }

    /// The histogram of late events.
    #[must_use]
    pub fn histogram(&self) -> &Histogram {
        &self.late
    }

    /// Multiplies the weight of the lateness observed so far by this factor.
    pub fn decay(&mut self, factor: f64) {
        self.events *= factor;
        self.blocks *= factor;
        self.late.decay(factor);
        self.deepest.decay(factor);
    }

    /// The law for predictions. `None` before the first event.
    #[must_use]
    pub fn law(&self) -> Option<LatenessLaw> {
        LatenessLaw::new(self)
    }

    /// Appends the persistent state: weights in 1/16, buckets as (lateness, weight).
    pub fn encode(&self, out: &mut Vec<u8>) {
        let weight = |w: f64| (w * 16.0).round().clamp(0.0, 1e15) as u64;
        out.put_varint(self.block_events);
        out.put_varint(weight(self.events));
        out.put_varint(weight(self.blocks));
        for histogram in [&self.late, &self.deepest] {
            let full: Vec<(u64, u64)> = histogram
                .buckets()
                .map(|(lateness, w)| (lateness, weight(w)))
                .filter(|(_, w)| *w > 0)
                .collect();
            out.put_varint(full.len() as u64);
            for (lateness, weight) in full {
                out.put_varint(lateness);
                out.put_varint(weight);
            }
        }
    }

    /// Reads the output of [`Lateness::encode`].
    ///
    /// # Errors
    /// When the bytes are not valid.
    pub fn decode(cursor: &mut Cursor<'_>) -> Result<Lateness, DecodeError> {
        let mut new = Lateness::new(cursor.varint("events of a block")?);
        new.events = cursor.varint("weight of events")? as f64 / 16.0;
        new.blocks = cursor.varint("weight of blocks")? as f64 / 16.0;
        for histogram in [&mut new.late, &mut new.deepest] {
            for _ in 0..cursor.varint_up_to(BUCKETS as u64, "buckets of lateness")? {
                let lateness = cursor.varint("lateness")?;
                let weight = cursor.varint("weight of lateness")? as f64 / 16.0;
                if let Some(count) = histogram.counts.get_mut(bucket_of(lateness)) {
                    *count += weight;
                }
            }
        }
        Ok(new)
    }
}

#[cfg(test)]
mod tests;
