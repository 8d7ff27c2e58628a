//! Signatures by Ed25519, of notices and tickets.
//!
//! Invariants: each use has a context of its own before the signed bytes, so that a signature for
//! one use is not valid for another.
//! Concurrency: plain data.
//! Failure: an invalid signature is `false`.

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::fmt;

/// Length of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// Key that checks signatures.
pub type PublicKey = [u8; 32];

/// Key that signs.
pub struct SigningKey {
    pair: Ed25519KeyPair,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Key derived from a secret seed; `None` for an invalid seed.
    #[must_use]
    pub fn of_seed(seed: &[u8; 32]) -> Option<SigningKey> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
        Some(SigningKey { pair })
    }

    /// The key that checks its signatures.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let mut key = [0; 32];
        for (to, from) in key.iter_mut().zip(self.pair.public_key().as_ref()) {
            *to = *from;
        }
        key
    }

    /// Appends the signature of these bytes to them.
    pub fn sign(&self, context: &[u8], bytes: &mut Vec<u8>) {
        let signature = self.pair.sign(&[context, bytes.as_slice()].concat());
        assert_eq!(
            signature.as_ref().len(),
            SIGNATURE_BYTES,
            "Ed25519's length"
        );
        bytes.extend_from_slice(signature.as_ref());
    }
}

/// The signed bytes and the signature; `None` if the input is too short for a signature.
#[must_use]
pub fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.len().checked_sub(SIGNATURE_BYTES)?;
    bytes.split_at_checked(at)
}

/// Whether a key has signed these bytes for this use.
#[must_use]
pub fn is_signed_by(key: &PublicKey, context: &[u8], body: &[u8], signature: &[u8]) -> bool {
    let key = UnparsedPublicKey::new(&ED25519, key.as_slice());
    key.verify(&[context, body].concat(), signature).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_signature_is_of_one_key_one_use_and_these_bytes() {
        let key = SigningKey::of_seed(&[7; 32]).unwrap();
        let mut bytes = b"abc".to_vec();
        key.sign(b"use 1", &mut bytes);
        let (body, signature) = split(&bytes).unwrap();
        assert_eq!((body, signature.len()), (&b"abc"[..], SIGNATURE_BYTES));
        assert!(is_signed_by(&key.public(), b"use 1", body, signature));
        assert!(!is_signed_by(&key.public(), b"use 2", body, signature));
        assert!(!is_signed_by(&key.public(), b"use 1", b"abd", signature));
        let other = SigningKey::of_seed(&[8; 32]).unwrap();
        assert!(!is_signed_by(&other.public(), b"use 1", body, signature));
        assert_eq!(split(&[0; SIGNATURE_BYTES - 1]), None);
    }
}
