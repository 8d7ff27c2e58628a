//! Proof of a password without revealing it: SCRAM with SHA-1 or SHA-256 (RFC 5802, RFC 7677).
//!
//! Invariants: the server has to prove that it knows the password, too. Too few rounds, which would
//! make the password easy to guess, and too many, which only cost time, are refused. There is no
//! binding to a TLS channel. Concurrency: plain data. The rounds need some milliseconds of the
//! caller's time. Failure: [`ScramError`].

use data_encoding::BASE64;
use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;

const ROUNDS_MIN: u32 = 4_096;
const ROUNDS_MAX: u32 = 1_000_000;
/// Longest message of a server, in bytes.
const MESSAGE_MAX: usize = 4_096;
/// Channel header: channel binding is neither used nor supported.
const CHANNEL: &str = "n,,";

/// Reason why a proof cannot be computed, or is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScramError {
    /// The message is malformed.
    #[error("not a valid SCRAM message: expected {0}")]
    Message(&'static str),
    /// Too few or too many rounds.
    #[error("the server requires {0} iterations: expected {ROUNDS_MIN} to {ROUNDS_MAX}")]
    Rounds(u32),
    /// The nonce is not made from ours.
    #[error("the server's nonce does not begin with the client's")]
    Nonce,
    /// The server has not proven knowledge of the password.
    #[error("the server has not proven that it knows the password")]
    Server,
    /// The server refused the login.
    #[error("the server rejects the proof: {0}")]
    Refused(String),
    /// The name or the password would need a preparation that there is not here.
    #[error("names and passwords for XMPP must be ASCII")]
    Characters,
}

/// Which hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SHA-1, which every server has.
    Sha1,
    /// SCRAM with SHA-256.
    Sha256,
}

impl Hash {
    /// The name of the mechanism.
    #[must_use]
    pub fn mechanism(self) -> &'static str {
        match self {
            Hash::Sha1 => "SCRAM-SHA-1",
            Hash::Sha256 => "SCRAM-SHA-256",
        }
    }

    fn of_mac(self) -> hmac::Algorithm {
        match self {
            Hash::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Hash::Sha256 => hmac::HMAC_SHA256,
        }
    }

    fn of_bytes(self) -> &'static digest::Algorithm {
        match self {
            Hash::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Hash::Sha256 => &digest::SHA256,
        }
    }

    fn of_rounds(self) -> pbkdf2::Algorithm {
        match self {
            Hash::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
        }
    }
}

/// A proof in progress.
pub struct Scram {
    hash: Hash,
    password: String,
    nonce: String,
    first: String,
    /// The expected signature of the server, once the proof was made.
    expected_signature: Option<hmac::Tag>,
}

impl std::fmt::Debug for Scram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scram")
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

/// Whether a text needs no preparation (RFC 4013).
pub(crate) fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
}

impl Scram {
    /// For a name and a password; `nonce` is chance in printable characters without commas.
    ///
    /// # Errors
    /// When name or password have characters beyond ASCII.
    pub fn new(hash: Hash, user: &str, password: &str, nonce: &str) -> Result<Scram, ScramError> {
        if !is_plain(user) || !is_plain(password) {
            return Err(ScramError::Characters);
        }
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Ok(Scram {
            hash,
            password: password.to_owned(),
            nonce: nonce.to_owned(),
            first: format!("n={user},r={nonce}"),
            expected_signature: None,
        })
    }

    /// The first message.
    #[must_use]
    pub fn first(&self) -> String {
        format!("{CHANNEL}{}", self.first)
    }

    /// The answer to the server's challenge.
    ///
    /// # Errors
    /// If the challenge is malformed, or must not be answered.
    pub fn answer(&mut self, challenge: &str) -> Result<String, ScramError> {
        if self.expected_signature.is_some() {
            return Err(ScramError::Message("one challenge"));
        }
        if challenge.len() > MESSAGE_MAX {
            return Err(ScramError::Message("a short challenge"));
        }
        let mut parts = challenge.split(',');
        let mut part = |name: &str, what: &'static str| {
            let found = parts.next().and_then(|part| part.strip_prefix(name));
            found.ok_or(ScramError::Message(what))
        };
        let nonce = part("r=", "a nonce")?;
        let salt = part("s=", "salt")?;
        let rounds = part("i=", "a number of iterations")?;
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(&self.nonce) {
            return Err(ScramError::Nonce);
        }
        let salt = BASE64.decode(salt.as_bytes());
        let salt = salt.map_err(|_| ScramError::Message("salt in base64"))?;
        let rounds: u32 = rounds
            .parse()
            .map_err(|_| ScramError::Message("a number of iterations"))?;
        let count =
            NonZeroU32::new(rounds).filter(|n| (ROUNDS_MIN..=ROUNDS_MAX).contains(&n.get()));
        let count = count.ok_or(ScramError::Rounds(rounds))?;
        let size = self.hash.of_bytes().output_len();
        let mut salted = vec![0; size];
        pbkdf2::derive(
            self.hash.of_rounds(),
            count,
            &salt,
            self.password.as_bytes(),
            &mut salted,
        );
        let salted = hmac::Key::new(self.hash.of_mac(), &salted);
        let client = hmac::sign(&salted, b"Client Key");
        let stored = digest::digest(self.hash.of_bytes(), client.as_ref());
        let last = format!("c={},r={nonce}", BASE64.encode(CHANNEL.as_bytes()));
        let signed = format!("{},{challenge},{last}", self.first);
        let stored = hmac::Key::new(self.hash.of_mac(), stored.as_ref());
        let signature = hmac::sign(&stored, signed.as_bytes());
        let both = client.as_ref().iter().zip(signature.as_ref());
        let proof: Vec<u8> = both.map(|(a, b)| a ^ b).collect();
        let server = hmac::sign(&salted, b"Server Key");
        let server = hmac::Key::new(self.hash.of_mac(), server.as_ref());
        self.expected_signature = Some(hmac::sign(&server, signed.as_bytes()));
        Ok(format!("{last},p={}", BASE64.encode(&proof)))
    }

    /// Verifies the server's final message.
    ///
    /// # Errors
    /// Unless the server proves knowledge of the password.
    pub fn finish(&self, last: &str) -> Result<(), ScramError> {
        let wanted = self
            .expected_signature
            .as_ref()
            .ok_or(ScramError::Message("a challenge first"))?;
        if let Some(why) = last.strip_prefix("e=") {
            return Err(ScramError::Refused(why.chars().take(64).collect()));
        }
        let signature = last
            .split(',')
            .next()
            .and_then(|part| part.strip_prefix("v="));
        let signature = signature.ok_or(ScramError::Message("the server's signature"))?;
        let signature = BASE64.decode(signature.as_bytes());
        let signature = signature.map_err(|_| ScramError::Message("a signature in base64"))?;
        // Both sides know the password, so a timing difference reveals nothing.
        match signature == wanted.as_ref() {
            true => Ok(()),
            false => Err(ScramError::Server),
        }
    }
}
