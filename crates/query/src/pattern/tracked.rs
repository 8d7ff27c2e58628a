//! Patterns that a watch follows: the search of each partition begins at the position of the watch,
//! and each match has its key, the watermark from which on it is final, and the row at which the
//! search continues.
//!
//! Invariant: the matches equal those of a search of all rows, provided that search reaches the row
//! at which this one begins. Failure: a pattern that a watch cannot follow is refused by name.

use super::machine::Machine;
use super::node::{Pattern, PatternSpec, Skip, Slot};
use super::program::Step;
use super::rows::Run;
use super::tracking::{TRACK, Tracked, Tracking};
use crate::error::Error;
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::PhysicalExpr;
use headwater_columnar::{Cells, TimeText};
use headwater_watch::Position;
use std::sync::Arc;

/// Maximum length of matches of a pattern, if a watch can follow it.
pub(crate) fn watchable(node: &Pattern) -> crate::Result<i64> {
    let refused = |what: &str, hint: &str| {
        Err(Error::unsupported(format!("a watch with {what} is not supported")).with_hint(hint))
    };
    let spec = &node.spec;
    let Some(within_ns) = spec.within else {
        return Err(Error::watch_unbounded(
            "a watch needs a pattern with WITHIN: without it, a match would never be final",
        )
        .with_hint("PATTERN (…) WITHIN INTERVAL '1 minute'"));
    };
    if spec.answers.rows {
        return refused(
            "ALL ROWS PER MATCH",
            "ONE ROW PER MATCH reports each match once",
        );
    }
    if node.order.first().is_none_or(|sort| !sort.asc) {
        return refused("rows in descending order", "ORDER BY time");
    }
    for slot in &spec.slots {
        match slot {
            Slot::Value { shift, .. } if *shift > 0 => {
                return refused("NEXT", "add a symbol at the end for the next row: (A B)");
            }
            Slot::Number => {
                return refused("MATCH_NUMBER()", "events have numbers and ids of their own");
            }
            _ => {}
        }
    }
    let mut at = 0;
    while let Some(step) = spec.program.step(at) {
        if matches!(step, Step::Start | Step::End) {
            return refused(
                "^ or $",
                "a partition has no end while rows arrive, and its beginning may have been removed",
            );
        }
        at += 1;
    }
    if spec.program.may_be_empty() {
        return refused(
            "matches without rows",
            "the pattern must match at least one row: A+",
        );
    }
    Ok(within_ns)
}

impl Pattern {
    /// The same pattern for a watch: over rows from the required time on, with a column [`TRACK`]
    /// after the others.
    pub(crate) fn tracked(&self, input: LogicalPlan, tracking: &Arc<Tracking>) -> Result<Pattern> {
        let mut fields: Vec<_> = self
            .schema
            .iter()
            .map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)))
            .collect();
        fields.push((None, Arc::new(Field::new(TRACK, DataType::Utf8, false))));
        Ok(Pattern {
            input: Arc::new(input),
            schema: Arc::new(DFSchema::new_with_metadata(fields, Default::default())?),
            tracked: Some(Tracked::new(tracking)),
            ..self.clone()
        })
    }

    pub(crate) fn input(&self) -> &LogicalPlan {
        &self.input
    }

    /// The first sort key of the rows.
    pub(crate) fn first_order(&self) -> Option<&datafusion::logical_expr::Expr> {
        self.order.first().map(|sort| &sort.expr)
    }

    /// All expressions that are computed from rows and matches.
    pub(crate) fn computed(&self) -> Vec<&datafusion::logical_expr::Expr> {
        let spec = &self.spec;
        let conditions = spec.conditions.iter().flatten();
        let of_matches = conditions.chain(&spec.measures).map(|c| &c.expr);
        of_matches.chain(&self.rows).collect()
    }
}

/// Follows the search of a partition.
pub(super) struct Follower<'a> {
    tracking: &'a Tracking,
    partition: String,
    /// Number of rows before the first one that conditions and measures may need.
    before: usize,
    within_ns: i64,
    /// True if each search begins where the previous one ends.
    is_chain: bool,
    decided_ns: i64,
}

