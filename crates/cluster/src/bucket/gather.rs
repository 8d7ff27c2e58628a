//! Collects for a commit, in packs, the ranges of copies that are not in the bucket yet.
//!
//! Invariants: every range that a commit claims is in its packs, or in those of earlier commits. A
//! copy with more data than one commit can have is uploaded in parts, and becomes part of the
//! bucket with the last one. Concurrency: one commit at a time. Failure: a copy that cannot be read
//! is left out, and tried again with the next commit.

use crate::{CarriedCopy, Carry, CarryMark, ClusterError, EdgeCopies};
use headwater_bucket::{Addition, Change, Contents, Head, Pack, Range, without_ranges};
use std::collections::{BTreeMap, BTreeSet};

/// Name of the list of edges in the bucket: not allowed as the name of an edge.
pub const ROSTER: &str = "*";
/// Target size of a pack in bytes.
const PACK_BYTES: u64 = 16 << 20;
/// Target size of a commit in bytes.
const COMMIT_BYTES: u64 = 64 << 20;
/// Largest size in bytes of one entry of a pack.
const PIECE_BYTES: u64 = 8 << 20;
/// Number of packs from which the smaller half is merged into one.
const PACKS_MAX: usize = 64;

/// Marks of the uploaded copies, by their names.
#[derive(Debug, Default)]
pub(super) struct Marks {
    pub(super) copies: BTreeMap<String, CarryMark>,
    pub(super) roster: u64,
}

/// Contents of the next commit.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) change: Change,
    /// Copies that become part of the bucket with the commit.
    pub(super) carried: Vec<(String, CarryMark, CarriedCopy)>,
    pub(super) roster: Option<u64>,
    /// True when more is left for another commit.
    pub(super) more: bool,
}

impl Gathered {
    pub(super) fn is_empty(&self) -> bool {
        let change = &self.change;
        change.packs.is_empty() && change.removed.is_empty() && change.dropped.is_empty()
    }
}

/// Commit under construction.
struct Gathering<'a> {
    contents: &'a Contents,
    /// Packs that are rewritten.
    folded: BTreeSet<u64>,
    gathered: Gathered,
    additions: Vec<Addition>,
    pack_bytes: u64,
    bytes: u64,
}

/// Collects the ranges that the bucket does not have of a fleet.
pub(super) fn gather(
    fleet: &EdgeCopies,
    contents: &Contents,
    head: &Head,
    marks: &Marks,
) -> Result<Gathered, ClusterError> {
    let mut gathering = Gathering {
        contents,
        folded: folded(head),
        gathered: Gathered::default(),
        additions: Vec::new(),
        pack_bytes: 0,
        bytes: 0,
    };
    let (version, roster) = fleet.roster()?;
    if version != marks.roster || contents.in_packs(ROSTER, &gathering.folded).is_some() {
        gathering.roster(version, roster);
    }
    let names = fleet.copy_folders();
    for name in &names {
        // Contents of packs that are to be dropped are uploaded again, changed or not.
        let moves = contents.in_packs(name, &gathering.folded);
        let mark = marks.copies.get(name).filter(|_| moves.is_none());
        match fleet.carry(name, mark.copied()) {
            Ok(None) => {}
            Ok(Some(carry)) => gathering.copy(name, carry, &moves.unwrap_or_default()),
            Err(error) => {
                tracing::warn!(copy = name, %error, "a copy cannot be written to the bucket")
            }
        }
    }
    gathering.close_pack();
    let mut gathered = gathering.gathered;
    let here: BTreeSet<&str> = names.iter().map(String::as_str).chain([ROSTER]).collect();
    let gone = contents.names().filter(|name| !here.contains(name));
    gathered.change.removed = gone.map(str::to_owned).collect();
    let used = contents.used();
    let numbers = head.packs.iter().map(|pack| pack.number);
    gathered.change.dropped = numbers.filter(|number| !used.contains(number)).collect();
    Ok(gathered)
}

/// Packs to merge, where their number exceeds the limit.
fn folded(head: &Head) -> BTreeSet<u64> {
    if head.packs.len() < PACKS_MAX {
        return BTreeSet::new();
    }
    let mut by_size: Vec<(u64, u64)> = head.packs.iter().map(|p| (p.bytes, p.number)).collect();
    by_size.sort_unstable();
    let smallest = by_size.into_iter().take(PACKS_MAX / 2);
    let mut sum = 0;
    let fits = smallest.take_while(|(bytes, _)| {
        sum += bytes;
        sum <= COMMIT_BYTES / 2
    });
    fits.map(|(_, number)| number).collect()
}

