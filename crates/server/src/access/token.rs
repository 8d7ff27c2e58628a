//! One token: how it is made, read from a request, and recognised.
//!
//! Invariants: a token is 256 bits from the system's generator; only its SHA-256 is kept, which suffices for a secret that
//! cannot be guessed; hashes are compared in constant time.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// What a token begins with, so that scanners for leaked secrets find it.
pub(crate) const PREFIX: &str = "hw_";

/// The SHA-256 of a token's text.
pub(crate) type Hash = [u8; 32];

pub(crate) fn hash(token: &str) -> Hash {
    Sha256::digest(token.as_bytes()).into()
}

/// Random bytes from the system's generator.
pub(crate) fn random_bytes<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0u8; N];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

/// Fills in random bytes from the system's generator.
pub(crate) fn fill_random(bytes: &mut [u8]) -> std::io::Result<()> {
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(bytes)
        .map_err(|_| std::io::Error::other("the system gave no random bytes"))
}

/// The same as hexadecimal text.
pub(crate) fn random_hex<const N: usize>() -> std::io::Result<String> {
    random_bytes::<N>().map(|bytes| hex(&bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

pub(crate) fn from_hex(text: &str) -> Option<Hash> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut hash = [0u8; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        // `from_str_radix` takes a sign too.
        if !pair.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(hash)
}

/// The token a request carries.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// There is no such header.
    Nothing,
    /// There is one that is not understood.
    Garbled,
    /// This one.
    Token(String),
}

/// Reads `Authorization: Bearer T`, `Token T` (as clients of InfluxDB 2 send it) or `Basic` with the token as the password.
pub(crate) fn carried(headers: &HeaderMap) -> Carried {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return Carried::Nothing;
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

/// Decodes standard base64 with or without padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for digit in group {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * (4 - group.len());
        let [_, a, b, c] = bits.to_be_bytes();
        match group.len() {
            4 => bytes.extend([a, b, c]),
            3 => bytes.extend([a, b]),
            2 => bytes.push(a),
            _ => return None,
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

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
        assert_eq!(carried(&HeaderMap::new()), Carried::Nothing);
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
