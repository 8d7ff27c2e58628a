//! Declarations that streams went from one edge to another at an instant.
//!
//! Purpose: where two edges have streams of the same name, a move says whose rows count when: those
//! of the first before the instant, those of the second from it on.
//!
//! Invariants: a move names copies by their folders, which never change, so that it goes on to be
//! about the same edges when these are renamed or replaced; with the copy of an edge it is about
//! the closed parts before it. A move concerns streams that both sides have, and never other edges
//! with such a stream. Of several moves the one before an instant counts, of those of one instant
//! the one that was made later. At every instant a stream is shown of some copy that has it.
//! Concurrency: plain data. Failure: a move of copies that are no longer in the list has no effect.

use super::Edges;
use super::list::OWN;
use super::list::hexed;
use super::list::{List, RecordedChange, StreamMove, ToldMove};
use super::roster::{Roster, RosterMove};
use crate::error::{ClusterError, ClusterErrorKind};
use crate::subscription::StreamPattern;
use headwater_engine::{Owned, Owners};
use headwater_types::{ClosedRange, StreamName, Timestamp};
use std::sync::Arc;

/// Most moves of a node.
const MOVES_MAX: usize = 1_000;

/// A copy in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedCopy {
    /// Name of the edge or the closed part.
    pub(crate) label: String,
    pub(crate) folder: String,
    rank: u64,
}

/// A move between parts of the merged view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartsMove {
    pattern: StreamPattern,
    /// Names of parts.
    from: Vec<Arc<str>>,
    to: Vec<Arc<str>>,
    at_ns: i64,
}

impl PartsMove {
    fn names(&self, part: &Arc<str>) -> bool {
        self.from.contains(part) || self.to.contains(part)
    }

    /// True for a move of this stream, of which both sides have some.
    fn concerns(&self, stream: &StreamName, holders: &[Arc<str>]) -> bool {
        let has = |side: &[Arc<str>]| side.iter().any(|part| holders.contains(part));
        has(&self.from) && has(&self.to) && self.pattern.fits(stream)
    }
}

/// Whether rows of a part count at an instant, by moves in their order.
fn counts(part: &Arc<str>, at_ns: i64, moves: &[&PartsMove]) -> bool {
    let mut before = moves.iter().rev().filter(|one| one.at_ns <= at_ns);
    if let Some(last) = before.find(|one| one.names(part)) {
        return last.to.contains(part);
    }
    let mut later = moves.iter().filter(|one| one.at_ns > at_ns);
    let next = later.find(|one| one.names(part));
    next.is_none_or(|next| next.from.contains(part))
}

/// The owners of a stream that these parts have, by moves in their order.
fn owned(moves: &[PartsMove], stream: &StreamName, holders: &[Arc<str>]) -> Vec<Owned> {
    let moves: Vec<&PartsMove> = moves
        .iter()
        .filter(|one| one.concerns(stream, holders))
        .collect();
    if moves.is_empty() {
        return Vec::new();
    }
    let mut starts: Vec<i64> = vec![i64::MIN];
    starts.extend(moves.iter().map(|one| one.at_ns));
    starts.dedup();
    let ends = starts.iter().skip(1).map(|next| next.saturating_sub(1));
    let stretches = starts.iter().zip(ends.chain([i64::MAX]));
    let owned = stretches.map(|(first, last)| {
        let own = holders.iter().filter(|part| counts(part, *first, &moves));
        Owned {
            range: ClosedRange::nanos(*first, last),
            parts: own.cloned().collect(),
        }
    });
    owned.collect()
}

/// The owners of streams by moves; `None` without any.
pub(crate) fn owners(moves: &[PartsMove]) -> Option<Owners> {
    let moves = moves.to_vec();
    (!moves.is_empty()).then(|| Owners::new(move |stream, holders| owned(&moves, stream, holders)))
}

