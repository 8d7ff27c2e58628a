//! A pattern as a program for an automaton.

use super::regex::Regex;
use crate::error::{Error, Result};

/// Maximum steps of a program.
const STEPS_MAX: usize = 20_000;

/// A step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// A row that is a symbol; not output if `excluded`.
    Row {
        symbol: usize,
        excluded: bool,
    },
    /// Both branches, the first one preferred.
    Split {
        first: usize,
        second: usize,
    },
    Jump(usize),
    /// Start of a loop round; the number distinguishes nested loops.
    Round(u32),
    /// End of a loop round; a round without rows ends the thread, since it could repeat forever.
    Again(u32),
    Start,
    End,
    Match,
}

/// The program of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Program {
    steps: Vec<Step>,
    /// Number of enclosing loops whose rounds may be empty.
    loops: u32,
    may_be_empty: bool,
}

impl Program {
    pub(super) fn of(regex: &Regex) -> Result<Program> {
        let mut program = Program {
            steps: Vec::new(),
            loops: 0,
            may_be_empty: regex.may_be_empty(),
        };
        program.add(regex, false)?;
        program.push(Step::Match)?;
        Ok(program)
    }

    /// Whether a match may have no rows.
    pub(super) fn may_be_empty(&self) -> bool {
        self.may_be_empty
    }

    pub(super) fn step(&self, at: usize) -> Option<Step> {
        self.steps.get(at).copied()
    }

    fn push(&mut self, step: Step) -> Result<usize> {
        if self.steps.len() >= STEPS_MAX {
            return Err(Error::too_large(format!(
                "PATTERN expands to more than {STEPS_MAX} steps"
            ))
            .with_hint("use smaller counts, or * and +"));
        }
        self.steps.push(step);
        Ok(self.steps.len() - 1)
    }

    fn set(&mut self, at: usize, step: Step) {
        if let Some(known) = self.steps.get_mut(at) {
            *known = step;
        }
    }

    /// A split whose branches are set later.
    fn split(&mut self) -> Result<usize> {
        self.push(Step::Jump(0))
    }

    fn set_split(&mut self, at: usize, on: usize, out: usize, greedy: bool) {
        let (first, second) = if greedy { (on, out) } else { (out, on) };
        self.set(at, Step::Split { first, second });
    }

    fn add(&mut self, regex: &Regex, excluded: bool) -> Result<()> {
        match regex {
            Regex::Symbol(symbol) => {
                self.push(Step::Row {
                    symbol: *symbol,
                    excluded,
                })?;
            }
            Regex::Start => {
                self.push(Step::Start)?;
            }
            Regex::End => {
                self.push(Step::End)?;
            }
            Regex::Excluded(of) => self.add(of, true)?,
            Regex::Sequence(parts) => {
                for part in parts {
                    self.add(part, excluded)?;
                }
            }
            Regex::Either(ways) => self.either(ways, excluded)?,
            Regex::Repeat {
                of,
                least,
                most,
                greedy,
            } => {
                for _ in 0..*least {
                    self.add(of, excluded)?;
                }
                match most {
                    None => {
                        let split = self.split()?;
                        self.round(of, excluded)?;
                        self.push(Step::Jump(split))?;
                        self.set_split(split, split + 1, self.steps.len(), *greedy);
                    }
                    Some(most) => {
                        let mut splits = Vec::new();
                        for _ in *least..*most {
                            splits.push(self.split()?);
                            self.add(of, excluded)?;
                        }
                        for split in splits {
                            self.set_split(split, split + 1, self.steps.len(), *greedy);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// One round of an unbounded loop.
    fn round(&mut self, of: &Regex, excluded: bool) -> Result<()> {
        if !of.may_be_empty() {
            return self.add(of, excluded);
        }
        let number = self.loops;
        if number >= u64::BITS {
            return Err(Error::too_large(format!(
                "PATTERN has loops that are nested more than {} deep",
                u64::BITS
            )));
        }
        self.push(Step::Round(number))?;
        self.loops += 1;
        self.add(of, excluded)?;
        self.loops -= 1;
        self.push(Step::Again(number))?;
        Ok(())
    }

    fn either(&mut self, ways: &[Regex], excluded: bool) -> Result<()> {
        let mut jumps = Vec::new();
        for (number, way) in ways.iter().enumerate() {
            let is_last = number + 1 == ways.len();
            let split = if is_last { None } else { Some(self.split()?) };
            self.add(way, excluded)?;
            if let Some(split) = split {
                jumps.push(self.push(Step::Jump(0))?);
                self.set_split(split, split + 1, self.steps.len(), true);
            }
        }
        for jump in jumps {
            self.set(jump, Step::Jump(self.steps.len()));
        }
        Ok(())
    }
}