impl<'a> Follower<'a> {
    pub(super) fn new(
        tracked: &'a Tracked,
        spec: &PatternSpec,
        batch: &RecordBatch,
        partition: &[Arc<dyn PhysicalExpr>],
    ) -> Result<Follower<'a>> {
        let mut key = b"[".to_vec();
        let first = batch.slice(0, batch.num_rows().min(1));
        for by in partition {
            if key.len() > 1 {
                key.push(b',');
            }
            let values = by.evaluate(&first)?.into_array(first.num_rows())?;
            Cells::of(&values)?.push_json(&mut key, 0, TimeText::Rfc3339);
        }
        key.push(b']');
        let shifts = spec.slots.iter().map(|slot| match slot {
            Slot::Value { shift, .. } => {
                usize::try_from(shift.unsigned_abs()).unwrap_or(usize::MAX)
            }
            _ => 0,
        });
        Ok(Follower {
            tracking: tracked.tracking(),
            partition: String::from_utf8_lossy(&key).into_owned(),
            before: shifts.max().unwrap_or(0),
            within_ns: spec.within.unwrap_or(i64::MAX),
            is_chain: spec.skip != Skip::ToNextRow,
            decided_ns: i64::MIN,
        })
    }

    /// The row at which the search begins.
    pub(super) fn begin(&self, run: &Run<'_>) -> Result<usize> {
        let begin = self.tracking.begin.of(&self.partition);
        let (mut low, mut high) = (0, run.count);
        while low < high {
            let middle = low.midpoint(high);
            match time_ns(run, middle)? < begin.time_ns {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let mut skip = begin.skip;
        while skip > 0 && low < run.count && time_ns(run, low)? == begin.time_ns {
            (low, skip) = (low + 1, skip - 1);
        }
        let is_short = low < self.before && low < run.count;
        if is_short && self.tracking.lower_ns > i64::MIN {
            let first = time_ns(run, 0)?;
            self.tracking
                .short
                .lock()
                .push((self.partition.clone(), first));
        }
        Ok(low)
    }

    /// Records that a search from a row is complete.
    pub(super) fn looked(&mut self, run: &Run<'_>, row: usize, by: &Machine<'_>) -> Result<()> {
        let mut decided_ns = time_ns(run, row)?.saturating_add(self.within_ns);
        if let Some(last) = by.looked.checked_sub(1).filter(|_| !by.ran_off) {
            decided_ns = decided_ns.min(time_ns(run, last)?);
        }
        self.decided_ns = match self.is_chain {
            true => self.decided_ns.max(decided_ns),
            false => decided_ns,
        };
        Ok(())
    }

    /// The position of a match of `rows` rows, with the row at which the search continues.
    pub(super) fn matched(
        &self,
        run: &Run<'_>,
        row: usize,
        rows: usize,
        next: usize,
    ) -> Result<String> {
        let first = position(run, row)?;
        let last = time_ns(run, (row + rows).saturating_sub(1))?;
        // The previous row does not depend on the rows that follow.
        let before = position(run, next.saturating_sub(1))?;
        Ok(format!(
            "{} {} {last} {} {} {} {}",
            first.time_ns,
            first.skip,
            self.decided_ns,
            before.time_ns,
            before.skip + 1,
            self.partition
        ))
    }
}

fn time_ns(run: &Run<'_>, row: usize) -> Result<i64> {
    let time = run.time_ns(row);
    time.ok_or_else(|| Error::internal("a watch read a row without a time").into())
}

fn position(run: &Run<'_>, row: usize) -> Result<Position> {
    let time = time_ns(run, row)?;
    let mut skip = 0;
    let mut at = row;
    while at > 0 && time_ns(run, at - 1)? == time {
        (at, skip) = (at - 1, skip + 1);
    }
    Ok(Position {
        time_ns: time,
        skip,
    })
}