impl List {
    /// The copies of one edge, among them the one in a folder: that of the edge, and the closed
    /// parts before it. A closed part that no edge goes on with is alone.
    pub(crate) fn copies_with(&self, folder: &str) -> Vec<ListedCopy> {
        if folder == OWN {
            return vec![ListedCopy {
                label: OWN.to_owned(),
                folder: OWN.to_owned(),
                rank: 0,
            }];
        }
        let part = self.parts.iter().find(|part| part.folder == folder);
        let edge = self.edges.iter().find(|edge| edge.folder() == folder);
        let name = edge.map(|edge| edge.name.as_str());
        let name = name.or_else(|| part.and_then(|part| part.edge.as_deref()));
        let is_of = |goes_on: Option<&str>| name.is_some() && goes_on == name;
        let parts = self.parts.iter();
        let parts = parts.filter(|one| is_of(one.edge.as_deref()) || one.folder == folder);
        let parts = parts.map(|part| ListedCopy {
            label: part.label(),
            folder: part.folder.clone(),
            rank: part.rank,
        });
        let edges = self.edges.iter().filter(|edge| is_of(Some(&edge.name)));
        let edges = edges.map(|edge| ListedCopy {
            label: edge.name.clone(),
            folder: edge.folder().to_owned(),
            rank: edge.rank(),
        });
        parts.chain(edges).collect()
    }

    /// Folder of the copy of an edge or a closed part.
    fn folder_of(&self, name: &str) -> Result<String, ClusterError> {
        if name == OWN {
            return Ok(OWN.to_owned());
        }
        let edge = self.edges.iter().find(|edge| edge.name == name);
        let part = self.parts.iter().find(|part| part.label() == name);
        let folder = edge.map(|edge| edge.folder().to_owned());
        let folder = folder.or_else(|| part.map(|part| part.folder.clone()));
        folder.ok_or_else(|| {
            ClusterError::new(
                ClusterErrorKind::NotFound,
                format!(
                    "there is no edge or closed part `{name}`; `headwater edges parts` lists all of them, and `{OWN}` is the node's own database"
                ),
            )
        })
    }

    /// Identity of the database of a copy; `own` is that of the node's own.
    fn identity_in(&self, folder: &str, own: u64) -> Option<u64> {
        let edge = self.edges.iter().find(|edge| edge.folder() == folder);
        let part = self.parts.iter().find(|part| part.folder == folder);
        match edge {
            _ if folder == OWN => Some(own),
            Some(edge) => edge.identity,
            None => part?.identity,
        }
    }

    /// Folder of a copy of a database.
    fn folder_with(&self, identity: u64, own: u64) -> Option<String> {
        let edge = self
            .edges
            .iter()
            .find(|edge| edge.identity == Some(identity));
        let part = self
            .parts
            .iter()
            .find(|part| part.identity == Some(identity));
        match edge {
            _ if identity == own => Some(OWN.to_owned()),
            Some(edge) => Some(edge.folder().to_owned()),
            None => Some(part?.folder.clone()),
        }
    }

    /// The moves that a peer is told: all but its own.
    pub(crate) fn moves_for_peer(&self, own: u64, peer: u64) -> Vec<RosterMove> {
        let moves = self.moves.iter().filter_map(|one| {
            let maker = one.told.as_ref().map(|told| told.node.clone());
            Some(RosterMove {
                node: maker.unwrap_or_else(|| hexed(own)),
                number: one.number,
                pattern: one.pattern.clone(),
                from: hexed(self.identity_in(&one.from, own)?),
                to: hexed(self.identity_in(&one.to, own)?),
                at_ns: one.at_ns,
            })
        });
        moves.filter(|one| one.node != hexed(peer)).collect()
    }

