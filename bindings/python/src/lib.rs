//! The Python package's native half: `headwater._native`.
//!
//! The package itself, with its classes, documentation and types, is Python (`python/headwater/`);
//! this crate has the parts that must be fast or own engine objects: columns between numpy, Arrow
//! and the engine, snapshots, errors. Invariants: no call holds Python's lock while it waits or
//! works for long; no lock of this crate is waited for with Python's lock held; rows never become
//! Python objects one by one, except text in numpy's object arrays. Concurrency: every class may be
//! used by several threads. Failure: engine errors become exceptions with their code; after a fork
//! every call in the child fails with an error, and the parent's database is not touched.
#![allow(
    clippy::disallowed_methods,
    reason = "its deadlines, measurements and files are of a process, not of a database"
)]

mod arrays;
mod arrow_batches;
mod arrow_columns;
mod ask;
mod care;
mod columns;
mod database;
mod errors;
mod frame;
mod input;
mod log;
mod named;
mod options;
mod scan;
mod shared;
mod ticket;
mod write;

/// The native half of the Python package.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use super::care::{backup, check, repair, restore, verify_backup};
    #[pymodule_export]
    use super::database::Database;
    #[pymodule_export]
    use super::frame::Frame;
    #[pymodule_export]
    use super::log::next_event;
    #[pymodule_export]
    use super::scan::{Cursor, Query};
    #[pymodule_export]
    use super::ticket::Ticket;

    use pyo3::prelude::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("VERSION", env!("CARGO_PKG_VERSION"))
    }
}
