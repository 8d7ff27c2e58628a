//! A store in memory, and stores with defects: random faults, and a store that violates its
//! conditions, with which tests prove that they detect such a violation.
//!
//! Invariants: [`Memory`] observes its conditions. Every answer of [`Faulty`] is true; it may not
//! answer at all, carry out an unanswered request late, and list new objects late. Concurrency:
//! shared freely; one request at a time. Failure: random, from a seed: the same requests fail in
//! the same way.

use crate::store::{Etag, Listed, Object, ObjectStore, Page, Put, StoreFailure};
use headwater_io::{Chance, Clock, SeededChance};
use headwater_types::Timestamp;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Objects of a list at once.
const PAGE: usize = 100;

/// A store in memory.
#[derive(Debug, Default)]
pub struct Memory {
    inner: Mutex<Objects>,
    /// Clock of put times; `None` = put times are not reported.
    clock: Option<Arc<dyn Clock>>,
}

#[derive(Debug, Default)]
struct Objects {
    objects: BTreeMap<String, Object>,
    times: BTreeMap<String, Timestamp>,
    versions: u64,
}

impl Memory {
    /// A store that reports the time of each put.
    #[must_use]
    pub fn timed(clock: Arc<dyn Clock>) -> Memory {
        Memory {
            clock: Some(clock),
            ..Memory::default()
        }
    }

    fn now(&self) -> Option<Timestamp> {
        self.clock.as_ref().map(|clock| clock.now())
    }
}

impl Objects {
    fn put(&mut self, key: &str, bytes: &[u8], now: Option<Timestamp>) -> Put {
        if let Some(now) = now {
            self.times.insert(key.to_owned(), now);
        }
        self.versions += 1;
        let etag = Etag(format!("\"{}\"", self.versions));
        let object = Object {
            bytes: bytes.to_vec(),
            etag: etag.clone(),
        };
        self.objects.insert(key.to_owned(), object);
        Put::Stored(etag)
    }
}

fn range_of(key: &str, all: &[u8], from: u64, bytes: u64) -> Result<Vec<u8>, StoreFailure> {
    let from_at = usize::try_from(from).ok();
    let until = usize::try_from(from.saturating_add(bytes)).ok();
    let found = from_at
        .zip(until)
        .and_then(|(from, until)| all.get(from..until));
    let found = found.ok_or_else(|| {
        StoreFailure::passing(format!("{key}: it has no {bytes} bytes from {from} on"))
    })?;
    Ok(found.to_vec())
}

impl ObjectStore for Memory {
    fn get(&self, key: &str) -> Result<Option<Object>, StoreFailure> {
        Ok(self.inner.lock().objects.get(key).cloned())
    }

    fn get_range(&self, key: &str, from: u64, bytes: u64) -> Result<Option<Vec<u8>>, StoreFailure> {
        let inner = self.inner.lock();
        let found = inner.objects.get(key);
        found
            .map(|o| range_of(key, &o.bytes, from, bytes))
            .transpose()
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Put, StoreFailure> {
        let mut inner = self.inner.lock();
        match inner.objects.contains_key(key) {
            true => Ok(Put::Refused),
            false => Ok(inner.put(key, bytes, self.now())),
        }
    }

    fn replace(&self, key: &str, bytes: &[u8], expected: &Etag) -> Result<Put, StoreFailure> {
        let mut inner = self.inner.lock();
        match inner.objects.get(key).is_some_and(|o| o.etag == *expected) {
            true => Ok(inner.put(key, bytes, self.now())),
            false => Ok(Put::Refused),
        }
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Page, StoreFailure> {
        let inner = self.inner.lock();
        let mut found = (inner.objects.iter())
            .filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after)
            .map(|(key, object)| Listed {
                key: key.clone(),
                bytes: u64::try_from(object.bytes.len()).unwrap_or(u64::MAX),
                modified: inner.times.get(key).copied(),
            });
        let objects = found.by_ref().take(PAGE).collect();
        let more = found.next().is_some();
        Ok(Page { objects, more })
    }

    fn delete(&self, key: &str) -> Result<(), StoreFailure> {
        self.inner.lock().objects.remove(key);
        Ok(())
    }
}

/// Frequency of faults, in a thousand requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The store refuses temporarily (503), and does not carry the request out.
    pub refused: u64,
    /// The request is neither answered nor carried out.
    pub not_done: u64,
    /// The request was carried out, and the answer is lost.
    pub answer_lost: u64,
    /// A put is not answered, and is carried out some requests later.
    pub done_late: u64,
    /// A body is cut in the middle.
    pub cut: u64,
    /// A list omits some of the objects.
    pub listed_late: u64,
}

