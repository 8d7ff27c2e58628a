//! Contents of the packs of a head: for each copy its description, its present ranges, and the pack
//! with each byte of them.
//!
//! Invariants: if several extents have the same byte, the extent of the latest pack is valid, as
//! long as the byte is present; a byte that was absent for a while counts as never put. Extents of
//! older histories are not valid. Bytes read back match the checksum with which they were put, or
//! are an error. Concurrency: plain data. Failure: *gone* if a pack does not exist any more: the
//! head is to be read again.

use crate::error::{BucketError, BucketErrorKind};
use crate::head::{Head, PackEntry};
use crate::keys::{head_key, pack_key};
use crate::pack::{IndexEntry, PackIndex, PackLocation, Range};
use crate::store::{Etag, ObjectStore};
use headwater_codec::checksum::crc32c;
use headwater_types::invariant::wide;
use std::collections::{BTreeMap, BTreeSet};

/// An extent of a segment in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    pack: u64,
    range: Range,
    location: PackLocation,
}

/// A present range, and the extent with its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PresentRange {
    range: Range,
    piece: Extent,
}

/// A copy in the packs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CopyExtents {
    history: u64,
    state: u64,
    description: (u64, PackLocation),
    present: Vec<Range>,
    /// Locations of the present ranges, by segment, disjoint. A range that is not present any more
    /// is removed: if it is put again, its bytes may differ.
    parts: BTreeMap<u64, Vec<PresentRange>>,
}

/// Contents of the packs of a head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    copies: BTreeMap<String, CopyExtents>,
}

/// A copy as it was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The number of its state.
    pub state: u64,
    /// Description of the copy.
    pub description: Vec<u8>,
}

/// Receives the ranges of a copy as it is read back.
pub type RangeReceiver<'a, E> = dyn FnMut(Range, &[u8]) -> Result<(), E> + 'a;

/// Subtracts ranges from others; both sorted by segment and offset, and disjoint.
#[must_use]
pub fn without_ranges(ranges: &[Range], taken: &[Range]) -> Vec<Range> {
    let mut left = ranges.to_vec();
    for taken in taken {
        let mut next = Vec::new();
        for range in left {
            match common(range, *taken).filter(|_| range.segment == taken.segment) {
                None => next.push(range),
                Some(found) => without(range, found, &mut next),
            }
        }
        left = next;
    }
    left
}

/// Remainder of a range without another one.
fn without(range: Range, taken: Range, left: &mut Vec<Range>) {
    let until = taken.offset.min(range.end());
    if range.offset < until {
        left.push(Range {
            bytes: until - range.offset,
            ..range
        });
    }
    let from = taken.end().max(range.offset);
    if from < range.end() {
        left.push(Range {
            offset: from,
            bytes: range.end() - from,
            ..range
        });
    }
}

/// Intersection of two ranges of a segment.
fn common(a: Range, b: Range) -> Option<Range> {
    let offset = a.offset.max(b.offset);
    let bytes = a.end().min(b.end()).checked_sub(offset)?;
    (bytes > 0).then_some(Range {
        segment: a.segment,
        offset,
        bytes,
    })
}

/// Parts that are in ranges.
fn inside(parts: &[PresentRange], ranges: &[Range]) -> Vec<PresentRange> {
    let both = parts.iter().flat_map(|part| {
        let found = ranges.iter().filter(|r| r.segment == part.range.segment);
        found.filter_map(|range| {
            let range = common(part.range, *range)?;
            Some(PresentRange { range, ..*part })
        })
    });
    let mut both: Vec<PresentRange> = both.collect();
    both.sort_unstable_by_key(|part| part.range);
    both
}

/// Replaces parts of a segment by an extent.
fn put_over(parts: &mut Vec<PresentRange>, piece: Extent) {
    let mut left = Vec::new();
    for part in parts.drain(..) {
        let mut ranges = Vec::new();
        without(part.range, piece.range, &mut ranges);
        left.extend(
            ranges
                .into_iter()
                .map(|range| PresentRange { range, ..part }),
        );
    }
    left.push(PresentRange {
        range: piece.range,
        piece,
    });
    *parts = left;
}

impl CopyExtents {
    /// Locations of a range, by offset; and the parts without a location.
    fn find(&self, range: Range) -> (Vec<PresentRange>, Vec<Range>) {
        let parts = self.parts.get(&range.segment);
        let found = inside(parts.map_or(&[], Vec::as_slice), &[range]);
        let here: Vec<Range> = found.iter().map(|part| part.range).collect();
        (found, without_ranges(&[range], &here))
    }

    fn used(&self) -> BTreeSet<u64> {
        let parts = self.parts.values().flatten();
        let mut used: BTreeSet<u64> = parts.map(|part| part.piece.pack).collect();
        used.insert(self.description.0);
        used
    }
}

impl Contents {
    /// Applies a pack's index over the current contents. Packs must be applied in the order of
    /// their numbers.
    pub fn apply(&mut self, pack: u64, index: &PackIndex) {
        for entry in &index.entries {
            self.apply_entry(pack, entry);
        }
    }

