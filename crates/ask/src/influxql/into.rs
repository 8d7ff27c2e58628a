//! `SELECT … INTO`: the rows of an answer become points of a measurement.
//!
//! Invariants: the right to write every resulting series is checked before the first point is
//! written; for a client without the right to write everything, the statement runs twice, the first
//! time for the names of the series. A row without values does not become a point. Reads are of the
//! snapshot, whatever is written meanwhile. Failure: an error after the first point reports how
//! many rows were written before.

use super::sources::all_sources;
use super::taker::Taker;
use super::{Answer, Cell, Evaluator, Series, invalid};
use crate::databases::{Names, Space, not_found};
use crate::error::{Error, QueryErrorKind};
use headwater::{Batch, Database, StreamName, Timestamp, Value};
use headwater_wire::influxql::{IntoTarget, Select};
use std::collections::HashSet;

/// Number of values per batch of the writer.
const BATCH_VALUES: usize = 50_000;

/// Outcome of writing points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Rows that are stored.
    pub rows: u64,
    /// Reason of the first refused row, if any.
    pub refused: Option<String>,
}

/// Stores the points of `SELECT … INTO`. The caller has checked the right to write them.
pub trait PointWriter {
    /// Checks that writes are possible at all. Called before the statement runs.
    ///
    /// # Errors
    /// The reason for which writes are refused.
    fn is_open(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Stores points, as durable as any acknowledged write.
    ///
    /// # Errors
    /// The database's error when no point is stored.
    fn write(&self, points: Batch) -> Result<Stored, Error>;
}

impl PointWriter for Database {
    fn write(&self, points: Batch) -> Result<Stored, Error> {
        let written = self.commit(points)?;
        Ok(Stored {
            rows: written.accepted,
            refused: written.refused.first().map(|r| r.message.clone()),
        })
    }
}

/// Purpose of a pass over the points.
enum Pass<'a> {
    /// Collects the names of the series.
    CollectNames(HashSet<StreamName>),
    /// Writes the points.
    Write(&'a dyn PointWriter),
}

struct Points<'a> {
    evaluator: &'a Evaluator<'a>,
    space: Space,
    /// The measurement, if it differs from the measurement of the rows.
    measurement: Option<&'a str>,
    pass: Pass<'a>,
    batch: Batch,
    batch_bytes: usize,
    written: u64,
}

impl Evaluator<'_> {
    /// Writes the rows of a statement, and answers their number.
    pub(super) fn select_into(
        &self,
        select: &Select,
        target: &IntoTarget,
    ) -> Result<Answer, Error> {
        self.must_read()?;
        self.check_sources(&all_sources(select))?;
        let writer = self.writer.ok_or_else(|| {
            Error::new(
                QueryErrorKind::Unsupported,
                "this front end is read-only: send SELECT INTO to a server",
            )
        })?;
        writer.is_open()?;
        let space = self.space_to_write(target)?;
        let points = |pass| Points {
            evaluator: self,
            space: space.clone(),
            measurement: target.name.as_deref(),
            pass,
            batch: Batch::new(),
            batch_bytes: 0,
            written: 0,
        };
        if !self.access.all() {
            let mut asking = points(Pass::CollectNames(HashSet::new()));
            let before = self.budget.bytes_in_use();
            self.select(select, None, &mut asking)?;
            self.budget.keep_only(before, 0)?;
        }
        let mut writing = points(Pass::Write(writer));
        let done = self.select(select, None, &mut writing);
        let done = done.and_then(|()| writing.flush());
        match done {
            Ok(()) => Ok(written(writing.written)),
            Err(error) if writing.written > 0 => Err(Error::new(
                error.kind(),
                format!(
                    "{}; {} rows were written before it",
                    error.message(),
                    writing.written
                ),
            )),
            Err(error) => Err(error),
        }
    }

    /// The database of a target. A client that may neither read nor write in it gets the same error
    /// as for one that does not exist.
    fn space_to_write(&self, target: &IntoTarget) -> Result<Space, Error> {
        let own = target.database.as_deref().filter(|name| !name.is_empty());
        let space = self.names.space(own.or(self.database))?;
        match &space {
            Space::Other(name)
                if !self.may_see_database(name)
                    && !self
                        .access
                        .writes_some_with_prefix(&Names::table(&space, "")) =>
            {
                Err(not_found(name, ""))
            }
            _ => Ok(space),
        }
    }
}

