//! Settings of nodes that copy one another.

use super::setting::{Codec, Setting, duration_within};
use super::values::{parse_size, show_duration, show_size};
use crate::access::tokens::FetchLimit;
use headwater_cluster::{ClusterError, QuietHours, UplinkSettings, withholding};
use std::time::Duration;

/// Role of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NodeRole {
    /// A node without a cloud.
    #[default]
    Single,
    /// Owns its data, and sends it to a cloud.
    Edge,
    /// Has copies of edges.
    Cloud,
    /// Redirects queries to the nodes that answer them; has no data.
    Dispatcher,
}

impl NodeRole {
    /// All roles.
    pub const ALL: [NodeRole; 4] = [
        NodeRole::Single,
        NodeRole::Edge,
        NodeRole::Cloud,
        NodeRole::Dispatcher,
    ];

    /// Name of the role.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            NodeRole::Single => "single",
            NodeRole::Edge => "edge",
            NodeRole::Cloud => "cloud",
            NodeRole::Dispatcher => "dispatcher",
        }
    }
}

/// Replication settings of a node.
#[derive(Debug, Clone)]
pub struct Sync {
    /// Role of the node.
    pub role: NodeRole,
    /// Maximum bytes a second that an edge sends; `None` = no limit.
    pub rate: Option<u64>,
    /// Maximum bytes a day (UTC).
    pub day_max: Option<u64>,
    /// Maximum bytes a month (UTC).
    pub month_max: Option<u64>,
    /// Hours in which an edge does not send (UTC).
    pub quiet_hours: Vec<QuietHours>,
    /// Bytes of replaced files that an edge retains while they are being fetched.
    pub hold_bytes: u64,
    /// Longest time that events stay in an edge's memory, where copies do not see them; `None` =
    /// until memory is full.
    pub flush_every: Option<Duration>,
    /// Interval of sending the newest events before a flush stores them; `None` = never.
    pub live: Option<Duration>,
    /// True when an edge frees rows after the cloud has received them, even if the cloud loses them
    /// later.
    pub frees: bool,
    /// Least age of the freed rows.
    pub free_after: Duration,
    /// True when an edge loses its oldest rows on a full disk, rather than refuse new ones.
    pub loses_raw: bool,
    /// Tables of an edge that never leave it.
    pub withhold: Vec<String>,
    /// Bytes a day that a cloud fetches from edges for a token without a budget of its own.
    pub fetch_per_day: FetchLimit,
}

impl Default for Sync {
    fn default() -> Sync {
        Sync {
            role: NodeRole::default(),
            rate: None,
            day_max: None,
            month_max: None,
            quiet_hours: Vec::new(),
            hold_bytes: 1 << 30,
            flush_every: Some(Duration::from_secs(600)),
            live: None,
            frees: false,
            free_after: Duration::from_secs(7 * 86_400),
            loses_raw: false,
            withhold: Vec::new(),
            fetch_per_day: FetchLimit::Unlimited,
        }
    }
}

