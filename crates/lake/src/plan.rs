//! Planning of a write: the days of a table that differ between the lake and the database.
//!
//! Invariants: a day whose version is the recorded one has the rows that were written. Days before
//! the table's floor, whose rows are removed because of their age, are unchanged in the lake; days
//! that cannot be read are unchanged, too, and reported. Memory: for each day read, the numbers of
//! its streams.

use crate::columns::Columns;
use crate::day::{DAY_NS, Day, Days};
use crate::error::{LakeError, Result};
use crate::metadata::Recorded;
use crate::rollup::Rollup;
use crate::rows::{NeedsRest, WalkResult, sort_streams, walk};
use arrow::array::RecordBatch;
use headwater::{
    Bins, ClosedRange, ErrorKind, Snapshot, StreamName, Stretch, Stretches, SummarySpec, Timestamp,
};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Rows of a day, as the database counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DayRows {
    pub(crate) rows: u64,
    /// Streams that have some, by their places in [`Plan::streams`].
    pub(crate) streams: Vec<usize>,
}

/// A plan of a write.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The streams in the order of files.
    pub(crate) streams: Vec<StreamName>,
    /// Days to be read, and perhaps written.
    pub(crate) due: BTreeMap<Day, DayRows>,
    /// Days without rows now.
    pub(crate) emptied: BTreeSet<Day>,
    /// Days that are as they were written.
    pub(crate) unchanged: BTreeSet<Day>,
    /// Days that are unchanged in the lake, since the database removes their rows because of their
    /// age.
    pub(crate) retained: BTreeSet<Day>,
    /// Days that are not over, or not for long enough.
    pub(crate) open: BTreeSet<Day>,
    /// Days that cannot be read, and why.
    pub(crate) blocked: BTreeMap<Day, String>,
    stretches: Stretches,
    /// Rows before this instant are removed, or will be.
    cut: Option<Timestamp>,
    /// The plan is of a rollup, not of rows.
    rollup: Option<Rollup>,
}

/// Input of a plan.
pub(crate) struct PlanRequest<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) table: &'a str,
    pub(crate) columns: &'a Columns,
    pub(crate) stretches: Stretches,
    pub(crate) recorded: &'a BTreeMap<Day, Recorded>,
    /// All days have to be checked.
    pub(crate) all: bool,
    /// Rollup of the aged data, if the plan is for the rollup's table.
    pub(crate) rollup: Option<Rollup>,
    /// Days that end at or after this instant are left for later.
    pub(crate) until: Option<Timestamp>,
}

impl Plan {
    pub(crate) fn make(asked: PlanRequest<'_>) -> Result<Plan> {
        let PlanRequest {
            snapshot, recorded, ..
        } = asked;
        let streams = match &asked.rollup {
            Some(rollup) => rollup.names(),
            None => {
                let mut streams = snapshot.streams(asked.table, &[])?;
                sort_streams(&mut streams, asked.columns);
                streams
            }
        };
        let mut plan = Plan {
            streams,
            due: BTreeMap::new(),
            emptied: BTreeSet::new(),
            unchanged: BTreeSet::new(),
            retained: BTreeSet::new(),
            open: BTreeSet::new(),
            blocked: BTreeMap::new(),
            cut: match asked.rollup {
                Some(_) => snapshot.table_info(asked.table)?.cut,
                None => asked.stretches.floor,
            },
            stretches: asked.stretches,
            rollup: asked.rollup,
        };
        for (day, of) in recorded {
            if plan.is_retained(*day) {
                plan.retained.insert(*day);
            } else if !asked.all && of.version.is_some() && of.version == plan.version(*day) {
                plan.unchanged.insert(*day);
            }
        }
        let done = plan.retained.union(&plan.unchanged).copied();
        let left = Days::without(plan.spans(), done);
        match plan.rollup {
            // The number of rows is known once they are computed.
            Some(_) => plan.take_all(left),
            None => plan.count(snapshot, &left)?,
        }
        let is_done = |day: &Day| plan.retained.contains(day) || plan.unchanged.contains(day);
        let absent = |day: &&Day| !plan.due.contains_key(day) && !plan.blocked.contains_key(day);
        plan.emptied = recorded
            .keys()
            .filter(|day| !is_done(day))
            .filter(absent)
            .copied()
            .collect();
        if let Some(until) = asked.until {
            plan.leave_open(until);
        }
        Ok(plan)
    }

    /// The days that are not over at an instant are left for later.
    fn leave_open(&mut self, until: Timestamp) {
        let is_open = |day: &Day| day.range().last >= until;
        self.open.extend(self.due.keys().filter(|day| is_open(day)));
        self.open
            .extend(self.emptied.iter().filter(|day| is_open(day)));
        self.due.retain(|day, _| !is_open(day));
        self.emptied.retain(|day| !is_open(day));
    }

    /// The days that may have rows.
    fn spans(&self) -> Vec<Days> {
        match &self.rollup {
            Some(rollup) => rollup.days(&self.stretches),
            None => {
                let spans = self.stretches.all.iter().map(|s| Days::of(&s.range));
                Days::union(spans.collect())
            }
        }
    }

    /// All of these days are checked, for all streams.
    fn take_all(&mut self, days: Vec<Days>) {
        let all: Vec<usize> = (0..self.streams.len()).collect();
        let days = days.into_iter().flat_map(Days::each);
        let days: Vec<Day> = days.filter(|day| !self.is_retained(*day)).collect();
        self.due.extend(days.into_iter().map(|day| {
            let found = DayRows {
                rows: 0,
                streams: all.clone(),
            };
            (day, found)
        }));
    }

