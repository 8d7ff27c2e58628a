//! States of the simulated disk after a power cut.
//!
//! Invariants: synced bytes that were not written since are never damaged, unless an unsynced
//! change of the length cut them off; the length stays within the range of synced and unsynced
//! changes; a name refers to one of the files it referred to since its directory was synced. Seed 0
//! keeps no unsynced change, seed 1 all of them. Every other seed keeps, for each file
//! independently, some subset of the unsynced changes, with writes split into sectors. Concurrency:
//! pure functions on the guarded state of [`super::disk`]. Failure: none; a state that cannot be
//! built does not exist.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::dice::Dice;
use super::disk::{Change, Disk, Node, NodeRef};
use super::units::Units;
use super::{SECTOR_BYTES, Survival};

/// One possible disk after the power cut, without unsynced changes.
pub(super) fn after_crash(disk: &Disk, survival: Survival) -> Disk {
    let mut after = Disk::new(match survival {
        Survival::Seed(seed) => seed,
        _ => 0,
    });
    after.unit_bytes = disk.unit_bytes;
    let units = units(disk);
    let fate_of = |path: &Path| Fate::of(survival, &units, path);
    after.live.dirs = disk.live.dirs.clone();
    if let Some(dir) = &disk.dir_in_doubt
        && fate_of(dir).flip()
    {
        after.live.dirs.insert(dir.clone());
    }
    // Files that each name referred to since the last sync, oldest first; the first is the durable
    // one.
    let mut stories: BTreeMap<&Path, Vec<Option<&NodeRef>>> = disk
        .durable
        .iter()
        .map(|(path, node)| (path.as_path(), vec![Some(node)]))
        .collect();
    for change in &disk.pending {
        stories
            .entry(&change.path)
            .or_insert_with(|| vec![None])
            .push(change.to.as_ref());
    }
    for (path, story) in stories {
        let mut fate = fate_of(path);
        let chapter = fate.chapter(story.len());
        if let Some(node) = story.get(chapter).copied().flatten() {
            let node = Node::at_rest(content(&node.lock(), &mut fate, disk.unit_bytes));
            after.live.files.insert(path.to_owned(), node.clone());
            after.durable.insert(path.to_owned(), node);
        }
    }
    after
}

/// Units of all unsynced changes that may survive the cut.
pub(super) fn units(disk: &Disk) -> Units {
    let pending = disk.pending.iter().filter_map(|change| change.to.as_ref());
    let mut units = Units::default();
    for node in disk.durable.values().chain(pending) {
        for (number, change) in &node.lock().pending {
            units.add(*number, change.pieces(disk.unit_bytes).len());
        }
    }
    units
}

/// Decides which unsynced changes survive.
enum Fate<'a> {
    Nothing,
    Everything,
    Chosen(Survival, &'a Units),
    Mixed(Dice),
}

impl<'a> Fate<'a> {
    fn of(survival: Survival, units: &'a Units, path: &Path) -> Self {
        match survival {
            Survival::Nothing | Survival::Seed(0) => Fate::Nothing,
            Survival::Everything | Survival::Seed(1) => Fate::Everything,
            Survival::Seed(seed) => Fate::Mixed(Dice::for_path(seed, path)),
            Survival::Front(_) | Survival::Without(_) | Survival::Alone(_) => {
                Fate::Chosen(survival, units)
            }
        }
    }

    fn flip(&mut self) -> bool {
        match self {
            Fate::Nothing => false,
            Fate::Everything | Fate::Chosen(..) => true,
            Fate::Mixed(dice) => dice.in_eight(4),
        }
    }

    /// Index of the state of a name that survives, among `count`, oldest first.
    fn chapter(&mut self, count: usize) -> usize {
        match self {
            Fate::Nothing => 0,
            Fate::Everything | Fate::Chosen(..) => count.saturating_sub(1),
            Fate::Mixed(dice) => usize::try_from(dice.below(count as u64)).unwrap_or(0),
        }
    }
}

/// The bytes that a file has after the crash.
fn content(node: &Node, fate: &mut Fate<'_>, unit_bytes: u64) -> Vec<u8> {
    let mut image = Image::of(&node.durable);
    match fate {
        Fate::Nothing => {}
        Fate::Everything => {
            for (_, change) in &node.pending {
                image.apply(change);
            }
        }
        Fate::Chosen(survival, units) => {
            for (number, change) in &node.pending {
                let first = units.first_of(*number);
                for (unit, piece) in (first..).zip(change.pieces(unit_bytes)) {
                    if survival.survives(unit) {
                        image.apply_piece(change, piece);
                    }
                }
            }
        }
        Fate::Mixed(_) if node.pending.is_empty() => {}
        Fate::Mixed(dice) => {
            let len_old = image.len;
            let len_new = node
                .pending
                .iter()
                .fold(len_old, |len, (_, change)| change.len_after(len));
            mix(&mut image, &node.pending, unit_bytes, dice);
            // Data and length are written separately: the length may be before or after the data.
            image.len = match dice.below(4) {
                0 => len_old,
                1 => len_new,
                2 => dice.between(len_old.min(len_new), len_old.max(len_new)),
                _ => image.len,
            };
        }
    }
    image.into_content()
}

