//! Frees rows at an edge if the cloud has them all, safe from its own loss.
//!
//! Invariants: rows are freed only in segments that the cloud has confirmed over the current
//! connection, over which it has declared that its confirmations survive its own loss, and of which
//! it has answered challenges for all bytes a short time before. Nothing that was written since the
//! start and never sent is freed, whatever the cloud confirms, and nothing without a connection.
//! Only what is about to be freed is challenged. Concurrency: the agent's lock is not held while
//! the database frees. Failure: rows that cannot be freed now are retried the next time, with a
//! line in the log; a challenge that is refuted or not answered frees nothing, and is logged.

use super::{Origin, Uplink};
use crate::edge_copy::DurableState;
use crate::error::{ClusterError, ClusterErrorKind, of_device};
use crate::status::{FreeStatus, FreedStatus, LostStatus};
use headwater_engine::{Database, ErrorKind};
use headwater_protocol::replication::{ChallengeStats, Message};
use headwater_types::Timestamp;

/// Partitions that are freed at once, so that the connection does not wait for long.
const AT_ONCE: u64 = 4;
/// Most partitions that the cloud is challenged for between two looks at which may be freed.
const CHALLENGED_AT_ONCE: usize = 64;
/// Code of a warning: the cloud confirms rows, and does not prove that it has them.
const CHALLENGE_CODE: &str = "E_CHALLENGE";

/// State of the challenges to a cloud.
#[derive(Debug, Default)]
pub(super) struct ChallengeLink {
    /// The cloud has said over this connection that it answers challenges.
    pub(super) answers: bool,
    /// Counts that were last reported in the log.
    logged: ChallengeStats,
}

/// Room that was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MadeRoom {
    /// Freed bytes.
    pub bytes: u64,
    /// The cloud is proving that it has more rows, which may be freed soon.
    pub is_proving: bool,
}

impl Uplink {
    /// Records from now on what is sent: the cloud is not believed to have anything else of what is
    /// written from now on.
    pub(super) fn record_sent(&self) -> Result<(), ClusterError> {
        match &self.origin {
            Origin::Database(db) => self.agent.lock().record_sent(db).map_err(of_device),
            Origin::Copy(..) => Ok(()),
        }
    }

    /// Frees some of the rows that may be freed. Call repeatedly while connected.
    pub(super) fn free(&self) -> Result<(), ClusterError> {
        let (Some(keep), Origin::Database(db)) = (self.settings.free_after, &self.origin) else {
            return Ok(());
        };
        if !self.link.lock().survives {
            return Ok(());
        }
        let keep = i64::try_from(keep.as_nanos()).unwrap_or(i64::MAX);
        let before = db.believed_now().as_nanos().saturating_sub(keep);
        let before = Timestamp::from_nanos(before);
        let freed = self.free_held(db, before, AT_ONCE);
        if let Err(error) = freed {
            if db.state_number().is_err() {
                return Err(of_device(error));
            }
            tracing::warn!(%error, "sync: rows that the cloud has could not be freed");
        }
        Ok(())
    }

    /// Frees rows before an instant that the cloud has confirmed and proven to have, and has it
    /// challenged for the others.
    fn free_held(
        &self,
        db: &Database,
        before: Timestamp,
        most: u64,
    ) -> headwater_engine::Result<u64> {
        let proven = self.agent.lock().proven_now();
        let freeable = db.freeable_rows(&proven, before, CHALLENGED_AT_ONCE)?;
        let held = {
            let mut agent = self.agent.lock();
            agent.set_to_free(&freeable);
            agent.held_now(self.now())
        };
        Ok(db.free_rows(&held, before, most)?.bytes)
    }

    /// The next challenge to the cloud, if there are rows to be freed and it answers challenges.
    pub(super) fn challenge(&self) -> Result<Option<Message>, ClusterError> {
        if !matches!(self.origin, Origin::Database(_)) {
            return Ok(None);
        }
        let may = {
            let known = self.link.lock();
            known.survives && known.challenges.answers
        };
        if !may {
            return Ok(None);
        }
        let mut agent = self.agent.lock();
        if !agent.has_challenges() {
            agent.set_challenges(self.random_key());
        }
        let challenge = agent.challenge(self.now());
        let stats = agent.challenge_stats();
        let kept = self.keep_ahead(&mut agent);
        drop(agent);
        kept.map_err(|text| ClusterError::new(ClusterErrorKind::Io, text))?;
        self.log_challenges(stats);
        Ok(challenge)
    }

