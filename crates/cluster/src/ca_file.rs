//! File of certificates by which other nodes are verified.
//!
//! Invariant: the newest readable content counts, so that certificates are renewed without a
//! restart: the file lists the former and the next ones for a time. Concurrency: one lock, held
//! while the file is looked at. Failure: a file that cannot be read at the start is an error;
//! later, the last content stays in force, with a message in the log.

use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// A file of certificates in PEM.
#[derive(Debug)]
pub struct CaFile {
    path: PathBuf,
    read: Mutex<LastRead>,
}

#[derive(Debug)]
struct LastRead {
    modified: Option<SystemTime>,
    text: Arc<str>,
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|m| m.modified()).ok()
}

impl CaFile {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(path: &Path) -> std::io::Result<Arc<CaFile>> {
        // Before the content, so that a change between the two is read by the next look.
        let modified = modified(path);
        let text = std::fs::read_to_string(path)?.into();
        Ok(Arc::new(CaFile {
            path: path.to_owned(),
            read: Mutex::new(LastRead { modified, text }),
        }))
    }

    /// The certificates, read again if the file has changed.
    #[must_use]
    pub fn text(&self) -> Arc<str> {
        let mut read = self.read.lock();
        let now = modified(&self.path);
        if read.modified != now {
            read.modified = now;
            match std::fs::read_to_string(&self.path) {
                Ok(text) => read.text = text.into(),
                Err(error) => {
                    let path = self.path.display();
                    tracing::error!(%path, %error, "the certificates cannot be read again; the ones read last stay in force");
                }
            }
        }
        Arc::clone(&read.text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_changed_file_is_read_again_and_one_that_is_gone_stays_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        assert!(CaFile::read(&path).is_err());
        std::fs::write(&path, "first").unwrap();
        let file = CaFile::read(&path).unwrap();
        assert_eq!(&*file.text(), "first");
        std::fs::write(&path, "second").unwrap();
        let later = SystemTime::now() + Duration::from_secs(5);
        let open = std::fs::File::options().write(true).open(&path).unwrap();
        open.set_modified(later).unwrap();
        assert_eq!(&*file.text(), "second");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(&*file.text(), "second");
    }
}
