//! Compares pasts with lists of all their rows.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::pattern::tally::Cell;
use arrow::array::{ArrayRef, Float64Array, Int64Array};
use headwater_testing::Dice;
use std::collections::HashMap;
use std::sync::Arc;

const SYMBOLS: usize = 3;

/// The symbols of a past, from its first row on, which is row 0.
type List = Vec<usize>;

fn slots(random: &mut Dice) -> Vec<Slot> {
    let mut slots = Vec::new();
    for _ in 0..6 {
        let of = match random.index(4) {
            0 => None,
            1 => Some(vec![0, 2]),
            _ => Some(vec![random.index(SYMBOLS)]),
        };
        slots.push(match random.index(2) {
            0 => Slot::Value {
                column: 0,
                of,
                first: random.index(2) == 0,
                steps: random.index(4) * random.index(30),
                shift: 0,
                whole: false,
            },
            _ => {
                let what = [
                    Tally::Count,
                    Tally::Sum,
                    Tally::Mean,
                    Tally::Least,
                    Tally::Greatest,
                ];
                Slot::Tally {
                    tally: what[random.index(what.len())],
                    of,
                    value: Some(random.index(2)),
                    whole: false,
                }
            }
        });
    }
    slots
}

/// Value of a slot after these symbols, computed from a list of all rows.
fn listed(slot: &Slot, list: &[usize], column: Option<&Column>) -> Cell {
    let rows = |of: &Of| -> Vec<usize> {
        let rows = list.iter().enumerate();
        let rows = rows.filter(|(_, symbol)| of.as_ref().is_none_or(|of| of.contains(symbol)));
        rows.map(|(row, _)| row).collect()
    };
    match slot {
        Slot::Value {
            of, first, steps, ..
        } => {
            let rows = rows(of);
            let found = match first {
                true => rows.get(*steps),
                false => rows.iter().rev().nth(*steps),
            };
            found.map_or(Cell::Absent, |row| Cell::Row(*row))
        }
        Slot::Tally { tally, of, .. } => {
            let mut sum = Sum::default();
            for row in rows(of) {
                sum.add(*tally, column.unwrap(), row).unwrap();
            }
            sum.cell(*tally, column.unwrap()).unwrap()
        }
        _ => Cell::Absent,
    }
}

fn key_of(
    lookback: &Lookback,
    (at, slot): (usize, &Slot),
    past: PastId,
    next: (usize, usize),
    column: Option<&Column>,
) -> Cell {
    match slot {
        Slot::Value { first, steps, .. } => {
            let row = lookback.row(at, (*first, *steps), past, next);
            row.map_or(Cell::Absent, Cell::Row)
        }
        Slot::Tally { tally, .. } => {
            let column = column.unwrap();
            let sum = lookback.tallied(at, past, next, column).unwrap();
            sum.cell(*tally, column).unwrap()
        }
        _ => Cell::Absent,
    }
}

#[test]
fn a_past_answers_as_the_list_of_its_rows_does() {
    let mut random = Dice::new(20_261_127);
    let rows = 120;
    let wholes: Int64Array = (0..rows)
        .map(|row| (row % 7 > 0).then(|| i64::from(row % 5) - 2))
        .collect();
    let floats: Float64Array = (0..rows)
        .map(|row| (row % 6 > 0).then(|| f64::from(row % 9) / 4.0))
        .collect();
    let values: [ArrayRef; 2] = [Arc::new(wholes), Arc::new(floats)];
    let mut alike = 0;
    for case in 0..30 {
        let slots = slots(&mut random);
        let columns: Vec<Option<Column>> = slots
            .iter()
            .map(|slot| match slot {
                Slot::Tally { tally, value, .. } => {
                    Some(Column::new(*tally, value.map(|at| &values[at])).unwrap())
                }
                _ => None,
            })
            .collect();
        let looked_at: Vec<usize> = (0..slots.len()).collect();
        let mut lookback = Lookback::new(&slots, &looked_at);
        // The next search starts without the pasts of this one.
        for _ in 0..2 {
            let mut pasts: Vec<(PastId, List)> = vec![(lookback.begin().unwrap(), List::new())];
            for row in 0..random.index(rows as usize - 1) {
                // Each continues with one or two symbols, and some end.
                let mut next: Vec<(PastId, List)> = Vec::new();
                for (past, list) in pasts.drain(..) {
                    for _ in 0..1 + random.index(2) {
                        let symbol = random.index(SYMBOLS);
                        let mut list = list.clone();
                        list.push(symbol);
                        for (at, slot) in slots.iter().enumerate() {
                            let column = columns[at].as_ref();
                            let found = key_of(&lookback, (at, slot), past, (symbol, row), column);
                            assert_eq!(found, listed(slot, &list, column), "case {case}: {slot:?}");
                        }
                        let past = lookback.with(past, symbol, row, &columns).unwrap();
                        next.push((past, list));
                    }
                }
                while next.len() > 6 {
                    next.swap_remove(random.index(next.len()));
                }
                pasts = next;
                // Equal keys have equal futures.
                let mut told: HashMap<Vec<i128>, (PastId, List)> = HashMap::new();
                for (past, list) in &pasts {
                    let mut key = Vec::new();
                    for (at, slot) in slots.iter().enumerate() {
                        lookback.append_key(at, slot, *past, &mut key);
                    }
                    let (_, other) = told.entry(key).or_insert_with(|| (*past, list.clone()));
                    alike += usize::from(other != list);
                    for _ in 0..3 {
                        let (mut one, mut two) = (list.clone(), other.clone());
                        for _ in 0..random.index(rows as usize - row) {
                            let symbol = random.index(SYMBOLS);
                            one.push(symbol);
                            two.push(symbol);
                        }
                        one.truncate(rows as usize);
                        two.truncate(rows as usize);
                        for (at, slot) in slots.iter().enumerate() {
                            let column = columns[at].as_ref();
                            assert_eq!(listed(slot, &one, column), listed(slot, &two, column));
                        }
                    }
                }
            }
            assert!(lookback.bytes() > 0);
        }
    }
    assert!(alike > 30, "some pasts are alike: {alike}");
}

#[test]
fn rows_far_back_are_found_in_few_steps() {
    let slot = Slot::Value {
        column: 0,
        of: Some(vec![0]),
        first: true,
        steps: 0,
        shift: 0,
        whole: false,
    };
    let mut lookback = Lookback::new(std::slice::from_ref(&slot), &[0]);
    let mut past = lookback.begin().unwrap();
    let rows = 1 << 16;
    for row in 0..rows {
        past = lookback.with(past, 0, row, &[None]).unwrap();
    }
    let chain = &lookback.chains[0];
    for depth in [0, 1, 777, 32_768, 65_534, 65_535] {
        let mut steps = 0;
        let mut link = chain.link(lookback.head(past, 0).unwrap()).unwrap();
        while link.depth > depth {
            let jump = chain.link(link.jump).unwrap();
            link = match jump.depth >= depth {
                true => jump,
                false => chain.link(link.before.unwrap()).unwrap(),
            };
            steps += 1;
        }
        assert!(steps <= 2 * 16 + 2, "{steps} steps to row {depth}");
        let found = chain.ancestor(lookback.head(past, 0), depth).unwrap();
        assert_eq!(found.row, depth as usize);
    }
}