    fn apply_entry(&mut self, pack: u64, entry: &IndexEntry) {
        let before = self.copies.remove(&entry.name);
        let same = before.filter(|before| before.history == entry.history);
        let mut parts = same.map(|before| before.parts).unwrap_or_default();
        for (range, place) in &entry.pieces {
            let piece = Extent {
                pack,
                range: *range,
                location: *place,
            };
            put_over(parts.entry(range.segment).or_default(), piece);
        }
        for parts in parts.values_mut() {
            *parts = inside(parts, &entry.present);
        }
        parts.retain(|_, parts| !parts.is_empty());
        let holding = CopyExtents {
            history: entry.history,
            state: entry.state,
            description: (pack, entry.description),
            present: entry.present.clone(),
            parts,
        };
        self.copies.insert(entry.name.clone(), holding);
    }

    /// Forgets a copy.
    pub fn remove(&mut self, name: &str) {
        self.copies.remove(name);
    }

    /// The copies there are.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.copies.keys().map(String::as_str)
    }

    /// Present ranges of a copy that still have to be put: those in no pack of its history.
    #[must_use]
    pub fn missing_ranges(&self, name: &str, history: u64, present: &[Range]) -> Vec<Range> {
        match self.copies.get(name).filter(|c| c.history == history) {
            None => present.to_vec(),
            Some(holding) => {
                let lacks = present.iter().flat_map(|range| holding.find(*range).1);
                lacks.collect()
            }
        }
    }

    /// Whether the packs already have this description and these ranges of a copy.
    #[must_use]
    pub fn includes(
        &self,
        name: &str,
        history: u64,
        description: &[u8],
        present: &[Range],
    ) -> bool {
        self.copies.get(name).is_some_and(|known| {
            let place = known.description.1;
            known.history == history
                && known.present == present
                && place.bytes == wide(description.len())
                && place.crc == crc32c(description)
        })
    }

    /// Valid ranges of a copy in the given packs; `None` if these have neither ranges nor the
    /// description of the copy.
    #[must_use]
    pub fn in_packs(&self, name: &str, packs: &BTreeSet<u64>) -> Option<Vec<Range>> {
        let known = self.copies.get(name)?;
        let parts = known.parts.values().flatten();
        let found: Vec<Range> = parts
            .filter(|part| packs.contains(&part.piece.pack))
            .map(|part| part.range)
            .collect();
        (!found.is_empty() || packs.contains(&known.description.0)).then_some(found)
    }

    /// Numbers of the packs with valid content.
    #[must_use]
    pub fn used(&self) -> BTreeSet<u64> {
        self.copies.values().flat_map(CopyExtents::used).collect()
    }

    /// Reads the contents of the packs of a head, from their indexes alone.
    ///
    /// # Errors
    /// `gone`, `damaged`, `unreachable`.
    pub fn load(store: &dyn ObjectStore, head: &Head) -> Result<Contents, BucketError> {
        let mut contents = Contents::default();
        for pack in &head.packs {
            let index = read_index(store, head.group, pack)?;
            contents.apply(pack.number, &index);
        }
        contents
            .copies
            .retain(|name, _| head.copies.contains_key(name));
        for (name, entry) in &head.copies {
            let found = contents.copies.get(name);
            let is_so = found.is_some_and(|found| {
                found.history == entry.history && found.description.0 == entry.pack
            });
            if !is_so {
                return Err(BucketError::damaged(
                    &head_key(head.group),
                    "packs that match the head's entry of each copy",
                    format_args!("different contents of `{name}`"),
                ));
            }
        }
        Ok(contents)
    }

    /// Reads a whole copy; `None` if it does not exist. Present ranges are passed on by segment and
    /// offset; parts may be adjacent. An error of `each` ends it.
    ///
    /// # Errors
    /// `gone`, `damaged`, `unreachable`, and errors of `each`.
    pub fn restore<E: From<BucketError>>(
        &self,
        store: &dyn ObjectStore,
        head: &Head,
        name: &str,
        each: &mut RangeReceiver<'_, E>,
    ) -> Result<Option<Restored>, E> {
        let Some(holding) = self.copies.get(name) else {
            return Ok(None);
        };
        let mut reader = Reader::new(store, head);
        let (pack, place) = holding.description;
        let description = reader.read(pack, &place)?.to_vec();
        for range in &holding.present {
            let (parts, lacking) = holding.find(*range);
            if let Some(lacking) = lacking.first() {
                let damaged = BucketError::damaged(
                    &head_key(head.group),
                    "packs with all present ranges",
                    format_args!(
                        "no bytes of `{name}` at {} of segment {}",
                        lacking.offset, lacking.segment
                    ),
                );
                return Err(damaged.into());
            }
            for part in parts {
                let skipped = part.range.offset - part.piece.range.offset;
                let bytes = reader.read(part.piece.pack, &part.piece.location)?;
                let bytes = cut(bytes, skipped, part.range.bytes).ok_or_else(|| {
                    BucketError::damaged(name, "a piece as long as its range", "a shorter piece")
                })?;
                each(part.range, bytes)?;
            }
        }
        Ok(Some(Restored {
            state: holding.state,
            description,
        }))
    }
}

