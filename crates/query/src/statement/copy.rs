//! Bulk input of rows in columns, batch by batch, which are written as `INSERT` writes them.

use super::insert::{Writer, of_its_row};

use crate::answer::Stored;
use crate::columns::time_type;
use crate::error::{Error, Result};
use crate::names::{table_name, unknown_table};
use crate::session::Session;
use crate::view::Role;
use crate::zones::cast_in;
use arrow::array::{
    ArrayRef, RecordBatch, RecordBatchOptions, TimestampNanosecondArray, new_null_array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use headwater::Timestamp;
use headwater_wire::zone::Zone;
use std::sync::Arc;

/// Writes rows to a table.
///
/// Rows are stored in batches of about 4 MiB, each as a whole or not at all; stored batches stay
/// when a later one is refused.
pub struct CopyIn {
    writer: Writer,
    /// The input columns.
    schema: SchemaRef,
    /// Index of the input column for each column of the table.
    input_columns: Vec<Option<usize>>,
    /// The time of rows without one.
    now: Timestamp,
    /// Time zone in which text without an offset is read.
    zone: Zone,
}

impl std::fmt::Debug for CopyIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopyIn")
            .field("schema", &self.schema)
            .field("stored", &self.stored())
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Starts an input of rows into a table, whose name is written as in a statement. `columns` are
    /// the columns of the rows, empty = all; rows without `time` get the present time.
    ///
    /// ```
    /// use headwater::{Database, Options, TableSpec};
    /// use headwater_query::arrow::array::{ArrayRef, RecordBatch, StringArray};
    /// use headwater_query::{Limits, Parameters, Query, Unrestricted};
    /// use std::sync::Arc;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let dir = tempfile::tempdir()?;
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let session = Query::new(db, Limits::default()).session(Arc::new(Unrestricted));
    /// session.run("CREATE TABLE pump (time TIMESTAMP, id TAG, rpm DOUBLE)", Parameters::none()).await?;
    /// let mut copy = session.copy_in("pump", &["id".to_owned(), "rpm".to_owned()])?;
    /// let text = |values: Vec<&str>| Arc::new(StringArray::from(values)) as ArrayRef;
    /// let rows = [("id", text(vec!["7", "8"])), ("rpm", text(vec!["2150", "1.5"]))];
    /// copy.add(&RecordBatch::try_from_iter(rows)?).await?;
    /// assert_eq!(copy.finish().await?.rows, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the table or a column does not exist, a column is repeated, or the database is
    /// read-only.
    pub fn copy_in(&self, table: &str, columns: &[String]) -> Result<CopyIn> {
        let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(table);
        let name = parsed
            .and_then(|mut parser| parser.parse_object_name(false))
            .map_err(|error| Error::from(DataFusionError::from(error)))?;
        let db = self.query.database()?.clone();
        let running = self.begin()?;
        let view = running.view.table(&table_name(&name)?)?;
        let view = view.ok_or_else(|| unknown_table(table))?;
        let own = view.schema.fields();
        let given: Vec<usize> = if columns.is_empty() {
            (0..own.len()).collect()
        } else {
            let found = columns.iter().map(|column| {
                let found = own.iter().position(|field| field.name() == column);
                found.ok_or_else(|| {
                    Error::unknown_column(format!("`{}` has no column `{column}`", view.name))
                })
            });
            found.collect::<Result<_>>()?
        };
        let mut input_columns = vec![None; own.len()];
        let mut fields = Vec::with_capacity(given.len());
        for (place, at) in given.into_iter().enumerate() {
            let (Some(slot), Some(field)) = (input_columns.get_mut(at), own.get(at)) else {
                continue;
            };
            if slot.replace(place).is_some() {
                let name = field.name();
                return Err(Error::invalid(format!(
                    "the column `{name}` is given twice"
                )));
            }
            let of = match view.roles.get(at) {
                Some(Role::Tag(_)) => DataType::Utf8,
                _ => field.data_type().clone(),
            };
            fields.push(Field::new(field.name(), of, true));
        }
        let begun = running.state.execution_props().query_execution_start_time;
        let now = begun.and_then(|begun| begun.timestamp_nanos_opt());
        Ok(CopyIn {
            writer: Writer::new(self.clone(), db, view),
            schema: Arc::new(Schema::new(fields)),
            input_columns,
            zone: self.settings_now().zone,
            now: now
                .map(Timestamp::from_nanos)
                .ok_or_else(|| Error::internal("a statement without its beginning"))?,
        })
    }
}

impl CopyIn {
    /// The input columns, with the types to which they are converted.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Rows that are stored already, and stay if a later batch fails.
    #[must_use]
    pub fn stored(&self) -> Stored {
        self.writer.stored()
    }

    /// Adds rows: columns as in [`CopyIn::schema`], or of types such as text that can be converted.
    ///
    /// # Errors
    /// When a value cannot be converted to its column's type, the session may not write a row, or
    /// the database refuses it.
    pub async fn add(&mut self, rows: &RecordBatch) -> Result<()> {
        if rows.num_columns() != self.schema.fields().len() {
            return Err(Error::invalid(format!(
                "{} columns, expected {}",
                rows.num_columns(),
                self.schema.fields().len()
            )));
        }
        let count = rows.num_rows();
        let table = self.writer.table();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.input_columns.len());
        let of_table = self
            .input_columns
            .iter()
            .zip(table.schema.fields())
            .zip(&table.roles);
        for ((place, field), role) in of_table {
            let given =
                place.and_then(|at| rows.columns().get(at).zip(self.schema.fields().get(at)));
            columns.push(match (given, role) {
                (Some((column, wanted)), _) => {
                    let cast = |values: &ArrayRef| {
                        cast_in(&self.zone, values, wanted.data_type()).map_err(|error| {
                            let why = Error::from(error).message;
                            Error::invalid_value(format!("column `{}`: {why}", wanted.name()))
                        })
                    };
                    cast(column).map_err(|error| {
                        let first = self.writer.rows_added();
                        of_its_row(error, column, first, |row| cast(row).map(drop))
                    })?
                }
                (None, Role::Time) => {
                    let own = self.writer.instants(self.now, count);
                    let times = TimestampNanosecondArray::from_iter_values(own);
                    Arc::new(times.with_data_type(time_type()))
                }
                (None, Role::Tag(_)) => new_null_array(&DataType::Utf8, count),
                (None, Role::Field(_)) => new_null_array(field.data_type(), count),
            });
        }
        let fields = columns.iter().zip(table.schema.fields());
        let fields: Vec<Field> = fields
            .map(|(column, field)| Field::new(field.name(), column.data_type().clone(), true))
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let batch =
            RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options);
        let batch = batch.map_err(|error| Error::internal(error.to_string()))?;
        self.writer.add_rows(&batch).await
    }

    /// Stores the rows that are not stored yet. Returns the totals.
    ///
    /// # Errors
    /// When the database refuses them.
    pub async fn finish(mut self) -> Result<Stored> {
        self.writer.store().await?;
        Ok(self.writer.stored())
    }
}
