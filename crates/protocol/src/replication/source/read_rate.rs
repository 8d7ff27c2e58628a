//! Allowance of a source's reads for others: reads that are not charged to the budget still load
//! the device.
//!
//! Invariants: reads never exceed the rate, plus one burst, over any span of time. Concurrency:
//! plain data.

use headwater_types::Now;
use std::time::Duration;

/// Bytes a second that may be read, with a burst of as many seconds.
const BURST_SECONDS: u64 = 2;

/// Grants reads.
#[derive(Clone, Debug)]
pub(crate) struct Allowance {
    bytes_per_second: u64,
    /// Bytes read beyond the rate by then.
    owed: u64,
    at: Duration,
}

impl Allowance {
    pub(crate) fn new(bytes_per_second: u64) -> Allowance {
        Allowance {
            bytes_per_second: bytes_per_second.max(1),
            owed: 0,
            at: Duration::ZERO,
        }
    }

    /// Grants `bytes`, or returns the time to wait. A read larger than a burst is granted when the
    /// balance is not negative.
    pub(crate) fn take(&mut self, now: Now, bytes: u64) -> Result<(), Duration> {
        let rate = u128::from(self.bytes_per_second);
        let passed = now.monotonic.saturating_sub(self.at);
        let paid = passed.as_nanos().saturating_mul(rate) / 1_000_000_000;
        if paid > 0 {
            let paid = u64::try_from(paid).unwrap_or(u64::MAX);
            self.owed = self.owed.saturating_sub(paid);
            self.at = now.monotonic;
        }
        let burst = self.bytes_per_second.saturating_mul(BURST_SECONDS);
        let then = self.owed.saturating_add(bytes);
        if then > burst && self.owed > 0 {
            let over = then.saturating_sub(burst).min(self.owed);
            let nanos = u128::from(over) * 1_000_000_000 / rate;
            let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
            return Err(Duration::from_nanos(nanos).max(Duration::from_millis(1)));
        }
        self.owed = then;
        assert!(then <= burst.max(bytes), "{then} bytes read at once");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::Timestamp;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_stretch_of_time_reads_more_than_the_rate_and_a_burst(
            asks in prop::collection::vec((0u64..3000, 1u64..9000), 1..80),
        ) {
            let rate = 1000;
            let mut allowance = Allowance::new(rate);
            let mut millis = 1;
            let (mut read, mut refused) = (0, None);
            for (pause, bytes) in asks {
                millis += pause;
                let now = Now {
                    monotonic: Duration::from_millis(millis),
                    wall: Timestamp::from_nanos(0),
                };
                match allowance.take(now, bytes) {
                    Ok(()) => read += bytes,
                    Err(wait) => refused = Some((now.monotonic + wait, bytes)),
                }
                // A read larger than a burst may exceed it.
                prop_assert!(read * 1000 <= (millis + 1000 * BURST_SECONDS) * rate + 9_000_000);
            }
            // A caller that waits for the returned time is served, if no other caller was.
            if let Some((at, bytes)) = refused {
                let mut at = at.max(Duration::from_millis(millis)) + Duration::from_millis(1);
                let wall = Timestamp::from_nanos(0);
                if let Err(more) = allowance.take(Now { monotonic: at, wall }, bytes) {
                    at += more + Duration::from_millis(1);
                    let served = allowance.take(Now { monotonic: at, wall }, bytes);
                    prop_assert_eq!(served, Ok(()));
                }
            }
        }
    }
}
