//! Requests to files: bytes between a file and memory, and syncs.
//!
//! Invariants: every transfer is answered exactly once, by its [`Completion`].
//! Concurrency: a transfer belongs to the thread that carries it out.
//! Failure: what the file reports, and that the sets were shut down.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::{Completer, Completion, File};

use crate::queue::request::{Request, Work};
use crate::queue::sets::Sets;

/// A transfer on its way.
pub struct Transfer {
    file: Arc<dyn File>,
    what: What,
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            What::Read { .. } => "read",
            What::Write { .. } => "write",
            What::Sync { .. } => "sync",
        };
        f.debug_struct("Transfer")
            .field("file", &self.file)
            .field("what", &what)
            .finish()
    }
}

enum What {
    Read {
        place: u64,
        buf: Vec<u8>,
        answer: Completer<Vec<u8>>,
    },
    Write {
        place: u64,
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
        match self.what {
            What::Read {
                place,
                mut buf,
                answer,
            } => answer.complete(file.read_exact_at(place, &mut buf).map(|()| buf)),
            What::Write {
                place,
                data,
                answer,
            } => answer.complete(file.write_all_at(place, &data).map(|()| data)),
            What::Sync { answer } => answer.complete(file.sync_data()),
        }
    }

    fn refuse(self, why: io::Error) {
        match self.what {
            What::Read { answer, .. } | What::Write { answer, .. } => answer.complete(Err(why)),
            What::Sync { answer } => answer.complete(Err(why)),
        }
    }
}

impl Sets<Transfer> {
    /// Fills all of `buf` from the request's place on. The buffer comes back with the answer.
    pub fn read(
        &self,
        request: &Request,
        file: &Arc<dyn File>,
        buf: Vec<u8>,
    ) -> Completion<Vec<u8>> {
        let (completion, answer) = Completion::pending();
        let place = request.place;
        let what = What::Read { place, buf, answer };
        self.submit(request, Transfer::of(file, what));
        completion
    }

    /// Fills all of `buf` from the request's place on, by the owner of this set; the caller does
    /// something else meanwhile. A full set, and one that was shut down, has it done at once.
    pub fn read_ahead(
        &self,
        set: usize,
        request: &Request,
        file: &Arc<dyn File>,
        buf: Vec<u8>,
    ) -> Completion<Vec<u8>> {
        let (completion, answer) = Completion::pending();
        let place = request.place;
        let what = What::Read { place, buf, answer };
        if let Err(not_taken) = self.hand_over(set, request, Transfer::of(file, what)) {
            not_taken.carry_out();
        }
        completion
    }

    /// Writes all of `data` from the request's place on. The bytes come back with the answer.
    pub fn write(
        &self,
        request: &Request,
        file: &Arc<dyn File>,
        data: Vec<u8>,
    ) -> Completion<Vec<u8>> {
        let (completion, answer) = Completion::pending();
        let place = request.place;
        let what = What::Write {
            place,
            data,
            answer,
        };
        self.submit(request, Transfer::of(file, what));
        completion
    }

    /// Makes durable what was written to the file by requests that were answered before this call,
    /// through whatever set.
    pub fn sync(&self, request: &Request, file: &Arc<dyn File>) -> Completion<()> {
        let (completion, answer) = Completion::pending();
        let request = Request {
            length: None,
            ..*request
        };
        self.submit(&request, Transfer::of(file, What::Sync { answer }));
        completion
    }
}

impl Transfer {
    fn of(file: &Arc<dyn File>, what: What) -> Transfer {
        Transfer {
            file: Arc::clone(file),
            what,
        }
    }
}
