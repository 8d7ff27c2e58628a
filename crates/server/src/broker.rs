//! Connecting to an MQTT broker: settings as the client takes them.
//!
//! Invariant: passwords and certificates are read anew for each connection.
//! Failure: what cannot be read is told with its setting and its file.

use crate::settings::Mqtt;
use rumqttc::v5::MqttOptions;
use rumqttc::{NetworkOptions, TlsConfiguration, Transport};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;

/// Seconds until a connection that is not answered is given up.
const CONNECT_SECONDS: u64 = 10;

/// What to connect with, read anew from files. `section` is where the settings stand: `mqtt`.
///
/// # Errors
/// Names the setting and the file that cannot be used.
pub(crate) fn options(section: &str, settings: &Mqtt) -> Result<MqttOptions, String> {
    let Some(broker) = &settings.broker else {
        return Err(format!("no broker is set ({section}.broker)"));
    };
    let mut options = MqttOptions::new(&settings.client_id, &broker.host, broker.port);
    options.set_keep_alive(settings.keep_alive);
    options.set_connection_timeout(CONNECT_SECONDS);
    // The session outlives connections, so that the broker keeps messages.
    options.set_clean_start(false);
    let expiry = u32::try_from(settings.session_expiry.as_secs()).unwrap_or(u32::MAX);
    options.set_session_expiry_interval(Some(expiry));
    options.set_receive_maximum(Some(settings.receive_max));
    options.set_max_packet_size(Some(u32::try_from(settings.packet_max).unwrap_or(u32::MAX)));
    options.set_manual_acks(true);
    if !settings.user.is_empty() {
        options.set_credentials(&settings.user, password(section, settings)?);
    }
    if broker.tls {
        let config = TlsConfiguration::Rustls(Arc::new(tls(section, settings)?));
        options.set_transport(Transport::Tls(config));
    }
    let mut network = NetworkOptions::new();
    // Acknowledgements are small, and the broker waits for them.
    network.set_tcp_nodelay(true);
    options.set_network_options(network);
    Ok(options)
}

fn password(section: &str, settings: &Mqtt) -> Result<String, String> {
    let Some(path) = &settings.password_file else {
        return Ok(settings.password.reveal().to_owned());
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("{section}.password_file {}: {error}", path.display()))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

fn tls(section: &str, settings: &Mqtt) -> Result<ClientConfig, String> {
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
            // Those that cannot be read are no use to others either; none at all is an error.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(format!(
                    "this system trusts no certificates: name the broker's issuer with {section}.ca"
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
            "{setting} {}: there is no certificate in it",
            path.display()
        )),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("{setting} {}: {error}", path.display())),
    }
}
