//! Writing batches, and waiting for what is on its way.
//!
//! Invariants: HW_OK of hw_write and hw_ticket_wait means stored, as durably as the database was
//! opened with.
//! Concurrency: any number of writers; they share syncs. One call at a time for each ticket.

use crate::batch::{Builder, hw_batch};
use crate::column::hw_column;
use crate::database::{Store, hw_db, open_still};
use crate::handles::{self, Handled, Object};
use crate::status::{Outcome, guard, hw_error, invalid, lock, out, write_result};
use crate::stream::{Stream, hw_stream};
use crate::text::{hw_str, pointer, slice};
use headwater::{Batch, Database, Refused, StreamRows, Ticket, Written};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A write on its way. The handle ends with hw_ticket_wait, or with hw_release when nobody waits;
/// the write goes on all the same.
pub type hw_ticket = u64;

/// A row that was not stored, and why.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_refused {
    /// Which part of the batch, from 0: each hw_batch_rows begins one, and so does hw_batch_row for
    /// a stream that has none yet.
    pub part: usize,
    /// Which row of the part, from 0.
    pub row: usize,
    /// Stable: "E_TYPE", "E_TIME_FUTURE", …; see docs/http/writing.md.
    pub code: hw_str,
    /// The message: what was expected, what was found, what to do.
    pub message: hw_str,
}

/// Result of a write. Release the handle if it is not 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_written {
    /// To release when rows were refused; else 0.
    pub handle: u64,
    /// Rows stored.
    pub accepted: u64,
    /// Rows not stored, until the handle is released.
    pub refused: *const hw_refused,
    /// Their number.
    pub refused_count: usize,
    /// 1 = the batch was numbered by its producer and had been stored before: nothing was stored
    /// again.
    pub repeated: u8,
    /// Of the rows stored, those that put a value where another row of the same batch, before them,
    /// had put one: the batch named the same stream and time more than once.
    pub replaced: u32,
}

// Added where the struct had no bytes in use: programs compiled before have memory for it.
const _: () = assert!(size_of::<hw_written>() == 24 + 2 * size_of::<usize>());

struct Refusals {
    views: Box<[hw_refused]>,
    /// The memory that the views point into.
    _refused: Vec<Refused>,
}

// SAFETY: the pointers in `views` lead to `_refused`, which lives as long, is never changed, and
// may be read by any thread.
unsafe impl Send for Refusals {}
// SAFETY: as above.
unsafe impl Sync for Refusals {}

impl hw_written {
    fn make(written: Written) -> hw_written {
        let mut out = hw_written {
            handle: 0,
            accepted: written.accepted,
            refused: std::ptr::null(),
            refused_count: written.refused.len(),
            repeated: u8::from(written.repeated),
            replaced: u32::try_from(written.replaced).unwrap_or(u32::MAX),
        };
        if !written.refused.is_empty() {
            let view = |r: &Refused| hw_refused {
                part: r.entry,
                row: r.row,
                code: hw_str::of(r.code),
                message: hw_str::of(&r.message),
            };
            let (handle, kept) = handles::register_result(Refusals {
                views: written.refused.iter().map(view).collect(),
                _refused: written.refused,
            });
            (out.handle, out.refused) = (handle, pointer(&kept.views));
        }
        out
    }
}

/// Writes what a written is, if the caller wants to know; refused rows that nobody would hear of
/// are an error.
fn give_written(to: *mut hw_written, written: Written) -> Outcome<()> {
    if !to.is_null() {
        return write_result(to, hw_written::make(written), "written");
    }
    match written.refused.first() {
        None => Ok(()),
        Some(first) => Err(invalid(format!(
            "{} rows were stored and {} refused, the first as {}: {} (pass an hw_written to hw_write to receive all refusals)",
            written.accepted,
            written.refused.len(),
            first.code,
            first.message
        ))),
    }
}

fn take_batch(batch: hw_batch) -> Outcome<Batch> {
    let batch = handles::get::<Builder>(batch)?;
    Ok(lock(&batch.0)?.take())
}

