//! The automaton beside a matcher that tries all ways one after the other.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::pattern::regex::Regex;
use headwater_testing::Dice;

/// Conditions on rows: a table, and for some symbols that the row before was another symbol, or
/// that an even number of rows was it.
struct World {
    table: Vec<Vec<bool>>,
    after: Vec<Option<usize>>,
    even: Vec<Option<usize>>,
    reach: usize,
    /// The symbols of each past of a search.
    pasts: Vec<Vec<usize>>,
    start: usize,
}

impl World {
    fn true_of(&self, symbol: usize, row: usize, past: &[usize]) -> bool {
        let after = self.after[symbol].is_none_or(|other| past.last() == Some(&other));
        let even = self.even[symbol]
            .is_none_or(|other| past.iter().filter(|known| **known == other).count() % 2 == 0);
        self.table[symbol][row] && after && even
    }
}

impl Rows for World {
    fn end(&self) -> usize {
        self.table[0].len()
    }

    fn is_first(&self, row: usize) -> bool {
        row == 0
    }

    type Past = usize;

    fn begin(&mut self) -> Result<usize> {
        self.pasts = vec![Vec::new()];
        Ok(0)
    }

    fn with(&mut self, past: usize, symbol: usize, row: usize) -> Result<usize> {
        let mut symbols = self.pasts[past].clone();
        assert_eq!(symbols.len(), row - self.start);
        symbols.push(symbol);
        self.pasts.push(symbols);
        Ok(self.pasts.len() - 1)
    }

    fn may_be(&mut self, symbol: usize, row: usize, past: usize) -> Result<bool> {
        let past = &self.pasts[past];
        assert_eq!(past.len(), row - self.start);
        Ok(self.true_of(symbol, row, past))
    }

    fn reaches(&self, start: usize, row: usize) -> bool {
        row - start < self.reach
    }

    fn looks_back(&self) -> bool {
        self.after.iter().chain(&self.even).any(Option::is_some)
    }

    fn append_key(&self, past: usize, key: &mut Vec<i128>) {
        let past = &self.pasts[past];
        // As coarse as the conditions allow.
        key.push(past.last().map_or(-1, |last| *last as i128));
        for other in self.even.iter().flatten() {
            key.push((past.iter().filter(|known| *known == other).count() % 2) as i128);
        }
    }

    fn reserve_nodes(&mut self, _: usize) -> Result<()> {
        Ok(())
    }
}

type Then<'a> = &'a mut dyn FnMut(usize, &mut Vec<Label>) -> bool;

/// One way after the other.
struct Plain<'a> {
    world: &'a World,
    start: usize,
}

impl Plain<'_> {
    fn go(
        &self,
        regex: &Regex,
        row: usize,
        past: &mut Vec<Label>,
        excluded: bool,
        then: Then<'_>,
    ) -> bool {
        match regex {
            Regex::Symbol(symbol) => {
                let symbols: Vec<usize> = past.iter().map(|label| label.symbol).collect();
                if row >= self.world.end()
                    || !self.world.reaches(self.start, row)
                    || !self.world.true_of(*symbol, row, &symbols)
                {
                    return false;
                }
                past.push(Label {
                    symbol: *symbol,
                    excluded,
                });
                let found = then(row + 1, past);
                if !found {
                    past.pop();
                }
                found
            }
            Regex::Start => row == 0 && then(row, past),
            Regex::End => row == self.world.end() && then(row, past),
            Regex::Excluded(of) => self.go(of, row, past, true, then),
            Regex::Sequence(parts) => self.sequence(parts, row, past, excluded, then),
            Regex::Either(ways) => ways
                .iter()
                .any(|way| self.go(way, row, past, excluded, &mut *then)),
            Regex::Repeat {
                of,
                least,
                most,
                greedy,
            } => self.repeat(of, (*least, *most, *greedy), 0, row, past, excluded, then),
        }
    }

    fn sequence(
        &self,
        parts: &[Regex],
        row: usize,
        past: &mut Vec<Label>,
        excluded: bool,
        then: Then<'_>,
    ) -> bool {
        match parts {
            [] => then(row, past),
            [first, rest @ ..] => self.go(first, row, past, excluded, &mut |row, past| {
                self.sequence(rest, row, past, excluded, &mut *then)
            }),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a state of the search")]
    fn repeat(
        &self,
        of: &Regex,
        bounds: (u32, Option<u32>, bool),
        count: u32,
        row: usize,
        past: &mut Vec<Label>,
        excluded: bool,
        then: Then<'_>,
    ) -> bool {
        let (least, most, greedy) = bounds;
        if count < least {
            return self.go(of, row, past, excluded, &mut |row, past| {
                self.repeat(of, bounds, count + 1, row, past, excluded, &mut *then)
            });
        }
        let may_more = most.is_none_or(|most| count < most);
        let more = |past: &mut Vec<Label>, then: Then<'_>| {
            may_more
                && self.go(of, row, past, excluded, &mut |next, past| {
                    // Without a bound, what takes no row would go on for ever.
                    (most.is_some() || next != row)
                        && self.repeat(of, bounds, count + 1, next, past, excluded, &mut *then)
                })
        };
        match greedy {
            true => more(past, &mut *then) || then(row, past),
            false => then(row, past) || more(past, &mut *then),
        }
    }
}

