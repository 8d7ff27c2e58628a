//! The keeper of a group, or a node that waits to become it: acquires the lease, renews it, commits
//! packs, releases it. A state machine without sockets, clocks and threads: the caller executes its
//! requests and passes the answers, one request of the head and one of a pack at a time, in
//! parallel: a lease is renewed however long the upload of a pack takes.
//!
//! Invariants: a head replaces only the head that this node knows, so exactly one of several nodes
//! wins. A change is reported as committed only after its head was seen in the bucket. A node whose
//! lease has expired by its own clock puts no object before it has acquired the group again, under
//! the next epoch. Safety does not depend on clocks: they decide only which node tries. Failure: a
//! put without an answer is resolved by reading the head: its nonce identifies the attempt. If the
//! head is still the previous one, the same bytes are put again, so that a late first put does no
//! harm.

use crate::contents::decode_head;
use crate::error::{BucketError, BucketErrorKind};
use crate::head::{CopyEntry, Head, Lease, PackEntry};
use crate::keys::{head_key, pack_key};
use crate::pack::{Pack, PackIndex};
use crate::store::{Answer, Etag, Object, Put, Request, StoreFailure};
use headwater_io::Chance;
use headwater_types::{Now, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The first wait after a failure; each further one is twice as long.
const WAIT_FIRST: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A node that may hold a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// A number by chance, of this start of it.
    pub node: u64,
    /// Name of the node.
    pub name: String,
    /// Duration of the lease at each acquisition or renewal, in milliseconds.
    pub lease_millis: u32,
}

/// A change to be committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// New packs, in their order.
    pub packs: Vec<Pack>,
    /// Removed copies.
    pub removed: Vec<String>,
    /// Numbers of the packs without valid content.
    pub dropped: BTreeSet<u64>,
}

/// A committed change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The head that commits the change.
    pub head: Head,
    /// The new packs: their numbers and indexes.
    pub packs: Vec<(u64, PackIndex)>,
}

/// A pack in flight.
#[derive(Clone, Debug)]
struct Sending {
    bytes: Arc<[u8]>,
    index_bytes: u32,
    index: PackIndex,
    /// Under which epoch and number it is, or is to be, in the bucket.
    epoch: u64,
    id: u64,
    is_there: bool,
}

impl Sending {
    /// Identity of the attempt among all others.
    fn name(&self) -> (u64, u64) {
        (self.epoch, self.id)
    }
}

/// A change in progress.
#[derive(Clone, Debug, Default)]
struct Committing {
    packs: Vec<Sending>,
    removed: Vec<String>,
    dropped: BTreeSet<u64>,
}

/// Purpose of a put of the head.
#[derive(Clone, Debug)]
enum PutPurpose {
    Take,
    /// Renewal during an upload, which continues afterwards.
    Renew(Option<Committing>),
    Commit(Committing),
    GiveBack,
}

/// A head in flight.
#[derive(Clone, Debug)]
struct Attempt {
    why: PutPurpose,
    head: Head,
    bytes: Arc<[u8]>,
    /// Version to be replaced; `None` = there must be no head.
    expected: Option<Etag>,
    /// When it was sent first.
    sent: Option<Duration>,
}

#[derive(Debug)]
enum Phase {
    /// Without the lease; checks whether it may acquire the group.
    Away,
    Putting(Box<Attempt>),
    /// Reads the head, since the result of a put is unknown.
    ReadingBack(Box<Attempt>),
    Holding,
    Uploading(Committing),
    /// The group was released.
    Done,
    Failed(BucketError),
}

/// Which head was there when, of another node.
#[derive(Clone, Copy, Debug)]
struct ObservedHead {
    nonce: u64,
    since: Duration,
}

/// A node that holds a group, or waits until it may.
#[derive(Debug)]
pub struct Holder {
    me: Member,
    group: u32,
    chance: Arc<dyn Chance>,
    phase: Phase,
    head: Option<(Head, Etag)>,
    observed: Option<ObservedHead>,
    /// End of the lease by its own clock.
    lease_until: Duration,
    renew_at: Duration,
    not_before: Duration,
    failures: u32,
    trouble: Option<String>,
    is_asking: bool,
    /// The pack in flight.
    uploading: Option<(u64, u64)>,
    upload_not_before: Duration,
    upload_failures: u32,
    is_releasing: bool,
    committed: Option<Committed>,
    has_lost: bool,
}