impl Faults {
    /// All of them, so often each.
    #[must_use]
    pub fn all(in_a_thousand: u64) -> Faults {
        Faults {
            refused: in_a_thousand,
            not_done: in_a_thousand,
            answer_lost: in_a_thousand,
            done_late: in_a_thousand,
            cut: in_a_thousand,
            listed_late: in_a_thousand,
        }
    }
}

/// A put that is carried out later.
#[derive(Debug)]
struct Late {
    after: u64,
    key: String,
    bytes: Vec<u8>,
    expected: Option<Etag>,
}

/// A store with faults.
#[derive(Debug)]
pub struct Faulty<S> {
    store: S,
    chance: SeededChance,
    faults: Mutex<Faults>,
    late: Mutex<VecDeque<Late>>,
    requests: Mutex<u64>,
}

/// Outcome of a request.
enum Fate {
    Well,
    NotDone(&'static str),
    AnswerLost,
    DoneLate,
    Cut,
    ListedLate,
}

impl<S: ObjectStore> Faulty<S> {
    /// A store before which faults happen, by a seed.
    #[must_use]
    pub fn new(store: S, seed: u64, faults: Faults) -> Faulty<S> {
        Faulty {
            store,
            chance: SeededChance::new(seed),
            faults: Mutex::new(faults),
            late: Mutex::default(),
            requests: Mutex::new(0),
        }
    }

    /// Faults happen so often from now on.
    pub fn set_faults(&self, faults: Faults) {
        *self.faults.lock() = faults;
    }

    /// The underlying store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Carries out all delayed requests now.
    pub fn settle(&self) {
        let late: Vec<Late> = self.late.lock().drain(..).collect();
        late.iter().for_each(|late| self.carry_out_late(late));
    }

    fn carry_out_late(&self, late: &Late) {
        // The client gets no answer, whatever the result.
        let _ = match &late.expected {
            None => self.store.create(&late.key, &late.bytes),
            Some(expected) => self.store.replace(&late.key, &late.bytes, expected),
        };
    }

    fn fate(&self) -> Fate {
        let now = {
            let mut requests = self.requests.lock();
            *requests += 1;
            *requests
        };
        let due: Vec<Late> = {
            let mut late = self.late.lock();
            let all: Vec<Late> = late.drain(..).collect();
            let (due, rest) = all.into_iter().partition(|l| l.after <= now);
            late.extend::<Vec<Late>>(rest);
            due
        };
        due.iter().for_each(|late| self.carry_out_late(late));
        let faults = *self.faults.lock();
        let mut drawn = self.chance.next_u64() % 1000;
        let mut is = |often: u64| {
            let hit = drawn < often;
            drawn = drawn.saturating_sub(often);
            // A request has at most one fault.
            drawn = if hit { 1000 } else { drawn };
            hit
        };
        if is(faults.refused) {
            Fate::NotDone("503: slow down")
        } else if is(faults.not_done) {
            Fate::NotDone("no answer")
        } else if is(faults.answer_lost) {
            Fate::AnswerLost
        } else if is(faults.done_late) {
            Fate::DoneLate
        } else if is(faults.cut) {
            Fate::Cut
        } else if is(faults.listed_late) {
            Fate::ListedLate
        } else {
            Fate::Well
        }
    }

    fn put(
        &self,
        key: &str,
        bytes: &[u8],
        expected: Option<&Etag>,
        put: impl FnOnce() -> Result<Put, StoreFailure>,
    ) -> Result<Put, StoreFailure> {
        match self.fate() {
            Fate::Well | Fate::ListedLate => put(),
            Fate::NotDone(why) => Err(failure(key, why)),
            Fate::AnswerLost | Fate::Cut => {
                put()?;
                Err(failure(key, "the answer is lost"))
            }
            Fate::DoneLate => {
                let after = *self.requests.lock() + 1 + self.chance.next_u64() % 40;
                self.late.lock().push_back(Late {
                    after,
                    key: key.to_owned(),
                    bytes: bytes.to_vec(),
                    expected: expected.cloned(),
                });
                Err(failure(key, "no answer in time"))
            }
        }
    }