fn random_regex(random: &mut Dice, symbols: usize, deep: u32) -> Regex {
    let kind = if deep == 0 { 0 } else { random.below(12) };
    let inner = |random: &mut Dice| random_regex(random, symbols, deep.saturating_sub(1));
    match kind {
        0..=3 => Regex::Symbol(random.index(symbols)),
        4 | 5 => {
            let count = random.index(4);
            Regex::Sequence((0..count).map(|_| inner(random)).collect())
        }
        6 | 7 => {
            let count = 2 + random.index(2);
            Regex::Either((0..count).map(|_| inner(random)).collect())
        }
        8..=10 => {
            let least = u32::try_from(random.below(3)).unwrap();
            let most = match random.below(2) {
                0 => None,
                _ => Some((least + u32::try_from(random.below(3)).unwrap()).max(1)),
            };
            Regex::Repeat {
                of: Box::new(inner(random)),
                least,
                most,
                greedy: random.below(2) == 0,
            }
        }
        _ => match random.below(4) {
            0 => Regex::Start,
            1 => Regex::End,
            _ => Regex::Excluded(Box::new(inner(random))),
        },
    }
}

fn random_world(random: &mut Dice, symbols: usize) -> World {
    let rows = random.index(7);
    let mut look_back = |share: u64| -> Vec<Option<usize>> {
        (0..symbols)
            .map(|_| (random.below(share) == 0).then(|| random.index(symbols)))
            .collect()
    };
    let (after, even) = (look_back(8), look_back(8));
    World {
        table: (0..symbols)
            .map(|_| (0..rows).map(|_| random.below(3) > 0).collect())
            .collect(),
        after,
        even,
        reach: 1 + random.index(9),
        pasts: Vec::new(),
        start: 0,
    }
}

#[test]
fn matches_are_those_that_trying_all_ways_finds_first() {
    let mut random = Dice::new(20_240_501);
    let mut found = 0;
    for case in 0..100_000 {
        let symbols = 1 + random.index(3);
        let regex = random_regex(&mut random, symbols, 3);
        let mut world = random_world(&mut random, symbols);
        let program = Program::of(&regex).unwrap();
        let start = random.index(world.end() + 1);
        world.start = start;
        let mut expected = None;
        let mut past = Vec::new();
        let plain = Plain {
            world: &world,
            start,
        };
        plain.go(&regex, start, &mut past, false, &mut |_, past| {
            expected = Some(past.clone());
            true
        });
        let made = Machine::new(&program).find(&mut world, start).unwrap();
        assert_eq!(made, expected, "case {case}: {regex:?}");
        found += usize::from(expected.is_some_and(|labels| labels.len() > 1));
    }
    assert!(found > 2_000, "the cases are about something: {found}");
}

#[test]
fn no_quantifier_makes_the_work_explode() {
    // ((A*)*)* B over rows that are all A.
    let star = |of: Regex| Regex::Repeat {
        of: Box::new(of),
        least: 0,
        most: None,
        greedy: true,
    };
    let regex = Regex::Sequence(vec![star(star(star(Regex::Symbol(0)))), Regex::Symbol(1)]);
    let rows = 20_000;
    let mut world = World {
        table: vec![vec![true; rows], vec![false; rows]],
        after: vec![None; 2],
        even: vec![None; 2],
        reach: usize::MAX,
        pasts: Vec::new(),
        start: 0,
    };
    let program = Program::of(&regex).unwrap();
    assert_eq!(
        Machine::new(&program)
            .find(&mut Counted(&mut world, 0), 0)
            .unwrap(),
        None
    );
}

/// A world without the price of looking at the past.
struct Counted<'a>(&'a mut World, usize);

impl Rows for Counted<'_> {
    fn end(&self) -> usize {
        self.0.end()
    }

    fn is_first(&self, row: usize) -> bool {
        row == 0
    }

    type Past = ();

    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    fn with(&mut self, (): (), _: usize, _: usize) -> Result<()> {
        Ok(())
    }

    fn may_be(&mut self, symbol: usize, row: usize, (): ()) -> Result<bool> {
        self.1 += 1;
        assert!(
            self.1 < 20 * self.end(),
            "the work grows with the rows, no faster"
        );
        Ok(self.0.table[symbol][row])
    }

    fn reaches(&self, _: usize, _: usize) -> bool {
        true
    }

    fn looks_back(&self) -> bool {
        false
    }

    fn append_key(&self, (): (), _: &mut Vec<i128>) {}

    fn reserve_nodes(&mut self, _: usize) -> Result<()> {
        Ok(())
    }
}
