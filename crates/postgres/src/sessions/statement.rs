//! A statement of a session: what it is, with what parameters, and how far its rows have been sent.

use super::commands::Command;
use super::errors::{Failure, of_query};
use crate::catalog::{PgType, modifier};
use crate::messages::{Column, Format, Notice};
use crate::rewrite::Rewritten;
use headwater_query::arrow::array::RecordBatch;
use headwater_query::arrow::datatypes::{Schema, SchemaRef};
use headwater_query::datafusion::common::ScalarValue;
use headwater_query::datafusion::execution::SendableRecordBatchStream;
use headwater_query::{Done, Made};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// A text to be run, and what was changed in it for the planner.
#[derive(Debug)]
pub(super) struct Text {
    /// As the client wrote it, other statements before it included.
    pub(super) whole: String,
    /// Where the statement begins in it, in bytes.
    pub(super) at: usize,
    /// The statement.
    pub(super) statement: String,
    pub(super) rewritten: Rewritten,
}

impl Text {
    /// The statement for the planner.
    pub(super) fn sql(&self) -> &str {
        self.rewritten.sql.as_deref().unwrap_or(&self.statement)
    }

    /// The error for the client when the planner or its plan fails.
    pub(super) fn failure(&self, why: headwater_query::Error) -> Failure {
        self.notice(why).into()
    }

    fn notice(&self, why: headwater_query::Error) -> Notice {
        // Places in a text that the client did not write mean nothing to it.
        let place = self
            .rewritten
            .sql
            .is_none()
            .then_some((self.whole.as_str(), self.at));
        of_query(why, place)
    }
}

/// A statement that was prepared.
#[derive(Debug)]
pub(super) enum Prepared {
    /// There is nothing in it.
    Empty,
    /// The session itself answers.
    Command(Command),
    /// The planner answers.
    Query {
        text: Text,
        prepared: Box<headwater_query::Prepared>,
        /// The numbers of the types of its parameters.
        types: Vec<u32>,
    },
    /// Makes a cursor for a query.
    Declare {
        name: String,
        /// Whether it stays after its transaction.
        hold: bool,
        query: Arc<Prepared>,
    },
}

impl Prepared {
    /// Bytes that it takes as long as it is retained, about.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Prepared::Query { text, prepared, .. } => {
                let made = text.rewritten.sql.as_ref().map_or(0, String::len);
                text.whole.len() + text.statement.len() + made + prepared.bytes()
            }
            Prepared::Declare { query, .. } => query.bytes(),
            Prepared::Empty | Prepared::Command(_) => 0,
        }
    }

    /// The numbers of the types of its parameters.
    pub(super) fn types(&self) -> &[u32] {
        match self {
            Prepared::Query { types, .. } => types,
            Prepared::Declare { query, .. } => query.types(),
            _ => &[],
        }
    }
}

/// Rows that are being sent.
pub(super) struct Rows {
    pub(super) schema: SchemaRef,
    pub(super) stream: SendableRecordBatchStream,
    /// A batch of which some rows are sent, and how many.
    pub(super) batch: Option<(RecordBatch, usize)>,
    /// The number of rows sent since the last message that said so.
    pub(super) sent: u64,
    pub(super) done: Done,
    /// When they must all have been sent.
    pub(super) until: Instant,
    /// Among the cursors that there may be, from when it waits to be asked for more.
    pub(super) cursor: Option<OwnedSemaphorePermit>,
}

/// State of a portal.
pub(super) enum State {
    /// The portal was not run yet.
    Ready,
    /// There may be more rows.
    Rows(Box<Rows>),
    /// All was sent.
    Finished,
    /// Its time was up before all was sent.
    Late,
}

/// A statement with its parameters.
pub(super) struct Portal {
    pub(super) statement: Arc<Prepared>,
    pub(super) parameters: Vec<ScalarValue>,
    /// None = all as text; one = all so; else one for each column.
    pub(super) formats: Vec<Format>,
    pub(super) state: State,
    /// Whether it stays after its transaction.
    pub(super) hold: bool,
}

impl Portal {
    /// Bytes that its parameters take.
    pub(super) fn bytes(&self) -> usize {
        self.parameters.iter().map(ScalarValue::size).sum()
    }
}

/// The format of each of so many columns.
pub(super) fn spread(formats: &[Format], columns: usize) -> Vec<Format> {
    match formats {
        [] => vec![Format::Text; columns],
        [one] => vec![*one; columns],
        many => many.to_vec(),
    }
}

/// The description of the columns of rows.
pub(super) fn columns(
    schema: &Schema,
    labels: Option<&[Option<String>]>,
    formats: &[Format],
) -> Vec<Column> {
    let fields = schema.fields();
    // Where a `*` stands for several columns, their count differs.
    let labels = labels.filter(|labels| labels.len() == fields.len());
    let formats = spread(formats, fields.len());
    fields
        .iter()
        .zip(formats)
        .enumerate()
        .map(|(index, (field, format))| {
            let label = labels.and_then(|labels| labels[index].clone());
            let type_oid = PgType::oid_of_field(field);
            let plain = PgType::of(field.data_type());
            Column {
                name: label.unwrap_or_else(|| field.name().clone()),
                type_oid,
                type_size: if type_oid == plain.oid {
                    plain.size
                } else {
                    -1
                },
                type_modifier: modifier(field.data_type()),
                format,
            }
        })
        .collect()
}

fn noun(made: Made) -> &'static str {
    match made {
        Made::Table => "TABLE",
        Made::View => "VIEW",
        Made::Index => "INDEX",
        Made::Snapshot => "SNAPSHOT",
        Made::Watch => "WATCH",
    }
}

/// The tag of a statement that is done.
pub(super) fn tag(done: Done, rows: u64) -> String {
    match done {
        Done::Select => format!("SELECT {rows}"),
        Done::Explained => "EXPLAIN".to_owned(),
        Done::Shown => "SHOW".to_owned(),
        Done::Inserted(stored) | Done::Returned(stored) => format!("INSERT 0 {}", stored.rows),
        Done::Deleted(rows) => format!("DELETE {rows}"),
        Done::Created(made) => format!("CREATE {}", noun(made)),
        Done::Altered => "ALTER TABLE".to_owned(),
        Done::Dropped(made) => format!("DROP {}", noun(made)),
        Done::Set => "SET".to_owned(),
    }
}
