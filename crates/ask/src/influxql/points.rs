//! Rows that a function chooses, with their other values: every row of the range is read.
//!
//! Invariants: in a sample, each row of the interval has the same probability; among equal values
//! the earliest is chosen, and among equal instants the greater value; if intervals are filled,
//! every interval of the range has a row.

use super::arithmetic::{compare, number, operate};
use super::fill::{filled, number_of};
use super::functions::{Function, order};
use super::measurements::Member;
use super::plan::{Call, Node, Plan};
use super::random::Random;
use super::raw::{self, Computed};
use super::reading::Grouping;
use super::{Cell, Evaluator};
use crate::error::Error;
use crate::fold::goes_before;
use headwater::{Value, ValueRef};
use headwater_wire::influxql::Fill;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A candidate row.
struct Candidate {
    value: Value,
    time: i64,
    cells: Vec<Cell>,
    /// Key by which chosen rows are unique.
    key: Vec<Option<Value>>,
}

/// The rows of a sample, each with its time.
type Sample = Vec<(i64, Option<Value>)>;

/// The candidate rows of an interval.
#[derive(Default)]
struct Candidates {
    candidates: Vec<Candidate>,
    /// Number of rows that were read.
    rows_read: u64,
}

impl Evaluator<'_> {
    /// The rows of several samples, each of its own field, side by side.
    pub(super) fn samples(
        &self,
        grouping: &Grouping<'_>,
        members: &[&Member],
    ) -> Result<Vec<Sample>, Error> {
        let of = |call: &Call| {
            let plan = grouping.plan.of_call(call);
            let alone = Grouping {
                plan: &plan,
                condition: grouping.condition,
                windows: grouping.windows,
                fill: grouping.fill,
                descending: grouping.descending,
            };
            let mut rows = self.points(&alone, members)?;
            if grouping.descending {
                rows.reverse();
            }
            let value = |mut cells: Vec<Cell>| match cells.pop() {
                Some(Cell::Value(value)) => Some(value),
                _ => None,
            };
            Ok(Vec::from_iter(
                rows.into_iter().map(|row| (row.time, value(row.cells))),
            ))
        };
        grouping.plan.calls.iter().map(of).collect()
    }

    pub(super) fn points(
        &self,
        grouping: &Grouping<'_>,
        members: &[&Member],
    ) -> Result<Vec<Computed>, Error> {
        let (plan, windows) = (grouping.plan, grouping.windows);
        let Some((function, field)) = plan.calls.first().and_then(Call::function) else {
            return Ok(Vec::new());
        };
        let as_numbers = plan.reads_text(field) && !function.accepts_any_type();
        let mut random = Random::new(self.seed);
        let mut found: BTreeMap<i64, Candidates> = BTreeMap::new();
        for member in members {
            let range = windows.range;
            self.each_chunk(member, &plan.read, range, &[], &mut |chunk, rows| {
                for row in rows {
                    let row = *row as usize;
                    let field_of = |c: usize| chunk.columns.get(c).and_then(|c| c.get(row));
                    let mut value = field_of(field);
                    if as_numbers {
                        value = value.and_then(number).map(ValueRef::F64);
                    }
                    if let (Some(time), Some(value)) = (chunk.times.get(row), value) {
                        let of = |node: &Node| raw::value(node, member, &field_of);
                        let held = found.entry(windows.number(*time)).or_default();
                        let held = (held, &mut random);
                        self.weigh(plan, function, (value, *time), &of, held)?;
                    }
                }
                Ok(true)
            })?;
        }
        let found = found
            .into_iter()
            .map(|(n, held)| (n, choose(function, held.candidates)));
        let found: BTreeMap<i64, Vec<Candidate>> = found.collect();
        if windows.is_divided() && !function.returns_rows() && grouping.fill != Fill::None {
            return self.with_filled(grouping, found);
        }
        let rows = found.into_iter().flat_map(|(number, chosen)| {
            let begins = windows.is_divided() && !function.returns_rows();
            chosen.into_iter().map(move |candidate| Computed {
                time: match begins {
                    true => windows.start(number),
                    false => candidate.time,
                },
                cells: candidate.cells,
            })
        });
        Ok(rows.collect())
    }

    /// Adds a row to the candidates if it may be chosen; `of` returns its other cells.
    fn weigh(
        &self,
        plan: &Plan,
        function: Function,
        (value, time): (ValueRef<'_>, i64),
        of: &dyn Fn(&Node) -> Option<Value>,
        (held, random): (&mut Candidates, &mut Random),
    ) -> Result<(), Error> {
        held.rows_read += 1;
        let (seen, held) = (held.rows_read, &mut held.candidates);
        let key: Vec<Option<Value>> = plan.by.iter().map(of).collect();
        let slot = match function {
            Function::Sample(most) => drawn(most, held.len(), seen, random),
            function => slot(function, held, (value, time), &key),
        };
        let Some(slot) = slot else {
            return Ok(());
        };
        let call = |_| Some(value.to_owned());
        let cells = plan
            .nodes
            .iter()
            .map(|node| self::value(node, &call, of).into());
        let candidate = Candidate {
            cells: cells.collect(),
            value: value.to_owned(),
            time,
            key,
        };
        let count = plan.nodes.len() + 2;
        match slot {
            Slot::Instead(at) => {
                if let Some(held) = held.get_mut(at) {
                    *held = candidate;
                }
            }
            Slot::New(at) => {
                self.budget.take_values(count)?;
                held.insert(at, candidate);
            }
        }
        let most = most(function).filter(|_| plan.by.is_empty());
        if most.is_some_and(|most| held.len() > most) {
            held.pop();
            self.budget.give_values(count);
        }
        Ok(())
    }

    /// A row for each interval. An empty interval gets the previous value, the fill number, or no
    /// value.
    fn with_filled(
        &self,
        grouping: &Grouping<'_>,
        found: BTreeMap<i64, Vec<Candidate>>,
    ) -> Result<Vec<Computed>, Error> {
        let (plan, windows) = (grouping.plan, grouping.windows);
        let Some(first) = found.keys().next() else {
            return Ok(Vec::new());
        };
        let grid = grouping.grid(windows, *first);
        let width = i128::from(grid.1) - i128::from(grid.0) + 1;
        let count = usize::try_from(width).unwrap_or(usize::MAX);
        self.budget
            .take_values(count.saturating_mul(plan.nodes.len() + 1))?;
        let mut values = BTreeMap::new();
        let mut rows: BTreeMap<i64, Vec<Cell>> = BTreeMap::new();
        for (number, chosen) in found {
            if let Some(candidate) = chosen.into_iter().next() {
                values.insert(number, Some(candidate.value));
                rows.insert(number, candidate.cells);
            }
        }
        let beside = number_of(grouping.fill);
        let mut out: Vec<Computed> = Vec::with_capacity(count);
        for (number, value) in filled(values, grid, grouping.fill) {
            let before = out.last().filter(|_| grouping.fill == Fill::Previous);
            let cells = match (rows.remove(&number), before) {
                (Some(cells), _) => cells,
                (None, Some(before)) => before.cells.clone(),
                (None, None) => {
                    let call = |_| value.clone();
                    let plain = |_: &Node| beside.clone();
                    let cells = plan.nodes.iter();
                    cells
                        .map(|n| self::value(n, &call, &plain).into())
                        .collect()
                }
            };
            out.push(Computed {
                time: windows.start(number),
                cells,
            });
        }
        assert_eq!(out.len(), count, "every interval of the range has a row");
        Ok(out)
    }
}

