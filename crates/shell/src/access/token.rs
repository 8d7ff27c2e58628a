//! One token: its creation, reading it from a request, and recognising it.
//!
//! Invariants: a token is 256 bits from the system's generator; only its SHA-256 is stored, which
//! suffices for a secret that cannot be guessed; hashes are compared in constant time.

use axum::extract::Query;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Uri};
use data_encoding::{BASE64_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use sha2::{Digest, Sha256};

/// Prefix of a token, so that scanners for leaked secrets find it.
pub const PREFIX: &str = "hw_";

/// The SHA-256 of a token's text.
pub type Hash = [u8; 32];

/// The hash of a token's text.
#[must_use]
pub fn hash(token: &str) -> Hash {
    Sha256::digest(token.as_bytes()).into()
}

/// Random bytes from the system's generator.
fn random_bytes<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0u8; N];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

/// Fills in random bytes from the system's generator, which cannot be guessed.
///
/// # Errors
/// When the system cannot supply random bytes.
pub fn fill_random(bytes: &mut [u8]) -> std::io::Result<()> {
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(bytes)
        .map_err(|_| std::io::Error::other("the system gave no random bytes"))
}

/// Random bytes from the system's generator, as hexadecimal text.
///
/// # Errors
/// When the system cannot supply random bytes.
pub fn random_hex<const N: usize>() -> std::io::Result<String> {
    random_bytes::<N>().map(|bytes| hex(&bytes))
}

/// Bytes as hexadecimal text.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Reads a hash from its hexadecimal text.
#[must_use]
pub fn from_hex(text: &str) -> Option<Hash> {
    HEXLOWER_PERMISSIVE
        .decode(text.as_bytes())
        .ok()?
        .try_into()
        .ok()
}

/// The token a request carries.
#[derive(Debug, PartialEq, Eq)]
pub enum Carried {
    /// The header is missing.
    Missing,
    /// The header is malformed.
    Garbled,
    /// The header has this token.
    Token(String),
}

/// Reads `Authorization: Bearer T`, `Token T` (as clients of InfluxDB 2 send it) or `Basic` with
/// the token as the password.
pub fn carried(headers: &HeaderMap) -> Carried {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return Carried::Missing;
    };
    let read = || {
        let (scheme, rest) = value.to_str().ok()?.trim().split_once(' ')?;
        let rest = rest.trim();
        if scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("token") {
            // Clients of InfluxDB 1.8 send `Token user:password`; the password is the token then.
            let token = rest.rsplit_once(':').map_or(rest, |(_, token)| token);
            return Some(token.to_owned());
        }
        if scheme.eq_ignore_ascii_case("basic") {
            let decoded = String::from_utf8(base64(rest)?).ok()?;
            return Some(decoded.split_once(':')?.1.to_owned());
        }
        None
    };
    read().map_or(Carried::Garbled, Carried::Token)
}

/// Reads the password of `u=USER&p=PASSWORD` in an address, as clients of InfluxDB 1 send it.
pub fn carried_in_address(uri: &Uri) -> Carried {
    let parameters = Query::<Vec<(String, String)>>::try_from_uri(uri);
    let Ok(Query(parameters)) = parameters else {
        return Carried::Missing;
    };
    let password = parameters
        .into_iter()
        .find(|(name, value)| name == "p" && !value.is_empty());
    password.map_or(Carried::Missing, |(_, token)| Carried::Token(token))
}

/// Decodes standard base64 with or without padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    BASE64_NOPAD
        .decode(text.trim_end_matches('=').as_bytes())
        .ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_token_is_the_password_of_an_address() {
        for (address, wanted) in [
            (
                "/query?u=any&p=hw_a%2Bb&q=x",
                Carried::Token("hw_a+b".into()),
            ),
            ("/query?p=hw_a", Carried::Token("hw_a".into())),
            ("/query?u=any&p=", Carried::Missing),
            ("/query?u=any", Carried::Missing),
            ("/query", Carried::Missing),
        ] {
            assert_eq!(
                carried_in_address(&address.parse().unwrap()),
                wanted,
                "{address}"
            );
        }
    }

    #[test]
    fn tokens_are_read_from_all_three_schemes() {
        for (value, wanted) in [
            ("Bearer hw_a", Carried::Token("hw_a".into())),
            ("bearer  hw_a ", Carried::Token("hw_a".into())),
            ("Token hw_a", Carried::Token("hw_a".into())),
            ("Token user:hw_a", Carried::Token("hw_a".into())),
            // user:hw_a
            ("Basic dXNlcjpod19h", Carried::Token("hw_a".into())),
            // :hw_ab
            ("Basic Omh3X2Fi", Carried::Token("hw_ab".into())),
            ("Basic Omh3X2E=", Carried::Token("hw_a".into())),
            ("Basic dXNlcg==", Carried::Garbled),
            ("Basic !!", Carried::Garbled),
            ("Basic A", Carried::Garbled),
            ("Digest x", Carried::Garbled),
            ("hw_a", Carried::Garbled),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            assert_eq!(carried(&headers), wanted, "{value}");
        }
        assert_eq!(carried(&HeaderMap::new()), Carried::Missing);
    }

    #[test]
    fn hashes_go_to_text_and_back() {
        let hash = hash("hw_x");
        assert_eq!(from_hex(&hex(&hash)), Some(hash));
        assert_eq!(from_hex("00"), None);
        assert_eq!(from_hex(&"+1".repeat(32)), None);
    }

    #[test]
    fn random_tokens_differ() {
        let (a, b) = (random_hex::<32>().unwrap(), random_hex::<32>().unwrap());
        assert_eq!(a.len(), 64);
        assert_ne!(a, b);
    }
}
