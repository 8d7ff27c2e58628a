//! Possible locations of matches of a pattern, according to the pyramid and indexes.
//!
//! If every match has a symbol whose condition compares fields with values, the symbol can only be
//! at a row that may satisfy the condition. The match extends from there at most as far as the
//! pattern permits: a number of nanoseconds, or of rows. Rows out of reach are neither read nor
//! searched.
//!
//! Invariants: every match is completely within one of the searched ranges. Every row of the
//! streams that make one partition of the pattern is read there, and as many rows before and after
//! as `PREV` and `NEXT` need. The ranges of a partition do not change during a statement.
//! Concurrency: the first thread that needs a partition searches its ranges, the others wait.
//! Failure: an error of the engine ends the statement.

use super::filter::Condition;
use super::ranges::{earlier, joined, later, shared};
use super::request::{Direction, FieldConditions};
use crate::error::Result;
use crate::view::{Streams, TableView, View};
use datafusion::logical_expr::Expr;
use headwater::{ClosedRange, ScanSpec, StreamHandle, Timestamp};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Necessary conditions for a row of a symbol.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Anchor {
    pub(crate) symbol: String,
    pub(crate) range: ClosedRange,
    pub(super) conditions: FieldConditions,
}

impl Anchor {
    /// The conjunction of conditions on a row of the table; `None` when none of them can be looked
    /// up.
    pub(crate) fn of(symbol: &str, conditions: &[Expr], table: &TableView) -> Option<Anchor> {
        let mut anchor = Anchor {
            symbol: symbol.to_owned(),
            range: ClosedRange::ALL,
            conditions: FieldConditions::default(),
        };
        for condition in conditions {
            match Condition::of(condition, table) {
                Some(Condition::Time(range)) => anchor.range = anchor.range.intersect(&range),
                Some(Condition::Fields(filters)) => anchor.conditions.filters.extend(filters),
                Some(Condition::AnyOf(list)) => anchor.conditions.any_of.push(list),
                Some(Condition::Tags) | None => {}
            }
        }
        let says = anchor.range != ClosedRange::ALL || !anchor.conditions.is_empty();
        says.then_some(anchor)
    }
}

/// Possible locations of matches.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Near {
    Anywhere,
    /// Within reach of a row that may be an anchor, by its index in the list of anchors: rows of a
    /// match may precede and follow it.
    Anchor {
        anchor: usize,
        before: bool,
        behind: bool,
    },
    All(Vec<Near>),
    Any(Vec<Near>),
}

impl Near {
    fn is_anywhere(&self) -> bool {
        match self {
            Near::Anywhere => true,
            Near::Anchor { .. } => false,
            Near::All(all) => all.iter().all(Near::is_anywhere),
            Near::Any(ways) => ways.iter().any(Near::is_anywhere),
        }
    }
}

/// Reach of a match from any of its rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reach {
    Nanoseconds(i64),
    Rows(usize),
}

/// Bounds on the locations of a pattern's matches.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bounds {
    pub(crate) anchors: Vec<Anchor>,
    pub(crate) near: Near,
    pub(crate) reach: Reach,
    /// Rows before a match that the pattern needs, and rows after it.
    pub(crate) before: usize,
    pub(crate) behind: usize,
}

impl Bounds {
    /// Whether reach is counted in rows, which are searched one by one at the ends of ranges.
    fn count_rows(&self) -> bool {
        self.before > 0 || self.behind > 0 || matches!(self.reach, Reach::Rows(_))
    }
}

/// The ranges of a partition of a pattern; sorted, disjoint.
#[derive(Debug)]
pub(crate) struct Searched {
    /// Every match is within one of them.
    pub(crate) ranges: Vec<ClosedRange>,
    /// Ranges to read for them.
    pub(super) read: Vec<ClosedRange>,
}

/// Restriction of a scan to the rows that a search for a pattern needs.
#[derive(Debug)]
pub(crate) struct Skipping {
    number: u64,
    bounds: Bounds,
    streams: Arc<Streams>,
    range: ClosedRange,
    conditions: FieldConditions,
    /// The streams of each partition of the pattern.
    groups: Vec<Vec<u32>>,
    of_stream: HashMap<u32, usize>,
    of_tags: HashMap<Vec<Option<String>>, usize>,
}

