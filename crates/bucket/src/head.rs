//! The head of a group: the valid packs, the copies in them, and the node that may change it.
//!
//! Invariants: an encoded head is decoded to an equal one; malformed bytes are refused before more
//! memory is allocated than their length justifies. A head follows another only under the
//! conditions of [`Head::follows`]. Format: docs/format/bucket.md.

use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::Timestamp;
use headwater_types::invariant::wide;
use std::collections::BTreeMap;
use std::time::Duration;

const MAGIC: [u8; 6] = *b"HWHEAD";
const VERSION: u8 = 1;
const CRC_BYTES: usize = 4;

/// Lease of a group: the node that has it, and its duration from each renewal on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The node: a random number drawn at its start.
    pub node: u64,
    /// Name of the node, for people.
    pub name: String,
    /// Duration of the lease, in milliseconds; 0 = released.
    pub millis: u32,
    /// End of the lease by the node's own clock, for information only.
    pub until: Timestamp,
}

impl Lease {
    /// Duration of the lease.
    #[must_use]
    pub fn length(&self) -> Duration {
        Duration::from_millis(u64::from(self.millis))
    }
}

/// A pack that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackEntry {
    /// Number of the pack in the group; later packs take precedence.
    pub number: u64,
    /// Epoch in which the pack was created.
    pub epoch: u64,
    /// The rest of its key.
    pub id: u64,
    /// Bytes of the pack.
    pub bytes: u64,
    /// Bytes of the index at its end.
    pub index_bytes: u32,
}

/// A copy of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEntry {
    /// History of the copy: ranges put for another history are not valid.
    pub history: u64,
    /// The number of its newest state.
    pub state: u64,
    /// Pack with the list of present ranges and the description.
    pub pack: u64,
    /// Bytes that are present.
    pub bytes: u64,
}

/// The head of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The group.
    pub group: u32,
    /// Number of heads before this one.
    pub commit: u64,
    /// A random number that identifies this attempt.
    pub nonce: u64,
    /// Incremented when another node acquires the group, and before garbage is collected.
    pub epoch: u64,
    /// Packs of epochs below are garbage, unless they are named here.
    pub min_epoch: u64,
    /// The lease of the group.
    pub lease: Lease,
    /// The number of the next pack.
    pub next_pack: u64,
    /// Valid packs, by ascending number.
    pub packs: Vec<PackEntry>,
    /// Copies of the group, by name.
    pub copies: BTreeMap<String, CopyEntry>,
}

impl Head {
    /// Encoded head.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.put_u8(VERSION);
        out.put_u32(self.group);
        for number in [self.commit, self.nonce, self.epoch, self.min_epoch] {
            out.put_u64(number);
        }
        out.put_u64(self.lease.node);
        out.put_prefixed(self.lease.name.as_bytes());
        out.put_u32(self.lease.millis);
        out.put_i64(self.lease.until.as_nanos());
        out.put_varint(self.next_pack);
        out.put_varint(wide(self.packs.len()));
        for pack in &self.packs {
            out.put_varint(pack.number);
            out.put_varint(pack.epoch);
            out.put_u64(pack.id);
            out.put_varint(pack.bytes);
            out.put_varint(u64::from(pack.index_bytes));
        }
        out.put_varint(wide(self.copies.len()));
        for (name, copy) in &self.copies {
            out.put_prefixed(name.as_bytes());
            out.put_u64(copy.history);
            out.put_varint(copy.state);
            out.put_varint(copy.pack);
            out.put_varint(copy.bytes);
        }
        let crc = crc32c(&out);
        out.put_u32(crc);
        out
    }

    /// Reads a head.
    ///
    /// # Errors
    /// If the bytes are not a valid head.
    pub fn decode(bytes: &[u8]) -> Result<Head, DecodeError> {
        let body = checked(bytes, "checksum of a head")?;
        let mut cursor = Cursor::new(body);
        if cursor.take(MAGIC.len(), "a head")? != MAGIC {
            return Err(cursor.expected("HWHEAD at the beginning"));
        }
        if cursor.u8("version of a head")? != VERSION {
            return Err(cursor.expected("version 1 of a head"));
        }
        let group = cursor.u32("group")?;
        let commit = cursor.u64("commit")?;
        let nonce = cursor.u64("nonce")?;
        let (epoch, min_epoch) = (cursor.u64("epoch")?, cursor.u64("least epoch")?);
        if min_epoch > epoch {
            return Err(cursor.expected("a least epoch that does not exceed the epoch"));
        }
        let lease = Lease {
            node: cursor.u64("node")?,
            name: cursor.text("name of a node")?.to_owned(),
            millis: cursor.u32("length of a lease")?,
            until: Timestamp::from_nanos(cursor.i64("end of a lease")?),
        };
        let next_pack = cursor.varint("next pack")?;
        let packs = packs(&mut cursor, next_pack, epoch)?;
        let copies = copies(&mut cursor, &packs)?;
        cursor.finish()?;
        Ok(Head {
            group,
            commit,
            nonce,
            epoch,
            min_epoch,
            lease,
            next_pack,
            packs,
            copies,
        })
    }

    /// Whether this head may replace `before`: its number is the next one, epochs do not decrease,
    /// the node changes only with the epoch, and new packs were created in an epoch that is not
    /// collected.
    #[must_use]
    pub fn follows(&self, before: &Head) -> bool {
        let is_next = self.group == before.group && self.commit == before.commit + 1;
        let rises = self.epoch >= before.epoch && self.min_epoch >= before.min_epoch;
        let has_right = self.lease.node == before.lease.node || self.epoch > before.epoch;
        let mut known = before.packs.iter().peekable();
        let are_born = self.packs.iter().all(|pack| {
            while known.peek().is_some_and(|k| k.number < pack.number) {
                known.next();
            }
            match known.peek() {
                Some(k) if k.number == pack.number => *k == pack,
                _ => pack.number >= before.next_pack && pack.epoch >= self.min_epoch,
            }
        });
        is_next && rises && has_right && are_born && self.next_pack >= before.next_pack
    }

    /// A pack, by its number.
    #[must_use]
    pub fn pack(&self, number: u64) -> Option<&PackEntry> {
        let at = self
            .packs
            .binary_search_by_key(&number, |p| p.number)
            .ok()?;
        self.packs.get(at)
    }
}

