//! Certificates, and replacing them while the server runs.
//!
//! Invariant: connections use the newest readable certificate, from their beginning to their end;
//! an invalid certificate is reported and ignored. A certificate that expires is reported each day
//! from thirty days before on. Concurrency: what was read is replaced whole.

use crate::validity::{Notice, Validity};
use headwater::Timestamp;
use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// A certificate or key that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct TlsError {
    /// The file.
    pub path: String,
    /// The defect.
    pub reason: String,
}

/// The certificate in force.
#[derive(Debug)]
pub struct Certificate {
    cert: PathBuf,
    key: PathBuf,
    loaded: RwLock<Loaded>,
    /// Modification times of the files at the last read.
    read: RwLock<[Option<SystemTime>; 2]>,
    /// The day and the certificate of the last notice about its expiry.
    noticed: Mutex<Option<(i64, Validity)>>,
}

/// Content of the last read.
#[derive(Clone, Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// Time in which the whole chain is valid.
    validity: Option<Validity>,
}

/// Nanoseconds of a day.
const DAY: i64 = 86_400 * 1_000_000_000;

impl Certificate {
    /// Reads a certificate and its key, both in PEM.
    ///
    /// # Errors
    /// When one of the files cannot be read, or certificate and key do not match.
    pub fn read(cert: &Path, key: &Path) -> Result<Certificate, TlsError> {
        let read = changed(cert, key);
        let loaded = load(cert, key)?;
        Ok(Certificate {
            cert: cert.to_owned(),
            key: key.to_owned(),
            loaded: RwLock::new(loaded),
            read: RwLock::new(read),
            noticed: Mutex::new(None),
        })
    }

    /// TLS settings for the next connection.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.loaded.read().config)
    }

    /// Time in which the certificate and those that sign it are valid, as far as it is known.
    #[must_use]
    pub fn validity(&self) -> Option<Validity> {
        self.loaded.read().validity
    }

    /// Reports once a day that the certificate expires within thirty days, or is not valid by the
    /// clock.
    pub(crate) fn report_expiry(&self, now: Timestamp) {
        let Some(validity) = self.validity() else {
            return;
        };
        let at = Some((now.as_nanos().div_euclid(DAY), validity));
        if std::mem::replace(&mut *self.noticed.lock(), at) == at {
            return;
        }
        let path = self.cert.display();
        match validity.notice(now) {
            None => {}
            Some(Notice::Ends(text)) => {
                tracing::warn!(%path, "the certificate of TLS expires soon: {text}; write the next one to this file, which is read while the server runs");
            }
            Some(Notice::Invalid(text)) => {
                tracing::error!(%path, "the certificate of TLS is not valid, and clients refuse it: {text}");
            }
        }
    }

    /// TLS settings for the next connection of a protocol other than HTTP, by its name in ALPN.
    #[must_use]
    pub fn config_for(&self, protocol: &[u8]) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.config());
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    }

    /// Reads the files again if they have changed, or if `force`.
    pub fn refresh(&self, force: bool) {
        let now = changed(&self.cert, &self.key);
        if !force && *self.read.read() == now {
            return;
        }
        *self.read.write() = now;
        match load(&self.cert, &self.key) {
            Ok(loaded) => {
                *self.loaded.write() = loaded;
                tracing::info!(path = %self.cert.display(), "certificate read");
            }
            Err(error) => {
                tracing::error!(%error, "the certificate cannot be read again: the previous one stays in force")
            }
        }
    }
}

fn changed(cert: &Path, key: &Path) -> [Option<SystemTime>; 2] {
    [cert, key].map(|path| std::fs::metadata(path).and_then(|m| m.modified()).ok())
}

fn load(cert: &Path, key: &Path) -> Result<Loaded, TlsError> {
    let wrong = |path: &Path, reason: &dyn std::fmt::Display| TlsError {
        path: path.display().to_string(),
        reason: reason.to_string(),
    };
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(cert, &error))?;
    if chain.is_empty() {
        return Err(wrong(cert, &"the file contains no certificate"));
    }
    let validity = Validity::together(chain.iter().map(AsRef::as_ref));
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(cert, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| wrong(cert, &format!("{error} (the key is {})", key.display())))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Loaded {
        config: Arc::new(config),
        validity,
    })
}
