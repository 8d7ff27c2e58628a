//! Producers: writers that number their batches, so that a repeated one is recognised.
//!
//! A batch may carry a producer and a number. A batch whose number is at most the newest of that
//! producer is acknowledged once the newest one is, and not stored again. The number is part of the
//! batch's log record, so the two are stored together or not at all; jobs put the numbers of the
//! records up to their sequence into the metadata, and the log keeps a record until then.
//!
//! Invariants: the metadata of a producer agree with the records that are on the medium, and are
//! never newer; numbers of a producer only increase. At most [`PRODUCERS_MAX`] are remembered:
//! beyond that, the producer with the oldest write is forgotten. Concurrency: one lock, held from
//! the lookup of a number until its record has its position in the log.

use crate::common::ids::Sequence;
use crate::{Error, Result};
use headwater_types::Producer;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Maximum producers remembered.
pub(crate) const PRODUCERS_MAX: usize = 4096;
/// Maximum bytes of the name of a producer.
const NAME_BYTES_MAX: usize = 255;

#[derive(Debug, Default)]
pub(crate) struct Producers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    by_name: HashMap<String, KnownProducer>,
    /// By the sequence of their newest batch.
    by_age: BTreeSet<(Sequence, String)>,
    /// Forgotten producers that are still in the metadata.
    forgotten: BTreeMap<String, Sequence>,
}

#[derive(Debug, Default)]
struct KnownProducer {
    number: u64,
    sequence: Sequence,
    /// Sequences and numbers that are not in the metadata, oldest first.
    unsaved: VecDeque<(Sequence, u64)>,
}

/// A producer's newest batch, for the metadata; `None` = the producer is forgotten.
pub(crate) type SavedProducer = (String, Option<(u64, Sequence)>);

/// Checks the name of a producer.
pub(crate) fn check_producer(producer: &Producer) -> Result<()> {
    let len = producer.name.len();
    if len == 0 || len > NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the name of a producer has {len} bytes: expected 1 to {NAME_BYTES_MAX}"
        )));
    }
    Ok(())
}

impl State {
    /// The record of the newest batch of a producer, if this batch was accepted before.
    pub(crate) fn repeated(&self, producer: &Producer) -> Option<Sequence> {
        let known = self.by_name.get(&producer.name)?;
        (producer.number <= known.number).then_some(known.sequence)
    }

    /// Notes the record of a batch.
    pub(crate) fn put(&mut self, producer: &Producer, sequence: Sequence) {
        let known = self.by_name.entry(producer.name.clone()).or_default();
        if known.sequence >= sequence {
            return;
        }
        self.by_age.remove(&(known.sequence, producer.name.clone()));
        known.number = known.number.max(producer.number);
        known.sequence = sequence;
        known.unsaved.push_back((sequence, known.number));
        self.forgotten.remove(&producer.name);
        self.by_age.insert((sequence, producer.name.clone()));
        while self.by_name.len() > PRODUCERS_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_name.remove(&oldest);
            self.forgotten.insert(oldest, sequence);
        }
    }
}

impl Producers {
    /// Locks while a batch is looked up and gets its position in the log.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Loads the numbers of the metadata, at opening, before the log is read.
    pub(crate) fn load(&self, saved: Vec<(String, u64, Sequence)>) {
        let mut state = self.state.lock();
        for (name, number, sequence) in saved {
            state.by_age.insert((sequence, name.clone()));
            let known = KnownProducer {
                number,
                sequence,
                unsaved: VecDeque::new(),
            };
            state.by_name.insert(name, known);
        }
    }

    /// The numbers for the metadata with a job of this sequence.
    pub(crate) fn unsaved_up_to(&self, sequence: Sequence) -> Vec<SavedProducer> {
        let state = self.state.lock();
        let newest = state.by_name.iter().filter_map(|(name, known)| {
            let (at, number) = known.unsaved.iter().rev().find(|(s, _)| *s <= sequence)?;
            Some((name.clone(), Some((*number, *at))))
        });
        let forgotten = state
            .forgotten
            .iter()
            .filter(|(_, at)| **at <= sequence)
            .map(|(name, _)| (name.clone(), None));
        newest.chain(forgotten).collect()
    }

    /// Marks the numbers up to this sequence as saved in the metadata.
    pub(crate) fn saved_up_to(&self, sequence: Sequence) {
        let mut state = self.state.lock();
        for known in state.by_name.values_mut() {
            while known.unsaved.front().is_some_and(|(s, _)| *s <= sequence) {
                known.unsaved.pop_front();
            }
        }
        state.forgotten.retain(|_, at| *at > sequence);
    }

    /// The smallest sequence of a batch whose number is not in the metadata.
    pub(crate) fn first_unsaved(&self) -> Option<Sequence> {
        let state = self.state.lock();
        let first = |known: &KnownProducer| known.unsaved.front().map(|(s, _)| *s);
        state.by_name.values().filter_map(first).min()
    }
}
