//! Status and contents of all copies: of edges, and closed parts.
//!
//! Invariant: what cannot be read is reported as an error of its part, and is not left out.
//! Concurrency: as [`EdgeCopies`]. Failure: an unreadable copy has an error in place of its
//! contents.

use super::EdgeCopies;
use super::parts::{PartStatus, PartStreams, StreamContents, VerifiedPart};
use crate::error::{ClusterError, ClusterErrorKind, of_device};
use headwater_engine::{ErrorKind, OutermostSpec, RemoteCopy, Snapshot, StreamInfo};
use headwater_types::{ClosedRange, StreamName, Timestamp};

impl EdgeCopies {
    /// All copies by the names of their parts: edges, then closed parts.
    fn all_parts(&self) -> Vec<(PartStatus, String)> {
        let edges = self.edges.lock();
        let list = edges.list();
        let live = list.edges.iter().map(|edge| {
            let status = PartStatus {
                part: edge.name.clone(),
                edge: Some(edge.name.clone()),
                identity: edge.identity.map(|id| format!("{id:016x}")),
                ..PartStatus::default()
            };
            (status, edge.folder().to_owned())
        });
        let closed = list.parts.iter().map(|part| {
            let status = PartStatus {
                part: part.label(),
                edge: part.edge.clone(),
                is_closed: true,
                why: Some(part.why.text().to_owned()),
                closed_ns: Some(part.closed_ns),
                identity: part.identity.map(|id| format!("{id:016x}")),
                ..PartStatus::default()
            };
            (status, part.folder.clone())
        });
        live.chain(closed).collect()
    }

    pub(super) fn own_snapshot_of_part(
        &self,
        folder: &str,
    ) -> Result<Option<Snapshot>, ClusterError> {
        let (held, place) = self.located(folder)?;
        held.snapshot(|| self.copy_at(&held, &place), &self.readers)
    }

    pub(crate) fn part_copy(&self, folder: &str) -> Result<Option<RemoteCopy>, ClusterError> {
        let (held, place) = self.located(folder)?;
        self.copy_at(&held, &place)
    }

    /// Status of all copies: of the edges, and closed parts.
    #[must_use]
    pub fn parts(&self) -> Vec<PartStatus> {
        let mut parts = self.all_parts();
        parts.sort_by(|(a, _), (b, _)| {
            let place = |p: &PartStatus| p.edge.clone().unwrap_or_else(|| p.part.clone());
            (place(a), !a.is_closed, a.closed_ns).cmp(&(place(b), !b.is_closed, b.closed_ns))
        });
        let described = parts.into_iter().map(|(mut status, folder)| {
            if let Err(error) = self.describe(&mut status, &folder) {
                status.error = Some(error.to_string());
            }
            status
        });
        described.collect()
    }

    fn describe(&self, status: &mut PartStatus, folder: &str) -> Result<(), ClusterError> {
        let Some(copy) = self.part_copy(folder)? else {
            return Ok(());
        };
        let progress = copy.progress();
        drop(copy);
        status.identity = Some(format!("{:016x}", progress.state.identity));
        status.incarnation = Some(format!("{:016x}", progress.state.incarnation));
        (status.bytes, status.missing_bytes) = (progress.bytes, progress.missing_bytes);
        let Some(snapshot) = self.part_snapshot(folder)? else {
            return Ok(());
        };
        let mut rows = Some(0u64);
        for table in snapshot.table_names() {
            let streams = snapshot.stream_count(&table).map_err(of_device)?;
            status.streams = status.streams.saturating_add(streams);
            let counted = here(snapshot.row_count(&table, ClosedRange::ALL, &mut || true))?;
            let both = rows.zip(counted.flatten());
            rows = both.map(|(rows, counted)| rows.saturating_add(counted));
            let first = outermost(&snapshot, &table, false)?;
            let last = outermost(&snapshot, &table, true)?;
            status.first_ns = least(status.first_ns, first.and_then(|i| i.first));
            status.last_ns = status
                .last_ns
                .max(last.and_then(|i| i.last).map(Timestamp::as_nanos));
        }
        status.rows = rows;
        Ok(())
    }

