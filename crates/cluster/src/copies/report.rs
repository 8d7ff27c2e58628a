//! Status of a copy, from the state of the engine and the planner.

use super::{EdgeCopies, is_current};
use crate::edge_copy::{EdgeCopy, Live};
use crate::edges::Edge;
use crate::error::{ClusterError, ClusterErrorKind, of_device};
use crate::frame::{QuietCause, Trusts};
use crate::lag::{LagFacts, lag};
use crate::status::{
    CopyStatus, EdgeState, EdgeStatus, LagStatus, NextCaState, QuietStatus, ReasonStatus,
    VerifiedStatus,
};
use crate::why::reason_name;
use headwater_engine::{CopyProgress, Tally};
use headwater_types::Timestamp;
use headwater_wire::instant::Rfc3339;
use std::collections::BTreeMap;

pub(super) fn reason_status(tally: Tally) -> ReasonStatus {
    ReasonStatus {
        reason: reason_name(tally.reason).to_owned(),
        wanted_bytes: tally.subscribed_bytes,
        missing_bytes: tally.missing,
    }
}

pub(super) fn copy_status(progress: &CopyProgress, proven_bytes: u64) -> CopyStatus {
    CopyStatus {
        identity: format!("{:016x}", progress.state.identity),
        incarnation: format!("{:016x}", progress.state.incarnation),
        state: progress.state.number,
        bytes: progress.bytes,
        missing_bytes: progress.missing_bytes,
        proven_bytes,
        shown: progress.shown,
        shown_older: progress.shown_older,
        kept: progress.retained,
        is_live: progress.tail.is_whole,
    }
}

/// Whether an edge has these certificates, by its last answer.
fn next_ca_state(next: &[String], trusts: Option<&Trusts>) -> Option<NextCaState> {
    if next.is_empty() {
        return None;
    }
    let Some(trusts) = trusts else {
        return Some(NextCaState::Unknown);
    };
    let has = |digest| trusts.certificates.contains(digest);
    Some(match trusts.is_verified {
        false => NextCaState::Plaintext,
        true if trusts.certificates.is_empty() => NextCaState::System,
        true if next.iter().all(has) => NextCaState::Has,
        true => NextCaState::Lacks,
    })
}

/// Lag of the copy of an edge in a state.
fn lag_of(
    live: &Live,
    state: EdgeState,
    quiet: Option<(Timestamp, QuietCause)>,
    now: Timestamp,
) -> LagStatus {
    let sends_live = live.about.as_ref().is_some_and(|about| about.sends_live);
    let facts = LagFacts {
        live: live.live_lag.filter(|_| sends_live),
        waits: live.waits,
        arrivals: &live.arrivals,
        current: live.current,
        missing_bytes: live.progress.as_ref().map_or(0, |p| p.missing_bytes),
    };
    lag(state, &facts, quiet, now)
}

/// Reason why the copy of an edge cannot be compared with its database now, if that is not only a
/// missing connection.
pub(super) fn not_comparable(edge: &EdgeStatus) -> Option<ClusterError> {
    let name = &edge.name;
    let why = edge.error.as_deref().unwrap_or("see `headwater edges`");
    let (kind, text) = match edge.state {
        EdgeState::Refused => (
            ClusterErrorKind::History,
            format!("the edge `{name}` is refused: {why}"),
        ),
        EdgeState::Failed => (
            ClusterErrorKind::Io,
            format!("the copy of the edge `{name}` cannot be used: {why}"),
        ),
        EdgeState::Paused => (
            ClusterErrorKind::Unreachable,
            format!(
                "requests to the edge `{name}` are paused; `headwater sync resume {name}` resumes them"
            ),
        ),
        EdgeState::Quiet => {
            let quiet = edge.quiet.as_ref();
            let cause = quiet.map_or("it has announced a pause", |quiet| quiet.cause.text());
            let until = quiet.map(|quiet| Rfc3339(Timestamp::from_nanos(quiet.until_ns)));
            let until = until.map_or_else(String::new, |at| format!(" until {at}"));
            (
                ClusterErrorKind::Unreachable,
                format!("the edge `{name}` is not connected{until}: {cause}"),
            )
        }
        EdgeState::Invited | EdgeState::Offline | EdgeState::Current | EdgeState::Catching => {
            return None;
        }
    };
    Some(ClusterError::new(kind, text))
}

