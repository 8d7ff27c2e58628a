//! A queue of the kernel: submission entries in, completions out.
//!
//! Invariants: each request in flight has a slot, which keeps its file open and its buffer in place
//! until its last answer has been read; there are as many slots and answers as the queue has
//! capacity for, so no answer is lost. Dropping the queue waits for requests in flight.
//! Concurrency: one thread at a time submits entries (`entering`), and the one that has the turn
//! reads answers; neither waits for the other. Failure: a queue that can no longer be entered
//! answers no requests; its requests stay in memory permanently, since the kernel may still write
//! there, and later ones are carried out by calls. A forked process does not touch it.

#![allow(
    unsafe_code,
    reason = "the kernel reads and writes buffers while nobody holds a reference to them"
)]
#![deny(clippy::undocumented_unsafe_blocks)]

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, Probe, opcode};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::UringRefused;
use super::flight::{Flight, KernelResult, Work};
use crate::request::{Driven, Turn, Turns};

/// Maximum number of requests in flight; further ones are carried out at once, by blocking calls.
const FLIGHTS: u32 = 128;
/// A request has up to two entries and as many answers.
const ENTRIES: u32 = 2 * FLIGHTS;
/// Most bytes that one entry reads or writes; a longer request is finished by calls.
const ENTRY_BYTES_MAX: usize = 1 << 30;

/// A queue with its requests in flight.
pub(super) struct Ring {
    uring: IoUring,
    /// Number of the process that made the queue.
    process: u32,
    /// Held by the thread that submits entries.
    entering: Mutex<()>,
    turns: Turns,
    flights: Mutex<Flights>,
    /// Set when the queue can no longer be entered.
    is_broken: AtomicBool,
}

/// Requests by their slots.
#[derive(Debug)]
struct Flights {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Slot {
    flight: Flight,
    /// Results of the first entry and, if present, of the linked sync.
    results: [Option<KernelResult>; 2],
    has_second: bool,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("on_their_way", &self.flights.lock().count())
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Creates a queue.
    pub(super) fn new() -> Result<Ring, UringRefused> {
        let uring = IoUring::builder()
            .build(ENTRIES)
            .map_err(UringRefused::Setup)?;
        if !uring.params().is_feature_nodrop() {
            return Err(UringRefused::TooOld(
                "the guarantee to deliver every completion (IORING_FEAT_NODROP)",
            ));
        }
        let mut probe = Probe::new();
        uring
            .submitter()
            .register_probe(&mut probe)
            .map_err(UringRefused::Setup)?;
        for (name, code) in [
            ("reading", opcode::Read::CODE),
            ("writing", opcode::Write::CODE),
            ("syncing", opcode::Fsync::CODE),
        ] {
            if !probe.is_supported(code) {
                return Err(UringRefused::TooOld(name));
            }
        }
        Ok(Ring {
            uring,
            process: std::process::id(),
            entering: Mutex::new(()),
            turns: Turns::default(),
            flights: Mutex::new(Flights::new()),
            is_broken: AtomicBool::new(false),
        })
    }

    /// Submits a request, or returns it if the queue does not accept it.
    pub(super) fn submit(&self, flight: Flight) -> Result<(), Flight> {
        if !flight.is_for_a_queue() || self.usable().is_err() || self.is_broken() {
            return Err(flight);
        }
        if self.flights.lock().free.is_empty()
            && let Some(turn) = self.turns.try_take()
            && self.answer(&turn, false).is_err()
        {
            return Err(flight);
        }
        let entering = self.entering.lock();
        let (slot, entries) = self.flights.lock().insert(flight)?;
        let is_taken = {
            // SAFETY: `entering` is held, and no other code makes a submission queue, so this is
            // the only one.
            let mut queue = unsafe { self.uring.submission_shared() };
            // SAFETY: the buffer and the file of each entry are in the slot, where they stay until
            // all answers have been taken (or for good, see `Drop`); nobody else has access to
            // the buffer meanwhile.
            unsafe { queue.push_multiple(entries.as_slice()) }.is_ok()
        };
        if !is_taken && let Some(flight) = self.flights.lock().take_back(slot) {
            return Err(flight);
        }
        // Entries that the kernel does not accept now are submitted with the next ones, or by a
        // waiter; a queue that cannot be entered is detected by a waiter.
        let _ = self.enter(0);
        drop(entering);
        Ok(())
    }

    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Submits entries to the kernel, and waits until `answers` answers are available, or an
    /// interruption.
    fn enter(&self, answers: usize) -> io::Result<()> {
        match self.uring.submitter().submit_and_wait(answers) {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INTR) => Ok(()),
                // The kernel has no memory for more at this moment, or has answers to be read
                // first.
                Some(Errno::AGAIN | Errno::BUSY) => {
                    std::thread::yield_now();
                    Ok(())
                }
                _ => {
                    self.is_broken.store(true, Ordering::Relaxed);
                    Err(error)
                }
            },
        }
    }

    /// Reads the available answers.
    fn take_answers(&self, _turn: &Turn<'_>) -> Vec<(u64, i32)> {
        // SAFETY: there is one turn at a time, and no other code makes a completion queue, so this
        // is the only one.
        let queue = unsafe { self.uring.completion_shared() };
        queue
            .map(|answer| (answer.user_data(), answer.result()))
            .collect()
    }
}

impl Driven for Ring {
    fn turns(&self) -> &Turns {
        &self.turns
    }