    fn get<T>(
        &self,
        key: &str,
        get: impl FnOnce() -> Result<T, StoreFailure>,
    ) -> Result<T, StoreFailure> {
        match self.fate() {
            Fate::Well | Fate::ListedLate => get(),
            Fate::NotDone(why) => Err(failure(key, why)),
            Fate::Cut => Err(failure(key, "the body was cut")),
            Fate::AnswerLost | Fate::DoneLate => Err(failure(key, "no answer in time")),
        }
    }
}

fn failure(key: &str, why: &str) -> StoreFailure {
    StoreFailure::passing(format!("{key}: {why}"))
}

impl<S: ObjectStore> ObjectStore for Faulty<S> {
    fn get(&self, key: &str) -> Result<Option<Object>, StoreFailure> {
        self.get(key, || self.store.get(key))
    }

    fn get_range(&self, key: &str, from: u64, bytes: u64) -> Result<Option<Vec<u8>>, StoreFailure> {
        self.get(key, || self.store.get_range(key, from, bytes))
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Put, StoreFailure> {
        self.put(key, bytes, None, || self.store.create(key, bytes))
    }

    fn replace(&self, key: &str, bytes: &[u8], expected: &Etag) -> Result<Put, StoreFailure> {
        let put = || self.store.replace(key, bytes, expected);
        self.put(key, bytes, Some(expected), put)
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Page, StoreFailure> {
        match self.fate() {
            Fate::Well => self.store.list(prefix, after),
            Fate::ListedLate => {
                let mut page = self.store.list(prefix, after)?;
                page.objects
                    .retain(|_| self.chance.next_u64().is_multiple_of(2));
                // More objects follow only if the page is not empty: the next page continues after
                // its last key.
                page.more &= !page.objects.is_empty();
                Ok(page)
            }
            Fate::NotDone(why) => Err(failure(prefix, why)),
            _ => Err(failure(prefix, "no answer in time")),
        }
    }

    fn delete(&self, key: &str) -> Result<(), StoreFailure> {
        match self.fate() {
            Fate::Well | Fate::ListedLate => self.store.delete(key),
            Fate::AnswerLost | Fate::DoneLate | Fate::Cut => {
                self.store.delete(key)?;
                Err(failure(key, "the answer is lost"))
            }
            Fate::NotDone(why) => Err(failure(key, why)),
        }
    }
}

/// A store without atomic conditions: it reads first and puts then, and other requests may run in
/// between. A race with a single winner on this store proves nothing.
#[derive(Debug)]
pub struct Careless<S> {
    store: S,
    /// Puts that have read and found their condition true, by key and condition.
    between: Mutex<BTreeSet<String>>,
}

impl<S: ObjectStore> Careless<S> {
    /// Creates a store that ignores conditions, on top of `store`.
    #[must_use]
    pub fn new(store: S) -> Careless<S> {
        Careless {
            store,
            between: Mutex::default(),
        }
    }

    fn put_anyway(&self, key: &str, bytes: &[u8]) -> Result<Put, StoreFailure> {
        loop {
            let put = match self.store.get(key)? {
                None => self.store.create(key, bytes)?,
                Some(found) => self.store.replace(key, bytes, &found.etag)?,
            };
            if put != Put::Refused {
                return Ok(put);
            }
        }
    }
}

impl<S: ObjectStore> ObjectStore for Careless<S> {
    fn get(&self, key: &str) -> Result<Option<Object>, StoreFailure> {
        self.store.get(key)
    }

    fn get_range(&self, key: &str, from: u64, bytes: u64) -> Result<Option<Vec<u8>>, StoreFailure> {
        self.store.get_range(key, from, bytes)
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Put, StoreFailure> {
        match self.store.get(key)? {
            Some(_) => Ok(Put::Refused),
            None => self.put_anyway(key, bytes),
        }
    }

    fn replace(&self, key: &str, bytes: &[u8], expected: &Etag) -> Result<Put, StoreFailure> {
        let is_so = self.store.get(key)?.is_some_and(|o| o.etag == *expected);
        // The read of another client counts for this one too, as if both had read at once.
        let looked = format!("{key} {}", expected.0);
        let mut between = self.between.lock();
        if is_so {
            between.insert(looked);
        } else if !between.contains(&looked) {
            return Ok(Put::Refused);
        }
        drop(between);
        self.put_anyway(key, bytes)
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Page, StoreFailure> {
        self.store.list(prefix, after)
    }

    fn delete(&self, key: &str) -> Result<(), StoreFailure> {
        self.store.delete(key)
    }
}