    fn random_key(&self) -> [u8; 32] {
        let mut key = [0; 32];
        for part in key.chunks_mut(8) {
            part.copy_from_slice(&self.env.chance.next_u64().to_le_bytes());
        }
        key
    }

    /// Reports failed challenges since the last report.
    fn log_challenges(&self, stats: ChallengeStats) {
        let before = std::mem::replace(&mut self.link.lock().challenges.logged, stats);
        if (stats.wrong, stats.lacking) != (before.wrong, before.lacking) {
            tracing::warn!(
                code = CHALLENGE_CODE,
                wrong = stats.wrong,
                lacking = stats.lacking,
                refuted_segments = stats.refuted_segments,
                "sync: the cloud confirms rows, and cannot prove that it has them: they are not freed; `headwater sync verify` compares both"
            );
        }
        if stats.unanswered != before.unanswered {
            tracing::warn!(
                code = CHALLENGE_CODE,
                unanswered = stats.unanswered,
                "sync: the cloud does not prove in time that it has the rows that it confirms: they are not freed, and it is asked again later"
            );
        }
    }

    /// Frees all rows that the cloud has proven to have, safe from its own loss, whatever their
    /// age: for a full disk. To be called again while the cloud is proving that it has more.
    ///
    /// # Errors
    /// The engine's own.
    pub fn make_room(&self) -> headwater_engine::Result<MadeRoom> {
        let Origin::Database(db) = &self.origin else {
            return Ok(MadeRoom::default());
        };
        let (survives, answers) = {
            let known = self.link.lock();
            (known.survives, known.challenges.answers)
        };
        if !survives {
            return Ok(MadeRoom::default());
        }
        let bytes = match self.free_held(db, Timestamp::MAX, u64::MAX) {
            // What stays of a partition needs space, too.
            Err(error) if error.kind() == ErrorKind::Full => 0,
            freed => freed?,
        };
        let is_proving = answers && self.agent.lock().may_prove_more(self.now());
        Ok(MadeRoom { bytes, is_proving })
    }

    /// Rows that were lost on a full disk.
    pub(super) fn lost(&self) -> headwater_engine::Result<Option<LostStatus>> {
        let Origin::Database(db) = &self.origin else {
            return Ok(None);
        };
        let lost = db.lost_rows()?;
        Ok(lost.span.map(|span| LostStatus {
            partitions: lost.partitions,
            rows: lost.rows,
            bytes: lost.bytes,
            first_ns: span.first.as_nanos(),
            last_ns: span.last.as_nanos(),
        }))
    }

    /// Segments that the cloud has proven to have whole over this connection, if any.
    pub(crate) fn proven(&self) -> Option<DurableState> {
        let agent = self.agent.lock();
        let segments = agent.proven_now();
        let state = agent.confirmed()?.state;
        (!segments.is_empty()).then_some(DurableState { state, segments })
    }

    fn free_state(&self, challenges: ChallengeStats) -> FreeStatus {
        let (survives, answers) = {
            let known = self.link.lock();
            (known.survives, known.challenges.answers)
        };
        if !survives {
            FreeStatus::NotSafe
        } else if !answers {
            FreeStatus::NoChallenges
        } else if challenges.refuted_segments > 0 {
            FreeStatus::Refuted
        } else if challenges.unanswered_in_a_row > 0 {
            FreeStatus::Unanswered
        } else {
            FreeStatus::Confirmed
        }
    }

    /// Freed rows, and the state of freeing.
    pub(super) fn freed(&self) -> headwater_engine::Result<Option<FreedStatus>> {
        let Origin::Database(db) = &self.origin else {
            return Ok(None);
        };
        let freed = db.freed_rows()?;
        let challenges = self.agent.lock().challenge_stats();
        let state = match self.settings.free_after {
            None if freed.partitions == 0 => return Ok(None),
            None => FreeStatus::Never,
            Some(_) => self.free_state(challenges),
        };
        Ok(Some(FreedStatus {
            state,
            partitions: freed.partitions,
            bytes: freed.bytes,
            challenges: challenges.into(),
        }))
    }
}