impl EdgeCopies {
    /// Status of each edge, by name.
    #[must_use]
    pub fn status(&self) -> Vec<EdgeStatus> {
        let mut edges = self.edges.lock().all().to_vec();
        edges.sort_by(|a, b| a.name.cmp(&b.name));
        edges.iter().map(|edge| self.status_of(edge)).collect()
    }

    /// Lag in milliseconds of the newest events of each edge that sends them, while it is
    /// connected, when they arrived last: [`LagStatus::live_ms`](crate::LagStatus::live_ms).
    #[must_use]
    pub fn live_lags(&self) -> BTreeMap<String, u64> {
        let edges = self.edges.lock().all().to_vec();
        let lags = edges.into_iter().filter_map(|edge| {
            let held = self.entry(&edge.name);
            let live = held.live.lock();
            let lag = live.live_lag.filter(|_| live.session != 0)?;
            Some((edge.name, lag.millis()))
        });
        lags.collect()
    }

    /// Status of an edge; `None` for an unknown name.
    #[must_use]
    pub fn edge_status(&self, name: &str) -> Option<EdgeStatus> {
        self.edge(name).map(|edge| self.status_of(&edge))
    }

    pub(super) fn status_of(&self, edge: &Edge) -> EdgeStatus {
        let held = self.entry(&edge.name);
        if held.live.lock().progress.is_none() {
            self.look_once(edge, &held);
        }
        let tallies = held.tallies();
        let live = held.live.lock();
        let is_served = live.session != 0;
        let refusal = (!is_served)
            .then(|| live.processes.refusal(false))
            .flatten();
        let warning = is_served.then(|| live.processes.warning()).flatten();
        let refused = live.refused.clone().or(refusal);
        let error = live.failed.clone().or_else(|| refused.clone()).or(warning);
        let is_current = live.progress.as_ref().is_some_and(is_current);
        let now = self.env().clock.now();
        let quiet = live.quiet.filter(|(until, _)| *until > now);
        let state = match live.session {
            _ if live.failed.is_some() => EdgeState::Failed,
            _ if refused.is_some() => EdgeState::Refused,
            0 if edge.is_invited() && edge.identity.is_none() => EdgeState::Invited,
            0 if quiet.is_some() => EdgeState::Quiet,
            0 => EdgeState::Offline,
            _ if edge.is_paused => EdgeState::Paused,
            _ if is_current => EdgeState::Current,
            _ => EdgeState::Catching,
        };
        EdgeStatus {
            name: edge.name.clone(),
            state,
            want: edge.want,
            rules: edge.rules.clone(),
            kept_seconds: edge.kept_seconds,
            migration: edge.migration,
            address: edge.address.clone(),
            tags: edge.tags.clone(),
            lag: lag_of(&live, state, quiet, now),
            quiet: quiet.map(|(until, cause)| QuietStatus {
                until_ns: until.as_nanos(),
                cause,
            }),
            heard_ns: live.last_message.map(Timestamp::as_nanos),
            current_ns: live.current.map(Timestamp::as_nanos),
            copy: live
                .progress
                .as_ref()
                .map(|p| copy_status(p, live.proven_bytes)),
            reasons: tallies.into_iter().map(reason_status).collect(),
            rights: live.rights,
            next_ca: next_ca_state(&self.next_ca_fingerprints.lock(), live.trusts.as_ref()),
            about: live.about.clone(),
            is_verifying: live.is_verifying,
            verified: live.verified.map(|(at, found)| VerifiedStatus {
                at_ns: at.as_nanos(),
                equal: found.equal,
                different: found.different,
                missing: found.missing,
            }),
            conflicts: self.conflicts().of_edge(&edge.name),
            through: live.path.iter().map(|n| format!("{n:016x}")).collect(),
            error,
        }
    }

    /// Reads the progress of a copy whose state is unknown since the start, without leaving it
    /// open.
    pub(crate) fn look_once(&self, edge: &Edge, held: &EdgeCopy) {
        let looked = self.location_of(edge);
        match looked.and_then(|place| held.glance(&place).map_err(of_device)) {
            Ok(None) => {}
            Ok(Some(progress)) => held.note(progress),
            Err(error) => held.live.lock().failed = Some(error.to_string()),
        }
    }
}