    fn usable(&self) -> io::Result<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(io::Error::other(
            "the process was forked while a request was in flight: the parent has the request",
        ))
    }

    fn answer(&self, turn: &Turn<'_>, wait: bool) -> io::Result<()> {
        if self.is_broken() {
            return Err(io::Error::other(
                "the queue of the kernel can no longer be entered",
            ));
        }
        let mut answers = self.take_answers(turn);
        if answers.is_empty() {
            self.enter(usize::from(wait))?;
            answers = self.take_answers(turn);
        }
        for (name, result) in answers {
            let done = self.flights.lock().answered(name, result);
            if let Some((flight, [first, then])) = done {
                flight.finish(first, then);
            }
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.usable().is_ok() && self.flights.lock().count() > 0 {
            let Some(turn) = self.turns.try_take() else {
                break;
            };
            if self.answer(&turn, true).is_err() {
                break;
            }
        }
        // Remaining requests belong to the kernel, or to the parent of this process.
        std::mem::forget(std::mem::take(&mut self.flights.get_mut().slots));
    }
}

/// One entry, or two linked ones.
enum Entries {
    One([Entry; 1]),
    Two([Entry; 2]),
}

impl Entries {
    fn as_slice(&self) -> &[Entry] {
        match self {
            Entries::One(one) => one,
            Entries::Two(two) => two,
        }
    }
}

impl Flights {
    fn new() -> Flights {
        let mut slots = Vec::new();
        slots.resize_with(FLIGHTS.try_into().unwrap_or(usize::MAX), || None);
        Flights {
            free: (0..slots.len()).rev().collect(),
            slots,
        }
    }

    fn count(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }

    /// Puts a request into a free slot, or returns it if no slot is free.
    fn insert(&mut self, flight: Flight) -> Result<(usize, Entries), Flight> {
        let Some(number) = self.free.pop() else {
            return Err(flight);
        };
        let Some(place) = self.slots.get_mut(number) else {
            return Err(flight);
        };
        let slot = place.insert(Slot {
            flight,
            results: [None, None],
            has_second: false,
        });
        let entries = slot.entries(number);
        slot.has_second = matches!(entries, Entries::Two(_));
        Ok((number, entries))
    }

    /// Frees the slot of a request that was not submitted to the kernel.
    fn take_back(&mut self, number: usize) -> Option<Flight> {
        self.take(number).map(|slot| slot.flight)
    }

    fn take(&mut self, number: usize) -> Option<Slot> {
        let slot = self.slots.get_mut(number).and_then(Option::take);
        assert!(slot.is_some(), "slot {number} of the queue has a request");
        self.free.push(number);
        slot
    }

    /// Records an answer. Returns the request with its last answer.
    fn answered(&mut self, name: u64, result: i32) -> Option<(Flight, [KernelResult; 2])> {
        let number = usize::try_from(name / 2).unwrap_or(usize::MAX);
        let slot = self.slots.get_mut(number).and_then(Option::as_mut);
        assert!(slot.is_some(), "an answer has a request in slot {number}");
        let slot = slot?;
        let [first, second] = &mut slot.results;
        let said = if name.is_multiple_of(2) {
            &mut *first
        } else {
            &mut *second
        };
        assert!(said.is_none(), "an entry is answered once");
        *said = Some(KernelResult::of(result));
        if first.is_none() || (slot.has_second && second.is_none()) {
            return None;
        }
        let Slot {
            flight, results, ..
        } = self.take(number)?;
        Some((
            flight,
            results.map(|said| said.unwrap_or(KernelResult::Undone)),
        ))
    }
}

impl Flight {
    /// False for requests that a call executes as quickly, and for those with a special meaning in
    /// the kernel's queue.
    fn is_for_a_queue(&self) -> bool {
        let (offset, len) = match &self.work {
            Work::Read { offset, buf, .. } => (*offset, buf.len()),
            Work::Write { offset, data, .. } => (*offset, data.len()),
            Work::Sync { .. } => return true,
        };
        is_valid_request(offset, len)
    }
}

impl Slot {
    /// Entries for the kernel. Their addresses are those of buffers that the slot keeps.
    fn entries(&mut self, number: usize) -> Entries {
        let fd = Fd(self.flight.file.0.as_raw_fd());
        let name = u64::try_from(number).map_or(u64::MAX, |number| number * 2);
        let sync = opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build();
        match &mut self.flight.work {
            Work::Read { offset, buf, .. } => {
                let read = opcode::Read::new(fd, buf.as_mut_ptr(), entry_bytes(buf.len()))
                    .offset(*offset)
                    .build();
                Entries::One([read.user_data(name)])
            }
            Work::Write {
                offset,
                data,
                then_sync,
                ..
            } => {
                let write = opcode::Write::new(fd, data.as_ptr(), entry_bytes(data.len()))
                    .offset(*offset)
                    .build()
                    .user_data(name);
                if *then_sync {
                    // The kernel does the second when the first has done all of its part.
                    Entries::Two([write.flags(Flags::IO_LINK), sync.user_data(name | 1)])
                } else {
                    Entries::One([write])
                }
            }
            Work::Sync { .. } => Entries::One([sync.user_data(name)]),
        }
    }
}

/// True if there are bytes to transfer, at offsets with the same meaning for the kernel: a negative
/// one means the current position, which files here do not have.
fn is_valid_request(offset: u64, len: usize) -> bool {
    let end = u64::try_from(len)
        .ok()
        .and_then(|len| offset.checked_add(len));
    len > 0 && end.is_some_and(|end| i64::try_from(end).is_ok())
}

fn entry_bytes(len: usize) -> u32 {
    u32::try_from(len.min(ENTRY_BYTES_MAX)).unwrap_or(u32::MAX)
}