fn cut(bytes: &[u8], from: u64, len: u64) -> Option<&[u8]> {
    let from = usize::try_from(from).ok()?;
    let until = from.checked_add(usize::try_from(len).ok()?)?;
    bytes.get(from..until)
}

/// Reads extents of packs, a whole pack at a time: extents that are read back follow one another
/// there.
struct Reader<'a> {
    store: &'a dyn ObjectStore,
    head: &'a Head,
    packs: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
}

/// Bytes of packs that are in memory at once, about.
const PACKS_IN_MEMORY: usize = 128 << 20;

impl<'a> Reader<'a> {
    fn new(store: &'a dyn ObjectStore, head: &'a Head) -> Reader<'a> {
        Reader {
            store,
            head,
            packs: BTreeMap::new(),
            bytes: 0,
        }
    }

    fn read(&mut self, pack: u64, place: &PackLocation) -> Result<&[u8], BucketError> {
        let head = head_key(self.head.group);
        let entry = self.head.pack(pack).ok_or_else(|| {
            BucketError::damaged(&head, "an existing pack", format_args!("no pack {pack}"))
        })?;
        let key = pack_key(self.head.group, entry.epoch, entry.id);
        if !self.packs.contains_key(&pack) {
            if self.bytes > PACKS_IN_MEMORY {
                (self.packs, self.bytes) = (BTreeMap::new(), 0);
            }
            let found = self.store.get(&key)?;
            let found = found.ok_or_else(|| BucketError::superseded(&key))?.bytes;
            self.bytes += found.len();
            self.packs.insert(pack, found);
        }
        let all = self.packs.get(&pack).map(Vec::as_slice);
        let found = all.and_then(|all| cut(all, place.at, place.bytes));
        match found {
            Some(found) if crc32c(found) == place.crc => Ok(found),
            _ => Err(BucketError::damaged(
                &key,
                "the bytes that were uploaded",
                format_args!("other bytes at {}", place.at),
            )),
        }
    }
}

fn read_index(
    store: &dyn ObjectStore,
    group: u32,
    pack: &PackEntry,
) -> Result<PackIndex, BucketError> {
    let key = pack_key(group, pack.epoch, pack.id);
    let len = u64::from(pack.index_bytes);
    let from = pack.bytes.saturating_sub(len);
    let found = store.get_range(&key, from, len)?;
    let found = found.ok_or_else(|| BucketError::superseded(&key))?;
    let index = PackIndex::decode(&found);
    let index = index.map_err(|e| BucketError::damaged(&key, e.expected, "other bytes"))?;
    let is_inside = |place: &PackLocation| place.at.saturating_add(place.bytes) <= from;
    let are_inside = index.entries.iter().all(|entry| {
        let mut pieces = entry.pieces.iter().map(|(_, place)| place);
        pieces.all(is_inside) && is_inside(&entry.description)
    });
    match are_inside {
        true => Ok(index),
        false => Err(BucketError::damaged(
            &key,
            "pieces before the index",
            "a piece after the start of the index",
        )),
    }
}

/// Reads the head of a group; `None` if it does not exist.
///
/// # Errors
/// `damaged`, `unreachable`.
pub fn read_head(store: &dyn ObjectStore, group: u32) -> Result<Option<(Head, Etag)>, BucketError> {
    let key = head_key(group);
    let Some(found) = store.get(&key)? else {
        return Ok(None);
    };
    let head = decode_head(group, &found.bytes)?;
    Ok(Some((head, found.etag)))
}

pub(crate) fn decode_head(group: u32, bytes: &[u8]) -> Result<Head, BucketError> {
    let key = head_key(group);
    let head = Head::decode(bytes);
    let head = head.map_err(|e| BucketError::damaged(&key, e.expected, "other bytes"))?;
    match head.group == group {
        true => Ok(head),
        false => Err(BucketError::damaged(
            &key,
            "the head of its group",
            format_args!("the head of group {}", head.group),
        )),
    }
}

/// Consistent head and contents of a group; `None` if there is no head. Packs that a newer head has
/// removed meanwhile are resolved by reading that head.
///
/// # Errors
/// `damaged`, `unreachable`; `gone` if heads change faster than they can be read.
pub fn read_group(
    store: &dyn ObjectStore,
    group: u32,
) -> Result<Option<(Head, Etag, Contents)>, BucketError> {
    const TRIES: u32 = 5;
    let mut tries = 1;
    loop {
        let Some((head, etag)) = read_head(store, group)? else {
            return Ok(None);
        };
        match Contents::load(store, &head) {
            Err(error) if error.kind() == BucketErrorKind::Superseded && tries < TRIES => {
                tries += 1
            }
            loaded => return Ok(Some((head, etag, loaded?))),
        }
    }
}
