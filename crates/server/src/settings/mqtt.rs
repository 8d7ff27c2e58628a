//! Settings of the MQTT subscriber.
//!
//! The connection is configured with ordinary settings; the meaning of topics is a list,
//! `[[mqtt.subscription]]`, which is allowed only in the file ([`super::subscription`]).

use super::setting::{Codec, Setting, duration_within, size_within, within};
use super::subscription::Subscription;
use super::values::{parse_count, show_duration, show_size};
use super::{SettingError, Settings};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Longest time that MQTT expresses in seconds, which stands for no limit.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Broker, and the meaning of its messages.
#[derive(Debug, Clone)]
pub struct Mqtt {
    /// The broker; `None` = reception is off.
    pub broker: Option<Broker>,
    /// The name of this server's session at the broker.
    pub client_id: String,
    /// User name at the broker.
    pub user: String,
    /// The password, if it is not in a file.
    pub password: Secret,
    /// File with the password.
    pub password_file: Option<PathBuf>,
    /// CA certificates for verifying the broker, in PEM; `None` = certificates that the system
    /// trusts.
    pub ca: Option<PathBuf>,
    /// Client certificate.
    pub cert: Option<PathBuf>,
    /// Private key of the client certificate.
    pub key: Option<PathBuf>,
    /// Keep-alive interval of the connection.
    pub keep_alive: Duration,
    /// Time that the broker retains the session of a disconnected server.
    pub session_expiry: Duration,
    /// Maximum unacknowledged messages in flight.
    pub receive_max: u16,
    /// Largest packet in bytes.
    pub packet_max: usize,
    /// Maximum bytes of unacknowledged messages.
    pub bytes_max: usize,
    /// Meaning of topics, in order: the first match counts.
    pub subscriptions: Vec<Subscription>,
}

/// The address of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// TLS or not.
    pub tls: bool,
    /// Host name or address; an IPv6 address in brackets.
    pub host: String,
    /// Port of the broker.
    pub port: u16,
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "mqtts" } else { "mqtt" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

/// Text that is not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "hidden" })
    }
}

impl Default for Mqtt {
    fn default() -> Mqtt {
        Mqtt {
            broker: None,
            client_id: String::new(),
            user: String::new(),
            password: Secret::default(),
            password_file: None,
            ca: None,
            cert: None,
            key: None,
            keep_alive: Duration::from_secs(30),
            session_expiry: Duration::from_secs(7 * 86_400),
            receive_max: 1024,
            packet_max: 1 << 20,
            bytes_max: 32 << 20,
            subscriptions: Vec::new(),
        }
    }
}