    /// Replaces the moves that a peer has told before by those that it tells now. Moves of copies
    /// that are not here yet are told again.
    pub(super) fn set_told_moves(&mut self, roster: &Roster, own: u64) {
        let is_told = |one: &StreamMove| {
            let told = one.told.as_ref();
            told.is_some_and(|told| told.by == roster.node)
        };
        let mut moves = self.moves.clone();
        moves.retain(|one| !is_told(one));
        let folder = |identity: &str| {
            let identity = u64::from_str_radix(identity, 16).ok()?;
            self.folder_with(identity, own)
        };
        for one in roster.moves.iter().filter(|one| one.node != hexed(own)) {
            if let (Some(from), Some(to)) = (folder(&one.from), folder(&one.to)) {
                moves.push(StreamMove {
                    number: one.number,
                    pattern: one.pattern.clone(),
                    from,
                    to,
                    at_ns: one.at_ns,
                    told: Some(ToldMove {
                        node: one.node.clone(),
                        by: roster.node.clone(),
                    }),
                });
            }
        }
        self.moves = moves;
    }

    /// The moves as parts of the merged view, by time.
    pub(crate) fn moves_of_parts(&self) -> Vec<PartsMove> {
        let mut moves: Vec<&StreamMove> = self.moves.iter().collect();
        moves.sort_by_key(|one| (one.at_ns, one.number));
        let moves = moves.into_iter().filter_map(|one| {
            let (mut from, mut to) = (self.copies_with(&one.from), self.copies_with(&one.to));
            if from == to {
                (from, to) = sides(from, one);
            }
            let labels = |side: Vec<ListedCopy>| -> Vec<Arc<str>> {
                side.into_iter().map(|copy| copy.label.into()).collect()
            };
            (!from.is_empty() && !to.is_empty()).then(|| PartsMove {
                pattern: one.pattern.clone(),
                from: labels(from),
                to: labels(to),
                at_ns: one.at_ns,
            })
        });
        moves.collect()
    }
}

/// The sides of a move between edges of which one took the place of the other since: their copies
/// are those of one edge now, in the order of their ranks.
fn sides(copies: Vec<ListedCopy>, one: &StreamMove) -> (Vec<ListedCopy>, Vec<ListedCopy>) {
    let rank = |folder: &str| {
        let mut copies = copies.iter();
        copies
            .find(|copy| copy.folder == folder)
            .map(|copy| copy.rank)
    };
    let (from, to) = (rank(&one.from), rank(&one.to));
    let first = from.min(to).unwrap_or(0);
    let (first, second) = copies.into_iter().partition(|copy| copy.rank <= first);
    match from <= to {
        true => (first, second),
        false => (second, first),
    }
}

