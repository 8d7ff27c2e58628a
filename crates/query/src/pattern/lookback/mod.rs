//! Previously matched rows for conditions: per path through a pattern, the rows of the symbols that
//! a condition names, and their tallies.
//!
//! Each past is an earlier past plus one row. For each set of symbols that a condition names, a
//! past has the newest row of the set; such a row links to the previous row of the set, and by a
//! jump to one further back, so that the n-th row from either end is found in a number of steps
//! that grows with the logarithm of their number (level ancestors by jump pointers: Myers, *An
//! applicative random-access stack*, 1983). Tallies are stored with the row.
//!
//! Invariants: a past is immutable, so that diverging paths share their common prefix; the cost of
//! a row does not depend on the number of previously matched rows.

use super::node::Slot;
use super::slots::{Of, Tally};
use super::tally::{Column, Sum, row_key};
use crate::error::Error;
use datafusion::common::Result;

/// The past of a path through a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PastId(u32);

/// A row of a chain.
#[derive(Clone, Copy)]
struct Link {
    row: usize,
    /// Number of rows of the set before it.
    depth: u32,
    before: Option<u32>,
    /// An earlier row; the first row links to itself.
    jump: u32,
}

/// All rows of one set of symbols, of all pasts.
struct Chain {
    of: Of,
    links: Vec<Link>,
    tallies: Vec<Tallied>,
}

/// A tally of a chain: for each row, of that row and all rows before it.
struct Tallied {
    slot: usize,
    tally: Tally,
    sums: Vec<Sum>,
}

/// Source of a slot for conditions.
#[derive(Clone, Copy, Debug)]
enum SlotSource {
    /// Not part of a past.
    Elsewhere,
    Chain(usize),
    Tally {
        chain: usize,
        tally: usize,
    },
}

/// The pasts of one search.
pub(super) struct Lookback {
    chains: Vec<Chain>,
    /// Source of each slot.
    sources: Vec<SlotSource>,
    /// Newest row of each chain, per past.
    heads: Vec<Option<u32>>,
    pasts: u32,
}

impl Chain {
    fn has(&self, symbol: usize) -> bool {
        self.of.as_ref().is_none_or(|of| of.contains(&symbol))
    }

    fn link(&self, at: u32) -> Option<&Link> {
        self.links.get(row_index(at))
    }

    /// The row of a chain that has `depth` rows before it.
    fn ancestor(&self, head: Option<u32>, depth: u32) -> Option<&Link> {
        let mut link = self.link(head?)?;
        if link.depth < depth {
            return None;
        }
        while link.depth > depth {
            let jump = self.link(link.jump)?;
            link = match jump.depth >= depth {
                true => jump,
                false => self.link(link.before?)?,
            };
        }
        Some(link)
    }

    /// Number of rows of a chain.
    fn count(&self, head: Option<u32>) -> u32 {
        let link = head.and_then(|head| self.link(head));
        link.map_or(0, |link| link.depth + 1)
    }

    /// Appends the first or the last rows of a chain, at most `most`.
    fn append_rows(&self, head: Option<u32>, first: bool, most: u32, key: &mut Vec<i128>) {
        let count = self.count(head);
        let mut link = match first {
            true => self.ancestor(head, most.min(count).saturating_sub(1)),
            false => head.and_then(|head| self.link(head)),
        };
        for _ in 0..most.min(count) {
            let Some(known) = link else { break };
            key.push(row_key(known.row));
            link = known.before.and_then(|before| self.link(before));
        }
        // End marker of the list; not a valid row.
        key.push(-1);
    }

