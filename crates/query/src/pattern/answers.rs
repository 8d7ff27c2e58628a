//! Output rows of a pattern, computed match by match.
//!
//! Invariant: an expression of one row of a match uses the rows up to that row; an expression of
//! the whole match (`FINAL`, or a match with one output row) uses all rows.

use super::machine::Label;
use super::node::Slot;
use super::rows::Run;
use super::tally::{Cell, Sum};
use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use std::sync::Arc;

/// A match.
pub(super) struct Match<'a> {
    pub(super) start: usize,
    pub(super) labels: &'a [Label],
    pub(super) number: i64,
}

/// The rows of an answer.
pub(super) struct Answers {
    /// Index of the partition row whose columns are output.
    rows: Vec<u64>,
    /// Cells of each slot.
    cells: Vec<Vec<Cell>>,
    /// Position of each reported match for a watch, if one tracks the search.
    tracks: Vec<String>,
}

impl Answers {
    pub(super) fn new(slots: usize) -> Answers {
        Answers {
            rows: Vec::new(),
            cells: vec![Vec::new(); slots],
            tracks: Vec::new(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    fn row(&mut self, row: usize) {
        self.rows.push(u64::try_from(row).unwrap_or(u64::MAX));
    }

    /// Adds the position of the last output row, for a watch.
    pub(super) fn track(&mut self, track: String) {
        self.tracks.push(track);
    }

    /// Adds a row that is not in a match.
    pub(super) fn unmatched(&mut self, row: usize) {
        self.row(row);
        for cells in &mut self.cells {
            cells.push(Cell::Absent);
        }
    }

    /// Adds a match: as one row, or as all of its rows.
    pub(super) fn matched(&mut self, run: &Run<'_>, of: &Match<'_>) -> Result<()> {
        let all = run.spec.answers.rows;
        let last = of.labels.len().checked_sub(1);
        let shown: Vec<Option<usize>> = match (all, last) {
            (true, Some(_)) => {
                let shown = of
                    .labels
                    .iter()
                    .enumerate()
                    .filter(|(_, label)| !label.excluded);
                shown.map(|(place, _)| Some(place)).collect()
            }
            (false, last) => vec![last],
            (true, None) => vec![None],
        };
        for place in &shown {
            // For one output row the columns of the partition are used, which all rows share.
            self.row(of.start + if all { place.unwrap_or(0) } else { 0 });
        }
        for (at, cells) in self.cells.iter_mut().enumerate() {
            slot_cells(run, of, at, &shown, cells)?;
        }
        Ok(())
    }

    /// Takes the rows as a batch.
    pub(super) fn batch(
        &mut self,
        run: &Run<'_>,
        kept: &[ArrayRef],
        measures: &[Arc<dyn PhysicalExpr>],
        schema: &SchemaRef,
    ) -> Result<RecordBatch> {
        let rows = UInt64Array::from(std::mem::take(&mut self.rows));
        let count = rows.len();
        let slots = self.cells.iter_mut().enumerate();
        let slots = slots.map(|(at, cells)| run.column(at, &std::mem::take(cells)));
        let slots: Vec<ArrayRef> = slots.collect::<Result<_>>()?;
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(count));
        let slot_schema = Arc::clone(run.spec.slot_schema.inner());
        let slots = RecordBatch::try_new_with_options(slot_schema, slots, &options)?;
        let measured = measures
            .iter()
            .map(|measure| measure.evaluate(&slots)?.into_array(count));
        let measured = measured.collect::<Result<Vec<ArrayRef>>>()?;
        let mut columns = Vec::with_capacity(kept.len() + measured.len());
        for column in kept {
            columns.push(take(column, &rows, None)?);
        }
        let before = run.spec.before.min(columns.len());
        columns.splice(before..before, measured);
        let tracks = std::mem::take(&mut self.tracks);
        if !tracks.is_empty() {
            columns.push(Arc::new(StringArray::from(tracks)));
        }
        let schema = Arc::clone(schema);
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}

/// The cells of one slot, for the output rows.
fn slot_cells(
    run: &Run<'_>,
    of: &Match<'_>,
    at: usize,
    shown: &[Option<usize>],
    cells: &mut Vec<Cell>,
) -> Result<()> {
    let labels = of.labels;
    match run.spec.slots.get(at) {
        Some(Slot::Value {
            of: rows,
            first,
            steps,
            shift,
            whole,
            ..
        }) => {
            let places = labels.iter().enumerate();
            let places =
                places.filter(|(_, l)| rows.as_ref().is_none_or(|of| of.contains(&l.symbol)));
            let places: Vec<usize> = places.map(|(place, _)| place).collect();
            for place in shown {
                let seen = match (place, whole) {
                    (None, _) => 0,
                    (_, true) => places.len(),
                    (Some(place), false) => places.partition_point(|known| known <= place),
                };
                let found = match first {
                    true => Some(*steps).filter(|steps| *steps < seen),
                    false => seen.checked_sub(steps + 1),
                };
                let found = found.and_then(|found| places.get(found));
                cells.push(
                    found.map_or(Cell::Absent, |place| run.shifted(of.start + place, *shift)),
                );
            }
        }
        Some(Slot::Tally {
            tally: what,
            of: rows,
            whole,
            ..
        }) => {
            let Some(Some(column)) = run.tallies.get(at) else {
                return Err(crate::Error::internal("nothing to tally").into());
            };
            let is_of = |label: &Label| rows.as_ref().is_none_or(|of| of.contains(&label.symbol));
            let mut sum = Sum::default();
            let mut next = 0;
            for place in shown {
                let until = match (place, whole) {
                    (None, _) => 0,
                    (_, true) => labels.len(),
                    (Some(place), false) => place + 1,
                };
                while next < until {
                    if labels.get(next).is_some_and(is_of) {
                        sum.add(*what, column, of.start + next)?;
                    }
                    next += 1;
                }
                cells.push(sum.cell(*what, column)?);
            }
        }
        Some(Slot::Classifier) => {
            let symbols = shown
                .iter()
                .map(|place| place.and_then(|place| labels.get(place)));
            cells.extend(symbols.map(|l| l.map_or(Cell::Absent, |l| Cell::Symbol(l.symbol))));
        }
        Some(Slot::Number) => cells.extend(shown.iter().map(|_| Cell::Whole(of.number))),
        None => {}
    }
    Ok(())
}
