//! The signature under a notice, which alone proves its origin: a broker lets many nodes publish.
//!
//! Invariant: the content of a notice is returned as proven only for the key that proves it.
//! Concurrency: plain data. Failure: [`NoticeError`].

use crate::notice::notice::{NOTICE_BYTES_MAX, Notice};
use headwater_codec::DecodeError;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

const SIGNATURE_BYTES: usize = 64;
/// Before what is signed, so that no other signature of the key is one of a notice.
const CONTEXT: &[u8] = b"headwater notice 1\n";

/// Key that checks signatures.
pub type PublicKey = [u8; 32];

/// Why bytes are no notice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoticeError {
    /// There are too many.
    #[error("a notice of {0} bytes: expected at most {NOTICE_BYTES_MAX}")]
    Long(usize),
    /// Too short for a signature.
    #[error("a notice of {0} bytes: expected {SIGNATURE_BYTES} of a signature at its end")]
    Short(usize),
    /// The signed bytes are no notice.
    #[error("this is no notice: {0}")]
    Garbled(#[from] DecodeError),
}

/// Key that signs the notices of a node.
pub struct NoticeKey {
    pair: Ed25519KeyPair,
}

impl std::fmt::Debug for NoticeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NoticeKey").finish_non_exhaustive()
    }
}

impl NoticeKey {
    /// The key of a seed, which must be secret; `None` for an invalid one.
    #[must_use]
    pub fn of_seed(seed: &[u8; 32]) -> Option<NoticeKey> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
        Some(NoticeKey { pair })
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

    /// The bytes of a notice with its signature.
    ///
    /// ```
    /// use crate::notice::{Kind, Notice, NoticeKey, Sealed};
    /// let key = NoticeKey::of_seed(&[7; 32]).unwrap();
    /// let (identity, incarnation, epoch) = (1, 2, 3);
    /// let (kind, number, version) = (Kind::Changed, 4, 5);
    /// let notice = Notice { kind, identity, incarnation, epoch, number, version };
    /// let sealed = Sealed::decode(&key.seal(&notice)).unwrap();
    /// assert_eq!(sealed.proven_by(&key.public()), Some(&notice));
    /// let other = NoticeKey::of_seed(&[8; 32]).unwrap();
    /// assert_eq!(sealed.proven_by(&other.public()), None);
    /// ```
    #[must_use]
    pub fn seal(&self, notice: &Notice) -> Vec<u8> {
        let mut bytes = notice.encode();
        let signature = self.pair.sign(&[CONTEXT, bytes.as_slice()].concat());
        bytes.extend_from_slice(signature.as_ref());
        bytes
    }
}

/// A received notice that is not proven yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    claims: Notice,
    signed: Vec<u8>,
    signature: Vec<u8>,
}

impl Sealed {
    /// Reads what [`NoticeKey::seal`] made.
    ///
    /// # Errors
    /// Where the bytes are no notice.
    pub fn decode(bytes: &[u8]) -> Result<Sealed, NoticeError> {
        if bytes.len() > NOTICE_BYTES_MAX {
            return Err(NoticeError::Long(bytes.len()));
        }
        let at = bytes.len().checked_sub(SIGNATURE_BYTES);
        let parts = at.and_then(|at| bytes.split_at_checked(at));
        let (body, signature) = parts.ok_or(NoticeError::Short(bytes.len()))?;
        Ok(Sealed {
            claims: Notice::decode(body)?,
            signed: [CONTEXT, body].concat(),
            signature: signature.to_vec(),
        })
    }

    /// The database that it says it is of: whose key it is to be checked by.
    #[must_use]
    pub fn claims_identity(&self) -> u64 {
        self.claims.identity
    }

    /// The content, if this key has signed it.
    #[must_use]
    pub fn proven_by(&self, key: &PublicKey) -> Option<&Notice> {
        let key = UnparsedPublicKey::new(&ED25519, key.as_slice());
        let is_proven = key.verify(&self.signed, &self.signature).is_ok();
        is_proven.then_some(&self.claims)
    }
}
