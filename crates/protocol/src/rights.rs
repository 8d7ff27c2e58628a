//! The signed list of rights of a cloud, which travels to edges, dispatchers and other clouds.
//!
//! Invariants: a list is believed for the signature of a key that the receiver trusts, or to which
//! a chain of signed rotations leads from such a key. An encoded list is decoded to an equal one;
//! malformed bytes are refused as a whole, and sizes are bounded before they are read.
//! Concurrency: plain data.
//! Failure: [`RightsError`] states what is wrong; nothing of a refused list is used.
//! Format: docs/format/rights.md.

use crate::signature::{PublicKey, SIGNATURE_BYTES, SigningKey, is_signed_by, split};
use headwater_codec::{Cursor, DecodeError, PutBytes};
use std::collections::BTreeSet;

/// Largest encoded list in bytes.
pub const RIGHTS_BYTES_MAX: usize = 1 << 20;
/// Most tokens of a list, and most removed tokens that it names.
pub const RIGHTS_TOKENS_MAX: u64 = 1_000;
/// Most rotations of a list: older ones are left out.
pub const ROTATIONS_MAX: usize = 64;
/// Most rules of a token.
const RULES_MAX: u64 = 1_000;
/// Longest rule in bytes.
const RULE_BYTES_MAX: usize = 4_096;
/// Longest name of a token in bytes.
const NAME_BYTES_MAX: usize = 200;
/// Longest id of a token.
const ID_BYTES_MAX: usize = 32;

const VERSION: u8 = 1;
/// Prefix of the signed bytes of a list.
const CONTEXT: &[u8] = b"headwater rights 1\n";
/// Prefix of the signed bytes of a rotation.
const ROTATION_CONTEXT: &[u8] = b"headwater rights key 1\n";

/// Reason for refusing a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RightsError {
    /// The bytes are not a list.
    #[error("not a valid list of rights: {0}")]
    Garbled(#[from] DecodeError),
    /// The list is too large.
    #[error("the list of rights has {0} bytes, and at most {RIGHTS_BYTES_MAX} are allowed")]
    Large(usize),
    /// A signature of the list or of a rotation is not valid.
    #[error("the list of rights is not signed by the key that it names")]
    Signature,
    /// No trusted key leads to the key that signed it.
    #[error("the list of rights is signed by a key that is not trusted here")]
    Key,
}

/// A token of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RightsToken {
    /// Identifies the token in logs and tickets.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// SHA-256 of its text.
    pub hash: [u8; 32],
    /// Creation time, in nanoseconds since 1970.
    pub created_ns: i64,
    /// Instant from which on the token is invalid.
    pub expires_ns: Option<i64>,
    /// Rights of the token, as text.
    pub rules: Vec<String>,
}

/// A change of the key that signs lists, signed by the key before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The next key.
    pub to: PublicKey,
    /// Number of the first list that names it.
    pub number: u64,
    /// Signature by the key before.
    pub signature: [u8; SIGNATURE_BYTES],
}

/// Keys of a cloud, the oldest first, each signed by the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChain {
    /// The oldest key.
    pub first: PublicKey,
    /// The keys after it.
    pub rotations: Vec<Rotation>,
}

fn rotation_bytes(cloud: u64, from: &PublicKey, to: &PublicKey, number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u64(cloud);
    bytes.extend_from_slice(from);
    bytes.extend_from_slice(to);
    bytes.put_u64(number);
    bytes
}

impl KeyChain {
    /// A chain of one key.
    #[must_use]
    pub fn new(first: PublicKey) -> KeyChain {
        KeyChain {
            first,
            rotations: Vec::new(),
        }
    }

    /// The newest key.
    #[must_use]
    pub fn newest(&self) -> &PublicKey {
        self.rotations.last().map_or(&self.first, |last| &last.to)
    }

    /// All keys, the oldest first.
    pub fn keys(&self) -> impl Iterator<Item = &PublicKey> {
        std::iter::once(&self.first).chain(self.rotations.iter().map(|rotation| &rotation.to))
    }

