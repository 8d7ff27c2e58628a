//! Where matches of a pattern can be, by what the pyramid and indexes say of its symbols.
//!
//! A symbol that every match has, and whose condition compares fields with values, may stand only
//! where a row may meet that. A match that has it reaches no further from there than the pattern
//! allows: so many nanoseconds, or so many rows. What is out of reach is neither read nor searched.
//!
//! Invariants: every match lies in one of the ranges that are searched, all of it; of the streams
//! that make one partition of the pattern every row there is read, and so many rows before and
//! behind as `PREV` and `NEXT` go. What is found for a partition is the same for all who ask within
//! one statement.
//! Concurrency: whoever needs a partition first looks for its ranges, the others wait.
//! Failure: what the engine reports ends the statement.

use super::filter::Condition;
use super::ranges::{earlier, joined, later, shared};
use super::scan::Asked;
use crate::error::Result;
use crate::view::{Streams, TableView, View};
use datafusion::logical_expr::Expr;
use headwater::{ClosedRange, ScanSpec, StreamHandle, Timestamp};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a row of a symbol meets, at the least.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Anchor {
    pub(crate) symbol: String,
    pub(crate) range: ClosedRange,
    pub(super) asked: Asked,
}

impl Anchor {
    /// What conditions say that must all be true of a row of the table; `None` when that is nothing
    /// that could be looked up.
    pub(crate) fn of(symbol: &str, conditions: &[Expr], table: &TableView) -> Option<Anchor> {
        let mut anchor = Anchor {
            symbol: symbol.to_owned(),
            range: ClosedRange::ALL,
            asked: Asked::default(),
        };
        for condition in conditions {
            match Condition::of(condition, table) {
                Some(Condition::Time(range)) => anchor.range = anchor.range.intersect(&range),
                Some(Condition::Fields(filters)) => anchor.asked.filters.extend(filters),
                Some(Condition::AnyOf(list)) => anchor.asked.any_of.push(list),
                Some(Condition::Tags) | None => {}
            }
        }
        let says = anchor.range != ClosedRange::ALL || !anchor.asked.is_empty();
        says.then_some(anchor)
    }
}

/// Where matches can be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Near {
    Anywhere,
    /// In reach of a row that may be an anchor, by its place in the list of them: rows of a match
    /// may stand before it, and behind it.
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

/// How far a match reaches from any of its rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reach {
    Nanoseconds(i64),
    Rows(usize),
}

/// What a pattern says of where its matches can be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bounds {
    pub(crate) anchors: Vec<Anchor>,
    pub(crate) near: Near,
    pub(crate) reach: Reach,
    /// Rows before those of a match that are asked for, and behind them.
    pub(crate) before: usize,
    pub(crate) behind: usize,
}

impl Bounds {
    /// Rows are looked for one by one, at the ends of ranges.
    fn count_rows(&self) -> bool {
        self.before > 0 || self.behind > 0 || matches!(self.reach, Reach::Rows(_))
    }
}

/// The ranges of a partition of a pattern; sorted, apart.
#[derive(Debug)]
pub(crate) struct Searched {
    /// Every match lies in one of them.
    pub(crate) ranges: Vec<ClosedRange>,
    /// What is read for them.
    pub(super) read: Vec<ClosedRange>,
}

/// What a scan reads of streams whose rows are searched for a pattern.
#[derive(Debug)]
pub(crate) struct Skipping {
    number: u64,
    bounds: Bounds,
    streams: Arc<Streams>,
    range: ClosedRange,
    asked: Asked,
    /// The streams of each partition of the pattern.
    groups: Vec<Vec<u32>>,
    of_stream: HashMap<u32, usize>,
    of_tags: HashMap<Vec<Option<String>>, usize>,
}

/// What one statement has found, by partition.
type Found = Vec<Mutex<Option<Arc<Searched>>>>;

/// Ranges that are looked into for single rows, at most: beyond, nothing is skipped.
const ROW_RANGES_MAX: usize = 1_000;
/// Rows between ranges that are read along with them: leaving them out would save nothing.
const ROWS_APART: u64 = 512;

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Skipping {
    /// `None` when nothing would be skipped. `by` = the tags whose values make a partition of the
    /// pattern; `is_filtered` = not every row that is read is a row of the pattern.
    pub(super) fn new(
        bounds: Bounds,
        of: (&TableView, &Arc<Streams>, &[u32]),
        by: &[usize],
        (range, asked, is_filtered): (ClosedRange, &Asked, bool),
    ) -> Option<Skipping> {
        let (table, streams, places) = of;
        let is_filtered = is_filtered || !asked.is_empty();
        if bounds.near.is_anywhere() || (is_filtered && bounds.count_rows()) {
            return None;
        }
        let mut skipping = Skipping {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            bounds,
            streams: Arc::clone(streams),
            range,
            asked: asked.clone(),
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

    /// The ranges of the partition that a stream is of.
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
        let all = view.keep(self.number, || -> Found {
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
            conditions.extend(anchor.asked.texts());
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
    /// Of each anchor, where it can be, once somebody asked.
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

    /// `None` = anywhere.
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

    /// What a match with a row that is the anchor can reach.
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

    /// Where a row of any of the streams may be the anchor.
    fn anchor(&self, anchor: usize) -> Result<Vec<ClosedRange>> {
        let Some(anchor) = self.skipping.bounds.anchors.get(anchor) else {
            return Err(crate::Error::internal("a pattern without its anchor"));
        };
        let (scanned, own) = (&self.skipping.asked, &anchor.asked);
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

    /// An instant from which on there are at least so many rows before another one, or all there
    /// are.
    fn rows_before(&self, at: Timestamp, rows: usize) -> Result<Timestamp> {
        self.rows_beyond(at, rows, Side::Before)
    }

    fn rows_behind(&self, at: Timestamp, rows: usize) -> Result<Timestamp> {
        self.rows_beyond(at, rows, Side::Behind)
    }

    fn rows_beyond(&self, at: Timestamp, rows: usize, side: Side) -> Result<Timestamp> {
        let whole = self.skipping.range;
        if rows == 0 {
            return Ok(at);
        }
        // The stream that has so many rows nearest; of the others there are only more.
        let mut nearest: Option<Timestamp> = None;
        for stream in &self.streams {
            let mut end = at;
            let mut left = rows;
            while left > 0 {
                let Some(next) = self.row_beyond(stream, end, side)? else {
                    break;
                };
                (end, left) = (next, left - 1);
            }
            if left == 0 {
                nearest = Some(match (nearest, side) {
                    (None, _) => end,
                    (Some(known), Side::Before) => known.max(end),
                    (Some(known), Side::Behind) => known.min(end),
                });
            }
        }
        Ok(nearest.unwrap_or(match side {
            Side::Before => whole.first,
            Side::Behind => whole.last,
        }))
    }

    /// The instant of the next row of a stream beyond an instant.
    fn row_beyond(
        &self,
        stream: &StreamHandle,
        at: Timestamp,
        side: Side,
    ) -> Result<Option<Timestamp>> {
        let (whole, snapshot) = (self.skipping.range, self.view.snapshot());
        let found = match side {
            Side::Before => {
                let range = ClosedRange::new(Timestamp::MIN, earlier(at, 1)).intersect(&whole);
                if at == Timestamp::MIN || range.is_empty() {
                    return Ok(None);
                }
                stream.last_row_in(snapshot, range)
            }
            Side::Behind => {
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

    /// How long it takes, about, until [`ROWS_APART`] rows have come.
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

/// A side of an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Before,
    Behind,
}
