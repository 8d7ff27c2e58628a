//! Reports of writes, status and checks.

use crate::day::Day;
use crate::plan::Plan;
use headwater_types::invariant::wide;
use serde::{Serialize, Serializer};

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A day that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blocked {
    /// The day concerned.
    pub day: Day,
    /// The error of the database.
    pub why: String,
}

/// Report of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Results of each table.
    pub tables: Vec<TableWritten>,
}

/// Files and rows that were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) days_written: u64,
    pub(crate) days_equal: u64,
    pub(crate) days_removed: u64,
    pub(crate) rows: u64,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Report of a write of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TableWritten {
    /// The table.
    pub table: String,
    /// Folder of the table in the lake.
    pub folder: String,
    /// Number of days that were written, replacing earlier content.
    pub days_written: u64,
    /// Number of days that were read, and equal the lake.
    pub days_equal: u64,
    /// Days that did not have to be read.
    pub days_unchanged: u64,
    /// Number of days that have no rows any more.
    pub days_removed: u64,
    /// Number of days that are retained in the lake while the database removes their rows because
    /// of their age.
    pub days_kept: u64,
    /// Days that are left for a later write.
    pub days_open: u64,
    /// Rows that were written.
    pub rows: u64,
    /// Files that were written.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of commits.
    pub commits: u64,
    /// Days that could not be read: their earlier content in the lake is unchanged.
    pub blocked: Vec<Blocked>,
    /// Files that were removed since no snapshot names them.
    pub swept: Swept,
}

/// Files that were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl TableWritten {
    pub(crate) fn new(table: &str, folder: &str) -> TableWritten {
        TableWritten {
            table: table.to_owned(),
            folder: folder.to_owned(),
            ..TableWritten::default()
        }
    }

    /// Counts the days that a plan leaves as they are.
    pub(crate) fn begin(&mut self, plan: &Plan) {
        self.days_unchanged = wide(plan.unchanged.len());
        self.days_kept = wide(plan.retained.len());
        self.days_open = wide(plan.open.len());
        let blocked = plan.blocked.iter();
        self.blocked = blocked
            .map(|(day, why)| Blocked {
                day: *day,
                why: why.clone(),
            })
            .collect();
    }

    /// Adds a committed tally.
    pub(crate) fn add(&mut self, tally: Tally) {
        self.days_written += tally.days_written;
        self.days_equal += tally.days_equal;
        self.days_removed += tally.days_removed;
        self.rows += tally.rows;
        self.files += tally.files;
        self.bytes += tally.bytes;
        self.commits += 1;
    }
}

/// Status of a lake beside its database.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Status of each table of the database.
    pub tables: Vec<TableStatus>,
    /// Folders of the lake that are of no table of the database.
    pub others: Vec<String>,
}

/// Status of a table of a lake beside the database.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TableStatus {
    /// The table.
    pub table: String,
    /// Folder of the table in the lake.
    pub folder: String,
    /// Commits; 0 = it is not in the lake.
    pub version: u64,
    /// The current snapshot.
    pub snapshot: Option<i64>,
    /// When it was committed, in milliseconds since 1970.
    pub committed_ms: Option<i64>,
    /// Days that are in the lake.
    pub days: u64,
    /// Their rows.
    pub rows: u64,
    /// Their files.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Number of days that are retained in the lake while the database removes their rows because
    /// of their age.
    pub days_kept: u64,
    /// Days that are not in the lake as the database has them.
    pub missing: Vec<Missing>,
}

/// Days that are not in a lake as the database has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The first.
    pub first: Day,
    /// The last day, inclusive.
    pub last: Day,
    /// The reason, in words.
    pub why: String,
}

impl Missing {
    /// Joins adjacent days with the same reason; the days are sorted.
    pub(crate) fn collect(days: impl Iterator<Item = (Day, String)>) -> Vec<Missing> {
        let mut all: Vec<Missing> = Vec::new();
        for (day, why) in days {
            match all.last_mut() {
                Some(before) if before.last.next() == day && before.why == why => before.last = day,
                _ => all.push(Missing {
                    first: day,
                    last: day,
                    why,
                }),
            }
        }
        all
    }
}

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Results of each table.
    pub tables: Vec<TableVerified>,
}

impl Verified {
    /// True if no mismatch was found; a lake that is behind is sound, too.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.tables.iter().all(|table| table.differences.is_empty())
    }
}

/// Result of a check of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TableVerified {
    /// The table.
    pub table: String,
    /// Days that are as the database has them.
    pub days: u64,
    /// Their rows.
    pub rows: u64,
    /// Days that the database has changed since.
    pub days_behind: u64,
    /// Number of days that are retained in the lake while the database removes their rows because
    /// of their age: their files were compared with the committed metadata, not with the database.
    pub days_kept: u64,
    /// Days that could not be read.
    pub blocked: Vec<Blocked>,
    /// Differences that are errors.
    pub differences: Vec<Difference>,
}

/// Something that is wrong with a day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Which day.
    pub day: Day,
    /// The difference, in words.
    pub what: String,
}
