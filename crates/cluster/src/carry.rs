//! Persistence of copies elsewhere, beyond the loss of this node, and the confirmations to edges
//! that wait for it.
//!
//! Invariants: a range reported as persisted was carried from the copy that is open now: ranges
//! carried from an earlier copy, which may have had more, are not reported of this one. A waiting
//! confirmation is replaced by the ranges persisted by then; no confirmation of another history is
//! sent. Concurrency: plain data under the locks of a copy, and one owner of a
//! [`DelayedConfirmation`]. Failure: a range that is never persisted is never confirmed; the edge
//! retains it until then.

use crate::copies::EdgeCopies;
use crate::edge_copy::DurableState;
use crate::error::{ClusterError, of_device};
use crate::private;
use headwater_engine::{CarriedCopy, CopyRestoration, RemoteCopy, StateName};
use headwater_io::Env;
use headwater_protocol::replication::Message;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Which copy was carried, and how often it had changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarryMark {
    opening: u64,
    changes: u64,
}

/// A copy to be carried elsewhere.
#[derive(Clone, Debug)]
pub struct Carry {
    /// Files and ranges of the copy.
    pub carried: CarriedCopy,
    /// Copy from which the bytes of its segments are read.
    pub copy: RemoteCopy,
    /// Version of the copy, to detect later changes.
    pub mark: CarryMark,
}

impl EdgeCopies {
    /// Delays each confirmation to an edge until [`EdgeCopies::set_persisted`] reports its ranges
    /// as persisted, and each key until the list of edges is.
    pub fn confirm_when_persisted(&self) {
        self.waits.store(true, Ordering::Relaxed);
    }

    /// Delays each confirmation to an edge of this node until the peer has proven its ranges.
    pub fn confirm_when_at_peer(&self) {
        self.waits_for_peer.store(true, Ordering::Relaxed);
    }

    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    pub(crate) fn waits_for_peer(&self) -> bool {
        self.waits_for_peer.load(Ordering::Relaxed)
    }

    /// Records the segments of the copy in a folder that its relay's cloud has proven: they may be
    /// confirmed.
    pub(crate) fn set_at_peer(&self, folder: &str, durable: DurableState) {
        let Ok(held) = self.held(folder) else {
            return;
        };
        let is_new = {
            let mut live = held.live.lock();
            let is_new = live.durable.as_ref() != Some(&durable);
            live.durable = Some(durable);
            is_new
        };
        if is_new {
            held.wake.notify_one();
        }
    }

    /// The copy in a folder, to be carried elsewhere; `None` if there is no copy, or it is
    /// unchanged since the mark.
    ///
    /// # Errors
    /// `not_found` for a folder of no copy, `io`.
    pub fn carry(
        &self,
        folder: &str,
        mark: Option<CarryMark>,
    ) -> Result<Option<Carry>, ClusterError> {
        let (held, place) = self.located(folder)?;
        let now = |changes| CarryMark {
            opening: held.opening(),
            changes,
        };
        if mark.is_some() && held.left_at().map(now) == mark {
            return Ok(None);
        }
        // Reading the state of an open copy does not delay its closing.
        let open = match held.open_copy() {
            Some(copy) => Some(copy),
            None => self.copy_at(&held, &place)?,
        };
        let Some(copy) = open else {
            return Ok(None);
        };
        if mark == Some(now(copy.changes())) {
            return Ok(None);
        }
        let opening = held.opening();
        let carried = copy.carried().map_err(of_device)?;
        let mark = CarryMark {
            opening,
            changes: carried.changes,
        };
        Ok(Some(Carry {
            carried,
            copy,
            mark,
        }))
    }

    /// Records that the carried ranges of a copy are persisted: they may be confirmed.
    pub fn set_persisted(&self, folder: &str, mark: CarryMark, carried: &CarriedCopy) {
        let Ok((held, _)) = self.located(folder) else {
            return;
        };
        if held.opening() == mark.opening {
            held.live.lock().durable = Some(DurableState {
                state: carried.state,
                segments: carried.complete.clone(),
            });
            held.wake.notify_one();
        }
    }

    /// The folders of all copies, of edges and closed parts.
    #[must_use]
    pub fn copy_folders(&self) -> Vec<String> {
        let edges = self.edges.lock();
        let list = edges.list();
        let folders = list.edges.iter().map(crate::Edge::folder);
        let parts = list.parts.iter().map(|part| part.folder.as_str());
        folders.chain(parts).map(str::to_owned).collect()
    }

    /// The list of edges to be persisted, and its version.
    ///
    /// # Errors
    /// `io`.
    pub fn roster(&self) -> Result<(u64, Vec<u8>), ClusterError> {
        self.edges.lock().file_to_persist()
    }

    /// Version of the list of edges: incremented with each change of the list.
    #[must_use]
    pub fn roster_version(&self) -> u64 {
        self.edges.lock().version()
    }

    /// Records that this version of the list of edges is persisted.
    pub fn set_roster_persisted(&self, version: u64) {
        self.persisted_roster.send_replace(version);
    }