pub(super) static TABLE: &[Setting] = &[
    Setting {
        key: "mqtt.broker",
        kind: "URL",
        allowed: "mqtt://HOST[:PORT], or mqtts://HOST[:PORT] for TLS; or nothing",
        about: "MQTT 5 broker to take messages from; what their topics mean is said by `[[mqtt.subscription]]` in the file. Ports are 1883 and 8883 unless given.",
        codec: Codec::Own {
            set: |s, text| {
                s.mqtt.broker = broker(text)?;
                Ok(())
            },
            show: |s| {
                s.mqtt
                    .broker
                    .as_ref()
                    .map_or_else(String::new, Broker::to_string)
            },
        },
    },
    Setting {
        key: "mqtt.client_id",
        kind: "NAME",
        allowed: "1 to 65535 bytes, or nothing",
        about: "Name of this server's session at the broker. No other client may have it, and it must stay the same, or messages kept for this server are lost.",
        codec: Codec::Own {
            set: |s, text| {
                if text.len() > 65_535 {
                    return Err("too long".to_owned());
                }
                text.clone_into(&mut s.mqtt.client_id);
                Ok(())
            },
            show: |s| s.mqtt.client_id.clone(),
        },
    },
    Setting {
        key: "mqtt.user",
        kind: "NAME",
        allowed: "a name, or nothing",
        about: "Name to log in to the broker with.",
        codec: Codec::Own {
            set: |s, text| {
                text.clone_into(&mut s.mqtt.user);
                Ok(())
            },
            show: |s| s.mqtt.user.clone(),
        },
    },
    Setting {
        key: "mqtt.password",
        kind: "TEXT",
        allowed: "a password, or nothing",
        about: "Password to log in to the broker with. Others on this machine see the flags of a process, so a file is the better place.",
        codec: Codec::Own {
            set: |s, text| {
                s.mqtt.password = Secret::new(text);
                Ok(())
            },
            show: |s| match s.mqtt.password.reveal() {
                "" => String::new(),
                _ => "(hidden)".to_owned(),
            },
        },
    },
    Setting {
        key: "mqtt.password_file",
        kind: "FILE",
        allowed: "a file, or nothing",
        about: "File that holds the password; a line end behind it does not count. Read at each connection.",
        codec: Codec::Own {
            set: |s, text| {
                s.mqtt.password_file = file(text);
                Ok(())
            },
            show: |s| shown(s.mqtt.password_file.as_ref()),
        },
    },
    Setting {
        key: "mqtt.ca",
        kind: "FILE",
        allowed: "a file in PEM, or nothing",
        about: "Certificates that the broker's must be signed by; without it those that the system trusts.",
        codec: Codec::Own {
            set: |s, text| {
                s.mqtt.ca = file(text);
                Ok(())
            },
            show: |s| shown(s.mqtt.ca.as_ref()),
        },
    },
    Setting {
        key: "mqtt.cert",
        kind: "FILE",
        allowed: "a file in PEM, or nothing",
        about: "Certificate to show the broker, for brokers that ask for one; `mqtt.key` is its key.",
        codec: Codec::Own {
            set: |s, text| {
                s.mqtt.cert = file(text);
                Ok(())
            },
            show: |s| shown(s.mqtt.cert.as_ref()),
        },
    },
    Setting {
        key: "mqtt.key",
        kind: "FILE",
        allowed: "a file in PEM, or nothing",
        about: "Private key of `mqtt.cert`.",
        codec: Codec::Own {
            set: |s, text| {
                s.mqtt.key = file(text);
                Ok(())
            },
            show: |s| shown(s.mqtt.key.as_ref()),
        },
    },
    Setting {
        key: "mqtt.keep_alive",
        kind: "DURATION",
        allowed: "5s to 18h",
        about: "How often the connection to the broker is proven to live.",
        codec: Codec::Own {
            set: |s, text| {
                let range = Duration::from_secs(5)..=Duration::from_secs(18 * 3600);
                duration_within(text, range).map(|d| s.mqtt.keep_alive = d)
            },
            show: |s| show_duration(s.mqtt.keep_alive),
        },
    },
    Setting {
        key: "mqtt.session_expiry",
        kind: "DURATION",
        allowed: "1s to 49710d, or never",
        about: "How long the broker keeps messages for this server while it is away, as far as the broker goes along.",
        codec: Codec::Own {
            set: |s, text| {
                s.mqtt.session_expiry = match text {
                    "never" => FOR_EVER,
                    _ => duration_within(text, Duration::from_secs(1)..=FOR_EVER)?,
                };
                Ok(())
            },
            show: |s| match s.mqtt.session_expiry {
                FOR_EVER => "never".to_owned(),
                time => show_duration(time),
            },
        },
    },
    Setting {
        key: "mqtt.receive_max",
        kind: "N",
        allowed: "1 to 65535",
        about: "Most messages of QoS 1 that the broker sends ahead of their acknowledgement.",
        codec: Codec::Own {
            set: |s, text| within(parse_count(text)?, 1..=u16::MAX).map(|n| s.mqtt.receive_max = n),
            show: |s| s.mqtt.receive_max.to_string(),
        },
    },
    Setting {
        key: "mqtt.packet_max",
        kind: "SIZE",
        allowed: "1KiB to 256MiB",
        about: "Largest message, topic included. A broker drops larger ones for this server.",
        codec: Codec::Own {
            set: |s, text| size_within(text, 1 << 10..=256 << 20).map(|n| s.mqtt.packet_max = n),
            show: |s| show_size(s.mqtt.packet_max as u64),
        },
    },
    Setting {
        key: "mqtt.bytes_max",
        kind: "SIZE",
        allowed: "64KiB to 64GiB",
        about: "Most bytes of messages held until they are stored; then no more are read. At least `mqtt.packet_max` counts.",
        codec: Codec::Own {
            set: |s, text| size_within(text, 64 << 10..=64 << 30).map(|n| s.mqtt.bytes_max = n),
            show: |s| show_size(s.mqtt.bytes_max as u64),
        },
    },
];

