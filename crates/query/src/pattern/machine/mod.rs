//! The automaton: follows all paths through a pattern at once, row by row, the preferred ones
//! first.
//!
//! A thread is a step of the program and the symbols of the rows before it. Among threads at one
//! step with equal pasts, only the preferred one continues, so that there are never more threads
//! than steps, unless conditions read previously matched rows: then the number of threads is
//! bounded by the number of distinguishable pasts.
//!
//! Invariants: the match equals the first match that backtracking over all paths in order would
//! find. Memory of threads is reported to [`Rows::reserve_nodes`] before it grows much. Failure:
//! `memory_limit`, from `reserve_nodes`; errors of conditions.

use super::program::{Program, Step};
use datafusion::common::Result;
use std::collections::{HashMap, HashSet};

/// The rows of a partition, or of a part of it, with the conditions on them.
pub(super) trait Rows {
    /// The end of the rows: every match ends there at the latest.
    fn end(&self) -> usize;

    /// Whether a row is the first one of the partition.
    fn is_first(&self, row: usize) -> bool;

    /// The previously matched rows, as far as conditions read them.
    type Past: Copy;

    /// The past of a new search; drops the pasts of the previous search.
    fn begin(&mut self) -> Result<Self::Past>;

    /// A past extended by a row.
    fn with(&mut self, past: Self::Past, symbol: usize, row: usize) -> Result<Self::Past>;

    /// Whether a row may be a symbol, after the given past.
    fn may_be(&mut self, symbol: usize, row: usize, past: Self::Past) -> Result<bool>;

    /// Whether a match that begins at `start` may include this row.
    fn reaches(&self, start: usize, row: usize) -> bool;

    /// Whether conditions can distinguish pasts.
    fn looks_back(&self) -> bool;

    /// Appends everything that conditions can observe of a past to a key.
    fn append_key(&self, past: Self::Past, key: &mut Vec<i128>);

    /// Reserves memory for `nodes` nodes of pasts.
    fn reserve_nodes(&mut self, nodes: usize) -> Result<()>;
}

/// A row of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) symbol: usize,
    pub(super) excluded: bool,
}

/// The previously matched rows, linked from the newest backwards.
struct Node {
    label: Label,
    before: Option<usize>,
}

/// Number of nodes between two reservations of memory.
const STRIDE: usize = 1 << 10;

/// The rows of a match, from the first on.
fn labels(nodes: &[Node], newest: Option<usize>) -> Vec<Label> {
    let mut labels = Vec::new();
    let mut next = newest;
    while let Some(node) = next.and_then(|at| nodes.get(at)) {
        labels.push(node.label);
        next = node.before;
    }
    labels.reverse();
    labels
}

#[derive(Clone, Copy)]
struct Thread<P> {
    step: usize,
    newest: Option<usize>,
    past: P,
}

/// Finds matches of a program.
pub(super) struct Machine<'a> {
    program: &'a Program,
    nodes: Vec<Node>,
    reported: usize,
    /// Number of rows, from the first of the partition, that the last search has read.
    pub(super) looked: usize,
    /// True if the last search needed rows after the last one.
    pub(super) ran_off: bool,
    visited: Visited,
    /// Reachable steps that are still to be followed.
    open: Vec<(usize, u64)>,
    /// Key of the past of the current thread.
    key: Vec<i128>,
}

/// Steps that threads have reached before a row, with the loop rounds that began at this row, and
/// the distinguishable pasts.
struct Visited {
    /// Per step without rounds and past, the turn in which a thread last reached it.
    plain: Vec<u32>,
    turn: u32,
    /// Numbers of distinct pasts, by key.
    pasts: HashMap<Vec<i128>, usize>,
    with_pasts: HashSet<(usize, u64, usize)>,
}

impl Visited {
    /// Clears the reached steps for the next row.
    fn clear(&mut self) {
        self.with_pasts.clear();
        self.pasts.clear();
        self.turn = self.turn.checked_add(1).unwrap_or_else(|| {
            self.plain.fill(0);
            1
        });
    }

    /// The number of a past by its key; an empty key is 0.
    fn number(&mut self, key: &[i128]) -> usize {
        if key.is_empty() {
            return 0;
        }
        if let Some(number) = self.pasts.get(key) {
            return *number;
        }
        let number = self.pasts.len() + 1;
        self.pasts.insert(key.to_vec(), number);
        number
    }

