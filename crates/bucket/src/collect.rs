//! Garbage collection of packs that no head names. A state machine as [`crate::Holder`] is, which
//! any node may run.
//!
//! Invariants: the minimum epoch is raised by a put of the head before any object is deleted; after
//! that no head can start to name a pack of a lower epoch, so a deleted pack is never needed. The
//! holder's packs in flight are uploaded again. Failure: a failed deletion is retried by the next
//! collection; a put without an answer is resolved by reading the head.

use crate::contents::decode_head;
use crate::error::{BucketError, BucketErrorKind};
use crate::head::Head;
use crate::keys::{head_key, pack_of_key, packs_prefix};
use crate::store::{Answer, Etag, Object, Page, Put, Request};
use headwater_io::Chance;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Most attempts of a request.
const TRIES: u32 = 8;

/// Result of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Packs there were.
    pub packs: u64,
    /// Deleted packs, and their bytes.
    pub deleted: u64,
    /// Bytes of the deleted ones.
    pub bytes: u64,
}

#[derive(Debug)]
enum Phase {
    Reading,
    Raising {
        head: Box<Head>,
        expected: Etag,
    },
    /// Reads the head, since the result of the put is unknown.
    ReadingBack {
        head: Box<Head>,
        expected: Etag,
    },
    Listing {
        after: String,
    },
    Deleting,
    Done,
    Failed(BucketError),
}

/// A collection.
#[derive(Debug)]
pub struct Collector {
    group: u32,
    chance: Arc<dyn Chance>,
    phase: Phase,
    is_asking: bool,
    tries: u32,
    /// Packs named by the head that was put, and its minimum epoch.
    named: BTreeSet<(u64, u64)>,
    min_epoch: u64,
    garbage: VecDeque<(String, u64)>,
    found: Collected,
}

impl Collector {
    /// A collection of a group.
    #[must_use]
    pub fn new(group: u32, chance: Arc<dyn Chance>) -> Collector {
        Collector {
            group,
            chance,
            phase: Phase::Reading,
            is_asking: false,
            tries: 0,
            named: BTreeSet::new(),
            min_epoch: 0,
            garbage: VecDeque::new(),
            found: Collected::default(),
        }
    }

    /// Result of the collection, when it is complete.
    ///
    /// # Errors
    /// The error that ended it.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<Collected, BucketError>> {
        match &self.phase {
            Phase::Done => Some(Ok(self.found)),
            Phase::Failed(error) => Some(Err(error.clone())),
            _ => None,
        }
    }

    /// Next request to the store. Pass the answer to [`Collector::take`].
    pub fn next_request(&mut self) -> Option<Request> {
        if self.is_asking {
            return None;
        }
        let key = head_key(self.group);
        let request = match &self.phase {
            Phase::Reading | Phase::ReadingBack { .. } => Some(Request::Get { key }),
            Phase::Raising { head, expected } => Some(Request::Replace {
                key,
                bytes: head.encode().into(),
                expected: expected.clone(),
            }),
            Phase::Listing { after } => Some(Request::List {
                prefix: packs_prefix(self.group),
                after: after.clone(),
            }),
            Phase::Deleting => {
                (self.garbage.front()).map(|(key, _)| Request::Delete { key: key.clone() })
            }
            Phase::Done | Phase::Failed(_) => None,
        };
        self.is_asking = request.is_some();
        request
    }

    /// Processes the answer to the request in flight.
    pub fn take(&mut self, answer: Answer) {
        self.is_asking = false;
        if let Answer::Failed(failure) = &answer {
            self.tries += 1;
            if self.tries > TRIES || failure.is_final {
                self.phase = Phase::Failed(failure.clone().into());
                return;
            }
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Done);
        self.phase = match (phase, answer) {
            (Phase::Reading, Answer::Got(found)) => self.read(found),
            (Phase::Raising { head, .. }, Answer::Put(Put::Stored(_))) => self.raised(&head),
            (Phase::Raising { head, expected }, _) => Phase::ReadingBack { head, expected },
            (Phase::ReadingBack { head, expected }, Answer::Got(found)) => {
                self.read_back(head, expected, found)
            }
            (Phase::Listing { .. }, Answer::Listed(page)) => self.listed(page),
            (Phase::Deleting, Answer::Deleted) => {
                if let Some((_, bytes)) = self.garbage.pop_front() {
                    self.found.deleted += 1;
                    self.found.bytes += bytes;
                }
                self.deleting()
            }
            (phase, _) => phase,
        };
    }

    fn read(&mut self, found: Option<Object>) -> Phase {
        let Some(object) = found else {
            // Without a head, garbage cannot be determined.
            return Phase::Done;
        };
        let before = match decode_head(self.group, &object.bytes) {
            Ok(head) => head,
            Err(error) => return Phase::Failed(error),
        };
        let mut head = before.clone();
        head.commit += 1;
        head.nonce = self.chance.next_u64();
        head.epoch += 1;
        head.min_epoch = head.epoch;
        assert!(head.follows(&before), "a head that may follow is put");
        Phase::Raising {
            head: Box::new(head),
            expected: object.etag,
        }
    }

    fn read_back(&mut self, head: Box<Head>, expected: Etag, found: Option<Object>) -> Phase {
        match found {
            Some(object) if object.etag == expected => Phase::Raising { head, expected },
            Some(object) => match decode_head(self.group, &object.bytes) {
                Ok(now) if now.nonce == head.nonce => self.raised(&head),
                // Another head was put before this one.
                Ok(_) => self.read_again(),
                Err(error) => Phase::Failed(error),
            },
            None => self.read_again(),
        }
    }

    fn read_again(&mut self) -> Phase {
        self.tries += 1;
        match self.tries > TRIES {
            true => Phase::Failed(BucketError::new(
                BucketErrorKind::Unreachable,
                format!(
                    "{}: the group changes faster than garbage can be collected; try again later",
                    head_key(self.group)
                ),
            )),
            false => Phase::Reading,
        }
    }

    fn raised(&mut self, head: &Head) -> Phase {
        self.named = head.packs.iter().map(|p| (p.epoch, p.id)).collect();
        self.min_epoch = head.min_epoch;
        Phase::Listing {
            after: String::new(),
        }
    }

    fn listed(&mut self, page: Page) -> Phase {
        let last = page.objects.last().map(|object| object.key.clone());
        for object in page.objects {
            // Keys that are not pack keys belong to others.
            if let Some(pack) = pack_of_key(self.group, &object.key) {
                self.found.packs += 1;
                if pack.0 < self.min_epoch && !self.named.contains(&pack) {
                    self.garbage.push_back((object.key, object.bytes));
                }
            }
        }
        match (page.more, last) {
            (true, Some(after)) => Phase::Listing { after },
            _ => self.deleting(),
        }
    }

    fn deleting(&self) -> Phase {
        match self.garbage.is_empty() {
            true => Phase::Done,
            false => Phase::Deleting,
        }
    }
}
