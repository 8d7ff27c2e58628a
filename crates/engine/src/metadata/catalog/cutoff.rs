//! Instants before which data of a table has ended.

use headwater_types::Timestamp;
use std::time::Duration;

/// An instant before which data has ended. The cutoff moves forward as time goes by, and back when
/// the clock or a setting does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cutoff(Timestamp);

impl Cutoff {
    /// The cutoff of data that has not ended: the smallest instant.
    pub(crate) const NONE: Cutoff = Cutoff(Timestamp::MIN);

    /// Cutoff at this instant: all data before it has ended.
    pub(crate) fn at(instant: Timestamp) -> Cutoff {
        Cutoff(instant)
    }

    /// The cutoff of a lifetime at an instant; [`Cutoff::NONE`] for rows kept for ever.
    pub(crate) fn behind(now: Timestamp, lifetime: Option<Duration>) -> Cutoff {
        lifetime.map_or(Cutoff::NONE, |lifetime| {
            let lifetime = i64::try_from(lifetime.as_nanos()).unwrap_or(i64::MAX);
            Cutoff(Timestamp::from_nanos(
                now.as_nanos().saturating_sub(lifetime),
            ))
        })
    }

    /// True when data may have ended.
    pub(crate) fn is_set(self) -> bool {
        self != Cutoff::NONE
    }

    /// The instant; `None` when no data has ended.
    pub(crate) fn instant(self) -> Option<Timestamp> {
        self.is_set().then_some(self.0)
    }

    /// The last instant before it; `None` when no data has ended.
    pub(crate) fn last_before(self) -> Option<Timestamp> {
        self.0.previous()
    }

    /// True when data at this time has ended.
    pub(crate) fn ends(self, time: Timestamp) -> bool {
        time < self.0
    }

    /// Encoded value: ns since 1970, the smallest number for no cutoff.
    pub(crate) fn as_nanos(self) -> i64 {
        self.0.as_nanos()
    }

    pub(crate) fn from_nanos(nanos: i64) -> Cutoff {
        Cutoff(Timestamp::from_nanos(nanos))
    }
}

impl std::hash::Hash for Cutoff {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_i64(self.0.as_nanos());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cutoff_ends_what_lies_before_it_and_none_ends_nothing() {
        let at = |ns| Cutoff::at(Timestamp::from_nanos(ns));
        let ns = Timestamp::from_nanos;
        assert!(at(5).ends(ns(4)) && !at(5).ends(ns(5)));
        assert!(!Cutoff::NONE.ends(Timestamp::MIN) && !Cutoff::NONE.is_set());
        assert_eq!(Cutoff::NONE.last_before(), None);
        assert_eq!(at(5).last_before(), Some(Timestamp::from_nanos(4)));
        assert!(Cutoff::NONE < at(-7) && at(-7) < at(0));
        let now = Timestamp::from_nanos(100);
        assert_eq!(Cutoff::behind(now, Some(Duration::from_nanos(30))), at(70));
        assert_eq!(Cutoff::behind(now, None), Cutoff::NONE);
        let ever = Some(Duration::from_secs(u64::MAX));
        assert_eq!(Cutoff::behind(Timestamp::MIN, ever), Cutoff::NONE);
    }
}
