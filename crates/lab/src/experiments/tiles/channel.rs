//! The channel: one value a second, a walk in hundredths.

use crate::baselines::{Window, point_batch, stream_names};
use crate::harness::{Failure, Random};
use headwater::{Database, StreamName};

/// The first second: a multiple of 2^20, so that large tiles start with the channel.
pub(super) const BEGIN: i64 = 1_622 << 20;

pub(super) struct Channel {
    dice: Random,
    hundredths: i64,
    next: i64,
}

impl Channel {
    pub(super) fn new() -> Channel {
        Channel {
            dice: Random::new(1),
            hundredths: 2_000,
            next: BEGIN,
        }
    }

    /// The next points.
    pub(super) fn take(&mut self, count: u64) -> (Vec<i64>, Vec<f64>) {
        let seconds: Vec<i64> = (self.next..).take(count as usize).collect();
        self.next += count as i64;
        let values = seconds.iter().map(|_| {
            self.hundredths += self.dice.below(11) as i64 - 5;
            self.hundredths as f64 / 100.0
        });
        let values = values.collect();
        (seconds, values)
    }

    /// Writes the next points to ours, `batch` at a time.
    pub(super) fn write(&mut self, db: &Database, points: u64, batch: u64) -> Result<(), Failure> {
        let names = stream_names(1);
        let mut left = points;
        while left > 0 {
            let (seconds, values) = self.take(left.min(batch));
            left -= seconds.len() as u64;
            let window = Window {
                seconds: &seconds,
                values: &[&values],
            };
            db.commit(point_batch(&names, &window))?;
        }
        Ok(())
    }
}

/// The channel's stream.
pub(super) fn stream() -> Result<StreamName, Failure> {
    stream_names(1).pop().ok_or_else(|| "no stream".into())
}

/// The channel's field.
pub(super) const FIELD: &str = "value";
