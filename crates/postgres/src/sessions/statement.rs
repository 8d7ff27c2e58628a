//! A statement of a session: its text, its parameters, and the number of rows sent.

use super::commands::Command;
use super::errors::{Failure, of_query};
use crate::catalog::{PgType, modifier};
use crate::messages::{Column, Format, Notice};
use crate::rewrite::Rewritten;
use headwater_query::arrow::array::RecordBatch;
use headwater_query::arrow::datatypes::{Schema, SchemaRef};
use headwater_query::datafusion::common::ScalarValue;
use headwater_query::datafusion::execution::SendableRecordBatchStream;
use headwater_query::{ObjectKind, Outcome};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// A text to run, and its rewritten form for the planner.
#[derive(Debug)]
pub(super) struct Text {
    /// Client's original text, including other statements before this one.
    pub(super) whole: String,
    /// Offset of the statement in `whole`, in bytes.
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
        // Positions in rewritten text mean nothing to the client.
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
    /// The text is empty.
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
        /// True when the cursor outlives its transaction.
        hold: bool,
        query: Arc<Prepared>,
    },
}

impl Prepared {
    /// Approximate bytes of the statement while it is retained.
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
    /// A partly sent batch, and the number of sent rows.
    pub(super) batch: Option<(RecordBatch, usize)>,
    /// Number of rows sent since the last message that reported it.
    pub(super) sent: u64,
    pub(super) done: Outcome,
    /// Deadline for sending all rows.
    pub(super) until: Instant,
    /// Permit of a cursor while it waits for the client to request more rows.
    pub(super) cursor: Option<OwnedSemaphorePermit>,
}

/// State of a portal.
pub(super) enum State {
    /// The portal was not run yet.
    Ready,
    /// More rows may follow.
    Rows(Box<Rows>),
    /// All rows were sent.
    Finished,
    /// The time limit was reached before all rows were sent.
    Late,
}

/// A statement with its parameters.
pub(super) struct Portal {
    pub(super) statement: Arc<Prepared>,
    pub(super) parameters: Vec<ScalarValue>,
    /// Empty = all as text; one element = for all columns; otherwise one for each column.
    pub(super) formats: Vec<Format>,
    pub(super) state: State,
    /// True when the cursor outlives its transaction.
    pub(super) hold: bool,
}

impl Portal {
    /// Bytes of its parameters.
    pub(super) fn bytes(&self) -> usize {
        self.parameters.iter().map(ScalarValue::size).sum()
    }
}

/// Format of each of `columns` columns.
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
    // Where a `*` expands to several columns, their count differs.
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

fn noun(made: ObjectKind) -> &'static str {
    match made {
        ObjectKind::Table => "TABLE",
        ObjectKind::View => "VIEW",
        ObjectKind::Index => "INDEX",
        ObjectKind::Snapshot => "SNAPSHOT",
        ObjectKind::Watch => "WATCH",
    }
}

/// The tag of a statement that is done.
pub(super) fn tag(done: Outcome, rows: u64) -> String {
    match done {
        Outcome::Select => format!("SELECT {rows}"),
        Outcome::Explained => "EXPLAIN".to_owned(),
        Outcome::Shown => "SHOW".to_owned(),
        Outcome::Inserted(stored) | Outcome::Returned(stored) => {
            format!("INSERT 0 {}", stored.rows)
        }
        Outcome::Deleted(rows) => format!("DELETE {rows}"),
        Outcome::Created(made) => format!("CREATE {}", noun(made)),
        Outcome::Altered => "ALTER TABLE".to_owned(),
        Outcome::Dropped(made) => format!("DROP {}", noun(made)),
        Outcome::Set => "SET".to_owned(),
    }
}
