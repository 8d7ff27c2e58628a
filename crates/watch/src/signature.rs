//! Signatures of web hooks: HMAC with SHA-256 (RFC 2104).

use sha2::{Digest, Sha256};

const BLOCK: usize = 64;

/// HMAC-SHA256 of the concatenated parts.
#[must_use]
pub fn sign(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut padded = [0u8; BLOCK];
    let hashed: Vec<u8> = match key.len() > BLOCK {
        true => Sha256::digest(key).to_vec(),
        false => key.to_vec(),
    };
    for (to, from) in padded.iter_mut().zip(&hashed) {
        *to = *from;
    }
    let mut inner = Sha256::new();
    inner.update(padded.map(|byte| byte ^ 0x36));
    for part in parts {
        inner.update(part);
    }
    let mut outer = Sha256::new();
    outer.update(padded.map(|byte| byte ^ 0x5c));
    outer.update(inner.finalize());
    outer.finalize().into()
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4231_come_out() {
        let short = sign(b"Jefe", &[b"what do ya want ", b"for nothing?"]);
        assert_eq!(
            hex(&short),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let long = sign(
            &[0xaa; 131],
            &[b"Test Using Larger Than Block-Size Key - Hash Key First"],
        );
        assert_eq!(
            hex(&long),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }
}
