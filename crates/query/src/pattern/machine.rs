//! The automaton: all ways through a pattern at once, row by row, the preferred ones first.
//!
//! A thread is a place in the program and the symbols of the rows before it. Of two threads at one
//! place that will be told the same from there on, the preferred one goes on alone, so that there
//! are never more of them than places, unless conditions look back at what was matched: then there
//! are as many as there are pasts that conditions can tell apart.
//!
//! Invariants: the match found is the one that trying all ways one after the other would find
//! first. What threads hold is told to [`Rows::holds_nodes`] before it grows far.
//! Failure: `memory_limit`, from there; what a condition says.

use super::program::{Program, Step};
use datafusion::common::Result;
use std::collections::HashSet;

/// The rows of a partition, or of a stretch of it, and what is true of them.
pub(super) trait Rows {
    /// Behind the last one: where a match ends at the latest.
    fn end(&self) -> usize;

    /// Whether a row is the first one of the partition.
    fn is_first(&self, row: usize) -> bool;

    /// Whether a row may be a symbol, after what was matched before it: the symbols of the rows
    /// from `start` on.
    fn may_be(&mut self, symbol: usize, row: usize, start: usize, past: &Past<'_>) -> Result<bool>;

    /// Whether a match from `start` on may have this row.
    fn reaches(&self, start: usize, row: usize) -> bool;

    /// Whether conditions look back at what was matched.
    fn looks_back(&self) -> bool;

    /// What conditions can tell of a past.
    fn key(&self, past: &[usize]) -> Vec<usize>;

    /// So many nodes of pasts are held.
    fn holds_nodes(&mut self, nodes: usize) -> Result<()>;
}

/// A row of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) symbol: usize,
    pub(super) excluded: bool,
}

/// The rows that were matched before, from the newest backwards.
struct Node {
    label: Label,
    before: Option<usize>,
}

/// Nodes between two questions whether there is room for them.
const STRIDE: usize = 1 << 10;

/// What was matched before a row.
pub(super) struct Past<'a> {
    nodes: &'a [Node],
    newest: Option<usize>,
}

impl Past<'_> {
    /// The symbols, from the first row on.
    pub(super) fn symbols(&self) -> Vec<usize> {
        self.labels().iter().map(|label| label.symbol).collect()
    }

    fn labels(&self) -> Vec<Label> {
        let mut labels = Vec::new();
        let mut next = self.newest;
        while let Some(node) = next.and_then(|at| self.nodes.get(at)) {
            labels.push(node.label);
            next = node.before;
        }
        labels.reverse();
        labels
    }
}

#[derive(Clone, Copy)]
struct Thread {
    place: usize,
    past: Option<usize>,
}

/// Finds matches of a program.
pub(super) struct Machine<'a> {
    program: &'a Program,
    nodes: Vec<Node>,
    told: usize,
    /// How many rows, from the first of the partition, the last search has looked at.
    pub(super) looked: usize,
    /// The last search would have looked at rows behind the last one.
    pub(super) ran_off: bool,
    seen: Seen,
    /// Places that a thread can come to, which are to be looked at.
    open: Vec<(usize, u64)>,
}

/// Places that threads have come to before a row, with the rounds that began at this row, and what
/// conditions can tell of the past.
struct Seen {
    /// Of each place without rounds and past, in which turn it was seen last.
    plain: Vec<u32>,
    turn: u32,
    others: HashSet<(usize, u64, Vec<usize>)>,
}

impl Seen {
    /// Nothing has been seen of the next row.
    fn clear(&mut self) {
        self.others.clear();
        self.turn = self.turn.checked_add(1).unwrap_or_else(|| {
            self.plain.fill(0);
            1
        });
    }

    /// True when it was not seen before.
    fn insert(&mut self, place: usize, rounds: u64, past: &[usize]) -> bool {
        if rounds > 0 || !past.is_empty() {
            return self.others.insert((place, rounds, past.to_vec()));
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
            told: 0,
            looked: 0,
            ran_off: false,
            seen: Seen {
                plain: Vec::new(),
                turn: 0,
                others: HashSet::new(),
            },
            open: Vec::new(),
        }
    }

    /// The preferred match that begins at a row; it may have no rows.
    pub(super) fn find(
        &mut self,
        rows: &mut impl Rows,
        start: usize,
    ) -> Result<Option<Vec<Label>>> {
        self.nodes.clear();
        (self.looked, self.ran_off) = (start, false);
        let mut found: Option<Option<usize>> = None;
        let (mut threads, mut next) = (Vec::new(), Vec::new());
        self.seen.clear();
        self.follow(
            rows,
            Thread {
                place: 0,
                past: None,
            },
            start,
            &mut threads,
        );
        let mut row = start;
        while !threads.is_empty() {
            self.seen.clear();
            for thread in threads.drain(..) {
                match self.program.step(thread.place) {
                    Some(Step::Found) => {
                        found = Some(thread.past);
                        // The others are not preferred to this one.
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
                        let past = Past {
                            nodes: &self.nodes,
                            newest: thread.past,
                        };
                        if rows.may_be(symbol, row, start, &past)? {
                            let past = self.hold(rows, Label { symbol, excluded }, thread.past)?;
                            let place = thread.place + 1;
                            let thread = Thread {
                                place,
                                past: Some(past),
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
        Ok(found.map(|newest| {
            let nodes = &self.nodes;
            Past { nodes, newest }.labels()
        }))
    }

    fn hold(&mut self, rows: &mut impl Rows, label: Label, before: Option<usize>) -> Result<usize> {
        self.nodes.push(Node { label, before });
        if self.nodes.len() >= self.told + STRIDE {
            self.told = self.nodes.len();
            rows.holds_nodes(self.told + STRIDE)?;
        }
        Ok(self.nodes.len() - 1)
    }

    /// Adds the places that a thread can come to before the next row, the preferred ones first.
    fn follow(&mut self, rows: &impl Rows, thread: Thread, row: usize, out: &mut Vec<Thread>) {
        let key = match rows.looks_back() {
            false => Vec::new(),
            true => {
                let past = Past {
                    nodes: &self.nodes,
                    newest: thread.past,
                };
                rows.key(&past.symbols())
            }
        };
        let mut open = std::mem::take(&mut self.open);
        open.push((thread.place, 0));
        while let Some((place, rounds)) = open.pop() {
            let step = self.program.step(place);
            // Behind a row no round has begun at it.
            let told = match step {
                Some(Step::Row { .. } | Step::Found) => 0,
                _ => rounds,
            };
            if !self.seen.insert(place, told, &key) {
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
                Some(Step::Row { .. } | Step::Found) => out.push(Thread { place, ..thread }),
                _ => {}
            }
        }
        self.open = open;
    }
}

#[cfg(test)]
#[path = "machine/tests.rs"]
mod tests;