/// Writes a batch and waits until it is stored as durably as the database was opened with. Rows
/// that do not fit are refused one by one, the others are stored; with written NULL, refused rows
/// are HW_INVALID instead, though the others are stored. The batch is empty then, whatever happens,
/// and may be filled again.
///
/// HW_BUSY when memory stays used up, HW_FULL, HW_CLOSED, HW_INVALID when the batch is too large:
/// nothing of it is stored then. HW_IO when the log could not be written: the rows may or may not
/// be there after the next opening.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_write(
    db: hw_db,
    batch: hw_batch,
    written: *mut hw_written,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        if !written.is_null() {
            out(written, "written")?;
        }
        let store = handles::get::<Store>(db)?;
        let owner = store.owner()?;
        let done = owner.commit(take_batch(batch)?)?;
        give_written(written, done)
    })
}

/// Writes rows of one stream and waits, as hw_write, without a batch: times and columns of as many
/// rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_write_columns(
    stream: hw_stream,
    times_ns: *const i64,
    row_count: usize,
    columns: *const hw_column,
    column_count: usize,
    written: *mut hw_written,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        if !written.is_null() {
            out(written, "written")?;
        }
        let stream = handles::get::<Stream>(stream)?;
        let store = open_still(&stream.store)?;
        let owner = store.owner()?;
        let mut rows = StreamRows::new(stream.name().clone());
        rows.times = slice(times_ns, row_count, "times_ns")?.to_vec();
        for column in slice(columns, column_count, "columns")? {
            let (name, column) = column.read(row_count)?;
            if rows.fields.iter().any(|(known, _)| *known == name) {
                return Err(invalid(format!(
                    "field `{name}` is specified more than once"
                )));
            }
            rows.fields.push((name, column));
        }
        let mut batch = Batch::new();
        batch.push(rows);
        give_written(written, owner.commit(batch)?)
    })
}

/// A write on its way, behind a handle.
pub(crate) struct Pending(Mutex<Option<Ticket>>);

impl Handled for Pending {
    const KIND: &'static str = "a ticket";
}

/// Hands a batch in without waiting, so that a writer may have several on their way; it may wait
/// for memory. The batch is empty then. Errors as hw_write, up to that point.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_submit(
    db: hw_db,
    batch: hw_batch,
    ticket: *mut hw_ticket,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(ticket, "ticket")?;
        let store = handles::get::<Store>(db)?;
        let owner: &Database = store.owner()?;
        let pending = owner.write(take_batch(batch)?)?;
        let pending = Pending(Mutex::new(Some(pending)));
        write_result(ticket, handles::register(pending).0, "ticket")
    })
}

/// Waits until a write is stored, at most timeout_ns; below 0 = as long as it takes. done gets 1,
/// and the ticket ends; or 0 after the time, and it may be waited for again. On an error the ticket
/// ends too: the rows may or may not be stored then. written as in hw_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_ticket_wait(
    ticket: hw_ticket,
    timeout_ns: i64,
    done: *mut u8,
    written: *mut hw_written,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(done, "done")?;
        if !written.is_null() {
            out(written, "written")?;
        }
        let pending = handles::get::<Pending>(ticket)?;
        let mut held = lock(&pending.0)?;
        let Some(mut waiting) = held.take() else {
            return Err(invalid("the ticket was already waited for"));
        };
        let result = match u64::try_from(timeout_ns) {
            Err(_) => Some(waiting.wait()),
            Ok(timeout) => {
                let result = wait_for(&mut waiting, Duration::from_nanos(timeout));
                if result.is_none() {
                    *held = Some(waiting);
                }
                result
            }
        };
        drop(held);
        let Some(result) = result else {
            return write_result(done, 0, "done");
        };
        // Another thread may have released it meanwhile: then that is done already.
        drop(handles::remove(
            ticket,
            Pending::KIND,
            Object::is::<Pending>,
        ));
        give_written(written, result?)?;
        write_result(done, 1, "done")
    })
}

/// Wakes a thread that waits for a ticket.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until it is ready or the time is over.
fn wait_for(ticket: &mut Ticket, timeout: Duration) -> Option<headwater::Result<Written>> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let start = Instant::now();
    loop {
        if let Poll::Ready(result) = Pin::new(&mut *ticket).poll(&mut context) {
            return Some(result);
        }
        let left = timeout
            .checked_sub(start.elapsed())
            .filter(|d| !d.is_zero())?;
        std::thread::park_timeout(left);
    }
}