/// Treatment of the changes of one file by a mixed fate. Independent random choices over many
/// changes would rarely produce the simple cases, which break other code.
enum Manner {
    Nothing,
    Everything,
    /// All changes before this one, and a part of this one.
    FrontPart(usize),
    /// Each part, with a probability of this many eighths.
    Pieces(u64),
}

fn mix(image: &mut Image, changes: &[(u64, Change)], unit_bytes: u64, dice: &mut Dice) {
    let manner = match dice.below(8) {
        0 => Manner::Nothing,
        1 => Manner::Everything,
        2 | 3 => Manner::FrontPart(usize::try_from(dice.below(changes.len() as u64)).unwrap_or(0)),
        4 => Manner::Pieces(1),
        5 => Manner::Pieces(7),
        _ => Manner::Pieces(4),
    };
    let piece_count: u64 = changes
        .iter()
        .map(|(_, change)| change.pieces(unit_bytes).len() as u64)
        .sum();
    // At most one sector per file is torn: power fails once. Words never are.
    let is_torn = dice.in_eight(4);
    let torn = is_torn
        .then(|| dice.below(piece_count))
        .filter(|_| unit_bytes == SECTOR_BYTES);
    let mut piece_index = 0;
    for (change_index, (_, change)) in changes.iter().enumerate() {
        let survival = match manner {
            Manner::Nothing => 0,
            Manner::Everything => 8,
            Manner::FrontPart(last) => match change_index.cmp(&last) {
                std::cmp::Ordering::Less => 8,
                std::cmp::Ordering::Equal => 4,
                std::cmp::Ordering::Greater => 0,
            },
            Manner::Pieces(parts) => parts,
        };
        for mut piece in change.pieces(unit_bytes) {
            let survives = dice.in_eight(survival);
            let is_torn = torn == Some(piece_index);
            piece_index += 1;
            if survives || (is_torn && survival > 0) {
                if is_torn {
                    tear(&mut piece, dice);
                }
                image.apply_piece(change, piece);
            }
        }
    }
}

/// Keeps the front or the back of a sector's new bytes; the rest has the old bytes.
fn tear(piece: &mut Range<usize>, dice: &mut Dice) {
    let cut =
        usize::try_from(dice.between(piece.start as u64, piece.end as u64)).unwrap_or(piece.end);
    if dice.in_eight(4) {
        piece.end = cut;
    } else {
        piece.start = cut;
    }
}

impl Survival {
    /// True when a unit survives, where its number decides.
    fn survives(self, unit: usize) -> bool {
        match self {
            Survival::Front(count) => unit < count,
            Survival::Without(lost) => unit != lost,
            Survival::Alone(kept) => unit == kept,
            Survival::Nothing => false,
            Survival::Everything | Survival::Seed(_) => true,
        }
    }
}

impl Change {
    fn len_after(&self, len: u64) -> u64 {
        match self {
            Change::Write { offset, data } => len.max(offset.saturating_add(data.len() as u64)),
            Change::SetLen(new) => *new,
        }
    }

    /// Parts that survive independently, as ranges of the data: the units of a write, or one empty
    /// range for a change of the length.
    fn pieces(&self, unit_bytes: u64) -> Vec<Range<usize>> {
        let Change::Write { offset, data } = self else {
            return std::iter::once(0..0).collect();
        };
        let mut pieces = Vec::new();
        let mut start = 0;
        while start < data.len() {
            let at = offset.saturating_add(start as u64);
            let to_border = unit_bytes - at % unit_bytes;
            let end = usize::try_from(to_border).map_or(data.len(), |step| {
                data.len().min(start.saturating_add(step))
            });
            pieces.push(start..end);
            start = end;
        }
        pieces
    }
}

/// A file under reconstruction.
///
/// `bytes` may be longer than `len`: bytes that were cut off are still on the medium, and reappear
/// if the change of the length did not survive. Growth that survives overwrites them with zeros.
struct Image {
    bytes: Vec<u8>,
    len: u64,
}

impl Image {
    fn of(durable: &[u8]) -> Self {
        Image {
            bytes: durable.to_vec(),
            len: durable.len() as u64,
        }
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, data } => self.write(*offset, data),
            Change::SetLen(len) => self.set_len(*len),
        }
    }

    /// Applies one of the change's [`Change::pieces`].
    fn apply_piece(&mut self, change: &Change, piece: Range<usize>) {
        match change {
            Change::SetLen(len) => self.set_len(*len),
            Change::Write { offset, data } => {
                let start = offset.saturating_add(piece.start as u64);
                if let Some(bytes) = data.get(piece) {
                    self.write(start, bytes);
                }
            }
        }
    }

    fn set_len(&mut self, len: u64) {
        self.zero_gap(len);
        self.len = len;
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.zero_gap(offset);
        let start = index(offset);
        let end = start.saturating_add(data.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        if let Some(target) = self.bytes.get_mut(start..end) {
            target.copy_from_slice(data);
        }
        self.len = self.len.max(end as u64);
    }

    /// Zeros from the end of the file up to `to`.
    fn zero_gap(&mut self, to: u64) {
        let start = index(self.len);
        let end = index(to).min(self.bytes.len());
        if let Some(gap) = self.bytes.get_mut(start..end) {
            gap.fill(0);
        }
    }

    fn into_content(mut self) -> Vec<u8> {
        self.bytes.resize(index(self.len), 0);
        self.bytes
    }
}

/// Offsets in here were checked against the greatest length when the change was made.
fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