/// Ranges that a statement has searched, by partition.
type SearchedRanges = Vec<Mutex<Option<Arc<Searched>>>>;

/// Maximum ranges that are searched for single rows: above, rows are not skipped.
const ROW_RANGES_MAX: usize = 1_000;
/// Ranges with fewer rows than this between them are read together: skipping these rows would not
/// save time.
const ROWS_APART: u64 = 512;

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Skipping {
    /// `None` when rows would not be skipped. `by` = the tags whose values make a partition of the
    /// pattern; `is_filtered` = the pattern does not use every row that is read.
    pub(super) fn new(
        bounds: Bounds,
        of: (&TableView, &Arc<Streams>, &[u32]),
        by: &[usize],
        (range, conditions, is_filtered): (ClosedRange, &FieldConditions, bool),
    ) -> Option<Skipping> {
        let (table, streams, places) = of;
        let is_filtered = is_filtered || !conditions.is_empty();
        if bounds.near.is_anywhere() || (is_filtered && bounds.count_rows()) {
            return None;
        }
        let mut skipping = Skipping {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            bounds,
            streams: Arc::clone(streams),
            range,
            conditions: conditions.clone(),
            groups: Vec::new(),
            of_stream: HashMap::new(),
            of_tags: HashMap::new(),
        };
        for stream in places {
            let name = streams.name(*stream)?;
            let tags = by.iter().map(|key| {
                let value = name.tag(table.keys.get(*key)?);
                Some(value.map(str::to_owned))
            });
            let tags: Vec<Option<String>> = tags.collect::<Option<_>>()?;
            let next = skipping.groups.len();
            let group = *skipping.of_tags.entry(tags).or_insert(next);
            skipping.of_stream.insert(*stream, group);
            match skipping.groups.get_mut(group) {
                Some(own) => own.push(*stream),
                None => skipping.groups.push(vec![*stream]),
            }
        }
        Some(skipping)
    }

    /// The ranges of the partition to which a stream belongs.
    pub(super) fn of_stream(&self, view: &View, stream: u32) -> Result<Option<Arc<Searched>>> {
        let group = self.of_stream.get(&stream);
        group.map(|group| self.of_group(view, *group)).transpose()
    }

    /// The ranges of the partition with these values of its tags.
    pub(crate) fn of_tags(
        &self,
        view: &View,
        tags: &[Option<String>],
    ) -> Result<Option<Arc<Searched>>> {
        let group = self.of_tags.get(tags);
        group.map(|group| self.of_group(view, *group)).transpose()
    }

    fn of_group(&self, view: &View, group: usize) -> Result<Arc<Searched>> {
        let all = view.shared(self.number, || -> SearchedRanges {
            self.groups.iter().map(|_| Mutex::default()).collect()
        })?;
        let Some(slot) = all.get(group) else {
            return Err(crate::Error::internal("a partition without its streams"));
        };
        let mut slot = slot.lock();
        if let Some(known) = &*slot {
            return Ok(Arc::clone(known));
        }
        let search = GroupSearch::new(self, view, group)?;
        let found = Arc::new(search.run()?);
        *slot = Some(Arc::clone(&found));
        Ok(found)
    }
}

impl fmt::Display for Skipping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only near ")?;
        for (at, anchor) in self.bounds.anchors.iter().enumerate() {
            let before = if at > 0 { "; " } else { "" };
            write!(f, "{before}{}: ", anchor.symbol)?;
            let mut conditions: Vec<String> = Vec::new();
            if anchor.range != ClosedRange::ALL {
                conditions.push(format!("time={}", crate::text::range(&anchor.range)));
            }
            conditions.extend(anchor.conditions.texts());
            write!(f, "{}", conditions.join(" AND "))?;
        }
        match self.bounds.reach {
            Reach::Nanoseconds(ns) if ns % 1_000_000_000 == 0 => {
                write!(f, " (within {} s)", ns / 1_000_000_000)
            }
            Reach::Nanoseconds(ns) => write!(f, " (within {ns} ns)"),
            Reach::Rows(rows) => write!(f, " (within {rows} rows)"),
        }
    }
}