    /// Adds the next key, signed by `signer`, which is the newest one.
    pub fn rotate(&mut self, cloud: u64, signer: &SigningKey, to: PublicKey, number: u64) {
        let mut bytes = rotation_bytes(cloud, self.newest(), &to, number);
        signer.sign(ROTATION_CONTEXT, &mut bytes);
        let mut signature = [0; SIGNATURE_BYTES];
        if let Some((_, given)) = split(&bytes) {
            signature.copy_from_slice(given);
        }
        self.rotations.push(Rotation {
            to,
            number,
            signature,
        });
        while self.rotations.len() > ROTATIONS_MAX {
            self.first = self.rotations.remove(0).to;
        }
    }

    /// True when each key is signed by the one before.
    fn is_signed(&self, cloud: u64) -> bool {
        let mut from = &self.first;
        for rotation in &self.rotations {
            let bytes = rotation_bytes(cloud, from, &rotation.to, rotation.number);
            if !is_signed_by(from, ROTATION_CONTEXT, &bytes, &rotation.signature) {
                return false;
            }
            from = &rotation.to;
        }
        true
    }

    fn position(&self, key: &PublicKey) -> Option<usize> {
        self.keys().position(|known| known == key)
    }
}

/// The list of rights of a cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RightsList {
    /// Increases with every change of the list and of its keys.
    pub number: u64,
    /// Identity of the cloud's database.
    pub cloud: u64,
    /// Keys of the cloud.
    pub keys: KeyChain,
    /// Position in the chain of the key that signs this list.
    pub signer: usize,
    /// The tokens.
    pub tokens: Vec<RightsToken>,
    /// Removed tokens, the newest last: the id, and the first number of the list without it.
    pub removed: Vec<(String, u64)>,
}

fn is_id(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric())
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

fn array<const N: usize>(
    from: &mut Cursor<'_>,
    expected: &'static str,
) -> Result<[u8; N], DecodeError> {
    let taken = from.take(N, expected)?;
    <[u8; N]>::try_from(taken).map_err(|_| from.expected(expected))
}

impl RightsList {
    /// The key that signs this list.
    #[must_use]
    pub fn signing_key(&self) -> &PublicKey {
        let key = self.keys.keys().nth(self.signer);
        key.unwrap_or_else(|| self.keys.newest())
    }

    /// Encoded list without its signature.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.put_u64(self.number);
        out.put_u64(self.cloud);
        out.extend_from_slice(&self.keys.first);
        out.put_varint(count(self.keys.rotations.len()));
        for rotation in &self.keys.rotations {
            out.extend_from_slice(&rotation.to);
            out.put_u64(rotation.number);
            out.extend_from_slice(&rotation.signature);
        }
        out.put_varint(count(self.signer));
        out.put_varint(count(self.tokens.len()));
        for token in &self.tokens {
            out.put_prefixed(token.id.as_bytes());
            out.put_prefixed(token.name.as_bytes());
            out.extend_from_slice(&token.hash);
            out.put_i64(token.created_ns);
            out.put_u8(u8::from(token.expires_ns.is_some()));
            if let Some(ends) = token.expires_ns {
                out.put_i64(ends);
            }
            out.put_varint(count(token.rules.len()));
            for rule in &token.rules {
                out.put_prefixed(rule.as_bytes());
            }
        }
        out.put_varint(count(self.removed.len()));
        for (id, number) in &self.removed {
            out.put_prefixed(id.as_bytes());
            out.put_u64(*number);
        }
        out
    }

    /// Decodes the bytes of [`RightsList::encode`].
    ///
    /// # Errors
    /// If the bytes are not a valid list.
    pub fn decode(body: &[u8]) -> Result<RightsList, DecodeError> {
        let mut from = Cursor::new(body);
        if from.u8("a version")? != VERSION {
            return Err(from.expected("version 1"));
        }
        let number = from.u64("the number of the list")?;
        let cloud = from.u64("the identity of the cloud")?;
        let keys = chain(&mut from)?;
        let last = count(keys.rotations.len());
        let signer = from.varint_up_to(last, "the position of the signing key")?;
        let tokens = tokens(&mut from)?;
        let mut removed = Vec::new();
        let mut ids = BTreeSet::new();
        let most = RIGHTS_TOKENS_MAX;
        for _ in 0..from.varint_up_to(most, "the number of removed tokens")? {
            let id = from.text("the id of a removed token")?;
            if !is_id(id) || !ids.insert(id) {
                return Err(from.expected("the id of a removed token, once"));
            }
            removed.push((id.to_owned(), from.u64("the list without it")?));
        }
        if tokens.iter().any(|token| ids.contains(token.id.as_str())) {
            return Err(from.expected("no removed token among the tokens"));
        }
        from.finish()?;
        Ok(RightsList {
            number,
            cloud,
            keys,
            signer,
            tokens,
            removed,
        })
    }

    /// The list with its signature.
    ///
    /// # Errors
    /// `Large`; `Garbled` if a part of the list has no valid encoding; `Key` if the key is not the
    /// one that the list names.
    pub fn sign(&self, key: &SigningKey) -> Result<Vec<u8>, RightsError> {
        if self.signing_key() != &key.public() {
            return Err(RightsError::Key);
        }
        let mut bytes = self.encode();
        RightsList::decode(&bytes)?;
        key.sign(CONTEXT, &mut bytes);
        match bytes.len() <= RIGHTS_BYTES_MAX {
            true => Ok(bytes),
            false => Err(RightsError::Large(bytes.len())),
        }
    }

    /// Reads a signed list, whose signatures are those of the keys that it names. Whether these are
    /// trusted is said by [`RightsList::is_trusted_by`].
    ///
    /// # Errors
    /// `Large`, `Garbled`, `Signature`.
    pub fn read(bytes: &[u8]) -> Result<RightsList, RightsError> {
        if bytes.len() > RIGHTS_BYTES_MAX {
            return Err(RightsError::Large(bytes.len()));
        }
        let (body, signature) = split(bytes).ok_or(RightsError::Signature)?;
        let list = RightsList::decode(body)?;
        let is_signed = list.keys.is_signed(list.cloud)
            && is_signed_by(list.signing_key(), CONTEXT, body, signature);
        is_signed.then_some(list).ok_or(RightsError::Signature)
    }

    /// True when the signing key is this key, or a later one to which rotations lead from it.
    #[must_use]
    pub fn is_trusted_by(&self, key: &PublicKey) -> bool {
        let known = self.keys.position(key);
        known.is_some_and(|known| known <= self.signer)
    }
}

