//! Division of the size of a fast tier among its parts.
//!
//! Invariants: pure; the shares are together at most the size. The log comes first, since it holds
//! acknowledged rows: it has the whole size where nothing else is bounded there, else at most half
//! of it. Of the rest the index has a quarter where it stands beside the newest segments. Pinned
//! rows have no share: they end with the snapshots that see them.

use super::options::Options;
use crate::device::tiers::TierParts;

/// Maximum bytes of each part of a fast tier; `None` = not limited by a setting.
///
/// ```
/// use headwater_engine::{Options, TierShares};
/// let mut options = Options::new("/data");
/// options.fast_bytes = Some(1 << 30);
/// let shares = TierShares::of(&options, "log,index,newest".parse()?);
/// assert!(shares.log < shares.newest && shares.index < shares.log);
/// # Ok::<(), headwater_engine::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierShares {
    /// The commit log.
    pub log: Option<u64>,
    /// The index of segments.
    pub index: Option<u64>,
    /// Copies of the newest segments, which the memory budget limits, too.
    pub newest: Option<u64>,
}

impl TierShares {
    /// The shares of the parts that a tier contains, of the configured size.
    #[must_use]
    pub fn of(options: &Options, parts: TierParts) -> TierShares {
        // Files that are being filled or prepared are counted in addition to the needed ones.
        let log_most = options.log_bytes_usual() + 2 * options.log_file_size();
        let own = TierShares {
            log: None,
            index: options.fast_index_bytes,
            newest: options.fast_newest_bytes,
        };
        let Some(size) = options.fast_bytes else {
            return own;
        };
        let least = |own: Option<u64>, share: u64| own.map_or(share, |own| own.min(share));
        let log = match (parts.log, parts.index || parts.newest) {
            (false, _) => 0,
            (true, false) => size,
            (true, true) => log_most.min(size / 2),
        };
        let rest = size - log;
        let index = match (parts.index, parts.newest) {
            (false, _) => 0,
            (true, false) => least(own.index, rest),
            (true, true) => least(own.index, rest / 4),
        };
        TierShares {
            log: Some(log),
            index: Some(index),
            newest: Some(least(own.newest, rest - index)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn shares(size: Option<u64>, parts: &str, own: [Option<u64>; 2]) -> TierShares {
        let [fast_index_bytes, fast_newest_bytes] = own;
        let options = Options {
            fast_bytes: size,
            fast_index_bytes,
            fast_newest_bytes,
            ..Options::new("/db")
        };
        TierShares::of(&options, parts.parse().unwrap_or_default())
    }

    #[test]
    fn parts_are_together_within_the_size() {
        let own = [None, Some(Some(3 * MIB)), Some(Some(5 * MIB))];
        for size in [MIB, 7 * MIB, 64 * MIB, 4096 * MIB] {
            for parts in [
                "log",
                "log,pins",
                "index",
                "newest",
                "log,index",
                "log,pins,index,newest",
            ] {
                for index in own {
                    for newest in own {
                        let found = shares(Some(size), parts, [index.flatten(), newest.flatten()]);
                        let all =
                            [found.log, found.index, found.newest].map(Option::unwrap_or_default);
                        assert!(all.iter().sum::<u64>() <= size, "{size} {parts} {found:?}");
                        let [_, of_index, of_newest] = all;
                        assert!(index.flatten().is_none_or(|own| of_index <= own));
                        assert!(newest.flatten().is_none_or(|own| of_newest <= own));
                    }
                }
            }
        }
    }

    #[test]
    fn the_log_comes_first_and_the_newest_segments_get_the_rest() {
        let found = shares(Some(4096 * MIB), "log,pins,index,newest", [None, None]);
        let of = |log, index, newest| TierShares {
            log: Some(log * MIB),
            index: Some(index * MIB),
            newest: Some(newest * MIB),
        };
        // 256 MiB of log, and two files of 8 MiB.
        assert_eq!(found, of(272, 956, 2868));
        assert_eq!(
            shares(Some(64 * MIB), "log,pins", [None, None]).log,
            Some(64 * MIB)
        );
        assert_eq!(
            shares(Some(64 * MIB), "log,index", [None, None]),
            of(32, 32, 0)
        );
        let without = shares(None, "log,index", [Some(MIB), None]);
        assert_eq!(
            (without.log, without.index, without.newest),
            (None, Some(MIB), None)
        );
    }
}
