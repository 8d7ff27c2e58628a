//! Keys that sign the list of rights at a cloud: `DIR/rights.keys`.
//!
//! Invariants: each key is signed by the one before. A rotation takes effect with the next number
//! of the list; until the end of its overlap the key before signs, and both are accepted. Only
//! secrets that are going to sign are stored. Concurrency: the file is replaced whole; commands are
//! serialised by the lock of the tokens. Failure: an error names the file. Format:
//! docs/format/rights.md.

use crate::access::token::{fill_random, from_hex, hex};
use crate::access::tokens::{TokenError, TokenFile, Tokens};
use crate::private::replace_private;
use data_encoding::HEXLOWER_PERMISSIVE;
use headwater_protocol::rights::{KeyChain, RightsError, Rotation};
use headwater_protocol::signature::{PublicKey, SIGNATURE_BYTES, SigningKey};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "rights.keys";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRotation {
    to: String,
    number: u64,
    signature: String,
    ends: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSeed {
    key: String,
    seed: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredKeys {
    version: u32,
    cloud: String,
    first: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rotations: Vec<StoredRotation>,
    seeds: Vec<StoredSeed>,
}

/// The keys of a cloud.
pub struct RightsKeys {
    path: PathBuf,
    cloud: u64,
    chain: KeyChain,
    /// End of the overlap of each rotation.
    ends: Vec<Timestamp>,
    seeds: Vec<(PublicKey, [u8; 32])>,
}

impl std::fmt::Debug for RightsKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RightsKeys")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// A key and its use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyStatus {
    /// The key that signs now.
    pub signs: PublicKey,
    /// The next key, and the end of the overlap.
    pub next: Option<(PublicKey, Timestamp)>,
    /// Number of stored rotations.
    pub rotations: usize,
}

fn io_error(path: &Path, source: io::Error) -> TokenError {
    TokenError::Io {
        path: path.display().to_string(),
        source,
    }
}

fn new_key() -> io::Result<(PublicKey, [u8; 32])> {
    let mut seed = [0; 32];
    fill_random(&mut seed)?;
    let key = SigningKey::of_seed(&seed);
    let key = key.ok_or_else(|| io::Error::other("the system gave no seed of a key"))?;
    Ok((key.public(), seed))
}

/// Number that the next version of the list has.
fn next_number(tokens: &Tokens) -> u64 {
    tokens.list().saturating_add(1)
}

impl RightsKeys {
    /// The file in a database's directory.
    #[must_use]
    pub fn path_in(dir: &Path) -> PathBuf {
        dir.join(FILE)
    }

    /// Reads the keys; `None` if there are none.
    ///
    /// # Errors
    /// When the file cannot be read, or its content is not as written by this program.
    pub fn read(dir: &Path) -> Result<Option<RightsKeys>, TokenError> {
        let path = RightsKeys::path_in(dir);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(io_error(&path, source)),
        };
        let damaged = |reason: String| TokenError::DamagedKeys {
            path: path.display().to_string(),
            reason,
        };
        let stored: StoredKeys =
            serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
        if stored.version != VERSION {
            return Err(damaged(format!(
                "it has version {}; this program reads version {VERSION}",
                stored.version
            )));
        }
        let key = |text: &str| from_hex(text).ok_or_else(|| damaged("not a key".to_owned()));
        let cloud = u64::from_str_radix(&stored.cloud, 16);
        let cloud = cloud.map_err(|_| damaged("`cloud` is not a number".to_owned()))?;
        let mut chain = KeyChain::new(key(&stored.first)?);
        let mut ends = Vec::new();
        for rotation in &stored.rotations {
            let signature = HEXLOWER_PERMISSIVE.decode(rotation.signature.as_bytes());
            let signature = signature.ok().and_then(|bytes| bytes.try_into().ok());
            let signature: [u8; SIGNATURE_BYTES] =
                signature.ok_or_else(|| damaged("not a signature".to_owned()))?;
            chain.rotations.push(Rotation {
                to: key(&rotation.to)?,
                number: rotation.number,
                signature,
            });
            let end = rotation.ends.parse::<Timestamp>();
            ends.push(end.map_err(|e| damaged(format!("`ends`: {e}")))?);
        }
        let seeds = stored
            .seeds
            .iter()
            .map(|seed| Ok((key(&seed.key)?, key(&seed.seed)?)));
        let seeds = seeds.collect::<Result<_, TokenError>>()?;
        Ok(Some(RightsKeys {
            path,
            cloud,
            chain,
            ends,
            seeds,
        }))
    }

    /// Reads the keys of the cloud with this database, which are made at the first start.
    ///
    /// # Errors
    /// When the file cannot be read or written, or belongs to another database.
    pub fn open(dir: &Path, cloud: u64) -> Result<RightsKeys, TokenError> {
        if let Some(keys) = RightsKeys::read(dir)? {
            return match keys.cloud == cloud {
                true => Ok(keys),
                false => Err(TokenError::DamagedKeys {
                    path: keys.path.display().to_string(),
                    reason: format!("it belongs to the database {:016x}", keys.cloud),
                }),
            };
        }
        let path = RightsKeys::path_in(dir);
        let (key, seed) = new_key().map_err(|e| io_error(&path, e))?;
        let keys = RightsKeys {
            path,
            cloud,
            chain: KeyChain::new(key),
            ends: Vec::new(),
            seeds: vec![(key, seed)],
        };
        keys.write()?;
        Ok(keys)
    }

    fn write(&self) -> Result<(), TokenError> {
        let rotations = self.chain.rotations.iter().zip(&self.ends);
        let rotations = rotations.map(|(rotation, ends)| StoredRotation {
            to: hex(&rotation.to),
            number: rotation.number,
            signature: hex(&rotation.signature),
            ends: ends.to_string(),
        });
        let seeds = self.seeds.iter().map(|(key, seed)| StoredSeed {
            key: hex(key),
            seed: hex(seed),
        });
        let stored = StoredKeys {
            version: VERSION,
            cloud: format!("{:016x}", self.cloud),
            first: hex(&self.chain.first),
            rotations: rotations.collect(),
            seeds: seeds.collect(),
        };
        let text = serde_json::to_vec_pretty(&stored).map_err(io::Error::from);
        let written = text.and_then(|text| replace_private(&self.path, &text));
        written.map_err(|e| io_error(&self.path, e))
    }

    /// Number of rotations that a list with this number has.
    fn in_effect(&self, number: u64) -> usize {
        let rotations = self.chain.rotations.iter();
        rotations.take_while(|r| r.number <= number).count()
    }

    /// Position of the signing key for a list with this number.
    fn signer(&self, number: u64, now: Timestamp) -> usize {
        let count = self.in_effect(number);
        let Some(last) = count.checked_sub(1) else {
            return 0;
        };
        match self.ends.get(last) {
            Some(end) if *end > now => last,
            _ => count,
        }
    }

    fn key(&self, at: usize) -> Option<PublicKey> {
        self.chain.keys().nth(at).copied()
    }

    /// The keys in use for the present list.
    #[must_use]
    pub fn status(&self, tokens: &Tokens, now: Timestamp) -> KeyStatus {
        let number = tokens.list();
        let at = self.signer(number, now);
        let next = self.key(at + 1).zip(self.ends.get(at).copied());
        KeyStatus {
            signs: self.key(at).unwrap_or(self.chain.first),
            next: next.filter(|_| at < self.in_effect(number)),
            rotations: self.chain.rotations.len(),
        }
    }

    /// The key that signs, for an edge that joins.
    #[must_use]
    pub fn signing_key(&self, tokens: &Tokens, now: Timestamp) -> PublicKey {
        self.status(tokens, now).signs
    }

    /// The signed list of these tokens.
    ///
    /// # Errors
    /// When the list is too large, has a token without a valid encoding, or the secret of the
    /// signing key is missing.
    pub fn sign(&self, tokens: &Tokens, now: Timestamp) -> Result<Vec<u8>, RightsError> {
        let number = tokens.list();
        let mut chain = self.chain.clone();
        chain.rotations.truncate(self.in_effect(number));
        let signer = self.signer(number, now);
        let list = tokens.rights(self.cloud, chain, signer);
        let seed = self.seeds.iter().find(|(key, _)| key == list.signing_key());
        let key = seed.and_then(|(_, seed)| SigningKey::of_seed(seed));
        list.sign(&key.ok_or(RightsError::Key)?)
    }

    /// Begins a rotation to a new key: the next list names it, signed by the key before, and after
    /// the overlap the new key signs. Returns the new key.
    ///
    /// # Errors
    /// `Rotating` while another overlap lasts, unless `overlap` is zero; when there is no list of
    /// tokens, or a file cannot be read or written.
    pub fn rotate(file: &TokenFile, overlap: SignedDuration) -> Result<PublicKey, TokenError> {
        file.bump(|dir, tokens, now| {
            let keys = RightsKeys::read(dir)?;
            let mut keys = keys.ok_or(TokenError::NoKeys)?;
            let number = next_number(tokens);
            if let Some(end) = keys.ends.iter().max().filter(|end| **end > now)
                && !overlap.is_zero()
            {
                return Err(TokenError::Rotating(end.to_string()));
            }
            let newest = *keys.chain.newest();
            let seed = keys.seeds.iter().find(|(key, _)| *key == newest);
            let signer = seed.and_then(|(_, seed)| SigningKey::of_seed(seed));
            let signer = signer.ok_or(TokenError::NoKeys)?;
            let (key, seed) = new_key().map_err(|e| io_error(&keys.path, e))?;
            let before = keys.signer(tokens.list(), now);
            let first = keys.key(before).into_iter();
            let needed: Vec<PublicKey> = first.chain([newest, key]).collect();
            keys.chain.rotate(keys.cloud, &signer, key, number);
            let ends = now.checked_add(overlap).unwrap_or(Timestamp::MAX);
            if overlap.is_zero() {
                keys.ends.iter_mut().for_each(|end| *end = (*end).min(now));
            }
            keys.ends.push(ends);
            let beyond = keys.ends.len().saturating_sub(keys.chain.rotations.len());
            keys.ends.drain(..beyond);
            keys.seeds.push((key, seed));
            keys.seeds.retain(|(key, _)| needed.contains(key));
            // Before the list: until the list has this number, the rotation is not named.
            keys.write()?;
            Ok(key)
        })
    }
}