fn file(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn shown(path: Option<&PathBuf>) -> String {
    path.map_or_else(String::new, |path| path.display().to_string())
}

pub(super) fn broker(text: &str) -> Result<Option<Broker>, String> {
    let is_secured = text.starts_with("mqtts:") || text.starts_with("ssl:");
    broker_or(text, if is_secured { 8883 } else { 1883 })
}

/// As [`broker`], with a default port.
pub(super) fn broker_or(text: &str, port_else: u16) -> Result<Option<Broker>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let expected = || "expected an address such as mqtt://broker.example:1883".to_owned();
    let (scheme, rest) = text.split_once("://").ok_or_else(expected)?;
    let tls = match scheme {
        "mqtt" | "tcp" => false,
        "mqtts" | "ssl" => true,
        _ => return Err(expected()),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['@', '/', '?', '#']) {
        return Err(
            "only host and port belong here: user and password are settings of their own"
                .to_owned(),
        );
    }
    // A colon inside brackets belongs to the address.
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (rest, None),
    };
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let is_host = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains([':', '[', ']', ' ']),
    };
    if !is_host {
        return Err(expected());
    }
    if tls && bare.is_some() {
        return Err("TLS needs the name of the broker, or an IPv4 address".to_owned());
    }
    let port = match port {
        None => port_else,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(expected)?,
    };
    Ok(Some(Broker {
        tls,
        host: host.to_owned(),
        port,
    }))
}

/// Checks across settings.
pub(super) fn together(settings: &Settings) -> Result<(), SettingError> {
    let mqtt = &settings.mqtt;
    let error = |text: &str| Err(SettingError::Together(text.to_owned()));
    if mqtt.cert.is_some() != mqtt.key.is_some() {
        return error("mqtt.cert and mqtt.key go together: set both, or none");
    }
    if !mqtt.password.reveal().is_empty() && mqtt.password_file.is_some() {
        return error("mqtt.password and mqtt.password_file say the same thing: set one of them");
    }
    let has_password = !mqtt.password.reveal().is_empty() || mqtt.password_file.is_some();
    if has_password && mqtt.user.is_empty() {
        return error("a password for the broker needs mqtt.user too");
    }
    let Some(broker) = &mqtt.broker else {
        return match mqtt.subscriptions.is_empty() {
            true => Ok(()),
            false => {
                error("[[mqtt.subscription]] needs mqtt.broker: the address to take messages from")
            }
        };
    };
    if !cfg!(feature = "mqtt") {
        return error(
            "mqtt.broker is set, and this program was built without MQTT: build it with the feature mqtt",
        );
    }
    if mqtt.client_id.is_empty() {
        return error(
            "mqtt.broker needs mqtt.client_id: a name for this server's session that no other client has and that stays the same",
        );
    }
    if mqtt.subscriptions.is_empty() {
        return error(
            "mqtt.broker needs at least one [[mqtt.subscription]] in the settings file, which says what topics mean",
        );
    }
    if !broker.tls && (mqtt.ca.is_some() || mqtt.cert.is_some()) {
        return error("mqtt.ca and mqtt.cert are for TLS: write mqtts:// in mqtt.broker");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn addresses_of_brokers() {
        for (text, shown) in [
            ("mqtt://broker", "mqtt://broker:1883"),
            ("mqtts://broker.example/", "mqtts://broker.example:8883"),
            ("tcp://10.0.0.1:1884", "mqtt://10.0.0.1:1884"),
            ("mqtt://[::1]", "mqtt://[::1]:1883"),
            ("mqtt://[::1]:1884", "mqtt://[::1]:1884"),
        ] {
            assert_eq!(broker(text).unwrap().unwrap().to_string(), shown);
        }
        for text in [
            "broker",
            "http://x",
            "mqtt://",
            "mqtt://x:0",
            "mqtt://x:y",
            "mqtt://::1",
            "mqtt://u:p@x",
            "mqtts://[::1]",
        ] {
            assert!(broker(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let mut settings = Settings::new("x");
        settings.mqtt.password = Secret::new("open sesame");
        assert!(!format!("{settings:?}").contains("sesame"));
        for setting in TABLE {
            assert!(!setting.value(&settings).contains("sesame"));
        }
    }
}