fn chain(from: &mut Cursor<'_>) -> Result<KeyChain, DecodeError> {
    let mut keys = KeyChain::new(array(from, "the first key")?);
    for _ in 0..from.varint_up_to(count(ROTATIONS_MAX), "the number of rotations")? {
        let rotation = Rotation {
            to: array(from, "the next key")?,
            number: from.u64("the list of a rotation")?,
            signature: array(from, "the signature of a rotation")?,
        };
        if keys.position(&rotation.to).is_some() {
            return Err(from.expected("a key that was not used before"));
        }
        keys.rotations.push(rotation);
    }
    Ok(keys)
}

fn tokens(from: &mut Cursor<'_>) -> Result<Vec<RightsToken>, DecodeError> {
    let mut tokens: Vec<RightsToken> = Vec::new();
    let (mut ids, mut hashes) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..from.varint_up_to(RIGHTS_TOKENS_MAX, "the number of tokens")? {
        let id = from.text("the id of a token")?;
        if !is_id(id) || !ids.insert(id) {
            return Err(from.expected("the id of a token, once"));
        }
        let name = from.text("the name of a token")?;
        if !is_name(name) {
            return Err(from.expected("the name of a token"));
        }
        let hash = array(from, "the hash of a token")?;
        if !hashes.insert(hash) {
            return Err(from.expected("the hash of a token, once"));
        }
        let created_ns = from.i64("the creation time")?;
        let expires_ns = match from.u8("whether the token expires")? {
            0 => None,
            1 => Some(from.i64("the expiry")?),
            _ => return Err(from.expected("0 or 1: whether the token expires")),
        };
        let mut rules = Vec::new();
        for _ in 0..from.varint_up_to(RULES_MAX, "the number of rules")? {
            let rule = from.text("a rule")?;
            if rule.len() > RULE_BYTES_MAX {
                return Err(from.expected("a rule of at most 4,096 bytes"));
            }
            rules.push(rule.to_owned());
        }
        tokens.push(RightsToken {
            id: id.to_owned(),
            name: name.to_owned(),
            hash,
            created_ns,
            expires_ns,
            rules,
        });
    }
    Ok(tokens)
}
