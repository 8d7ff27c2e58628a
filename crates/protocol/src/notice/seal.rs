//! Signature of a notice, the only proof of its origin: a broker lets many nodes publish.
//!
//! Invariant: the content of a notice is returned as proven only for the key that proves it.
//! Concurrency: plain data. Failure: [`NoticeError`].

use crate::notice::content::{NOTICE_BYTES_MAX, Notice};
use crate::signature::{self, PublicKey, SIGNATURE_BYTES, SigningKey, is_signed_by};
use headwater_codec::DecodeError;

/// Prefix of the signed bytes, so that no other signature of the key is valid for a notice.
const CONTEXT: &[u8] = b"headwater notice 1\n";

/// Reason why bytes are not a valid notice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoticeError {
    /// There are too many.
    #[error("a notice of {0} bytes: expected at most {NOTICE_BYTES_MAX}")]
    Long(usize),
    /// Too short for a signature.
    #[error("the notice has {0} bytes, fewer than the {SIGNATURE_BYTES} of its signature")]
    Short(usize),
    /// The signed bytes are not a valid notice.
    #[error("not a valid notice: {0}")]
    Garbled(#[from] DecodeError),
}

/// Key that signs the notices of a node.
#[derive(Debug)]
pub struct NoticeKey(SigningKey);

impl NoticeKey {
    /// Key derived from a secret seed; `None` for an invalid seed.
    #[must_use]
    pub fn of_seed(seed: &[u8; 32]) -> Option<NoticeKey> {
        SigningKey::of_seed(seed).map(NoticeKey)
    }

    /// The key that checks its signatures.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.0.public()
    }

    /// The bytes of a notice with its signature.
    ///
    /// ```
    /// use headwater_protocol::notice::{NoticeKind, Notice, NoticeKey, Sealed};
    /// let key = NoticeKey::of_seed(&[7; 32]).unwrap();
    /// let (identity, incarnation, epoch) = (1, 2, 3);
    /// let (kind, number, version) = (NoticeKind::Changed, 4, 5);
    /// let notice = Notice { kind, identity, incarnation, epoch, number, version };
    /// let sealed = Sealed::decode(&key.seal(&notice)).unwrap();
    /// assert_eq!(sealed.proven_by(&key.public()), Some(&notice));
    /// let other = NoticeKey::of_seed(&[8; 32]).unwrap();
    /// assert_eq!(sealed.proven_by(&other.public()), None);
    /// ```
    #[must_use]
    pub fn seal(&self, notice: &Notice) -> Vec<u8> {
        let mut bytes = notice.encode();
        self.0.sign(CONTEXT, &mut bytes);
        bytes
    }
}

/// A received notice whose signature is not verified yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    claims: Notice,
    body: Vec<u8>,
    signature: Vec<u8>,
}

impl Sealed {
    /// Decodes the bytes of [`NoticeKey::seal`].
    ///
    /// # Errors
    /// If the bytes are not a valid notice.
    pub fn decode(bytes: &[u8]) -> Result<Sealed, NoticeError> {
        if bytes.len() > NOTICE_BYTES_MAX {
            return Err(NoticeError::Long(bytes.len()));
        }
        let parts = signature::split(bytes);
        let (body, signature) = parts.ok_or(NoticeError::Short(bytes.len()))?;
        Ok(Sealed {
            claims: Notice::decode(body)?,
            body: body.to_vec(),
            signature: signature.to_vec(),
        })
    }

    /// Claimed identity of the database, which selects the key for verification.
    #[must_use]
    pub fn claims_identity(&self) -> u64 {
        self.claims.identity
    }

    /// The content, if this key has signed it.
    #[must_use]
    pub fn proven_by(&self, key: &PublicKey) -> Option<&Notice> {
        let is_proven = is_signed_by(key, CONTEXT, &self.body, &self.signature);
        is_proven.then_some(&self.claims)
    }
}
