//! A database on this machine.

use super::Rows;
use crate::failure::Failure;
use crate::store::DbArgs;
use futures_util::StreamExt;
use headwater::Database;
use headwater_query::datafusion::scalar::ScalarValue;
use headwater_query::done_row;
use headwater_query::{Answer, Error, Limits, Parameters, Query, Session, Threads, Unrestricted};
use std::future::Future;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A database, and the threads that compute.
pub(crate) struct Local {
    /// Waits for answers and signals, on the calling thread.
    runtime: Runtime,
    threads: Threads,
    session: Session,
    /// Closed when the command is done, if it is owned.
    owned: Option<Database>,
}

impl Local {
    pub(super) fn open(store: &DbArgs, write: bool) -> Result<Local, Failure> {
        let parallel = std::thread::available_parallelism().map_or(1, |n| n.get().min(8));
        let limits = Limits {
            memory: store.memory,
            all_memory: store.memory,
            parallel,
            ..Limits::default()
        };
        let (query, owned) = if write {
            let db = store.open_existing()?;
            (Query::new(db.clone(), limits), Some(db))
        } else {
            (Query::read_only(store.open_to_read()?, limits), None)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::failed)?;
        Ok(Local {
            runtime,
            threads: Threads::new(parallel).map_err(Failure::failed)?,
            session: query.session(Arc::new(Unrestricted)),
            owned,
        })
    }

    pub(super) fn run(&self, sql: &str, parameters: &[String]) -> Result<Rows<'_>, Error> {
        let values = parameters.iter().cloned();
        let values = values.map(|text| ScalarValue::Utf8(Some(text))).collect();
        let parameters = Parameters::positional(values);
        let (session, sql) = (self.session.clone(), sql.to_owned());
        let ran = async move { session.run(&sql, parameters).await };
        let mut interrupt = {
            let _entered = self.runtime.enter();
            signal(SignalKind::interrupt())
                .map_err(|error| Error::new("io", "58030", error.to_string()))?
        };
        let Answer {
            schema,
            mut rows,
            outcome,
            // Nothing: one database has no copies.
            left_out: _,
        } = self.wait(&mut interrupt, self.threads.answer(ran))??;
        if let Some(row) = done_row(outcome) {
            return Ok(Rows {
                schema: row.schema(),
                batches: Box::new(std::iter::once(Ok(row))),
            });
        }
        let next = move || match self.wait(&mut interrupt, rows.next()) {
            Ok(next) => next.map(|batch| batch.map_err(Error::from)),
            Err(cancelled) => Some(Err(cancelled)),
        };
        Ok(Rows {
            schema,
            batches: Box::new(std::iter::from_fn(next)),
        })
    }

    /// Waits for a step of a statement, or for Ctrl-C.
    fn wait<T>(&self, interrupt: &mut Signal, step: impl Future<Output = T>) -> Result<T, Error> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = interrupt.recv() => Err(Error::new("cancelled", "57014", "cancelled")),
                done = step => Ok(done),
            }
        })
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(db) = self.owned.take()
            && let Err(error) = db.close()
        {
            eprintln!("headwater: the database could not be closed cleanly: {error}");
        }
    }
}
