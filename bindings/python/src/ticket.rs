//! Writes on their way.

use crate::errors::{Outcome, Problem};
use crate::shared::{Ends, OfProcess, Shared};
use crate::write::{Done, RefusedRow, Writer};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// Rows stored, rows refused, the first refused ones, whether the batch had been stored before, and
/// rows that replaced others of the write.
pub(crate) type DoneTuple = (u64, u64, Vec<RefusedRow>, bool, u64);

/// The result of a write, for Python.
pub(crate) fn done(done: Done) -> DoneTuple {
    (
        done.accepted,
        done.refused_count,
        done.refused,
        done.repeated,
        done.replaced,
    )
}
enum TicketState {
    Waiting(Box<Writer>),
    Done(DoneTuple),
    Failed(&'static str, String),
}

/// A write on its way; ended by closing, which waits for it.
struct TicketCell(Mutex<TicketState>);

impl TicketCell {
    fn wait(&self) -> Outcome<DoneTuple> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = TicketState::Failed("internal", "the ticket was lost".to_owned());
        *state = match std::mem::replace(&mut *state, lost) {
            TicketState::Waiting(writer) => match writer.wait() {
                Ok(found) => TicketState::Done(done(found)),
                Err(problem) => {
                    let (code, message) = problem.parts();
                    TicketState::Failed(code, message)
                }
            },
            other => other,
        };
        match &*state {
            TicketState::Done(found) => Ok(found.clone()),
            TicketState::Failed(code, message) => Err(Problem::Own(code, message.clone())),
            TicketState::Waiting(_) => Err(Problem::Own("internal", "still waiting".to_owned())),
        }
    }
}

impl Ends for TicketCell {
    fn end(&self) {
        // The ticket stores the error for its waiter.
        let _ = self.wait();
    }
}

/// A write on its way: the native half of `headwater.Ticket`.
#[pyclass(frozen, module = "headwater._native")]
pub(crate) struct Ticket {
    cell: OfProcess<Arc<TicketCell>>,
}

impl Ticket {
    /// A ticket for the batches submitted by the writer.
    pub(crate) fn new(py: Python<'_>, shared: &Shared, writer: Writer) -> PyResult<Ticket> {
        let waiting = TicketState::Waiting(Box::new(writer));
        let cell = Arc::new(TicketCell(Mutex::new(waiting)));
        let weak = Arc::downgrade(&cell);
        py.detach(|| shared.with(|_| shared.register(weak)))?;
        Ok(Ticket {
            cell: OfProcess::new(cell),
        })
    }
}

#[pymethods]
impl Ticket {
    /// Waits for the acknowledgement.
    fn wait(&self, py: Python<'_>) -> PyResult<DoneTuple> {
        Ok(py.detach(|| self.cell.get()?.wait())?)
    }
}
