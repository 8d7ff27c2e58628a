//! Positions of the horizons of a table: pure rules of its settings and the believed instant.
//!
//! Invariants: a retention cutoff is at the beginning of a bucket, at or before the instant of the
//! retention.

use crate::metadata::catalog::{Horizon, Life, level_below};
use headwater_types::{Level, Timestamp};

/// The retention cutoff moves in steps of at most this part (1/n) of the retention.
const STEPS_PER_RETENTION: u32 = 32;

/// The position of the retention cutoff of a table.
pub(super) struct CutoffPosition {
    /// The instant itself.
    oldest: Horizon,
    /// The last step at or before it.
    pub(super) cut: Horizon,
}

pub(super) fn cut_at(life: &Life, now: Timestamp) -> CutoffPosition {
    let oldest = Horizon::behind(now, life.retention);
    let (Some(retention), Some(instant)) = (life.retention, oldest.instant()) else {
        return CutoffPosition {
            oldest,
            cut: oldest,
        };
    };
    let level = Level::clamped(level_below(retention / STEPS_PER_RETENTION));
    let bucket = level.bucket_of(instant);
    CutoffPosition {
        oldest,
        cut: Horizon::at(level.bucket_span(bucket).first),
    }
}

/// The instant up to which a table's rows may be aged.
pub(super) fn age_at(life: &Life, now: Timestamp) -> Horizon {
    Horizon::behind(now, life.raw_for)
}

/// Moves horizons back that are after their correct positions.
pub(super) fn take_back(life: &mut Life, now: Timestamp) {
    let place = cut_at(life, now);
    if life.cut > place.oldest {
        life.cut = place.cut;
    }
    let aged = age_at(life, now);
    if life.aged_to > aged {
        life.aged_most = life.aged_most.max(life.aged_to);
        life.aged_to = aged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn horizons_follow_the_instant_and_the_settings_and_go_back_with_them() {
        let at = |seconds: i64| Timestamp::from_nanos(seconds * 1_000_000_000);
        let mut life = Life {
            retention: Some(Duration::from_secs(3200)),
            raw_for: Some(Duration::from_secs(100)),
            ..Life::FOREVER
        };
        let place = cut_at(&life, at(10_000));
        assert_eq!(place.oldest, Horizon::at(at(6_800)));
        assert!(place.cut <= place.oldest && place.cut > Horizon::at(at(6_699)));
        assert_eq!(age_at(&life, at(10_000)), Horizon::at(at(9_900)));
        life.cut = place.cut;
        life.aged_to = Horizon::at(at(9_900));
        let before = life;
        take_back(&mut life, at(20_000));
        assert_eq!(
            life, before,
            "they go ahead when something is done about it"
        );
        take_back(&mut life, at(5_000));
        assert!(life.cut <= Horizon::at(at(1_800)));
        assert_eq!(life.aged_to, Horizon::at(at(4_900)));
        assert_eq!(life.aged_most, Horizon::at(at(9_900)));
        life.retention = None;
        take_back(&mut life, at(5_000));
        assert_eq!(life.cut, Horizon::NONE);
    }
}
