//! Digests of ranges, by which a copy is compared with its source, and by which it answers the
//! source's challenges.
//!
//! Invariant: the nonce is the first input of the digest of a challenge. A nonce behind the bytes
//! could be answered from the hash's state after the bytes, without the bytes themselves.
//! Concurrency: pure.

use crate::replication::message::{Digest, Nonce, SegmentRange};
use sha2::{Digest as _, Sha256};

/// The digest of a range.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// The digest of a range that answers a [`Challenge`](crate::replication::Message::Challenge) with
/// this nonce.
#[must_use]
pub fn challenge_digest(nonce: &Nonce, range: &SegmentRange, bytes: &[u8]) -> Digest {
    let mut hasher = Sha256::new();
    hasher.update(nonce);
    hasher.update(b"headwater challenge");
    hasher.update(range.segment.to_le_bytes());
    hasher.update(range.offset.to_le_bytes());
    hasher.update(range.bytes.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize().into()
}

/// Digest of bytes that cannot be read: it never matches.
pub(crate) const NO_DIGEST: Digest = [0; 32];
/// Digest of bytes that are missing at the source itself.
pub(crate) const MISSING_DIGEST: Digest = [255; 32];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_challenge_is_bound_to_its_nonce_and_its_range() {
        let range = SegmentRange {
            segment: 4,
            offset: 64,
            bytes: 5,
        };
        let digest = challenge_digest(&[9; 32], &range, b"bytes");
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, GOLDEN, "docs/format/sync.md has the inputs");
        let next = |change: fn(&mut SegmentRange)| {
            let mut other = range;
            change(&mut other);
            challenge_digest(&[9; 32], &other, b"bytes")
        };
        assert_ne!(challenge_digest(&[8; 32], &range, b"bytes"), digest);
        assert_ne!(challenge_digest(&[9; 32], &range, b"bytez"), digest);
        assert_ne!(next(|range| range.segment += 1), digest);
        assert_ne!(next(|range| range.offset += 1), digest);
        assert_ne!(next(|range| range.bytes += 1), digest);
    }

    const GOLDEN: &str = "208064fadc273e4baf21618c591a4b44529c0f668767acf2e906f447d356f589";
}