impl Sync {
    /// Settings of an edge's connection to its cloud.
    ///
    /// # Errors
    /// `invalid`, which names of whole tables never are.
    pub(crate) fn uplink(&self) -> Result<UplinkSettings, ClusterError> {
        Ok(UplinkSettings {
            rules: withholding(&self.withhold)?,
            hold_bytes: self.hold_bytes,
            budget: headwater_cluster::BudgetLimits {
                bytes_per_second: self.rate,
                bytes_per_day: self.day_max,
                bytes_per_month: self.month_max,
                quiet: self.quiet_hours.clone(),
            },
            flush_every: self.flush_every,
            live: self.live,
            free_after: self.frees.then_some(self.free_after),
            rights: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }
}

pub(super) const UNLIMITED: &str = "unlimited";

fn limit(text: &str) -> Result<Option<u64>, String> {
    match text {
        UNLIMITED => Ok(None),
        _ => match parse_size(text)? {
            0 => Err("0 would never send anything; use `headwater sync pause` for that".to_owned()),
            bytes => Ok(Some(bytes)),
        },
    }
}

fn show_limit(limit: Option<u64>) -> String {
    limit.map_or_else(|| UNLIMITED.to_owned(), show_size)
}

/// Reads `22:00-06:00`, several separated by commas.
fn quiet_hours(text: &str) -> Result<Vec<QuietHours>, String> {
    let stretches = text.split(',').map(str::trim).filter(|s| !s.is_empty());
    stretches
        .map(|stretch| {
            let expected = || format!("`{stretch}`: expected hours such as 22:00-06:00");
            let (from, to) = stretch.split_once('-').ok_or_else(expected)?;
            let (from, to) = (
                minute(from).ok_or_else(expected)?,
                minute(to).ok_or_else(expected)?,
            );
            if from == to {
                return Err(format!("`{stretch}`: the span is empty"));
            }
            Ok(QuietHours { from, to })
        })
        .collect()
}

fn minute(text: &str) -> Option<u32> {
    let (hour, minute) = text.trim().split_once(':')?;
    let is_two_digits = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    if !is_two_digits(hour) || !is_two_digits(minute) {
        return None;
    }
    let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
    (hour < 24 && minute < 60).then_some(hour * 60 + minute)
}

fn show_quiet_hours(quiet: &[QuietHours]) -> String {
    let stretches = quiet.iter().map(|q| {
        let time = |minute: u32| format!("{:02}:{:02}", minute / 60, minute % 60);
        format!("{}-{}", time(q.from), time(q.to))
    });
    stretches.collect::<Vec<_>>().join(",")
}

pub(super) static TABLE: &[Setting] = &[
    Setting {
        key: "role",
        kind: "ROLE",
        allowed: "single, edge, cloud or dispatcher",
        about: "Role of this node. An edge owns its data, and the cloud that it joined copies it; a cloud stores copies of its edges and answers for them; a dispatcher sends queries to the clouds and edges that answer them.",
        codec: Codec::Own {
            set: |s, text| {
                let found = NodeRole::ALL.into_iter().find(|role| role.name() == text);
                s.sync.role = found.ok_or("not one of the four")?;
                Ok(())
            },
            show: |s| s.sync.role.name().to_owned(),
        },
    },
    Setting {
        key: "sync.rate",
        kind: "SIZE",
        allowed: "1 and more, or unlimited",
        about: "Most bytes a second that an edge exchanges with its cloud, in both directions.",
        codec: Codec::Own {
            set: |s, text| limit(text).map(|bytes| s.sync.rate = bytes),
            show: |s| show_limit(s.sync.rate),
        },
    },
    Setting {
        key: "sync.day_max",
        kind: "SIZE",
        allowed: "1 and more, or unlimited",
        about: "Most bytes that an edge exchanges with its cloud on one day (UTC), in both directions.",
        codec: Codec::Own {
            set: |s, text| limit(text).map(|bytes| s.sync.day_max = bytes),
            show: |s| show_limit(s.sync.day_max),
        },
    },
    Setting {
        key: "sync.month_max",
        kind: "SIZE",
        allowed: "1 and more, or unlimited",
        about: "Most bytes that an edge exchanges with its cloud in one month (UTC), in both directions.",
        codec: Codec::Own {
            set: |s, text| limit(text).map(|bytes| s.sync.month_max = bytes),
            show: |s| show_limit(s.sync.month_max),
        },
    },
    Setting {
        key: "sync.quiet_hours",
        kind: "HOURS",
        allowed: "comma-separated spans such as 22:00-06:00, or nothing",
        about: "When an edge sends nothing to its cloud (UTC).",
        codec: Codec::Own {
            set: |s, text| quiet_hours(text).map(|quiet| s.sync.quiet_hours = quiet),
            show: |s| show_quiet_hours(&s.sync.quiet_hours),
        },
    },
    Setting {
        key: "sync.hold_bytes",
        kind: "SIZE",
        allowed: "0 and more",
        about: "Bytes of replaced files that an edge retains while they are being fetched. Beyond that the oldest are removed, and the cloud fetches their replacements.",
        codec: Codec::Own {
            set: |s, text| parse_size(text).map(|bytes| s.sync.hold_bytes = bytes),
            show: |s| show_size(s.sync.hold_bytes),
        },
    },
    Setting {
        key: "sync.flush_every",
        kind: "DURATION",
        allowed: "1s to 7d, or never",
        about: "How long events may stay in an edge's memory, where no copy sees them, while the cloud is connected. Shorter times show events sooner and cost more writes.",
        codec: Codec::Own {
            set: |s, text| {
                s.sync.flush_every = match text {
                    "never" => None,
                    _ => {
                        let range = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
                        Some(duration_within(text, range)?)
                    }
                };
                Ok(())
            },
            show: |s| {
                s.sync
                    .flush_every
                    .map_or_else(|| "never".to_owned(), show_duration)
            },
        },
    },
    Setting {
        key: "sync.live",
        kind: "DURATION",
        allowed: "1s to 1h, or never",
        about: "Shortest interval at which an edge sends its newest events before a flush stores them, so that the cloud shows them within about this time. They are sent again once they are stored.",
        codec: Codec::Own {
            set: |s, text| {
                s.sync.live = match text {
                    "never" => None,
                    _ => {
                        let range = Duration::from_secs(1)..=Duration::from_secs(3600);
                        Some(duration_within(text, range)?)
                    }
                };
                Ok(())
            },
            show: |s| {
                let live = s.sync.live;
                live.map_or_else(|| "never".to_owned(), show_duration)
            },
        },
    },
    Setting {
        key: "sync.free",
        kind: "WHEN",
        allowed: "never or confirmed",
        about: "Whether an edge frees rows that its cloud has: once the cloud has proven that a partition is complete in its bucket (cloud.bucket) or at its peer (cloud.confirm = peer), too, only aggregates and newest rows stay here, and queries for other rows are answered that they are elsewhere. Without either, nothing is freed.",
        codec: Codec::Own {
            set: |s, text| {
                s.sync.frees = match text {
                    "never" => false,
                    "confirmed" => true,
                    _ => return Err("neither of the two".to_owned()),
                };
                Ok(())
            },
            show: |s| {
                let frees = s.sync.frees;
                let text = if frees { "confirmed" } else { "never" };
                text.to_owned()
            },
        },
    },
    Setting {
        key: "sync.full",
        kind: "WHAT",
        allowed: "refuse or lose-raw",
        about: "What an edge does when its disk is full: refuse new rows until there is room, or lose its oldest rows, of which aggregates stay. Rows that the cloud has, as sync.free requires, go first. Each loss is logged, and counted in sync status and metrics.",
        codec: Codec::Own {
            set: |s, text| {
                s.sync.loses_raw = match text {
                    "refuse" => false,
                    "lose-raw" => true,
                    _ => return Err("neither of the two".to_owned()),
                };
                Ok(())
            },
            show: |s| {
                let text = if s.sync.loses_raw {
                    "lose-raw"
                } else {
                    "refuse"
                };
                text.to_owned()
            },
        },
    },
    Setting {
        key: "sync.free_after",
        kind: "DURATION",
        allowed: "0s to 3650d",
        about: "Minimum age of rows that are freed (sync.free), by their own times.",
        codec: Codec::Own {
            set: |s, text| {
                let range = Duration::ZERO..=Duration::from_secs(3650 * 86_400);
                s.sync.free_after = duration_within(text, range)?;
                Ok(())
            },
            show: |s| show_duration(s.sync.free_after),
        },
    },
    Setting {
        key: "sync.withhold",
        kind: "TABLES",
        allowed: "comma-separated names of tables, or nothing",
        about: "Tables that never leave an edge: no cloud gets their rows, nor the names of their streams.",
        codec: Codec::Own {
            set: |s, text| {
                let tables = text
                    .split(',')
                    .map(str::trim)
                    .filter(|name| !name.is_empty());
                s.sync.withhold = tables.map(str::to_owned).collect();
                Ok(())
            },
            show: |s| s.sync.withhold.join(","),
        },
    },
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn quiet_hours_read_back() {
        for text in ["", "22:00-06:00", "00:00-00:01,12:30-13:00"] {
            assert_eq!(show_quiet_hours(&quiet_hours(text).unwrap()), text);
        }
        for text in [
            "22-6",
            "22:00",
            "24:00-01:00",
            "1:00-2:00",
            "05:00-05:00",
            "+1:00-02:00",
        ] {
            assert!(quiet_hours(text).is_err(), "{text}");
        }
    }

    #[test]
    fn limits_read_back_and_nothing_is_not_a_limit() {
        for text in ["unlimited", "10MiB", "1"] {
            assert_eq!(show_limit(limit(text).unwrap()), text);
        }
        assert!(limit("0").is_err() && limit("-1").is_err());
    }
}
