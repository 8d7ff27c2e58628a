//! `INSERT`: converts rows of `VALUES` or of a query to batches of the engine.
//!
//! Invariants: rows are written in batches of bounded size, each stored as a whole or not at all; a
//! statement whose rows fit one batch is atomic, a longer one ends at the first refused batch, and
//! its error reports how many rows were stored.

use super::parameter_types::{nulls, parameter_types};
use super::types::column_name;
use super::{Shape, blocking};
use crate::answer::{Answer, Outcome, Stored};
use crate::columns::to_column;
use crate::error::{Code, Error, Result};
use crate::parameters::Parameters;
use crate::placeholders::Written;
use crate::session::{Running, Session, no_columns};
use crate::table::Table;
use crate::view::{Role, TableView};
use crate::zones::cast_in;
use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, TimestampNanosecondArray,
    UInt32Array,
};
use arrow::compute::{CastOptions, cast_with_options, take};
use arrow::datatypes::{DataType, TimestampNanosecondType};
use datafusion::datasource::source_as_provider;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{DmlStatement, LogicalPlan, WriteOp};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast;
use futures_util::StreamExt;
use headwater::{Batch, Database, Instants, StreamName, StreamRows, Timestamp};
use headwater_columnar::type_name;
use headwater_wire::zone::Zone;
use std::collections::HashMap;
use std::sync::Arc;

/// Approximate bytes of a batch; the engine accepts at most 16 MiB.
pub(super) const BATCH_BYTES: usize = 4 << 20;
/// A value that does not convert is an error, not null.
const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: arrow::util::display::FormatOptions::new(),
};

fn refuse(insert: &ast::Insert) -> Result<()> {
    let unsupported = |what: &str| {
        Err(Error::unsupported_statement(format!(
            "INSERT … {what} is not supported"
        )))
    };
    if insert.on.is_some() {
        return unsupported("ON CONFLICT").map_err(|e: Error| {
            e.with_hint("a row with the same tags and time always replaces field by field")
        });
    }
    if insert.output.is_some() {
        return unsupported("OUTPUT").map_err(|e: Error| e.with_hint("write RETURNING"));
    }
    if insert.overwrite || insert.replace_into || insert.or.is_some() {
        return unsupported("OVERWRITE or OR REPLACE");
    }
    Ok(())
}

/// The table of a statement that changes rows, as the session sees it.
pub(super) fn target(dml: &DmlStatement) -> Result<Arc<TableView>> {
    let provider = source_as_provider(&dml.target)?;
    let any: &dyn std::any::Any = provider.as_ref();
    match any.downcast_ref::<Table>() {
        Some(table) => Ok(Arc::clone(table.view())),
        None => Err(Error::forbidden(format!(
            "`{}` cannot be changed",
            dml.table_name
        ))),
    }
}

/// Replaces the names of views by their queries.
async fn expand(session: &Session, running: &Running, insert: &mut ast::Insert) -> Result<()> {
    if let Some(source) = &mut insert.source {
        super::views::expand(session, running, &mut **source).await?;
    }
    Ok(())
}

async fn plan(running: &Running, insert: &ast::Insert) -> Result<DmlStatement> {
    refuse(insert)?;
    let statement = ast::Statement::Insert(insert.clone());
    let plan = running
        .resolve(Parse::Statement(Box::new(statement)))
        .await?;
    match plan {
        LogicalPlan::Dml(dml) if matches!(dml.op, WriteOp::Insert(_)) => Ok(dml),
        other => Err(Error::internal(format!(
            "an INSERT was planned as {}",
            other.display()
        ))),
    }
}

pub(super) async fn describe(
    session: &Session,
    insert: &ast::Insert,
    types: &[Option<DataType>],
    written: &Written,
) -> Result<Shape> {
    let running = session.begin()?;
    let mut insert = insert.clone();
    expand(session, &running, &mut insert).await?;
    let dml = plan(&running, &insert).await?;
    let types = parameter_types(&running, &dml.input, written, types).await?;
    nulls(&types)?.apply(Arc::unwrap_or_clone(dml.input), types.len())?;
    Ok(Shape::new(
        types,
        no_columns(),
        Outcome::Inserted(Stored::default()),
    ))
}

/// Rows that are about to be written.
pub(super) struct Planned {
    rows: SendableRecordBatchStream,
    writer: Writer,
}