    /// Hands the rows of a day to `sink`, batch by batch.
    pub(crate) fn walk(
        &self,
        snapshot: &Snapshot,
        columns: &Columns,
        (day, found): (Day, &DayRows),
        sink: &mut dyn FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<WalkResult> {
        if let Some(rollup) = &self.rollup {
            return rollup.walk(snapshot, columns, day, sink);
        }
        let places = found.streams.iter();
        let mut streams = places.filter_map(|place| self.streams.get(*place));
        walk(snapshot, columns, day, &mut streams, sink)
    }

    /// Days that are due and are not in the table, except days without rows.
    pub(crate) fn absent(
        &self,
        snapshot: &Snapshot,
        columns: &Columns,
        recorded: &BTreeMap<Day, Recorded>,
    ) -> Result<Vec<Day>> {
        let columns = columns.with_rest();
        let mut absent = Vec::new();
        for (day, found) in &self.due {
            let mut has_rows = found.rows > 0;
            if !self.counts() && !recorded.contains_key(day) {
                let walked = self.walk(snapshot, &columns, (*day, found), &mut |_| {
                    has_rows = true;
                    Ok(())
                });
                walked?.map_err(|NeedsRest| {
                    LakeError::internal("times need a column that does not exist")
                })?;
            }
            if has_rows && !recorded.contains_key(day) {
                absent.push(*day);
            }
        }
        Ok(absent)
    }

    /// Whether rows are counted before they are read.
    pub(crate) fn counts(&self) -> bool {
        self.rollup.is_none()
    }

    /// Whether rows of a day go because of their age.
    fn is_retained(&self, day: Day) -> bool {
        self.cut.is_some_and(|cut| day.range().first < cut)
    }

    /// The range of rows of a day.
    fn range(&self, day: Day) -> ClosedRange {
        match &self.rollup {
            Some(rollup) => rollup.range(day),
            None => day.range(),
        }
    }

    /// Stretches that meet a range.
    fn meeting(&self, range: ClosedRange) -> impl Iterator<Item = &Stretch> {
        // They are sorted by their first instants.
        let end = self
            .stretches
            .all
            .partition_point(|s| s.range.first <= range.last);
        let begun = self.stretches.all.iter().take(end);
        begun.filter(move |s| s.range.overlaps(&range))
    }

    /// The database's version of a day: equal versions imply equal rows. `None` = no lasting
    /// version.
    pub(crate) fn version(&self, day: Day) -> Option<String> {
        let range = self.range(day);
        let mut hash = Sha256::new();
        if let Some(rollup) = &self.rollup {
            hash.update(rollup.salt());
        }
        for stretch in self.meeting(range) {
            let inside = stretch.range.intersect(&range);
            hash.update(stretch.imprint?);
            hash.update(inside.first.as_nanos().to_le_bytes());
            hash.update(inside.last.as_nanos().to_le_bytes());
        }
        let hash = hash.finalize();
        Some(
            hash.iter()
                .take(16)
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        )
    }

    /// Days of which only aggregates remain, except those that are in the lake.
    pub(crate) fn aged(&self) -> BTreeSet<Day> {
        let aged = self.stretches.all.iter().filter(|s| s.is_aged);
        let spans = Days::union(aged.map(|s| Days::of(&s.range)).collect());
        let days = spans.into_iter().flat_map(Days::each);
        days.filter(|day| !self.retained.contains(day) && !self.due.contains_key(day))
            .collect()
    }

    /// Counts the rows of days.
    fn count(&mut self, snapshot: &Snapshot, all: &[Days]) -> Result<()> {
        let streams = std::mem::take(&mut self.streams);
        for (place, stream) in streams.iter().enumerate() {
            let mut left: Vec<Days> = all.to_vec();
            while let Some(days) = left.pop() {
                match count(snapshot, stream, days) {
                    Ok(counted) => {
                        for (day, rows) in counted {
                            let found = self.due.entry(day).or_default();
                            found.rows += rows;
                            found.streams.push(place);
                        }
                    }
                    Err(error) if is_local(error.kind()) && days.first < days.last => {
                        left.extend(halves(days));
                    }
                    Err(error) if is_local(error.kind()) => {
                        self.blocked
                            .entry(days.first)
                            .or_insert_with(|| error.to_string());
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.streams = streams;
        self.due
            .retain(|day, found| found.rows > 0 && !self.blocked.contains_key(day));
        for found in self.due.values_mut() {
            // Days were read in any order, streams one after another.
            found.streams.dedup();
        }
        Ok(())
    }
}

/// Whether an error concerns only a span of time, and not other spans.
pub(crate) fn is_local(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corrupt | ErrorKind::Elsewhere)
}

fn halves(days: Days) -> [Days; 2] {
    let middle = i32::midpoint(days.first.number(), days.last.number());
    let middle = Day::from_number(middle);
    [
        Days {
            first: days.first,
            last: middle,
        },
        Days {
            first: middle.next(),
            last: days.last,
        },
    ]
}

/// The rows of a stream on each day that has some.
fn count(
    snapshot: &Snapshot,
    stream: &StreamName,
    days: Days,
) -> headwater::Result<Vec<(Day, u64)>> {
    let spec = SummarySpec {
        range: days.range(),
        bins: Bins::Every {
            width_ns: DAY_NS,
            origin_ns: 0,
        },
        fields: Vec::new(),
    };
    let bins = snapshot.summary(stream, &spec)?.into_iter();
    let day = |number: i128| i32::try_from(number).ok().map(Day::from_number);
    Ok(bins
        .filter_map(|bin| Some((day(bin.number)?, bin.rows)))
        .collect())
}
