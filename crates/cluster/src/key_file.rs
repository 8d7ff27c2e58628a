//! File with the secret that a key for signatures of this node is derived from.
//!
//! Invariant: only the owner of the file may read it, and the file is complete or absent. Failure:
//! an error names the file and the expected format.

use headwater_shell::access::token::fill_random;
use headwater_shell::replace_private;
use std::path::Path;

/// Reads the secret, which is made at the first start.
///
/// # Errors
/// When the file can neither be read nor created, or has another format.
pub(crate) fn seed(path: &Path) -> Result<[u8; 32], String> {
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    match std::fs::read(path) {
        Ok(seed) => {
            let seed = <[u8; 32]>::try_from(seed);
            seed.map_err(|_| failed(&"expected 32 bytes; remove the file to generate a new key"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mut seed = [0; 32];
            fill_random(&mut seed).map_err(|e| failed(&e))?;
            if let Some(dir) = path.parent() {
                std::fs::create_dir_all(dir).map_err(|e| failed(&e))?;
            }
            replace_private(path, &seed).map_err(|e| failed(&e))?;
            Ok(seed)
        }
        Err(error) => Err(failed(&error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_key_is_made_once_and_a_damaged_one_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/notices.key");
        let made = seed(&path).unwrap();
        assert_eq!(seed(&path).unwrap(), made);
        std::fs::write(&path, [1; 31]).unwrap();
        let error = seed(&path).unwrap_err();
        assert!(
            error.contains("notices.key") && error.contains("32 bytes"),
            "{error}"
        );
    }
}