impl Edges {
    /// Declares that streams go from one edge, or closed part, to another at an instant. Returns
    /// the number of the change.
    pub(crate) fn move_streams(
        &mut self,
        pattern: StreamPattern,
        (from, to): (&str, &str),
        at: Timestamp,
        now: Timestamp,
    ) -> Result<u64, ClusterError> {
        self.change(|list| {
            if list.moves.len() >= MOVES_MAX {
                return Err(ClusterError::invalid(format!(
                    "there are {MOVES_MAX} moves, which is the maximum; `headwater edges undo` removes one"
                )));
            }
            let (from_folder, to_folder) = (list.folder_of(from)?, list.folder_of(to)?);
            if list.copies_with(&from_folder) == list.copies_with(&to_folder) {
                return Err(ClusterError::invalid(format!(
                    "`{from}` and `{to}` are copies of one edge: name another edge in `--from` or `--to`"
                )));
            }
            let change = RecordedChange::Move {
                pattern: pattern.clone(),
                from: from.to_owned(),
                to: to.to_owned(),
                begins_ns: at.as_nanos(),
            };
            let number = list.record(now.as_nanos(), change);
            list.moves.push(StreamMove {
                number,
                pattern,
                from: from_folder,
                to: to_folder,
                at_ns: at.as_nanos(),
                told: None,
            });
            Ok(number)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::time::Duration;

    const NOW: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    fn names(parts: &[&str]) -> Vec<Arc<str>> {
        parts.iter().map(|part| Arc::from(*part)).collect()
    }

    /// The parts whose rows of `cpu,host=a` count, by the first instant of each stretch.
    fn shown(edges: &Edges, holders: &[&str]) -> Vec<(i64, String)> {
        let moves = edges.list().moves_of_parts();
        let stream = StreamName::new("cpu", [("host", "a")]);
        let owned = owned(&moves, &stream, &names(holders));
        let mut next = Some(Timestamp::MIN);
        let stretches = owned.iter().map(|one| {
            assert_eq!(Some(one.range.first), next);
            next = one.range.last.next();
            let parts: Vec<&str> = one.parts.iter().map(|part| &**part).collect();
            (one.range.first.as_nanos(), parts.join(" "))
        });
        stretches.collect()
    }

    fn edges(dir: &std::path::Path, names: &[&str]) -> Edges {
        let mut edges = Edges::open(dir).unwrap();
        for (n, name) in (0..).zip(names) {
            let now = Timestamp::from_nanos(NOW.as_nanos() + n * 1_000);
            edges.invite(name, None, now, HOUR, false).unwrap();
        }
        edges
    }

    fn moved(edges: &mut Edges, pattern: &str, from: &str, to: &str, at: i64) -> u64 {
        let (pattern, at) = (pattern.parse().unwrap(), Timestamp::from_nanos(at));
        edges.move_streams(pattern, (from, to), at, NOW).unwrap()
    }

    fn expected(stretches: &[(i64, &str)]) -> Vec<(i64, String)> {
        let stretches = stretches
            .iter()
            .map(|(at, parts)| (*at, (*parts).to_owned()));
        stretches.collect()
    }

    #[test]
    fn streams_belong_to_one_edge_before_and_to_the_other_from_then_on() {
        let dir = tempfile::tempdir().unwrap();
        let mut edges = edges(dir.path(), &["a", "b", "c", "d"]);
        let first = moved(&mut edges, "cpu,host=a", "a", "b", 10);
        let of = |edges: &Edges, holders: &[&str]| shown(edges, holders);
        let before = i64::MIN;
        assert_eq!(
            of(&edges, &["a", "b"]),
            expected(&[(before, "a"), (10, "b")])
        );
        // Edges that are not named are not concerned, nor are streams that one side does not have.
        let with_c = expected(&[(before, "a c"), (10, "b c")]);
        assert_eq!(of(&edges, &["a", "b", "c"]), with_c);
        assert_eq!(of(&edges, &["a", "c"]), expected(&[]));
        moved(&mut edges, "mem", "a", "b", 5);
        assert_eq!(of(&edges, &["a", "b", "c"]), with_c);
        // On to a third, and back to the first.
        moved(&mut edges, "*", "b", "c", 20);
        moved(&mut edges, "cpu", "c", "a", 30);
        let all = [(before, "a"), (10, "b"), (20, "c"), (30, "a")];
        assert_eq!(of(&edges, &["a", "b", "c"]), expected(&all));
        let four = [(before, "a d"), (10, "b d"), (20, "c d"), (30, "a d")];
        assert_eq!(of(&edges, &["a", "b", "c", "d"]), expected(&four));
        // Of two moves at one instant, the later one counts.
        moved(&mut edges, "cpu", "b", "d", 10);
        let later = [(before, "a"), (10, "d"), (20, "c d"), (30, "a d")];
        assert_eq!(of(&edges, &["a", "b", "c", "d"]), expected(&later));
        edges.undo(first, NOW).unwrap();
        assert!(edges.undo(first, NOW).is_err());
        let undone = [(before, "b"), (10, "d"), (20, "c d"), (30, "a d")];
        let found = of(&edges, &["a", "b", "c", "d"]);
        assert_eq!(found, expected(&undone));
        let again = Edges::open(dir.path()).unwrap();
        assert_eq!(of(&again, &["a", "b", "c", "d"]), found);
    }

    #[test]
    fn a_move_stays_with_edges_that_are_renamed_replaced_and_closed() {
        let dir = tempfile::tempdir().unwrap();
        let mut edges = edges(dir.path(), &["a", "b"]);
        moved(&mut edges, "cpu", "a", "b", 10);
        let before = i64::MIN;
        edges.rename("b", "north", NOW).unwrap();
        // A name that is in use again is that of another edge.
        edges.invite("b", None, NOW, HOUR, false).unwrap();
        let found = shown(&edges, &["a", "b", "north"]);
        assert_eq!(found, expected(&[(before, "a b"), (10, "b north")]));
        edges.start_over("north", NOW, true).unwrap();
        let part = edges.list().parts[0].label();
        let found = shown(&edges, &["a", &part, "north"]);
        let both = format!("{part} north");
        assert_eq!(found, expected(&[(before, "a"), (10, &both)]));
        // One took the place of the other: the rows of both stay apart.
        let replaced = edges.replace_by_edge("a", "north", NOW, true).unwrap();
        let old = format!("a@{replaced}");
        let found = shown(&edges, &[&old, &part, "north"]);
        assert_eq!(found, expected(&[(before, &old), (10, &both)]));
        edges.undo(replaced, NOW).unwrap();
        let removed = edges.remove("a", NOW, true).unwrap();
        let old = format!("a@{removed}");
        let found = shown(&edges, &[&old, &part, "north"]);
        assert_eq!(found, expected(&[(before, &old), (10, &both)]));
        // Without one side nothing is declared, and no other edge gets its folder.
        edges.remove_part(&old, NOW).unwrap();
        assert_eq!(shown(&edges, &["north", &part]), expected(&[]));
        edges.set_deleted(&["a".to_owned()]).unwrap();
        edges.invite("a", None, NOW, HOUR, false).unwrap();
        assert_eq!(shown(&edges, &["a", &part, "north"]), expected(&[]));
    }

    #[test]
    fn moves_between_copies_of_one_edge_and_unknown_ones_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut edges = edges(dir.path(), &["a", "b"]);
        edges.start_over("a", NOW, true).unwrap();
        let part = edges.list().parts[0].label();
        let mut refused = |from: &str, to: &str| {
            let pattern = "cpu".parse().unwrap();
            let moved = edges.move_streams(pattern, (from, to), NOW, NOW);
            moved.unwrap_err().kind()
        };
        assert_eq!(refused("a", "a"), ClusterErrorKind::Invalid);
        assert_eq!(refused(&part, "a"), ClusterErrorKind::Invalid);
        assert_eq!(refused("a", "none"), ClusterErrorKind::NotFound);
        moved(&mut edges, "cpu", OWN, "b", 7);
        let found = shown(&edges, &[OWN, "b"]);
        assert_eq!(found, expected(&[(i64::MIN, OWN), (7, "b")]));
    }

    #[test]
    fn a_list_with_moves_and_tags_is_written_as_the_page_says() {
        let dir = tempfile::tempdir().unwrap();
        let mut edges = edges(dir.path(), &["a", "b"]);
        moved(&mut edges, "cpu,host=a", "a", "b", 10);
        let tags = [("gateway".to_owned(), "a".to_owned())].into();
        edges.tag("a", tags, NOW).unwrap();
        edges.start_over("a", NOW, true).unwrap();
        let path = dir.path().join("edges.json");
        let written = std::fs::read_to_string(&path).unwrap();
        let secret = |line: &&str| line.contains("\"invite\"");
        let lines: Vec<&str> = written.lines().filter(|line| !secret(line)).collect();
        let expected = include_str!("../../tests/golden/edges_v2_moves.json");
        assert_eq!(lines.join("\n"), expected.trim_end(), "{written}");
        let again = Edges::open(dir.path()).unwrap();
        assert_eq!(again.list(), edges.list());
    }
}
