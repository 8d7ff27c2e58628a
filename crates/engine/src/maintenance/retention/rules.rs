//! Positions of the cutoffs of a table: pure rules of its settings and the believed instant.
//!
//! Invariants: a retention cutoff is at the beginning of a bucket, at or before the instant of the
//! retention.

use crate::metadata::catalog::{Cutoff, TableLifetime, level_at_most};
use headwater_types::{Level, Timestamp};

/// The retention cutoff moves in steps of at most this part (1/n) of the retention.
const STEPS_PER_RETENTION: u32 = 32;

/// The position of the retention cutoff of a table.
pub(super) struct CutoffPosition {
    /// The instant itself.
    oldest: Cutoff,
    /// The last step at or before it.
    pub(super) step: Cutoff,
}

pub(super) fn cutoff_at(lifetime: &TableLifetime, now: Timestamp) -> CutoffPosition {
    let oldest = Cutoff::behind(now, lifetime.retention);
    let (Some(retention), Some(instant)) = (lifetime.retention, oldest.instant()) else {
        return CutoffPosition {
            oldest,
            step: oldest,
        };
    };
    let level = Level::clamped(level_at_most(retention / STEPS_PER_RETENTION));
    let bucket = level.bucket_of(instant);
    CutoffPosition {
        oldest,
        step: Cutoff::at(level.bucket_span(bucket).first),
    }
}

/// The instant up to which a table's rows may be aged.
pub(super) fn age_at(lifetime: &TableLifetime, now: Timestamp) -> Cutoff {
    Cutoff::behind(now, lifetime.raw_for)
}

/// Moves cutoffs back that are after their correct positions.
pub(super) fn take_back(lifetime: &mut TableLifetime, now: Timestamp) {
    let place = cutoff_at(lifetime, now);
    if lifetime.retention_cutoff > place.oldest {
        lifetime.retention_cutoff = place.step;
    }
    let aged = age_at(lifetime, now);
    if lifetime.aged_to > aged {
        lifetime.aged_to_max = lifetime.aged_to_max.max(lifetime.aged_to);
        lifetime.aged_to = aged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn cutoffs_follow_the_instant_and_the_settings_and_go_back_with_them() {
        let at = |seconds: i64| Timestamp::from_nanos(seconds * 1_000_000_000);
        let mut lifetime = TableLifetime {
            retention: Some(Duration::from_secs(3200)),
            raw_for: Some(Duration::from_secs(100)),
            ..TableLifetime::FOREVER
        };
        let place = cutoff_at(&lifetime, at(10_000));
        assert_eq!(place.oldest, Cutoff::at(at(6_800)));
        assert!(place.step <= place.oldest && place.step > Cutoff::at(at(6_699)));
        assert_eq!(age_at(&lifetime, at(10_000)), Cutoff::at(at(9_900)));
        lifetime.retention_cutoff = place.step;
        lifetime.aged_to = Cutoff::at(at(9_900));
        let before = lifetime;
        take_back(&mut lifetime, at(20_000));
        assert_eq!(
            lifetime, before,
            "they go ahead when something is done about it"
        );
        take_back(&mut lifetime, at(5_000));
        assert!(lifetime.retention_cutoff <= Cutoff::at(at(1_800)));
        assert_eq!(lifetime.aged_to, Cutoff::at(at(4_900)));
        assert_eq!(lifetime.aged_to_max, Cutoff::at(at(9_900)));
        lifetime.retention = None;
        take_back(&mut lifetime, at(5_000));
        assert_eq!(lifetime.retention_cutoff, Cutoff::NONE);
    }
}