    /// Appends a row to a chain, and returns its new head.
    fn push(&mut self, head: Option<u32>, row: usize) -> Result<u32> {
        let at = numbered(self.links.len())?;
        let last = head.and_then(|head| Some((head, *self.link(head)?)));
        let (depth, jump) = match last {
            None => (0, at),
            Some((head, last)) => (last.depth + 1, self.jump_over(head, &last)),
        };
        for tallied in &mut self.tallies {
            let sums = &tallied.sums;
            let sum = head.and_then(|head| sums.get(row_index(head)).copied());
            tallied.sums.push(sum.unwrap_or_default());
        }
        let before = head;
        self.links.push(Link {
            row,
            depth,
            before,
            jump,
        });
        Ok(at)
    }

    /// Jump target of the row after one: two jumps of equal length become one of twice the length.
    fn jump_over(&self, head: u32, last: &Link) -> u32 {
        let further = || {
            let jump = self.link(last.jump)?;
            let further = self.link(jump.jump)?;
            let equal = last.depth - jump.depth == jump.depth - further.depth;
            equal.then_some(jump.jump)
        };
        further().unwrap_or(head)
    }
}

fn row_index(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

fn numbered(count: usize) -> Result<u32> {
    let too_large = || Error::too_large("MATCH_RECOGNIZE: a search has more than 4 billion rows");
    u32::try_from(count).map_err(|_| too_large().into())
}

impl Lookback {
    /// A lookback for conditions that read these slots of previously matched rows.
    pub(super) fn new(slots: &[Slot], looked_at: &[usize]) -> Lookback {
        let mut lookback = Lookback {
            chains: Vec::new(),
            sources: vec![SlotSource::Elsewhere; slots.len()],
            heads: Vec::new(),
            pasts: 0,
        };
        for at in looked_at {
            let place = match slots.get(*at) {
                Some(Slot::Value { of, .. }) => SlotSource::Chain(lookback.chain(of)),
                Some(Slot::Tally { of, tally, .. }) => lookback.tally(of, *tally, *at),
                _ => SlotSource::Elsewhere,
            };
            if let Some(known) = lookback.sources.get_mut(*at) {
                *known = place;
            }
        }
        lookback
    }

    fn chain(&mut self, of: &Of) -> usize {
        let known = self.chains.iter().position(|chain| chain.of == *of);
        known.unwrap_or_else(|| {
            self.chains.push(Chain {
                of: of.clone(),
                links: Vec::new(),
                tallies: Vec::new(),
            });
            self.chains.len() - 1
        })
    }

    fn tally(&mut self, of: &Of, what: Tally, slot: usize) -> SlotSource {
        let chain = self.chain(of);
        let Some(tallies) = self.chains.get_mut(chain).map(|chain| &mut chain.tallies) else {
            return SlotSource::Elsewhere;
        };
        let sums = Vec::new();
        tallies.push(Tallied {
            slot,
            tally: what,
            sums,
        });
        let tally = tallies.len() - 1;
        SlotSource::Tally { chain, tally }
    }

    /// Whether conditions read previously matched rows.
    pub(super) fn is_needed(&self) -> bool {
        !self.chains.is_empty()
    }

    /// The past of the first row of a search; drops the pasts of the previous search.
    pub(super) fn begin(&mut self) -> Result<PastId> {
        for chain in &mut self.chains {
            chain.links.clear();
            for tallied in &mut chain.tallies {
                tallied.sums.clear();
            }
        }
        self.heads.clear();
        self.pasts = 0;
        self.add(std::iter::repeat_n(None, self.chains.len()).collect())
    }

    fn add(&mut self, heads: Vec<Option<u32>>) -> Result<PastId> {
        let id = PastId(self.pasts);
        self.pasts = numbered(row_index(self.pasts) + 1)?;
        self.heads.extend(heads);
        Ok(id)
    }

    fn head(&self, past: PastId, chain: usize) -> Option<u32> {
        let at = row_index(past.0) * self.chains.len() + chain;
        self.heads.get(at).copied().flatten()
    }

    /// A past extended by a row, which is a symbol.
    pub(super) fn with(
        &mut self,
        past: PastId,
        symbol: usize,
        row: usize,
        columns: &[Option<Column>],
    ) -> Result<PastId> {
        let mut heads = Vec::with_capacity(self.chains.len());
        for at in 0..self.chains.len() {
            heads.push(self.head(past, at));
        }
        for (chain, head) in self.chains.iter_mut().zip(&mut heads) {
            if !chain.has(symbol) {
                continue;
            }
            *head = Some(chain.push(*head, row)?);
            for tallied in &mut chain.tallies {
                if let (Some(sum), Some(Some(column))) =
                    (tallied.sums.last_mut(), columns.get(tallied.slot))
                {
                    sum.add(tallied.tally, column, row)?;
                }
            }
        }
        self.add(heads)
    }

    /// The row of a slot: `steps` rows of its set after the first, or before the last, where `row`
    /// as `symbol` is the last of all rows.
    pub(super) fn row(
        &self,
        slot: usize,
        (first, steps): (bool, usize),
        past: PastId,
        (symbol, row): (usize, usize),
    ) -> Option<usize> {
        let Some(SlotSource::Chain(at)) = self.sources.get(slot).copied() else {
            return None;
        };
        let chain = self.chains.get(at)?;
        let head = self.head(past, at);
        let before = chain.count(head);
        let all = before + u32::from(chain.has(symbol));
        let steps = u32::try_from(steps).ok()?;
        let depth = match first {
            true => steps,
            false => all.checked_sub(steps.checked_add(1)?)?,
        };
        match depth < before {
            true => chain.ancestor(head, depth).map(|link| link.row),
            false => (depth < all).then_some(row),
        }
    }

    /// The tally of a slot, with `row` as `symbol` as the last row.
    pub(super) fn tallied(
        &self,
        slot: usize,
        past: PastId,
        (symbol, row): (usize, usize),
        column: &Column,
    ) -> Result<Sum> {
        let Some(SlotSource::Tally { chain: at, tally }) = self.sources.get(slot).copied() else {
            return Err(Error::internal("a condition asks for what is not tallied").into());
        };
        let mut sum = self.sum(at, tally, past);
        if let Some(chain) = self.chains.get(at)
            && let Some(tallied) = chain.tallies.get(tally)
            && chain.has(symbol)
        {
            sum.add(tallied.tally, column, row)?;
        }
        Ok(sum)
    }

    fn sum(&self, chain: usize, tally: usize, past: PastId) -> Sum {
        let tallied = self.chains.get(chain).and_then(|c| c.tallies.get(tally));
        let sum = tallied.and_then(|tallied| {
            let head = self.head(past, chain)?;
            tallied.sums.get(row_index(head)).copied()
        });
        sum.unwrap_or_default()
    }

    /// Appends everything that a condition can observe of a past through this slot. Two pasts with
    /// equal keys have equal continuations.
    pub(super) fn append_key(&self, slot: usize, of: &Slot, past: PastId, key: &mut Vec<i128>) {
        match (self.sources.get(slot).copied(), of) {
            (
                Some(SlotSource::Chain(at)),
                Slot::Value {
                    of: Some(_),
                    first,
                    steps,
                    ..
                },
            ) => {
                if let Some(chain) = self.chains.get(at) {
                    let most = u32::try_from(steps + 1).unwrap_or(u32::MAX);
                    chain.append_rows(self.head(past, at), *first, most, key);
                }
            }
            (
                Some(SlotSource::Tally { chain, tally }),
                Slot::Tally {
                    of: Some(_),
                    tally: what,
                    ..
                },
            ) => self.sum(chain, tally, past).append_key(*what, key),
            // A tally of all rows is the same for all paths to one row.
            _ => {}
        }
    }

    /// Memory of all pasts, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let heads = self.heads.capacity() * size_of::<Option<u32>>();
        let chains = self.chains.iter().map(|chain| {
            let sums = chain.tallies.iter().map(|tallied| tallied.sums.capacity());
            chain.links.capacity() * size_of::<Link>() + sums.sum::<usize>() * size_of::<Sum>()
        });
        heads + chains.sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
