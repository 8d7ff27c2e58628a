//! `INSERT … RETURNING`: returns the rows that were written.
//!
//! Drivers use it to learn generated keys: here the time of rows without one. A row is returned
//! with the values of the statement: fields that were stored at its time before, and were not
//! overwritten, are not included.
//!
//! Invariants: the rows of such a statement fit one batch; they are stored and returned, or
//! neither, since all expressions of `RETURNING` are computed before they are stored.

use super::insert::{self, BATCH_BYTES, Writer, as_stored};
use super::select;
use crate::answer::{Answer, Outcome, Stored};
use crate::error::{Error, Result};
use crate::parameters::Parameters;
use crate::parsed::Parsed;
use crate::session::{Running, Session};
use arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast;
use futures_util::{StreamExt, stream};
use std::sync::Arc;

/// Maximum bytes of the returned rows: the stored values, and expressions.
const RETURNED_BYTES_MAX: usize = 4 * BATCH_BYTES;

/// The query of `RETURNING`, planned over the table.
async fn resolve(session: &Session, returning: Parsed) -> Result<(Running, LogicalPlan)> {
    let running = session.begin()?;
    let read = running.resolve(returning.query()?).await?;
    let read = returning.labels.relabel(read)?;
    select::check(&read)?;
    Ok((running, read))
}

/// The returned columns.
pub(super) async fn columns(session: &Session, returning: Parsed) -> Result<LogicalPlan> {
    let (running, read) = resolve(session, returning).await?;
    session.optimize(&running, &read)
}

/// Rows that are about to be written, and the query of `RETURNING`.
pub(super) struct Planned {
    insertion: insert::Planned,
    running: Running,
    query: LogicalPlan,
}

/// Plans the rows and the query.
pub(super) async fn begin(
    session: &Session,
    insert: ast::Insert,
    returning: Parsed,
    parameters: (Parameters, usize),
) -> Result<Planned> {
    let insertion = insert::begin(session, insert, parameters).await?;
    let (running, query) = resolve(session, returning).await?;
    Ok(Planned {
        insertion,
        running,
        query,
    })
}

/// Rows in memory, not stored yet.
pub(super) struct Buffered {
    writer: Writer,
    batches: Vec<RecordBatch>,
    running: Running,
    query: LogicalPlan,
}

/// Computes the rows, without storing them.
pub(super) async fn buffer(planned: Planned) -> Result<Buffered> {
    let (mut rows, writer) = planned.insertion.into_parts();
    let (mut batches, mut bytes) = (Vec::new(), 0);
    while let Some(batch) = rows.next().await {
        let batch = as_stored(&batch?, writer.table(), writer.zone())?;
        bytes += batch.get_array_memory_size();
        if bytes > BATCH_BYTES {
            return Err(Error::too_large(format!(
                "INSERT … RETURNING accepts at most {} MiB of rows",
                BATCH_BYTES >> 20
            ))
            .with_hint("write fewer rows in a statement, or leave RETURNING out"));
        }
        batches.push(batch);
    }
    Ok(Buffered {
        writer,
        batches,
        running: planned.running,
        query: planned.query,
    })
}

/// Plans the query of `RETURNING` over the rows in memory.
pub(super) async fn plan_returning(
    session: &Session,
    buffered: Buffered,
) -> Result<(Buffered, Answer)> {
    let schema = Arc::clone(&buffered.writer.table().schema);
    let memory = MemTable::try_new(schema, vec![buffered.batches.clone()])?;
    let source = provider_as_source(Arc::new(memory));
    let query = buffered.query.clone().transform_down(|node| match node {
        LogicalPlan::TableScan(mut scan) => {
            scan.source = Arc::clone(&source);
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    let plan = session.plan(&buffered.running, query.data).await?;
    let answer = session.rows(
        &buffered.running,
        plan,
        Outcome::Returned(Stored::default()),
    )?;
    Ok((buffered, answer))
}

/// Computes the returned rows, and stores the rows.
pub(super) async fn finish(buffered: Buffered, answer: Answer) -> Result<Answer> {
    let Answer {
        schema,
        mut rows,
        left_out,
        ..
    } = answer;
    let (mut given, mut bytes) = (Vec::new(), 0);
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        bytes += batch.get_array_memory_size();
        if bytes > RETURNED_BYTES_MAX {
            return Err(Error::too_large(format!(
                "RETURNING returns at most {} MiB of rows",
                RETURNED_BYTES_MAX >> 20
            ))
            .with_hint("nothing was stored: return fewer columns, or write fewer rows at once"));
        }
        given.push(Ok(batch));
    }
    let mut writer = buffered.writer;
    for batch in &buffered.batches {
        writer.add(batch)?;
    }
    let stored = writer.store().await;
    stored.map_err(|error| writer.in_its_row(error))?;
    let rows: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(
        Arc::clone(&schema),
        stream::iter(given),
    ));
    Ok(Answer {
        schema,
        rows,
        outcome: Outcome::Returned(writer.stored()),
        left_out,
    })
}