/// Assigns distinct instants to rows whose statement does not set the time: from the statement's
/// start on, each a nanosecond after the previous one.
fn apart(
    rows: SendableRecordBatchStream,
    table: &TableView,
    instants: Arc<Instants>,
) -> SendableRecordBatchStream {
    let Some(at) = table
        .roles
        .iter()
        .position(|role| matches!(role, Role::Time))
    else {
        return rows;
    };
    let schema = rows.schema();
    let moved = rows.map(move |batch| -> datafusion::error::Result<RecordBatch> {
        let batch = batch?;
        let Some(times) = batch.columns().get(at) else {
            return Ok(batch);
        };
        let Some(times) = times.as_primitive_opt::<TimestampNanosecondType>() else {
            return Ok(batch);
        };
        let Some(now) = times.iter().flatten().next() else {
            return Ok(batch);
        };
        let own = following(&instants, Timestamp::from_nanos(now), batch.num_rows());
        let own = TimestampNanosecondArray::from_iter_values(own);
        let mut columns = batch.columns().to_vec();
        if let Some(slot) = columns.get_mut(at) {
            *slot = Arc::new(own.with_data_type(times.data_type().clone()));
        }
        Ok(RecordBatch::try_new(batch.schema(), columns)?)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, moved))
}

fn count(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}

/// Instants for `rows` rows, at `now` or later, that are unique among rows without a time.
fn following(
    instants: &Instants,
    now: Timestamp,
    rows: usize,
) -> impl Iterator<Item = i64> + use<> {
    let first = instants.take(now, count(rows));
    (first.as_nanos()..).take(rows)
}

impl Planned {
    /// The rows, and their writer.
    pub(super) fn into_parts(self) -> (SendableRecordBatchStream, Writer) {
        (self.rows, self.writer)
    }
}

/// True for the name of the table's column of timestamps.
fn is_time(table: &TableView, column: &ast::ObjectName) -> bool {
    let last = column.0.last().and_then(|part| part.as_ident());
    last.is_some_and(|ident| matches!(table.role(&column_name(ident)), Some(Role::Time)))
}

/// Plans the rows.
pub(super) async fn begin(
    session: &Session,
    mut insert: ast::Insert,
    (parameters, written): (Parameters, usize),
) -> Result<Planned> {
    let db = session.query.database()?.clone();
    let running = session.begin()?;
    expand(session, &running, &mut insert).await?;
    let dml = plan(&running, &insert).await?;
    let table = target(&dml)?;
    let names_time = insert.columns.is_empty() || insert.columns.iter().any(|c| is_time(&table, c));
    let source = parameters.apply(Arc::unwrap_or_clone(dml.input), written)?;
    let plan = session.plan(&running, source).await?;
    let mut rows = session.rows(&running, plan, Outcome::Select)?.rows;
    if !names_time {
        rows = apart(rows, &table, Arc::clone(db.instants()));
    }
    Ok(Planned {
        rows,
        writer: Writer::new(session.clone(), db, table),
    })
}

/// Writes the rows.
pub(super) async fn finish(planned: Planned) -> Result<Answer> {
    let Planned {
        mut rows,
        mut writer,
    } = planned;
    while let Some(batch) = rows.next().await {
        let taken = writer.add_rows(&batch?).await;
        taken.map_err(|error| writer.in_its_row(error))?;
    }
    let stored = writer.store().await;
    stored.map_err(|error| writer.in_its_row(error))?;
    Ok(Answer::without_rows(Outcome::Inserted(writer.stored)))
}

#[derive(Default)]
struct Waiting {
    batch: Batch,
    bytes: usize,
    rows: u64,
    /// Per entry of the batch, the numbers of its rows in the statement.
    origins: Vec<Vec<u64>>,
}

impl Waiting {
    fn push(&mut self, rows: StreamRows, origins: Vec<u64>) {
        debug_assert_eq!(rows.times.len(), origins.len());
        self.origins.push(origins);
        let fields = rows.fields.iter().map(|(_, column)| column.heap_bytes());
        self.bytes += rows.times.len() * 8 * (1 + rows.fields.len()) + fields.sum::<usize>();
        self.rows += count(rows.times.len());
        self.batch.push(rows);
    }
}

/// Writes rows of a table, in batches of bounded size.
pub(super) struct Writer {
    session: Session,
    /// Time zone in which text without an offset is read.
    zone: Zone,
    db: Database,
    table: Arc<TableView>,
    waiting: Waiting,
    stored: Stored,
    /// Number of rows that were added, stored or not.
    rows_added: u64,
}

impl Writer {
    pub(super) fn new(session: Session, db: Database, table: Arc<TableView>) -> Writer {
        Writer {
            zone: session.settings_now().zone,
            session,
            db,
            table,
            waiting: Waiting::default(),
            stored: Stored::default(),
            rows_added: 0,
        }
    }