    /// Streams of an edge's copy or a closed part, the first of them by name, and the rows that no
    /// other copy has.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn streams_of_part(&self, part: &str, limit: usize) -> Result<PartStreams, ClusterError> {
        let (mut own, mut others) = (None, Vec::new());
        for (status, folder) in self.all_parts() {
            match status.part == part {
                true => own = Some(folder),
                false => others.push((status.part, folder)),
            }
        }
        let own = own.ok_or_else(|| {
            ClusterError::new(
                ClusterErrorKind::NotFound,
                format!(
                    "there is no edge or closed part `{part}`; `headwater edges parts` lists all of them"
                ),
            )
        })?;
        let mut found = PartStreams {
            count: 0,
            rows: 0,
            only_here: 0,
            only_here_rows: 0,
            streams: Vec::new(),
        };
        let Some(snapshot) = self.part_snapshot(&own)? else {
            return Ok(found);
        };
        let mut elsewhere = Vec::new();
        for (label, folder) in others {
            if let Ok(Some(snapshot)) = self.part_snapshot(&folder) {
                elsewhere.push((label, snapshot));
            }
        }
        for table in snapshot.table_names() {
            for stream in snapshot.streams(&table, &[]).map_err(of_device)? {
                let info = snapshot.stream_info(&stream).map_err(of_device)?;
                let also_in = holders(&elsewhere, &stream, &info);
                found.count += 1;
                found.rows = found.rows.saturating_add(info.rows);
                if also_in.is_empty() {
                    found.only_here += 1;
                    found.only_here_rows = found.only_here_rows.saturating_add(info.rows);
                }
                if found.streams.len() < limit {
                    found.streams.push(StreamContents {
                        stream: stream.to_string(),
                        rows: info.rows,
                        first_ns: info.first.map(Timestamp::as_nanos),
                        last_ns: info.last.map(Timestamp::as_nanos),
                        also_in,
                    });
                }
            }
        }
        Ok(found)
    }

    /// Reads the copy of an edge or a closed part from its device, and compares it with the hashes
    /// that the edge sent with it.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn verify_part(&self, part: &str) -> Result<VerifiedPart, ClusterError> {
        let found = self.all_parts().into_iter().find(|(p, _)| p.part == part);
        let copy = found.map(|(_, folder)| self.part_copy(&folder));
        let copy = copy.transpose()?.flatten().ok_or_else(|| {
            ClusterError::new(
                ClusterErrorKind::NotFound,
                format!("there is no copy of an edge or closed part `{part}`; `headwater edges parts` lists all of them"),
            )
        })?;
        let state = copy.state();
        let mut verified = VerifiedPart::default();
        for segment in state.segments() {
            let proof = state
                .proof(segment.id)
                .filter(|_| copy.is_complete(segment.id));
            let Some(mut proof) = proof else {
                verified.unproven += 1;
                continue;
            };
            let mut is_read = true;
            while let Some((offset, length)) = proof.next_range() {
                match copy.read(segment.id, offset, length) {
                    Ok(bytes) => proof.take(&bytes),
                    Err(_) => {
                        is_read = false;
                        break;
                    }
                }
            }
            match is_read && proof.is_equal() {
                true => {
                    verified.equal += 1;
                    verified.equal_bytes += proof.ledger().bytes;
                }
                false => verified.different += 1,
            }
        }
        Ok(verified)
    }
}

/// Other copies with a stream in its span.
fn holders(
    elsewhere: &[(String, Snapshot)],
    stream: &StreamName,
    info: &StreamInfo,
) -> Vec<String> {
    let overlaps = |other: &StreamInfo| other.first <= info.last && info.first <= other.last;
    let holders = elsewhere.iter().filter(|(_, snapshot)| {
        let other = snapshot.stream_info(stream);
        other.is_ok_and(|other| other.rows > 0 && overlaps(&other))
    });
    holders.map(|(label, _)| label.clone()).collect()
}

/// A result, or `None` when data that it needs is not here.
fn here<T>(result: headwater_engine::Result<T>) -> Result<Option<T>, ClusterError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::Elsewhere => Ok(None),
        Err(error) => Err(of_device(error)),
    }
}

/// The stream with the newest (or oldest) row of a table; `None` when it is not known here.
fn outermost(
    snapshot: &Snapshot,
    table: &str,
    newest: bool,
) -> Result<Option<StreamInfo>, ClusterError> {
    let spec = OutermostSpec {
        range: ClosedRange::ALL,
        newest,
        limit: 1,
    };
    let found = here(snapshot.outermost_streams(table, &spec, None, &mut || true))?;
    let stream = found.and_then(|streams| streams.into_iter().next());
    let info = stream.map(|stream| snapshot.stream_info(&stream).map_err(of_device));
    info.transpose()
}

fn least(known: Option<i64>, other: Option<Timestamp>) -> Option<i64> {
    let other = other.map(Timestamp::as_nanos);
    match (known, other) {
        (Some(known), Some(other)) => Some(known.min(other)),
        (known, other) => known.or(other),
    }
}
