//! Raw rows of all series of a group together.
//!
//! Invariants: with a limit, at most twice as many rows as it allows are in memory, however many
//! there are; newest rows are searched from the end backwards; rows of one instant are sorted by
//! their texts and tags, by the names of their columns, then by the order of their series; rows
//! that are streamed are read in ranges of time that fit the memory.

use super::arithmetic::operate;
use super::measurements::Member;
use super::plan::{Node, Plan};
use super::{Cell, Evaluator, cells_bytes};
use crate::budget::VALUE_BYTES;
use crate::error::{Error, QueryErrorKind};
use crate::windows::narrow;
use headwater::{ClosedRange, ScanChunk, Timestamp, Value, ValueRef};
use std::cmp::Ordering;

/// Maximum memory of the rows of one range that is streamed.
const STRETCH_BYTES: usize = 100_000 * VALUE_BYTES;

/// One row of a computed answer.
pub(super) struct Computed {
    pub(super) time: i64,
    pub(super) cells: Vec<Cell>,
}

/// A row, and the index of its member.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) time: i64,
    member: usize,
    pub(super) cells: Vec<Cell>,
}

/// Range, order and limit of a read of rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowRequest {
    pub(super) range: ClosedRange,
    pub(super) descending: bool,
    /// Maximum number of useful rows.
    pub(super) limit: Option<usize>,
}

struct Collector<'a> {
    evaluator: &'a Evaluator<'a>,
    plan: &'a Plan,
    request: RowRequest,
    /// Columns that may be texts, by name.
    texts: Vec<usize>,
    rows: Vec<Row>,
}

impl Evaluator<'_> {
    /// The rows of a group, in the requested order.
    pub(super) fn raw(
        &self,
        plan: &Plan,
        members: &[&Member],
        request: RowRequest,
    ) -> Result<Vec<Row>, Error> {
        let mut collector = Collector {
            evaluator: self,
            plan,
            request,
            texts: plan.texts(),
            rows: Vec::new(),
        };
        for (index, member) in members.iter().enumerate() {
            if request.descending && request.limit.is_some() {
                collector.newest(index, member)?;
            } else {
                collector.take(index, member, collector.request.range)?;
            }
            let keep = request.limit.unwrap_or(usize::MAX);
            if collector.rows.len() > keep.saturating_mul(2) {
                collector.prune(keep);
            }
        }
        collector.prune(request.limit.unwrap_or(usize::MAX));
        Ok(collector.rows)
    }
}

impl Evaluator<'_> {
    /// Passes the rows of a group to `each`, in the requested order, until it returns false. Rows
    /// that were passed are not retained.
    pub(super) fn in_stretches(
        &self,
        plan: &Plan,
        members: &[&Member],
        wanted: RowRequest,
        each: &mut dyn FnMut(Vec<Row>) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let mut left = ClosedRange::EMPTY;
        for member in members {
            let range = member.extent.intersect(&wanted.range);
            if left.is_empty() {
                left = range;
            } else if !range.is_empty() {
                left = ClosedRange::new(left.first.min(range.first), left.last.max(range.last));
            }
        }
        let width = |range: &ClosedRange| {
            i128::from(range.last.as_nanos()) - i128::from(range.first.as_nanos()) + 1
        };
        let mut step = width(&left);
        while !left.is_empty() {
            let (stretch, rest) = split_first(left, step, wanted.descending);
            assert!(!stretch.is_empty(), "a stretch holds an instant");
            let before = self.budget.bytes_in_use();
            let is_one_instant = width(&stretch) == 1;
            if !is_one_instant {
                self.budget.cap(STRETCH_BYTES);
            }
            let part = RowRequest {
                range: stretch,
                descending: wanted.descending,
                limit: None,
            };
            let rows = self.raw(plan, members, part);
            self.budget.uncap();
            let rows = match rows {
                Err(error) if error.kind() == QueryErrorKind::Limit && !is_one_instant => {
                    self.budget.keep_only(before, 0)?;
                    step = (width(&stretch) / 4).max(1);
                    continue;
                }
                rows => rows?,
            };
            let used: usize = rows.iter().map(|row| row_bytes(&row.cells)).sum();
            if used < STRETCH_BYTES / 4 {
                step = step.saturating_mul(2);
            }
            let goes_on = rows.is_empty() || each(rows)?;
            // The receiver counts its own memory.
            self.budget.give_bytes(used);
            if !goes_on {
                return Ok(());
            }
            left = rest;
        }
        Ok(())
    }
}

/// Approximate bytes of a row in memory.
fn row_bytes(cells: &[Cell]) -> usize {
    VALUE_BYTES + cells_bytes(cells)
}

/// The first part of a range in the order of the answer, of `width` ns, and the rest of it.
fn split_first(range: ClosedRange, width: i128, descending: bool) -> (ClosedRange, ClosedRange) {
    let (first, last) = (range.first.as_nanos(), range.last.as_nanos());
    if width > i128::from(last) - i128::from(first) {
        return (range, ClosedRange::EMPTY);
    }
    if descending {
        let from = narrow(i128::from(last) - width + 1);
        (
            ClosedRange::nanos(from, last),
            ClosedRange::nanos(first, from - 1),
        )
    } else {
        let to = narrow(i128::from(first) + width - 1);
        (
            ClosedRange::nanos(first, to),
            ClosedRange::nanos(to + 1, last),
        )
    }
}

