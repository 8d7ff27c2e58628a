//! Signed lists of rights: as a cloud sends them, as a node stores them, and their status; and the
//! form of the next keys of edges.
//!
//! Invariant: a refused list changes nothing, and is reported in the status. Concurrency: the last
//! error is under a lock. Failure: a list that cannot be stored now is requested again.
//! Formats: docs/format/rights.md. Page: docs/cluster/rights.md.

use crate::error::{ClusterError, ClusterErrorKind};
use headwater_protocol::rights::{RightsError, RightsList};
use headwater_protocol::signature::PublicKey;
use headwater_shell::access::guard::Guard;
use headwater_shell::access::rights::received::{ReceivedFile, TakeError, digest};
use headwater_shell::access::token::{from_hex, hex};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Path under which a cloud gives its list to dispatchers and other clouds.
pub const RIGHTS_PATH: &str = "/api/v1/rights";

/// Status of the list of rights of a node. Names are a promise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RightsStatus {
    /// Use of a received list: `ignore`, `accept` or `require`.
    pub list: String,
    /// Number of the received list that is in force.
    pub number: Option<u64>,
    /// Identity of the cloud of the received list, in hexadecimal digits.
    pub cloud: Option<String>,
    /// Tokens of the received list.
    pub tokens: Option<usize>,
    /// Seconds since the sender of the received list was known to have no newer one.
    #[serde(default)]
    pub age_seconds: Option<u64>,
    /// The age is above `rights.max_age`.
    #[serde(default)]
    pub is_stale: bool,
    /// Rights that they do not have here.
    pub vetoes: Vec<String>,
    /// Of a cloud: number of the list that it signs.
    pub signs: Option<u64>,
    /// Key that signs the list, in hexadecimal digits.
    pub key: Option<String>,
    /// The next key, during a rotation.
    pub next_key: Option<String>,
    /// Instant from which on the next key signs.
    pub next_key_at: Option<String>,
    /// Reason why a list was refused, or cannot be signed.
    pub error: Option<String>,
}

impl RightsStatus {
    /// Status of the received list of a node.
    #[must_use]
    pub fn of(guard: &Guard) -> RightsStatus {
        let policy = guard.policy();
        let known = guard.with_received(|list| (list.number, list.cloud, list.tokens.len()));
        RightsStatus {
            list: policy.list.name().to_owned(),
            number: known.map(|(number, ..)| number),
            cloud: known.map(|(_, cloud, _)| format!("{cloud:016x}")),
            tokens: known.map(|(.., tokens)| tokens),
            age_seconds: guard.received_age().map(|age| age.as_secs()),
            is_stale: guard.is_stale(),
            vetoes: policy.vetoes.iter().map(ToString::to_string).collect(),
            ..RightsStatus::default()
        }
    }
}

/// A signed list of rights.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedRights {
    /// Number of the list.
    pub number: u64,
    /// Beginning of the hash of its bytes.
    pub digest: String,
    /// The key that signed it.
    pub key: PublicKey,
    /// Its bytes with the signature.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for SignedRights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignedRights")
            .field("number", &self.number)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

impl SignedRights {
    /// Reads a signed list.
    ///
    /// # Errors
    /// When the bytes are not a list with valid signatures.
    pub fn of(bytes: Vec<u8>) -> Result<SignedRights, RightsError> {
        let list = RightsList::read(&bytes)?;
        Ok(SignedRights {
            number: list.number,
            digest: digest(&bytes),
            key: *list.signing_key(),
            bytes,
        })
    }

    /// The key that signed it, as text.
    pub(crate) fn key_text(&self) -> String {
        hex(&self.key)
    }
}

/// Result of storing a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// The list is new.
    New,
    /// The list was stored before.
    Known,
    /// The list is refused.
    Refused,
    /// The list cannot be stored now.
    Failed,
}

/// Receiver of lists of rights of an edge.
#[derive(Debug, Clone)]
pub struct RightsReceiver {
    file: ReceivedFile,
    /// Reason why the last list was refused.
    error: Arc<Mutex<Option<String>>>,
}

impl RightsReceiver {
    /// A receiver that stores lists in a file.
    #[must_use]
    pub fn new(file: ReceivedFile) -> RightsReceiver {
        RightsReceiver {
            file,
            error: Arc::default(),
        }
    }

    /// The file of the list.
    pub(crate) fn file(&self) -> &ReceivedFile {
        &self.file
    }

    /// Reason why the last list was refused.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        self.error.lock().clone()
    }

    /// Number and digest of the stored list; 0 and nothing without one.
    pub(crate) fn known(&self) -> (u64, String) {
        match self.file.read() {
            Ok(Some(known)) => (known.list.number, digest(&known.bytes)),
            Ok(None) => (0, String::new()),
            Err(error) => {
                self.refused(&error.to_string());
                (0, String::new())
            }
        }
    }

    /// The sender was reached, and its list is the stored one unless it is refused next.
    pub(crate) fn reached(&self) {
        *self.error.lock() = None;
    }

    pub(crate) fn refused(&self, why: &str) {
        let mut error = self.error.lock();
        if error.as_deref() != Some(why) {
            tracing::warn!(
                why,
                "a list of rights is refused; the list before stays in force"
            );
        }
        *error = Some(why.to_owned());
    }

    /// Stores a list that was heard over a bus, which is not trusted: the node must have a list, or
    /// the key that came when it joined. True for a list that is new here.
    #[must_use]
    pub fn take_heard(&self, bytes: &[u8], pin: Option<&str>) -> bool {
        if pin.is_none() && self.known().0 == 0 {
            self.refused(
                "a list of rights was heard over the bus, and this node has no key to check it by: it needs a list by the connection to its cloud first",
            );
            return false;
        }
        self.take(bytes, pin) == Stored::New
    }

    /// Stores a list, which is trusted before the first one by `pin`.
    pub(crate) fn take(&self, bytes: &[u8], pin: Option<&str>) -> Stored {
        let pin = pin.and_then(from_hex);
        let error = match self.file.take(bytes, pin.as_ref()) {
            Ok(is_new) => {
                *self.error.lock() = None;
                return if is_new { Stored::New } else { Stored::Known };
            }
            Err(error) => error,
        };
        self.refused(&error.to_string());
        match error {
            TakeError::File(_) => Stored::Failed,
            _ => Stored::Refused,
        }
    }
}

/// Checks a key of an edge that the cloud has sent.
pub(crate) fn checked_key(key: &str) -> Result<(), ClusterError> {
    let digits = key.strip_prefix("hwe_").and_then(from_hex);
    match digits {
        Some(_) => Ok(()),
        None => Err(ClusterError::new(
            ClusterErrorKind::Invalid,
            "the cloud has sent a next key that is none",
        )),
    }
}