impl Holder {
    /// Creates a node that waits for a group.
    #[must_use]
    pub fn new(me: Member, group: u32, chance: Arc<dyn Chance>) -> Holder {
        Holder {
            me,
            group,
            chance,
            phase: Phase::Away,
            head: None,
            observed: None,
            lease_until: Duration::ZERO,
            renew_at: Duration::ZERO,
            not_before: Duration::ZERO,
            failures: 0,
            trouble: None,
            is_asking: false,
            uploading: None,
            upload_not_before: Duration::ZERO,
            upload_failures: 0,
            is_releasing: false,
            committed: None,
            has_lost: false,
        }
    }

    fn length(&self) -> Duration {
        Duration::from_millis(u64::from(self.me.lease_millis))
    }

    /// Whether the node holds the group, by its own clock.
    #[must_use]
    pub fn has_lease(&self, now: Now) -> bool {
        let holds = match &self.phase {
            Phase::Holding | Phase::Uploading(_) => true,
            Phase::Putting(attempt) | Phase::ReadingBack(attempt) => {
                !matches!(attempt.why, PutPurpose::Take)
            }
            Phase::Away | Phase::Done | Phase::Failed(_) => false,
        };
        holds && now.monotonic < self.lease_until
    }

    /// True when a change may be [committed](Holder::commit).
    #[must_use]
    pub fn is_ready(&self, now: Now) -> bool {
        matches!(self.phase, Phase::Holding) && self.has_lease(now) && !self.is_releasing
    }