    /// Waits until the current list of edges is persisted, where that is required.
    pub(crate) async fn roster_is_persisted(&self) {
        let version = self.roster_version();
        let mut kept = self.persisted_roster.subscribe();
        while self.waits() && *kept.borrow_and_update() < version {
            if kept.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Stores a list of edges that was persisted elsewhere in the directory of a node.
///
/// # Errors
/// `io`.
pub fn restore_roster(dir: &Path, bytes: &[u8]) -> Result<(), ClusterError> {
    private::replace_bytes(&dir.join("edges.json"), bytes)
}

/// Starts to restore the copy of an edge in the directory of a node.
///
/// # Errors
/// `invalid` when there is a copy, `io`.
pub fn restore_copy(env: Env, dir: &Path, name: &str) -> Result<CopyRestoration, ClusterError> {
    CopyRestoration::begin(env, &dir.join("copies").join(name)).map_err(of_device)
}

/// Puts all copies of a node aside, since there are newer ones elsewhere, and returns their
/// location. Copies that were put aside earlier are not removed: they may have data that exists
/// nowhere else.
///
/// # Errors
/// `io`.
pub fn set_copies_aside(dir: &Path) -> Result<Option<PathBuf>, ClusterError> {
    let copies = dir.join("copies");
    if !copies.exists() {
        return Ok(None);
    }
    let names = (2..=u32::MAX).map(|number| format!("copies-before-{number}"));
    let names = std::iter::once("copies-before".to_owned()).chain(names);
    let mut places = names.map(|name| dir.join(name));
    let Some(aside) = places.find(|place| !place.exists()) else {
        return Ok(None);
    };
    std::fs::rename(&copies, &aside).map_err(|e| ClusterError::io(&copies, &e))?;
    Ok(Some(aside))
}

/// Delays confirmations until their ranges are persisted.
#[derive(Debug, Default)]
pub(crate) struct DelayedConfirmation {
    waiting: Option<Message>,
    /// A confirmation is to be sent even if it repeats the last one.
    is_requested: bool,
    last_sent: Option<Message>,
}

impl DelayedConfirmation {
    /// Delays a confirmation.
    pub(crate) fn delay(&mut self, confirmation: Message) {
        (self.waiting, self.is_requested) = (Some(confirmation), true);
    }

    /// The confirmation that may be sent now, if any.
    pub(crate) fn next(&mut self, kept: Option<&DurableState>) -> Option<Message> {
        let (
            Some(Message::Confirm {
                state,
                proofs,
                segments,
            }),
            Some(kept),
        ) = (&self.waiting, kept)
        else {
            return None;
        };
        if !is_of_one_history(state, &kept.state) {
            return None;
        }
        // A segment of the same length has the same content.
        let is_kept = |(id, _): &&(u64, _)| {
            let here = segments.iter().find(|(known, _)| known == id);
            here.is_some_and(|here| kept.segments.contains(here))
        };
        let now = Message::Confirm {
            state: kept.state,
            segments: kept.segments.clone(),
            proofs: proofs.iter().filter(is_kept).copied().collect(),
        };
        if !std::mem::take(&mut self.is_requested) && self.last_sent.as_ref() == Some(&now) {
            return None;
        }
        self.last_sent = Some(now.clone());
        Some(now)
    }
}

fn is_of_one_history(a: &StateName, b: &StateName) -> bool {
    (a.identity, a.incarnation) == (b.identity, b.incarnation)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn name(number: u64) -> StateName {
        StateName {
            identity: 1,
            incarnation: 2,
            opening: 3,
            number,
            sequence: 0,
            view: 0,
        }
    }

    #[test]
    fn copies_that_were_put_aside_stay_at_the_next_takeover() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert_eq!(set_copies_aside(dir).unwrap(), None);
        for (number, name) in ["copies-before", "copies-before-2", "copies-before-3"]
            .into_iter()
            .enumerate()
        {
            std::fs::create_dir(dir.join("copies")).unwrap();
            std::fs::write(dir.join("copies/of"), number.to_string()).unwrap();
            assert_eq!(set_copies_aside(dir).unwrap(), Some(dir.join(name)));
        }
        let of = |name: &str| std::fs::read_to_string(dir.join(name).join("of")).unwrap();
        assert_eq!(of("copies-before"), "0");
        assert_eq!(of("copies-before-3"), "2");
    }

    #[test]
    fn only_what_is_kept_is_confirmed_and_what_was_asked_again_is_said_again() {
        let mut gate = DelayedConfirmation::default();
        let kept = |number, bytes| DurableState {
            state: name(number),
            segments: vec![(1, bytes)],
        };
        assert_eq!(gate.next(Some(&kept(1, 10))), None);
        gate.delay(Message::Confirm {
            state: name(3),
            segments: vec![(1, 30), (2, 5)],
            proofs: vec![(1, [1; 32]), (2, [2; 32])],
        });
        assert_eq!(gate.next(None), None);
        let confirmed = |number, bytes, proofs: &[(u64, [u8; 32])]| Message::Confirm {
            state: name(number),
            segments: vec![(1, bytes)],
            proofs: proofs.to_vec(),
        };
        // The persisted state is an older one, in which the segment was shorter.
        assert_eq!(gate.next(Some(&kept(2, 20))), Some(confirmed(2, 20, &[])));
        assert_eq!(gate.next(Some(&kept(2, 20))), None);
        let all = confirmed(3, 30, &[(1, [1; 32])]);
        assert_eq!(gate.next(Some(&kept(3, 30))), Some(all.clone()));
        gate.delay(Message::Confirm {
            state: name(3),
            segments: vec![(1, 30)],
            proofs: vec![(1, [1; 32])],
        });
        assert_eq!(gate.next(Some(&kept(3, 30))), Some(all));
        let other = DurableState {
            state: StateName {
                incarnation: 9,
                ..name(4)
            },
            segments: Vec::new(),
        };
        assert_eq!(gate.next(Some(&other)), None);
    }
}