    /// Instants for rows without a time.
    pub(super) fn instants(
        &self,
        now: Timestamp,
        rows: usize,
    ) -> impl Iterator<Item = i64> + use<> {
        following(self.db.instants(), now, rows)
    }

    pub(super) fn table(&self) -> &TableView {
        &self.table
    }

    /// Time zone in which text without an offset is read.
    pub(super) fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Rows that are stored.
    pub(super) fn stored(&self) -> Stored {
        self.stored
    }

    /// Adds rows, with a column for each of the table's, and stores the buffered rows when they
    /// fill a batch.
    pub(super) async fn add_rows(&mut self, batch: &RecordBatch) -> Result<()> {
        self.add(batch)?;
        if self.waiting.bytes >= BATCH_BYTES {
            self.store().await?;
        }
        Ok(())
    }

    /// Adds the row number to an error, if the statement has several rows.
    pub(super) fn in_its_row(&self, mut error: Error) -> Error {
        if let Some(row) = error.row.filter(|_| self.rows_added > 1) {
            error.message = format!("row {row}: {}", error.message);
        }
        error
    }

    /// Number of rows that were added, stored or not, which is the number of the next row.
    pub(super) fn rows_added(&self) -> u64 {
        self.rows_added
    }

    /// Distributes rows to their streams.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let first = self.rows_added;
        self.rows_added += count(batch.num_rows());
        let mut columns = Vec::with_capacity(batch.num_columns());
        let mut tags = Vec::new();
        let wanted = self.table.schema.fields().iter().zip(&self.table.roles);
        for (column, (field, role)) in batch.columns().iter().zip(wanted) {
            if matches!(role, Role::Tag(_)) {
                tags.push(self.assigned(column, field.name(), &DataType::Utf8, first)?);
            } else {
                let of = field.data_type();
                columns.push((self.assigned(column, field.name(), of, first)?, role));
            }
        }
        for (values, rows) in by_tags(&tags, batch.num_rows()) {
            let keys = self.table.keys.iter().zip(&values);
            let named = keys.filter_map(|(k, v)| Some((k.clone(), (*v)?.to_owned())));
            let name = StreamName::new(self.table.name.clone(), named);
            let access = &self.session.access;
            if !access.all() && !access.writes(name.table(), name.tags()) {
                return Err(Error::forbidden(format!(
                    "this session may not write to `{name}`"
                )));
            }
            let origins: Vec<u64> = rows.iter().map(|row| first + u64::from(*row)).collect();
            let picked = UInt32Array::from(rows);
            let mut entry = StreamRows::new(name);
            for (column, role) in &columns {
                match role {
                    Role::Tag(_) => {}
                    Role::Time => {
                        let times = take(column, &picked, None).map_err(arrow)?;
                        check_times(&times, &origins)?;
                        let times = times.as_primitive::<TimestampNanosecondType>();
                        entry.times = times.values().to_vec();
                    }
                    Role::Field(at) => {
                        if column.null_count() == column.len() {
                            continue;
                        }
                        let values = take(column, &picked, None).map_err(arrow)?;
                        let Some((field, _)) = self.table.fields.get(*at) else {
                            continue;
                        };
                        if values.null_count() < values.len() {
                            entry.fields.push((field.clone(), to_column(&*values)?));
                        }
                    }
                }
            }
            self.waiting.push(entry, origins);
        }
        Ok(())
    }

    /// Converts values to a column's type; an error names the row, counted from `first`.
    fn assigned(
        &self,
        values: &ArrayRef,
        column: &str,
        wanted: &DataType,
        first: u64,
    ) -> Result<ArrayRef> {
        assigned(values, column, wanted, &self.zone).map_err(|error| {
            let each = |row: &ArrayRef| assigned(row, column, wanted, &self.zone).map(drop);
            of_its_row(error, values, first, each)
        })
    }

    /// Stores the buffered rows.
    pub(super) async fn store(&mut self) -> Result<()> {
        let Waiting {
            mut batch,
            rows,
            origins,
            ..
        } = std::mem::take(&mut self.waiting);
        if rows == 0 {
            return Ok(());
        }
        batch.require_all();
        let db = self.db.clone();
        let written = blocking(move || Ok(db.commit(batch)?)).await;
        let before = self.stored.rows;
        let note = |error: Error| match before {
            0 => error,
            _ => error.with_hint(format!("{before} earlier rows were stored")),
        };
        let written = written.map_err(note)?;
        if let Some(refused) = written.refused.first() {
            let more = written.refused.len() - 1;
            let message = match more {
                0 => refused.message.clone(),
                _ => format!("{} ({more} more rows were refused)", refused.message),
            };
            let error = note(Error::refused(format!("{}: {message}", refused.code)));
            let origins = origins.get(refused.entry);
            let origin = origins.and_then(|rows| rows.get(refused.row));
            return Err(match origin {
                Some(row) => error.of_row(*row),
                None => error,
            });
        }
        self.stored.rows += rows;
        self.stored.replaced += written.replaced;
        Ok(())
    }
}