/// Slot of a row among the candidates of its interval.
enum Slot {
    /// Replaces a candidate.
    Instead(usize),
    /// Before a candidate, or after all.
    New(usize),
}

/// Maximum number of rows that a function returns.
fn most(function: Function) -> Option<usize> {
    match function {
        Function::Top(most) | Function::Bottom(most) => Some(most),
        _ => None,
    }
}

/// The slot of a row among the candidates of a sample, after `seen` rows including it: every row is
/// chosen with the same probability.
fn drawn(most: usize, held: usize, seen: u64, random: &mut Random) -> Option<Slot> {
    if held < most {
        return Some(Slot::New(held));
    }
    let at = usize::try_from(random.below(seen)).ok()?;
    (at < most).then_some(Slot::Instead(at))
}

/// The slot of a value among the candidates; `None` when it is not chosen.
fn slot(
    function: Function,
    held: &[Candidate],
    new: (ValueRef<'_>, i64),
    key: &[Option<Value>],
) -> Option<Slot> {
    let goes_before = |held: &Candidate| better(function, new, (held.value.as_ref(), held.time));
    match function {
        Function::Percentile(_) => Some(Slot::New(held.len())),
        Function::Top(most) | Function::Bottom(most) if key.is_empty() => {
            let at = held.partition_point(|h| !goes_before(h));
            (at < most).then_some(Slot::New(at))
        }
        // The best row of each key, or of all rows.
        _ => match held.iter().position(|h| h.key == key) {
            None => Some(Slot::New(held.len())),
            Some(at) => {
                let is_better = held.get(at).is_some_and(goes_before);
                is_better.then_some(Slot::Instead(at))
            }
        },
    }
}

/// The chosen rows among the candidates, sorted by time if there are several.
fn choose(function: Function, mut held: Vec<Candidate>) -> Vec<Candidate> {
    match function {
        Function::Percentile(percent) => {
            held.sort_by(|a, b| order(&a.value, &b.value).then(a.time.cmp(&b.time)));
            let at = function.rank(percent, held.len());
            let chosen = at.and_then(|at| (at < held.len()).then(|| held.swap_remove(at)));
            chosen.into_iter().collect()
        }
        Function::Top(most) | Function::Bottom(most) => {
            held.sort_by(|a, b| {
                let (a, b) = ((a.value.as_ref(), a.time), (b.value.as_ref(), b.time));
                match (better(function, a, b), better(function, b, a)) {
                    (true, _) => Ordering::Less,
                    (_, true) => Ordering::Greater,
                    _ => Ordering::Equal,
                }
            });
            held.truncate(most);
            held.sort_by_key(|candidate| candidate.time);
            held
        }
        Function::Sample(_) => {
            held.sort_by_key(|candidate| candidate.time);
            held
        }
        _ => held,
    }
}

/// Whether a row replaces a candidate.
fn better(function: Function, new: (ValueRef<'_>, i64), held: (ValueRef<'_>, i64)) -> bool {
    let by_value = |wanted: Ordering| match compare(new.0, held.0) {
        Some(Ordering::Equal) => new.1 < held.1,
        ordering => ordering == Some(wanted),
    };
    match function {
        Function::First => new.1 < held.1 || new.1 == held.1 && goes_before(false, new.0, held.0),
        Function::Last => new.1 > held.1 || new.1 == held.1 && goes_before(true, new.0, held.0),
        Function::Min | Function::Bottom(_) => by_value(Ordering::Less),
        Function::Max | Function::Top(_) => by_value(Ordering::Greater),
        _ => false,
    }
}

/// The value of a column that is made of calls, fields and tags.
pub(super) fn value(
    node: &Node,
    call: &dyn Fn(usize) -> Option<Value>,
    plain: &dyn Fn(&Node) -> Option<Value>,
) -> Option<Value> {
    let of = |node: &Node| value(node, call, plain);
    match node {
        Node::Absent => None,
        Node::Field(_) | Node::Tag(_) => plain(node),
        Node::Value(value) => Some(value.clone()),
        Node::Call(index) => call(*index),
        Node::Operation(operator, left, right) => {
            operate(*operator, of(left)?.as_ref(), of(right)?.as_ref())
        }
        Node::Math(math, inner) => math.of(of(inner)?.as_ref()),
        Node::Pair(pair, a, b) => pair.of(of(a)?.as_ref(), of(b)?.as_ref()),
    }
}