/// The bytes before the checksum at the end.
pub(crate) fn checked<'a>(
    bytes: &'a [u8],
    expected: &'static str,
) -> Result<&'a [u8], DecodeError> {
    let split = bytes.len().checked_sub(CRC_BYTES);
    let found = split.and_then(|at| bytes.split_at_checked(at));
    match found {
        Some((body, crc)) if crc == crc32c(body).to_le_bytes() => Ok(body),
        _ => Err(Cursor::new(bytes).expected(expected)),
    }
}

fn packs(
    cursor: &mut Cursor<'_>,
    next_pack: u64,
    epoch: u64,
) -> Result<Vec<PackEntry>, DecodeError> {
    let count = cursor.varint_up_to(wide(cursor.remaining()), "number of packs")?;
    let mut packs: Vec<PackEntry> = Vec::new();
    for _ in 0..count {
        let pack = PackEntry {
            number: cursor.varint("number of a pack")?,
            epoch: cursor.varint("epoch of a pack")?,
            id: cursor.u64("key of a pack")?,
            bytes: cursor.varint("bytes of a pack")?,
            index_bytes: small(cursor.varint("bytes of an index")?, cursor)?,
        };
        let rises = packs
            .last()
            .is_none_or(|before| before.number < pack.number);
        let fits = u64::from(pack.index_bytes) <= pack.bytes && pack.epoch <= epoch;
        if !rises || !fits || pack.number >= next_pack {
            return Err(cursor.expected("packs in ascending order, below the next number"));
        }
        packs.push(pack);
    }
    Ok(packs)
}

fn small(number: u64, cursor: &mut Cursor<'_>) -> Result<u32, DecodeError> {
    u32::try_from(number).map_err(|_| cursor.expected("a number below 2^32"))
}

fn copies(
    cursor: &mut Cursor<'_>,
    packs: &[PackEntry],
) -> Result<BTreeMap<String, CopyEntry>, DecodeError> {
    let count = cursor.varint_up_to(wide(cursor.remaining()), "number of copies")?;
    let mut copies: BTreeMap<String, CopyEntry> = BTreeMap::new();
    for _ in 0..count {
        let name = cursor.text("name of a copy")?.to_owned();
        let copy = CopyEntry {
            history: cursor.u64("history of a copy")?,
            state: cursor.varint("state of a copy")?,
            pack: cursor.varint("pack of a copy")?,
            bytes: cursor.varint("bytes of a copy")?,
        };
        let rises = copies
            .last_key_value()
            .is_none_or(|(before, _)| *before < name);
        let is_there = packs.binary_search_by_key(&copy.pack, |p| p.number).is_ok();
        if !rises || !is_there {
            return Err(cursor.expected("copies in order of their names, in listed packs"));
        }
        copies.insert(name, copy);
    }
    Ok(copies)
}
