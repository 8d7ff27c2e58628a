//! The file of a received list of rights: `DIR/rights.list`.
//!
//! Invariants: a list is stored only with the signature of the trusted key or of a later one, and
//! never replaces one with a higher number. The file is replaced whole and synced, so that a list
//! that was in force is in force after any restart. Concurrency: one writer; readers see the old
//! list or the new one. Failure: a refused list changes nothing; a damaged file is never
//! overwritten, since its number is unknown. Format: docs/format/rights.md.

use super::grants;
use crate::access::token::hex;
use crate::access::tokens::{Grant, TokenError};
use crate::private::replace_private;
use headwater_protocol::rights::{RIGHTS_BYTES_MAX, RightsError, RightsList};
use headwater_protocol::signature::PublicKey;
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file in the directory of the database.
pub const RIGHTS_FILE: &str = "rights.list";
const MAGIC: &[u8; 8] = b"HWRIGHTS";
const VERSION: u8 = 1;
/// Bytes of a digest that is shown to the sender.
const DIGEST_DIGITS: usize = 16;

/// Reason for not storing a list.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TakeError {
    /// The list is not valid, or not trusted.
    #[error(transparent)]
    Rights(#[from] RightsError),
    /// The list here has a higher number.
    #[error(
        "the list of rights has number {got}, and number {have} is stored: a lower number is never accepted; raise `list` in tokens.json of the cloud above {have}, or join again"
    )]
    Older {
        /// The stored number.
        have: u64,
        /// The number of the refused list.
        got: u64,
    },
    /// Another list has the same number.
    #[error(
        "there are two lists of rights with number {0}: change the list at the cloud with `headwater token`, which raises the number"
    )]
    Conflict(u64),
    /// The list of another cloud.
    #[error(
        "the list of rights is that of the cloud {got:016x}, and the list of {have:016x} is stored: join again to change the cloud"
    )]
    Cloud {
        /// The known cloud.
        have: u64,
        /// The cloud of the refused list.
        got: u64,
    },
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] TokenError),
}

/// A received list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedList {
    /// The list.
    pub list: RightsList,
    /// Its bytes, with the signature.
    pub bytes: Vec<u8>,
}

impl ReceivedList {
    /// The tokens of the list, without vetoes.
    #[must_use]
    pub fn grants(&self) -> Vec<Arc<Grant>> {
        grants(&self.list, &Arc::default())
    }
}

/// Beginning of the SHA-256 of a signed list, as hexadecimal text.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    let mut text = hex(&Sha256::digest(bytes));
    text.truncate(DIGEST_DIGITS);
    text
}

/// The file of a received list.
#[derive(Debug, Clone)]
pub struct ReceivedFile {
    path: PathBuf,
}

impl ReceivedFile {
    /// The file in a database's directory.
    #[must_use]
    pub fn of_database(dir: &Path) -> ReceivedFile {
        ReceivedFile {
            path: dir.join(RIGHTS_FILE),
        }
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn io_error(&self, source: io::Error) -> TokenError {
        TokenError::Io {
            path: self.path.display().to_string(),
            source,
        }
    }

    /// Reads the list; `None` if none was received.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged.
    pub fn read(&self) -> Result<Option<ReceivedList>, TokenError> {
        let file = match std::fs::File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(self.io_error(source)),
        };
        let mut bytes = Vec::new();
        let most = u64::try_from(RIGHTS_BYTES_MAX + MAGIC.len() + 2).unwrap_or(u64::MAX);
        let read = file.take(most).read_to_end(&mut bytes);
        read.map_err(|e| self.io_error(e))?;
        let damaged = |reason: &dyn std::fmt::Display| TokenError::DamagedList {
            path: self.path.display().to_string(),
            reason: reason.to_string(),
        };
        let head = bytes.strip_prefix(MAGIC.as_slice());
        let head = head.and_then(|rest| rest.split_first());
        let Some((&VERSION, body)) = head else {
            return Err(damaged(&"not a list of rights of version 1"));
        };
        let list = RightsList::read(body).map_err(|e| damaged(&e))?;
        let bytes = body.to_vec();
        Ok(Some(ReceivedList { list, bytes }))
    }

    /// Stores a list: trusted by the stored list, or before the first one by `pin`, the key that
    /// came with joining; without both, the signing key is trusted from now on. False if the list
    /// is stored already.
    ///
    /// # Errors
    /// When the list is refused, or cannot be stored.
    pub fn take(&self, bytes: &[u8], pin: Option<&PublicKey>) -> Result<bool, TakeError> {
        let list = RightsList::read(bytes)?;
        match self.read()? {
            Some(known) => {
                if known.list.cloud != list.cloud {
                    return Err(TakeError::Cloud {
                        have: known.list.cloud,
                        got: list.cloud,
                    });
                }
                if !list.is_trusted_by(known.list.signing_key()) {
                    return Err(RightsError::Key.into());
                }
                let (have, got) = (known.list.number, list.number);
                if got < have {
                    return Err(TakeError::Older { have, got });
                }
                if known.bytes == bytes {
                    return Ok(false);
                }
                let is_same_key = known.list.signing_key() == list.signing_key();
                let is_same = known.list.tokens == list.tokens;
                if got == have && (is_same_key || !is_same) {
                    return Err(TakeError::Conflict(have));
                }
            }
            None => {
                if let Some(pin) = pin
                    && !list.is_trusted_by(pin)
                {
                    return Err(RightsError::Key.into());
                }
            }
        }
        let mut content = MAGIC.to_vec();
        content.push(VERSION);
        content.extend_from_slice(bytes);
        let stored = replace_private(&self.path, &content);
        stored.map_err(|e| self.io_error(e))?;
        Ok(true)
    }

    /// Removes the list, since the node leaves its cloud or joins another one.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn remove(&self) -> Result<(), TokenError> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.io_error(error)),
            _ => Ok(()),
        }
    }
}