/// Row numbers by the values of their tags.
fn by_tags(tags: &[ArrayRef], rows: usize) -> HashMap<Vec<Option<&str>>, Vec<u32>> {
    let tags: Vec<_> = tags.iter().map(|t| t.as_string::<i32>()).collect();
    let mut by_tags: HashMap<_, Vec<u32>> = HashMap::new();
    for row in 0..rows {
        let values = tags.iter();
        let key: Vec<_> = values
            .map(|tag| tag.is_valid(row).then(|| tag.value(row)))
            .collect();
        let rows = by_tags.entry(key).or_default();
        rows.push(u32::try_from(row).unwrap_or(u32::MAX));
    }
    by_tags
}

/// Refuses rows without a time; an error names the first of them.
fn check_times(times: &ArrayRef, origins: &[u64]) -> Result<()> {
    if times.null_count() == 0 {
        return Ok(());
    }
    let mut all = origins.iter().enumerate();
    let row = all.find(|(at, _)| times.is_null(*at));
    let error = Error::invalid_value("`time` cannot be NULL")
        .with_hint("leave the column out to use the current time");
    Err(match row {
        Some((_, row)) => error.of_row(*row),
        None => error,
    })
}

/// An error of a conversion, with the first row whose value alone causes it; without a row if the
/// types do not fit.
pub(super) fn of_its_row(
    error: Error,
    values: &ArrayRef,
    first: u64,
    each: impl Fn(&ArrayRef) -> Result<()>,
) -> Error {
    if error.kind() == Code::TypeMismatch {
        return error;
    }
    let found = (0..values.len()).find_map(|row| {
        let error = each(&values.slice(row, 1)).err()?;
        Some(error.of_row(first + count(row)))
    });
    found.unwrap_or(error)
}

/// Rows as they will be read: each value converted to its column's type.
pub(super) fn as_stored(rows: &RecordBatch, table: &TableView, zone: &Zone) -> Result<RecordBatch> {
    let fields = table.schema.fields();
    let mut columns = Vec::with_capacity(fields.len());
    for (column, field) in rows.columns().iter().zip(fields) {
        let assigned = assigned(column, field.name(), field.data_type(), zone)?;
        columns.push(cast_with_options(&assigned, field.data_type(), &STRICT).map_err(arrow)?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(&table.schema), columns, &options).map_err(arrow)
}

fn arrow(error: arrow::error::ArrowError) -> Error {
    Error::from(datafusion::common::DataFusionError::from(error))
}

/// Converts values to a column's type. The planner converts the statement's own values; parameters
/// are known only to the client.
///
/// Integers for a column of floats are unchanged: the engine accepts those that a float represents
/// exactly, and names the others.
fn assigned(values: &ArrayRef, column: &str, wanted: &DataType, zone: &Zone) -> Result<ArrayRef> {
    let found = values.data_type();
    let is_text = matches!(
        found,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    );
    let is_instant = matches!(
        found,
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
    );
    let is_taken = match wanted {
        _ if found == wanted => return Ok(Arc::clone(values)),
        DataType::Float64 if *found == DataType::Int64 => return Ok(Arc::clone(values)),
        _ if found.is_null() => true,
        DataType::Float64 | DataType::Int64 | DataType::UInt64 => found.is_numeric() || is_text,
        DataType::Timestamp(..) => is_instant || is_text,
        DataType::Boolean => is_text,
        DataType::Binary => matches!(
            found,
            DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_)
        ),
        _ => true,
    };
    if !is_taken {
        return Err(Error::type_mismatch(format!(
            "column `{column}` is of type {}, but the value is of type {}",
            type_name(wanted),
            type_name(found)
        ))
        .with_hint("CAST the value to the type of the column"));
    }
    let cast = cast_in(zone, values, wanted)?;
    if wanted.is_integer() && !found.is_integer() && found.is_numeric() {
        let back = cast_with_options(&cast, found, &STRICT).map_err(arrow)?;
        if *back != **values {
            return Err(Error::invalid_value(format!(
                "column `{column}` is of integers, but the value has a fraction"
            ))
            .with_hint("round it, or change the column to floats: ALTER TABLE … ALTER COLUMN … TYPE DOUBLE"));
        }
    }
    Ok(cast)
}
