//! Requests to files: bytes between a file and memory, and syncs.
//!
//! Invariants: every transfer is answered exactly once, by its [`Completion`]. Concurrency: a
//! transfer belongs to the thread that carries it out. Failure: errors of the file, and that the
//! sets were shut down.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::{Completer, Completion, File};

use crate::queue::request::{Request, Work};
use crate::queue::sets::Sets;

/// A transfer on its way.
pub struct Transfer {
    file: Arc<dyn File>,
    operation: Operation,
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = match self.operation {
            Operation::Read { .. } => "read",
            Operation::Write { .. } => "write",
            Operation::Sync { .. } => "sync",
        };
        f.debug_struct("Transfer")
            .field("file", &self.file)
            .field("operation", &operation)
            .finish()
    }
}

enum Operation {
    Read {
        offset: u64,
        buf: Vec<u8>,
        answer: Completer<Vec<u8>>,
    },
    Write {
        offset: u64,
        data: Vec<u8>,
        answer: Completer<Vec<u8>>,
    },
    Sync {
        answer: Completer<()>,
    },
}

impl Work for Transfer {
    fn carry_out(self) {
        let file = self.file;
        match self.operation {
            Operation::Read {
                offset,
                mut buf,
                answer,
            } => answer.complete(file.read_exact_at(offset, &mut buf).map(|()| buf)),
            Operation::Write {
                offset,
                data,
                answer,
            } => answer.complete(file.write_all_at(offset, &data).map(|()| data)),
            Operation::Sync { answer } => answer.complete(file.sync_data()),
        }
    }

    fn refuse(self, why: io::Error) {
        match self.operation {
            Operation::Read { answer, .. } | Operation::Write { answer, .. } => {
                answer.complete(Err(why))
            }
            Operation::Sync { answer } => answer.complete(Err(why)),
        }
    }
}

impl Sets<Transfer> {
    /// Fills all of `buf` from the request's offset on. The buffer is returned with the answer.
    pub fn read(
        &self,
        request: &Request,
        file: &Arc<dyn File>,
        buf: Vec<u8>,
    ) -> Completion<Vec<u8>> {
        let (completion, transfer) = Transfer::of_read(request, file, buf);
        self.submit(request, transfer);
        completion
    }

    /// Fills all of `buf` from the request's offset on, by the owner of this set; the caller may do
    /// other work meanwhile. If the set is full, or was shut down, the read is done at once.
    pub fn read_ahead(
        &self,
        set: usize,
        request: &Request,
        file: &Arc<dyn File>,
        buf: Vec<u8>,
    ) -> Completion<Vec<u8>> {
        let (completion, transfer) = Transfer::of_read(request, file, buf);
        if let Err(not_taken) = self.hand_over(set, request, transfer) {
            not_taken.carry_out();
        }
        completion
    }

    /// Writes all of `data` from the request's offset on. The bytes are returned with the answer.
    pub fn write(
        &self,
        request: &Request,
        file: &Arc<dyn File>,
        data: Vec<u8>,
    ) -> Completion<Vec<u8>> {
        let (completion, answer) = Completion::pending();
        let offset = request.offset;
        let operation = Operation::Write {
            offset,
            data,
            answer,
        };
        self.submit(request, Transfer::of(file, operation));
        completion
    }

    /// Makes all writes to the file durable that were answered before this call, through any set.
    pub fn sync(&self, request: &Request, file: &Arc<dyn File>) -> Completion<()> {
        let (completion, answer) = Completion::pending();
        let request = Request {
            length: None,
            ..*request
        };
        self.submit(&request, Transfer::of(file, Operation::Sync { answer }));
        completion
    }
}

impl Transfer {
    fn of_read(
        request: &Request,
        file: &Arc<dyn File>,
        buf: Vec<u8>,
    ) -> (Completion<Vec<u8>>, Transfer) {
        let (completion, answer) = Completion::pending();
        let operation = Operation::Read {
            offset: request.offset,
            buf,
            answer,
        };
        (completion, Transfer::of(file, operation))
    }

    fn of(file: &Arc<dyn File>, operation: Operation) -> Transfer {
        Transfer {
            file: Arc::clone(file),
            operation,
        }
    }
}