/// The search for the ranges of one partition of the pattern.
struct GroupSearch<'a> {
    skipping: &'a Skipping,
    view: &'a View,
    streams: Vec<&'a StreamHandle>,
    /// Per anchor the ranges where it can be, once computed.
    anchors: Vec<Option<Vec<ClosedRange>>>,
}

impl<'a> GroupSearch<'a> {
    fn new(skipping: &'a Skipping, view: &'a View, group: usize) -> Result<GroupSearch<'a>> {
        let mut streams = Vec::new();
        for stream in skipping.groups.get(group).into_iter().flatten() {
            streams.extend(skipping.streams.handle(*stream, view.snapshot())?);
        }
        Ok(GroupSearch {
            anchors: vec![None; skipping.bounds.anchors.len()],
            skipping,
            view,
            streams,
        })
    }

    fn run(mut self) -> Result<Searched> {
        let whole = self.skipping.range;
        let ranges = match self.near(&self.skipping.bounds.near)? {
            None => vec![whole],
            Some(found) => shared(&joined(found, 0), &[whole]),
        };
        let bounds = &self.skipping.bounds;
        let mut read = Vec::with_capacity(ranges.len());
        if bounds.count_rows() && ranges.len() > ROW_RANGES_MAX {
            read.push(whole);
        } else {
            for range in &ranges {
                let first = self.rows_before(range.first, bounds.before)?;
                let last = self.rows_behind(range.last, bounds.behind)?;
                read.push(ClosedRange::new(first, last).intersect(&whole));
            }
        }
        let read = joined(read, self.ns_apart()?);
        Ok(Searched { ranges, read })
    }

    /// The ranges near anchors; `None` = anywhere.
    fn near(&mut self, near: &Near) -> Result<Option<Vec<ClosedRange>>> {
        Ok(match near {
            Near::Anywhere => None,
            Near::Anchor {
                anchor,
                before,
                behind,
            } => self.in_reach(*anchor, *before, *behind)?,
            Near::All(all) => {
                let mut found: Option<Vec<ClosedRange>> = None;
                for near in all {
                    let own = self.near(near)?;
                    found = match (found, own) {
                        (Some(a), Some(b)) => Some(shared(&a, &b)),
                        (a, b) => a.or(b),
                    };
                }
                found
            }
            Near::Any(ways) => {
                let mut found = Vec::new();
                for near in ways {
                    match self.near(near)? {
                        Some(own) => found.extend(own),
                        None => return Ok(None),
                    }
                }
                Some(joined(found, 0))
            }
        })
    }

    /// Ranges within reach of rows that can be the anchor.
    fn in_reach(
        &mut self,
        anchor: usize,
        before: bool,
        behind: bool,
    ) -> Result<Option<Vec<ClosedRange>>> {
        let known = self.anchors.get(anchor).cloned().flatten();
        let at = match known {
            Some(at) => at,
            None => {
                let at = self.anchor(anchor)?;
                if let Some(slot) = self.anchors.get_mut(anchor) {
                    *slot = Some(at.clone());
                }
                at
            }
        };
        let reach = self.skipping.bounds.reach;
        if matches!(reach, Reach::Rows(_)) && at.len() > ROW_RANGES_MAX {
            return Ok(None);
        }
        let mut out = Vec::with_capacity(at.len());
        for range in &at {
            let first = match (before, reach) {
                (false, _) => range.first,
                (true, Reach::Nanoseconds(ns)) => earlier(range.first, ns),
                (true, Reach::Rows(rows)) => self.rows_before(range.first, rows)?,
            };
            let last = match (behind, reach) {
                (false, _) => range.last,
                (true, Reach::Nanoseconds(ns)) => later(range.last, ns),
                (true, Reach::Rows(rows)) => self.rows_behind(range.last, rows)?,
            };
            out.push(ClosedRange::new(first, last));
        }
        Ok(Some(joined(out, 0)))
    }

    /// Ranges in which a row of any of the streams may be the anchor.
    fn anchor(&self, anchor: usize) -> Result<Vec<ClosedRange>> {
        let Some(anchor) = self.skipping.bounds.anchors.get(anchor) else {
            return Err(crate::Error::internal("a pattern without its anchor"));
        };
        let (scanned, own) = (&self.skipping.conditions, &anchor.conditions);
        let spec = ScanSpec {
            range: self.skipping.range.intersect(&anchor.range),
            fields: Some(Vec::new()),
            filters: [scanned.filters.as_slice(), &own.filters].concat(),
            any_of: [scanned.any_of.as_slice(), &own.any_of].concat(),
        };
        let mut found = Vec::new();
        if !spec.range.is_empty() {
            for stream in &self.streams {
                match stream.spans(self.view.snapshot(), &spec) {
                    Err(error) if error.kind() == headwater::ErrorKind::NotFound => {}
                    spans => found.extend(spans?),
                }
            }
        }
        Ok(joined(found, 0))
    }

    /// An instant from which on there are at least `rows` rows before another one, or all rows.
    fn rows_before(&self, at: Timestamp, rows: usize) -> Result<Timestamp> {
        self.rows_beyond(at, rows, Direction::Backwards)
    }

    fn rows_behind(&self, at: Timestamp, rows: usize) -> Result<Timestamp> {
        self.rows_beyond(at, rows, Direction::Forwards)
    }

    fn rows_beyond(&self, at: Timestamp, rows: usize, direction: Direction) -> Result<Timestamp> {
        let whole = self.skipping.range;
        if rows == 0 {
            return Ok(at);
        }
        // The stream whose instant is nearest; the others only add rows.
        let mut nearest: Option<Timestamp> = None;
        for stream in &self.streams {
            let mut end = at;
            let mut left = rows;
            while left > 0 {
                let Some(next) = self.row_beyond(stream, end, direction)? else {
                    break;
                };
                (end, left) = (next, left - 1);
            }
            if left == 0 {
                nearest = Some(match (nearest, direction) {
                    (None, _) => end,
                    (Some(known), Direction::Backwards) => known.max(end),
                    (Some(known), Direction::Forwards) => known.min(end),
                });
            }
        }
        Ok(nearest.unwrap_or(match direction {
            Direction::Backwards => whole.first,
            Direction::Forwards => whole.last,
        }))
    }

    /// The instant of the next row of a stream after an instant.
    fn row_beyond(
        &self,
        stream: &StreamHandle,
        at: Timestamp,
        direction: Direction,
    ) -> Result<Option<Timestamp>> {
        let (whole, snapshot) = (self.skipping.range, self.view.snapshot());
        let found = match direction {
            Direction::Backwards => {
                let range = ClosedRange::new(Timestamp::MIN, earlier(at, 1)).intersect(&whole);
                if at == Timestamp::MIN || range.is_empty() {
                    return Ok(None);
                }
                stream.last_row_in(snapshot, range)
            }
            Direction::Forwards => {
                let range = ClosedRange::new(later(at, 1), Timestamp::MAX).intersect(&whole);
                if at == Timestamp::MAX || range.is_empty() {
                    return Ok(None);
                }
                stream.first_row_in(snapshot, range)
            }
        };
        match found {
            Err(error) if error.kind() == headwater::ErrorKind::NotFound => Ok(None),
            found => Ok(found?),
        }
    }

    /// Approximate duration of [`ROWS_APART`] rows.
    fn ns_apart(&self) -> Result<i64> {
        let (mut rows, mut longest) = (0u64, 0i64);
        for stream in &self.streams {
            let info = match self.view.snapshot().stream_info(stream.name()) {
                Err(error) if error.kind() == headwater::ErrorKind::NotFound => continue,
                info => info.map_err(crate::Error::from)?,
            };
            if let (Some(first), Some(last)) = (info.first, info.last) {
                rows = rows.saturating_add(info.rows);
                longest = longest.max(last.as_nanos().saturating_sub(first.as_nanos()));
            }
        }
        let apart = i128::from(longest) * i128::from(ROWS_APART) / i128::from(rows.max(1));
        Ok(i64::try_from(apart).unwrap_or(i64::MAX))
    }
}
