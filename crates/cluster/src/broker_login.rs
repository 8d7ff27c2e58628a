//! Credentials for a broker: its password, and the TLS configuration.
//!
//! Invariant: both are read again for each connection.
//! Failure: an error names the setting and the file that cannot be read.

use crate::settings::BrokerLogin;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;

/// The password, without the line end of its file.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn password(section: &str, settings: &BrokerLogin) -> Result<String, String> {
    let Some(path) = &settings.password_file else {
        return Ok(settings.password.reveal().to_owned());
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("{section}.password_file {}: {error}", path.display()))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

/// TLS configuration for a broker.
///
/// # Errors
/// When a certificate or a key cannot be used, or no trusted certificate exists.
pub(crate) fn tls(section: &str, settings: &BrokerLogin) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match &settings.ca {
        Some(path) => {
            for certificate in certificates(&format!("{section}.ca"), path)? {
                roots
                    .add(certificate)
                    .map_err(|error| format!("{section}.ca {}: {error}", path.display()))?;
            }
        }
        None => {
            // Unparsable certificates are useless to other programs too; an empty store is an
            // error.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(format!(
                    "the system trust store has no certificates: set {section}.ca to the certificate of the broker's issuer"
                ));
            }
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?
        .with_root_certificates(roots);
    let (Some(cert), Some(key)) = (&settings.cert, &settings.key) else {
        return Ok(config.with_no_client_auth());
    };
    let chain = certificates(&format!("{section}.cert"), cert)?;
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| format!("{section}.key {}: {error}", key.display()))?;
    config
        .with_client_auth_cert(chain, private)
        .map_err(|error| format!("{section}.cert {}: {error}", cert.display()))
}

fn certificates(setting: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(format!(
            "{setting} {}: the file contains no certificate",
            path.display()
        )),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("{setting} {}: {error}", path.display())),
    }
}
