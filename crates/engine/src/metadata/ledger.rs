//! Hashes of the contents of segments, computed when they are written: the head of a segment's
//! chain suffices to prove a whole copy of it, without reading the original.
//!
//! A group has two hashes: one of the part before its last stretch of upper blocks, which is leaves
//! and blocks of the base level, and one of the rest: upper blocks, checkpoint, footer. The chain
//! of a segment begins with its header and includes one group after the other.
//!
//! Invariants: two segments with the same head have the same bytes (SHA-256); hashes are of the
//! bytes passed to the file, not of a later read. Concurrency: plain data. Format:
//! docs/format/meta.md.

use headwater_codec::{Cursor, DecodeError, PutBytes};
use sha2::{Digest, Sha256};

/// A SHA-256.
pub(crate) type Hash = [u8; 32];

const HEADER: &[u8] = b"headwater segment";
const GROUP: &[u8] = b"headwater group";
const VERSION: u8 = 1;

/// Hashes of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupHashes {
    /// Offset of the upper blocks after which only checkpoint and footer follow.
    pub(crate) upper_at: u64,
    /// End offset of the group.
    pub(crate) end: u64,
    /// Hash of the group's bytes before the upper blocks.
    pub(crate) lower: Hash,
    /// Hash of the group's bytes from the upper blocks on.
    pub(crate) upper: Hash,
}

impl GroupHashes {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.put_varint(self.upper_at);
        out.extend_from_slice(&self.lower);
        out.extend_from_slice(&self.upper);
        out
    }

    /// Decodes the hashes of the group that ends at `end`.
    pub(crate) fn decode(end: u64, bytes: &[u8]) -> Result<GroupHashes, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u8("version of a group's hashes")? != VERSION {
            return Err(cursor.expected("hashes of a group, version 1"));
        }
        let upper_at = cursor.varint("offset of upper blocks")?;
        let (lower, upper) = (hash(&mut cursor)?, hash(&mut cursor)?);
        cursor.finish()?;
        Ok(GroupHashes {
            upper_at,
            end,
            lower,
            upper,
        })
    }
}

/// Reads a hash at the cursor.
pub(crate) fn hash(cursor: &mut Cursor<'_>) -> Result<Hash, DecodeError> {
    let mut out = Hash::default();
    out.copy_from_slice(cursor.take(size_of::<Hash>(), "a SHA-256")?);
    Ok(out)
}

/// Start of a chain.
pub(crate) fn begin(header: &[u8]) -> Hash {
    Sha256::new()
        .chain_update(HEADER)
        .chain_update(header)
        .finalize()
        .into()
}

/// The chain with one more group.
pub(crate) fn next(chain: &Hash, group: &GroupHashes) -> Hash {
    Sha256::new()
        .chain_update(GROUP)
        .chain_update(chain)
        .chain_update(group.upper_at.to_le_bytes())
        .chain_update(group.end.to_le_bytes())
        .chain_update(group.lower)
        .chain_update(group.upper)
        .finalize()
        .into()
}

/// Hashes a group as it is written, or read.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupHasher {
    lower: Sha256,
    upper: Option<(u64, Sha256)>,
}

impl GroupHasher {
    /// Marks the offset from which only upper blocks, checkpoint and footer follow. The first call
    /// counts, later ones are ignored.
    pub(crate) fn upper_from(&mut self, offset: u64) {
        self.upper.get_or_insert_with(|| (offset, Sha256::new()));
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        match &mut self.upper {
            Some((_, upper)) => upper.update(bytes),
            None => self.lower.update(bytes),
        }
    }

    /// The hashes of a group that ends at `end`.
    pub(crate) fn finish(self, end: u64) -> GroupHashes {
        let (upper_at, upper) = self.upper.unwrap_or((end, Sha256::new()));
        GroupHashes {
            upper_at,
            end,
            lower: self.lower.finalize().into(),
            upper: upper.finalize().into(),
        }
    }
}

/// Hashes of a segment whose bytes are to be proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentLedger {
    /// The segment.
    pub segment: u64,
    /// Its length.
    pub bytes: u64,
    /// The head of its chain.
    pub head: [u8; 32],
    /// Groups: offset of the upper blocks, and end offset; sorted ascending.
    pub(crate) groups: Vec<(u64, u64)>,
}

/// Proves that bytes belong to a segment: accepts all of its bytes, in order.
#[derive(Clone, Debug)]
pub struct Proof {
    ledger: SegmentLedger,
    header_bytes: u64,
    header: Vec<u8>,
    at: u64,
    chain: Hash,
    group: GroupHasher,
}

/// Maximum bytes that a proof accepts at once.
const STEP_BYTES: u64 = 1 << 20;

impl Proof {
    pub(crate) fn new(ledger: SegmentLedger, header_bytes: u64) -> Proof {
        Proof {
            ledger,
            header_bytes,
            header: Vec::new(),
            at: 0,
            chain: Hash::default(),
            group: GroupHasher::default(),
        }
    }