/// Orders cells by their texts; other cells sort before texts.
fn text_order(a: Option<&Cell>, b: Option<&Cell>) -> Ordering {
    let text = |cell: Option<&Cell>| match cell {
        Some(Cell::Value(Value::String(text))) => Some(text.clone()),
        _ => None,
    };
    text(a).cmp(&text(b))
}

impl Collector<'_> {
    /// Reads a member's rows of a range; with a limit and in ascending order only the useful rows.
    /// Returns their number.
    fn take(&mut self, index: usize, member: &Member, range: ClosedRange) -> Result<usize, Error> {
        let limit = match self.request.descending {
            true => usize::MAX,
            false => self.request.limit.unwrap_or(usize::MAX),
        };
        let before = self.rows.len();
        if limit == 0 {
            return Ok(0);
        }
        let (asker, plan) = (self.evaluator, self.plan);
        let rows = &mut self.rows;
        asker.each_chunk(member, &plan.read, range, &[], &mut |chunk, chosen| {
            for row in chosen {
                let row = *row as usize;
                let Some(time) = chunk.times.get(row) else {
                    continue;
                };
                let (cells, has_value) = cells(plan, member, chunk, row);
                if !has_value {
                    continue;
                }
                asker.budget.take_bytes(row_bytes(&cells))?;
                rows.push(Row {
                    time: *time,
                    member: index,
                    cells,
                });
                if rows.len() - before >= limit {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        Ok(self.rows.len() - before)
    }

    /// Reads a member's newest rows: from the end backwards, each range twice as long as the
    /// previous one.
    fn newest(&mut self, index: usize, member: &Member) -> Result<(), Error> {
        let keep = self.request.limit.unwrap_or(usize::MAX);
        let mut range = self.request.range.intersect(&member.extent);
        let length = i128::from(range.last.as_nanos()) - i128::from(range.first.as_nanos());
        let mut step = (length / 4_096).max(1_000_000_000);
        let mut taken = 0;
        while !range.is_empty() && taken < keep {
            let from = i128::from(range.last.as_nanos()) - step;
            let first = i64::try_from(from).map_or(range.first, Timestamp::from_nanos);
            let first = first.max(range.first);
            taken += self.take(index, member, ClosedRange::new(first, range.last))?;
            range = ClosedRange::half_open(range.first, first);
            step = step.saturating_mul(2);
        }
        Ok(())
    }

    /// Sorts the rows, removes rows above the limit, and narrows the range of further reads.
    fn prune(&mut self, keep: usize) {
        let (texts, descending) = (&self.texts, self.request.descending);
        self.rows.sort_by(|a, b| {
            let by_text = |a: &Row, b: &Row| {
                let cells = texts.iter().map(|at| (a.cells.get(*at), b.cells.get(*at)));
                let orders = cells.map(|(a, b)| text_order(a, b));
                orders.fold(Ordering::Equal, Ordering::then)
            };
            let order = a.time.cmp(&b.time);
            let order = order
                .then_with(|| by_text(a, b))
                .then(a.member.cmp(&b.member));
            if descending { order.reverse() } else { order }
        });
        if self.rows.len() <= keep {
            return;
        }
        let lost = self
            .rows
            .drain(keep..)
            .map(|row| row_bytes(&row.cells))
            .sum();
        self.evaluator.budget.give_bytes(lost);
        if let Some(last) = self.rows.last() {
            let at = Timestamp::from_nanos(last.time);
            let useful = match self.request.descending {
                true => ClosedRange::new(at, Timestamp::MAX),
                false => ClosedRange::new(Timestamp::MIN, at),
            };
            self.request.range = self.request.range.intersect(&useful);
        }
    }
}

/// The cells of a row, and whether one of them is from a field. A row of a subquery counts,
/// whichever of its columns are read.
fn cells(plan: &Plan, member: &Member, chunk: &ScanChunk, row: usize) -> (Vec<Cell>, bool) {
    let mut has_value = member.is_answered();
    let mut cells = Vec::with_capacity(plan.nodes.len());
    for node in &plan.nodes {
        let cell = match node {
            Node::Tag(key) => member.tag(key).map_or(Cell::Null, Cell::text),
            node => {
                let value = value(node, member, &|column| chunk.columns.get(column)?.get(row));
                has_value |= value.is_some() && !matches!(node, Node::Value(_));
                value.into()
            }
        };
        cells.push(cell);
    }
    (cells, has_value)
}

/// The value of a column that is computed from fields and tags of one row.
pub(super) fn value<'a>(
    node: &Node,
    member: &Member,
    field: &dyn Fn(usize) -> Option<ValueRef<'a>>,
) -> Option<Value> {
    match node {
        Node::Absent | Node::Call(_) => None,
        Node::Value(value) => Some(value.clone()),
        Node::Field(column) => field(*column).map(|v| v.to_owned()),
        Node::Tag(key) => member.tag(key).map(|tag| Value::String(tag.to_owned())),
        Node::Operation(operator, left, right) => {
            let (left, right) = (value(left, member, field)?, value(right, member, field)?);
            operate(*operator, left.as_ref(), right.as_ref())
        }
        Node::Math(math, inner) => math.of(value(inner, member, field)?.as_ref()),
        Node::Pair(pair, a, b) => {
            let (a, b) = (value(a, member, field)?, value(b, member, field)?);
            pair.of(a.as_ref(), b.as_ref())
        }
    }
}