    /// The head that the node knows, if it has ever had the lease of the group.
    #[must_use]
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref().map(|(head, _)| head)
    }

    /// True once after the group was lost: uncommitted changes are not carried out.
    pub fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.has_lost)
    }

    /// Returns each committed change once.
    pub fn take_committed(&mut self) -> Option<Committed> {
        self.committed.take()
    }

    /// Error that ended the holder.
    #[must_use]
    pub fn failed(&self) -> Option<&BucketError> {
        match &self.phase {
            Phase::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// The last error of the store, until it answers again.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Whether the group was released.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// Commits a change, which [`Holder::take_committed`] reports. False if the holder is not
    /// ready: the change is ignored then.
    pub fn commit(&mut self, now: Now, change: Change) -> bool {
        if !self.is_ready(now) {
            return false;
        }
        let epoch = self.head().map_or(0, |head| head.epoch);
        let packs = change.packs.into_iter().map(|pack| Sending {
            bytes: pack.bytes.into(),
            index_bytes: pack.index_bytes,
            index: pack.index,
            epoch,
            id: self.chance.next_u64(),
            is_there: false,
        });
        let committing = Committing {
            packs: packs.collect(),
            removed: change.removed,
            dropped: change.dropped,
        };
        self.phase = Phase::Uploading(committing);
        true
    }

    /// Releases the lease as soon as no request is in flight, so that another node need not wait.
    pub fn give_back(&mut self) {
        self.is_releasing = true;
        if matches!(self.phase, Phase::Away) && !self.is_asking {
            self.phase = Phase::Done;
        }
    }

    /// The change whose packs may be uploaded now.
    fn committing(&mut self) -> Option<&mut Committing> {
        match &mut self.phase {
            Phase::Uploading(committing) => Some(committing),
            Phase::Putting(attempt) | Phase::ReadingBack(attempt) => match &mut attempt.why {
                PutPurpose::Renew(committing) => committing.as_mut(),
                _ => None,
            },
            _ => None,
        }
    }

    /// Next pack to put, if any. Pass the answer to [`Holder::take_pack`].
    pub fn next_pack(&mut self, now: Now) -> Option<Request> {
        let may = now.monotonic >= self.upload_not_before && now.monotonic < self.lease_until;
        if self.uploading.is_some() || !may {
            return None;
        }
        let group = self.group;
        let packs = &self.committing()?.packs;
        let pack = packs.iter().find(|pack| !pack.is_there)?;
        let (name, bytes) = (pack.name(), Arc::clone(&pack.bytes));
        self.uploading = Some(name);
        let key = pack_key(group, name.0, name.1);
        Some(Request::Create { key, bytes })
    }

    /// Processes the answer to the upload of a pack. The answer is ignored if the pack is not
    /// needed any more, since the group was lost or the pack got another name.
    pub fn take_pack(&mut self, now: Now, answer: &Answer) {
        let name = self.uploading.take();
        if let Answer::Failed(failure) = answer {
            self.upload_not_before = now.monotonic + self.pause(self.upload_failures);
            self.upload_failures = self.upload_failures.saturating_add(1);
            self.trouble = Some(failure.text.clone());
            return;
        }
        (self.upload_failures, self.trouble) = (0, None);
        // An existing object with a random number in its key is from the put whose answer was lost.
        let is_put = matches!(answer, Answer::Put(_));
        if let Some(committing) = self.committing()
            && let Some(pack) = committing.packs.iter_mut().find(|p| Some(p.name()) == name)
        {
            pack.is_there = is_put;
        }
    }

    /// Next request about the head, if any. Pass the answer to [`Holder::take`].
    pub fn next(&mut self, now: Now) -> Option<Request> {
        if self.is_asking || now.monotonic < self.not_before {
            return None;
        }
        self.turn(now);
        let request = match &mut self.phase {
            Phase::Done | Phase::Failed(_) | Phase::Holding | Phase::Uploading(_) => None,
            Phase::Away | Phase::ReadingBack(_) => Some(Request::Get {
                key: head_key(self.group),
            }),
            Phase::Putting(attempt) => {
                attempt.sent.get_or_insert(now.monotonic);
                let (key, bytes) = (head_key(self.group), Arc::clone(&attempt.bytes));
                Some(match &attempt.expected {
                    None => Request::Create { key, bytes },
                    Some(expected) => Request::Replace {
                        key,
                        bytes,
                        expected: expected.clone(),
                    },
                })
            }
        };
        self.is_asking = request.is_some();
        request
    }

    /// Advances the phase if no answer is awaited.
    fn turn(&mut self, now: Now) {
        let has_right = now.monotonic < self.lease_until;
        let puts = match &self.phase {
            Phase::Holding | Phase::Uploading(_) => true,
            // A sent put may have been carried out: its result is resolved first.
            Phase::Putting(attempt) => !matches!(attempt.why, PutPurpose::Take),
            _ => false,
        };
        if puts && !has_right {
            self.lose();
            return;
        }
        match &self.phase {
            Phase::Holding if self.is_releasing => self.put(now, PutPurpose::GiveBack),
            Phase::Holding if now.monotonic >= self.renew_at => {
                self.put(now, PutPurpose::Renew(None))
            }
            Phase::Uploading(committing) if committing.packs.iter().all(|p| p.is_there) => {
                let committing = committing.clone();
                self.put(now, PutPurpose::Commit(committing));
            }
            Phase::Uploading(committing) if now.monotonic >= self.renew_at => {
                let committing = committing.clone();
                self.put(now, PutPurpose::Renew(Some(committing)));
            }
            Phase::Away if self.is_releasing => self.phase = Phase::Done,
            _ => {}
        }
    }

    fn lose(&mut self) {
        self.has_lost = true;
        self.committed = None;
        self.lease_until = Duration::ZERO;
        self.phase = Phase::Away;
    }

    /// Puts the successor of the known head.
    fn put(&mut self, now: Now, why: PutPurpose) {
        let Some((before, etag)) = self.head.clone() else {
            return;
        };
        let head = self.following(now, &before, &why);
        self.phase = Phase::Putting(Box::new(Attempt {
            bytes: head.encode().into(),
            why,
            head,
            expected: Some(etag),
            sent: None,
        }));
    }

    fn lease(&self, now: Now) -> Lease {
        Lease {
            node: self.me.node,
            name: self.me.name.clone(),
            millis: self.me.lease_millis,
            until: Timestamp::from_nanos(
                now.wall
                    .as_nanos()
                    .saturating_add(i64::from(self.me.lease_millis).saturating_mul(1_000_000)),
            ),
        }
    }

    fn following(&self, now: Now, before: &Head, why: &PutPurpose) -> Head {
        let mut head = before.clone();
        head.commit += 1;
        head.nonce = self.chance.next_u64();
        head.lease = self.lease(now);
        match why {
            PutPurpose::Renew(_) => {}
            PutPurpose::Take => head.epoch += 1,
            PutPurpose::GiveBack => (head.lease.millis, head.lease.until) = (0, now.wall),
            PutPurpose::Commit(committing) => committing.apply(&mut head),
        }
        assert!(head.follows(before), "a head that may follow is put");
        head
    }

    /// Processes the answer to the request in flight.
    pub fn take(&mut self, now: Now, answer: Answer) {
        self.is_asking = false;
        if let Answer::Failed(failure) = &answer {
            self.has_failed(now, failure);
        } else {
            (self.failures, self.trouble) = (0, None);
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Away);
        self.phase = match (phase, answer) {
            (Phase::Away, Answer::Got(found)) => self.looked(now, found),
            (Phase::Putting(attempt), Answer::Put(Put::Stored(etag))) => {
                self.has_put(*attempt, etag)
            }
            (Phase::Putting(attempt), _) => Phase::ReadingBack(attempt),
            (Phase::ReadingBack(attempt), Answer::Got(found)) => {
                self.read_back(now, *attempt, found)
            }
            (phase, _) => phase,
        };
    }

    fn has_failed(&mut self, now: Now, failure: &StoreFailure) {
        self.not_before = now.monotonic + self.pause(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.trouble = Some(failure.text.clone());
    }

    /// Wait after a failure, by the number of failures before it.
    fn pause(&self, failures: u32) -> Duration {
        let wait = WAIT_FIRST.saturating_mul(1 << failures.min(10));
        // A lease is not slept away.
        wait.min(WAIT_MAX).min(self.length() / 8)
    }

    /// Whether another node holds the group: it does as long as its heads change.
    fn looked(&mut self, now: Now, found: Option<Object>) -> Phase {
        let Some(object) = found else {
            return match &self.head {
                // A head that existed does not vanish by itself.
                Some(_) => Phase::Failed(vanished(self.group)),
                None => self.create(now),
            };
        };
        let head = match decode_head(self.group, &object.bytes) {
            Ok(head) => head,
            Err(error) => return Phase::Failed(error),
        };
        let seen = match self.observed {
            Some(seen) if seen.nonce == head.nonce => seen,
            _ => ObservedHead {
                nonce: head.nonce,
                since: now.monotonic,
            },
        };
        self.observed = Some(seen);
        let free_at = seen.since + head.lease.length();
        let is_free = head.lease.node == self.me.node || now.monotonic >= free_at;
        if !is_free {
            let look_again = (head.lease.length() / 8).max(Duration::from_millis(20));
            self.not_before = (now.monotonic + look_again).min(free_at);
            return Phase::Away;
        }
        let next = self.following(now, &head, &PutPurpose::Take);
        Phase::Putting(Box::new(Attempt {
            why: PutPurpose::Take,
            bytes: next.encode().into(),
            head: next,
            expected: Some(object.etag),
            sent: None,
        }))
    }

    /// The first head of a group.
    fn create(&self, now: Now) -> Phase {
        let head = Head {
            group: self.group,
            commit: 1,
            nonce: self.chance.next_u64(),
            epoch: 1,
            min_epoch: 1,
            lease: self.lease(now),
            next_pack: 1,
            packs: Vec::new(),
            copies: BTreeMap::new(),
        };
        Phase::Putting(Box::new(Attempt {
            why: PutPurpose::Take,
            bytes: head.encode().into(),
            head,
            expected: None,
            sent: None,
        }))
    }

    fn has_put(&mut self, attempt: Attempt, etag: Etag) -> Phase {
        let sent = attempt.sent.unwrap_or_default();
        self.lease_until = sent + self.length();
        self.renew_at = sent + self.length() / 3;
        let head = attempt.head;
        self.head = Some((head.clone(), etag));
        match attempt.why {
            PutPurpose::GiveBack => {
                self.lease_until = Duration::ZERO;
                return Phase::Done;
            }
            PutPurpose::Take | PutPurpose::Renew(None) => {}
            PutPurpose::Renew(Some(committing)) => return Phase::Uploading(committing),
            PutPurpose::Commit(committing) => {
                let numbers = committing.numbers(&head);
                let indexes = committing.packs.into_iter().map(|pack| pack.index);
                self.committed = Some(Committed {
                    packs: numbers.into_iter().zip(indexes).collect(),
                    head,
                });
            }
        }
        Phase::Holding
    }

    /// Result of a put, by the current head.
    fn read_back(&mut self, now: Now, attempt: Attempt, found: Option<Object>) -> Phase {
        let Some(object) = found else {
            return match attempt.expected {
                None => Phase::Putting(Box::new(attempt)),
                Some(_) => Phase::Failed(vanished(self.group)),
            };
        };
        if attempt.expected.as_ref() == Some(&object.etag) {
            return Phase::Putting(Box::new(attempt));
        }
        let head = match decode_head(self.group, &object.bytes) {
            Ok(head) => head,
            Err(error) => return Phase::Failed(error),
        };
        if head.nonce == attempt.head.nonce {
            return self.has_put(attempt, object.etag);
        }
        let is_mine = head.lease.node == self.me.node
            && head.lease.millis > 0
            && now.monotonic < self.lease_until;
        match attempt.why {
            PutPurpose::Take => Phase::Away,
            // Another node collects garbage, and raised the epoch for it.
            PutPurpose::Commit(committing) | PutPurpose::Renew(Some(committing)) if is_mine => {
                let again = committing.born_again(&head, &*self.chance);
                self.head = Some((head, object.etag));
                Phase::Uploading(again)
            }
            PutPurpose::Renew(None) | PutPurpose::GiveBack if is_mine => {
                self.head = Some((head, object.etag));
                Phase::Holding
            }
            PutPurpose::Renew(_) | PutPurpose::Commit(_) | PutPurpose::GiveBack => {
                self.lose();
                Phase::Away
            }
        }
    }
}

impl Committing {
    /// Numbers of its packs in a head to which the change was applied.
    fn numbers(&self, head: &Head) -> Vec<u64> {
        let mine = |entry: &&PackEntry| {
            let is = |p: &Sending| p.id == entry.id && p.epoch == entry.epoch;
            self.packs.iter().any(is)
        };
        head.packs.iter().filter(mine).map(|p| p.number).collect()
    }

    fn apply(&self, head: &mut Head) {
        for name in &self.removed {
            head.copies.remove(name);
        }
        for pack in &self.packs {
            let number = head.next_pack;
            head.next_pack += 1;
            head.packs.push(PackEntry {
                number,
                epoch: pack.epoch,
                id: pack.id,
                bytes: u64::try_from(pack.bytes.len()).unwrap_or(u64::MAX),
                index_bytes: pack.index_bytes,
            });
            for entry in &pack.index.entries {
                let copy = CopyEntry {
                    history: entry.history,
                    state: entry.state,
                    pack: number,
                    bytes: entry.present.iter().map(|range| range.bytes).sum(),
                };
                head.copies.insert(entry.name.clone(), copy);
            }
        }
        let needed: BTreeSet<u64> = head.copies.values().map(|copy| copy.pack).collect();
        let stays = |p: &PackEntry| needed.contains(&p.number) || !self.dropped.contains(&p.number);
        head.packs.retain(stays);
    }

    /// Packs of epochs that are collected are uploaded again, under the epoch of a head.
    fn born_again(mut self, head: &Head, chance: &dyn Chance) -> Committing {
        for pack in &mut self.packs {
            if pack.epoch < head.min_epoch {
                (pack.epoch, pack.id) = (head.epoch, chance.next_u64());
                pack.is_there = false;
            }
        }
        self
    }
}

fn vanished(group: u32) -> BucketError {
    BucketError::new(
        BucketErrorKind::Damaged,
        format!(
            "{}: the object was removed, and not by Headwater: restore it from a version of the bucket",
            head_key(group)
        ),
    )
}
