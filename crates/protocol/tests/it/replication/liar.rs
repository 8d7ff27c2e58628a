//! Freeing at a source, after challenges; and a copy that confirms everything that its source
//! names, whatever it has, throws away a part of what it is sent, and answers challenges from
//! whatever it can get without keeping the bytes.

use crate::replication::world::{Source, To, World};
use headwater_protocol::replication::{Digest, Message, Nonce, Now, SegmentRange};
use headwater_testing::Dice;
use headwater_types::Timestamp;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

/// The digests by which a copy says that it does not have a range.
const LACKING: [Digest; 2] = [[0; 32], [255; 32]];

/// A copy that lies.
#[derive(Debug, Default)]
pub(crate) struct Liar {
    /// How many of a hundred ranges that arrive it throws away.
    throws_away: u64,
    /// Challenges that have arrived, by their numbers.
    challenges: BTreeMap<u64, (Nonce, Vec<SegmentRange>)>,
    /// Digests that were right once.
    earlier: Vec<Digest>,
    /// Digests that were made up.
    pub(crate) forged: u64,
}

impl Liar {
    pub(crate) fn new(throws_away: u64) -> Liar {
        Liar {
            throws_away,
            ..Liar::default()
        }
    }
}

impl World {
    /// Everything that the copy knows of, confirmed with the chains that the state has.
    pub(crate) fn forged_confirmation(&self) -> Message {
        let state = self.planner().copy().state();
        let segments: Vec<(u64, u64)> = state.segments().map(|s| (s.id, s.bytes)).collect();
        let head = |(id, _): &(u64, u64)| Some((*id, state.ledger(*id)?.head));
        Message::Confirm {
            state: state.name(),
            proofs: segments.iter().filter_map(head).collect(),
            segments,
        }
    }

    /// True for what a lying copy does not keep; it remembers challenges.
    pub(crate) fn throws_away(&mut self, message: &Message) -> bool {
        let Some(liar) = &mut self.liar else {
            return false;
        };
        if let Message::Challenge {
            request,
            nonce,
            ranges,
        } = message
        {
            liar.challenges.insert(*request, (*nonce, ranges.clone()));
        }
        let percent = liar.throws_away;
        matches!(message, Message::Bytes { .. }) && self.dice.chance(percent)
    }

    /// What a lying copy says in place of a message; of others the message itself.
    pub(crate) fn lie(&mut self, message: Message) -> Message {
        if self.liar.is_none() {
            return message;
        }
        match message {
            Message::Confirm { .. } => self.forged_confirmation(),
            Message::ChallengeAnswer { request, digests } => Message::ChallengeAnswer {
                request,
                digests: self.forged_answer(request, digests),
            },
            other => other,
        }
    }

    fn forged_answer(&mut self, request: u64, digests: Vec<Digest>) -> Vec<Digest> {
        let liar = self.liar.as_ref().unwrap();
        let known = liar.challenges.get(&request).cloned();
        let (nonce, ranges) = known.unwrap_or_default();
        let mut answer = Vec::new();
        for (at, digest) in digests.into_iter().enumerate() {
            if !LACKING.contains(&digest) {
                self.liar.as_mut().unwrap().earlier.push(digest);
                answer.push(digest);
                continue;
            }
            let range = ranges.get(at).copied();
            let forged = range.map_or(digest, |range| self.forged_digest(&nonce, range));
            self.liar.as_mut().unwrap().forged += 1;
            answer.push(forged);
        }
        answer
    }

    /// The digest of a range that is not here, from what the source says of it for nothing.
    fn forged_digest(&mut self, nonce: &Nonce, range: SegmentRange) -> Digest {
        let compared = Message::Compare {
            request: 1 << 50,
            state: self.planner().copy().state().name(),
            ranges: vec![range],
        };
        let digests = |message: Message| match message {
            Message::Digests { digests, .. } => digests,
            _ => Vec::new(),
        };
        let compared = self.request(compared).into_iter().flat_map(digests).next();
        let compared = compared.unwrap_or_default();
        let mut hasher = Sha256::new();
        match self.dice.below(4) {
            0 => return compared,
            1 => {
                hasher.update(nonce);
                hasher.update(compared);
            }
            2 => {
                hasher.update(nonce);
                hasher.update(vec![0; range.bytes as usize]);
            }
            _ => {
                let liar = self.liar.as_ref().unwrap();
                let at = self.dice.below(1 + liar.earlier.len() as u64) as usize;
                return liar.earlier.get(at).copied().unwrap_or(*nonce);
            }
        }
        hasher.finalize().into()
    }
}

impl Source {
    /// The copy has said that it answers challenges.
    pub(super) fn challenges(&mut self) {
        let mut dice = Dice(self.seed.rotate_left(32) ^ u64::from(self.connections));
        self.connections += 1;
        let mut key = [0; 32];
        for bytes in key.chunks_mut(8) {
            bytes.copy_from_slice(&dice.next().to_le_bytes());
        }
        self.agent.set_challenges(key);
    }

    /// Frees what the copy has confirmed, and answered challenges for, and has it challenged for
    /// the rest; how many partitions.
    pub(crate) fn free(&mut self, now: Now) -> u64 {
        let proven = self.agent.proven_now();
        let freeable = self.db().freeable_rows(&proven, Timestamp::MAX, 64);
        self.agent.set_to_free(&freeable.unwrap());
        let held = self.agent.held_now(now);
        let freed = self.db().free_rows(&held, Timestamp::MAX, u64::MAX);
        freed.unwrap().partitions
    }
}

impl World {
    /// What the source answers to somebody else, who is no planner.
    pub(crate) fn request(&mut self, message: Message) -> Vec<Message> {
        let now = self.clocks();
        let db = self.source.db().clone();
        let answers = self.source.agent.answer(&db, now, message).unwrap();
        self.source.persist_spending();
        answers
    }

    /// The copy says something of its own accord.
    pub(crate) fn send_from_copy(&mut self, message: &Message) {
        self.send(To::Source, message);
    }

    /// Frees what may be freed at the source; how many partitions.
    pub(crate) fn free(&mut self) -> u64 {
        let now = self.clocks();
        self.source.free(now)
    }

    /// The source is connected anew to a copy of an earlier version.
    pub(crate) fn unchallenged(&mut self) {
        self.flying.clear();
        self.source.agent.restart();
    }

    /// Everything that may be freed is to be freed, once the copy is challenged for it.
    pub(crate) fn prepare_free(&mut self) {
        let proven = self.source.agent.proven_now();
        self.source.agent.set_to_free(&proven);
    }

    /// The next challenge of the source.
    pub(crate) fn challenge(&mut self) -> Option<Message> {
        let now = self.clocks();
        self.source.agent.challenge(now)
    }

    /// What the copy answers to a challenge.
    pub(crate) fn answer_of_copy(&mut self, challenge: Message) -> Message {
        let now = self.clocks();
        let planner = self.planner.as_mut().unwrap();
        planner.receive(now, challenge).unwrap();
        std::iter::from_fn(|| planner.next(now))
            .find(|said| matches!(said, Message::ChallengeAnswer { .. }))
            .unwrap()
    }
}