impl Gathering<'_> {
    fn roster(&mut self, version: u64, roster: Vec<u8>) {
        self.gathered.roster = Some(version);
        if !self.contents.includes(ROSTER, 0, &roster, &[])
            || self.contents.in_packs(ROSTER, &self.folded).is_some()
        {
            self.additions.push(Addition {
                name: ROSTER.to_owned(),
                history: 0,
                state: version,
                description: roster,
                present: Vec::new(),
                pieces: Vec::new(),
            });
        }
    }

    fn copy(&mut self, name: &str, carry: Carry, moves: &[Range]) {
        let Carry {
            carried,
            copy,
            mark,
        } = carry;
        let present = carried.present.iter();
        let present: Vec<Range> = present.map(|(id, bytes)| Range::of(*id, *bytes)).collect();
        let history = carried.state.identity ^ carried.state.incarnation.rotate_left(17);
        let mut lacks = self.contents.missing_ranges(name, history, &present);
        // A forgotten range may have been replaced by other contents.
        let forgotten = carried.forgotten.iter();
        let forgotten = forgotten.map(|(id, bytes)| Range::of(*id, *bytes));
        lacks.extend(moves.iter().copied().chain(forgotten));
        let lacks = within(&present, lacks);
        if lacks.is_empty()
            && self
                .contents
                .includes(name, history, &carried.description, &present)
        {
            let is_moved = self.contents.in_packs(name, &self.folded).is_some();
            if !is_moved {
                self.gathered.carried.push((name.to_owned(), mark, carried));
                return;
            }
        }
        let mut pieces = Vec::new();
        let mut left = Vec::new();
        for piece in lacks.iter().flat_map(pieces_of) {
            if self.bytes >= COMMIT_BYTES {
                left.push(piece);
                continue;
            }
            // An entry is shorter than 4 GiB.
            let len = u32::try_from(piece.bytes).unwrap_or(u32::MAX);
            match copy.read(piece.segment, piece.offset, len) {
                Ok(bytes) => pieces.push((piece, bytes)),
                Err(error) => {
                    tracing::debug!(edge = name, %error, "a range of a copy was removed: the copy is read again");
                    self.gathered.more = true;
                    return;
                }
            }
            self.bytes += piece.bytes;
            self.pack_bytes += piece.bytes;
        }
        let is_whole = left.is_empty();
        self.gathered.more |= !is_whole;
        self.additions.push(Addition {
            name: name.to_owned(),
            history,
            state: carried.state.number,
            description: carried.description.clone(),
            present: without_ranges(&present, &left),
            pieces,
        });
        if is_whole {
            self.gathered.carried.push((name.to_owned(), mark, carried));
        }
        if self.pack_bytes >= PACK_BYTES {
            self.close_pack();
        }
    }

    fn close_pack(&mut self) {
        self.pack_bytes = 0;
        if !self.additions.is_empty() {
            let pack = Pack::build(std::mem::take(&mut self.additions));
            self.gathered.change.packs.push(pack);
        }
    }
}

/// The parts of ranges that are present, by segment and offset, each byte once.
fn within(present: &[Range], mut wanted: Vec<Range>) -> Vec<Range> {
    wanted.sort_unstable();
    wanted.dedup();
    // Present ranges without the requested part of them.
    let others = without_ranges(present, &wanted);
    without_ranges(present, &others)
}

fn pieces_of(range: &Range) -> Vec<Range> {
    let mut pieces = Vec::new();
    let mut offset = range.offset;
    while offset < range.end() {
        let bytes = PIECE_BYTES.min(range.end() - offset);
        pieces.push(Range {
            offset,
            bytes,
            ..*range
        });
        offset += bytes;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, bytes: u64) -> Range {
        Range {
            segment: 1,
            offset,
            bytes,
        }
    }

    #[test]
    fn ranges_requested_twice_are_uploaded_once_and_absent_ones_never() {
        let present = [range(0, 10), range(20, 10)];
        let wanted = vec![range(25, 10), range(5, 20), range(5, 1)];
        let found = within(&present, wanted);
        assert_eq!(found, [range(5, 5), range(20, 10)]);
        assert!(within(&present, Vec::new()).is_empty());
    }

    #[test]
    fn a_long_range_is_put_in_pieces() {
        let pieces = pieces_of(&range(3, PIECE_BYTES + 1));
        assert_eq!(pieces, [range(3, PIECE_BYTES), range(3 + PIECE_BYTES, 1)]);
    }
}