/// The answer: one row with the number of rows.
fn written(rows: u64) -> Answer {
    let rows = i64::try_from(rows).unwrap_or(i64::MAX);
    Answer {
        series: Some(vec![Series {
            name: "result".to_owned(),
            columns: ["time", "written"].map(str::to_owned).to_vec(),
            cells: vec![Cell::Time(0), Cell::Value(Value::I64(rows))],
            ..Series::default()
        }]),
        ..Answer::default()
    }
}

impl Points<'_> {
    /// The table for rows of a measurement.
    fn table(&self, measurement: &str) -> Result<String, Error> {
        let measurement = self.measurement.unwrap_or(measurement);
        let table = Names::table(&self.space, measurement);
        // A name with a dot may be a measurement of another database.
        if self.evaluator.names.measurement(&self.space, &table) != Some(measurement) {
            return Err(invalid(format!(
                "{measurement:?} is not allowed as a measurement, since it begins with the name of a database: write \"database\"..\"measurement\""
            )));
        }
        Ok(table)
    }

    fn may_write(&mut self, stream: &StreamName) -> Result<(), Error> {
        let Pass::CollectNames(known) = &mut self.pass else {
            return Ok(());
        };
        if known.contains(stream) {
            return Ok(());
        }
        if !self.evaluator.access.writes(stream.table(), stream.tags()) {
            return Err(Error::new(
                QueryErrorKind::Access,
                format!(
                    "this token may not write {stream}: none of its rules allows it, and nothing was \
                     written; use a token with such a rule (`headwater token create`)"
                ),
            ));
        }
        self.evaluator.budget.take_values(stream.tags().len() + 1)?;
        known.insert(stream.clone());
        Ok(())
    }

    /// Adds one row; `names` are the names of its columns after the time.
    fn row(
        &mut self,
        stream: &StreamName,
        time: Timestamp,
        values: Vec<(&str, Value)>,
    ) -> Result<(), Error> {
        self.may_write(stream)?;
        if matches!(self.pass, Pass::CollectNames(_)) {
            return Ok(());
        }
        let count = values.len();
        let mixed = |e: headwater::MixedTypes| Error::new(QueryErrorKind::Invalid, e.to_string());
        let added = self
            .batch
            .stream(stream)
            .row(time.as_nanos(), values.clone());
        if added.is_err() {
            // A value of another type than earlier ones: the database reports a type error.
            self.flush()?;
            self.batch
                .stream(stream)
                .row(time.as_nanos(), values)
                .map_err(mixed)?;
        }
        self.batch_bytes += count;
        match self.batch_bytes >= BATCH_VALUES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let Pass::Write(writer) = self.pass else {
            return Ok(());
        };
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if batch.is_empty() {
            return Ok(());
        }
        self.evaluator.budget.check()?;
        let stored = writer.write(batch)?;
        self.written += stored.rows;
        match stored.refused {
            Some(why) => Err(Error::new(
                QueryErrorKind::Invalid,
                format!("partial write: {why}"),
            )),
            None => Ok(()),
        }
    }
}

impl Taker for Points<'_> {
    fn take(&mut self, series: Series, _: bool) -> Result<(), Error> {
        let table = self.table(&series.name)?;
        let names = match series.columns.split_first() {
            Some((_, names)) => names,
            None => &[],
        };
        let mut seen = HashSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(invalid(format!(
                "two columns are named {twice:?} and would become one field: give them different names with AS"
            )));
        }
        for row in series.cells.chunks(series.columns.len().max(1)) {
            if let Some((Cell::Time(time), cells)) = row.split_first() {
                let (tags, values) = parted(&series, names, cells);
                if !values.is_empty() {
                    let stream = StreamName::new(table.clone(), tags);
                    self.row(&stream, Timestamp::from_nanos(*time), values)?;
                }
            }
        }
        Ok(())
    }

    fn hands_on(&self) -> bool {
        true
    }
}

/// A point without its time: its tags, and its fields with their values.
type Point<'s> = (Vec<(String, String)>, Vec<(&'s str, Value)>);

/// The point of a row.
fn parted<'s>(series: &Series, names: &'s [String], cells: &[Cell]) -> Point<'s> {
    let mut tags = series.tags.clone();
    let mut values: Vec<(&str, Value)> = Vec::with_capacity(cells.len());
    for (at, (name, cell)) in names.iter().zip(cells).enumerate() {
        match cell {
            Cell::Value(Value::String(text)) if series.tag_columns.contains(&at) => {
                tags.retain(|(key, _)| key != name);
                tags.push((name.clone(), text.clone()));
            }
            Cell::Value(value) => values.push((name, value.clone())),
            Cell::Null | Cell::Time(_) => {}
        }
    }
    tags.retain(|(_, value)| !value.is_empty());
    (tags, values)
}
