//! Certificates, and replacing them while the server runs.
//!
//! Invariant: connections use the newest readable certificate; an invalid certificate is reported
//! and ignored.

use parking_lot::RwLock;
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
    config: RwLock<Arc<ServerConfig>>,
    /// Modification times of the files at the last read.
    read: RwLock<[Option<SystemTime>; 2]>,
}

impl Certificate {
    /// Reads a certificate and its key, both in PEM.
    ///
    /// # Errors
    /// When one of the files cannot be read, or certificate and key do not match.
    pub fn read(cert: &Path, key: &Path) -> Result<Certificate, TlsError> {
        let read = changed(cert, key);
        let config = config(cert, key)?;
        Ok(Certificate {
            cert: cert.to_owned(),
            key: key.to_owned(),
            config: RwLock::new(config),
            read: RwLock::new(read),
        })
    }

    /// TLS settings for the next connection.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read())
    }

    /// TLS settings for the next connection of a protocol other than HTTP, by its name in ALPN.
    #[must_use]
    pub fn config_for(&self, protocol: &[u8]) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.config());
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    }

    /// Reads the files again if they have changed, or if `anyway`.
    pub fn refresh(&self, anyway: bool) {
        let now = changed(&self.cert, &self.key);
        if !anyway && *self.read.read() == now {
            return;
        }
        *self.read.write() = now;
        match config(&self.cert, &self.key) {
            Ok(config) => {
                *self.config.write() = config;
                tracing::info!(path = %self.cert.display(), "certificate read");
            }
            Err(error) => tracing::error!(%error, "the certificate read before stays in force"),
        }
    }
}

fn changed(cert: &Path, key: &Path) -> [Option<SystemTime>; 2] {
    [cert, key].map(|path| std::fs::metadata(path).and_then(|m| m.modified()).ok())
}

fn config(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let wrong = |path: &Path, reason: &dyn std::fmt::Display| TlsError {
        path: path.display().to_string(),
        reason: reason.to_string(),
    };
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(cert, &error))?;
    if chain.is_empty() {
        return Err(wrong(cert, &"there is no certificate in it"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(cert, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| wrong(cert, &format!("{error} (the key is {})", key.display())))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