    /// Adds an entry; true when it is new.
    fn insert(&mut self, place: usize, rounds: u64, past: usize) -> bool {
        if rounds > 0 || past > 0 {
            return self.with_pasts.insert((place, rounds, past));
        }
        if place >= self.plain.len() {
            self.plain.resize(place + 1, 0);
        }
        let turn = self.turn;
        self.plain
            .get_mut(place)
            .is_none_or(|seen| std::mem::replace(seen, turn) != turn)
    }
}

impl<'a> Machine<'a> {
    pub(super) fn new(program: &'a Program) -> Machine<'a> {
        Machine {
            program,
            nodes: Vec::new(),
            reported: 0,
            looked: 0,
            ran_off: false,
            visited: Visited {
                plain: Vec::new(),
                turn: 0,
                pasts: HashMap::new(),
                with_pasts: HashSet::new(),
            },
            open: Vec::new(),
            key: Vec::new(),
        }
    }

    /// The preferred match that begins at a row; may be empty.
    pub(super) fn find(
        &mut self,
        rows: &mut impl Rows,
        start: usize,
    ) -> Result<Option<Vec<Label>>> {
        self.nodes.clear();
        (self.looked, self.ran_off) = (start, false);
        let mut found: Option<Option<usize>> = None;
        let (mut threads, mut next) = (Vec::new(), Vec::new());
        self.visited.clear();
        let first = Thread {
            step: 0,
            newest: None,
            past: rows.begin()?,
        };
        self.follow(rows, first, start, &mut threads);
        let mut row = start;
        while !threads.is_empty() {
            self.visited.clear();
            for thread in threads.drain(..) {
                match self.program.step(thread.step) {
                    Some(Step::Match) => {
                        found = Some(thread.newest);
                        // The remaining threads are less preferred.
                        break;
                    }
                    Some(Step::Row { symbol, excluded }) => {
                        if row >= rows.end() {
                            self.ran_off = true;
                            continue;
                        }
                        self.looked = row + 1;
                        if !rows.reaches(start, row) {
                            continue;
                        }
                        if rows.may_be(symbol, row, thread.past)? {
                            let label = Label { symbol, excluded };
                            let thread = Thread {
                                step: thread.step + 1,
                                newest: Some(self.push_node(rows, label, thread.newest)?),
                                past: rows.with(thread.past, symbol, row)?,
                            };
                            self.follow(rows, thread, row + 1, &mut next);
                        }
                    }
                    _ => {}
                }
            }
            std::mem::swap(&mut threads, &mut next);
            row += 1;
        }
        Ok(found.map(|newest| labels(&self.nodes, newest)))
    }

    fn push_node(
        &mut self,
        rows: &mut impl Rows,
        label: Label,
        before: Option<usize>,
    ) -> Result<usize> {
        self.nodes.push(Node { label, before });
        if self.nodes.len() >= self.reported + STRIDE {
            self.reported = self.nodes.len();
            rows.reserve_nodes(self.reported + STRIDE)?;
        }
        Ok(self.nodes.len() - 1)
    }

    /// Adds the steps that a thread can reach before the next row, the preferred ones first.
    fn follow<R: Rows>(
        &mut self,
        rows: &R,
        thread: Thread<R::Past>,
        row: usize,
        out: &mut Vec<Thread<R::Past>>,
    ) {
        self.key.clear();
        if rows.looks_back() {
            rows.append_key(thread.past, &mut self.key);
        }
        let past = self.visited.number(&self.key);
        let mut open = std::mem::take(&mut self.open);
        open.push((thread.step, 0));
        while let Some((place, rounds)) = open.pop() {
            let step = self.program.step(place);
            // After a row no round has begun at the new row.
            let begun = match step {
                Some(Step::Row { .. } | Step::Match) => 0,
                _ => rounds,
            };
            if !self.visited.insert(place, begun, past) {
                continue;
            }
            match step {
                Some(Step::Jump(to)) => open.push((to, rounds)),
                Some(Step::Split { first, second }) => {
                    open.push((second, rounds));
                    open.push((first, rounds));
                }
                Some(Step::Round(number)) => open.push((place + 1, rounds | (1 << number))),
                Some(Step::Again(number)) if rounds & (1 << number) == 0 => {
                    open.push((place + 1, rounds));
                }
                Some(Step::Start) if rows.is_first(row) => open.push((place + 1, rounds)),
                Some(Step::End) if row == rows.end() => open.push((place + 1, rounds)),
                Some(Step::Row { .. } | Step::Match) => out.push(Thread {
                    step: place,
                    ..thread
                }),
                _ => {}
            }
        }
        self.open = open;
    }
}

#[cfg(test)]
mod tests;
