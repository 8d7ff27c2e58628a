//! Connection options of an MQTT broker, from the settings.
//!
//! Invariant: passwords and certificates are read again for each connection.
//! Failure: an error names the setting and the file that cannot be read.

use crate::broker_login::{password, tls};
use crate::settings::BrokerLogin;
use rumqttc::v5::MqttOptions;
use rumqttc::{NetworkOptions, TlsConfiguration, Transport};
use std::sync::Arc;

/// Seconds until an unanswered connection attempt is abandoned.
const CONNECT_SECONDS: u64 = 10;

/// Options of the client, from files read again. `section` names the section of the settings:
/// `mqtt`.
///
/// # Errors
/// Names the setting and the file that cannot be used.
pub fn options(section: &str, settings: &BrokerLogin) -> Result<MqttOptions, String> {
    let Some(broker) = &settings.broker else {
        return Err(format!("no broker is configured ({section}.broker)"));
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
