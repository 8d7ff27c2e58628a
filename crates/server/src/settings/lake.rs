//! Settings of the lake: its location, and when it is updated.

use super::setting::{Codec, Setting, duration_within, or_never, show_or_never};
use super::values::show_duration;
use super::{NodeRole, SettingError, Settings};
use crate::built::HAS_SQL;
use std::path::Path;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
/// Longest time that the settings accept.
const MOST: Duration = Duration::from_secs(3650 * 86_400);

/// Settings of the lake.
#[derive(Debug, Clone)]
pub struct Lake {
    /// Folder or bucket of the lake; `None` = no lake.
    pub dir: Option<String>,
    /// Interval of writing; `None` = another program writes the lake, and this server only serves
    /// its catalog.
    pub every: Option<Duration>,
    /// Days that ended less than this ago are left for later; `None` = all days are written.
    pub closed_for: Option<Duration>,
    /// Retention of older snapshots of a table, for readers that still use them.
    pub keep_snapshots: Duration,
}

impl Default for Lake {
    fn default() -> Lake {
        Lake {
            dir: None,
            every: Some(Duration::from_secs(600)),
            closed_for: Some(Duration::from_secs(3600)),
            keep_snapshots: 5 * DAY,
        }
    }
}

pub(super) const TABLE: &[Setting] = &[
    Setting {
        key: "lake.dir",
        kind: "DIR",
        allowed: "a directory outside of the database's, s3://BUCKET/PREFIX as with cloud.bucket, or nothing",
        about: "Directory or bucket of the lake: the tables as Iceberg tables for other engines, which find them by the catalog at `/iceberg`. A cloud stores those of its edges there too. Not in programs built without `sql`.",
        codec: Codec::Own {
            set: |s, text| {
                s.lake.dir = (!text.is_empty()).then(|| text.to_owned());
                Ok(())
            },
            show: |s| s.lake.dir.clone().unwrap_or_else(String::new),
        },
    },
    Setting {
        key: "lake.every",
        kind: "DURATION",
        allowed: "1s to 3650d, or never",
        about: "How often the lake is updated from the database. With `never` the server only serves the catalog of the lake, and `headwater lake write` writes it.",
        codec: Codec::Own {
            set: |s, text| or_never(text, SECOND..=MOST).map(|found| s.lake.every = found),
            show: |s| show_or_never(s.lake.every),
        },
    },
    Setting {
        key: "lake.closed_for",
        kind: "DURATION",
        allowed: "1s to 3650d, or never",
        about: "Days that ended less than this ago are not written yet, so that the current day is not rewritten again and again. With `never` every day is written, including the current one.",
        codec: Codec::Own {
            set: |s, text| or_never(text, SECOND..=MOST).map(|found| s.lake.closed_for = found),
            show: |s| show_or_never(s.lake.closed_for),
        },
    },
    Setting {
        key: "lake.keep_snapshots",
        kind: "DURATION",
        allowed: "1s to 3650d",
        about: "How long older snapshots of a table of the lake are retained for their readers.",
        codec: Codec::Own {
            set: |s, text| {
                duration_within(text, SECOND..=MOST).map(|found| s.lake.keep_snapshots = found)
            },
            show: |s| show_duration(s.lake.keep_snapshots),
        },
    },
];

/// Checks across settings.
pub(super) fn together(settings: &Settings) -> Result<(), SettingError> {
    let Some(dir) = &settings.lake.dir else {
        return Ok(());
    };
    let is_bucket = dir.starts_with("s3://");
    let dir = dir.strip_prefix("file://").unwrap_or(dir);
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or(path.to_owned());
    let fault = match () {
        () if settings.sync.role == NodeRole::Dispatcher => {
            "a dispatcher stores nothing: lake.dir belongs to an edge or a cloud"
        }
        () if !is_bucket && absolute(Path::new(dir)).starts_with(absolute(settings.db())) => {
            "lake.dir is inside the directory of the database, which only the database may write to: choose another directory"
        }
        () if !HAS_SQL => {
            "lake.dir: this program was built without SQL (the feature `sql`), and so without lakes"
        }
        () => return Ok(()),
    };
    Err(SettingError::Together(fault.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_lake_is_no_part_of_a_database_and_belongs_to_a_node_that_has_one() {
        let mut settings = Settings::new("db");
        assert!(together(&settings).is_ok());
        for (dir, is_fine) in [
            ("lake", true),
            ("db", false),
            ("db/lake", false),
            ("db2", true),
            ("s3://plants/lake", true),
            ("file:///elsewhere/lake", true),
        ] {
            settings.lake.dir = Some(dir.into());
            let found = together(&settings);
            assert_eq!(found.is_ok(), is_fine && HAS_SQL, "{dir}");
        }
        settings.sync.role = NodeRole::Dispatcher;
        let refused = together(&settings).unwrap_err().to_string();
        assert!(refused.contains("dispatcher"), "{refused}");
    }
}