    /// The ledger to prove.
    #[must_use]
    pub fn ledger(&self) -> &SegmentLedger {
        &self.ledger
    }

    /// The next bytes to pass, offset and length; `None` = all bytes were passed.
    #[must_use]
    pub fn next_range(&self) -> Option<(u64, u32)> {
        let end = self.next_border()?.min(self.at.saturating_add(STEP_BYTES));
        let bytes = u32::try_from(end.checked_sub(self.at)?).ok()?;
        Some((self.at, bytes))
    }

    /// End of the header or part of a group that is being hashed.
    fn next_border(&self) -> Option<u64> {
        if self.at < self.header_bytes {
            return Some(self.header_bytes);
        }
        let borders = self
            .ledger
            .groups
            .iter()
            .flat_map(|(upper, end)| [*upper, *end]);
        borders.filter(|border| *border > self.at).min()
    }

    /// Accepts the next bytes.
    pub fn take(&mut self, bytes: &[u8]) {
        let is_header = self.at < self.header_bytes;
        self.at = self
            .at
            .saturating_add(headwater_types::invariant::wide(bytes.len()));
        match is_header {
            true => self.header.extend_from_slice(bytes),
            false => self.group.put(bytes),
        }
        if is_header && self.at == self.header_bytes {
            self.chain = begin(&self.header);
        }
        let groups = self.ledger.groups.iter();
        for (upper, end) in groups.filter(|(upper, end)| self.at == *upper || self.at == *end) {
            if self.at == *upper {
                self.group.upper_from(*upper);
            }
            if self.at == *end && !is_header {
                let group = std::mem::take(&mut self.group).finish(*end);
                self.chain = next(&self.chain, &group);
            }
        }
    }

    /// True when the bytes are those of the segment, once all were passed.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.next_range().is_none()
            && self.at == self.ledger.bytes
            && self.chain == self.ledger.head
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn written(parts: &[(&[u8], &[u8])]) -> (Vec<u8>, SegmentLedger) {
        let mut bytes = vec![9; 64];
        let mut chain = begin(&bytes);
        let mut groups = Vec::new();
        for (lower, upper) in parts {
            let mut group = GroupHasher::default();
            group.put(lower);
            bytes.extend_from_slice(lower);
            let upper_at = headwater_types::invariant::wide(bytes.len());
            group.upper_from(upper_at);
            group.put(upper);
            bytes.extend_from_slice(upper);
            let group = group.finish(headwater_types::invariant::wide(bytes.len()));
            chain = next(&chain, &group);
            groups.push((upper_at, group.end));
        }
        let ledger = SegmentLedger {
            segment: 7,
            bytes: headwater_types::invariant::wide(bytes.len()),
            head: chain,
            groups,
        };
        (bytes, ledger)
    }

    fn proves(bytes: &[u8], ledger: &SegmentLedger) -> bool {
        let mut proof = Proof::new(ledger.clone(), 64);
        while let Some((at, len)) = proof.next_range() {
            let at = usize::try_from(at).unwrap();
            let part = bytes.get(at..at + usize::try_from(len).unwrap());
            proof.take(part.unwrap_or_default());
            if part.is_none() {
                return false;
            }
        }
        proof.is_equal()
    }

    #[test]
    fn a_proof_takes_the_bytes_of_the_segment_and_no_others() {
        let large = vec![3; 3 << 20];
        let (bytes, ledger) = written(&[(b"leaves", b"upper"), (b"", b"footer"), (&large, b"f")]);
        assert!(proves(&bytes, &ledger));
        for at in [
            0,
            63,
            64,
            69,
            70,
            74,
            75,
            80,
            81,
            bytes.len() - 2,
            bytes.len() - 1,
        ] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(!proves(&other, &ledger), "a changed byte at {at}");
        }
        for groups in [&ledger.groups[..2], &ledger.groups[..0]] {
            let shorter = SegmentLedger {
                groups: groups.to_vec(),
                ..ledger.clone()
            };
            assert!(!proves(&bytes, &shorter));
        }
        let mut moved = ledger.clone();
        moved.groups[0].0 -= 1;
        assert!(!proves(&bytes, &moved));
    }

    #[test]
    fn hashes_of_a_group_come_back_and_neither_they_nor_their_bytes_change() {
        let (_, ledger) = written(&[(b"leaves", b"upper")]);
        let mut group = GroupHasher::default();
        group.put(b"leaves");
        group.upper_from(70);
        group.put(b"upper");
        let group = group.finish(75);
        let mut bytes = group.encode();
        assert_eq!(GroupHashes::decode(75, &bytes).unwrap(), group);
        bytes.extend_from_slice(&ledger.head);
        crate::golden::check("group_hashes", &bytes);
    }
}
